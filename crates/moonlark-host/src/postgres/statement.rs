//! One statement: what it may do, and what it gives.

use std::pin::pin;

use futures::TryStreamExt;
use moonlark_core::grant::AllowedWrite;
use moonlark_core::value::shorten;
use moonlark_core::{Call, Problem, Result, Value};
use tokio_postgres::{Error, Statement};

use super::decode::{self, Raw};
use super::encode;
use super::failure;
use super::session::Transaction;
use super::target::Target;
use crate::sql::{Rows, check_text, too_large};

pub(super) struct Ask<'a> {
    pub(super) what: &'static str,
    pub(super) sql: &'a str,
    pub(super) params: Vec<Value>,
    pub(super) write: Option<AllowedWrite>,
}

pub(super) struct Done {
    pub(super) rows: Rows,
    pub(super) affected: i64,
}

pub(super) async fn run(call: &Call, target: Target, ask: Ask<'_>) -> Result<Done> {
    check_text(ask.sql)?;
    let word = first_word(ask.sql);
    check_word(call, &ask, &word)?;
    let transaction = Transaction::begin(call, &target, ask.write).await?;
    match work(call, &transaction, &target, &ask, &word).await {
        Ok(done) if ask.write.is_some() => transaction.commit().await.map(|()| done),
        // Servers before version 16 let a reading transaction make large
        // objects, and every one lets it notify: that is undone.
        Ok(done) => {
            transaction.roll_back().await;
            Ok(done)
        }
        Err(Failed::Settled(problem)) => {
            transaction.roll_back().await;
            Err(problem)
        }
        // Dropping the transaction stops the server.
        Err(Failed::Running(problem)) => Err(problem),
    }
}

/// Why there is no result.
enum Failed {
    /// The server is done with it.
    Settled(Problem),
    /// The server may still be sending.
    Running(Problem),
}

async fn work(
    call: &Call,
    transaction: &Transaction<'_>,
    target: &Target,
    ask: &Ask<'_>,
    word: &str,
) -> Result<Done, Failed> {
    let limit = call.limits().value;
    let explain = |error: Error| match error.as_db_error() {
        Some(_) if failure::is_write(&error) => Failed::Settled(no_write(call, ask)),
        Some(_) => Failed::Settled(failure::problem(&error, target)),
        None if transaction.is_flooded() => Failed::Running(too_large(limit)),
        None => Failed::Running(failure::problem(&error, target)),
    };
    let client = transaction.client().map_err(Failed::Running)?;
    let statement = client.prepare(ask.sql).await.map_err(explain)?;
    // A word that is neither known to read nor to write, but that the server
    // understands.
    if ask.write.is_none() && !READING.contains(&word) {
        return Err(Failed::Settled(no_write(call, ask)));
    }
    let params = encode::all(&ask.params, statement.params()).map_err(Failed::Settled)?;
    let mut rows = rows(&statement, limit).map_err(Failed::Settled)?;
    let mut stream = pin!(client.query_raw(&statement, params).await.map_err(explain)?);
    while let Some(row) = stream.try_next().await.map_err(explain)? {
        let left = rows.left();
        let value = |index: usize| {
            let raw: Option<Raw<'_>> =
                row.try_get(index).map_err(|error| failure::problem(&error, target))?;
            match raw {
                Some(Raw(bytes)) => {
                    let column = &statement.columns()[index];
                    decode::value(bytes, column.type_(), left)
                        .map_err(|problem| in_column(column.name(), problem))
                }
                None => Ok(Value::Null),
            }
        };
        rows.push(value).map_err(Failed::Running)?;
    }
    let affected = stream.rows_affected().unwrap_or(0);
    Ok(Done { rows, affected: i64::try_from(affected).unwrap_or(i64::MAX) })
}

/// The rows to fill, if every column has a type that is known.
fn rows(statement: &Statement, limit: usize) -> Result<Rows> {
    for column in statement.columns() {
        if !decode::is_known(column.type_()) {
            let name = column.name();
            return Err(Problem::bad_request(format!(
                "the column {} has the type {}, which is not known here",
                shorten(name),
                column.type_().name()
            ))
            .hint(format!("cast it to text in the statement, as in {}::text", shorten(name))));
        }
    }
    Rows::new(statement.columns().iter().map(|column| column.name().to_owned()).collect(), limit)
}

fn in_column(name: &str, mut problem: Problem) -> Problem {
    problem.message = format!("the column {}: {}", shorten(name), problem.message);
    problem
}

fn no_write(call: &Call, ask: &Ask<'_>) -> Problem {
    match call.grants().sql_write(ask.what) {
        Err(denial) => denial,
        // The database itself is for reading, as a replica is.
        Ok(_) => Problem::unavailable("the database can only be read").retryable_if(false),
    }
}

/// Statements that only read, as far as their first word tells; the transaction
/// they run in holds them to it.
const READING: &[&str] = &["SELECT", "WITH", "VALUES", "TABLE", "SHOW", "EXPLAIN"];

/// Statements that change something.
const WRITING: &[&str] = &[
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
const NEVER: &[&str] = &[
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

fn check_word(call: &Call, ask: &Ask<'_>, word: &str) -> Result<()> {
    if word.is_empty() {
        return Err(Problem::bad_request("the SQL has no statement"));
    }
    if NEVER.contains(&word) {
        return Err(Problem::denied(format!(
            "{word} is not possible: each call is one statement, in a transaction and a session of its own"
        )));
    }
    if ask.write.is_none() && WRITING.contains(&word) {
        return Err(no_write(call, ask));
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
            rest = after_comment(rest);
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
fn after_comment(text: &str) -> &str {
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
