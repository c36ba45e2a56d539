//! Error messages of SQLite.

use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, ProblemCode};
use rusqlite::{Error, ErrorCode, ffi};

/// `path` is the database as the script wrote it.
pub(super) fn explain_sqlite_error(error: Error, path: &str) -> Problem {
    let path = shorten_text(path);
    let (kind, extended, message) = match &error {
        Error::SqliteFailure(cause, message) => (cause.code, cause.extended_code, message.clone()),
        Error::SqlInputError { error: cause, msg, .. } => {
            (cause.code, cause.extended_code, Some(msg.clone()))
        }
        Error::MultipleStatement => return multiple_statements_problem(),
        other => return Problem::bad_request(other.to_string()),
    };
    let message = message.unwrap_or_else(|| ffi::code_to_str(extended).to_owned());
    match kind {
        ErrorCode::NotADatabase => Problem::bad_request(format!("{path} is not a SQLite database")),
        ErrorCode::DatabaseCorrupt => {
            Problem::unavailable(format!("the database {path} is damaged: {message}"))
                .with_retryable(false)
                .with_hint("restore it from a backup, or try the recover command of the sqlite3 shell")
        }
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => locked_problem(&path),
        // What an interrupted write left has to be undone, which is writing.
        ErrorCode::ReadOnly if extended == ffi::SQLITE_READONLY_ROLLBACK => {
            Problem::unavailable(format!(
                "{path} was left in the middle of a change, which has to be undone first"
            ))
            .with_retryable(false)
            .with_hint("open it once with a program that may write to it")
        }
        ErrorCode::ReadOnly => Problem::unavailable(format!("the database {path} is read-only: {message}"))
            .with_retryable(false)
            .with_hint("make the file and its directory writable for this process"),
        ErrorCode::CannotOpen => {
            Problem::unavailable(format!("the database {path} cannot be opened: {message}"))
                .with_retryable(false)
                .with_hint("the process needs access to the file and, for a database in WAL mode, to its directory")
        }
        ErrorCode::DiskFull => Problem::unavailable("the disk is full"),
        ErrorCode::TooBig => Problem::limit_exceeded(format!("a value in the statement is too large: {message}"))
            .with_hint("work on less at a time, or raise limits.value"),
        ErrorCode::OutOfMemory => Problem::limit_exceeded("SQLite ran out of memory"),
        ErrorCode::OperationInterrupted => Problem::new(ProblemCode::Timeout, "the statement ran too long"),
        ErrorCode::SystemIoFailure => {
            Problem::unavailable(format!("the database {path} cannot be read or written: {message}"))
        }
        _ => Problem::bad_request(message),
    }
}

pub(super) fn locked_problem(path: &str) -> Problem {
    Problem::unavailable(format!("the database {path} is locked"))
        .with_hint("another program or call is writing to it; try again later")
}

pub(super) fn multiple_statements_problem() -> Problem {
    Problem::bad_request("the SQL has more than one statement")
        .with_hint("make one call for each; values belong into params")
}

/// Whether waiting for others may help.
pub(super) fn is_busy_error(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
