use std::sync::Arc;

use super::family::{MetricFamily, MetricValue};
use super::*;
use crate::call::Caller;
use crate::tool_body::ToolBody;
use moonlark_core::catalog::Catalog;
use moonlark_core::problem::Problem;
use moonlark_core::schema::Schema;
use moonlark_core::tool::SourceKind;
use moonlark_core::value::Value;

fn tool(source: &str, name: &str, body: ToolBody) -> Arc<Tool> {
    let source = Source { kind: SourceKind::Script, name: source.to_owned() };
    Arc::new(Tool::new(name, Arc::new(source), Schema::description_only(Default::default()), body))
}

fn gateway(tools: Vec<Arc<Tool>>) -> Gateway {
    Gateway::new(Catalog::new(Arc::default(), tools, &[], vec![]), 10)
}

fn family(gateway: &Gateway, name: &str) -> MetricFamily {
    gateway.collect_metrics().into_iter().find(|family| family.name == name).unwrap()
}

/// `a.lua script ok 2`
fn lines(gateway: &Gateway, name: &str) -> Vec<String> {
    let mut lines: Vec<String> = family(gateway, name)
        .samples
        .iter()
        .map(|sample| {
            let labels: Vec<&str> = sample.labels.iter().map(|(_, it)| it.as_str()).collect();
            match &sample.value {
                MetricValue::Number(value) => format!("{} {value}", labels.join(" ")),
                MetricValue::Spread { classes, .. } => {
                    format!("{} {}", labels.join(" "), classes.iter().sum::<u64>())
                }
            }
        })
        .collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn calls_are_counted_by_source_and_outcome_and_so_are_those_that_never_began_or_ended() {
    let fine = ToolBody::from_fn(|_, _| Ok(Value::Null));
    let bad = ToolBody::from_fn(|_, _| Err(Problem::tool_error("no")));
    let endless = ToolBody::from_async_fn(|_, _| std::future::pending());
    let gateway = gateway(vec![
        tool("a.lua", "fine", fine.clone()),
        tool("a.lua", "also", fine),
        tool("b.lua", "bad", bad),
        tool("b.lua", "endless", endless),
    ]);
    let call = gateway.open_call(Caller::new("rest")).unwrap();
    for name in ["fine", "also", "bad"] {
        let _ = gateway.call(&call, name, Value::Object(Default::default())).await;
    }
    let mut never = Box::pin(gateway.call(&call, "endless", Value::Object(Default::default())));
    assert!(futures::poll!(&mut never).is_pending());
    let in_flight = "moonlark_calls_in_flight";
    assert_eq!(lines(&gateway, in_flight), ["a.lua script 0", "b.lua script 1"]);
    drop(never);
    assert_eq!(lines(&gateway, in_flight), ["a.lua script 0", "b.lua script 0"]);
    assert_eq!(
        lines(&gateway, "moonlark_calls_total"),
        ["a.lua script ok 2", "b.lua script cancelled 1", "b.lua script tool_error 1"]
    );
    let times = lines(&gateway, "moonlark_call_duration_seconds");
    assert_eq!(times, ["a.lua script 2", "b.lua script 2"]);
}

#[tokio::test]
async fn a_source_that_is_loaded_again_goes_on_counting() {
    let body = || ToolBody::from_fn(|_, _| Ok(Value::Null));
    let gateway = gateway(vec![tool("a.lua", "fine", body())]);
    for _ in 0..2 {
        let call = gateway.open_call(Caller::new("rest")).unwrap();
        gateway.call(&call, "fine", Value::Object(Default::default())).await.unwrap();
        let again = vec![tool("a.lua", "fine", body())];
        gateway.publish(Catalog::new(Arc::default(), again, &[], vec![]));
    }
    assert_eq!(lines(&gateway, "moonlark_calls_total"), ["a.lua script ok 2"]);
}

#[test]
fn sources_beyond_the_bound_are_counted_together() {
    let metrics = GatewayMetrics::default();
    for number in 0..2 * MAX_COUNTED_SOURCES {
        let tool = tool(&format!("{number}.lua"), "x", ToolBody::from_fn(|_, _| Ok(Value::Null)));
        metrics.count_refused_call(&tool, ProblemCode::BadRequest.into());
    }
    let known = metrics.sources.lock();
    assert_eq!(known.len(), MAX_COUNTED_SOURCES + 1);
    let others = known.last().unwrap();
    assert_eq!(others.source.name, OTHER_SOURCES_NAME);
    let refused = others.figures.outcomes[outcome_index(ProblemCode::BadRequest.into())]
        .load(Ordering::Relaxed);
    assert_eq!(refused, MAX_COUNTED_SOURCES as u64);
}

#[test]
fn a_time_counts_in_the_class_whose_upper_end_it_does_not_pass() {
    let times = DurationHistogram::default();
    for (micros, class) in [(0, 0), (100, 0), (101, 1), (1_000, 3), (60_000_000, 17)] {
        times.observe_duration(Duration::from_micros(micros));
        assert_eq!(times.classes[class].swap(0, Ordering::Relaxed), 1, "{micros}");
    }
    times.observe_duration(Duration::from_secs(61));
    assert_eq!(times.classes[18].load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_run_that_is_dropped_was_cancelled() {
    let gateway = gateway(vec![]);
    let mut first = GatewayMetrics::start_run(&gateway);
    let second = GatewayMetrics::start_run(&gateway);
    assert_eq!(lines(&gateway, "moonlark_runs_in_progress"), [" 2"]);
    first.end_run(moonlark_core::problem::ProblemCode::Timeout.into());
    drop((first, second));
    assert_eq!(lines(&gateway, "moonlark_runs_in_progress"), [" 0"]);
    assert_eq!(lines(&gateway, "moonlark_runs_total"), ["cancelled 1", "timeout 1"]);
}
