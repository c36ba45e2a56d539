//! Which file a path means, and a connection to it.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use moonlark_core::grant::AllowedDatabase;
use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, ProblemCode, Result};
use moonlark_gateway::Call;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use super::sqlite_authorizer::{SqliteAuthorizer, SqliteMode};
use super::sqlite_errors;
use crate::connection_pool::ConnectionPool;
use crate::fs::is_code_file;

/// What connections are kept by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SqlitePoolKey {
    pub(super) path: PathBuf,
    pub(super) mode: SqliteMode,
}

/// More at once would only wait for each other's locks.
pub(super) static SQLITE_POOL: LazyLock<ConnectionPool<SqlitePoolKey, SqliteConnection>> =
    LazyLock::new(|| ConnectionPool::new(32, 4));

/// A connection that stays inside what its mode allows.
pub(super) struct SqliteConnection {
    pub(super) connection: Connection,
    pub(super) guard: SqliteAuthorizer,
    identity: Option<(u64, u64)>,
}

/// The database that `path` means to the script. It touches the disk.
pub(super) fn find_database(call: &Call, what: &str, path: &str) -> Result<AllowedDatabase> {
    if path.is_empty() || path.len() > MAX_DATABASE_PATH_BYTES || path.contains('\0') {
        return Err(Problem::bad_request(format!("{:?} is not a path", shorten_text(path))));
    }
    call.grants().check_database(what, path, resolve_path)
}

const MAX_DATABASE_PATH_BYTES: usize = 4096;

/// Where `path` leads. Of what is not there yet, the part that is.
fn resolve_path(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|there| {
        let missing = path.strip_prefix(there).ok()?;
        let plain =
            missing.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if !plain {
            return None;
        }
        let there = there.canonicalize().ok()?;
        // Joining nothing would add a slash.
        Some(if missing.as_os_str().is_empty() { there } else { there.join(missing) })
    })
}

impl SqliteConnection {
    /// `shown` is the path as the script wrote it.
    pub(super) fn new(
        allowed: &AllowedDatabase,
        shown: &str,
        mode: SqliteMode,
        create: bool,
    ) -> Result<SqliteConnection> {
        let path = allowed.path();
        check_database_file(path, shown, create)?;
        // The path has no link in it any more; one that was put there since is
        // not followed.
        let mut flags = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        flags |= match mode {
            SqliteMode::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
            SqliteMode::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
        };
        if create {
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        let explain = |error| sqlite_errors::explain_sqlite_error(error, shown);
        let mut connection = Connection::open_with_flags(path, flags).map_err(explain)?;
        let guard = restrict_connection(&mut connection, mode).map_err(explain)?;
        Ok(SqliteConnection { connection, guard, identity: file_identity(path) })
    }

    /// The file is still the one that was opened, and nothing is left of the
    /// call before.
    pub(super) fn is_current(&self, path: &Path) -> bool {
        self.identity.is_some()
            && self.identity == file_identity(path)
            && self.connection.is_autocommit()
    }
}

/// Only a regular file: a pipe would keep us waiting for ever.
fn check_database_file(path: &Path, shown: &str, create: bool) -> Result<()> {
    let shown = shorten_text(shown);
    match path.metadata() {
        Ok(found) if found.is_file() => Ok(()),
        Ok(found) if found.is_dir() => {
            Err(Problem::bad_request(format!("{shown} is a directory, not a database")))
        }
        Ok(_) => Err(Problem::bad_request(format!("{shown} is not a regular file"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && create => {
            if is_code_file(path) {
                return Err(Problem::denied("a new database may not have the ending of a script")
                    .with_hint("use another ending, such as .db"));
            }
            match path.parent() {
                Some(parent) if parent.is_dir() => Ok(()),
                _ => Err(Problem::new(
                    ProblemCode::NotFound,
                    format!("there is no directory for {shown}"),
                )),
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Problem::new(ProblemCode::NotFound, format!("there is no file {shown}")).with_hint(
                "paths are relative to the script's directory; sqlite.execute makes a new database",
            ))
        }
        Err(error) => {
            Err(Problem::unavailable(format!("{shown} cannot be opened: {}", error.kind()))
                .with_retryable(false))
        }
    }
}

/// Settings that a database file, which may come from anywhere, cannot change.
fn restrict_connection(
    connection: &mut Connection,
    mode: SqliteMode,
) -> rusqlite::Result<SqliteAuthorizer> {
    // Waiting for locks is done in `run`, where it can be stopped.
    connection.busy_timeout(std::time::Duration::ZERO)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    // These bound what a statement can cost before it runs.
    connection.set_limit(Limit::SQLITE_LIMIT_EXPR_DEPTH, 200)?;
    connection.set_limit(Limit::SQLITE_LIMIT_WORKER_THREADS, 0)?;
    if mode == SqliteMode::Read {
        connection.execute_batch("PRAGMA query_only = ON")?;
    }
    SqliteAuthorizer::install_on(connection, mode)
}

/// Which file stands at a path, so that one put in its place is noticed.
fn file_identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let found = path.metadata().ok()?;
    Some((found.dev(), found.ino()))
}
