//! REST: `/runs` and `/approvals`, what the journal has and what people decide.
//!
//! Whoever has shown who they are sees their own, and operators all; on a server
//! where nobody has to, everybody sees all.

use axum::extract::{Path, State as Extract};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName};
use moonlark_core::record_id::RecordId;
use moonlark_core::secret::SecretText;
use moonlark_core::{Problem, Result};
use moonlark_gateway::Gateway;
use moonlark_gateway::approval::{ApprovalDecider, ApprovalDecision, ApprovalLedger};
use moonlark_gateway::journal::{JournalQuery, JournalQueryKind};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::sync::Arc;

use crate::http_status::{ProblemResponse, QueryFields, ReadQuery};
use crate::principal::Principal;
use crate::rest_routes::RestState;

/// Carries the tokens of approvals, separated by commas.
const APPROVAL_HEADER: HeaderName = HeaderName::from_static("moonlark-approval");
/// Runs in one answer.
const MAX_RUNS_PER_PAGE: usize = 100;

/// Which part of a list.
#[derive(Deserialize)]
pub(crate) struct RunsPageQuery {
    limit: Option<usize>,
    before: Option<String>,
}

impl QueryFields for RunsPageQuery {
    const EXAMPLE_QUERY: &'static str = "?limit=20&before=ID";
}

pub(crate) type JsonAnswer = Result<axum::Json<Json>, ProblemResponse>;

pub(crate) async fn list_runs(
    Extract(state): Extract<RestState>,
    who: Principal,
    ReadQuery(part): ReadQuery<RunsPageQuery>,
) -> JsonAnswer {
    let before = part.before.as_deref().map(str::parse).transpose()?;
    let most = part.limit.unwrap_or(MAX_RUNS_PER_PAGE).clamp(1, MAX_RUNS_PER_PAGE);
    run_query(&state, &who, JournalQueryKind::Runs { most, before }).await
}

pub(crate) async fn show_run(
    Extract(state): Extract<RestState>,
    who: Principal,
    Path(id): Path<String>,
) -> JsonAnswer {
    run_query(&state, &who, JournalQueryKind::Run(id.parse()?)).await
}

pub(crate) async fn run_query(
    state: &RestState,
    who: &Principal,
    what: JournalQueryKind,
) -> JsonAnswer {
    let recorder = state.gateway().recorder().ok_or_else(no_journal_problem)?;
    let look = JournalQuery { what, of: owner_filter(who) };
    Ok(axum::Json(recorder.run_query(look).await?))
}

pub(crate) async fn list_approvals(
    Extract(state): Extract<RestState>,
    who: Principal,
) -> JsonAnswer {
    let kept = require_approvals(state.gateway())?;
    Ok(axum::Json(kept.describe_requests(None, owner_filter(&who)).await?))
}

pub(crate) async fn show_approval(
    Extract(state): Extract<RestState>,
    who: Principal,
    Path(id): Path<String>,
) -> JsonAnswer {
    let kept = require_approvals(state.gateway())?;
    Ok(axum::Json(kept.describe_requests(Some(id.parse()?), owner_filter(&who)).await?))
}

pub(crate) async fn decide_approval(
    Extract(state): Extract<RestState>,
    who: Principal,
    Path((id, word)): Path<(String, String)>,
    headers: HeaderMap,
) -> JsonAnswer {
    let decision = match word.as_str() {
        "approve" => ApprovalDecision::Approve,
        "deny" => ApprovalDecision::Deny,
        _ => {
            return Err(Problem::not_found("an approval is approved or denied")
                .with_hint("POST /approvals/ID/approve or /approvals/ID/deny")
                .into());
        }
    };
    let id: RecordId = id.parse()?;
    let caller = who.to_caller("rest").name().to_owned();
    let by = match (who.is_operator(), approval_tokens(&headers).into_iter().next()) {
        (true, _) => ApprovalDecider::Operator(caller),
        (false, Some(token)) => ApprovalDecider::Holder { token, name: caller },
        (false, None) => {
            return Err(Problem::forbidden("deciding needs the token of the approval")
                .with_hint(format!("send it as the header Moonlark-Approval, where the answer to the call had one; otherwise ask the operator of this server to decide on approval {id}")).into());
        }
    };
    let kept = require_approvals(state.gateway())?;
    kept.record_decision(id, decision, by).await?;
    Ok(axum::Json(kept.describe_requests(Some(id), None).await?))
}

/// The tokens of approvals that came with a request.
pub(crate) fn approval_tokens(headers: &HeaderMap) -> Vec<SecretText> {
    let values = headers.get_all(APPROVAL_HEADER).iter().filter_map(|value| value.to_str().ok());
    let tokens = values.flat_map(|value| value.split(',')).map(str::trim);
    tokens.filter(|token| !token.is_empty()).map(SecretText::from).collect()
}

/// Whether the server is up, and what is wrong with it all the same.
pub(crate) async fn show_health(Extract(state): Extract<RestState>) -> Response {
    let recorder = state.gateway().recorder();
    let mut health = json!({"status": "ok", "version": crate::MOONLARK_VERSION});
    if recorder.is_some_and(|recorder| recorder.current_problem().is_some()) {
        // Anybody may ask: where it is, and what is wrong, is for the operator.
        let said = "the journal cannot be written: see the server's log, or `moonlark doctor`";
        health["status"] = "degraded".into();
        health["journal"] = said.into();
    } else if let Some(recorder) = recorder {
        // The last count, so that nobody waits for the disk. That there is none is said.
        match recorder.count_interrupted_runs() {
            Some(0) => {}
            count => health["interrupted_runs"] = count.into(),
        }
    }
    axum::Json(health).into_response()
}

/// Whether everything that the server serves is there: its scripts are loaded, and
/// every other source has been reached, or could not be.
pub(crate) async fn show_readiness(Extract(state): Extract<RestState>) -> Response {
    match state.start_progress() {
        None => show_health(Extract(state)).await,
        Some(awaits) => {
            // How many, not which: anybody may ask.
            let body = json!({
                "status": "starting",
                "version": crate::MOONLARK_VERSION,
                "scripts_loading": awaits.loading,
                "sources_connecting": awaits.connecting,
            });
            (http::StatusCode::SERVICE_UNAVAILABLE, axum::Json(body)).into_response()
        }
    }
}

/// Whose they must be; none for all.
fn owner_filter(who: &Principal) -> Option<String> {
    who.to_caller("rest").name.filter(|_| !who.is_operator()).map(|name| name.to_string())
}

fn require_approvals(gateway: &Gateway) -> Result<&Arc<dyn ApprovalLedger>> {
    gateway.approval_ledger().ok_or_else(no_journal_problem)
}

fn no_journal_problem() -> Problem {
    Problem::not_found("no journal is kept").with_hint("set journal.enabled = true")
}
