//! A Problem as an HTTP answer. The only place that knows statuses.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use moonlark_core::{Code, Problem};
use serde_json::{Value as Json, json};

/// The status that a Problem with this code is answered with.
pub fn status(code: Code) -> StatusCode {
    match code {
        Code::BadRequest => StatusCode::BAD_REQUEST,
        Code::Unauthorized => StatusCode::UNAUTHORIZED,
        Code::Forbidden => StatusCode::FORBIDDEN,
        Code::ApprovalRequired => StatusCode::ACCEPTED,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        Code::Diverged | Code::MayHaveHappened => StatusCode::CONFLICT,
        Code::Timeout => StatusCode::REQUEST_TIMEOUT,
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        // What a script lacks or exceeds is the operator's to fix, not the
        // caller's: the server failed to do its work.
        Code::ToolError
        | Code::Denied
        | Code::Limit
        | Code::Cancelled
        | Code::BadScript
        | Code::BadConfig
        | Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// What the answer says. That somebody has to decide is no error: the same
/// request with the token goes on.
pub(crate) fn body(problem: &Problem) -> Json {
    match &problem.approval {
        Some(ticket) => {
            json!({ "status": problem.code.as_str(), "approval": ticket.to_json(true) })
        }
        None => json!({ "error": problem.to_json() }),
    }
}

/// `{"error": {code, message, …}}` with its status.
pub(crate) fn problem(problem: &Problem) -> Response {
    let mut response = (status(problem.code), axum::Json(body(problem))).into_response();
    if let Some(seconds) = problem.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if problem.code == Code::Timeout {
        // Browsers and proxies repeat a request after a 408 unless the
        // connection closes; a tool call must not be made twice.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
