//! Sending: in batches, with a time limit, again after a while where that may
//! help, and never two at once.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use moonlark_core::journal::Id;
use moonlark_core::value::shorten;
use moonlark_core::{Gateway, Result};
use parking_lot::Mutex;
use reqwest::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};
use serde_json::Value as Json;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::otlp::Resource;
use super::settings::Settings;
use super::spans::Spans;

/// How long spans wait for more of them.
const LINGER: Duration = Duration::from_secs(1);
/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first pause before something is sent again, and the longest.
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
/// How long the same is tried.
const TRYING: Duration = Duration::from_secs(60);
/// Bytes of an answer that are read.
const ANSWER: usize = 64 * 1024;

pub(super) struct Exporter {
    client: Client,
    headers: reqwest::header::HeaderMap,
    resource: Resource,
    traces: Signal,
    metrics: Signal,
}

/// One of the things that are sent. Some collectors take only one of them.
struct Signal {
    what: &'static str,
    url: Url,
    /// What the log was told last, so that it is told once.
    trouble: Mutex<Option<String>>,
}

/// What became of something that was sent.
enum Sent {
    Taken {
        rejected: u64,
    },
    /// Not now; perhaps after this long.
    Later(String, Option<Duration>),
    Never(String),
}

impl Exporter {
    pub(super) fn new(settings: &Settings) -> Result<Exporter> {
        let client = moonlark_upstream::auth::client()?.clone();
        Ok(Exporter {
            client,
            traces: Signal::new("traces", &settings.traces_url),
            metrics: Signal::new("metrics", &settings.metrics_url),
            headers: settings.headers.clone(),
            resource: Resource {
                service: settings.service.clone(),
                instance: Id::new().to_string(),
                started: SystemTime::now(),
            },
        })
    }

    /// Send spans until it is over and none is left.
    pub(super) async fn send_traces(self: Arc<Self>, spans: Arc<Spans>, stop: CancellationToken) {
        loop {
            let over = stop.is_cancelled();
            let batch = spans.take();
            if batch.is_empty() {
                if over {
                    return;
                }
                tokio::select! {
                    () = spans.some() => {}
                    () = stop.cancelled() => continue,
                }
                tokio::select! {
                    () = tokio::time::sleep(LINGER) => {}
                    () = spans.enough() => {}
                    () = stop.cancelled() => {}
                }
                continue;
            }
            let count = batch.len() as u64;
            let body = self.resource.spans(&batch).to_string();
            drop(batch);
            let rejected = self.deliver(&self.traces, body, &stop).await.unwrap_or(count);
            spans.count_lost(rejected.min(count));
            spans.count_sent(count.saturating_sub(rejected));
        }
    }

    /// Send all figures now and then, and once more at the end.
    pub(super) async fn send_metrics(
        self: Arc<Self>,
        gateway: Gateway,
        every: Duration,
        stop: CancellationToken,
    ) {
        let mut over = false;
        while !over {
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = stop.cancelled() => over = true,
            }
            let figures = moonlark_server::figures(&gateway).await;
            let body = self.resource.metrics(&figures, SystemTime::now()).to_string();
            // The next ones say it all again.
            self.deliver(&self.metrics, body, &stop).await;
        }
    }

    /// How many of it were not taken; none if nothing was.
    async fn deliver(
        &self,
        signal: &Signal,
        body: String,
        stop: &CancellationToken,
    ) -> Option<u64> {
        let (until, mut pause) = (Instant::now() + TRYING, SHORTEST);
        loop {
            match self.send(&signal.url, body.clone()).await {
                Sent::Taken { rejected } => {
                    signal.went_well(rejected);
                    return Some(rejected);
                }
                Sent::Never(why) => {
                    signal.failed(&why);
                    return None;
                }
                Sent::Later(why, asked) => {
                    signal.failed(&why);
                    let wait = asked.unwrap_or(pause).min(LONGEST);
                    if stop.is_cancelled() || Instant::now() + wait > until {
                        return None;
                    }
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        // Once more, at once: there is no later.
                        () = stop.cancelled() => {}
                    }
                    pause = (pause * 2).min(LONGEST);
                }
            }
        }
    }

    async fn send(&self, url: &Url, body: String) -> Sent {
        let json = HeaderValue::from_static("application/json");
        let request = self.client.post(url.clone()).timeout(PATIENCE);
        let request = request.headers(self.headers.clone());
        let response = match request.header(CONTENT_TYPE, json).body(body).send().await {
            Ok(response) => response,
            Err(error) => return Sent::Later(reason(&error.without_url()), None),
        };
        let status = response.status();
        if status.is_success() {
            return Sent::Taken { rejected: rejected(response).await };
        }
        let why = format!("it answered with HTTP {status}");
        match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                let after = response.headers().get(RETRY_AFTER);
                let after = after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
                Sent::Later(why, after.map(Duration::from_secs))
            }
            _ => Sent::Never(why),
        }
    }
}

impl Signal {
    fn new(what: &'static str, url: &Url) -> Signal {
        Signal { what, url: url.clone(), trouble: Mutex::default() }
    }

    /// Said once, until it is another trouble or over.
    fn failed(&self, why: &str) {
        let mut trouble = self.trouble.lock();
        if trouble.as_deref() != Some(why) {
            let (what, at) = (self.what, self.url.origin().ascii_serialization());
            tracing::warn!(target: "telemetry", "the collector at {at} takes no {what}: {why}");
            *trouble = Some(why.to_owned());
        }
    }

    fn went_well(&self, rejected: u64) {
        if rejected > 0 {
            return self.failed("it rejected a part of what was sent");
        }
        if self.trouble.lock().take().is_some() {
            tracing::info!(target: "telemetry", "the collector takes {} again", self.what);
        }
    }
}

/// How many a collector did not want, if it says so.
async fn rejected(mut response: Response) -> u64 {
    let mut answer = Vec::new();
    let reading = async {
        while answer.len() < ANSWER
            && let Ok(Some(chunk)) = response.chunk().await
        {
            answer.extend_from_slice(&chunk[..chunk.len().min(ANSWER - answer.len())]);
        }
    };
    // It was taken, whatever is said about it.
    let _ = timeout(PATIENCE, reading).await;
    let answer: Json = serde_json::from_slice(&answer).unwrap_or_default();
    let partial = &answer["partialSuccess"];
    let count = [&partial["rejectedSpans"], &partial["rejectedDataPoints"]];
    let number = |json: &Json| json.as_u64().or_else(|| json.as_str()?.parse().ok());
    count.into_iter().find_map(number).unwrap_or(0)
}

/// The innermost of an error's reasons: the outer ones only say "request".
fn reason(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    shorten(&inner.to_string()).into_owned()
}
