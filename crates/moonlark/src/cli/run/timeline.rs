//! The calls of a run as bars over its time.

use std::time::Duration;

use moonlark_core::run::Step;

use super::super::counted;
use super::super::terminal::{StyledText, TextStyle};

/// Columns of a bar.
const WIDTH: usize = 32;
/// Longest name that is shown whole.
const NAME: usize = 36;
/// What comes before the first call and takes this long is said.
const LONG_START: Duration = Duration::from_millis(200);
/// Calls that have a line each.
const MOST: usize = 40;

/// A line for the whole and one for each call; none if nothing was called.
pub(crate) fn draw(steps: &[Step], took: Duration) -> Vec<StyledText> {
    if steps.is_empty() {
        return Vec::new();
    }
    let end = |step: &Step| step.at + step.took.unwrap_or_default();
    // Sources that had to start, and the check, are before the first call: bars are of
    // the calls.
    let first = steps.iter().map(|step| step.at).min().unwrap_or_default();
    let whole = steps.iter().map(end).max().unwrap_or_default().max(took).saturating_sub(first);
    let width = steps.iter().map(|step| name(step).chars().count()).max().unwrap_or_default();
    let before = if first >= LONG_START {
        format!(", the first after {}", time(first))
    } else {
        String::new()
    };
    let said = format!("{} in {}{before}", counted(steps.len(), "call"), time(took));
    let mut lines = vec![StyledText::from(said)];
    for step in steps.iter().take(MOST) {
        let bar = bar(step, first, whole);
        let style = match step.outcome {
            "ok" => TextStyle::Green,
            "cancelled" | "" => TextStyle::Yellow,
            _ => TextStyle::Red,
        };
        let took = step.took.map(time).unwrap_or_default();
        let outcome = if step.outcome == "ok" { "" } else { step.outcome };
        let line = StyledText::from(format!("  {:<width$}  ", name(step))).with(style, bar);
        let after = format!("  {took:>7}  {outcome}");
        lines.push(line.with(TextStyle::Plain, after.trim_end()));
    }
    if steps.len() > MOST {
        lines.push(format!("  … and {} more", steps.len() - MOST).into());
    }
    lines
}

/// `│    ━━━━   │`
fn bar(step: &Step, first: Duration, whole: Duration) -> String {
    let scale = |time: Duration| {
        let share = time.as_secs_f64() / whole.as_secs_f64().max(1e-9);
        ((share * WIDTH as f64) as usize).min(WIDTH)
    };
    let at = step.at.saturating_sub(first);
    let from = scale(at).min(WIDTH - 1);
    let to = scale(at + step.took.unwrap_or_default()).max(from + 1);
    format!("│{}{}{}│", " ".repeat(from), "━".repeat(to - from), " ".repeat(WIDTH - to))
}

fn name(step: &Step) -> String {
    match step.tool.char_indices().nth(NAME) {
        Some((end, _)) => format!("{}…", &step.tool[..end]),
        None => step.tool.clone(),
    }
}

/// `0.4 ms`, `12 ms`, `1.25 s`
pub(crate) fn time(time: Duration) -> String {
    match time.as_secs_f64() * 1000.0 {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 1000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.2} s", ms / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(tool: &str, at: u64, took: u64, outcome: &'static str) -> Step {
        let ms = Duration::from_millis;
        let (place, replayed) = (None, false);
        Step { tool: tool.to_owned(), at: ms(at), took: Some(ms(took)), outcome, place, replayed }
    }

    fn lines(drawn: &[StyledText]) -> Vec<String> {
        drawn.iter().map(StyledText::plain).collect()
    }

    #[test]
    fn calls_are_bars_over_the_time_of_the_run() {
        let steps = [
            step("weather.forecast", 0, 200, "ok"),
            step("weather.forecast", 0, 400, "ok"),
            step("text_stats", 200, 1, "tool_error"),
        ];
        let drawn = draw(&steps, Duration::from_millis(400));
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
        assert!(draw(&[], Duration::from_secs(1)).is_empty());
        let many: Vec<Step> = (0..50).map(|at| step("a", at, 0, "ok")).collect();
        let drawn = draw(&many, Duration::from_millis(50));
        assert_eq!(drawn.len(), 42);
        assert_eq!(drawn[41].plain(), "  … and 10 more");
    }

    #[test]
    fn a_call_longer_than_the_run_was_watched_stays_in_its_bar() {
        let drawn = draw(&[step("a", 10, 100, "ok")], Duration::ZERO);
        assert_eq!(drawn[1].plain(), "  a  │━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━│   100 ms");
    }

    #[test]
    fn what_comes_before_the_first_call_is_said_and_not_drawn() {
        let steps = [step("a", 1600, 200, "ok"), step("b", 1800, 200, "ok")];
        let drawn = draw(&steps, Duration::from_millis(2000));
        assert_eq!(
            lines(&drawn).join("\n"),
            "2 calls in 2.00 s, the first after 1.60 s\n\
             \x20 a  │━━━━━━━━━━━━━━━━                │   200 ms\n\
             \x20 b  │                ━━━━━━━━━━━━━━━━│   200 ms"
        );
    }
}
