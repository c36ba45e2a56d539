//! The calls of a run as bars over its time.

use std::time::Duration;

use moonlark_gateway::CallOutcome;
use moonlark_gateway::run::RunStep;

use super::super::format_count;
use super::super::terminal::{StyledText, TextStyle};

/// Columns of a bar.
const BAR_COLUMNS: usize = 32;
/// Longest name that is shown whole.
const MAX_NAME_COLUMNS: usize = 36;
/// What comes before the first call and takes this long is said.
const MIN_REPORTED_START: Duration = Duration::from_millis(200);
/// Calls that have a line each.
const MAX_TIMELINE_CALLS: usize = 40;

/// A call as it is drawn.
pub(crate) struct TimelineCall {
    pub(crate) tool: String,
    pub(crate) at: Duration,
    pub(crate) took: Option<Duration>,
    pub(crate) outcome: CallOutcome,
    /// What is said of one that has not ended.
    pub(crate) waits_for: &'static str,
}

impl From<&RunStep> for TimelineCall {
    fn from(step: &RunStep) -> Self {
        let RunStep { tool, at, took, outcome, .. } = step.clone();
        TimelineCall { tool, at, took, outcome, waits_for: "" }
    }
}

/// The calls of a run, as [`draw_timeline`] has them.
pub(crate) fn draw_steps(steps: &[RunStep], took: Duration) -> Vec<StyledText> {
    let calls: Vec<TimelineCall> = steps.iter().map(TimelineCall::from).collect();
    draw_timeline(&calls, took)
}

/// A line for the whole and one for each call; none if nothing was called.
pub(crate) fn draw_timeline(steps: &[TimelineCall], took: Duration) -> Vec<StyledText> {
    if steps.is_empty() {
        return Vec::new();
    }
    let end = |step: &TimelineCall| step.at + step.took.unwrap_or_default();
    // Sources that had to start, and the check, are before the first call: bars are of
    // the calls.
    let first = steps.iter().map(|step| step.at).min().unwrap_or_default();
    let whole = steps.iter().map(end).max().unwrap_or_default().max(took).saturating_sub(first);
    let width = steps.iter().map(|step| step_name(step).chars().count()).max().unwrap_or_default();
    let before = if first >= MIN_REPORTED_START {
        format!(", the first after {}", format_duration(first))
    } else {
        String::new()
    };
    let said =
        format!("{} in {}{before}", format_count(steps.len(), "call"), format_duration(took));
    let mut lines = vec![StyledText::from(said)];
    for step in steps.iter().take(MAX_TIMELINE_CALLS) {
        let bar = draw_bar(step, first, whole);
        let style = match step.outcome {
            CallOutcome::Ok => TextStyle::Green,
            CallOutcome::Cancelled | CallOutcome::Withdrawn | CallOutcome::Running => {
                TextStyle::Yellow
            }
            CallOutcome::Failed(_) | CallOutcome::Assumed => TextStyle::Red,
        };
        let took = step.took.map(format_duration).unwrap_or_default();
        let outcome = match step.outcome {
            CallOutcome::Ok => "",
            CallOutcome::Running => step.waits_for,
            ended => ended.as_str(),
        };
        let line =
            StyledText::from(format!("  {:<width$}  ", step_name(step))).with_part(style, bar);
        let after = format!("  {took:>7}  {outcome}");
        lines.push(line.with_part(TextStyle::Plain, after.trim_end()));
    }
    if steps.len() > MAX_TIMELINE_CALLS {
        let more = steps.len() - MAX_TIMELINE_CALLS;
        lines.push(format!("  … and {more} more: --json has all").into());
    }
    lines
}

/// `│    ━━━━   │`
fn draw_bar(step: &TimelineCall, first: Duration, whole: Duration) -> String {
    let scale = |time: Duration| {
        let share = time.as_secs_f64() / whole.as_secs_f64().max(1e-9);
        ((share * BAR_COLUMNS as f64) as usize).min(BAR_COLUMNS)
    };
    let at = step.at.saturating_sub(first);
    let from = scale(at).min(BAR_COLUMNS - 1);
    let to = scale(at + step.took.unwrap_or_default()).max(from + 1);
    format!("│{}{}{}│", " ".repeat(from), "━".repeat(to - from), " ".repeat(BAR_COLUMNS - to))
}

fn step_name(step: &TimelineCall) -> String {
    truncate_text(&step.tool, MAX_NAME_COLUMNS)
}

/// The text, or as many letters of it and `…`.
pub(crate) fn truncate_text(text: &str, columns: usize) -> String {
    match text.char_indices().nth(columns) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// `0.4 ms`, `12 ms`, `1.25 s`
pub(crate) fn format_duration(time: Duration) -> String {
    match time.as_secs_f64() * 1000.0 {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 1000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.2} s", ms / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(tool: &str, at: u64, took: u64, outcome: &str) -> TimelineCall {
        let (tool, ms) = (tool.to_owned(), Duration::from_millis);
        let outcome = CallOutcome::from_word(outcome).unwrap();
        TimelineCall { tool, at: ms(at), took: Some(ms(took)), outcome, waits_for: "" }
    }

    fn lines(drawn: &[StyledText]) -> Vec<String> {
        drawn.iter().map(StyledText::to_plain_text).collect()
    }

    #[test]
    fn calls_are_bars_over_the_time_of_the_run() {
        let steps = [
            step("weather.forecast", 0, 200, "ok"),
            step("weather.forecast", 0, 400, "ok"),
            step("text_stats", 200, 1, "tool_error"),
        ];
        let drawn = draw_timeline(&steps, Duration::from_millis(400));
        assert_eq!(
            lines(&drawn).join("\n"),
            "3 calls in 400 ms\n\
             \x20 weather.forecast  │━━━━━━━━━━━━━━━━                │   200 ms\n\
             \x20 weather.forecast  │━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━│   400 ms\n\
             \x20 text_stats        │                ━               │   1.0 ms  tool_error"
        );
    }

    #[test]
    fn a_run_without_calls_has_no_timeline_and_a_long_one_is_cut() {
        assert!(draw_timeline(&[], Duration::from_secs(1)).is_empty());
        let many: Vec<TimelineCall> = (0..50).map(|at| step("a", at, 0, "ok")).collect();
        let drawn = draw_timeline(&many, Duration::from_millis(50));
        assert_eq!(drawn.len(), 42);
        assert_eq!(drawn[41].to_plain_text(), "  … and 10 more: --json has all");
    }

    #[test]
    fn a_call_longer_than_the_run_was_watched_stays_in_its_bar() {
        let drawn = draw_timeline(&[step("a", 10, 100, "ok")], Duration::ZERO);
        assert_eq!(drawn[1].to_plain_text(), "  a  │━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━│   100 ms");
    }

    #[test]
    fn what_comes_before_the_first_call_is_said_and_not_drawn() {
        let steps = [step("a", 1600, 200, "ok"), step("b", 1800, 200, "ok")];
        let drawn = draw_timeline(&steps, Duration::from_millis(2000));
        assert_eq!(
            lines(&drawn).join("\n"),
            "2 calls in 2.00 s, the first after 1.60 s\n\
             \x20 a  │━━━━━━━━━━━━━━━━                │   200 ms\n\
             \x20 b  │                ━━━━━━━━━━━━━━━━│   200 ms"
        );
    }
}
