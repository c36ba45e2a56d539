//! Errors of the database file, as Problems about it.

use std::path::Path;

use moonlark_core::{Problem, Result};
use rusqlite::Error;

use super::KNOWLEDGE_DATABASE;

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
            KnowledgeStoreError::Sql(error) => KNOWLEDGE_DATABASE.problem(file, &error),
        })
    }
}

/// What is in the file cannot have been written by us.
pub(crate) fn damaged_error(what: &str) -> KnowledgeStoreError {
    let problem = Problem::unavailable(format!("the knowledge base is damaged: {what}"))
        .with_retryable(false)
        .with_hint(KNOWLEDGE_DATABASE.hints.damaged);
    KnowledgeStoreError::Problem(problem)
}
