//! The writer thread: takes what is queued, in one transaction, and acknowledges it.
//!
//! What cannot be written, because the disk is full or the file is damaged, is
//! tried again every second. Meanwhile calls go on, the oldest entries are given
//! up when there is no more room, and whoever needs an entry to be durable is
//! told that it is not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use moonlark_core::{Problem, Result};
use moonlark_gateway::journal::JournalEntry;
use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode, TransactionBehavior, params};

use crate::entry_log::{EntryLog, recover_left_logs};
use crate::journal_queue::{JournalQueue, JournalQueueItem};
use crate::journal_rows::{self, unix_micros};
use crate::journal_schema::{JOURNAL_DATABASE, JournalError, JournalSettings, journal_problem};
use crate::process_lock::{self, ProcessLock};
use crate::retention::JournalRetention;
use crate::sealing::JournalSeal;

/// How often what failed is tried again, and how long an idle writer sleeps.
const WRITE_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long entries that nobody waits for may be in the system's hands only.
const MAX_UNSYNCED_TIME: Duration = Duration::from_secs(1);
/// How often old entries are looked for, and how often while nothing could be removed.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);
const FULL_RETENTION_INTERVAL: Duration = Duration::from_secs(5);
/// How much may be written before it is looked how large the journal is: this part of its size.
const RETENTION_SHARES: u64 = 32;
const MAX_UNCHECKED_BYTES: u64 = 32 * 1024 * 1024;
/// How often a batch is tried that is still there when the journal is closed.
const MAX_CLOSING_ATTEMPTS: u32 = 2;

/// What the writer and everybody else see.
pub(crate) struct JournalShared {
    pub(crate) settings: Mutex<JournalSettings>,
    pub(crate) queue: Arc<JournalQueue>,
    pub(crate) log: EntryLog,
    /// Why nothing can be written at the moment.
    pub(crate) trouble: Mutex<Option<Problem>>,
    /// The number of this process; 0 until the file is open.
    pub(crate) number: AtomicI64,
    /// Entries that are in the file, since the start.
    pub(crate) written: AtomicU64,
}

impl JournalShared {
    /// An entry for the queue, which is in the log already if there is one.
    pub(crate) fn log_entry(&self, entry: JournalEntry) -> JournalQueueItem {
        let mut item = JournalQueueItem::new(None, None);
        // What cannot be moved to the database would fill the disk.
        if self.trouble.lock().is_none() {
            item.shown = journal_rows::shown_text(&entry);
            item.logged = self.log.append_entry(&entry, item.shown.as_deref());
        }
        item.weight = entry.approx_bytes();
        item.entry = Some(entry);
        item
    }

    /// Write the log, so that all entries survive this process. False if some are in no log.
    pub(crate) fn write_log(&self) -> bool {
        self.queue.is_logged() && self.log.write_out().is_some()
    }
}

pub(crate) struct JournalWriter {
    shared: Arc<JournalShared>,
    open: Option<OpenJournal>,
    /// Taken from the queue, and not written yet.
    pending: Vec<JournalQueueItem>,
    synced: Instant,
    /// Entries are in the database, and would not survive a loss of power there.
    has_unsynced: bool,
    /// When the next look for old entries is due; none while there is more to remove.
    next_retention: Option<Instant>,
    /// What was written since the last look.
    unchecked_bytes: u64,
    retention: JournalRetention,
}

struct OpenJournal {
    connection: Connection,
    seal: Arc<JournalSeal>,
    number: i64,
    /// Whether commits reach the disk before they are over.
    syncs: Option<bool>,
    process: ProcessLock,
}

impl JournalWriter {
    pub(crate) fn new(shared: Arc<JournalShared>) -> JournalWriter {
        JournalWriter {
            shared,
            open: None,
            pending: Vec::new(),
            synced: Instant::now(),
            has_unsynced: false,
            next_retention: Some(Instant::now()),
            unchecked_bytes: 0,
            retention: JournalRetention::default(),
        }
    }

    /// Until the queue is closed and empty.
    pub(crate) fn run_until_closed(mut self) {
        let mut tries = 0;
        // So that what is wrong is known before anything has been called.
        self.write_step();
        while !self.shared.queue.is_done() || !self.pending.is_empty() {
            let has_more_to_remove = self.next_retention.is_none();
            let patience = if has_more_to_remove { Duration::ZERO } else { WRITE_RETRY_INTERVAL };
            let taken = self.shared.queue.take_batch(patience);
            self.pending.extend(taken);
            self.write_step();
            if self.pending.is_empty() || !self.shared.queue.is_closed() {
                continue;
            }
            tries += 1;
            if tries >= MAX_CLOSING_ATTEMPTS {
                self.shared.queue.count_lost(self.pending.len());
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        // Before the lock of this process goes.
        self.shared.log.close();
    }

    fn write_step(&mut self) {
        // What was given up is in no database, and need not stay in the log for it.
        self.shared.log.settle(self.shared.queue.take_given_up().into_iter(), false);
        let written = self.write_pending();
        if let Err(trouble) = written {
            return self.handle_failure(trouble);
        }
        self.handle_success();
        if let Err(trouble) = self.remove_old() {
            self.handle_failure(trouble);
        }
    }

    fn write_pending(&mut self) -> Result<(), JournalWriteFailure> {
        let settings = self.shared.settings.lock().clone();
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(
                OpenJournal::new(&settings.file, &self.shared.log)
                    .map_err(JournalWriteFailure::from_problem)?,
            ),
        };
        self.shared.number.store(open.number, Ordering::Relaxed);
        if !self.pending.is_empty() {
            // What whoever waits needs only to be in the system's hands costs no sync.
            let awaited = settings.power && self.pending.iter().any(|item| item.durable);
            let sync = awaited || self.synced.elapsed() > MAX_UNSYNCED_TIME;
            open.write_items(&self.pending, sync)
                .map_err(|error| JournalWriteFailure::from_error(&settings.file, error))?;
            // What survives a loss of power in the log has to in the database before it
            // goes from there.
            self.shared.log.settle(self.pending.iter().filter_map(|item| item.logged), sync);
            self.has_unsynced = !sync;
            let entries = self.pending.iter().filter(|item| item.entry.is_some()).count();
            self.shared.written.fetch_add(entries as u64, Ordering::Relaxed);
            self.unchecked_bytes += self.pending.iter().map(|item| item.weight as u64).sum::<u64>();
            if sync {
                self.synced = Instant::now();
            }
        } else if std::mem::take(&mut self.has_unsynced)
            && let Some(position) = self.shared.log.write_out()
            && let Err(error) = self.shared.log.sync_to(position)
        {
            tracing::warn!("the log of {} is not synced: {error}", settings.file.display());
        }
        Ok(())
    }

    /// Look for old entries where that is due, and for what other processes have left.
    fn remove_old(&mut self) -> Result<(), JournalWriteFailure> {
        let settings = self.shared.settings.lock().clone();
        let Some(open) = &mut self.open else { return Ok(()) };
        let max_unchecked = (settings.size / RETENTION_SHARES).min(MAX_UNCHECKED_BYTES);
        if self.next_retention.is_none_or(|next| Instant::now() >= next)
            || self.unchecked_bytes >= max_unchecked
        {
            let file = &settings.file;
            // So that a failure is not tried again at once.
            self.next_retention = Some(Instant::now() + RETENTION_INTERVAL);
            self.unchecked_bytes = 0;
            let step = self.retention.remove_some(&mut open.connection, &settings);
            let step = step.map_err(|error| JournalWriteFailure::from_error(file, error.into()))?;
            recover_left_logs(&mut open.connection, file, Some(&open.process.lock))
                .map_err(|error| JournalWriteFailure::from_error(file, error))?;
            process_lock::remove_stale_locks(file);
            let is_full = step.full_of.is_some();
            self.shared.queue.set_full_of(step.full_of);
            let pause = if is_full { FULL_RETENTION_INTERVAL } else { RETENTION_INTERVAL };
            // The rest can wait until others had their turn.
            self.next_retention = step.is_done.then(|| Instant::now() + pause);
        }
        Ok(())
    }

    fn handle_success(&mut self) {
        if let Some(was) = self.shared.trouble.lock().take() {
            let (_, lost) = self.shared.queue.waiting_and_lost();
            self.shared.queue.set_broken(false);
            tracing::info!(
                "the journal is written again; {lost} entries were lost ({})",
                was.message
            );
        }
        self.shared.queue.count_written(&self.pending);
        for waits in self.pending.drain(..).filter_map(|item| item.waits) {
            // Whoever waited may have gone.
            let _ = waits.send(Ok(()));
        }
    }

    fn handle_failure(&mut self, trouble: JournalWriteFailure) {
        let JournalWriteFailure { problem, reopen, give_up } = trouble;
        let problem = *problem;
        if self.shared.trouble.lock().replace(problem.clone()).as_ref() != Some(&problem) {
            tracing::error!("{problem}\ncalls go on without being recorded");
        }
        self.shared.queue.set_broken(true);
        if reopen {
            // Before the lock of its process goes: what is in it is moved when there is a
            // database again.
            self.shared.log.close();
            self.open = None;
        }
        // What was announced to whoever waits will not happen.
        let before = self.pending.len();
        let announced: Vec<JournalQueueItem> =
            self.pending.extract_if(.., |item| item.waits.is_some()).collect();
        self.shared.queue.count_written(&announced);
        self.shared.log.settle(announced.iter().filter_map(|item| item.logged), false);
        for waits in announced.into_iter().filter_map(|item| item.waits) {
            let _ = waits.send(Err(problem.clone()));
        }
        if give_up {
            self.shared.queue.count_lost(self.pending.len());
            self.shared.queue.count_written(&self.pending);
            self.shared.log.settle(self.pending.iter().filter_map(|item| item.logged), false);
            self.pending.clear();
        } else if self.pending.len() < before || !self.pending.is_empty() {
            // Not at once: it will not be better.
            std::thread::sleep(WRITE_RETRY_INTERVAL / 10);
        }
    }
}

impl OpenJournal {
    fn new(file: &Path, log: &EntryLog) -> Result<OpenJournal> {
        let mut connection = JOURNAL_DATABASE.open_to_write(file)?;
        let seal = Arc::new(JournalSeal::load_beside(file)?);
        recover_left_logs(&mut connection, file, None).map_err(|error| error.into_problem(file))?;
        let process = ProcessLock::acquire(file)?;
        let row = params![process.lock, std::process::id(), unix_micros(SystemTime::now())];
        connection
            .execute("INSERT INTO journal_processes (lock, pid, at) VALUES (?1, ?2, ?3)", row)
            .map_err(|error| journal_problem(file, &error))?;
        let number = connection.last_insert_rowid();
        if let Err(error) = log.open(file, &process.lock, seal.clone()) {
            // Entries go straight to the database then, which takes longer.
            tracing::warn!("the log of {} cannot be written: {error}", file.display());
        }
        Ok(OpenJournal { connection, seal, number, syncs: None, process })
    }

    fn write_items(&mut self, items: &[JournalQueueItem], sync: bool) -> Result<(), JournalError> {
        if self.syncs.replace(sync) != Some(sync) {
            let level = if sync { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level)?;
        }
        #[cfg(test)]
        crate::tests::limit_disk(&self.connection)?;
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let entries = items
            .iter()
            .filter_map(|item| item.entry.as_ref().map(|entry| (entry, item.shown.as_deref())));
        journal_rows::write_entries(&transaction, entries, self.number, &self.seal)?;
        Ok(transaction.commit()?)
    }
}

/// Why nothing was written, and what to do about it.
struct JournalWriteFailure {
    problem: Box<Problem>,
    /// The connection is of no use any more.
    reopen: bool,
    /// It will never be written.
    give_up: bool,
}

impl JournalWriteFailure {
    fn from_problem(problem: Problem) -> JournalWriteFailure {
        JournalWriteFailure { problem: Box::new(problem), reopen: true, give_up: false }
    }

    fn from_error(file: &Path, error: JournalError) -> JournalWriteFailure {
        let error = match error {
            JournalError::Problem(problem) => {
                let problem = Box::new(problem);
                return JournalWriteFailure { problem, reopen: false, give_up: true };
            }
            JournalError::Sqlite(error) => error,
        };
        use ErrorCode::{CannotOpen, DatabaseCorrupt, NotADatabase, PermissionDenied, ReadOnly};
        use ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull, OutOfMemory, SystemIoFailure};
        let code = error.sqlite_error_code();
        let passing = matches!(
            code,
            Some(DatabaseBusy | DatabaseLocked | DiskFull | OutOfMemory | SystemIoFailure)
        );
        let reopen = matches!(
            code,
            Some(DatabaseCorrupt | NotADatabase | CannotOpen | PermissionDenied | ReadOnly)
        );
        let problem = Box::new(journal_problem(file, &error));
        JournalWriteFailure { problem, reopen, give_up: !passing && !reopen }
    }
}
