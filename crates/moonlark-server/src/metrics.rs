//! `/metrics`: what is counted, for Prometheus and whoever reads its format.
//!
//! The gateway counts; here that is put together with what only a process knows.

mod process;
mod prometheus;

use axum::extract::State as Extract;
use axum::response::{IntoResponse, Response};
use http::header;
use moonlark_core::Gateway;
use moonlark_core::metrics::family::{Family, Kind};

use crate::VERSION;
use crate::rest::State;
pub(crate) use process::note_start;

const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) async fn metrics(Extract(state): Extract<State>) -> Response {
    let text = prometheus::text(&figures(state.gateway()).await);
    ([(header::CONTENT_TYPE, FORMAT)], text).into_response()
}

/// Everything that is counted, at this moment.
pub async fn figures(gateway: &Gateway) -> Vec<Family> {
    let build =
        Family::new("moonlark_build_info", Kind::Gauge, "The version of Moonlark; always 1");
    let mut all = vec![build.with(vec![("version", VERSION.to_owned())], 1.0)];
    all.extend(gateway.figures());
    if let Some(approvals) = gateway.approvals() {
        // Of what cannot be read, nothing is said.
        all.extend(approvals.waiting().await.ok().map(|waiting| {
            Family::one(
                "moonlark_approvals_waiting",
                Kind::Gauge,
                "Calls that wait for a person to decide",
                waiting as f64,
            )
        }));
    }
    all.extend(process::figures());
    all
}
