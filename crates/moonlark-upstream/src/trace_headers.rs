//! A place in a trace as HTTP headers, for whoever is asked.

use http::{HeaderMap, HeaderName, HeaderValue};
use moonlark_core::trace::TraceContext;

const TRACEPARENT_HEADER: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE_HEADER: HeaderName = HeaderName::from_static("tracestate");

/// In place of what is there; nothing is changed where there is no trace.
pub(crate) fn add_trace_headers(headers: &mut HeaderMap, trace: Option<&TraceContext>) {
    let Some(trace) = trace else { return };
    if let Ok(parent) = HeaderValue::from_str(&trace.to_traceparent()) {
        headers.insert(TRACEPARENT_HEADER, parent);
    }
    match trace.tracestate().and_then(|state| HeaderValue::from_str(state).ok()) {
        Some(state) => headers.insert(TRACESTATE_HEADER, state),
        None => headers.remove(TRACESTATE_HEADER),
    };
}
