//! The trace context of a request.
//!
//! Over MCP that is in `_meta`, which belongs to the message; HTTP headers belong
//! to whatever carried it, and count where the message says nothing. What is
//! malformed is ignored.

use http::HeaderMap;
use http::request::Parts;
use moonlark_gateway::trace::TraceContext;
use rmcp::RoleServer;
use rmcp::model::RequestMetaObject;
use rmcp::service::RequestContext;
use serde_json::Value as Json;

const TRACEPARENT_KEY: &str = "traceparent";
const TRACESTATE_KEY: &str = "tracestate";

pub(crate) fn trace_from_headers(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all(TRACEPARENT_KEY).iter();
    let parent = parents.next()?.to_str().ok()?;
    if parents.next().is_some() {
        return None;
    }
    let states: Vec<&str> =
        headers.get_all(TRACESTATE_KEY).iter().filter_map(|state| state.to_str().ok()).collect();
    TraceContext::parse(parent, Some(states.join(",").as_str()))
}

pub(crate) fn trace_from_request(context: &RequestContext<RoleServer>) -> Option<TraceContext> {
    let by_headers = || trace_from_headers(&context.extensions.get::<Parts>()?.headers);
    trace_from_meta(&context.meta).or_else(by_headers)
}

/// For requests whose headers do not get any further.
pub(crate) fn copy_trace_to_meta(meta: &mut RequestMetaObject, headers: &HeaderMap) {
    if trace_from_meta(meta).is_some() {
        return;
    }
    let Some(trace) = trace_from_headers(headers) else { return };
    meta.0.0.insert(TRACEPARENT_KEY.to_owned(), trace.to_traceparent().into());
    match trace.tracestate() {
        Some(state) => meta.0.0.insert(TRACESTATE_KEY.to_owned(), state.into()),
        None => meta.0.0.remove(TRACESTATE_KEY),
    };
}

fn trace_from_meta(meta: &RequestMetaObject) -> Option<TraceContext> {
    let text = |key: &str| meta.0.0.get(key).and_then(Json::as_str);
    TraceContext::parse(text(TRACEPARENT_KEY)?, text(TRACESTATE_KEY))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const OTHER: &str = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn one_header_is_taken_and_what_others_say_of_it_is_put_together() {
        let trace = trace_from_headers(&headers(&[
            (TRACEPARENT_KEY, ONE),
            (TRACESTATE_KEY, "a=1"),
            (TRACESTATE_KEY, "b=2"),
        ]))
        .unwrap();
        assert_eq!((trace.to_traceparent().as_str(), trace.tracestate()), (ONE, Some("a=1,b=2")));
        assert_eq!(
            trace_from_headers(&headers(&[(TRACEPARENT_KEY, ONE), (TRACEPARENT_KEY, OTHER)])),
            None
        );
        assert_eq!(trace_from_headers(&headers(&[(TRACEPARENT_KEY, "nonsense")])), None);
        assert_eq!(trace_from_headers(&headers(&[(TRACESTATE_KEY, "a=1")])), None);
    }

    #[test]
    fn what_the_message_says_comes_before_what_carried_it() {
        let carried = headers(&[(TRACEPARENT_KEY, OTHER)]);
        for (said, taken) in [(None, OTHER), (Some(ONE), ONE), (Some("nonsense"), OTHER)] {
            let mut meta = RequestMetaObject::new();
            if let Some(said) = said {
                meta.0.0.insert(TRACEPARENT_KEY.to_owned(), said.into());
            }
            copy_trace_to_meta(&mut meta, &carried);
            assert_eq!(trace_from_meta(&meta).unwrap().to_traceparent(), taken);
        }
    }
}
