//! A Problem as an HTTP answer. The only place that knows statuses.

use axum::extract::{FromRequestParts, Query};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use moonlark_core::{Problem, ProblemCode};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

/// The status that a Problem with this code is answered with.
pub fn status_for_code(code: ProblemCode) -> StatusCode {
    match code {
        ProblemCode::BadRequest => StatusCode::BAD_REQUEST,
        ProblemCode::Unauthorized => StatusCode::UNAUTHORIZED,
        ProblemCode::Forbidden => StatusCode::FORBIDDEN,
        ProblemCode::ApprovalRequired => StatusCode::ACCEPTED,
        ProblemCode::NotFound => StatusCode::NOT_FOUND,
        ProblemCode::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        ProblemCode::Diverged | ProblemCode::MayHaveHappened => StatusCode::CONFLICT,
        ProblemCode::Timeout => StatusCode::REQUEST_TIMEOUT,
        ProblemCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ProblemCode::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ProblemCode::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        ProblemCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        // What a script lacks or exceeds is the operator's to fix, not the
        // caller's: the server failed to do its work.
        ProblemCode::ToolError
        | ProblemCode::Denied
        | ProblemCode::Limit
        | ProblemCode::Cancelled
        | ProblemCode::BadScript
        | ProblemCode::BadConfig
        | ProblemCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// What the answer says. That somebody has to decide is no error: the same
/// request with the token goes on.
pub(crate) fn problem_body(problem: &Problem) -> Json {
    match &problem.approval {
        Some(ticket) => {
            json!({ "status": problem.code.as_str(), "approval": ticket.to_json(true) })
        }
        None => json!({ "error": problem.to_json() }),
    }
}

/// What a route answers that fails.
pub(crate) struct ProblemResponse(Problem);

impl From<Problem> for ProblemResponse {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for ProblemResponse {
    fn into_response(self) -> Response {
        problem_response(&self.0)
    }
}

/// The query of a request. One that cannot be read is answered like any other mistake.
pub(crate) struct ReadQuery<T>(pub(crate) T);

/// What a query may say.
pub(crate) trait QueryFields: DeserializeOwned {
    /// How it is written.
    const EXAMPLE_QUERY: &'static str;
}

impl<S: Sync, T: QueryFields> FromRequestParts<S> for ReadQuery<T> {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemResponse> {
        let read = Query::<T>::try_from_uri(&parts.uri).map_err(|rejection| {
            let said = rejection.body_text();
            let said = said.rsplit_once("query string: ").map_or(said.as_str(), |(_, why)| why);
            Problem::bad_request(format!("the query of the request is not understood: {said}"))
                .with_hint(format!("write it like {}", T::EXAMPLE_QUERY))
        })?;
        Ok(Self(read.0))
    }
}

/// `{"error": {code, message, …}}` with its status.
pub(crate) fn problem_response(problem: &Problem) -> Response {
    let mut response =
        (status_for_code(problem.code), axum::Json(problem_body(problem))).into_response();
    if let Some(seconds) = problem.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if problem.code == ProblemCode::Timeout {
        // Browsers and proxies repeat a request after a 408 unless the
        // connection closes; a tool call must not be made twice.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
