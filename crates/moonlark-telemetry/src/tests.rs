use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use moonlark_core::tool::{Source, SourceKind};
use moonlark_gateway::metrics::family::{
    MetricFamily, MetricSample, MetricValue, bucket_bounds_seconds,
};
use moonlark_gateway::trace::{CallTracer, EndedSpan, SpanKind, TraceContext};
use serde_json::json;

use super::otlp_json::OtlpResource;
use super::span_queue::{MAX_QUEUED_SPANS, SPAN_BATCH_SIZE, SpanQueue};
use super::telemetry_settings::{TelemetryOptions, TelemetrySettings};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn no_options() -> TelemetryOptions {
    TelemetryOptions {
        otlp: None,
        headers: BTreeMap::new(),
        service: None,
        traces: true,
        sample: None,
        metrics: true,
        interval: Duration::from_secs(60),
    }
}

fn settings(
    options: &TelemetryOptions,
    env: &[(&str, &str)],
) -> Result<Option<TelemetrySettings>, String> {
    let env: BTreeMap<&str, &str> = env.iter().copied().collect();
    let look_up = |name: &str| env.get(name).map(|value| (*value).to_owned());
    TelemetrySettings::from_options(options, &look_up).map_err(|problem| problem.to_string())
}

fn by_env(env: &[(&str, &str)]) -> Result<Option<TelemetrySettings>, String> {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
    settings(&no_options(), &[&[endpoint], env].concat())
}

#[test]
fn nothing_is_sent_unless_somebody_says_where_to() {
    assert!(settings(&no_options(), &[]).unwrap().is_none());
    assert!(by_env(&[("OTEL_SDK_DISABLED", "true")]).unwrap().is_none());
    let grpc = by_env(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).unwrap_err();
    assert!(grpc.contains("http/json only"), "{grpc}");
}

#[test]
fn the_environment_says_what_the_configuration_does_not() {
    let env = [
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b%2Bc==, x = y"),
        ("OTEL_SERVICE_NAME", "one"),
    ];
    let read = by_env(&env).unwrap().unwrap();
    assert_eq!(read.traces_url.as_str(), "http://collector:4318/v1/traces");
    assert_eq!(read.metrics_url.as_str(), "http://collector:4318/v1/metrics");
    assert_eq!(read.service, "one");
    assert_eq!(
        (&read.headers["api-key"], &read.headers["x"]),
        (&"a b+c==".parse().unwrap(), &"y".parse().unwrap())
    );
    assert!(!format!("{read:?}").contains("a b+c"), "headers are secret");
    let options = TelemetryOptions {
        otlp: Some("https://other.example/otlp".to_owned()),
        headers: BTreeMap::from([("Authorization".to_owned(), "Bearer t".to_owned())]),
        service: Some("two".to_owned()),
        ..no_options()
    };
    let read = settings(&options, &env).unwrap().unwrap();
    assert_eq!(read.traces_url.as_str(), "https://other.example/otlp/v1/traces");
    assert_eq!((read.service.as_str(), read.headers.len()), ("two", 1));
}

#[test]
fn samplers_keep_what_their_names_say() {
    let low = [0; 16];
    let high = [0xff; 16];
    let kept = |env: &[(&str, &str)]| {
        let sampler = by_env(env).map(|settings| settings.unwrap().sampler)?;
        Ok::<_, String>([
            sampler.should_sample(None, &low),
            sampler.should_sample(None, &high),
            sampler.should_sample(Some(true), &high),
            sampler.should_sample(Some(false), &low),
        ])
    };
    let name = |name: &'static str| [("OTEL_TRACES_SAMPLER", name)];
    assert_eq!(kept(&[]), Ok([true, true, true, false]));
    assert_eq!(kept(&name("always_on")), Ok([true; 4]));
    assert_eq!(kept(&name("always_off")), Ok([false; 4]));
    assert_eq!(kept(&name("parentbased_always_off")), Ok([false, false, true, false]));
    let half = [("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.5")];
    assert_eq!(kept(&half), Ok([true, false, false, true]));
    let half = [half[1], ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")];
    assert_eq!(kept(&half), Ok([true, false, true, false]));
    assert!(kept(&name("jaeger_remote")).is_err());
    assert!(
        kept(&[("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")]).is_err()
    );
}

fn span(number: usize) -> EndedSpan {
    EndedSpan {
        trace: TraceContext::parse(PARENT, Some("a=1")).unwrap(),
        parent: None,
        what: SpanKind::Request { name: number.to_string(), facts: vec![] },
        began: SystemTime::UNIX_EPOCH,
        took: std::time::Duration::from_nanos(1_500),
        outcome: moonlark_core::ProblemCode::Timeout.into(),
    }
}

#[test]
fn only_calls_of_tools_over_mcp_are_named_after_its_method() {
    let source = Source { kind: SourceKind::Upstream, name: "far".to_owned() };
    let resource =
        OtlpResource { service: String::new(), instance: String::new(), started: UNIX_EPOCH };
    for (is_passthrough, surface, outside, expected) in [
        (false, "mcp", true, "tools/call far:"),
        (true, "mcp", true, "execute_tool far:"),
        (false, "mcp", false, "execute_tool far:"),
        (false, "rest", true, "execute_tool far:"),
    ] {
        let what = SpanKind::Call {
            tool: "far:".to_owned(),
            source: Arc::new(source.clone()),
            surface,
            outside,
            is_passthrough,
            call: None,
            run: None,
        };
        let sent = resource.encode_spans(&[EndedSpan { what, ..span(0) }]);
        let span = &sent["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(span["name"], expected);
    }
}

#[test]
fn spans_that_nobody_takes_are_bounded_and_the_oldest_are_sent_first() {
    let spans = SpanQueue::new(by_env(&[]).unwrap().unwrap().sampler);
    (0..MAX_QUEUED_SPANS + 100).for_each(|number| spans.record_span(span(number)));
    assert_eq!(spans.lost_count(), 100);
    let taken = spans.take_batch();
    let first = SpanKind::Request { name: "0".to_owned(), facts: vec![] };
    assert_eq!((taken.len(), &taken[0].what), (SPAN_BATCH_SIZE, &first));
    spans.record_span(span(0));
    assert_eq!(spans.lost_count(), 100, "there is room again");
}

fn resource() -> OtlpResource {
    OtlpResource {
        service: "s".to_owned(),
        instance: "i".to_owned(),
        started: SystemTime::UNIX_EPOCH,
    }
}

#[test]
fn a_span_that_failed_says_so_by_its_code() {
    let sent = resource().encode_spans(&[span(7)]);
    assert_eq!(
        sent["resourceSpans"][0]["scopeSpans"][0]["spans"],
        json!([{
            "traceId": "0af7651916cd43dd8448eb211c80319c",
            "spanId": "b7ad6b7169203331",
            "name": "7",
            "kind": 3,
            "startTimeUnixNano": "0",
            "endTimeUnixNano": "1500",
            "attributes": [{"key": "error.type", "value": {"stringValue": "timeout"}}],
            "flags": 1,
            "traceState": "a=1",
            "status": {"code": 2},
        }])
    );
}

#[test]
fn figures_have_opentelemetrys_names_and_units() {
    let classes = vec![1; bucket_bounds_seconds().count() + 1];
    let mut times = MetricFamily::histogram("moonlark_call_duration_seconds", "Times");
    times
        .samples
        .push(MetricSample { labels: vec![], value: MetricValue::Spread { classes, sum: 2.5 } });
    let families = [
        MetricFamily::counter("moonlark_calls_total", "Calls").with_value(3.0),
        MetricFamily::gauge("process_resident_memory_bytes", "Memory").with_value(4.0),
        times,
        MetricFamily::gauge("nothing", "None"),
    ];
    let sent = resource().encode_metrics(&families, SystemTime::UNIX_EPOCH);
    let metrics = &sent["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    let names: Vec<_> =
        metrics.as_array().unwrap().iter().map(|it| (&it["name"], &it["unit"])).collect();
    assert_eq!(
        json!(names),
        json!([
            ["moonlark.calls", "1"],
            ["process.resident_memory", "By"],
            ["moonlark.call_duration", "s"]
        ])
    );
    assert_eq!(metrics[0]["sum"]["dataPoints"][0]["asDouble"], json!(3.0));
    let point = &metrics[2]["histogram"]["dataPoints"][0];
    assert_eq!((&point["count"], &point["sum"]), (&json!("19"), &json!(2.5)));
    assert_eq!(point["bucketCounts"].as_array().unwrap().len(), 19);
    assert_eq!(point["explicitBounds"].as_array().unwrap().len(), 18);
}
