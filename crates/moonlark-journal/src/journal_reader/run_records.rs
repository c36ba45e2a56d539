//! A run as it was, secrets and all, to be continued.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use moonlark_core::record_id::RecordId;
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_gateway::journal::{
    CallBegan, CallEnded, CallRecord, JournalEntry, RedactionScopes, RunBegan, RunEnded, RunPaused,
    RunRecord, caller_key,
};
use moonlark_gateway::{CallOutcome, Caller};
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};

use super::{no_run_problem, read_duration, read_id};
use crate::journal_rows::{self, EntryWriteError, SqlId, effects_from_bits, parse_exact_run};
use crate::journal_schema::{journal_problem, open_to_read};
use crate::process_lock::is_process_alive;
use crate::sealing::{JournalSeal, SealedField};
use crate::value_packing::{unpack_answer, unpack_value};

/// What is on record of `run`. With a number, the run is that process's from
/// now on: a Problem if it has ended, or goes on elsewhere.
pub(crate) fn read_run_record(
    file: &Path,
    run: RecordId,
    take_over: Option<i64>,
) -> Result<RunRecord> {
    let mut connection = open_to_read(file)?;
    let fail = |error: rusqlite::Error| journal_problem(file, &error);
    if let Some(process) = take_over {
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
        check_resumable(&transaction, file, run)?;
        transaction
            .execute(
                "UPDATE journal_runs SET process = ?2, took = NULL, outcome = NULL, \
                 message = NULL WHERE id = ?1",
                params![SqlId(run), process],
            )
            .map_err(fail)?;
        transaction.commit().map_err(fail)?;
    }
    let seal = JournalSeal::load_beside(file)?;
    let reading = RunRecordReader { connection: &connection, seal: &seal, file };
    reading.read_run(run)
}

/// Put a run on record that carries out the plan it follows, in the same
/// transaction in which it is made sure that no other has: or the run that has.
pub(crate) fn claim_plan(
    file: &Path,
    began: &RunBegan,
    process: i64,
    again: bool,
) -> Result<Option<RecordId>> {
    let mut connection = open_to_read(file)?;
    let fail = |error: rusqlite::Error| journal_problem(file, &error);
    // What it does must not be done again after a crash.
    connection.pragma_update(None, "synchronous", "FULL").map_err(fail)?;
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
    if !again {
        let earlier = transaction.query_row(
            "SELECT id FROM journal_runs WHERE follows = ?1 ORDER BY id DESC LIMIT 1",
            params![began.follows.map(SqlId)],
            |row| read_id(row, 0),
        );
        if let Some(earlier) = earlier.optional().map_err(fail)? {
            return Ok(Some(earlier));
        }
    }
    let seal = JournalSeal::load_beside(file)?;
    let entry = JournalEntry::RunBegan(began.clone());
    journal_rows::write_entries(&transaction, std::iter::once(&entry), process, &seal).map_err(
        |error| match error {
            EntryWriteError::Sqlite(error) => fail(error),
            EntryWriteError::Problem(problem) => problem,
        },
    )?;
    transaction.commit().map_err(fail)?;
    Ok(None)
}

/// Whether a run may be continued by another process than it was.
fn check_resumable(connection: &Connection, file: &Path, run: RecordId) -> Result<()> {
    let found = connection.query_row(
        "SELECT run.outcome, run.answer IS NOT NULL, process.lock, run.approval FROM journal_runs AS run \
         LEFT JOIN journal_processes AS process ON process.number = run.process WHERE run.id = ?1",
        params![SqlId(run)],
        |row| {
            let outcome: Option<String> = row.get(0)?;
            let approval = row.get::<_, Option<[u8; 16]>>(3)?.map(RecordId::from_bytes);
            Ok((outcome, row.get::<_, bool>(1)?, row.get::<_, Option<String>>(2)?, approval))
        },
    );
    let found = found.optional().map_err(|error| journal_problem(file, &error))?;
    let (outcome, answered, lock, approval) =
        found.ok_or_else(|| no_run_problem(&run.to_string()))?;
    // One that was cancelled has no answer, and may go on.
    if let Some(outcome) = outcome {
        return if answered {
            Err(Problem::new(ProblemCode::BadRequest, format!("run {run} has ended: {outcome}"))
                .with_hint(format!("`moonlark runs {run}` shows how")))
        } else {
            Ok(())
        };
    }
    match (lock.is_some_and(|lock| is_process_alive(file, &lock)), approval) {
        (false, _) => Ok(()),
        (true, Some(approval)) => {
            let message = format!("run {run} waits for a decision, approval {approval}");
            Err(Problem::new(ProblemCode::BadRequest, message).with_hint(format!(
                "it goes on by itself when the operator has decided on approval {approval}"
            )))
        }
        (true, None) => {
            Err(Problem::new(ProblemCode::BadRequest, format!("run {run} has not stopped"))
                .with_hint(format!("`moonlark runs {run} --follow` shows how far it is")))
        }
    }
}

struct RunRecordReader<'a> {
    connection: &'a Connection,
    seal: &'a JournalSeal,
    file: &'a Path,
}

impl RunRecordReader<'_> {
    fn read_run(&self, run: RecordId) -> Result<RunRecord> {
        let fail = |error: rusqlite::Error| journal_problem(self.file, &error);
        let row = self.connection.query_row(
            "SELECT call, at, surface, caller, client, plan, follows, sealed, approval, place, \
             took, outcome, message, answer FROM journal_runs WHERE id = ?1",
            params![SqlId(run)],
            RunRow::from_sql_row,
        );
        let row = row.optional().map_err(fail)?.ok_or_else(|| no_run_problem(&run.to_string()))?;
        let exact = match unpack_value(&self.seal.open_value(SealedField::Run, run, row.sealed)?)? {
            Value::Object(fields) => parse_exact_run(fields),
            _ => None,
        };
        let Some((script, timeout, seed)) = exact else {
            return Err(Problem::internal(format!("the journal entry of run {run} is damaged")));
        };
        let at = UNIX_EPOCH + Duration::from_micros(u64::try_from(row.at).unwrap_or(0));
        let began = RunBegan {
            run,
            call: row.call,
            caller: row.caller,
            at,
            script,
            timeout,
            seed,
            plan: row.plan,
            follows: row.follows,
            secrets: RedactionScopes::default(),
        };
        let paused =
            row.approval.map(|approval| RunPaused { run, approval, place: row.place.clone() });
        let answer = row.answer.map(|sealed| {
            unpack_answer(&self.seal.open_value(SealedField::RunAnswer, run, sealed)?)
        });
        let ended = match (row.outcome, answer.transpose()?) {
            (None, _) => None,
            (Some(outcome), answer) => Some(RunEnded {
                run,
                took: row.took.unwrap_or_default(),
                outcome: recorded_outcome(&outcome),
                message: row.message,
                answer,
            }),
        };
        Ok(RunRecord { calls: self.read_calls(run, &began.caller)?, began, paused, ended })
    }

    fn read_calls(&self, run: RecordId, caller: &Caller) -> Result<Vec<CallRecord>> {
        let read = || {
            let mut statement = self.connection.prepare(
                "SELECT call.id, call.parent, call.place, call.at, call.tool, call.source, \
                 call.effects, call.took, call.outcome, call.message, call.number, exact.args, \
                 exact.answer FROM journal_calls AS call \
                 JOIN journal_exact AS exact ON exact.id = call.id \
                 WHERE call.run = ?1 AND call.place IS NOT NULL ORDER BY call.id",
            )?;
            let rows = statement.query_map(params![SqlId(run)], CallRow::from_sql_row)?;
            rows.collect::<rusqlite::Result<Vec<CallRow>>>()
        };
        let rows = read().map_err(|error| journal_problem(self.file, &error))?;
        rows.into_iter().map(|row| self.build_call_record(row, run, caller)).collect()
    }

    fn build_call_record(
        &self,
        row: CallRow,
        run: RecordId,
        caller: &Caller,
    ) -> Result<CallRecord> {
        let answer = row.answer.map(|sealed| {
            unpack_answer(&self.seal.open_value(SealedField::Answer, row.id, sealed)?)
        });
        let answer = answer.transpose()?;
        let ended = row.outcome.map(|outcome| CallEnded {
            call: row.id,
            caller: caller_key(caller),
            took: row.took.unwrap_or_default(),
            outcome: recorded_outcome(&outcome),
            message: row.message,
            answer,
            order: row.number.and_then(|it| u64::try_from(it).ok()),
        });
        let began = CallBegan {
            call: row.id,
            parent: row.parent,
            run: Some(run),
            place: row.place,
            at: UNIX_EPOCH + Duration::from_micros(u64::try_from(row.at).unwrap_or(0)),
            tool: row.tool,
            source: row.source,
            effects: effects_from_bits(row.effects),
            caller: caller.clone(),
            args: unpack_value(&self.seal.open_value(SealedField::Arguments, row.id, row.args)?)?,
            secrets: RedactionScopes::default(),
        };
        Ok(CallRecord { began, ended })
    }
}

struct RunRow {
    call: Option<RecordId>,
    at: i64,
    caller: Caller,
    plan: bool,
    follows: Option<RecordId>,
    sealed: Vec<u8>,
    approval: Option<RecordId>,
    place: Option<String>,
    took: Option<Duration>,
    outcome: Option<String>,
    message: Option<String>,
    answer: Option<Vec<u8>>,
}

impl RunRow {
    fn from_sql_row(row: &Row<'_>) -> rusqlite::Result<RunRow> {
        let surface: String = row.get(2)?;
        let name: Option<String> = row.get(3)?;
        let mut caller = recorded_caller(&surface, name.as_deref());
        caller.client = row.get(4)?;
        let id = |at| {
            Ok::<_, rusqlite::Error>(row.get::<_, Option<[u8; 16]>>(at)?.map(RecordId::from_bytes))
        };
        Ok(RunRow {
            call: id(0)?,
            at: row.get(1)?,
            caller,
            plan: row.get(5)?,
            follows: id(6)?,
            sealed: row.get(7)?,
            approval: id(8)?,
            place: row.get(9)?,
            took: read_duration(row, 10)?,
            outcome: row.get(11)?,
            message: row.get(12)?,
            answer: row.get(13)?,
        })
    }
}

struct CallRow {
    id: RecordId,
    parent: Option<RecordId>,
    place: Option<String>,
    at: i64,
    tool: String,
    source: String,
    effects: i64,
    took: Option<Duration>,
    outcome: Option<String>,
    message: Option<String>,
    number: Option<i64>,
    args: Vec<u8>,
    answer: Option<Vec<u8>>,
}

impl CallRow {
    fn from_sql_row(row: &Row<'_>) -> rusqlite::Result<CallRow> {
        Ok(CallRow {
            id: read_id(row, 0)?,
            parent: row.get::<_, Option<[u8; 16]>>(1)?.map(RecordId::from_bytes),
            place: row.get(2)?,
            at: row.get(3)?,
            tool: row.get(4)?,
            source: row.get(5)?,
            effects: row.get(6)?,
            took: read_duration(row, 7)?,
            outcome: row.get(8)?,
            message: row.get(9)?,
            number: row.get(10)?,
            args: row.get(11)?,
            answer: row.get(12)?,
        })
    }
}

/// Whoever made a call, as far as it is kept.
pub(crate) fn recorded_caller(surface: &str, name: Option<&str>) -> Caller {
    let caller = Caller::new(known_surface(surface));
    match name {
        Some(name) if name != caller.name() => caller.with_name(name),
        _ => caller,
    }
}

/// The surfaces that entries name.
fn known_surface(word: &str) -> &'static str {
    let known = ["mcp", "rest", "cli", "test"];
    known.into_iter().find(|known| *known == word).unwrap_or("other")
}

/// A code that this version does not know is a failure all the same.
fn recorded_outcome(word: &str) -> CallOutcome {
    CallOutcome::from_word(word).unwrap_or(CallOutcome::Failed(ProblemCode::Internal))
}
