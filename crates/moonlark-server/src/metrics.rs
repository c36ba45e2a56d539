//! `/metrics`: metrics in the format of Prometheus.
//!
//! The gateway counts; here that is put together with what only a process knows.

mod process_metrics;
mod prometheus;

use axum::extract::State as Extract;
use axum::response::{IntoResponse, Response};
use http::header;
use moonlark_gateway::Gateway;
use moonlark_gateway::metrics::family::MetricFamily;

use crate::MOONLARK_VERSION;
use crate::rest_routes::RestState;
pub(crate) use process_metrics::note_start;

const PROMETHEUS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) async fn serve_metrics(Extract(state): Extract<RestState>) -> Response {
    let text = prometheus::render_families(&collect_metrics(state.gateway()).await);
    ([(header::CONTENT_TYPE, PROMETHEUS_CONTENT_TYPE)], text).into_response()
}

/// Everything that is counted, at this moment.
pub async fn collect_metrics(gateway: &Gateway) -> Vec<MetricFamily> {
    let build = MetricFamily::gauge("moonlark_build_info", "The version of Moonlark; always 1");
    let mut all = vec![build.with_sample(vec![("version", MOONLARK_VERSION.to_owned())], 1.0)];
    all.extend(gateway.collect_metrics());
    if let Some(approvals) = gateway.approval_ledger() {
        // Of what cannot be read, nothing is said.
        all.extend(approvals.count_pending().await.ok().map(|waiting| {
            MetricFamily::gauge(
                "moonlark_approvals_waiting",
                "Calls that wait for a person to decide",
            )
            .with_value(waiting as f64)
        }));
    }
    all.extend(process_metrics::process_metrics());
    all
}
