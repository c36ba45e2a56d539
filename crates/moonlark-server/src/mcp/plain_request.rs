//! What requests over HTTP have in common that may go the short way, by their headers alone.

use axum::body::HttpBody;
use axum::extract::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, Method};

pub(super) const PROTOCOL_VERSION_HEADER: HeaderName =
    HeaderName::from_static("mcp-protocol-version");
pub(super) const MCP_SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");

/// Whether a message of known length is posted, of no more than so many bytes, by a client
/// that takes either form of an answer.
pub(super) fn is_plain_post(request: &Request, most: usize) -> bool {
    let headers = request.headers();
    let length = request.body().size_hint().exact().and_then(|it| usize::try_from(it).ok());
    let sent_type = single_header(headers, &CONTENT_TYPE);
    request.method() == Method::POST
        && length.is_some_and(|length| length <= most)
        && sent_type.is_some_and(|it| it.starts_with("application/json"))
        && single_header(headers, &ACCEPT).is_some_and(|accepted| {
            accepted.contains("application/json") && accepted.contains("text/event-stream")
        })
}

/// A header that is there once.
pub(super) fn single_header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    let value = all.next()?;
    all.next().is_none().then(|| value.to_str().ok())?
}
