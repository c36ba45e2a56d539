//! Retention: entries that are too old or too many are removed, a little at a time, so
//! that the writer is never away for long.
//!
//! What is too old goes whoever's it is. What is too much goes from the caller with most on
//! record: first the exact arguments and answers of its finished runs, which only a replay
//! needs, then its finished runs and calls, the oldest first. Runs that are running, wait for
//! a decision or were interrupted, and plans that were not carried out, stay; only a caller
//! with more than its share loses those that are not recent. If nothing of it may go, it is
//! named, so that its runs put no more on record.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use moonlark_core::record_id::RecordId;
use rusqlite::{Connection, Transaction, params};

use crate::journal_rows::{SqlId, unix_micros};
use crate::journal_schema::JournalSettings;
use crate::process_lock::{alive_locks, is_process_alive};
use crate::usage::{CALL_BYTES, CallerUsage, RUN_BYTES, callers_by_usage};

/// Runs and calls that are looked at, and that go, in one step.
const MAX_EXAMINED_ROWS: i64 = 20_000;
const MAX_STEP_SCANS: u32 = 10;
const MAX_REMOVED_ROWS: usize = 5000;
/// Bytes that go in one step: more than are written in one batch.
const MAX_REMOVED_BYTES: u64 = 16 * 1024 * 1024;
/// Bytes that go at least before another caller has most.
const MIN_REMOVED_BYTES: u64 = 1024 * 1024;
/// Pages that are given back to the file system in one go.
const MAX_RELEASED_PAGES: u64 = 2000;
/// Whoever has less than this part of the journal keeps what others need not keep.
const CALLER_SHARES: u64 = 8;
/// How often rows are looked for that are too old.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);
/// What was interrupted or planned this recently stays, however much it is.
const MIN_UNFINISHED_AGE: Duration = Duration::from_secs(3600);

#[derive(Default)]
pub(crate) struct JournalRetention {
    /// It was too large, and is made somewhat smaller than it may be: not so
    /// that every row that comes costs one that goes.
    shrinking: bool,
    /// How far the rows of each caller were looked at, since it is shrinking.
    walks: HashMap<Arc<str>, RemovalWalk>,
    /// The caller whose runs fill the journal, none of which may go.
    full_of: Option<Arc<str>>,
    /// When rows are looked for again that are too old; none while there are more.
    next_expiry: Option<Instant>,
}

/// What one step came to.
#[derive(Debug, PartialEq)]
pub(crate) struct RetentionStep {
    /// There is nothing more to do for now.
    pub(crate) is_done: bool,
    /// The caller whose runs fill the journal, none of which may go.
    pub(crate) full_of: Option<Arc<str>>,
}

/// Where the next row of a caller is looked for.
#[derive(Debug, Clone, Copy)]
struct RemovalWalk {
    stage: RemovalStage,
    after: [u8; 16],
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum RemovalStage {
    /// Exact arguments and answers of finished runs.
    ExactValues,
    /// Finished runs and calls.
    Finished,
    /// What was interrupted or planned, and is not recent.
    Unfinished,
    Exhausted,
}

impl JournalRetention {
    /// Remove some of what may go.
    pub(crate) fn remove_some(
        &mut self,
        connection: &mut Connection,
        settings: &JournalSettings,
    ) -> rusqlite::Result<RetentionStep> {
        let is_expiry_due = self.next_expiry.is_none_or(|next| Instant::now() >= next);
        if is_expiry_due {
            let is_all = remove_expired(connection, settings)?;
            self.next_expiry = is_all.then(|| Instant::now() + EXPIRY_INTERVAL);
        }
        let (used, goal) = (used_bytes(connection)?, settings.size / 10 * 9);
        self.shrinking = used > if self.shrinking { goal } else { settings.size };
        if self.shrinking {
            list_alive_processes(connection, settings)?;
            self.shrinking = self.shrink(connection, settings.size, used - goal)?;
        } else {
            self.full_of = None;
        }
        if !self.shrinking {
            self.walks.clear();
        }
        let has_released_all = release_free_pages(connection, settings.size)?;
        let is_done = self.next_expiry.is_some() && !self.shrinking && has_released_all;
        Ok(RetentionStep { is_done, full_of: self.full_of.clone() })
    }

    /// Remove some of whoever has most; whether there may be more to remove.
    fn shrink(
        &mut self,
        connection: &mut Connection,
        size: u64,
        excess: u64,
    ) -> rusqlite::Result<bool> {
        let recent = SystemTime::now().checked_sub(MIN_UNFINISHED_AGE).map_or(0, unix_micros);
        let mut scans = 0;
        let callers = callers_by_usage(connection)?;
        for (at, (caller, bytes)) in callers.iter().enumerate() {
            // Others than the one with most have to give only if they have more than their share.
            if at > 0 && *bytes <= size / CALLER_SHARES {
                break;
            }
            let next = callers.get(at + 1).map_or(0, |(_, bytes)| *bytes);
            let more_than_next = bytes.saturating_sub(next).max(MIN_REMOVED_BYTES);
            let removal = CallerRemoval {
                caller: caller.clone(),
                wanted: excess.min(more_than_next).min(MAX_REMOVED_BYTES),
                may_take_unfinished: *bytes > size / CALLER_SHARES,
                recent,
            };
            let walk = self
                .walks
                .entry(caller.clone())
                .or_insert(RemovalWalk { stage: RemovalStage::ExactValues, after: [0; 16] });
            while walk.stage != RemovalStage::Exhausted {
                let transaction = connection.transaction()?;
                let has_removed = removal.remove_next(&transaction, walk)?;
                transaction.commit()?;
                scans += 1;
                if has_removed {
                    self.full_of = None;
                    return Ok(true);
                }
                if scans >= MAX_STEP_SCANS {
                    return Ok(true);
                }
            }
        }
        self.full_of = callers.into_iter().next().map(|(caller, _)| caller);
        Ok(false)
    }
}

/// What goes of one caller in one step.
struct CallerRemoval {
    caller: Arc<str>,
    wanted: u64,
    may_take_unfinished: bool,
    /// What was begun from then on is recent.
    recent: i64,
}

/// A run with all that belongs to it, or a call that belongs to none.
struct RemovalUnit {
    id: RecordId,
    is_run: bool,
    is_own: bool,
    at: i64,
    state: UnitState,
}

#[derive(Clone, Copy, PartialEq)]
enum UnitState {
    Finished,
    /// It can be resumed or carried out.
    Unfinished,
    /// It is running, or waits for a decision, or is part of another unit.
    Kept,
}

impl CallerRemoval {
    /// Remove from where the walk is on; whether something went.
    fn remove_next(
        &self,
        transaction: &Transaction<'_>,
        walk: &mut RemovalWalk,
    ) -> rusqlite::Result<bool> {
        let units = self.list_units(transaction, walk.after)?;
        let is_end = units.len() < usize::try_from(MAX_EXAMINED_ROWS).unwrap_or(usize::MAX);
        let (mut rows, mut bytes) = (0, 0);
        let mut is_cut = false;
        for unit in &units {
            if bytes >= self.wanted || rows >= MAX_REMOVED_ROWS {
                is_cut = true;
                break;
            }
            walk.after = *unit.id.as_bytes();
            if !self.may_go(unit, walk.stage) {
                continue;
            }
            let removed = if walk.stage == RemovalStage::ExactValues {
                remove_exact_values(transaction, unit.id)?
            } else {
                remove_unit(transaction, unit)?
            };
            rows += usize::from(removed > 0);
            bytes += u64::try_from(removed).unwrap_or(0);
        }
        let mut usage = CallerUsage::default();
        usage.remove_bytes(self.caller.clone(), i64::try_from(bytes).unwrap_or(i64::MAX));
        usage.add_to_table(transaction)?;
        if is_end && !is_cut {
            *walk = RemovalWalk { stage: self.stage_after(walk.stage), after: [0; 16] };
        }
        Ok(bytes > 0)
    }

    fn stage_after(&self, stage: RemovalStage) -> RemovalStage {
        match stage {
            RemovalStage::ExactValues => RemovalStage::Finished,
            RemovalStage::Finished if self.may_take_unfinished => RemovalStage::Unfinished,
            _ => RemovalStage::Exhausted,
        }
    }

    fn may_go(&self, unit: &RemovalUnit, stage: RemovalStage) -> bool {
        unit.is_own
            && match stage {
                RemovalStage::ExactValues => unit.is_run && unit.state == UnitState::Finished,
                RemovalStage::Finished => unit.state == UnitState::Finished,
                RemovalStage::Unfinished => {
                    unit.state == UnitState::Unfinished && unit.at < self.recent
                }
                RemovalStage::Exhausted => false,
            }
    }

    /// The next runs and calls by age, of whomever: so that a step is short, whosever they are.
    fn list_units(
        &self,
        transaction: &Transaction<'_>,
        after: [u8; 16],
    ) -> rusqlite::Result<Vec<RemovalUnit>> {
        let mut statement = transaction.prepare_cached(&format!(
            "SELECT run.id AS id, 1, coalesce(run.caller, '') = ?2 AS is_own, run.at, \
             CASE WHEN coalesce(run.caller, '') = ?2 THEN {RUN_STATE} END \
             FROM journal_runs AS run WHERE run.id > ?1 \
             UNION ALL SELECT call.id, 0, coalesce(call.caller, '') = ?2, call.at, \
             CASE WHEN coalesce(call.caller, '') = ?2 THEN {CALL_STATE} END \
             FROM journal_calls AS call WHERE call.id > ?1 ORDER BY id LIMIT ?3"
        ))?;
        let rows =
            statement.query_map(params![after, &*self.caller, MAX_EXAMINED_ROWS], |row| {
                let state: Option<i64> = row.get(4)?;
                Ok(RemovalUnit {
                    id: RecordId::from_bytes(row.get(0)?),
                    is_run: row.get(1)?,
                    is_own: row.get(2)?,
                    at: row.get(3)?,
                    state: UnitState::from_number(state),
                })
            })?;
        rows.collect()
    }
}

impl UnitState {
    fn from_number(number: Option<i64>) -> UnitState {
        match number {
            Some(0) => UnitState::Finished,
            Some(1) => UnitState::Unfinished,
            _ => UnitState::Kept,
        }
    }
}

/// 2 for a run that is running or waits for a decision, 1 for one that can be resumed and for a
/// plan that can be carried out, or that a run needs which can be resumed; else 0.
const RUN_STATE: &str = "CASE \
     WHEN run.outcome IS NULL AND (run.approval IS NOT NULL \
     OR run.process IN (SELECT number FROM alive_processes)) THEN 2 \
     WHEN NOT run.plan AND run.answer IS NULL THEN 1 \
     WHEN run.plan AND run.answer IS NOT NULL AND coalesce((SELECT min(other.answer IS NOT NULL) \
     FROM journal_runs AS other WHERE other.follows = run.id), 0) = 0 THEN 1 \
     ELSE 0 END";
/// The same for a call, which is kept if it goes with its run.
const CALL_STATE: &str = "CASE \
     WHEN call.run IN (SELECT other.id FROM journal_runs AS other) THEN 2 \
     WHEN call.outcome IS NULL AND call.process IN (SELECT number FROM alive_processes) THEN 2 \
     ELSE 0 END";

/// Remove what is older than it is kept, unless it is running or waits; whether that was all.
fn remove_expired(
    connection: &mut Connection,
    settings: &JournalSettings,
) -> rusqlite::Result<bool> {
    list_alive_processes(connection, settings)?;
    let bound = SystemTime::now().checked_sub(settings.keep).unwrap_or(UNIX_EPOCH);
    let transaction = connection.transaction()?;
    let is_all = remove_older_than(&transaction, bound)?;
    transaction.commit()?;
    remove_dead_processes(connection, settings, unix_micros(bound))?;
    Ok(is_all)
}

fn remove_older_than(transaction: &Transaction<'_>, bound: SystemTime) -> rusqlite::Result<bool> {
    // An id is made before its record begins. So what sorts behind this is too young, and
    // nothing but what is old is looked at, however much there is.
    let (first_young, bound) = (RecordId::first_at(bound), unix_micros(bound));
    let mut usage = CallerUsage::default();
    let mut is_all = true;
    let limit = i64::try_from(MAX_REMOVED_ROWS).unwrap_or(i64::MAX);
    for (is_run, name, state) in [(true, "run", RUN_STATE), (false, "call", CALL_STATE)] {
        let sql = format!(
            "SELECT {name}.id, coalesce({name}.caller, ''), {name}.at FROM journal_{name}s AS {name} \
             WHERE {name}.id < ?3 AND {name}.at < ?1 AND {state} < 2 ORDER BY {name}.id LIMIT ?2"
        );
        let mut statement = transaction.prepare_cached(&sql)?;
        let rows = statement.query_map(params![bound, limit, first_young.as_bytes()], |row| {
            let unit = RemovalUnit {
                id: RecordId::from_bytes(row.get(0)?),
                is_run,
                is_own: true,
                at: row.get(2)?,
                state: UnitState::Finished,
            };
            Ok((unit, row.get::<_, String>(1)?))
        })?;
        let expired: Vec<(RemovalUnit, String)> = rows.collect::<rusqlite::Result<_>>()?;
        is_all &= expired.len() < MAX_REMOVED_ROWS;
        for (unit, caller) in expired {
            usage.remove_bytes(Arc::from(caller), remove_unit(transaction, &unit)?);
        }
    }
    transaction.execute(
        "DELETE FROM approval_requests WHERE id IN (SELECT id FROM approval_requests \
         WHERE at < ?1 AND expires < ?1 ORDER BY id LIMIT ?2)",
        params![bound, limit],
    )?;
    usage.add_to_table(transaction)?;
    Ok(is_all)
}

/// Remove the exact arguments and answers of a run's calls; their bytes.
fn remove_exact_values(transaction: &Transaction<'_>, run: RecordId) -> rusqlite::Result<i64> {
    let mut size = transaction.prepare_cached(
        "SELECT coalesce(sum(octet_length(exact.args) + coalesce(octet_length(exact.answer), 0)), 0) \
         FROM journal_calls AS call JOIN journal_exact AS exact ON exact.id = call.id \
         WHERE call.run = ?1",
    )?;
    let bytes: i64 = size.query_row(params![SqlId(run)], |row| row.get(0))?;
    if bytes > 0 {
        let mut remove = transaction.prepare_cached(
            "DELETE FROM journal_exact WHERE id IN (SELECT id FROM journal_calls WHERE run = ?1)",
        )?;
        remove.execute(params![SqlId(run)])?;
    }
    Ok(bytes)
}

/// Remove a run with its calls, or a call; the bytes.
fn remove_unit(transaction: &Transaction<'_>, unit: &RemovalUnit) -> rusqlite::Result<i64> {
    let id = SqlId(unit.id);
    let key = if unit.is_run { "run" } else { "id" };
    let mut size = transaction.prepare_cached(&format!(
        "SELECT coalesce(sum({CALL_BYTES}), 0) FROM journal_calls AS call \
         LEFT JOIN journal_exact AS exact ON exact.id = call.id WHERE call.{key} = ?1"
    ))?;
    let mut bytes: i64 = size.query_row(params![id], |row| row.get(0))?;
    let mut exact = transaction.prepare_cached(&format!(
        "DELETE FROM journal_exact WHERE id IN (SELECT id FROM journal_calls WHERE {key} = ?1)"
    ))?;
    exact.execute(params![id])?;
    let mut calls =
        transaction.prepare_cached(&format!("DELETE FROM journal_calls WHERE {key} = ?1"))?;
    calls.execute(params![id])?;
    if unit.is_run {
        let mut size = transaction.prepare_cached(&format!(
            "SELECT {RUN_BYTES} FROM journal_runs AS run WHERE run.id = ?1"
        ))?;
        bytes += size.query_row(params![id], |row| row.get::<_, i64>(0))?;
        let mut runs = transaction.prepare_cached("DELETE FROM journal_runs WHERE id = ?1")?;
        runs.execute(params![id])?;
    }
    Ok(bytes)
}

/// Note which processes are alive: what they run is running.
fn list_alive_processes(
    connection: &Connection,
    settings: &JournalSettings,
) -> rusqlite::Result<()> {
    connection.execute_batch(
        "CREATE TEMP TABLE IF NOT EXISTS alive_processes (number INTEGER PRIMARY KEY); \
         DELETE FROM alive_processes;",
    )?;
    let mut statement = connection.prepare_cached(
        "INSERT OR IGNORE INTO alive_processes SELECT number FROM journal_processes WHERE lock = ?1",
    )?;
    for lock in alive_locks(&settings.file) {
        statement.execute(params![lock])?;
    }
    Ok(())
}

/// Processes that are gone, and of which nothing is left.
fn remove_dead_processes(
    connection: &Connection,
    settings: &JournalSettings,
    bound: i64,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(
        "SELECT number, lock FROM journal_processes WHERE at < ?1 ORDER BY number LIMIT 100",
    )?;
    let old = statement.query_map(params![bound], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let old: Vec<(i64, String)> = old.collect::<rusqlite::Result<_>>()?;
    for (number, _) in old.iter().filter(|(_, lock)| !is_process_alive(&settings.file, lock)) {
        connection.execute(
            "DELETE FROM journal_processes WHERE number = ?1 \
             AND NOT EXISTS (SELECT 1 FROM journal_runs WHERE process = ?1)",
            params![number],
        )?;
    }
    Ok(())
}

/// Give pages back to the file system: those by which the file is larger than it may be, and
/// some of very many. Others are soon used again. Whether none of the first are left.
fn release_free_pages(connection: &Connection, size: u64) -> rusqlite::Result<bool> {
    let free = pragma_number(connection, "freelist_count")?;
    let file = file_bytes(connection)?;
    let excess = file
        .saturating_sub(size)
        .div_ceil(pragma_number(connection, "page_size")?.max(1))
        .min(free);
    let many = if free > MAX_RELEASED_PAGES { MAX_RELEASED_PAGES } else { 0 };
    let released = excess.max(many).min(MAX_RELEASED_PAGES);
    if released > 0 {
        let mut statement =
            connection.prepare(&format!("PRAGMA incremental_vacuum({released})"))?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
    }
    // Files of old cannot give anything back.
    Ok(excess <= released || file_bytes(connection)? == file)
}

/// Bytes that are in use.
fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let free = pragma_number(connection, "freelist_count")?;
    let free_bytes = free * pragma_number(connection, "page_size")?;
    Ok(file_bytes(connection)?.saturating_sub(free_bytes))
}

fn file_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    Ok(pragma_number(connection, "page_count")? * pragma_number(connection, "page_size")?)
}

fn pragma_number(connection: &Connection, pragma: &str) -> rusqlite::Result<u64> {
    let number: i64 = connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0))?;
    Ok(u64::try_from(number).unwrap_or(0))
}
