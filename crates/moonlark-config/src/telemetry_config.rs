//! `[telemetry]` and `[log]`: traces, metrics and logs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

use super::{HumanDuration, RedactedString, web_address_fault};

/// Where traces and metrics are sent, by OpenTelemetry's protocol over HTTP
/// (OTLP, as JSON). Read when the program starts. Nothing is sent unless `otlp`,
/// or the environment variable `OTEL_EXPORTER_OTLP_ENDPOINT`, says where to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// URL of the collector; `/v1/traces` and `/v1/metrics` are appended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"http://localhost:4318")]
    pub otlp: Option<String>,
    /// HTTP headers that go with everything that is sent; when there are none,
    /// those of `OTEL_EXPORTER_OTLP_HEADERS`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, RedactedString>,
    /// What this server is called there; when not set, `OTEL_SERVICE_NAME`, or
    /// `moonlark`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"moonlark")]
    pub service: Option<String>,
    /// Whether traces are sent.
    pub traces: bool,
    /// Sampling ratio of traces that begin here, 0 to 1; when not set, as
    /// `OTEL_TRACES_SAMPLER` says, or all. Traces that come in are sent if they are
    /// marked as sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.0, max = 1.0), example = 0.1)]
    pub sample: Option<f64>,
    /// Whether metrics are sent. They are at `/metrics` in any case.
    pub metrics: bool,
    /// How often metrics are sent.
    #[schemars(example = &"60s")]
    pub interval: HumanDuration,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            otlp: None,
            headers: BTreeMap::new(),
            service: None,
            traces: true,
            sample: None,
            metrics: true,
            interval: HumanDuration::from_seconds(60),
        }
    }
}

impl TelemetryConfig {
    /// What no schema says. The key, and what is wrong.
    pub fn find_faults(&self) -> Vec<(&'static str, String)> {
        let fault = self.otlp.as_deref().and_then(web_address_fault);
        Vec::from_iter(fault.map(|_| ("otlp", "is no http or https address".to_owned())))
    }
}

/// What `moonlark serve` and `moonlark stdio` write to their standard error.
/// Read when the program starts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `"text"` for people, `"json"` for programs: one object in each line.
    /// `--log-format` overrides it.
    pub format: LogFormat,
    /// How much is written: `"error"`, `"warn"`, `"info"`, `"debug"` or
    /// `"trace"`; or parts by their names, such as `"warn,upstream=debug"`.
    /// `--verbose`, `--quiet` and the environment variable `MOONLARK_LOG`
    /// override it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"info")]
    pub level: Option<String>,
}

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

impl LogConfig {
    /// What no schema says. The key, and what is wrong.
    pub fn find_faults(&self) -> Vec<(&'static str, String)> {
        if self.level.as_ref().is_some_and(|level| level.parse::<EnvFilter>().is_err()) {
            vec![("level", "is no level, and no list such as \"warn,upstream=debug\"".into())]
        } else {
            Vec::new()
        }
    }
}
