//! Spans and figures as OTLP has them, in its JSON form.
//!
//! Names of attributes are those of OpenTelemetry's semantic conventions where
//! there are any; what is only ours begins with `moonlark.`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use moonlark_core::metrics::family::{Family, Kind, Measured, Sample, bounds};
use moonlark_core::trace::{Fact, Span, What, hex};
use serde_json::{Value as Json, json};

const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
const ERROR: u8 = 2;
/// Every figure is since the start.
const CUMULATIVE: u8 = 2;

/// Who says all this.
pub(super) struct Resource {
    pub(super) service: String,
    /// Tells processes of the same name apart.
    pub(super) instance: String,
    pub(super) started: SystemTime,
}

impl Resource {
    pub(super) fn spans(&self, spans: &[Span]) -> Json {
        let spans: Vec<Json> = spans.iter().map(span).collect();
        let scoped = json!({"scope": scope(), "spans": spans});
        json!({"resourceSpans": [{"resource": self.json(), "scopeSpans": [scoped]}]})
    }

    pub(super) fn metrics(&self, families: &[Family], now: SystemTime) -> Json {
        let there = families.iter().filter(|family| !family.samples.is_empty());
        let metrics: Vec<Json> = there.map(|family| self.metric(family, now)).collect();
        let scoped = json!({"scope": scope(), "metrics": metrics});
        json!({"resourceMetrics": [{"resource": self.json(), "scopeMetrics": [scoped]}]})
    }

    fn json(&self) -> Json {
        let attributes = [
            ("service.name", self.service.as_str()),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("service.instance.id", &self.instance),
        ];
        json!({"attributes": attributes.map(|(key, value)| text(key, value))})
    }

    fn metric(&self, family: &Family, now: SystemTime) -> Json {
        let (name, unit) = name_and_unit(family);
        let points: Vec<Json> =
            family.samples.iter().map(|sample| self.point(family.kind, sample, now)).collect();
        let mut metric = json!({"name": name, "description": family.help, "unit": unit});
        let (kind, data) = match family.kind {
            Kind::Gauge => ("gauge", json!({"dataPoints": points})),
            Kind::Counter => (
                "sum",
                json!({
                    "dataPoints": points,
                    "aggregationTemporality": CUMULATIVE,
                    "isMonotonic": true,
                }),
            ),
            Kind::Histogram => {
                ("histogram", json!({"dataPoints": points, "aggregationTemporality": CUMULATIVE}))
            }
        };
        metric[kind] = data;
        metric
    }

    fn point(&self, kind: Kind, sample: &Sample, now: SystemTime) -> Json {
        let attributes: Vec<Json> =
            sample.labels.iter().map(|(key, value)| text(key, value)).collect();
        let mut point = json!({"attributes": attributes, "timeUnixNano": nanos(now)});
        if kind != Kind::Gauge {
            point["startTimeUnixNano"] = nanos(self.started).into();
        }
        match &sample.value {
            Measured::Number(value) => point["asDouble"] = json!(value),
            Measured::Spread { classes, sum } => {
                let counts: Vec<String> = classes.iter().map(u64::to_string).collect();
                point["count"] = classes.iter().sum::<u64>().to_string().into();
                point["sum"] = json!(sum);
                point["bucketCounts"] = counts.into();
                point["explicitBounds"] = bounds().collect::<Vec<f64>>().into();
            }
        }
        point
    }
}

/// `moonlark_call_duration_seconds` is Prometheus's way to say it.
fn name_and_unit(family: &Family) -> (String, &'static str) {
    let name = family.name.strip_suffix("_total").unwrap_or(family.name);
    let (name, unit) = match (name.strip_suffix("_seconds"), name.strip_suffix("_bytes")) {
        (Some(name), _) => (name, "s"),
        (_, Some(name)) => (name, "By"),
        _ => (name, "1"),
    };
    (name.replacen('_', ".", 1), unit)
}

fn span(span: &Span) -> Json {
    let (name, kind, mut attributes) = described(&span.what);
    if span.outcome != "ok" {
        attributes.push(text("error.type", span.outcome));
    }
    let end = span.began + span.took;
    let mut json = json!({
        "traceId": span.trace.id_text(),
        "spanId": id(&span.trace.span),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": nanos(span.began),
        "endTimeUnixNano": nanos(end),
        "attributes": attributes,
        "flags": 1,
    });
    if let Some(parent) = &span.parent {
        json["parentSpanId"] = id(parent).into();
    }
    if let Some(state) = span.trace.state() {
        json["traceState"] = state.into();
    }
    // What went wrong is in the journal: a message may quote arguments.
    if span.outcome != "ok" {
        json["status"] = json!({"code": ERROR});
    }
    json
}

fn described(what: &What) -> (String, u8, Vec<Json>) {
    match what {
        What::Call { tool, source, surface, outside, call, run } => {
            let mut attributes = vec![
                text("gen_ai.operation.name", "execute_tool"),
                text("gen_ai.tool.name", tool),
                text("moonlark.source", &source.name),
                text("moonlark.source.kind", source.kind.as_str()),
                text("moonlark.surface", surface),
            ];
            attributes.extend(call.map(|id| text("moonlark.call.id", &id.to_string())));
            attributes.extend(run.map(|id| text("moonlark.run.id", &id.to_string())));
            // The door of a source, by which everything but tools is reached.
            let is_tool = !tool.ends_with(':');
            if *outside && *surface == "mcp" && is_tool {
                attributes.push(text("mcp.method.name", "tools/call"));
                return (format!("tools/call {tool}"), SERVER, attributes);
            }
            let kind = if *outside { SERVER } else { INTERNAL };
            (format!("execute_tool {tool}"), kind, attributes)
        }
        What::Run(id) => {
            let attributes = vec![text("moonlark.run.id", &id.to_string())];
            ("run".to_owned(), INTERNAL, attributes)
        }
        What::Request { name, facts } => {
            let facts = facts.iter().map(|(key, fact)| match fact {
                Fact::Text(value) => text(key, value),
                Fact::Number(value) => {
                    json!({"key": key, "value": {"intValue": value.to_string()}})
                }
            });
            (name.clone(), CLIENT, facts.collect())
        }
    }
}

fn scope() -> Json {
    json!({"name": "moonlark", "version": env!("CARGO_PKG_VERSION")})
}

fn text(key: &str, value: &str) -> Json {
    json!({"key": key, "value": {"stringValue": value}})
}

fn id(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    hex(&mut text, bytes);
    text
}

/// Too large for a number in JSON.
fn nanos(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos().to_string()
}
