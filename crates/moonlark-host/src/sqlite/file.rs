//! Which file a path means, and a connection to it.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use moonlark_core::grant::AllowedDatabase;
use moonlark_core::value::shorten;
use moonlark_core::{Call, Code, Problem, Result};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use super::failure;
use super::guard::{Guard, Mode};
use crate::pool::Pool;

/// What connections are kept by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) mode: Mode,
}

/// More at once would only wait for each other's locks.
pub(super) static POOL: LazyLock<Pool<Place, Open>> = LazyLock::new(|| Pool::new(32, 4));

/// A connection that stays inside what its mode allows.
pub(super) struct Open {
    pub(super) connection: Connection,
    pub(super) guard: Guard,
    identity: Option<(u64, u64)>,
}

/// The database that `path` means to the script. It touches the disk.
pub(super) fn find(call: &Call, what: &str, path: &str) -> Result<AllowedDatabase> {
    if path.is_empty() || path.len() > LONGEST_PATH || path.contains('\0') {
        return Err(Problem::bad_request(format!("{:?} is not a path", shorten(path))));
    }
    call.grants().database(what, path, resolve)
}

const LONGEST_PATH: usize = 4096;

/// Where `path` leads. Of what is not there yet, the part that is.
fn resolve(path: &Path) -> Option<PathBuf> {
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

impl Open {
    /// `shown` is the path as the script wrote it.
    pub(super) fn new(
        allowed: &AllowedDatabase,
        shown: &str,
        mode: Mode,
        create: bool,
    ) -> Result<Open> {
        let path = allowed.path();
        check_file(path, shown, create)?;
        // The path has no link in it any more; one that was put there since is
        // not followed.
        let mut flags = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        flags |= match mode {
            Mode::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
            Mode::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
        };
        if create {
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        let explain = |error| failure::problem(error, shown);
        let mut connection = Connection::open_with_flags(path, flags).map_err(explain)?;
        let guard = restrict(&mut connection, mode).map_err(explain)?;
        Ok(Open { connection, guard, identity: identity(path) })
    }

    /// The file is still the one that was opened, and nothing is left of the
    /// call before.
    pub(super) fn is_current(&self, path: &Path) -> bool {
        self.identity.is_some()
            && self.identity == identity(path)
            && self.connection.is_autocommit()
    }
}

/// Only a regular file: a pipe would keep us waiting for ever.
fn check_file(path: &Path, shown: &str, create: bool) -> Result<()> {
    let shown = shorten(shown);
    match path.metadata() {
        Ok(found) if found.is_file() => Ok(()),
        Ok(found) if found.is_dir() => {
            Err(Problem::bad_request(format!("{shown} is a directory, not a database")))
        }
        Ok(_) => Err(Problem::bad_request(format!("{shown} is not a regular file"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && create => {
            spare_code(path)?;
            match path.parent() {
                Some(parent) if parent.is_dir() => Ok(()),
                _ => {
                    Err(Problem::new(Code::NotFound, format!("there is no directory for {shown}")))
                }
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Problem::new(Code::NotFound, format!("there is no file {shown}")).hint(
                "paths are relative to the script's directory; sqlite.execute makes a new database",
            ))
        }
        Err(error) => {
            Err(Problem::unavailable(format!("{shown} cannot be opened: {}", error.kind()))
                .retryable_if(false))
        }
    }
}

/// A script that may change databases may not add scripts or configuration.
fn spare_code(path: &Path) -> Result<()> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    if matches!(ending.to_ascii_lowercase().as_str(), "lua" | "luau" | "star" | "toml") {
        return Err(Problem::denied("a new database may not have the ending of a script")
            .hint("use another ending, such as .db"));
    }
    Ok(())
}

/// Settings that a database file, which may come from anywhere, cannot change.
fn restrict(connection: &mut Connection, mode: Mode) -> rusqlite::Result<Guard> {
    // Waiting for locks is done in `run`, where it can be stopped.
    connection.busy_timeout(std::time::Duration::ZERO)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    // These bound what a statement can cost before it runs.
    connection.set_limit(Limit::SQLITE_LIMIT_EXPR_DEPTH, 200)?;
    connection.set_limit(Limit::SQLITE_LIMIT_WORKER_THREADS, 0)?;
    if mode == Mode::Read {
        connection.execute_batch("PRAGMA query_only = ON")?;
    }
    Guard::install(connection, mode)
}

/// Which file stands at a path, so that one put in its place is noticed. Where
/// the system does not say, no connection is kept.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let found = path.metadata().ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Path) -> Option<(u64, u64)> {
    None
}
