//! Runs and calls, a line each.

use std::time::Duration;

use jiff::tz::TimeZone;
use moonlark_core::journal::Id;
use moonlark_store::{CallShown, CallerShown, RunLine, State};

use super::super::run::timeline::time;
use super::word;

/// Columns of a script's first line.
const SCRIPT: usize = 60;

pub(super) fn runs(runs: &[RunLine]) -> Vec<String> {
    match runs {
        [] => vec!["no run is on record".to_owned()],
        runs => runs.iter().map(run).collect(),
    }
}

/// `2026-11-16 07:40:12  41f0a2b9  ok           120 ms   3 calls  claude  return sdk…`
pub(super) fn run(run: &RunLine) -> String {
    let calls = super::super::counted(usize::try_from(run.calls).unwrap_or(usize::MAX), "call");
    format!(
        "{}  {}  {:<12} {:>8}  {calls:>9}  {}  {}{}",
        when(run.at),
        short(run.id),
        word(run),
        took(run.took),
        caller(&run.caller),
        if run.plan { "plan: " } else { "" },
        first_line(&run.script),
    )
}

pub(super) fn calls(calls: &[CallShown]) -> Vec<String> {
    match calls {
        [] => vec!["no call is on record".to_owned()],
        calls => calls.iter().map(call).collect(),
    }
}

fn call(call: &CallShown) -> String {
    let word = match call.state {
        State::Ended => call.outcome.as_deref().unwrap_or("ended"),
        State::Interrupted => "interrupted",
        State::Running | State::Waiting => "running",
    };
    format!(
        "{}  {word:<12} {:>8}  {}  {}  {}",
        when(call.at),
        took(call.took),
        caller(&call.caller),
        call.tool,
        cut(&call.arguments),
    )
}

/// Enough of an id to name it: the end, which is random.
pub(in super::super) fn short(id: Id) -> String {
    let text = id.to_string();
    text[text.len() - 8..].to_owned()
}

/// As the clock on the wall says.
pub(in super::super) fn when(time: jiff::Timestamp) -> String {
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

pub(in super::super) fn caller(caller: &CallerShown) -> String {
    let name = caller.name.as_deref().unwrap_or("?");
    match &caller.client {
        Some(client) => format!("{name} ({client}, {})", caller.surface),
        None => format!("{name} ({})", caller.surface),
    }
}

fn took(took: Option<Duration>) -> String {
    took.map(time).unwrap_or_default()
}

fn first_line(script: &str) -> String {
    let line = script.lines().map(str::trim).find(|line| !line.is_empty());
    cut(line.unwrap_or_default())
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SCRIPT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
