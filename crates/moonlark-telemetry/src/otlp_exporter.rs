//! The OTLP exporter: in batches, with a time limit, retried where that may help, and
//! never two at once.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use moonlark_core::Result;
use moonlark_core::record_id::RecordId;
use moonlark_core::value::shorten_text;
use moonlark_http::{RetryBackoff, innermost_error_text, read_body_start, retry_after};
use parking_lot::Mutex;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Response, StatusCode};
use serde_json::Value as Json;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::MetricsCollector;
use super::otlp_json::OtlpResource;
use super::span_queue::SpanQueue;
use super::telemetry_settings::TelemetrySettings;

/// How long spans wait for more of them.
const SPAN_BATCH_DELAY: Duration = Duration::from_secs(1);
/// How long a collector may take.
const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(10);
/// The first pause before something is sent again, and the longest.
const MIN_RESEND_DELAY: Duration = Duration::from_millis(500);
const MAX_RESEND_DELAY: Duration = Duration::from_secs(30);
/// How long the same is tried.
const MAX_RESEND_TIME: Duration = Duration::from_secs(60);
/// Bytes of an answer that are read.
const MAX_COLLECTOR_ANSWER_BYTES: usize = 64 * 1024;

pub(super) struct OtlpExporter {
    client: Client,
    headers: reqwest::header::HeaderMap,
    resource: OtlpResource,
    traces: OtlpSignal,
    metrics: OtlpSignal,
}

/// One of the things that are sent. Some collectors take only one of them.
struct OtlpSignal {
    what: &'static str,
    url: Url,
    /// What the log was told last, so that it is told once.
    trouble: Mutex<Option<String>>,
}

/// What became of something that was sent.
enum OtlpSendOutcome {
    Taken {
        rejected: u64,
    },
    /// Not now; perhaps after this long.
    Later(String, Option<Duration>),
    Never(String),
}

impl OtlpExporter {
    pub(super) fn new(settings: &TelemetrySettings) -> Result<OtlpExporter> {
        Ok(OtlpExporter {
            client: moonlark_http::shared_http_client()?.clone(),
            traces: OtlpSignal::new("traces", &settings.traces_url),
            metrics: OtlpSignal::new("metrics", &settings.metrics_url),
            headers: settings.headers.clone(),
            resource: OtlpResource {
                service: settings.service.clone(),
                instance: RecordId::new().to_string(),
                started: SystemTime::now(),
            },
        })
    }

    /// Send spans until it is over and none is left.
    pub(super) async fn send_traces(
        self: Arc<Self>,
        spans: Arc<SpanQueue>,
        stop: CancellationToken,
    ) {
        loop {
            let over = stop.is_cancelled();
            let batch = spans.take_batch();
            if batch.is_empty() {
                if over {
                    return;
                }
                tokio::select! {
                    () = spans.wait_for_span() => {}
                    () = stop.cancelled() => continue,
                }
                tokio::select! {
                    () = tokio::time::sleep(SPAN_BATCH_DELAY) => {}
                    () = spans.wait_for_batch() => {}
                    () = stop.cancelled() => {}
                }
                continue;
            }
            let count = batch.len() as u64;
            let body = self.resource.encode_spans(&batch).to_string();
            drop(batch);
            let rejected =
                self.deliver_with_retry(&self.traces, body, &stop).await.unwrap_or(count);
            spans.count_lost(rejected.min(count));
            spans.count_sent(count.saturating_sub(rejected));
        }
    }

    /// Send all figures now and then, and once more at the end.
    pub(super) async fn send_metrics(
        self: Arc<Self>,
        collect_metrics: MetricsCollector,
        every: Duration,
        stop: CancellationToken,
    ) {
        let mut over = false;
        while !over {
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = stop.cancelled() => over = true,
            }
            let figures = collect_metrics().await;
            let body = self.resource.encode_metrics(&figures, SystemTime::now()).to_string();
            // The next ones say it all again.
            self.deliver_with_retry(&self.metrics, body, &stop).await;
        }
    }

    /// How many of it were not taken; none if nothing was.
    async fn deliver_with_retry(
        &self,
        signal: &OtlpSignal,
        body: String,
        stop: &CancellationToken,
    ) -> Option<u64> {
        let until = Instant::now() + MAX_RESEND_TIME;
        let mut backoff = RetryBackoff::new(MIN_RESEND_DELAY, MAX_RESEND_DELAY);
        loop {
            match self.send_once(&signal.url, body.clone()).await {
                OtlpSendOutcome::Taken { rejected } => {
                    signal.record_success(rejected);
                    return Some(rejected);
                }
                OtlpSendOutcome::Never(why) => {
                    signal.record_failure(&why);
                    return None;
                }
                OtlpSendOutcome::Later(why, asked) => {
                    signal.record_failure(&why);
                    let wait = asked.unwrap_or_else(|| backoff.next_pause()).min(MAX_RESEND_DELAY);
                    if stop.is_cancelled() || Instant::now() + wait > until {
                        return None;
                    }
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        // Once more, at once: there is no later.
                        () = stop.cancelled() => {}
                    }
                }
            }
        }
    }

    async fn send_once(&self, url: &Url, body: String) -> OtlpSendOutcome {
        let json = HeaderValue::from_static("application/json");
        let request = self.client.post(url.clone()).timeout(COLLECTOR_TIMEOUT);
        let request = request.headers(self.headers.clone());
        let response = match request.header(CONTENT_TYPE, json).body(body).send().await {
            Ok(response) => response,
            Err(error) => {
                let why = innermost_error_text(&error.without_url());
                return OtlpSendOutcome::Later(shorten_text(&why).into_owned(), None);
            }
        };
        let status = response.status();
        if status.is_success() {
            return OtlpSendOutcome::Taken { rejected: count_rejected(response).await };
        }
        let why = format!("it answered with HTTP {status}");
        match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                OtlpSendOutcome::Later(why, retry_after(response.headers()))
            }
            _ => OtlpSendOutcome::Never(why),
        }
    }
}

impl OtlpSignal {
    fn new(what: &'static str, url: &Url) -> OtlpSignal {
        OtlpSignal { what, url: url.clone(), trouble: Mutex::default() }
    }

    /// Said once, until it is another trouble or over.
    fn record_failure(&self, why: &str) {
        let mut trouble = self.trouble.lock();
        if trouble.as_deref() != Some(why) {
            let (what, at) = (self.what, self.url.origin().ascii_serialization());
            tracing::warn!(target: "telemetry", "the collector at {at} takes no {what}: {why}");
            *trouble = Some(why.to_owned());
        }
    }

    fn record_success(&self, rejected: u64) {
        if rejected > 0 {
            return self.record_failure("it rejected a part of what was sent");
        }
        if self.trouble.lock().take().is_some() {
            tracing::info!(target: "telemetry", "the collector takes {} again", self.what);
        }
    }
}

/// How many a collector did not want, if it says so.
async fn count_rejected(response: Response) -> u64 {
    let reading = read_body_start(response, MAX_COLLECTOR_ANSWER_BYTES);
    // It was taken, whatever is said about it.
    let answer = timeout(COLLECTOR_TIMEOUT, reading).await.unwrap_or_default();
    let answer: Json = serde_json::from_slice(&answer).unwrap_or_default();
    let partial = &answer["partialSuccess"];
    let count = [&partial["rejectedSpans"], &partial["rejectedDataPoints"]];
    let number = |json: &Json| json.as_u64().or_else(|| json.as_str()?.parse().ok());
    count.into_iter().find_map(number).unwrap_or(0)
}
