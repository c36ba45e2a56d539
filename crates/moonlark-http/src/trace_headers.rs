//! Trace context as HTTP headers of outgoing requests.

use http::{HeaderMap, HeaderName, HeaderValue};

const TRACEPARENT_HEADER: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE_HEADER: HeaderName = HeaderName::from_static("tracestate");

/// Put them in place of what is there.
pub fn add_trace_headers(headers: &mut HeaderMap, traceparent: &str, tracestate: Option<&str>) {
    if let Ok(parent) = HeaderValue::from_str(traceparent) {
        headers.insert(TRACEPARENT_HEADER, parent);
    }
    match tracestate.and_then(|state| HeaderValue::from_str(state).ok()) {
        Some(state) => headers.insert(TRACESTATE_HEADER, state),
        None => headers.remove(TRACESTATE_HEADER),
    };
}
