//! What went wrong, in words, and never with the password.

use moonlark_core::value::shorten;
use moonlark_core::{Code, Problem};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, ErrorPosition, SqlState};

use super::target::Target;

pub(super) fn problem(error: &Error, target: &Target) -> Problem {
    let mut problem = match error.as_db_error() {
        Some(error) => from_server(error, target),
        None => without_server(error, target),
    };
    target.secrets.redact_problem(&mut problem);
    problem
}

/// The statement tried to change something and may not.
pub(super) fn is_write(error: &Error) -> bool {
    error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

fn from_server(error: &DbError, target: &Target) -> Problem {
    let state = error.code();
    let message = message(error);
    let at = target.shown();
    let settled = |message: String| Problem::unavailable(message).retryable_if(false);
    let problem = match state {
        _ if is_several(error) => {
            return Problem::bad_request("the SQL has more than one statement")
                .hint("make one call for each; values belong into params");
        }
        &SqlState::QUERY_CANCELED => Problem::new(Code::Timeout, "the statement ran too long"),
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
        _ => Problem::bad_request(match parameter(error) {
            Some(number) => format!("parameter {number}: {message}"),
            None => message,
        }),
    };
    problem.maybe_hint(error.hint().map(|hint| shorten(hint).into_owned()))
}

fn message(error: &DbError) -> String {
    let mut message = shorten(error.message()).into_owned();
    if let Some(detail) = error.detail() {
        message.push_str(&format!(": {}", shorten(detail)));
    }
    if let Some(ErrorPosition::Original(at)) = error.position() {
        message.push_str(&format!(" (at character {at})"));
    }
    message
}

/// The state says only that the syntax is wrong; the place in the server's code
/// says the rest, in every language.
fn is_several(error: &DbError) -> bool {
    error.code() == &SqlState::SYNTAX_ERROR && error.routine() == Some("exec_parse_message")
}

/// The number of the parameter that the server could not read.
fn parameter(error: &DbError) -> Option<u32> {
    let (_, after) = error.where_()?.split_once("portal parameter $")?;
    let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    after[..digits].parse().ok()
}

fn without_server(error: &Error, target: &Target) -> Problem {
    let at = target.shown();
    if error.is_closed() {
        return Problem::unavailable(format!("the connection to {at} was lost"));
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    match cause.downcast_ref::<std::io::Error>() {
        Some(error) => {
            Problem::unavailable(format!("the connection to {at} was lost: {}", error.kind()))
        }
        // Such as a password that is missing.
        None => Problem::unavailable(format!("{at}: {}", shorten(&cause.to_string())))
            .retryable_if(false),
    }
}
