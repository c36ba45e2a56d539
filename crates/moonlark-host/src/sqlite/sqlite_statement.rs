//! Statement execution: off the async threads, and never past its deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use moonlark_core::grant::{AllowedDatabase, AllowedWrite};
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_gateway::Call;
use parking_lot::Mutex;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::hooks::Action;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Batch, Connection, InterruptHandle};
use tokio::time::Instant;

use super::database_file::{SQLITE_POOL, SqliteConnection, SqlitePoolKey, find_database};
use super::sqlite_authorizer::{SqliteMode, StatementRefusal};
use super::{SqliteStatementArgs, bind, sqlite_errors};
use crate::connection_pool::connection_wait_deadline;
use crate::sql::{SqlRows, check_sql_text};

pub(super) struct SqliteStatementResult {
    pub(super) rows: SqlRows,
    pub(super) changes: i64,
    pub(super) last_insert_id: Option<i64>,
}

/// Run one statement. `create` makes a database that is not there.
pub(super) async fn run_statement(
    call: Call,
    what: &'static str,
    ask: SqliteStatementArgs,
    write: Option<AllowedWrite>,
    create: bool,
) -> Result<SqliteStatementResult> {
    check_sql_text(&ask.sql)?;
    let (allowed, call, ask) = spawn_database_work(move || {
        let allowed = find_database(&call, what, &ask.path)?;
        Ok((allowed, call, ask))
    })
    .await?;
    let mode = if write.is_some() { SqliteMode::Write } else { SqliteMode::Read };
    let place = SqlitePoolKey { path: allowed.path().to_owned(), mode };
    let slot = SQLITE_POOL.acquire_slot(connection_wait_deadline(&call), &place, &ask.path).await?;
    // Whoever goes away stops the statement: nobody would hear of it.
    let stop = Arc::<StatementInterrupt>::default();
    let _stopping = InterruptOnDrop(stop.clone());
    spawn_database_work(move || {
        let idle =
            std::iter::from_fn(|| slot.take_idle()).find(|idle| idle.is_current(allowed.path()));
        let work = StatementRunner { call: &call, ask: &ask, stop: &stop, what };
        let (result, open) = work.run_until_unlocked(idle, &allowed, mode, create);
        stop.handle.lock().take();
        if let Some(open) = open.filter(|open| open.connection.is_autocommit()) {
            slot.return_connection(open);
        }
        result
    })
    .await
}

struct StatementRunner<'a> {
    call: &'a Call,
    ask: &'a SqliteStatementArgs,
    stop: &'a Arc<StatementInterrupt>,
    what: &'static str,
}

/// Why an attempt failed.
enum SqliteStatementFailure {
    /// Others hold a lock; nothing was done.
    Busy,
    Problem(Problem),
}

impl From<Problem> for SqliteStatementFailure {
    fn from(problem: Problem) -> Self {
        SqliteStatementFailure::Problem(problem)
    }
}

impl StatementRunner<'_> {
    /// Attempt it until no one else holds a lock. A statement that meets one is
    /// undone as a whole, so beginning again repeats nothing.
    fn run_until_unlocked(
        &self,
        mut open: Option<SqliteConnection>,
        allowed: &AllowedDatabase,
        mode: SqliteMode,
        create: bool,
    ) -> (Result<SqliteStatementResult>, Option<SqliteConnection>) {
        let until = connection_wait_deadline(self.call);
        let mut pause = Duration::from_millis(1);
        loop {
            let failed = match self.attempt_once(&mut open, allowed, mode, create) {
                Ok(done) => return (Ok(done), open),
                Err(SqliteStatementFailure::Problem(problem)) => return (Err(problem), open),
                Err(SqliteStatementFailure::Busy) => sqlite_errors::locked_problem(&self.ask.path),
            };
            if Instant::now() >= until || self.stop.is_requested() {
                return (Err(failed), open);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(25));
        }
    }

    fn attempt_once(
        &self,
        open: &mut Option<SqliteConnection>,
        allowed: &AllowedDatabase,
        mode: SqliteMode,
        create: bool,
    ) -> Result<SqliteStatementResult, SqliteStatementFailure> {
        let open = match open {
            Some(open) => open,
            none => none.insert(SqliteConnection::new(allowed, &self.ask.path, mode, create)?),
        };
        self.arm_interrupt(open)?;
        let inserts = InsertTracker::watch_connection(&mut open.connection)
            .map_err(|error| sqlite_errors::explain_sqlite_error(error, &self.ask.path))?;
        let explain = |error| self.explain_failure(open, error);
        let connection = &open.connection;
        let mut statements = Batch::new(connection, &self.ask.sql);
        let Some(mut statement) = statements.next().map_err(explain)? else {
            return Err(Problem::bad_request("the SQL has no statement").into());
        };
        // Whatever may be wrong with a second one, it is there.
        if !matches!(statements.next(), Ok(None)) {
            open.guard.take_refusal();
            return Err(sqlite_errors::multiple_statements_problem().into());
        }
        bind::bind_params(&mut statement, self.ask.params.as_ref(), &self.ask.path)?;
        let columns = statement.column_names().map(str::to_owned).collect();
        let mut rows = SqlRows::new(columns, self.call.limits().value)?;
        let before = connection.total_changes();
        if self.needs_transaction(&statement) {
            open.guard.run_own_sql(connection, "BEGIN").map_err(explain)?;
            let read = self.read_rows(&mut statement, &mut rows, explain);
            drop(statement);
            let kept =
                read.and_then(|()| open.guard.run_own_sql(connection, "COMMIT").map_err(explain));
            if !connection.is_autocommit() {
                open.guard.run_own_sql(connection, "ROLLBACK").map_err(explain)?;
            }
            kept?;
        } else {
            self.read_rows(&mut statement, &mut rows, explain)?;
        }
        let changed = connection.total_changes() != before;
        let changes = if changed { connection.changes() } else { 0 };
        Ok(SqliteStatementResult {
            rows,
            changes: i64::try_from(changes).unwrap_or(i64::MAX),
            last_insert_id: inserts.last_insert_id(connection).filter(|_| changed),
        })
    }

    fn explain_failure(
        &self,
        open: &SqliteConnection,
        error: rusqlite::Error,
    ) -> SqliteStatementFailure {
        match open.guard.take_refusal() {
            Some(StatementRefusal::Write) => match self.call.grants().check_sql_write(self.what) {
                Err(denial) => denial.into(),
                // Reading is all that listing and describing ever do.
                Ok(_) => Problem::denied(format!("{} only reads", self.what)).into(),
            },
            Some(StatementRefusal::Never(reason)) => Problem::denied(reason).into(),
            None if sqlite_errors::is_busy_error(&error) => SqliteStatementFailure::Busy,
            None => sqlite_errors::explain_sqlite_error(error, &self.ask.path).into(),
        }
    }

    /// SQLite keeps what a statement has changed also when its rows are not read
    /// to the end, unless it is in a transaction. (Where journal modes cannot be
    /// changed.)
    fn needs_transaction(&self, statement: &rusqlite::Statement<'_>) -> bool {
        let word = self.ask.sql.trim_start().get(..6).unwrap_or_default();
        statement.column_count() > 0
            && !statement.readonly()
            && !word.eq_ignore_ascii_case("pragma")
    }

    fn read_rows(
        &self,
        statement: &mut rusqlite::Statement<'_>,
        gathered: &mut SqlRows,
        explain: impl Fn(rusqlite::Error) -> SqliteStatementFailure,
    ) -> Result<(), SqliteStatementFailure> {
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().map_err(&explain)? {
            if self.stop.is_requested() {
                return Err(Problem::new(ProblemCode::Cancelled, "the call was given up").into());
            }
            gathered.push_row(|index| match row.get_ref(index) {
                Ok(value) => Ok(value_from_sqlite(value)),
                Err(error) => Err(sqlite_errors::explain_sqlite_error(error, &self.ask.path)),
            })?;
        }
        Ok(())
    }

    /// From here on the statement stops when the call does.
    fn arm_interrupt(&self, open: &mut SqliteConnection) -> Result<()> {
        open.guard.take_refusal();
        let explain = |error| sqlite_errors::explain_sqlite_error(error, &self.ask.path);
        let limit = i32::try_from(self.call.limits().value).unwrap_or(i32::MAX);
        let connection = &mut open.connection;
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, limit).map_err(explain)?;
        // An interrupt is lost when it comes before the statement begins, and
        // this is slow to look inside a single long operation: so both.
        let (stop, deadline) = (self.stop.clone(), self.call.deadline());
        let over = move || stop.is_requested() || Instant::now() >= deadline;
        connection.progress_handler(2000, Some(over)).map_err(explain)?;
        *self.stop.handle.lock() = Some(connection.get_interrupt_handle());
        Ok(())
    }
}

fn value_from_sqlite(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(int) => Value::Int(int),
        ValueRef::Real(float) => Value::Float(float),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Value::text_or_bytes(bytes.to_vec()),
    }
}

/// Whether a statement inserts rows. The connection remembers the row id of
/// statements before it.
struct InsertTracker {
    earlier: i64,
    again: Arc<AtomicBool>,
}

impl InsertTracker {
    fn watch_connection(connection: &mut Connection) -> rusqlite::Result<InsertTracker> {
        let earlier = connection.last_insert_rowid();
        let again = Arc::new(AtomicBool::new(false));
        let seen = again.clone();
        connection.update_hook(Some(move |action, _: &str, _: &str, row| {
            seen.fetch_or(action == Action::SQLITE_INSERT && row == earlier, Ordering::Relaxed);
        }))?;
        Ok(InsertTracker { earlier, again })
    }

    fn last_insert_id(&self, connection: &Connection) -> Option<i64> {
        let last = connection.last_insert_rowid();
        (last != self.earlier || self.again.load(Ordering::Relaxed)).then_some(last)
    }
}

/// How the async side reaches a statement that runs.
#[derive(Default)]
struct StatementInterrupt {
    requested: AtomicBool,
    handle: Mutex<Option<InterruptHandle>>,
}

impl StatementInterrupt {
    fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }
}

struct InterruptOnDrop(Arc<StatementInterrupt>);

impl Drop for InterruptOnDrop {
    fn drop(&mut self) {
        self.0.requested.store(true, Ordering::Relaxed);
        // Taken away when the work is done, so that no later call is hit.
        if let Some(handle) = &*self.0.handle.lock() {
            handle.interrupt();
        }
    }
}

async fn spawn_database_work<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(Problem::internal(format!("the database work did not finish: {error}")))
    })
}
