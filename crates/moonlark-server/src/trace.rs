//! The trace that a request is part of, as it says itself.
//!
//! Over MCP that is in `_meta`, which belongs to the message; HTTP headers belong
//! to whatever carried it, and count where the message says nothing. What is
//! malformed is ignored.

use http::HeaderMap;
use http::request::Parts;
use moonlark_core::trace::Trace;
use rmcp::RoleServer;
use rmcp::model::RequestMetaObject;
use rmcp::service::RequestContext;
use serde_json::Value as Json;

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

pub(crate) fn of_headers(headers: &HeaderMap) -> Option<Trace> {
    let mut parents = headers.get_all(PARENT).iter();
    let parent = parents.next()?.to_str().ok()?;
    if parents.next().is_some() {
        return None;
    }
    let states: Vec<&str> =
        headers.get_all(STATE).iter().filter_map(|state| state.to_str().ok()).collect();
    Trace::parse(parent, Some(states.join(",").as_str()))
}

pub(crate) fn of_request(context: &RequestContext<RoleServer>) -> Option<Trace> {
    let by_headers = || of_headers(&context.extensions.get::<Parts>()?.headers);
    of_meta(&context.meta).or_else(by_headers)
}

/// For requests whose headers do not get any further.
pub(crate) fn note(meta: &mut RequestMetaObject, headers: &HeaderMap) {
    if of_meta(meta).is_some() {
        return;
    }
    let Some(trace) = of_headers(headers) else { return };
    meta.0.0.insert(PARENT.to_owned(), trace.parent().into());
    match trace.state() {
        Some(state) => meta.0.0.insert(STATE.to_owned(), state.into()),
        None => meta.0.0.remove(STATE),
    };
}

fn of_meta(meta: &RequestMetaObject) -> Option<Trace> {
    let text = |key: &str| meta.0.0.get(key).and_then(Json::as_str);
    Trace::parse(text(PARENT)?, text(STATE))
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
        let trace = of_headers(&headers(&[(PARENT, ONE), (STATE, "a=1"), (STATE, "b=2")])).unwrap();
        assert_eq!((trace.parent().as_str(), trace.state()), (ONE, Some("a=1,b=2")));
        assert_eq!(of_headers(&headers(&[(PARENT, ONE), (PARENT, OTHER)])), None);
        assert_eq!(of_headers(&headers(&[(PARENT, "nonsense")])), None);
        assert_eq!(of_headers(&headers(&[(STATE, "a=1")])), None);
    }

    #[test]
    fn what_the_message_says_comes_before_what_carried_it() {
        let carried = headers(&[(PARENT, OTHER)]);
        for (said, taken) in [(None, OTHER), (Some(ONE), ONE), (Some("nonsense"), OTHER)] {
            let mut meta = RequestMetaObject::new();
            if let Some(said) = said {
                meta.0.0.insert(PARENT.to_owned(), said.into());
            }
            note(&mut meta, &carried);
            assert_eq!(of_meta(&meta).unwrap().parent(), taken);
        }
    }
}
