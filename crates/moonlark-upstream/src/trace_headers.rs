//! A place in a trace as HTTP headers, for whoever is asked.

use http::{HeaderMap, HeaderName, HeaderValue};
use moonlark_core::trace::Trace;

const PARENT: HeaderName = HeaderName::from_static("traceparent");
const STATE: HeaderName = HeaderName::from_static("tracestate");

/// In place of what is there; nothing is changed where there is no trace.
pub(crate) fn add(headers: &mut HeaderMap, trace: Option<&Trace>) {
    let Some(trace) = trace else { return };
    if let Ok(parent) = HeaderValue::from_str(&trace.parent()) {
        headers.insert(PARENT, parent);
    }
    match trace.state().and_then(|state| HeaderValue::from_str(state).ok()) {
        Some(state) => headers.insert(STATE, state),
        None => headers.remove(STATE),
    };
}
