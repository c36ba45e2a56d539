//! Telemetry settings: from the configuration, and otherwise from the environment
//! variables that OpenTelemetry's own libraries read.

use std::collections::BTreeMap;
use std::time::Duration;

use moonlark_core::{Problem, Result, SourceLocation};
use moonlark_gateway::trace::TraceId;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

/// What the configuration says. It is not `Debug`: headers may be secret.
pub struct TelemetryOptions {
    /// The address of a collector.
    pub otlp: Option<String>,
    pub headers: BTreeMap<String, String>,
    /// What this server is called at the collector.
    pub service: Option<String>,
    pub traces: bool,
    /// Which share of the traces that begin here is sent, from 0 to 1.
    pub sample: Option<f64>,
    pub metrics: bool,
    /// How often metrics are sent.
    pub interval: Duration,
}

#[derive(Debug)]
pub(super) struct TelemetrySettings {
    pub(super) traces_url: Url,
    pub(super) metrics_url: Url,
    pub(super) headers: HeaderMap,
    pub(super) service: String,
    pub(super) traces: bool,
    pub(super) metrics: bool,
    pub(super) interval: Duration,
    pub(super) sampler: TraceSampler,
}

type OtelEnvLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

impl TelemetrySettings {
    /// None if nobody said where to.
    pub(super) fn from_options(
        options: &TelemetryOptions,
        env: OtelEnvLookup<'_>,
    ) -> Result<Option<TelemetrySettings>> {
        let by_env = || env("OTEL_EXPORTER_OTLP_ENDPOINT");
        let Some(base) = options.otlp.clone().or_else(by_env) else { return Ok(None) };
        if options.otlp.is_none() && !is_export_enabled_by_env(env)? {
            return Ok(None);
        }
        Ok(Some(TelemetrySettings {
            traces_url: signal_url(&base, "traces")?,
            metrics_url: signal_url(&base, "metrics")?,
            headers: read_headers(options, env)?,
            service: (options.service.clone())
                .or_else(|| env("OTEL_SERVICE_NAME"))
                .unwrap_or_else(|| "moonlark".to_owned()),
            traces: options.traces,
            metrics: options.metrics,
            interval: options.interval,
            sampler: match options.sample {
                Some(share) => TraceSampler { by_parent: true, share },
                None => TraceSampler::from_env(env)?,
            },
        }))
    }
}

/// What others are told to do may be nothing that we can.
fn is_export_enabled_by_env(env: OtelEnvLookup<'_>) -> Result<bool> {
    if env("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(false);
    }
    match env("OTEL_EXPORTER_OTLP_PROTOCOL").as_deref() {
        // Collectors take both at the same address.
        None | Some("http/json" | "http/protobuf") => Ok(true),
        Some(_) => Err(bad_setting_problem(
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "telemetry is sent as http/json only, so nothing is sent",
        )
        .with_hint(
            "set telemetry.otlp to the address that your collector takes OTLP over HTTP at",
        )),
    }
}

fn signal_url(base: &str, what: &str) -> Result<Url> {
    let text = format!("{}/v1/{what}", base.trim_end_matches('/'));
    let url = Url::parse(&text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| {
        bad_setting_problem(
            "telemetry.otlp",
            "telemetry goes to an http or https address, and this is none",
        )
        .with_hint("write it as http://localhost:4318")
    })
}

/// The environment has them as `key=value,key=value`, percent-encoded.
fn read_headers(options: &TelemetryOptions, env: OtelEnvLookup<'_>) -> Result<HeaderMap> {
    let own = options.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
    let mut given: Vec<(String, String)> = own.collect();
    let variable = "OTEL_EXPORTER_OTLP_HEADERS";
    let text = env(variable).unwrap_or_default();
    if given.is_empty() {
        let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
        given.extend(
            pairs.map(|(name, value)| (name.trim().to_owned(), percent_decode(value.trim()))),
        );
    }
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let parsed = HeaderName::from_bytes(name.as_bytes()).ok();
        let parsed = parsed.zip(HeaderValue::from_str(&value).ok());
        let Some((name, mut value)) = parsed else {
            let place = if options.headers.is_empty() { variable } else { "telemetry.headers" };
            return Err(bad_setting_problem(place, "one of them cannot be sent as a header"));
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn percent_decode(text: &str) -> String {
    // A query decodes the same, but for plus signs.
    let text = text.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    url::form_urlencoded::parse(text.as_bytes()).map(|(key, _)| key.into_owned()).collect()
}

fn bad_setting_problem(place: &str, message: &str) -> Problem {
    Problem::bad_config(message).at_location(SourceLocation::in_file(place))
}

/// Which traces are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TraceSampler {
    /// Whoever began a trace has decided.
    by_parent: bool,
    /// Of the others, from 0 to 1.
    share: f64,
}

impl TraceSampler {
    /// As `OTEL_TRACES_SAMPLER` says.
    fn from_env(env: OtelEnvLookup<'_>) -> Result<TraceSampler> {
        let name = env("OTEL_TRACES_SAMPLER").unwrap_or_else(|| "parentbased_always_on".to_owned());
        let (by_parent, rest) = match name.strip_prefix("parentbased_") {
            Some(rest) => (true, rest),
            None => (false, name.as_str()),
        };
        let share = match rest {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => {
                let argument = env("OTEL_TRACES_SAMPLER_ARG").map_or(Ok(1.0), |text| text.parse());
                let share = argument.ok().filter(|share| (0.0..=1.0).contains(share));
                share.ok_or_else(|| {
                    bad_setting_problem("OTEL_TRACES_SAMPLER_ARG", "is no share from 0 to 1")
                })?
            }
            _ => {
                return Err(bad_setting_problem(
                    "OTEL_TRACES_SAMPLER",
                    "is no sampler that is known here",
                )
                .with_hint("use parentbased_traceidratio, or set telemetry.sample"));
            }
        };
        Ok(TraceSampler { by_parent, share })
    }

    /// The same for every part of one trace, here and elsewhere.
    pub(super) fn should_sample(self, came_in: Option<bool>, id: &TraceId) -> bool {
        match came_in.filter(|_| self.by_parent) {
            Some(sampled) => sampled,
            // A number of this size as a float may be rounded up.
            None if self.share >= 1.0 => true,
            None => {
                let [.., a, b, c, d, e, f, g, h] = *id;
                let chance = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
                (chance as f64) < self.share * (1_u64 << 63) as f64
            }
        }
    }
}
