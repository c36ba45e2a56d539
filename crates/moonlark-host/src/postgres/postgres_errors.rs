//! Error messages of PostgreSQL, never with the password.

use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, ProblemCode};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, ErrorPosition, SqlState};

use super::connection_target::PostgresTarget;

pub(super) fn explain_postgres_error(error: &Error, target: &PostgresTarget) -> Problem {
    let mut problem = match error.as_db_error() {
        Some(error) => explain_server_error(error, target),
        None => explain_connection_error(error, target),
    };
    target.secrets.redact_problem(&mut problem);
    problem
}

/// The statement tried to change something and may not.
pub(super) fn is_refused_write(error: &Error) -> bool {
    error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

fn explain_server_error(error: &DbError, target: &PostgresTarget) -> Problem {
    let state = error.code();
    let message = server_message(error);
    let at = target.display_servers();
    let settled = |message: String| Problem::unavailable(message).with_retryable(false);
    let problem = match state {
        _ if is_multiple_statements(error) => {
            return Problem::bad_request("the SQL has more than one statement")
                .with_hint("make one call for each; values belong into params");
        }
        &SqlState::QUERY_CANCELED => {
            Problem::new(ProblemCode::Timeout, "the statement ran too long")
        }
        &SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            settled(format!("{at} does not let this user in: {message}"))
        }
        &SqlState::INVALID_CATALOG_NAME => settled(format!("{at}: {message}")),
        &SqlState::TOO_MANY_CONNECTIONS
        | &SqlState::ADMIN_SHUTDOWN
        | &SqlState::CRASH_SHUTDOWN
        | &SqlState::CANNOT_CONNECT_NOW => Problem::unavailable(format!("{at}: {message}")),
        &SqlState::T_R_SERIALIZATION_FAILURE
        | &SqlState::T_R_DEADLOCK_DETECTED
        | &SqlState::LOCK_NOT_AVAILABLE => Problem::unavailable(message),
        _ => Problem::bad_request(match parameter_number(error) {
            Some(number) => format!("parameter {number}: {message}"),
            None => message,
        }),
    };
    problem.with_optional_hint(error.hint().map(|hint| shorten_text(hint).into_owned()))
}

fn server_message(error: &DbError) -> String {
    let mut message = shorten_text(error.message()).into_owned();
    if let Some(detail) = error.detail() {
        message.push_str(&format!(": {}", shorten_text(detail)));
    }
    if let Some(ErrorPosition::Original(at)) = error.position() {
        message.push_str(&format!(" (at character {at})"));
    }
    message
}

/// The state says only that the syntax is wrong; the place in the server's code
/// says the rest, in every language.
fn is_multiple_statements(error: &DbError) -> bool {
    error.code() == &SqlState::SYNTAX_ERROR && error.routine() == Some("exec_parse_message")
}

/// The number of the parameter that the server could not read.
fn parameter_number(error: &DbError) -> Option<u32> {
    let (_, after) = error.where_()?.split_once("portal parameter $")?;
    let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    after[..digits].parse().ok()
}

fn explain_connection_error(error: &Error, target: &PostgresTarget) -> Problem {
    let at = target.display_servers();
    if error.is_closed() {
        return Problem::unavailable(format!("the connection to {at} was lost"));
    }
    let cause = moonlark_http::innermost_error(error);
    match cause.downcast_ref::<std::io::Error>() {
        Some(error) => {
            Problem::unavailable(format!("the connection to {at} was lost: {}", error.kind()))
        }
        // Such as a password that is missing.
        None => Problem::unavailable(format!("{at}: {}", shorten_text(&cause.to_string())))
            .with_retryable(false),
    }
}
