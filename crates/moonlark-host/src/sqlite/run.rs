//! Running a statement: off the async threads, and never past its deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use moonlark_core::grant::{AllowedDatabase, AllowedWrite};
use moonlark_core::{Call, Code, Problem, Result, Value};
use parking_lot::Mutex;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::hooks::Action;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Batch, Connection, InterruptHandle};
use tokio::time::Instant;

use super::file::{Open, POOL, Place, find};
use super::guard::{Mode, Refusal};
use super::{bind, failure};
use crate::pool::patience;
use crate::sql::{Params, Rows, check_text};

pub(super) struct Ask {
    pub(super) path: String,
    pub(super) sql: String,
    pub(super) params: Params,
}

pub(super) struct Done {
    pub(super) rows: Rows,
    pub(super) changes: i64,
    pub(super) last_insert_id: Option<i64>,
}

/// Run one statement. `create` makes a database that is not there.
pub(super) async fn run(
    call: Call,
    what: &'static str,
    ask: Ask,
    write: Option<AllowedWrite>,
    create: bool,
) -> Result<Done> {
    check_text(&ask.sql)?;
    let (allowed, call, ask) = blocking(move || {
        let allowed = find(&call, what, &ask.path)?;
        Ok((allowed, call, ask))
    })
    .await?;
    let mode = if write.is_some() { Mode::Write } else { Mode::Read };
    let place = Place { path: allowed.path().to_owned(), mode };
    let slot = POOL.slot(patience(&call), &place, &ask.path).await?;
    // Whoever goes away stops the statement: nobody would hear of it.
    let stop = Stop::default();
    let _stopping = StopOnDrop(stop.clone());
    blocking(move || {
        let idle = std::iter::from_fn(|| slot.idle()).find(|idle| idle.is_current(allowed.path()));
        let work = Work { call: &call, ask: &ask, stop: &stop, what };
        let (result, open) = work.with_patience(idle, &allowed, mode, create);
        stop.0.handle.lock().take();
        if let Some(open) = open.filter(|open| open.connection.is_autocommit()) {
            slot.keep(open);
        }
        result
    })
    .await
}

struct Work<'a> {
    call: &'a Call,
    ask: &'a Ask,
    stop: &'a Stop,
    what: &'static str,
}

/// Why an attempt failed.
enum Failed {
    /// Others hold a lock; nothing was done.
    Busy,
    Problem(Problem),
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Self {
        Failed::Problem(problem)
    }
}

impl Work<'_> {
    /// Attempt it until no one else holds a lock. A statement that meets one is
    /// undone as a whole, so beginning again repeats nothing.
    fn with_patience(
        &self,
        mut open: Option<Open>,
        allowed: &AllowedDatabase,
        mode: Mode,
        create: bool,
    ) -> (Result<Done>, Option<Open>) {
        let until = patience(self.call);
        let mut pause = Duration::from_millis(1);
        loop {
            let failed = match self.attempt(&mut open, allowed, mode, create) {
                Ok(done) => return (Ok(done), open),
                Err(Failed::Problem(problem)) => return (Err(problem), open),
                Err(Failed::Busy) => failure::locked(&self.ask.path),
            };
            if Instant::now() >= until || self.stop.is_set() {
                return (Err(failed), open);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(25));
        }
    }

    fn attempt(
        &self,
        open: &mut Option<Open>,
        allowed: &AllowedDatabase,
        mode: Mode,
        create: bool,
    ) -> Result<Done, Failed> {
        let open = match open {
            Some(open) => open,
            none => none.insert(Open::new(allowed, &self.ask.path, mode, create)?),
        };
        self.arm(open)?;
        let inserts = Inserts::watch(&mut open.connection)
            .map_err(|error| failure::problem(error, &self.ask.path))?;
        let explain = |error| self.explain(open, error);
        let connection = &open.connection;
        let mut statements = Batch::new(connection, &self.ask.sql);
        let Some(mut statement) = statements.next().map_err(explain)? else {
            return Err(Problem::bad_request("the SQL has no statement").into());
        };
        // Whatever may be wrong with a second one, it is there.
        if !matches!(statements.next(), Ok(None)) {
            open.guard.take();
            return Err(failure::several().into());
        }
        bind::bind(&mut statement, &self.ask.params, &self.ask.path)?;
        let columns = statement.column_names().map(str::to_owned).collect();
        let mut rows = Rows::new(columns, self.call.limits().value)?;
        let before = connection.total_changes();
        if self.is_partly_done(&statement) {
            open.guard.ours(connection, "BEGIN").map_err(explain)?;
            let read = self.read(&mut statement, &mut rows, explain);
            drop(statement);
            let kept = read.and_then(|()| open.guard.ours(connection, "COMMIT").map_err(explain));
            if !connection.is_autocommit() {
                open.guard.ours(connection, "ROLLBACK").map_err(explain)?;
            }
            kept?;
        } else {
            self.read(&mut statement, &mut rows, explain)?;
        }
        let changed = connection.total_changes() != before;
        let changes = if changed { connection.changes() } else { 0 };
        Ok(Done {
            rows,
            changes: i64::try_from(changes).unwrap_or(i64::MAX),
            last_insert_id: inserts.last(connection).filter(|_| changed),
        })
    }

    fn explain(&self, open: &Open, error: rusqlite::Error) -> Failed {
        match open.guard.take() {
            Some(Refusal::Write) => match self.call.grants().sql_write(self.what) {
                Err(denial) => denial.into(),
                // Reading is all that listing and describing ever do.
                Ok(_) => Problem::denied(format!("{} only reads", self.what)).into(),
            },
            Some(Refusal::Never(reason)) => Problem::denied(reason).into(),
            None if failure::is_busy(&error) => Failed::Busy,
            None => failure::problem(error, &self.ask.path).into(),
        }
    }

    /// SQLite keeps what a statement has changed also when its rows are not read
    /// to the end, unless it is in a transaction. (Where journal modes cannot be
    /// changed.)
    fn is_partly_done(&self, statement: &rusqlite::Statement<'_>) -> bool {
        let word = self.ask.sql.trim_start().get(..6).unwrap_or_default();
        statement.column_count() > 0
            && !statement.readonly()
            && !word.eq_ignore_ascii_case("pragma")
    }

    fn read(
        &self,
        statement: &mut rusqlite::Statement<'_>,
        gathered: &mut Rows,
        explain: impl Fn(rusqlite::Error) -> Failed,
    ) -> Result<(), Failed> {
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().map_err(&explain)? {
            if self.stop.is_set() {
                return Err(Problem::new(Code::Cancelled, "the call was given up").into());
            }
            gathered.push(|index| match row.get_ref(index) {
                Ok(value) => Ok(read(value)),
                Err(error) => Err(failure::problem(error, &self.ask.path)),
            })?;
        }
        Ok(())
    }

    /// From here on the statement stops when the call does.
    fn arm(&self, open: &mut Open) -> Result<()> {
        open.guard.take();
        let explain = |error| failure::problem(error, &self.ask.path);
        let limit = i32::try_from(self.call.limits().value).unwrap_or(i32::MAX);
        let connection = &mut open.connection;
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, limit).map_err(explain)?;
        // An interrupt is lost when it comes before the statement begins, and
        // this is slow to look inside a single long operation: so both.
        let (stop, deadline) = (self.stop.clone(), self.call.deadline());
        let over = move || stop.is_set() || Instant::now() >= deadline;
        connection.progress_handler(2000, Some(over)).map_err(explain)?;
        *self.stop.0.handle.lock() = Some(connection.get_interrupt_handle());
        Ok(())
    }
}

fn read(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(int) => Value::Int(int),
        ValueRef::Real(float) => Value::Float(float),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Value::text_or_bytes(bytes.to_vec()),
    }
}

/// Whether a statement inserts rows. The connection remembers the row id of
/// statements before it.
struct Inserts {
    earlier: i64,
    again: Arc<AtomicBool>,
}

impl Inserts {
    fn watch(connection: &mut Connection) -> rusqlite::Result<Inserts> {
        let earlier = connection.last_insert_rowid();
        let again = Arc::new(AtomicBool::new(false));
        let seen = again.clone();
        connection.update_hook(Some(move |action, _: &str, _: &str, row| {
            seen.fetch_or(action == Action::SQLITE_INSERT && row == earlier, Ordering::Relaxed);
        }))?;
        Ok(Inserts { earlier, again })
    }

    fn last(&self, connection: &Connection) -> Option<i64> {
        let last = connection.last_insert_rowid();
        (last != self.earlier || self.again.load(Ordering::Relaxed)).then_some(last)
    }
}

/// How the async side reaches a statement that runs.
#[derive(Clone, Default)]
struct Stop(Arc<Stopping>);

#[derive(Default)]
struct Stopping {
    asked: AtomicBool,
    handle: Mutex<Option<InterruptHandle>>,
}

impl Stop {
    fn is_set(&self) -> bool {
        self.0.asked.load(Ordering::Relaxed)
    }
}

struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        let Stopping { asked, handle } = &*self.0.0;
        asked.store(true, Ordering::Relaxed);
        // Taken away when the work is done, so that no later call is hit.
        if let Some(handle) = &*handle.lock() {
            handle.interrupt();
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(Problem::internal(format!("the database work did not finish: {error}")))
    })
}
