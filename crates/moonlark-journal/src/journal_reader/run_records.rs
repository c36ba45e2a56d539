//! Run records for resuming, secrets included.

use std::path::Path;
use std::time::UNIX_EPOCH;

use moonlark_core::content::ToolAnswer;
use moonlark_core::record_id::RecordId;
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_gateway::journal::{
    CallBegan, CallEnded, CallRecord, JournalEntry, RedactionScopes, RunBegan, RunCarrier,
    RunEnded, RunPaused, RunRecord, caller_key,
};
use moonlark_gateway::{CallOutcome, Caller};
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};

use super::{no_run_problem, read_duration, read_id, read_id_if_any};
use crate::journal_rows::{
    self, ExactRun, SqlId, duration_from_micros, effects_from_bits, parse_exact_run,
};
use crate::journal_schema::{JournalError, open_to_read};
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
    let mut read = || {
        if let Some(process) = take_over {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            check_resumable(&transaction, file, run)?;
            transaction.execute(
                "UPDATE journal_runs SET process = ?2, took = NULL, outcome = NULL, \
                 message = NULL WHERE id = ?1",
                params![SqlId(run), process],
            )?;
            transaction.commit()?;
        }
        let seal = JournalSeal::load_beside(file)?;
        RunRecordReader { connection: &connection, seal: &seal }.read_run(run)
    };
    read().map_err(|error| error.into_problem(file))
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
    let mut claim = || {
        // What it does must not be done again after a crash.
        connection.pragma_update(None, "synchronous", "FULL")?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if !again {
            let earlier = transaction.query_row(
                "SELECT id FROM journal_runs WHERE follows = ?1 ORDER BY id DESC LIMIT 1",
                params![began.follows.map(SqlId)],
                |row| read_id(row, 0),
            );
            if let Some(earlier) = earlier.optional()? {
                return Ok(Some(earlier));
            }
        }
        let seal = JournalSeal::load_beside(file)?;
        let entry = JournalEntry::RunBegan(began.clone());
        let entries = std::iter::once((&entry, None));
        journal_rows::write_entries(&transaction, entries, process, &seal)?;
        transaction.commit()?;
        Ok(None)
    };
    claim().map_err(|error: JournalError| error.into_problem(file))
}

/// The process that is alive and goes on with a run, as `process` sees it.
pub(crate) fn find_carrier(file: &Path, run: RecordId, process: i64) -> Result<Option<RunCarrier>> {
    let find = || {
        let connection = open_to_read(file)?;
        let found = connection.query_row(
            "SELECT run.process, process.lock FROM journal_runs AS run \
             JOIN journal_processes AS process ON process.number = run.process \
             WHERE run.id = ?1 AND run.outcome IS NULL",
            params![SqlId(run)],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<String>>(1)?)),
        );
        let alive = (found.optional()?)
            .filter(|(_, lock)| lock.as_ref().is_some_and(|lock| is_process_alive(file, lock)));
        Ok(alive.map(|(carrier, _)| {
            if carrier == process { RunCarrier::ThisProcess } else { RunCarrier::OtherProcess }
        }))
    };
    find().map_err(|error: JournalError| error.into_problem(file))
}

/// Whether a run may be continued by another process than it was.
fn check_resumable(
    connection: &Connection,
    file: &Path,
    run: RecordId,
) -> Result<(), JournalError> {
    let found = connection.query_row(
        "SELECT run.outcome, run.answer IS NOT NULL, process.lock, run.approval FROM journal_runs AS run \
         LEFT JOIN journal_processes AS process ON process.number = run.process WHERE run.id = ?1",
        params![SqlId(run)],
        |row| {
            let outcome: Option<String> = row.get(0)?;
            let lock: Option<String> = row.get(2)?;
            Ok((outcome, row.get::<_, bool>(1)?, lock, read_id_if_any(row, 3)?))
        },
    );
    let (outcome, answered, lock, approval) =
        found.optional()?.ok_or_else(|| no_run_problem(&run.to_string()))?;
    let is_alive = || lock.is_some_and(|lock| is_process_alive(file, &lock));
    let (message, hint) = match (outcome, approval) {
        (Some(outcome), _) if answered => {
            (format!("run {run} has ended: {outcome}"), format!("`moonlark runs {run}` shows how"))
        }
        // One that was cancelled has no answer, and may go on.
        (Some(_), _) => return Ok(()),
        (None, _) if !is_alive() => return Ok(()),
        (None, Some(approval)) => (
            format!("run {run} waits for a decision, approval {approval}"),
            format!("it goes on by itself when the operator has decided on approval {approval}"),
        ),
        (None, None) => (
            format!("run {run} has not stopped"),
            format!("`moonlark runs {run} --follow` shows how far it is"),
        ),
    };
    Err(Problem::bad_request(message).with_hint(hint).into())
}

struct RunRecordReader<'a> {
    connection: &'a Connection,
    seal: &'a JournalSeal,
}

impl RunRecordReader<'_> {
    fn read_run(&self, run: RecordId) -> Result<RunRecord, JournalError> {
        let read = self.connection.query_row_and_then(
            "SELECT call, at, surface, caller, client, plan, follows, sealed, approval, place, \
             took, outcome, message, answer FROM journal_runs WHERE id = ?1",
            params![SqlId(run)],
            |row| self.build_run_record(row, run),
        );
        if let Err(JournalError::Sqlite(rusqlite::Error::QueryReturnedNoRows)) = read {
            return Err(no_run_problem(&run.to_string()).into());
        }
        let record = read?;
        let calls = self.read_calls(run, &record.began.caller)?;
        let removed_calls = self.count_calls(run)?.saturating_sub(calls.len());
        Ok(RunRecord { calls, removed_calls, ..record })
    }

    /// Without its calls.
    fn build_run_record(&self, row: &Row<'_>, run: RecordId) -> Result<RunRecord, JournalError> {
        let (surface, name): (String, Option<String>) = (row.get(2)?, row.get(3)?);
        let caller = recorded_caller(&surface, name.as_deref());
        let sealed = self.seal.open_value(SealedField::Run, run, row.get(7)?)?;
        let exact = match unpack_value(&sealed)? {
            Value::Object(fields) => parse_exact_run(fields),
            _ => None,
        };
        let damaged = || Problem::internal(format!("the journal entry of run {run} is damaged"));
        let ExactRun { script, timeout, seed, fork } = exact.ok_or_else(damaged)?;
        let began = RunBegan {
            run,
            call: read_id_if_any(row, 0)?,
            caller: Caller { client: row.get(4)?, ..caller },
            at: UNIX_EPOCH + duration_from_micros(row.get(1)?),
            script,
            timeout,
            seed,
            plan: row.get(5)?,
            follows: read_id_if_any(row, 6)?,
            fork,
            secrets: RedactionScopes::default(),
        };
        let place = row.get(9)?;
        let paused = read_id_if_any(row, 8)?.map(|approval| RunPaused { run, approval, place });
        let answer = self.open_answer(SealedField::RunAnswer, run, row.get(13)?)?;
        let ended = match row.get::<_, Option<String>>(11)? {
            None => None,
            Some(outcome) => Some(RunEnded {
                run,
                took: read_duration(row, 10)?.unwrap_or_default(),
                outcome: recorded_outcome(&outcome),
                message: row.get(12)?,
                answer,
            }),
        };
        Ok(RunRecord { began, calls: Vec::new(), paused, ended, removed_calls: 0 })
    }

    /// Those with a place, whether their answers are still kept or not.
    fn count_calls(&self, run: RecordId) -> Result<usize, JournalError> {
        let sql = "SELECT count(*) FROM journal_calls WHERE run = ?1 AND place IS NOT NULL";
        let count: i64 = self.connection.query_row(sql, params![SqlId(run)], |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    fn read_calls(&self, run: RecordId, caller: &Caller) -> Result<Vec<CallRecord>, JournalError> {
        let mut statement = self.connection.prepare(
            "SELECT call.id, call.parent, call.place, call.at, call.tool, call.source, \
             call.effects, call.took, call.outcome, call.message, call.number, exact.args, \
             exact.answer FROM journal_calls AS call \
             JOIN journal_exact AS exact ON exact.id = call.id \
             WHERE call.run = ?1 AND call.place IS NOT NULL ORDER BY call.id",
        )?;
        let build = |row: &Row<'_>| self.build_call_record(row, run, caller);
        statement.query_and_then(params![SqlId(run)], build)?.collect()
    }

    fn build_call_record(
        &self,
        row: &Row<'_>,
        run: RecordId,
        caller: &Caller,
    ) -> Result<CallRecord, JournalError> {
        let id = read_id(row, 0)?;
        let answer = self.open_answer(SealedField::Answer, id, row.get(12)?)?;
        let ended = match row.get::<_, Option<String>>(8)? {
            None => None,
            Some(outcome) => Some(CallEnded {
                call: id,
                caller: caller_key(caller),
                took: read_duration(row, 7)?.unwrap_or_default(),
                outcome: recorded_outcome(&outcome),
                message: row.get(9)?,
                answer,
                order: row.get::<_, Option<i64>>(10)?.and_then(|it| u64::try_from(it).ok()),
            }),
        };
        let args = self.seal.open_value(SealedField::Arguments, id, row.get(11)?)?;
        let began = CallBegan {
            call: id,
            parent: read_id_if_any(row, 1)?,
            run: Some(run),
            place: row.get(2)?,
            at: UNIX_EPOCH + duration_from_micros(row.get(3)?),
            tool: row.get(4)?,
            source: row.get(5)?,
            effects: effects_from_bits(row.get(6)?),
            caller: caller.clone(),
            args: unpack_value(&args)?,
            secrets: RedactionScopes::default(),
        };
        Ok(CallRecord { began, ended })
    }

    fn open_answer(
        &self,
        spot: SealedField,
        id: RecordId,
        sealed: Option<Vec<u8>>,
    ) -> Result<Option<Result<ToolAnswer>>> {
        let open = |sealed| unpack_answer(&self.seal.open_value(spot, id, sealed)?);
        sealed.map(open).transpose()
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
pub(crate) fn recorded_outcome(word: &str) -> CallOutcome {
    CallOutcome::from_word(word).unwrap_or(CallOutcome::Failed(ProblemCode::Internal))
}
