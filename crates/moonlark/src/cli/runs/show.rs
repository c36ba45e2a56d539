//! One run: how it stands, its script, its calls as bars, and what came of it.

use std::collections::HashMap;
use std::time::Duration;

use moonlark_core::journal::Id;
use moonlark_core::run::Step;
use moonlark_core::{Code, Value};
use moonlark_store::{CallShown, RunShown, State};

use super::super::run::timeline;
use super::super::{StyledText, pretty};
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
            lines.push(problem.to_string());
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
            let mut lines = in_doubt(run);
            lines.push(format!(
                "  its process is gone: `moonlark runs resume {id}` goes on with it"
            ));
            lines
        }
        (State::Ended, _) if run.answer.is_none() => {
            let mut lines = Vec::from_iter(run.line.message.as_ref().map(|it| format!("  {it}")));
            lines.extend(in_doubt(run));
            lines.extend(assumed(run).map(|call| {
                let place = call.place.as_deref().unwrap_or_default();
                format!(
                    "  {} at {place} was assumed to be done: `moonlark runs resume {id} --answer {place}=JSON` gives it another answer, and --retry={place} makes the call",
                    call.tool
                )
            }));
            if lines.len() > 1 {
                lines.push(format!("  it can go on: `moonlark runs resume {id}`"));
            }
            lines
        }
        _ => Vec::new(),
    }
}

/// Calls of the script that may have happened, with what to look for.
fn in_doubt(run: &RunShown) -> Vec<String> {
    let lines = calls_in_doubt(run).map(|call| {
        format!(
            "  {} at {} had no answer, and may have happened: {}",
            call.tool,
            call.place.as_deref().unwrap_or_default(),
            call.arguments
        )
    });
    lines.collect()
}

/// Calls of the script that were begun and never answered. One that was made again
/// since counts as it is now.
pub(super) fn calls_in_doubt(run: &RunShown) -> impl Iterator<Item = &CallShown> {
    last_calls(run).filter(|call| {
        let open = matches!(call.outcome.as_deref(), None | Some("cancelled"));
        open && !call.effects.read_only && !call.effects.idempotent
    })
}

/// Calls whose answer somebody gave.
pub(super) fn assumed(run: &RunShown) -> impl Iterator<Item = &CallShown> {
    last_calls(run).filter(|call| call.outcome.as_deref() == Some("assumed"))
}

/// The last call at each place of the script.
fn last_calls(run: &RunShown) -> impl Iterator<Item = &CallShown> {
    let later = |at: usize, place: &Option<String>| {
        run.calls[at + 1..].iter().any(|call| call.place == *place)
    };
    let calls = run.calls.iter().enumerate();
    calls
        .filter(move |(at, call)| call.place.is_some() && !later(*at, &call.place))
        .map(|(_, call)| call)
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
    timeline::draw(&steps, took).iter().map(StyledText::plain).collect()
}

fn step(call: &CallShown, tool: String, run: &RunShown) -> Step {
    let since = call.at.duration_since(run.line.at);
    let at = Duration::try_from(since).unwrap_or_default();
    let codes = Code::ALL.iter().map(|code| code.as_str());
    let known = |word: &str| codes.clone().chain(["ok", "assumed"]).find(|known| *known == word);
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
