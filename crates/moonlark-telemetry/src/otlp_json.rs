//! Spans and metrics in the JSON form of OTLP.
//!
//! Names of attributes are those of OpenTelemetry's semantic conventions where
//! there are any; what is only ours begins with `moonlark.`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use moonlark_gateway::CallOutcome;
use moonlark_gateway::metrics::family::{
    MetricFamily, MetricKind, MetricSample, MetricValue, bucket_bounds_seconds,
};
use moonlark_gateway::trace::{EndedSpan, SpanAttribute, SpanKind, write_hex};
use serde_json::{Value as Json, json};

const SPAN_KIND_INTERNAL: u8 = 1;
const SPAN_KIND_SERVER: u8 = 2;
const SPAN_KIND_CLIENT: u8 = 3;
const STATUS_CODE_ERROR: u8 = 2;
/// Every figure is since the start.
const TEMPORALITY_CUMULATIVE: u8 = 2;

/// Who says all this.
pub(super) struct OtlpResource {
    pub(super) service: String,
    /// Tells processes of the same name apart.
    pub(super) instance: String,
    pub(super) started: SystemTime,
}

impl OtlpResource {
    pub(super) fn encode_spans(&self, spans: &[EndedSpan]) -> Json {
        let spans: Vec<Json> = spans.iter().map(encode_span).collect();
        let scoped = json!({"scope": instrumentation_scope(), "spans": spans});
        json!({"resourceSpans": [{"resource": self.encode_resource(), "scopeSpans": [scoped]}]})
    }

    pub(super) fn encode_metrics(&self, families: &[MetricFamily], now: SystemTime) -> Json {
        let there = families.iter().filter(|family| !family.samples.is_empty());
        let metrics: Vec<Json> = there.map(|family| self.encode_metric(family, now)).collect();
        let scoped = json!({"scope": instrumentation_scope(), "metrics": metrics});
        json!({"resourceMetrics": [{"resource": self.encode_resource(), "scopeMetrics": [scoped]}]})
    }

    fn encode_resource(&self) -> Json {
        let attributes = [
            ("service.name", self.service.as_str()),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("service.instance.id", &self.instance),
        ];
        json!({"attributes": attributes.map(|(key, value)| text_attribute(key, value))})
    }

    fn encode_metric(&self, family: &MetricFamily, now: SystemTime) -> Json {
        let (name, unit) = otlp_name_and_unit(family);
        let points: Vec<Json> = family
            .samples
            .iter()
            .map(|sample| self.encode_data_point(family.kind, sample, now))
            .collect();
        let mut metric = json!({"name": name, "description": family.help, "unit": unit});
        let (kind, data) = match family.kind {
            MetricKind::Gauge => ("gauge", json!({"dataPoints": points})),
            MetricKind::Counter => (
                "sum",
                json!({
                    "dataPoints": points,
                    "aggregationTemporality": TEMPORALITY_CUMULATIVE,
                    "isMonotonic": true,
                }),
            ),
            MetricKind::Histogram => (
                "histogram",
                json!({"dataPoints": points, "aggregationTemporality": TEMPORALITY_CUMULATIVE}),
            ),
        };
        metric[kind] = data;
        metric
    }

    fn encode_data_point(&self, kind: MetricKind, sample: &MetricSample, now: SystemTime) -> Json {
        let attributes: Vec<Json> =
            sample.labels.iter().map(|(key, value)| text_attribute(key, value)).collect();
        let mut point = json!({"attributes": attributes, "timeUnixNano": unix_nanos(now)});
        if kind != MetricKind::Gauge {
            point["startTimeUnixNano"] = unix_nanos(self.started).into();
        }
        match &sample.value {
            MetricValue::Number(value) => point["asDouble"] = json!(value),
            MetricValue::Spread { classes, sum } => {
                let counts: Vec<String> = classes.iter().map(u64::to_string).collect();
                point["count"] = classes.iter().sum::<u64>().to_string().into();
                point["sum"] = json!(sum);
                point["bucketCounts"] = counts.into();
                point["explicitBounds"] = bucket_bounds_seconds().collect::<Vec<f64>>().into();
            }
        }
        point
    }
}

/// `moonlark_call_duration_seconds` is Prometheus's way to say it.
fn otlp_name_and_unit(family: &MetricFamily) -> (String, &'static str) {
    let name = family.name.strip_suffix("_total").unwrap_or(family.name);
    let (name, unit) = match (name.strip_suffix("_seconds"), name.strip_suffix("_bytes")) {
        (Some(name), _) => (name, "s"),
        (_, Some(name)) => (name, "By"),
        _ => (name, "1"),
    };
    (name.replacen('_', ".", 1), unit)
}

fn encode_span(span: &EndedSpan) -> Json {
    let (name, kind, mut attributes) = describe_span_kind(&span.what);
    if span.outcome != CallOutcome::Ok {
        attributes.push(text_attribute("error.type", span.outcome.as_str()));
    }
    let end = span.began + span.took;
    let mut json = json!({
        "traceId": span.trace.id_hex(),
        "spanId": hex_id(&span.trace.span),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": unix_nanos(span.began),
        "endTimeUnixNano": unix_nanos(end),
        "attributes": attributes,
        "flags": 1,
    });
    if let Some(parent) = &span.parent {
        json["parentSpanId"] = hex_id(parent).into();
    }
    if let Some(state) = span.trace.tracestate() {
        json["traceState"] = state.into();
    }
    // What went wrong is in the journal: a message may quote arguments.
    if span.outcome != CallOutcome::Ok {
        json["status"] = json!({"code": STATUS_CODE_ERROR});
    }
    json
}

fn describe_span_kind(what: &SpanKind) -> (String, u8, Vec<Json>) {
    match what {
        SpanKind::Call { tool, source, surface, outside, is_passthrough, call, run } => {
            let mut attributes = vec![
                text_attribute("gen_ai.operation.name", "execute_tool"),
                text_attribute("gen_ai.tool.name", tool),
                text_attribute("moonlark.source", &source.name),
                text_attribute("moonlark.source.kind", source.kind.as_str()),
                text_attribute("moonlark.surface", surface),
            ];
            attributes.extend(call.map(|id| text_attribute("moonlark.call.id", &id.to_string())));
            attributes.extend(run.map(|id| text_attribute("moonlark.run.id", &id.to_string())));
            if *outside && *surface == "mcp" && !is_passthrough {
                attributes.push(text_attribute("mcp.method.name", "tools/call"));
                return (format!("tools/call {tool}"), SPAN_KIND_SERVER, attributes);
            }
            let kind = if *outside { SPAN_KIND_SERVER } else { SPAN_KIND_INTERNAL };
            (format!("execute_tool {tool}"), kind, attributes)
        }
        SpanKind::Run(id) => {
            let attributes = vec![text_attribute("moonlark.run.id", &id.to_string())];
            ("run".to_owned(), SPAN_KIND_INTERNAL, attributes)
        }
        SpanKind::Request { name, facts } => {
            let facts = facts.iter().map(|(key, fact)| match fact {
                SpanAttribute::Text(value) => text_attribute(key, value),
                SpanAttribute::Number(value) => {
                    json!({"key": key, "value": {"intValue": value.to_string()}})
                }
            });
            (name.clone(), SPAN_KIND_CLIENT, facts.collect())
        }
    }
}

fn instrumentation_scope() -> Json {
    json!({"name": "moonlark", "version": env!("CARGO_PKG_VERSION")})
}

fn text_attribute(key: &str, value: &str) -> Json {
    json!({"key": key, "value": {"stringValue": value}})
}

fn hex_id(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    write_hex(&mut text, bytes);
    text
}

/// Too large for a number in JSON.
fn unix_nanos(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos().to_string()
}
