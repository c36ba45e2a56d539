//! What went wrong, in words.

use moonlark_core::value::shorten;
use moonlark_core::{Code, Problem};
use rusqlite::{Error, ErrorCode, ffi};

/// `path` is the database as the script wrote it.
pub(super) fn problem(error: Error, path: &str) -> Problem {
    let path = shorten(path);
    let (kind, extended, message) = match &error {
        Error::SqliteFailure(cause, message) => (cause.code, cause.extended_code, message.clone()),
        Error::SqlInputError { error: cause, msg, .. } => {
            (cause.code, cause.extended_code, Some(msg.clone()))
        }
        Error::MultipleStatement => return several(),
        other => return Problem::bad_request(other.to_string()),
    };
    let message = message.unwrap_or_else(|| ffi::code_to_str(extended).to_owned());
    match kind {
        ErrorCode::NotADatabase => Problem::bad_request(format!("{path} is not a SQLite database")),
        ErrorCode::DatabaseCorrupt => {
            Problem::unavailable(format!("the database {path} is damaged: {message}"))
                .retryable_if(false)
                .hint("restore it from a backup, or try the recover command of the sqlite3 shell")
        }
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => locked(&path),
        // What an interrupted write left has to be undone, which is writing.
        ErrorCode::ReadOnly if extended == ffi::SQLITE_READONLY_ROLLBACK => {
            Problem::unavailable(format!(
                "{path} was left in the middle of a change, which has to be undone first"
            ))
            .retryable_if(false)
            .hint("open it once with a program that may write to it")
        }
        ErrorCode::ReadOnly => Problem::unavailable(format!("the database {path} is read-only: {message}"))
            .retryable_if(false)
            .hint("make the file and its directory writable for this process"),
        ErrorCode::CannotOpen => {
            Problem::unavailable(format!("the database {path} cannot be opened: {message}"))
                .retryable_if(false)
                .hint("the process needs access to the file and, for a database in WAL mode, to its directory")
        }
        ErrorCode::DiskFull => Problem::unavailable("the disk is full"),
        ErrorCode::TooBig => Problem::limit(format!("a value in the statement is too large: {message}"))
            .hint("work on less at a time, or raise limits.value"),
        ErrorCode::OutOfMemory => Problem::limit("SQLite ran out of memory"),
        ErrorCode::OperationInterrupted => Problem::new(Code::Timeout, "the statement ran too long"),
        ErrorCode::SystemIoFailure => {
            Problem::unavailable(format!("the database {path} cannot be read or written: {message}"))
        }
        _ => Problem::bad_request(message),
    }
}

pub(super) fn locked(path: &str) -> Problem {
    Problem::unavailable(format!("the database {path} is locked"))
        .hint("another program or call is writing to it; try again later")
}

pub(super) fn several() -> Problem {
    Problem::bad_request("the SQL has more than one statement")
        .hint("make one call for each; values belong into params")
}

/// Whether waiting for others may help.
pub(super) fn is_busy(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
