//! Drift of a test that was made of a run: its calls that only read, made for real, and
//! what has changed since they were recorded.

use std::collections::BTreeSet;

use moonlark_core::content::ToolAnswer;
use moonlark_core::schema::{property_names, required_names};
use moonlark_core::{Problem, ProblemCode, Result, Tool, Value};
use moonlark_gateway::Gateway;
use moonlark_gateway::answer_drift::find_answer_drift;
use serde_json::{Map, Value as Json};

use super::recorded_answer::decode_answer;
use super::run_test_file::{RunTestCall, RunTestFile};
use crate::cli::cli_caller;

/// What came of one call of a test.
pub(crate) struct CallDrift {
    pub(crate) tool: String,
    pub(crate) place: String,
    pub(crate) found: DriftOutcome,
}

pub(crate) enum DriftOutcome {
    Same,
    /// It was not made, because of this.
    Skipped(&'static str),
    Changed(Vec<String>),
}

impl DriftOutcome {
    /// The Problem of a server that has changed.
    pub(crate) fn problem(&self) -> Option<Problem> {
        let DriftOutcome::Changed(changes) = self else { return None };
        let message = format!("the tool has changed since it was recorded\n{}", changes.join("\n"));
        Some(Problem::tool_error(message).with_hint(
            "adapt the script, and save a new run of it as the test: `moonlark runs save ID --as-test NAME --replace`",
        ))
    }
}

/// Make those calls of the test that only read, one after the other.
pub(crate) async fn check_drift(file: &RunTestFile, gateway: &Gateway) -> Result<Vec<CallDrift>> {
    let mut drifts = Vec::new();
    for call in &file.calls {
        let found = match file.tools.iter().find(|tool| tool.name == call.tool) {
            None => DriftOutcome::Skipped("the test has no parameters of it"),
            Some(recorded) if recorded.is_read_only() => {
                check_call(call, &recorded.input, gateway).await?
            }
            Some(_) => DriftOutcome::Skipped("it may change something"),
        };
        drifts.push(CallDrift { tool: call.tool.clone(), place: call.place.clone(), found });
    }
    Ok(drifts)
}

async fn check_call(
    call: &RunTestCall,
    input: &Map<String, Json>,
    gateway: &Gateway,
) -> Result<DriftOutcome> {
    let opened = gateway.open_call(cli_caller())?;
    let tool = match opened.catalog().find_tool(&call.tool) {
        Ok(tool) => tool.clone(),
        Err(problem) => return Ok(DriftOutcome::Changed(vec![problem.message])),
    };
    let mut changes = parameter_changes(input, &tool);
    if !tool.effects.read_only {
        changes.push("it only read, and may change something now: it was not called".to_owned());
        return Ok(DriftOutcome::Changed(changes));
    }
    if call.arguments.to_string().contains("[redacted") {
        return Ok(match changes.as_slice() {
            [] => DriftOutcome::Skipped("its arguments have a secret, which the test does not"),
            _ => DriftOutcome::Changed(changes),
        });
    }
    let recorded = match &call.answer {
        Some(answer) => decode_answer(&Value::from_json(answer.clone())?),
        None => None,
    };
    let args = Value::from_json(call.arguments.clone())?;
    let answer = gateway.invoke(&opened, &tool, args).await;
    changes.extend(answer_changes(recorded, answer)?);
    Ok(if changes.is_empty() { DriftOutcome::Same } else { DriftOutcome::Changed(changes) })
}

/// What differs between the answer then and now.
fn answer_changes(
    recorded: Option<Result<ToolAnswer>>,
    answer: Result<ToolAnswer>,
) -> Result<Vec<String>> {
    match (recorded, answer) {
        // Whether a server is there is no question of what it answers.
        (_, Err(problem)) if problem.code == ProblemCode::Unavailable => Err(problem),
        (Some(Ok(then)), Ok(now)) => {
            let drifts = find_answer_drift(&then.into_plain_value(), &now.into_plain_value());
            Ok(drifts.iter().map(|drift| drift.to_sentence()).collect())
        }
        (Some(Ok(_)), Err(problem)) => {
            Ok(vec![format!("it answered, and fails now: {}", problem.message)])
        }
        (Some(Err(then)), Ok(_)) => {
            Ok(vec![format!("it failed, and answers now: {}", then.message)])
        }
        (Some(Err(then)), Err(now)) if then.code != now.code => {
            let (then, now) = (then.code, now.code);
            Ok(vec![format!("it failed with {then}, and fails with {now} now")])
        }
        _ => Ok(Vec::new()),
    }
}

/// What differs between the parameters then and now, as far as a caller notices.
fn parameter_changes(then: &Map<String, Json>, tool: &Tool) -> Vec<String> {
    let now = tool.input.json();
    let names = |schema: &Map<String, Json>| -> BTreeSet<String> {
        property_names(schema).map(str::to_owned).collect()
    };
    let required = |schema: &Map<String, Json>| -> BTreeSet<String> {
        required_names(schema).map(str::to_owned).collect()
    };
    let kind = |schema: &Map<String, Json>, name: &str| -> Option<Json> {
        schema.get("properties")?.get(name)?.get("type").cloned()
    };
    let mut changes = Vec::new();
    for name in names(then).difference(&names(now)) {
        changes.push(format!("its parameter {name} is gone"));
    }
    for name in required(now).difference(&required(then)) {
        changes.push(format!("its parameter {name} is required now"));
    }
    for name in names(then).intersection(&names(now)) {
        if let (Some(old), Some(new)) = (kind(then, name), kind(now, name))
            && old != new
        {
            changes.push(format!("its parameter {name} was of type {old} and is of type {new}"));
        }
    }
    changes
}
