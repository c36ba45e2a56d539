//! REST: what is done with recorded runs: `POST /runs/{id}/fork`, `GET /runs/{id}/diff/{other}`,
//! `GET /runs/{id}/trace`.
//!
//! A fork and a trace are calls of `execute` like any other; only their answers say more
//! than a result.

use axum::extract::{Path, Request, State as Extract};
use http::HeaderMap;
use moonlark_core::content::{Content, ToolAnswer};
use moonlark_core::module::unknown_parameter_problem;
use moonlark_core::secret::Secrets;
use moonlark_core::{Problem, Result, Value};
use moonlark_gateway::journal::JournalQueryKind;
use moonlark_gateway::run::{RUN_META_KEY, plain_result};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::http_status::{ProblemResponse, QueryFields, ReadQuery};
use crate::journal_routes::{JsonAnswer, run_query};
use crate::principal::Principal;
use crate::rest_routes::{self, RestState};

/// What a fork may be told beside the run that it is of.
const FORK_PARAMETERS: [&str; 3] = ["script", "new_calls", "timeout"];

pub(crate) async fn fork_run(
    Extract(state): Extract<RestState>,
    Path(id): Path<String>,
    who: Principal,
    request: Request,
) -> JsonAnswer {
    let (parts, body) = request.into_parts();
    let mut args = rest_routes::read_object_body(&state, &parts.headers, body).await?;
    if let Value::Object(fields) = &mut args {
        if let Some(other) = fields.keys().find(|name| !FORK_PARAMETERS.contains(&name.as_str())) {
            let known = FORK_PARAMETERS.into_iter();
            return Err(unknown_parameter_problem("fork", other, known).into());
        }
        fields.insert("fork".to_owned(), id.into());
        // Without one it is the run's.
        fields.entry("script".to_owned()).or_insert_with(|| "".into());
    }
    let call = rest_routes::open_request_call(&state, &who, &parts.headers).await?;
    let answer = state.gateway().invoke(&call, "execute", args).await;
    Ok(axum::Json(describe_fork_answer(answer)?))
}

/// What the fork was answered, and what is said of it. A Problem only if there was no fork: a
/// script that fails has been forked all the same.
fn describe_fork_answer(answer: Result<ToolAnswer>) -> Result<Json, ProblemResponse> {
    let said = answer_content(&answer).and_then(run_metadata).cloned();
    let Some(said) = said else {
        return Err(match answer {
            Err(problem) => problem.into(),
            Ok(_) => Problem::internal("a fork says nothing of itself").into(),
        });
    };
    let field = |name: &str| said.get(name).map_or(Json::Null, Value::to_json_lossy);
    let mut told = json!({
        "id": field("id"),
        "logs": field("logs"),
        "calls": field("calls"),
        "ms": field("ms"),
        "fork": field("fork"),
    });
    match answer {
        Err(problem) => told["error"] = problem.to_json(),
        Ok(_) => {
            let result = plain_result(&answer, &Secrets::default());
            told["result"] = result.into_json("result")?;
        }
    }
    Ok(told)
}

fn answer_content(answer: &Result<ToolAnswer>) -> Option<&Content> {
    match answer {
        Ok(ToolAnswer::Content(content)) => Some(content),
        Ok(_) => None,
        Err(problem) => problem.content.as_deref(),
    }
}

fn run_metadata(content: &Content) -> Option<&Value> {
    content.extra.get("_meta")?.get(RUN_META_KEY)
}

/// How a run is looked at.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TraceQuery {
    #[serde(default)]
    lines: bool,
    at: Option<usize>,
}

impl QueryFields for TraceQuery {
    const EXAMPLE_QUERY: &'static str = "?lines=true or ?at=1";
}

pub(crate) async fn trace_run(
    Extract(state): Extract<RestState>,
    Path(id): Path<String>,
    who: Principal,
    ReadQuery(how): ReadQuery<TraceQuery>,
    headers: HeaderMap,
) -> JsonAnswer {
    let args = Value::from_fields([
        ("script", "".into()),
        ("fork", id.as_str().into()),
        ("trace", if how.lines { "lines" } else { "calls" }.into()),
    ]);
    let call = rest_routes::open_request_call(&state, &who, &headers).await?;
    let answer = state.gateway().invoke(&call, "execute", args).await;
    let content = answer_content(&answer);
    let trace = content.and_then(|content| run_metadata(content)?.get("trace"));
    let Some(trace) = trace.map(Value::to_json_lossy) else {
        let problem = answer.err();
        return Err(problem.unwrap_or_else(|| Problem::internal("there is no trace")).into());
    };
    Ok(axum::Json(describe_trace(&id, trace, answer.err().as_ref(), how.at)?))
}

/// A trace as REST answers and `--json` prints it: all moments, or one.
pub fn describe_trace(
    id: &str,
    mut trace: Json,
    error: Option<&Problem>,
    at: Option<usize>,
) -> Result<Json> {
    trace["run"] = id.into();
    if let Some(problem) = error {
        trace["error"] = problem.to_json();
    }
    let Some(at) = at else { return Ok(trace) };
    let Json::Array(events) = trace["events"].take() else {
        return Err(Problem::internal("a trace has no moments"));
    };
    let count = events.len();
    let Some(event) = at.checked_sub(1).and_then(|index| events.into_iter().nth(index)) else {
        return Err(Problem::not_found(format!("the trace has no moment {at}"))
            .with_hint(format!("it has the moments 1 to {count}")));
    };
    trace["events"] = Json::Array(vec![event]);
    Ok(trace)
}

pub(crate) async fn diff_runs(
    Extract(state): Extract<RestState>,
    who: Principal,
    Path((before, after)): Path<(String, String)>,
) -> JsonAnswer {
    let (before, after) = (before.parse()?, after.parse()?);
    run_query(&state, &who, JournalQueryKind::Diff { before, after }).await
}
