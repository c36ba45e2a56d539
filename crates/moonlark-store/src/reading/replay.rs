//! A run as it was, secrets and all, to be continued.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use moonlark_core::journal::{
    CallBegan, CallEnded, CallRecord, Entry, Id, RunBegan, RunEnded, RunPaused, RunRecord, Secrecy,
};
use moonlark_core::{Caller, Code, Problem, Result, Value};
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};

use super::{duration, id, no_run};
use crate::failure::problem;
use crate::packed::{unpack, unpack_answer};
use crate::process::is_alive;
use crate::rows::{self, Key, Unwritten, effects, exact_run};
use crate::schema::open_to_read;
use crate::sealing::{Seal, Spot};

/// What is on record of `run`. With a number, the run is that process's from
/// now on: a Problem if it has ended, or goes on elsewhere.
pub(crate) fn read(file: &Path, run: Id, take_over: Option<i64>) -> Result<RunRecord> {
    let mut connection = open_to_read(file)?;
    let fail = |error: rusqlite::Error| problem(file, &error);
    if let Some(process) = take_over {
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
        check(&transaction, file, run)?;
        transaction
            .execute(
                "UPDATE journal_runs SET process = ?2, took = NULL, outcome = NULL, \
                 message = NULL WHERE id = ?1",
                params![Key(run), process],
            )
            .map_err(fail)?;
        transaction.commit().map_err(fail)?;
    }
    let seal = Seal::beside(file)?;
    let reading = Reading { connection: &connection, seal: &seal, file };
    reading.run(run)
}

/// Put a run on record that carries out the plan it follows, in the same
/// transaction in which it is made sure that no other has: or the run that has.
pub(crate) fn carry_out(
    file: &Path,
    began: &RunBegan,
    process: i64,
    again: bool,
) -> Result<Option<Id>> {
    let mut connection = open_to_read(file)?;
    let fail = |error: rusqlite::Error| problem(file, &error);
    // What it does must not be done again after a crash.
    connection.pragma_update(None, "synchronous", "FULL").map_err(fail)?;
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
    if !again {
        let earlier = transaction.query_row(
            "SELECT id FROM journal_runs WHERE follows = ?1 ORDER BY id DESC LIMIT 1",
            params![began.follows.map(Key)],
            |row| id(row, 0),
        );
        if let Some(earlier) = earlier.optional().map_err(fail)? {
            return Ok(Some(earlier));
        }
    }
    let seal = Seal::beside(file)?;
    let entry = Entry::RunBegan(began.clone());
    rows::write(&transaction, std::iter::once(&entry), process, &seal).map_err(
        |error| match error {
            Unwritten::Sqlite(error) => fail(error),
            Unwritten::Problem(problem) => problem,
        },
    )?;
    transaction.commit().map_err(fail)?;
    Ok(None)
}

/// Whether a run may be continued by another process than it was.
fn check(connection: &Connection, file: &Path, run: Id) -> Result<()> {
    let found = connection.query_row(
        "SELECT run.outcome, run.answer IS NOT NULL, process.lock, run.approval FROM journal_runs AS run \
         LEFT JOIN journal_processes AS process ON process.number = run.process WHERE run.id = ?1",
        params![Key(run)],
        |row| {
            let outcome: Option<String> = row.get(0)?;
            let approval = row.get::<_, Option<[u8; 16]>>(3)?.map(Id::from_bytes);
            Ok((outcome, row.get::<_, bool>(1)?, row.get::<_, Option<String>>(2)?, approval))
        },
    );
    let found = found.optional().map_err(|error| problem(file, &error))?;
    let (outcome, answered, lock, approval) = found.ok_or_else(|| no_run(&run.to_string()))?;
    // One that was cancelled has no answer, and may go on.
    if let Some(outcome) = outcome {
        return match answered {
            false => Ok(()),
            true => Err(Problem::new(Code::BadRequest, format!("run {run} has ended: {outcome}"))
                .hint(format!("`moonlark runs {run}` shows how"))),
        };
    }
    match (lock.is_some_and(|lock| is_alive(file, &lock)), approval) {
        (false, _) => Ok(()),
        (true, Some(approval)) => {
            let message = format!("run {run} waits for a decision, approval {approval}");
            Err(Problem::new(Code::BadRequest, message).hint(format!(
                "it goes on by itself when the operator has decided on approval {approval}"
            )))
        }
        (true, None) => Err(Problem::new(Code::BadRequest, format!("run {run} has not stopped"))
            .hint(format!("`moonlark runs {run} --follow` shows how far it is"))),
    }
}

struct Reading<'a> {
    connection: &'a Connection,
    seal: &'a Seal,
    file: &'a Path,
}

impl Reading<'_> {
    fn run(&self, run: Id) -> Result<RunRecord> {
        let fail = |error: rusqlite::Error| problem(self.file, &error);
        let row = self.connection.query_row(
            "SELECT call, at, surface, caller, client, plan, follows, sealed, approval, place, \
             took, outcome, message, answer FROM journal_runs WHERE id = ?1",
            params![Key(run)],
            RunRow::read,
        );
        let row = row.optional().map_err(fail)?.ok_or_else(|| no_run(&run.to_string()))?;
        let exact = match unpack(&self.seal.open(Spot::Run, run, row.sealed)?)? {
            Value::Object(fields) => exact_run(fields),
            _ => None,
        };
        let Some((script, timeout, seed)) = exact else {
            return Err(Problem::internal(format!("what is on record of run {run} is garbled")));
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
            secrets: Secrecy::default(),
        };
        let paused =
            row.approval.map(|approval| RunPaused { run, approval, place: row.place.clone() });
        let answer = row
            .answer
            .map(|sealed| unpack_answer(&self.seal.open(Spot::RunAnswer, run, sealed)?));
        let ended = match (row.outcome, answer.transpose()?) {
            (None, _) => None,
            (Some(outcome), answer) => Some(RunEnded {
                run,
                took: row.took.unwrap_or_default(),
                outcome: known_word(&outcome),
                message: row.message,
                answer,
            }),
        };
        Ok(RunRecord { calls: self.calls(run, &began.caller)?, began, paused, ended })
    }

    fn calls(&self, run: Id, caller: &Caller) -> Result<Vec<CallRecord>> {
        let read = || {
            let mut statement = self.connection.prepare(
                "SELECT call.id, call.parent, call.place, call.at, call.tool, call.source, \
                 call.effects, call.took, call.outcome, call.message, call.number, exact.args, \
                 exact.answer FROM journal_calls AS call \
                 JOIN journal_exact AS exact ON exact.id = call.id \
                 WHERE call.run = ?1 AND call.place IS NOT NULL ORDER BY call.id",
            )?;
            let rows = statement.query_map(params![Key(run)], CallRow::read)?;
            rows.collect::<rusqlite::Result<Vec<CallRow>>>()
        };
        let rows = read().map_err(|error| problem(self.file, &error))?;
        rows.into_iter().map(|row| self.call(row, run, caller)).collect()
    }

    fn call(&self, row: CallRow, run: Id, caller: &Caller) -> Result<CallRecord> {
        let answer = row
            .answer
            .map(|sealed| unpack_answer(&self.seal.open(Spot::Answer, row.id, sealed)?));
        let answer = answer.transpose()?;
        let ended = row.outcome.map(|outcome| CallEnded {
            call: row.id,
            took: row.took.unwrap_or_default(),
            outcome: known_word(&outcome),
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
            effects: effects(row.effects),
            caller: caller.clone(),
            args: unpack(&self.seal.open(Spot::Arguments, row.id, row.args)?)?,
            secrets: Secrecy::default(),
        };
        Ok(CallRecord { began, ended })
    }
}

struct RunRow {
    call: Option<Id>,
    at: i64,
    caller: Caller,
    plan: bool,
    follows: Option<Id>,
    sealed: Vec<u8>,
    approval: Option<Id>,
    place: Option<String>,
    took: Option<Duration>,
    outcome: Option<String>,
    message: Option<String>,
    answer: Option<Vec<u8>>,
}

impl RunRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<RunRow> {
        let surface: String = row.get(2)?;
        let name: Option<String> = row.get(3)?;
        let mut caller = caller_of(&surface, name.as_deref());
        caller.client = row.get(4)?;
        let id =
            |at| Ok::<_, rusqlite::Error>(row.get::<_, Option<[u8; 16]>>(at)?.map(Id::from_bytes));
        Ok(RunRow {
            call: id(0)?,
            at: row.get(1)?,
            caller,
            plan: row.get(5)?,
            follows: id(6)?,
            sealed: row.get(7)?,
            approval: id(8)?,
            place: row.get(9)?,
            took: duration(row, 10)?,
            outcome: row.get(11)?,
            message: row.get(12)?,
            answer: row.get(13)?,
        })
    }
}

struct CallRow {
    id: Id,
    parent: Option<Id>,
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
    fn read(row: &Row<'_>) -> rusqlite::Result<CallRow> {
        Ok(CallRow {
            id: id(row, 0)?,
            parent: row.get::<_, Option<[u8; 16]>>(1)?.map(Id::from_bytes),
            place: row.get(2)?,
            at: row.get(3)?,
            tool: row.get(4)?,
            source: row.get(5)?,
            effects: row.get(6)?,
            took: duration(row, 7)?,
            outcome: row.get(8)?,
            message: row.get(9)?,
            number: row.get(10)?,
            args: row.get(11)?,
            answer: row.get(12)?,
        })
    }
}

/// Whoever made a call, as far as it is kept.
pub(crate) fn caller_of(surface: &str, name: Option<&str>) -> Caller {
    let caller = Caller::new(known_word(surface));
    match name {
        Some(name) if name != caller.name() => caller.named(name),
        _ => caller,
    }
}

/// The words that entries use, as they have them.
fn known_word(word: &str) -> &'static str {
    let codes = Code::ALL.iter().map(|code| code.as_str());
    let known =
        ["ok", "assumed", "cancelled", "mcp", "rest", "cli", "test"].into_iter().chain(codes);
    known.into_iter().find(|known| *known == word).unwrap_or("other")
}
