//! REST: `/runs` and `/approvals`, what the journal has and what people decide.
//!
//! Whoever has shown who they are sees their own, and operators all; on a server
//! where nobody has to, everybody sees all.

use axum::extract::{Path, Query, State as Extract};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName};
use moonlark_core::approval::{Approvals, Decider, Decision};
use moonlark_core::journal::{Id, Look, Looked, Recorder};
use moonlark_core::{Code, Gateway, Problem, Result};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::sync::Arc;

use crate::rest::State;
use crate::status;
use crate::who::Who;

/// Carries the tokens of approvals, separated by commas.
const APPROVAL: HeaderName = HeaderName::from_static("moonlark-approval");
/// Runs in one answer.
const MOST: usize = 100;

/// Which part of a list.
#[derive(Deserialize)]
pub(crate) struct Part {
    limit: Option<usize>,
    before: Option<String>,
}

pub(crate) async fn runs(
    Extract(state): Extract<State>,
    who: Who,
    Query(part): Query<Part>,
) -> Response {
    answer(look_at_runs(state.gateway(), &who, part).await)
}

async fn look_at_runs(gateway: &Gateway, who: &Who, part: Part) -> Result<Json> {
    let before = part.before.as_deref().map(str::parse).transpose()?;
    let most = part.limit.unwrap_or(MOST).clamp(1, MOST);
    let look = Look { what: Looked::Runs { most, before }, of: name(who) };
    recorder(gateway)?.look(look).await
}

pub(crate) async fn run(
    Extract(state): Extract<State>,
    who: Who,
    Path(id): Path<String>,
) -> Response {
    let look = async {
        let look = Look { what: Looked::Run(id.parse()?), of: name(&who) };
        recorder(state.gateway())?.look(look).await
    };
    answer(look.await)
}

pub(crate) async fn approvals(Extract(state): Extract<State>, who: Who) -> Response {
    let look = async { kept(state.gateway())?.look(None, name(&who)).await };
    answer(look.await)
}

pub(crate) async fn approval(
    Extract(state): Extract<State>,
    who: Who,
    Path(id): Path<String>,
) -> Response {
    let look = async { kept(state.gateway())?.look(Some(id.parse()?), name(&who)).await };
    answer(look.await)
}

pub(crate) async fn decide(
    Extract(state): Extract<State>,
    who: Who,
    Path((id, word)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    answer(decided(state.gateway(), &who, &id, &word, &headers).await)
}

async fn decided(
    gateway: &Gateway,
    who: &Who,
    id: &str,
    word: &str,
    headers: &HeaderMap,
) -> Result<Json> {
    let decision = match word {
        "approve" => Decision::Approve,
        "deny" => Decision::Deny,
        _ => {
            return Err(Problem::new(Code::NotFound, "an approval is approved or denied")
                .hint("POST /approvals/ID/approve or /approvals/ID/deny"));
        }
    };
    let id: Id = id.parse()?;
    let caller = who.caller("rest").name().to_owned();
    let by = match (who.is_operator(), tokens(headers).into_iter().next()) {
        (true, _) => Decider::Operator(caller),
        (false, Some(token)) => Decider::Holder { token, name: caller },
        (false, None) => {
            return Err(Problem::new(Code::Forbidden, "deciding needs the token of the approval")
                .hint(format!("send it as the header Moonlark-Approval, where the answer to the call had one; otherwise ask the operator of this server to decide on approval {id}")));
        }
    };
    let kept = kept(gateway)?;
    kept.decide(id, decision, by).await?;
    kept.look(Some(id), None).await
}

/// The tokens of approvals that came with a request.
pub(crate) fn tokens(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(APPROVAL).iter().filter_map(|value| value.to_str().ok());
    let tokens = values.flat_map(|value| value.split(',')).map(str::trim);
    tokens.filter(|token| !token.is_empty()).map(str::to_owned).collect()
}

/// Whether the server is up, and what is wrong with it all the same.
pub(crate) async fn health(Extract(state): Extract<State>) -> Response {
    let trouble = state.gateway().recorder().and_then(|recorder| recorder.problem());
    let mut health = json!({"status": "ok", "version": crate::VERSION});
    if trouble.is_some() {
        // Anybody may ask: where it is, and what is wrong, is for the operator.
        let said = "the journal cannot be written: see the server's log, or `moonlark doctor`";
        health["status"] = "degraded".into();
        health["journal"] = said.into();
    }
    if trouble.is_none()
        && let Some(recorder) = state.gateway().recorder()
    {
        // The last count, so that nobody waits for the disk. That there is none is said.
        match recorder.interrupted() {
            Some(0) => {}
            count => health["interrupted_runs"] = count.into(),
        }
    }
    axum::Json(health).into_response()
}

/// Whether everything that the server serves is there: its scripts are loaded, and
/// every other source has been reached, or could not be.
pub(crate) async fn ready(Extract(state): Extract<State>) -> Response {
    match state.awaits() {
        None => health(Extract(state)).await,
        Some(awaits) => {
            // How many, not which: anybody may ask.
            let body = json!({
                "status": "starting",
                "version": crate::VERSION,
                "scripts_loading": awaits.loading,
                "sources_connecting": awaits.connecting,
            });
            (http::StatusCode::SERVICE_UNAVAILABLE, axum::Json(body)).into_response()
        }
    }
}

fn answer(result: Result<Json>) -> Response {
    match result {
        Ok(json) => axum::Json(json).into_response(),
        Err(problem) => status::problem(&problem),
    }
}

/// Whose they must be; none for all.
fn name(who: &Who) -> Option<String> {
    who.caller("rest").name.filter(|_| !who.is_operator()).map(|name| name.to_string())
}

fn recorder(gateway: &Gateway) -> Result<&Arc<dyn Recorder>> {
    gateway.recorder().ok_or_else(not_kept)
}

fn kept(gateway: &Gateway) -> Result<&Arc<dyn Approvals>> {
    gateway.approvals().ok_or_else(not_kept)
}

fn not_kept() -> Problem {
    Problem::new(Code::NotFound, "no journal is kept").hint("set journal.enabled = true")
}
