//! One run: how it stands, its script, its calls as bars, and what came of it.

use std::collections::HashMap;
use std::time::Duration;

use moonlark_core::journal::Id;
use moonlark_core::run::Step;
use moonlark_core::{Code, Value};
use moonlark_store::{CallShown, RunShown, State};

use super::super::run::timeline;
use super::super::{colours_of_stdout, paint, pretty};
use super::{list, word};

/// Lines of the script that are shown.
const SCRIPT: usize = 40;

pub(super) fn lines(run: &RunShown) -> Vec<String> {
    let line = &run.line;
    let mut lines = vec![
        format!("run {}", line.id),
        format!("  {} by {}: {}", list::when(line.at), list::caller(&line.caller), word(line)),
    ];
    lines.extend(what_next(run));
    lines.push(String::new());
    lines.extend(line.script.lines().take(SCRIPT).map(|line| format!("  {line}")));
    if line.script.lines().count() > SCRIPT {
        lines.push("  …".to_owned());
    }
    let drawn = draw(run);
    if !drawn.is_empty() {
        lines.push(String::new());
        lines.extend(drawn);
    }
    match &run.answer {
        Some(Ok(answer)) => {
            lines.push(String::new());
            lines.push(match answer.clone().into_plain() {
                Value::Str(text) => text,
                value => pretty(&value).unwrap_or_else(|_| value.to_json_lossy().to_string()),
            });
        }
        Some(Err(problem)) => {
            lines.push(String::new());
            lines.push(paint(&problem.to_string()));
        }
        None => {}
    }
    lines
}

/// For a run that has not ended: why, and what can be done.
fn what_next(run: &RunShown) -> Vec<String> {
    let id = run.line.id;
    match (run.line.state, run.line.approval) {
        (State::Waiting, Some(approval)) => vec![format!(
            "  it waits for a decision: `moonlark approvals show {approval}`, then approve or deny it"
        )],
        (State::Interrupted, _) => {
            let lost =
                run.calls.iter().filter(|call| call.place.is_some() && call.outcome.is_none());
            let mut lines: Vec<String> = lost
                .map(|call| format!("  {} had no answer: it may have happened", call.tool))
                .collect();
            lines.push(format!(
                "  its process is gone: `moonlark runs resume {id}` goes on with it"
            ));
            lines
        }
        _ => Vec::new(),
    }
}

fn draw(run: &RunShown) -> Vec<String> {
    let depths = depths(&run.calls);
    let steps: Vec<Step> = (run.calls.iter())
        .filter(|call| {
            call.place.is_some() || call.parent.is_some_and(|it| depths.contains_key(&it))
        })
        .map(|call| {
            let indent = "  ".repeat(depths.get(&call.id).copied().unwrap_or_default());
            step(call, format!("{indent}{}", call.tool), run)
        })
        .collect();
    let end = |step: &Step| step.at + step.took.unwrap_or_default();
    let took = run.line.took.or(steps.iter().map(end).max()).unwrap_or_default();
    timeline::draw(&steps, took, colours_of_stdout())
}

fn step(call: &CallShown, tool: String, run: &RunShown) -> Step {
    let since = call.at.duration_since(run.line.at);
    let at = Duration::try_from(since).unwrap_or_default();
    let codes = Code::ALL.iter().map(|code| code.as_str());
    let known = |word: &str| codes.clone().chain(["ok"]).find(|known| *known == word);
    let outcome = match (call.state, call.outcome.as_deref()) {
        (_, Some(word)) => known(word).unwrap_or("cancelled"),
        (State::Interrupted, None) => "no answer",
        (State::Waiting, None) => "waiting",
        _ => "",
    };
    let place = call.place.as_deref().map(Into::into);
    Step { tool, at, took: call.took, outcome, place, replayed: false }
}

/// How far below the script each call is.
fn depths(calls: &[CallShown]) -> HashMap<Id, usize> {
    let mut depths = HashMap::new();
    for call in calls {
        let above = call.parent.and_then(|parent| depths.get(&parent).copied());
        match (above, &call.place) {
            (Some(above), _) => depths.insert(call.id, above + 1),
            (None, Some(_)) => depths.insert(call.id, 0),
            (None, None) => None,
        };
    }
    depths
}
