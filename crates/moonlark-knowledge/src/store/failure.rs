//! What SQLite says, in words.

use std::path::Path;

use moonlark_core::{Code, Problem, Result};
use rusqlite::{Error, ErrorCode};

/// Why work on the file did not succeed, before anybody said which file it is.
#[derive(Debug)]
pub(crate) enum Fault {
    Sql(Error),
    Problem(Problem),
}

pub(crate) type Attempt<T> = Result<T, Fault>;

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Sql(error)
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        Fault::Problem(problem)
    }
}

pub(crate) trait Explain<T> {
    /// As a Problem about the knowledge base in `file`.
    fn explain(self, file: &Path) -> Result<T>;
}

impl<T, E: Into<Fault>> Explain<T> for Result<T, E> {
    fn explain(self, file: &Path) -> Result<T> {
        self.map_err(|fault| match fault.into() {
            Fault::Problem(problem) => problem,
            Fault::Sql(error) => explain(&error, file),
        })
    }
}

/// What is in the file cannot have been written by us.
pub(crate) fn damaged(what: &str) -> Fault {
    Fault::Problem(is_damaged(&format!("the knowledge base is damaged: {what}")))
}

fn explain(error: &Error, file: &Path) -> Problem {
    let file = file.display();
    let Some(code) = error.sqlite_error_code() else {
        // A column that is not what the schema says.
        return is_damaged(&format!("the knowledge base {file} is damaged: {error}"));
    };
    match code {
        ErrorCode::NotADatabase => is_damaged(&format!("{file} is no knowledge base, or damaged")),
        ErrorCode::DatabaseCorrupt => {
            is_damaged(&format!("the knowledge base {file} is damaged: {error}"))
        }
        ErrorCode::DiskFull => {
            Problem::unavailable(format!("there is no room for the knowledge base {file}"))
                .hint("make room on the disk and sync again: what was committed is not done again")
        }
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            Problem::unavailable(format!("another process is writing to {file}"))
                .hint("try again when it is done")
        }
        ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied => {
            Problem::unavailable(format!("the knowledge base {file} cannot be opened: {error}"))
                .retryable_if(false)
                .hint("the file and its folder have to be readable and writable for this process")
        }
        ErrorCode::OperationInterrupted => Problem::new(Code::Cancelled, "the work was given up"),
        ErrorCode::SystemIoFailure => Problem::unavailable(format!(
            "the knowledge base {file} cannot be read or written: {error}"
        ))
        .hint("look at the disk and how full it is, then try again"),
        _ => Problem::internal(format!("the knowledge base {file}: {error}")),
    }
}

fn is_damaged(message: &str) -> Problem {
    Problem::unavailable(message)
        .retryable_if(false)
        .hint("move the file away and sync again: all of it is made from its sources")
}
