use std::path::PathBuf;

use parking_lot::Mutex;

use super::*;
use crate::call::Caller;
use crate::gateway::{CallRecords, Gateway};
use crate::tool_body::ToolBody;
use moonlark_core::catalog::Catalog;
use moonlark_core::grant::{Grant, GrantSet};
use moonlark_core::schema::Schema;
use moonlark_core::tool::{CallScope, SourceKind, Tool, ToolListing};
use moonlark_core::value::Value;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn what_the_standard_says_is_taken_and_nothing_else() {
    for (text, taken) in [
        (PARENT, true),
        (" 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00 ", true),
        ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true),
        ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", true),
        ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-", false),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", false),
        ("00-00000000000000000000000000000000-b7ad6b7169203331-01", false),
        ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", false),
        ("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", false),
        ("00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01", false),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-01", false),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", false),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-x1", false),
        ("0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false),
        ("é0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false),
        ("", false),
        ("----", false),
    ] {
        assert_eq!(TraceContext::parse(text, None).is_some(), taken, "{text:?}");
    }
}

#[test]
fn a_trace_is_written_as_it_was_read() {
    let trace = TraceContext::parse(PARENT, Some("a=1,b=2")).unwrap();
    assert_eq!((trace.to_traceparent().as_str(), trace.tracestate()), (PARENT, Some("a=1,b=2")));
    assert_eq!(trace.id_hex(), "0af7651916cd43dd8448eb211c80319c");
    for bad in ["", "no entry", "a=\r\nEvil: 1", "a=ü", &"a=1,".repeat(200)] {
        assert_eq!(TraceContext::parse(PARENT, Some(bad)).unwrap().tracestate(), None, "{bad:?}");
    }
}

#[derive(Default)]
struct Seen {
    spans: Mutex<Vec<EndedSpan>>,
    unless: bool,
}

impl CallTracer for Seen {
    fn should_sample(&self, _: Option<&TraceContext>, _: &TraceId) -> bool {
        !self.unless
    }

    fn record_span(&self, span: EndedSpan) {
        self.spans.lock().push(span);
    }
}

/// A tool that calls another twice, at the same time, and asks a server.
fn gateway(seen: Option<&Arc<Seen>>) -> Gateway {
    let source = Arc::new(Source { kind: SourceKind::Script, name: "a".to_owned() });
    let inner = ToolBody::from_async_fn(|_, _| async {
        tokio::task::yield_now().await;
        Ok(Value::Null)
    });
    let outer = ToolBody::from_async_fn(|call: Call, _| async move {
        let none = || Value::Object(Default::default());
        let gateway = call.gateway();
        let (one, two) =
            (gateway.call(&call, "inner", none()), gateway.call(&call, "inner", none()));
        let _ = futures::join!(one, two);
        let request = || SpanKind::Request { name: "ask".to_owned(), facts: vec![] };
        let mut asking = call.start_span(request);
        asking.set_attribute("status", SpanAttribute::Number(200));
        let handed_on = asking.trace().map(TraceContext::to_traceparent);
        asking.end_with(CallOutcome::Ok);
        Ok(handed_on.map_or(Value::Null, Value::from))
    });
    let tool = |name: &str, body: ToolBody| {
        let mut tool =
            Tool::new(name, source.clone(), Schema::description_only(Default::default()), body);
        let grants =
            GrantSet::for_authored_script("a", PathBuf::new(), vec![Grant::Tool("*".to_owned())]);
        tool.scope = Arc::new(CallScope { grants, ..CallScope::default() });
        Arc::new(tool)
    };
    let strict = serde_json::json!({"type": "object", "required": ["x"]});
    let strict = Schema::compile(strict.as_object().unwrap().clone()).unwrap();
    let strict = Tool::new("strict", source.clone(), strict, ToolBody::from_fn(|_, args| Ok(args)));
    let raw = |name: &str| {
        let body = ToolBody::from_fn(|_, args| Ok(args));
        let schema = Schema::description_only(Default::default());
        let mut tool = Tool::new(name, source.clone(), schema, body);
        tool.shown = ToolListing::Not;
        Arc::new(tool)
    };
    let (prompt, raw) = (raw("agent:a"), raw("inner:raw"));
    let tools = vec![tool("inner", inner), tool("outer", outer), Arc::new(strict), prompt, raw];
    let tracer = seen.map(|it| it.clone() as Arc<dyn CallTracer>);
    Gateway::builder(Catalog::new(Arc::default(), tools, &[], vec![]))
        .records(CallRecords { tracer, ..CallRecords::default() })
        .build()
}

async fn outer(gateway: &Gateway, trace: Option<TraceContext>) -> Value {
    let call = gateway.open_call(Caller::new("rest")).unwrap();
    let call = call.with_trace(trace);
    gateway.call(&call, "outer", Value::Object(Default::default())).await.unwrap()
}

#[tokio::test]
async fn calls_and_requests_are_below_the_call_that_makes_them_in_the_trace_that_came_in() {
    let seen = Arc::new(Seen::default());
    let gateway = gateway(Some(&seen));
    let came_in = TraceContext::parse(PARENT, Some("a=1")).unwrap();
    let handed_on = outer(&gateway, Some(came_in.clone())).await;
    let spans = seen.spans.lock().clone();
    let [one, two, asked, outer] = spans.as_slice() else { panic!("{spans:#?}") };
    assert!(
        spans.iter().all(|span| span.trace.id == came_in.id && span.outcome == CallOutcome::Ok)
    );
    assert_eq!(outer.parent, Some(came_in.span));
    for below in [one, two, asked] {
        assert_eq!(below.parent, Some(outer.trace.span));
    }
    assert_ne!(one.trace.span, two.trace.span);
    assert_eq!(handed_on, Value::from(asked.trace.to_traceparent()));
    assert_eq!(asked.trace.tracestate(), Some("a=1"));
    let SpanKind::Request { facts, .. } = &asked.what else { panic!("{asked:?}") };
    assert_eq!(facts, &[("status", SpanAttribute::Number(200))]);
}

#[tokio::test]
async fn with_nobody_to_tell_a_trace_is_handed_on_as_it_came() {
    let came_in = TraceContext::parse(PARENT, None);
    assert_eq!(outer(&gateway(None), came_in).await, Value::from(PARENT));
    assert_eq!(outer(&gateway(None), None).await, Value::Null);
}

#[tokio::test]
async fn what_is_not_kept_is_not_told_and_handed_on_as_such() {
    let seen = Arc::new(Seen { unless: true, ..Seen::default() });
    let gateway = gateway(Some(&seen));
    let handed_on = outer(&gateway, None).await;
    assert!(handed_on.as_str().unwrap().ends_with("-00"), "{handed_on:?}");
    assert!(seen.spans.lock().is_empty());
}

#[tokio::test]
async fn a_call_that_is_refused_is_told_too() {
    let seen = Arc::new(Seen::default());
    let gateway = gateway(Some(&seen));
    let call = gateway.open_call(Caller::new("rest")).unwrap();
    let refused = gateway.call(&call, "strict", Value::Object(Default::default())).await;
    assert!(refused.is_err());
    let spans = seen.spans.lock().clone();
    let [span] = spans.as_slice() else { panic!("{spans:#?}") };
    let SpanKind::Call { tool, outside, .. } = &span.what else { panic!("{span:?}") };
    assert_eq!(
        (tool.as_str(), *outside, span.outcome),
        ("strict", true, moonlark_core::ProblemCode::BadRequest.into())
    );
}

#[tokio::test]
async fn what_stands_for_requests_that_are_no_tool_calls_is_marked() {
    for (name, expected) in [("inner", false), ("inner:raw", false), ("agent:a", true)] {
        let seen = Arc::new(Seen::default());
        let gateway = gateway(Some(&seen));
        let call = gateway.open_call(Caller::new("mcp")).unwrap();
        gateway.call(&call, name, Value::Object(Default::default())).await.unwrap();
        let spans = seen.spans.lock().clone();
        let [span] = spans.as_slice() else { panic!("{spans:#?}") };
        let SpanKind::Call { is_passthrough, .. } = &span.what else { panic!("{span:?}") };
        assert_eq!(*is_passthrough, expected, "{name}");
    }
}
