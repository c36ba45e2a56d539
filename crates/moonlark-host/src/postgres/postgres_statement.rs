//! One statement: what it may do, and what it gives.

use std::pin::pin;

use futures::TryStreamExt;
use moonlark_core::grant::AllowedWrite;
use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, Result, Value};
use moonlark_gateway::Call;
use tokio_postgres::{Error, Statement};

use super::connection_target::PostgresTarget;
use super::decode::{self, RawColumnValue};
use super::encode;
use super::postgres_errors;
use super::postgres_session::PostgresTransaction;
use crate::sql::{SqlRows, check_sql_text, result_too_large_problem};

pub(super) struct PostgresStatement<'a> {
    pub(super) what: &'static str,
    pub(super) sql: &'a str,
    pub(super) params: Vec<Value>,
    pub(super) write: Option<AllowedWrite>,
}

pub(super) struct PostgresStatementResult {
    pub(super) rows: SqlRows,
    pub(super) affected: i64,
}

pub(super) async fn run_statement(
    call: &Call,
    conn: &str,
    ask: PostgresStatement<'_>,
) -> Result<PostgresStatementResult> {
    let target = PostgresTarget::from_connection_string(call, ask.what, conn)?;
    check_sql_text(ask.sql)?;
    let word = first_word(ask.sql);
    check_first_word(call, &ask, &word)?;
    let transaction = PostgresTransaction::begin(call, &target, ask.write).await?;
    match execute_in_transaction(call, &transaction, &target, &ask, &word).await {
        Ok(done) if ask.write.is_some() => transaction.commit().await.map(|()| done),
        // Servers before version 16 let a reading transaction make large
        // objects, and every one lets it notify: that is undone.
        Ok(done) => {
            transaction.roll_back().await;
            Ok(done)
        }
        Err(PostgresStatementFailure::Settled(problem)) => {
            transaction.roll_back().await;
            Err(problem)
        }
        // Dropping the transaction stops the server.
        Err(PostgresStatementFailure::Running(problem)) => Err(problem),
    }
}

/// Why there is no result.
enum PostgresStatementFailure {
    /// The server is done with it.
    Settled(Problem),
    /// The server may still be sending.
    Running(Problem),
}

async fn execute_in_transaction(
    call: &Call,
    transaction: &PostgresTransaction<'_>,
    target: &PostgresTarget,
    ask: &PostgresStatement<'_>,
    word: &str,
) -> Result<PostgresStatementResult, PostgresStatementFailure> {
    let limit = call.limits().value;
    let explain = |error: Error| match error.as_db_error() {
        Some(_) if postgres_errors::is_refused_write(&error) => {
            PostgresStatementFailure::Settled(write_denied_problem(call, ask))
        }
        Some(_) => PostgresStatementFailure::Settled(postgres_errors::explain_postgres_error(
            &error, target,
        )),
        None if transaction.is_message_limit_exceeded() => {
            PostgresStatementFailure::Running(result_too_large_problem(limit))
        }
        None => PostgresStatementFailure::Running(postgres_errors::explain_postgres_error(
            &error, target,
        )),
    };
    let client = transaction.client().map_err(PostgresStatementFailure::Running)?;
    let statement = client.prepare(ask.sql).await.map_err(explain)?;
    // A word that is neither known to read nor to write, but that the server
    // understands.
    if ask.write.is_none() && !READ_STATEMENTS.contains(&word) {
        return Err(PostgresStatementFailure::Settled(write_denied_problem(call, ask)));
    }
    let params = encode::encode_params(&ask.params, statement.params())
        .map_err(PostgresStatementFailure::Settled)?;
    let mut rows = new_rows(&statement, limit).map_err(PostgresStatementFailure::Settled)?;
    let mut stream = pin!(client.query_raw(&statement, params).await.map_err(explain)?);
    while let Some(row) = stream.try_next().await.map_err(explain)? {
        let left = rows.bytes_left();
        let value = |index: usize| {
            let raw: Option<RawColumnValue<'_>> = row
                .try_get(index)
                .map_err(|error| postgres_errors::explain_postgres_error(&error, target))?;
            match raw {
                Some(RawColumnValue(bytes)) => {
                    let column = &statement.columns()[index];
                    decode::decode_value(bytes, column.type_(), left)
                        .map_err(|problem| with_column(column.name(), problem))
                }
                None => Ok(Value::Null),
            }
        };
        rows.push_row(value).map_err(PostgresStatementFailure::Running)?;
    }
    let affected = stream.rows_affected().unwrap_or(0);
    Ok(PostgresStatementResult { rows, affected: i64::try_from(affected).unwrap_or(i64::MAX) })
}

/// The rows to fill, if every column has a type that is known.
fn new_rows(statement: &Statement, limit: usize) -> Result<SqlRows> {
    for column in statement.columns() {
        if !decode::is_decodable(column.type_()) {
            let name = column.name();
            return Err(Problem::bad_request(format!(
                "the column {} has the type {}, which is not known here",
                shorten_text(name),
                column.type_().name()
            ))
            .with_hint(format!(
                "cast it to text in the statement, as in {}::text",
                shorten_text(name)
            )));
        }
    }
    SqlRows::new(statement.columns().iter().map(|column| column.name().to_owned()).collect(), limit)
}

fn with_column(name: &str, mut problem: Problem) -> Problem {
    problem.message = format!("the column {}: {}", shorten_text(name), problem.message);
    problem
}

fn write_denied_problem(call: &Call, ask: &PostgresStatement<'_>) -> Problem {
    match call.grants().check_sql_write(ask.what) {
        Err(denial) => denial,
        // The database itself is for reading, as a replica is.
        Ok(_) => Problem::unavailable("the database can only be read").with_retryable(false),
    }
}

/// Statements that only read, as far as their first word tells; the transaction
/// they run in holds them to it.
const READ_STATEMENTS: &[&str] = &["SELECT", "WITH", "VALUES", "TABLE", "SHOW", "EXPLAIN"];

/// Statements that change something.
const WRITE_STATEMENTS: &[&str] = &[
    "INSERT",
    "UPDATE",
    "DELETE",
    "MERGE",
    "CREATE",
    "ALTER",
    "DROP",
    "TRUNCATE",
    "GRANT",
    "REVOKE",
    "COMMENT",
    "DO",
    "CALL",
    "VACUUM",
    "ANALYZE",
    "CLUSTER",
    "REINDEX",
    "REFRESH",
    "LOCK",
    "NOTIFY",
    "REASSIGN",
    "SECURITY",
    "IMPORT",
    "CHECKPOINT",
];

/// Statements about the connection, which is not the script's, or about several
/// statements at once. COPY also reaches files and programs of the server.
const FORBIDDEN_STATEMENTS: &[&str] = &[
    "BEGIN",
    "START",
    "COMMIT",
    "END",
    "ROLLBACK",
    "ABORT",
    "SAVEPOINT",
    "RELEASE",
    "PREPARE",
    "EXECUTE",
    "DEALLOCATE",
    "DISCARD",
    "SET",
    "RESET",
    "LISTEN",
    "UNLISTEN",
    "DECLARE",
    "FETCH",
    "MOVE",
    "CLOSE",
    "LOAD",
    "COPY",
];

fn check_first_word(call: &Call, ask: &PostgresStatement<'_>, word: &str) -> Result<()> {
    if word.is_empty() {
        return Err(Problem::bad_request("the SQL has no statement"));
    }
    if FORBIDDEN_STATEMENTS.contains(&word) {
        return Err(Problem::denied(format!(
            "{word} is not possible: each call is one statement, in a transaction and a session of its own"
        )));
    }
    if ask.write.is_none() && WRITE_STATEMENTS.contains(&word) {
        return Err(write_denied_problem(call, ask));
    }
    Ok(())
}

/// The first word in capitals, after white space, comments and parentheses.
/// Something that is no word stands for itself.
fn first_word(sql: &str) -> String {
    let mut rest = sql;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '(' || c == ';');
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.find(['\n', '\r']).map_or("", |end| &comment[end..]);
        } else if rest.starts_with("/*") {
            rest = skip_comment(rest);
        } else {
            break;
        }
    }
    let word = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    match &rest[..word] {
        "" => rest.chars().take(1).collect(),
        word => word.chars().take(32).collect::<String>().to_ascii_uppercase(),
    }
}

/// PostgreSQL's comments nest.
fn skip_comment(text: &str) -> &str {
    let (mut depth, mut at) = (0_usize, 0);
    let bytes = text.as_bytes();
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return &text[at..];
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::first_word;

    #[test]
    fn the_first_word_is_found_behind_comments() {
        for (sql, expected) in [
            ("select 1", "SELECT"),
            (" \n\t((SELECT 1))", "SELECT"),
            ("-- a\n-- b\r\ndelete from t", "DELETE"),
            ("/* a /* b */ c */ Begin", "BEGIN"),
            ("/* a /* b */ SELECT", ""),
            ("/*/ SELECT */ COMMIT", "COMMIT"),
            (";;ROLLBACK", "ROLLBACK"),
            ("set_config", "SET_CONFIG"),
            ("--", ""),
            ("", ""),
            ("é", "é"),
            ("\"x\"", "\""),
        ] {
            assert_eq!(first_word(sql), expected, "{sql}");
        }
    }
}
