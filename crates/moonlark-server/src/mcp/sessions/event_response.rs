//! Events as responses over HTTP, in the form that the SDK gives them.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures::{Stream, StreamExt};
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;

/// When a stream says that it is still there.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEP_ALIVE_COMMENT: &[u8] = b":\n\n";

const ACCEL_BUFFERING_HEADER: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Events that come bit by bit, until they end.
pub(super) fn stream_events(
    events: impl Stream<Item = ServerSseMessage> + Send + 'static,
) -> Response {
    let body = futures::stream::unfold(Box::pin(events), |mut events| async move {
        let bytes = tokio::select! {
            biased;
            event = events.next() => {
                let mut bytes = Vec::new();
                write_event(&mut bytes, &event?);
                Bytes::from(bytes)
            }
            () = tokio::time::sleep(KEEP_ALIVE_INTERVAL) => Bytes::from_static(KEEP_ALIVE_COMMENT),
        };
        Some((Ok::<_, std::convert::Infallible>(bytes), events))
    });
    event_response(Body::from_stream(body))
}

/// Events that are all there.
pub(super) fn whole_events(bytes: Vec<u8>) -> Response {
    event_response(Body::from(bytes))
}

fn event_response(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ACCEL_BUFFERING_HEADER, HeaderValue::from_static("no"));
    response
}

/// Append an event; returns the size of its message.
pub(super) fn write_event(bytes: &mut Vec<u8>, event: &ServerSseMessage) -> usize {
    bytes.extend_from_slice(b"data: ");
    let start = bytes.len();
    if let Some(message) = event.message.as_deref() {
        // Writing JSON to memory fails for no message that the SDK has.
        let _ = serde_json::to_writer(&mut *bytes, message);
    }
    let size = bytes.len() - start;
    bytes.push(b'\n');
    if let Some(id) = &event.event_id {
        write_field(bytes, "id", id);
    }
    if let Some(retry) = event.retry {
        write_field(bytes, "retry", &retry.as_millis().to_string());
    }
    bytes.push(b'\n');
    size
}

fn write_field(bytes: &mut Vec<u8>, name: &str, value: &str) {
    for part in [name, ": ", value, "\n"] {
        bytes.extend_from_slice(part.as_bytes());
    }
}
