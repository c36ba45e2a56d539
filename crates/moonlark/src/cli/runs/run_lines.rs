//! Runs and calls, a line each.

use std::time::Duration;

use jiff::tz::TimeZone;
use moonlark_core::record_id::RecordId;
use moonlark_journal::{CallView, CallerView, RecordedState, RunSummary};

use super::super::format_count;
use super::super::run::timeline::{format_duration, truncate_text};
use super::run_status;

/// Columns of a script's first line.
const MAX_SCRIPT_COLUMNS: usize = 60;

pub(super) fn list_lines(runs: &[RunSummary]) -> Vec<String> {
    match runs {
        [] => vec!["the journal has no runs".to_owned()],
        runs => runs.iter().map(run_line).collect(),
    }
}

/// `2026-11-16 07:40:12  41f0a2b9  ok           120 ms   3 calls  claude  return sdk…`
pub(super) fn run_line(run: &RunSummary) -> String {
    let calls = format_count(run.calls, "call");
    format!(
        "{}  {}  {:<12} {:>8}  {calls:>9}  {}  {}{}",
        format_local_time(run.at),
        short_id(run.id),
        run_status(run),
        format_elapsed(run.took),
        caller_label(&run.caller),
        if run.plan { "plan: " } else { "" },
        first_line(&run.script),
    )
}

pub(super) fn call_lines(calls: &[CallView]) -> Vec<String> {
    match calls {
        [] => vec!["the journal has no calls".to_owned()],
        calls => calls.iter().map(call_line).collect(),
    }
}

fn call_line(call: &CallView) -> String {
    let word = match call.state {
        RecordedState::Ended => call.outcome.as_deref().unwrap_or("ended"),
        RecordedState::Interrupted => "interrupted",
        RecordedState::Running | RecordedState::Waiting => "running",
    };
    format!(
        "{}  {word:<12} {:>8}  {}  {}  {}",
        format_local_time(call.at),
        format_elapsed(call.took),
        caller_label(&call.caller),
        call.tool,
        truncate_text(&call.arguments, MAX_SCRIPT_COLUMNS),
    )
}

/// Enough of an id to name it: the end, which is random.
pub(in super::super) fn short_id(id: RecordId) -> String {
    let text = id.to_string();
    text[text.len() - 8..].to_owned()
}

/// As the clock on the wall says.
pub(in super::super) fn format_local_time(time: jiff::Timestamp) -> String {
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

pub(in super::super) fn caller_label(caller: &CallerView) -> String {
    let name = caller.name.as_deref().unwrap_or("?");
    match &caller.client {
        Some(client) => format!("{name} ({client}, {})", caller.surface),
        None => format!("{name} ({})", caller.surface),
    }
}

fn format_elapsed(took: Option<Duration>) -> String {
    took.map(format_duration).unwrap_or_default()
}

fn first_line(script: &str) -> String {
    let line = script.lines().map(str::trim).find(|line| !line.is_empty());
    truncate_text(line.unwrap_or_default(), MAX_SCRIPT_COLUMNS)
}
