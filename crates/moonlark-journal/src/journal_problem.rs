//! What went wrong with the file, in words.

use std::path::Path;

use moonlark_core::{Problem, ProblemCode};
use rusqlite::ErrorCode;

/// The Problem of a statement, or of opening the file at `path`.
pub(crate) fn journal_problem(path: &Path, error: &rusqlite::Error) -> Problem {
    let file = path.display();
    let problem =
        |message: String| Problem::new(ProblemCode::Unavailable, message).with_retryable(false);
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            problem(format!("the journal cannot be written: the disk of {file} is full"))
                .with_hint("make room, or lower journal.size")
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            problem(format!("the journal {file} is damaged"))
                .with_hint(format!("move it away (`mv {file} {file}.damaged`): a new one is begun"))
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            problem(format!("the journal {file} cannot be opened for writing: {error}"))
                .with_hint("check that this user may write there, or set journal.enabled = false")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            problem(format!("the journal {file} is being written by another process"))
                .with_retryable(true)
                .with_hint("try again in a moment")
        }
        _ => problem(format!("the journal {file} cannot be used: {error}")),
    }
}
