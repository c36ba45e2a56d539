//! OpenTelemetry: what happens, sent to a collector, if the operator says where
//! that is.
//!
//! [`telemetry_settings`] is what the configuration and the environment say, [`span_queue`]
//! takes what has ended off the path of calls, [`otlp_json`] writes it down, and
//! [`otlp_exporter`] sends it. OTLP is written by hand, as JSON over the HTTP client
//! that everything else uses: its Rust SDK sends by a thread and a client of its
//! own. Nothing here can hold up a call or the end of the program.
//!
//! The binary collects the metrics: this crate knows neither the server nor the configuration file.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod otlp_exporter;
mod otlp_json;
mod span_queue;
mod telemetry_settings;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use moonlark_child::spawn_owned;
use moonlark_gateway::Gateway;
use moonlark_gateway::metrics::family::MetricFamily;
use moonlark_gateway::trace::CallTracer;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use otlp_exporter::OtlpExporter;
use span_queue::SpanQueue;
use telemetry_settings::TelemetrySettings;

pub use telemetry_settings::TelemetryOptions;

/// How long a program that ends waits for the rest to be sent.
const SHUTDOWN_FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Collects everything that is counted, at the moment of the call.
pub type MetricsCollector = Box<dyn Fn() -> BoxFuture<'static, Vec<MetricFamily>> + Send + Sync>;

/// Begun by the commands that call tools.
#[derive(Default)]
pub struct TelemetryExport(OnceLock<RunningTelemetry>);

struct RunningTelemetry {
    stop: CancellationToken,
    tasks: Mutex<Vec<AbortOnDropHandle<()>>>,
    spans: Arc<SpanQueue>,
}

impl TelemetryExport {
    /// Send from now on, if anybody said where to: what `collect_metrics` returns, and the
    /// spans that are handed to what this returns.
    pub fn start_export(
        &self,
        options: &TelemetryOptions,
        gateway: &Gateway,
        collect_metrics: MetricsCollector,
    ) -> Option<Arc<dyn CallTracer>> {
        let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let settings = match TelemetrySettings::from_options(options, &env) {
            Ok(Some(settings)) if self.0.get().is_none() => settings,
            Ok(_) => return None,
            Err(problem) => {
                tracing::warn!("{problem}");
                return None;
            }
        };
        let exporter = OtlpExporter::new(&settings);
        let exporter = Arc::new(exporter.inspect_err(|it| tracing::warn!("{it}")).ok()?);
        let (stop, spans) = (CancellationToken::new(), SpanQueue::new(settings.sampler));
        let mut tasks = Vec::new();
        if settings.traces {
            let counted = spans.clone();
            gateway.metrics().add_collector(move || counted.metric_families());
            let sending = exporter.clone().send_traces(spans.clone(), stop.clone());
            tasks.push(spawn_owned(sending));
        }
        if settings.metrics {
            let sending = exporter.send_metrics(collect_metrics, settings.interval, stop.clone());
            tasks.push(spawn_owned(sending));
        }
        let tracer = settings.traces.then(|| spans.clone() as Arc<dyn CallTracer>);
        let _ = self.0.set(RunningTelemetry { stop, tasks: Mutex::new(tasks), spans });
        tracer
    }

    /// Send the rest, for as long as that may take.
    pub async fn flush_and_stop(&self) {
        let Some(running) = self.0.get() else { return };
        running.stop.cancel();
        let tasks = std::mem::take(&mut *running.tasks.lock());
        // Dropping them at the end of that time aborts them.
        let sent = futures::future::join_all(tasks);
        let _ = tokio::time::timeout(SHUTDOWN_FLUSH_TIMEOUT, sent).await;
        let unsent = running.spans.unsent_count();
        if unsent > 0 {
            tracing::warn!(target: "telemetry", "{unsent} spans were not sent");
        }
    }
}
