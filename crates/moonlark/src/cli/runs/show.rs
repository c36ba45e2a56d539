//! One run: state, script, calls as bars, result.

use std::collections::HashMap;
use std::time::Duration;

use moonlark_core::Value;
use moonlark_core::record_id::RecordId;
use moonlark_gateway::CallOutcome;
use moonlark_journal::{AwaitedApprovalState, CallView, RecordedState, RunSummary, RunView};

use super::super::problem_lines::error_lines;
use super::super::run::timeline::{self, TimelineCall};
use super::super::{StyledText, format_count, pretty_json, print_line};
use super::{run_lines, run_status};

/// Lines of the script that are shown.
const MAX_SCRIPT_LINES: usize = 40;

pub(super) fn print_run(run: &RunView) {
    let line = &run.line;
    print_line(format!("run {}", line.id));
    print_line(format!(
        "  {} by {}: {}",
        run_lines::format_local_time(line.at),
        run_lines::caller_label(&line.caller),
        run_status(line)
    ));
    next_step_lines(run).iter().for_each(print_line);
    print_line("");
    // With numbers, so that no line of it passes for one of ours.
    for (index, text) in line.script.lines().take(MAX_SCRIPT_LINES).enumerate() {
        print_line(format!("{:>4} | {text}", index + 1).trim_end());
    }
    let more = line.script.lines().count().saturating_sub(MAX_SCRIPT_LINES);
    if more > 0 {
        print_line(format!("     … and {}: --json has all", format_count(more, "more line")));
    }
    let drawn = timeline_lines(run);
    if !drawn.is_empty() {
        print_line("");
        drawn.iter().for_each(print_line);
    }
    match &run.answer {
        Some(Ok(answer)) => {
            print_line("");
            print_line("result:");
            let text = match answer.clone().into_plain_value() {
                Value::Str(text) => text,
                value => pretty_json(&value).unwrap_or_else(|_| value.to_json_lossy().to_string()),
            };
            text.lines().for_each(|line| print_line(format!("    {line}")));
        }
        Some(Err(problem)) => {
            print_line("");
            error_lines(problem).into_iter().for_each(print_line);
        }
        None => {}
    }
}

/// For a run that has not ended: why, and what can be done.
fn next_step_lines(run: &RunView) -> Vec<String> {
    match (run.line.state, run.line.approval) {
        (RecordedState::Waiting, Some(approval)) => approval_wait_lines(&run.line, approval),
        (RecordedState::Interrupted, _) => {
            let mut lines = vec!["  its process is gone".to_owned()];
            lines.extend(resume_hint_lines(run));
            lines
        }
        (RecordedState::Ended, _) if run.answer.is_none() => {
            // What is said of calls in doubt says why, too.
            if calls_in_doubt(run).chain(assumed_calls(run)).next().is_some() {
                return resume_hint_lines(run);
            }
            Vec::from_iter(run.line.message.as_ref().map(|it| format!("  {it}")))
        }
        _ => Vec::new(),
    }
}

/// What a run waits for, or has waited for, and how it goes on.
fn approval_wait_lines(run: &RunSummary, approval: RecordId) -> Vec<String> {
    let id = run.id;
    let by = run.decided_by.as_deref().unwrap_or("somebody");
    let decided = match run.approval_state.unwrap_or(AwaitedApprovalState::Waiting) {
        AwaitedApprovalState::Waiting => {
            return vec![
                format!("  it waits for a decision: `moonlark approvals show {approval}`, then"),
                format!(
                    "  `moonlark approvals approve {approval}` or `moonlark approvals deny {approval}`"
                ),
            ];
        }
        AwaitedApprovalState::Expired if run.is_alive => {
            return vec![format!(
                "  nobody decided on approval {approval} in time: its script gets an error"
            )];
        }
        AwaitedApprovalState::Expired => {
            return vec![
                format!(
                    "  nobody decided on approval {approval} in time, and its process is gone:"
                ),
                format!("  `moonlark runs resume {id}` goes on, and asks again"),
            ];
        }
        AwaitedApprovalState::Approved => format!("  {by} has approved the call it waited for"),
        AwaitedApprovalState::Denied => {
            format!("  {by} has denied the call it waited for: its script gets an error")
        }
    };
    if run.is_alive {
        return vec![format!("{decided}: it goes on by itself")];
    }
    vec![
        format!("{decided}; its process is gone:"),
        format!(
            "  `moonlark runs resume {id}` goes on with it, and so does the project's server, if one runs"
        ),
    ]
}

/// The commands with which a run goes on: for each call that may have happened, what
/// can be said about it.
fn resume_hint_lines(run: &RunView) -> Vec<String> {
    let id = run.line.id;
    let mut lines = Vec::new();
    for call in calls_in_doubt(run) {
        let place = call.place.as_deref().unwrap_or_default();
        let resume = format!("moonlark runs resume {id}");
        lines.push(format!(
            "  {} at {place} had no answer, and may have happened: {}",
            call.tool, call.arguments
        ));
        lines.push(format!("    if it has not: `{resume} --retry={place}` makes the call"));
        lines.push(format!(
            "    if it has: `{resume} --answer {place}=JSON` with what it answered,"
        ));
        lines.push(format!(
            "      or `{resume} --assume-done={place}` where the script does without"
        ));
    }
    for call in assumed_calls(run) {
        let place = call.place.as_deref().unwrap_or_default();
        lines.push(format!(
            "  {} at {place} was assumed to be done: `moonlark runs resume {id} --answer {place}=JSON` gives it another answer, and --retry={place} makes the call",
            call.tool
        ));
    }
    match calls_in_doubt(run).count() {
        0 => lines.push(format!("  `moonlark runs resume {id}` goes on with it")),
        1 => {}
        _ => lines.push("  for several calls, give all options in one command".to_owned()),
    }
    lines
}

/// Calls of the script that were begun and never answered. One that was made again
/// since counts as it is now.
pub(super) fn calls_in_doubt(run: &RunView) -> impl Iterator<Item = &CallView> {
    last_calls(run).filter(|call| {
        let open = matches!(call.outcome.as_deref(), None | Some("cancelled"));
        open && !call.effects.read_only && !call.effects.idempotent
    })
}

/// Calls whose answer somebody gave.
pub(super) fn assumed_calls(run: &RunView) -> impl Iterator<Item = &CallView> {
    last_calls(run).filter(|call| call.outcome.as_deref() == Some("assumed"))
}

/// The last call at each place of the script, of those that were made.
fn last_calls(run: &RunView) -> impl Iterator<Item = &CallView> {
    let is_made = |call: &&CallView| {
        call.place.is_some() && call.outcome.as_deref() != Some(CallOutcome::Withdrawn.as_str())
    };
    let later = move |at: usize, place: &Option<String>| {
        run.calls[at + 1..].iter().filter(is_made).any(|call| call.place == *place)
    };
    let calls = run.calls.iter().enumerate();
    calls.filter(move |(at, call)| is_made(call) && !later(*at, &call.place)).map(|(_, call)| call)
}

fn timeline_lines(run: &RunView) -> Vec<String> {
    let depths = call_depths(&run.calls);
    let steps: Vec<TimelineCall> = (run.calls.iter())
        .filter(|call| {
            call.place.is_some() || call.parent.is_some_and(|it| depths.contains_key(&it))
        })
        .map(|call| {
            let indent = "  ".repeat(depths.get(&call.id).copied().unwrap_or_default());
            timeline_step(call, format!("{indent}{}", call.tool), run)
        })
        .collect();
    let end = |step: &TimelineCall| step.at + step.took.unwrap_or_default();
    let took = run.line.took.or(steps.iter().map(end).max()).unwrap_or_default();
    timeline::draw_timeline(&steps, took).iter().map(StyledText::to_plain_text).collect()
}

fn timeline_step(call: &CallView, tool: String, run: &RunView) -> TimelineCall {
    let since = call.at.duration_since(run.line.at);
    let at = Duration::try_from(since).unwrap_or_default();
    let word = call.outcome.as_deref().unwrap_or_default();
    let outcome = CallOutcome::from_word(word).unwrap_or(CallOutcome::Cancelled);
    let waits_for = match call.state {
        RecordedState::Interrupted => "no answer",
        RecordedState::Waiting => "waiting",
        _ => "",
    };
    TimelineCall { tool, at, took: call.took, outcome, waits_for }
}

/// How far below the script each call is.
fn call_depths(calls: &[CallView]) -> HashMap<RecordId, usize> {
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
