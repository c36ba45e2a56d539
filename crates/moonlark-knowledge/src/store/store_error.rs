//! What SQLite says, in words.

use std::path::Path;

use moonlark_core::{Problem, ProblemCode, Result};
use rusqlite::{Error, ErrorCode};

/// Why work on the file did not succeed, before anybody said which file it is.
#[derive(Debug)]
pub(crate) enum KnowledgeStoreError {
    Sql(Error),
    Problem(Problem),
}

pub(crate) type StoreResult<T> = Result<T, KnowledgeStoreError>;

impl From<Error> for KnowledgeStoreError {
    fn from(error: Error) -> Self {
        KnowledgeStoreError::Sql(error)
    }
}

impl From<Problem> for KnowledgeStoreError {
    fn from(problem: Problem) -> Self {
        KnowledgeStoreError::Problem(problem)
    }
}

pub(crate) trait MapStoreError<T> {
    /// As a Problem about the knowledge base in `file`.
    fn map_store_error(self, file: &Path) -> Result<T>;
}

impl<T, E: Into<KnowledgeStoreError>> MapStoreError<T> for Result<T, E> {
    fn map_store_error(self, file: &Path) -> Result<T> {
        self.map_err(|fault| match fault.into() {
            KnowledgeStoreError::Problem(problem) => problem,
            KnowledgeStoreError::Sql(error) => sqlite_problem(&error, file),
        })
    }
}

/// What is in the file cannot have been written by us.
pub(crate) fn damaged_error(what: &str) -> KnowledgeStoreError {
    KnowledgeStoreError::Problem(damaged_problem(&format!("the knowledge base is damaged: {what}")))
}

fn sqlite_problem(error: &Error, file: &Path) -> Problem {
    let file = file.display();
    let Some(code) = error.sqlite_error_code() else {
        // A column that is not what the schema says.
        return damaged_problem(&format!("the knowledge base {file} is damaged: {error}"));
    };
    match code {
        ErrorCode::NotADatabase => {
            damaged_problem(&format!("{file} is no knowledge base, or damaged"))
        }
        ErrorCode::DatabaseCorrupt => {
            damaged_problem(&format!("the knowledge base {file} is damaged: {error}"))
        }
        ErrorCode::DiskFull => {
            Problem::unavailable(format!("there is no room for the knowledge base {file}"))
                .with_hint(
                    "make room on the disk and sync again: what was committed is not done again",
                )
        }
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            Problem::unavailable(format!("another process is writing to {file}"))
                .with_hint("try again when it is done")
        }
        ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied => {
            Problem::unavailable(format!("the knowledge base {file} cannot be opened: {error}"))
                .with_retryable(false)
                .with_hint(
                    "the file and its folder have to be readable and writable for this process",
                )
        }
        ErrorCode::OperationInterrupted => {
            Problem::new(ProblemCode::Cancelled, "the work was given up")
        }
        ErrorCode::SystemIoFailure => Problem::unavailable(format!(
            "the knowledge base {file} cannot be read or written: {error}"
        ))
        .with_hint("look at the disk and how full it is, then try again"),
        _ => Problem::internal(format!("the knowledge base {file}: {error}")),
    }
}

fn damaged_problem(message: &str) -> Problem {
    Problem::unavailable(message)
        .with_retryable(false)
        .with_hint("move the file away and sync again: all of it is made from its sources")
}
