//! `moonlark runs diff`: what differs between two runs.

use clap::Args;
use moonlark_gateway::run::{ForkedCall, LineChange, RunComparison, ValueChange, shown_arguments};

use super::super::run::timeline::truncate_text;
use super::super::{CommandResult, GlobalArgs, format_count, load_config, print_json, print_line};
use super::find_named_run;
use crate::project_journal;

/// Columns of the arguments of a call.
const MAX_ARGUMENT_COLUMNS: usize = 120;
/// Calls of each kind that are shown.
const MAX_SHOWN_CALLS: usize = 40;

#[derive(Args)]
pub(crate) struct RunsDiffArgs {
    /// One run: its id, or the beginning or end of it; `last` is the newest.
    before: String,
    /// The other.
    after: String,
}

impl RunsDiffArgs {
    pub(super) async fn run(self, global: &GlobalArgs) -> CommandResult {
        let reader = project_journal::journal_reader(&load_config(global)?);
        let (before, after) =
            (find_named_run(&reader, &self.before)?, find_named_run(&reader, &self.after)?);
        let compared = reader.compare_runs(before, after)?;
        if global.json {
            print_json(&compared.to_json());
        } else {
            comparison_lines(&compared).iter().for_each(print_line);
        }
        Ok(())
    }
}

fn comparison_lines(compared: &RunComparison) -> Vec<String> {
    let same = format_count(compared.same_calls, "call");
    if compared.is_same() {
        return vec![format!("the same script, {same}, result and logs")];
    }
    let mut lines = Vec::new();
    push_section(&mut lines, "script", line_change_lines(&compared.script));
    lines.push(format!("calls: {same} with the same answer in both"));
    if let Some(difference) = &compared.first_difference {
        lines.push(format!("  first difference at {}", difference.place));
    }
    lines.extend(call_lines('-', &compared.only_before));
    lines.extend(call_lines('+', &compared.only_after));
    for changed in compared.changed_answers.iter().take(MAX_SHOWN_CALLS) {
        lines.push(format!("  {} was answered otherwise", call_text(&changed.call)));
        lines.extend(changed.changes.iter().map(|it| format!("    {}", value_change_text(it))));
    }
    let result = compared.result.iter().map(|it| format!("  {}", value_change_text(it)));
    push_section(&mut lines, "result", result.collect());
    push_section(&mut lines, "logs", line_change_lines(&compared.logs));
    lines
}

fn push_section(lines: &mut Vec<String>, name: &str, section: Vec<String>) {
    if section.is_empty() {
        lines.push(format!("{name}: the same"));
    } else {
        lines.push(format!("{name}:"));
        lines.extend(section);
    }
}

fn line_change_lines(changes: &[LineChange]) -> Vec<String> {
    let sign = |it: &LineChange| if it.is_added { '+' } else { '-' };
    changes.iter().map(|it| format!("  {} {:>4} | {}", sign(it), it.line, it.text)).collect()
}

fn call_lines(sign: char, calls: &[ForkedCall]) -> Vec<String> {
    let mut lines: Vec<String> = calls
        .iter()
        .take(MAX_SHOWN_CALLS)
        .map(|call| format!("  {sign} {}", call_text(call)))
        .collect();
    if calls.len() > MAX_SHOWN_CALLS {
        lines.push(format!("  {sign} … and {} more", calls.len() - MAX_SHOWN_CALLS));
    }
    lines
}

fn call_text(call: &ForkedCall) -> String {
    let args = truncate_text(&shown_arguments(call), MAX_ARGUMENT_COLUMNS);
    format!("{} at {} with {args}", call.tool, call.place)
}

/// `orders[0].total: 5 -> "5"`
pub(in crate::cli) fn value_change_text(change: &ValueChange) -> String {
    let path = if change.path.is_empty() { "all of it" } else { &change.path };
    match (&change.before, &change.after) {
        (Some(before), Some(after)) => format!("{path}: {before} -> {after}"),
        (Some(before), None) => format!("{path}: {before} is gone"),
        (None, Some(after)) => format!("{path}: {after} is new"),
        (None, None) => path.to_owned(),
    }
}
