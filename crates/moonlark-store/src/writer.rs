//! The one thread that writes: takes what waits, in one transaction, and says so.
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
use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode, TransactionBehavior, params};

use crate::failure::problem;
use crate::process::{self, Process};
use crate::queue::{Item, Queue};
use crate::retention::Retention;
use crate::rows::{self, Unwritten, micros};
use crate::schema::{self, Settings};
use crate::sealing::Seal;

/// How often what failed is tried again, and how long an idle writer sleeps.
const RETRY: Duration = Duration::from_secs(1);
/// How long entries that nobody waits for may be in the system's hands only.
const SYNC: Duration = Duration::from_secs(1);
/// How often old entries are looked for.
const TIDY: Duration = Duration::from_secs(60);
/// How often a batch is tried that is still there when the journal is closed.
const LAST_TRIES: u32 = 2;

/// What the writer and everybody else see.
pub(crate) struct Shared {
    pub(crate) settings: Mutex<Settings>,
    pub(crate) queue: Arc<Queue>,
    /// Why nothing can be written at the moment.
    pub(crate) trouble: Mutex<Option<Problem>>,
    /// The number of this process; 0 until the file is open.
    pub(crate) number: AtomicI64,
    /// Entries that are in the file, since the start.
    pub(crate) written: AtomicU64,
}

pub(crate) struct Writer {
    shared: Arc<Shared>,
    open: Option<Open>,
    /// Taken from the queue, and not written yet.
    pending: Vec<Item>,
    synced: Instant,
    tidied: Option<Instant>,
    retention: Retention,
}

struct Open {
    connection: Connection,
    seal: Seal,
    number: i64,
    /// Whether commits reach the disk before they are over.
    syncs: Option<bool>,
    _process: Process,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>) -> Writer {
        Writer {
            shared,
            open: None,
            pending: Vec::new(),
            synced: Instant::now(),
            tidied: None,
            retention: Retention::default(),
        }
    }

    /// Until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        let mut tries = 0;
        // So that what is wrong is known before anything has been called.
        self.step();
        while !self.shared.queue.is_done() || !self.pending.is_empty() {
            let taken = self.shared.queue.take(RETRY);
            self.pending.extend(taken);
            self.step();
            if self.pending.is_empty() || !self.shared.queue.is_closed() {
                continue;
            }
            tries += 1;
            if tries >= LAST_TRIES {
                self.shared.queue.count_lost(self.pending.len());
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn step(&mut self) {
        match self.write() {
            Ok(()) => self.went_well(),
            Err(trouble) => self.failed(trouble),
        }
    }

    fn write(&mut self) -> Result<(), Trouble> {
        let settings = self.shared.settings.lock().clone();
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(Open::new(&settings.file).map_err(Trouble::lasting)?),
        };
        self.shared.number.store(open.number, Ordering::Relaxed);
        if !self.pending.is_empty() {
            // What whoever waits needs only to be in the system's hands costs no sync.
            let awaited = self.pending.iter().any(|item| item.durable);
            let sync = settings.power && (awaited || self.synced.elapsed() > SYNC);
            open.write(&self.pending, sync).map_err(|error| Trouble::of(&settings.file, error))?;
            let entries = self.pending.iter().filter(|item| item.entry.is_some()).count();
            self.shared.written.fetch_add(entries as u64, Ordering::Relaxed);
            if sync {
                self.synced = Instant::now();
            }
        }
        if self.tidied.is_none_or(|tidied| tidied.elapsed() > TIDY) {
            let file = &settings.file;
            let tidied = self.retention.tidy(&mut open.connection, &settings);
            let done = tidied.map_err(|error| Trouble::of(file, error.into()))?;
            process::sweep(file);
            // The rest can wait until others had their turn.
            self.tidied = done.then(Instant::now);
        }
        Ok(())
    }

    fn went_well(&mut self) {
        if let Some(was) = self.shared.trouble.lock().take() {
            let (_, lost) = self.shared.queue.counts();
            self.shared.queue.set_broken(false);
            tracing::info!(
                "the journal is written again; {lost} entries were lost ({})",
                was.message
            );
        }
        for waits in self.pending.drain(..).filter_map(|item| item.waits) {
            // Whoever waited may have gone.
            let _ = waits.send(Ok(()));
        }
    }

    fn failed(&mut self, trouble: Trouble) {
        let Trouble { problem, reopen, give_up } = trouble;
        let problem = *problem;
        if self.shared.trouble.lock().replace(problem.clone()).as_ref() != Some(&problem) {
            tracing::error!("{problem}\ncalls go on without being recorded");
        }
        self.shared.queue.set_broken(true);
        if reopen {
            self.open = None;
        }
        // What was announced to whoever waits will not happen.
        let before = self.pending.len();
        self.pending.retain_mut(|item| match item.waits.take() {
            Some(waits) => {
                let _ = waits.send(Err(problem.clone()));
                false
            }
            None => true,
        });
        if give_up {
            self.shared.queue.count_lost(self.pending.len());
            self.pending.clear();
        } else if self.pending.len() < before || !self.pending.is_empty() {
            // Not at once: it will not be better.
            std::thread::sleep(RETRY / 10);
        }
    }
}

impl Open {
    fn new(file: &Path) -> Result<Open> {
        let connection = schema::open(file)?;
        let seal = Seal::beside(file)?;
        let process = Process::begin(file)?;
        let row = params![process.lock, std::process::id(), micros(SystemTime::now())];
        connection
            .execute("INSERT INTO journal_processes (lock, pid, at) VALUES (?1, ?2, ?3)", row)
            .map_err(|error| problem(file, &error))?;
        let number = connection.last_insert_rowid();
        Ok(Open { connection, seal, number, syncs: None, _process: process })
    }

    fn write(&mut self, items: &[Item], sync: bool) -> Result<(), Unwritten> {
        if self.syncs.replace(sync) != Some(sync) {
            let level = if sync { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level)?;
        }
        #[cfg(test)]
        crate::tests::limit_disk(&self.connection)?;
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let entries = items.iter().filter_map(|item| item.entry.as_ref());
        rows::write(&transaction, entries, self.number, &self.seal)?;
        Ok(transaction.commit()?)
    }
}

/// Why nothing was written, and what to do about it.
struct Trouble {
    problem: Box<Problem>,
    /// The connection is of no use any more.
    reopen: bool,
    /// It will never be written.
    give_up: bool,
}

impl Trouble {
    fn lasting(problem: Problem) -> Trouble {
        Trouble { problem: Box::new(problem), reopen: true, give_up: false }
    }

    fn of(file: &Path, error: Unwritten) -> Trouble {
        let error = match error {
            Unwritten::Problem(problem) => {
                return Trouble { problem: Box::new(problem), reopen: false, give_up: true };
            }
            Unwritten::Sqlite(error) => error,
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
        let problem = Box::new(problem(file, &error));
        Trouble { problem, reopen, give_up: !passing && !reopen }
    }
}
