//! Entries to rows.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use moonlark_core::content::ToolAnswer;
use moonlark_core::record_id::RecordId;
use moonlark_core::tool::CallEffects;
use moonlark_core::value::Object;
use moonlark_core::{Result, Value};
use moonlark_gateway::journal::{
    CallBegan, CallEnded, JournalEntry, RunBegan, RunEnded, caller_key, redaction,
};
use moonlark_gateway::run::{NewCallPolicy, RunFork};
use rusqlite::types::{ToSql, ToSqlOutput};
use rusqlite::{CachedStatement, OptionalExtension, Transaction, params};

use crate::journal_schema::JournalError;
use crate::sealing::{JournalSeal, SealedField};
use crate::usage::CallerUsage;
use crate::value_packing::{pack_answer, pack_value};

/// Bytes of a script that people are shown.
const MAX_SHOWN_SCRIPT_BYTES: usize = 64 * 1024;

/// An entry, and what people are shown of it if that is known already.
pub(crate) type ShownEntry<'a> = (&'a JournalEntry, Option<&'a str>);

/// What people are shown of an entry, where that differs from what it holds.
pub(crate) fn shown_text(entry: &JournalEntry) -> Option<String> {
    match entry {
        JournalEntry::RunBegan(began) => Some(shown_script(began)),
        JournalEntry::CallBegan(began) => {
            Some(redaction::redact_arguments(&began.args, &began.secrets))
        }
        _ => None,
    }
}

fn shown_script(began: &RunBegan) -> String {
    let mut script = redaction::redact_script(&began.script, &began.secrets);
    script.truncate(script.floor_char_boundary(MAX_SHOWN_SCRIPT_BYTES));
    script
}

/// Write `entries` in their order, as rows of the process `process`.
pub(crate) fn write_entries<'a>(
    transaction: &Transaction<'_>,
    entries: impl Iterator<Item = ShownEntry<'a>> + Clone,
    process: i64,
    seal: &JournalSeal,
) -> Result<(), JournalError> {
    write_rows(transaction, entries, JournalRowOwner { process, is_gone: false }, seal)
}

/// Write what a process has left that is gone. Some of it may be there already, and runs
/// that another process has taken over are that one's.
pub(crate) fn write_left_entries<'a>(
    transaction: &Transaction<'_>,
    entries: impl Iterator<Item = ShownEntry<'a>> + Clone,
    process: i64,
    seal: &JournalSeal,
) -> Result<(), JournalError> {
    write_rows(transaction, entries, JournalRowOwner { process, is_gone: true }, seal)
}

/// Whose rows are written.
#[derive(Clone, Copy)]
struct JournalRowOwner {
    process: i64,
    is_gone: bool,
}

impl JournalRowOwner {
    /// The process whose rows may be changed; none for any.
    fn only(self) -> Option<i64> {
        self.is_gone.then_some(self.process)
    }
}

fn write_rows<'a>(
    transaction: &Transaction<'_>,
    entries: impl Iterator<Item = ShownEntry<'a>> + Clone,
    owner: JournalRowOwner,
    seal: &JournalSeal,
) -> Result<(), JournalError> {
    // A call that begins and ends in one batch, as most do, is one row at once.
    let ends: HashMap<RecordId, &CallEnded> = (entries.clone())
        .filter_map(|(entry, _)| match entry {
            JournalEntry::CallEnded(ended) => Some((ended.call, ended)),
            _ => None,
        })
        .collect();
    let mut whole = HashMap::new();
    let calls = CallStatements::new(transaction)?;
    let usage = CallerUsage::default();
    let mut rows = JournalRowWriter { calls, usage, transaction, owner, seal };
    for (entry, shown) in entries {
        match entry {
            JournalEntry::CallBegan(began) => {
                let ended = ends.get(&began.call).copied();
                rows.insert_call(began, shown, ended)?;
                if ended.is_some() {
                    whole.insert(began.call, ());
                }
            }
            JournalEntry::CallEnded(ended) if whole.remove(&ended.call).is_some() => {}
            JournalEntry::CallEnded(ended) => rows.update_ended_call(ended)?,
            JournalEntry::RunBegan(began) => rows.insert_run(began, shown)?,
            JournalEntry::RunPaused(paused) => {
                transaction.execute(
                    "UPDATE journal_runs SET approval = ?2, place = ?3 \
                     WHERE id = ?1 AND (?4 IS NULL OR process = ?4)",
                    params![SqlId(paused.run), SqlId(paused.approval), paused.place, owner.only()],
                )?;
            }
            JournalEntry::RunWentOn(run) => {
                transaction.execute(
                    "UPDATE journal_runs SET approval = NULL, place = NULL \
                     WHERE id = ?1 AND (?2 IS NULL OR process = ?2)",
                    params![SqlId(*run), owner.only()],
                )?;
            }
            // One without an answer may have been taken over since, and can be in any case.
            JournalEntry::RunEnded(ended) if owner.is_gone && ended.answer.is_none() => {}
            JournalEntry::RunEnded(ended) => rows.update_ended_run(ended)?,
        }
    }
    Ok(rows.usage.add_to_table(transaction)?)
}

/// The statements that most entries need, looked up once per batch.
struct CallStatements<'t> {
    begin: CachedStatement<'t>,
    end: CachedStatement<'t>,
    exact: CachedStatement<'t>,
    answer: CachedStatement<'t>,
}

impl<'t> CallStatements<'t> {
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
            answer: transaction.prepare_cached("UPDATE journal_exact SET answer = ?2 WHERE id = ?1 AND answer IS NULL")?,
        })
    }
}

struct JournalRowWriter<'t, 'c> {
    calls: CallStatements<'t>,
    usage: CallerUsage,
    transaction: &'t Transaction<'c>,
    owner: JournalRowOwner,
    seal: &'t JournalSeal,
}

impl JournalRowWriter<'_, '_> {
    fn insert_call(
        &mut self,
        began: &CallBegan,
        shown: Option<&str>,
        ended: Option<&CallEnded>,
    ) -> Result<(), JournalError> {
        let (id, caller) = (began.call, &began.caller);
        let shown = match shown {
            Some(shown) => Cow::Borrowed(shown),
            None => Cow::Owned(redaction::redact_arguments(&began.args, &began.secrets)),
        };
        let message = ended.and_then(|ended| ended.message.as_deref());
        let mut bytes = shown.len() + message.map_or(0, str::len);
        let is_new = self.calls.begin.execute(params![
            SqlId(id),
            began.parent.map(SqlId),
            began.run.map(SqlId),
            began.place,
            self.owner.process,
            unix_micros(began.at),
            began.tool,
            began.source,
            effect_bits(began.effects),
            caller.surface,
            caller.name(),
            caller.client,
            shown,
            ended.map(|ended| duration_micros(ended.took)),
            ended.map(|ended| ended.outcome.as_str()),
            message,
            ended.and_then(|ended| ended.order).map(saturating_i64),
        ])?;
        if began.place.is_some() {
            let args =
                self.seal.seal_value(SealedField::Arguments, id, pack_value(&began.args)?)?;
            let answer = ended.and_then(|ended| ended.answer.as_ref());
            let answer = self.seal_answer(SealedField::Answer, id, answer)?;
            bytes += args.len() + answer.as_ref().map_or(0, Vec::len);
            self.calls.exact.execute(params![SqlId(id), args, answer])?;
        }
        if is_new > 0 {
            self.usage.add_row(caller_key(caller), bytes);
        } else if let Some(ended) = ended {
            // Its beginning was there already.
            self.update_ended_call(ended)?;
        }
        Ok(())
    }

    fn update_ended_call(&mut self, ended: &CallEnded) -> Result<(), JournalError> {
        self.calls.end.execute(params![
            SqlId(ended.call),
            duration_micros(ended.took),
            ended.outcome.as_str(),
            ended.message,
            ended.order.map(saturating_i64),
        ])?;
        if let Some(answer) =
            self.seal_answer(SealedField::Answer, ended.call, ended.answer.as_ref())?
        {
            let written = self.calls.answer.execute(params![SqlId(ended.call), answer])?;
            self.usage.add_bytes(ended.caller.clone(), written * answer.len());
        }
        Ok(())
    }

    fn insert_run(&mut self, began: &RunBegan, shown: Option<&str>) -> Result<(), JournalError> {
        let mut exact = Value::from_fields([
            ("script", began.script.as_str().into()),
            ("timeout", began.timeout.map(|it| Value::Float(it.as_secs_f64())).into()),
            ("seed", Value::from(began.seed.iter().map(|it| i64::from(*it)).collect::<Vec<_>>())),
        ]);
        if let (Some(fork), Value::Object(fields)) = (&began.fork, &mut exact) {
            fields.insert("fork".to_owned(), encode_fork(fork));
        }
        let sealed = self.seal.seal_value(SealedField::Run, began.run, pack_value(&exact)?)?;
        let script = shown.map_or_else(|| shown_script(began).into(), Cow::Borrowed);
        let bytes = script.len() + sealed.len();
        let is_new = self.transaction.execute(
            "INSERT OR IGNORE INTO journal_runs (id, call, process, at, surface, caller, client, script, \
             plan, follows, sealed) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            params![
                SqlId(began.run),
                began.call.map(SqlId),
                self.owner.process,
                unix_micros(began.at),
                began.caller.surface,
                began.caller.name(),
                began.caller.client,
                script,
                began.plan,
                began.follows.map(SqlId),
                sealed,
            ],
        )?;
        if is_new > 0 {
            self.usage.add_row(caller_key(&began.caller), bytes);
        }
        Ok(())
    }

    fn update_ended_run(&mut self, ended: &RunEnded) -> Result<(), JournalError> {
        let answer = self.seal_answer(SealedField::RunAnswer, ended.run, ended.answer.as_ref())?;
        let bytes = answer.as_ref().map_or(0, Vec::len);
        let caller = self.transaction.query_row(
            "UPDATE journal_runs SET took = ?2, outcome = ?3, message = ?4, answer = ?5, \
             approval = NULL, place = NULL \
             WHERE id = ?1 AND (?6 IS NULL OR process = ?6) RETURNING coalesce(caller, '')",
            params![
                SqlId(ended.run),
                duration_micros(ended.took),
                ended.outcome.as_str(),
                ended.message,
                answer,
                self.owner.only()
            ],
            |row| row.get::<_, String>(0),
        );
        if let Some(caller) = caller.optional()? {
            self.usage.add_bytes(Arc::from(caller), bytes);
        }
        Ok(())
    }

    fn seal_answer(
        &self,
        spot: SealedField,
        id: RecordId,
        answer: Option<&Result<ToolAnswer>>,
    ) -> Result<Option<Vec<u8>>> {
        answer.map(|answer| self.seal.seal_value(spot, id, pack_answer(answer)?)).transpose()
    }
}

/// An id as a key of a table.
pub(crate) struct SqlId(pub(crate) RecordId);

impl ToSql for SqlId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.as_bytes().to_sql()
    }
}

/// Microseconds since 1970.
pub(crate) fn unix_micros(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    duration_micros(since)
}

pub(crate) fn duration_micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn duration_from_micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

fn saturating_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn effect_bits(effects: CallEffects) -> i64 {
    let CallEffects { read_only, destructive, idempotent, open_world } = effects;
    [read_only, destructive, idempotent, open_world]
        .iter()
        .enumerate()
        .map(|(at, flag)| i64::from(*flag) << at)
        .sum()
}

pub(crate) fn effects_from_bits(bits: i64) -> CallEffects {
    let bit = |at: u32| bits >> at & 1 == 1;
    CallEffects { read_only: bit(0), destructive: bit(1), idempotent: bit(2), open_world: bit(3) }
}

/// What is sealed of the beginning of a run.
pub(crate) struct ExactRun {
    pub(crate) script: String,
    pub(crate) timeout: Option<Duration>,
    pub(crate) seed: [u8; 32],
    pub(crate) fork: Option<RunFork>,
}

fn encode_fork(fork: &RunFork) -> Value {
    Value::from_fields([
        ("source", fork.source.to_string().into()),
        ("clock", Value::Int(unix_micros(fork.clock))),
        ("new_calls", fork.new_calls.as_str().into()),
    ])
}

fn parse_fork(fork: &Value) -> Option<RunFork> {
    let Some(Value::Int(clock)) = fork.get("clock") else { return None };
    Some(RunFork {
        source: fork.get("source")?.as_str()?.parse().ok()?,
        clock: UNIX_EPOCH + duration_from_micros(*clock),
        new_calls: NewCallPolicy::from_word(fork.get("new_calls")?.as_str()?)?,
    })
}

/// The script, its timeout, its seed and what it is a fork of, as they were sealed.
pub(crate) fn parse_exact_run(mut fields: Object) -> Option<ExactRun> {
    let Some(Value::Str(script)) = fields.swap_remove("script") else { return None };
    let timeout = match fields.get("timeout") {
        Some(Value::Float(seconds)) => Some(Duration::try_from_secs_f64(*seconds).ok()?),
        _ => None,
    };
    let fork = match fields.get("fork") {
        Some(fork @ Value::Object(_)) => Some(parse_fork(fork)?),
        _ => None,
    };
    let Some(Value::Array(bytes)) = fields.swap_remove("seed") else { return None };
    let byte = |value: &Value| match value {
        Value::Int(byte) => u8::try_from(*byte).ok(),
        _ => None,
    };
    let seed: Vec<u8> = bytes.iter().filter_map(byte).collect();
    Some(ExactRun { script, timeout, seed: seed.try_into().ok()?, fork })
}
