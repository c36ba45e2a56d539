//! Entries to rows.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use moonlark_core::content::Answer;
use moonlark_core::journal::{CallBegan, CallEnded, Entry, Id, RunBegan, RunEnded, shown};
use moonlark_core::tool::Effects;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Result, Value};
use rusqlite::types::{ToSql, ToSqlOutput};
use rusqlite::{CachedStatement, Transaction, params};

use crate::packed::{pack, pack_answer};
use crate::sealing::{Seal, Spot};

/// Bytes of a script that people are shown.
const SCRIPT: usize = 64 * 1024;

/// Why a row could not be written: the file's fault, or the entry's.
#[derive(Debug)]
pub(crate) enum Unwritten {
    Sqlite(rusqlite::Error),
    Problem(Problem),
}

impl From<rusqlite::Error> for Unwritten {
    fn from(error: rusqlite::Error) -> Self {
        Unwritten::Sqlite(error)
    }
}

impl From<Problem> for Unwritten {
    fn from(problem: Problem) -> Self {
        Unwritten::Problem(problem)
    }
}

/// Write `entries` in their order, as rows of the process `process`.
pub(crate) fn write<'a>(
    transaction: &Transaction<'_>,
    entries: impl Iterator<Item = &'a Entry> + Clone,
    process: i64,
    seal: &Seal,
) -> Result<(), Unwritten> {
    // A call that begins and ends in one batch, as most do, is one row at once.
    let ends: HashMap<Id, &CallEnded> = (entries.clone())
        .filter_map(|entry| match entry {
            Entry::CallEnded(ended) => Some((ended.call, ended)),
            _ => None,
        })
        .collect();
    let mut whole = HashMap::new();
    let mut rows = Rows { calls: Statements::new(transaction)?, transaction, process, seal };
    for entry in entries {
        match entry {
            Entry::CallBegan(began) => {
                let ended = ends.get(&began.call).copied();
                rows.call(began, ended)?;
                if ended.is_some() {
                    whole.insert(began.call, ());
                }
            }
            Entry::CallEnded(ended) if whole.remove(&ended.call).is_some() => {}
            Entry::CallEnded(ended) => rows.call_ended(ended)?,
            Entry::RunBegan(began) => rows.run(began)?,
            Entry::RunPaused(paused) => {
                transaction.execute(
                    "UPDATE journal_runs SET approval = ?2, place = ?3 WHERE id = ?1",
                    params![Key(paused.run), Key(paused.approval), paused.place],
                )?;
            }
            Entry::RunWentOn(run) => {
                transaction.execute(
                    "UPDATE journal_runs SET approval = NULL, place = NULL WHERE id = ?1",
                    params![Key(*run)],
                )?;
            }
            Entry::RunEnded(ended) => rows.run_ended(ended)?,
        }
    }
    Ok(())
}

/// The statements that most entries need, looked up once per batch.
struct Statements<'t> {
    begin: CachedStatement<'t>,
    end: CachedStatement<'t>,
    exact: CachedStatement<'t>,
    answer: CachedStatement<'t>,
}

impl<'t> Statements<'t> {
    fn new(transaction: &'t Transaction<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            begin: transaction.prepare_cached(
                "INSERT OR IGNORE INTO journal_calls (id, parent, run, place, process, at, tool, source, \
                 effects, surface, caller, client, args, took, outcome, message, number) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
            )?,
            end: transaction.prepare_cached(
                "UPDATE journal_calls SET took = ?2, outcome = ?3, message = ?4, number = ?5 \
                 WHERE id = ?1",
            )?,
            exact: transaction
                .prepare_cached("INSERT OR IGNORE INTO journal_exact (id, args, answer) VALUES (?1, ?2, ?3)")?,
            answer: transaction.prepare_cached("UPDATE journal_exact SET answer = ?2 WHERE id = ?1")?,
        })
    }
}

struct Rows<'t, 'c> {
    calls: Statements<'t>,
    transaction: &'t Transaction<'c>,
    process: i64,
    seal: &'t Seal,
}

impl Rows<'_, '_> {
    fn call(&mut self, began: &CallBegan, ended: Option<&CallEnded>) -> Result<(), Unwritten> {
        let (id, caller) = (began.call, &began.caller);
        self.calls.begin.execute(params![
            Key(id),
            began.parent.map(Key),
            began.run.map(Key),
            began.place,
            self.process,
            micros(began.at),
            began.tool,
            began.source,
            bits(began.effects),
            caller.surface,
            caller.name(),
            caller.client,
            shown::arguments(&began.args, &began.secrets),
            ended.map(|ended| lasted(ended.took)),
            ended.map(|ended| ended.outcome),
            ended.and_then(|ended| ended.message.as_deref()),
            ended.and_then(|ended| ended.order).map(signed),
        ])?;
        if began.place.is_some() {
            let args = self.seal.seal(Spot::Arguments, id, pack(&began.args)?)?;
            let answer = ended.and_then(|ended| ended.answer.as_ref());
            let answer = self.sealed(Spot::Answer, id, answer)?;
            self.calls.exact.execute(params![Key(id), args, answer])?;
        }
        Ok(())
    }

    fn call_ended(&mut self, ended: &CallEnded) -> Result<(), Unwritten> {
        self.calls.end.execute(params![
            Key(ended.call),
            lasted(ended.took),
            ended.outcome,
            ended.message,
            ended.order.map(signed),
        ])?;
        if let Some(answer) = self.sealed(Spot::Answer, ended.call, ended.answer.as_ref())? {
            self.calls.answer.execute(params![Key(ended.call), answer])?;
        }
        Ok(())
    }

    fn run(&mut self, began: &RunBegan) -> Result<(), Unwritten> {
        let exact = Value::object([
            ("script", began.script.as_str().into()),
            ("timeout", began.timeout.map(|it| Value::Float(it.as_secs_f64())).into()),
            ("seed", Value::from(began.seed.iter().map(|it| i64::from(*it)).collect::<Vec<_>>())),
        ]);
        let sealed = self.seal.seal(Spot::Run, began.run, pack(&exact)?)?;
        let script = shown::script(&began.script, &began.secrets);
        self.transaction.execute(
            "INSERT OR IGNORE INTO journal_runs (id, call, process, at, surface, caller, client, script, \
             plan, follows, sealed) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            params![
                Key(began.run),
                began.call.map(Key),
                self.process,
                micros(began.at),
                began.caller.surface,
                began.caller.name(),
                began.caller.client,
                cut(&script, SCRIPT),
                began.plan,
                began.follows.map(Key),
                sealed,
            ],
        )?;
        Ok(())
    }

    fn run_ended(&mut self, ended: &RunEnded) -> Result<(), Unwritten> {
        let answer = self.sealed(Spot::RunAnswer, ended.run, ended.answer.as_ref())?;
        self.transaction.execute(
            "UPDATE journal_runs SET took = ?2, outcome = ?3, message = ?4, answer = ?5, \
             approval = NULL, place = NULL WHERE id = ?1",
            params![Key(ended.run), lasted(ended.took), ended.outcome, ended.message, answer],
        )?;
        Ok(())
    }

    fn sealed(
        &self,
        spot: Spot,
        id: Id,
        answer: Option<&Result<Answer>>,
    ) -> Result<Option<Vec<u8>>> {
        answer.map(|answer| self.seal.seal(spot, id, pack_answer(answer)?)).transpose()
    }
}

/// An id as a key of a table.
pub(crate) struct Key(pub(crate) Id);

impl ToSql for Key {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.as_bytes().to_sql()
    }
}

/// Microseconds since 1970.
pub(crate) fn micros(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    lasted(since)
}

pub(crate) fn lasted(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn bits(effects: Effects) -> i64 {
    let Effects { read_only, destructive, idempotent, open_world } = effects;
    [read_only, destructive, idempotent, open_world]
        .iter()
        .enumerate()
        .map(|(at, flag)| i64::from(*flag) << at)
        .sum()
}

pub(crate) fn effects(bits: i64) -> Effects {
    let bit = |at: u32| bits >> at & 1 == 1;
    Effects { read_only: bit(0), destructive: bit(1), idempotent: bit(2), open_world: bit(3) }
}

/// The script, its timeout and its seed, as they were sealed.
pub(crate) fn exact_run(mut fields: Object) -> Option<(String, Option<Duration>, [u8; 32])> {
    let Some(Value::Str(script)) = fields.swap_remove("script") else { return None };
    let timeout = match fields.get("timeout") {
        Some(Value::Float(seconds)) => Some(Duration::try_from_secs_f64(*seconds).ok()?),
        _ => None,
    };
    let Some(Value::Array(bytes)) = fields.swap_remove("seed") else { return None };
    let byte = |value: &Value| match value {
        Value::Int(byte) => u8::try_from(*byte).ok(),
        _ => None,
    };
    let seed: Vec<u8> = bytes.iter().filter_map(byte).collect();
    Some((script, timeout, seed.try_into().ok()?))
}

fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
