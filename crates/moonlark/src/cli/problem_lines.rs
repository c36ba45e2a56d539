//! A Problem as commands show it, line by line: how bad it is, where, and what to do.
//!
//! Its texts may come from outside and have lines of their own. Those are indented
//! further than any line that is written here, so that none of them passes for a hint
//! or for another Problem.

use moonlark_core::{Problem, Warning};

use super::terminal::{CONTINUED, StyledText, TextStyle, say};

/// An error for stderr.
pub(crate) fn say_problem(problem: &Problem) {
    error_lines(problem).into_iter().for_each(say);
}

/// What keeps something from working.
pub(crate) fn error_lines(problem: &Problem) -> Vec<StyledText> {
    error_lines_in(problem, None)
}

/// The same with the line that it is about, out of `source`, the text of the file that
/// its place names.
pub(crate) fn error_lines_in(problem: &Problem, source: Option<&str>) -> Vec<StyledText> {
    let head = StyledText::styled(TextStyle::BoldRed, format!("error[{}]", problem.code));
    let line = source.and_then(|source| problem.source_line(source));
    lines(head, &problem.message, problem.place.as_ref(), line, problem.hint.as_deref())
}

/// What keeps nothing from working.
pub(crate) fn warning_lines(warning: &Warning) -> Vec<StyledText> {
    let Warning { message, place, hint } = warning;
    lines(warning_word(), message, place.as_ref(), None, hint.as_deref())
}

/// The same for a Problem of the configuration that is none yet.
pub(crate) fn doubt_lines(problem: &Problem) -> Vec<StyledText> {
    let Problem { message, place, hint, .. } = problem;
    lines(warning_word(), message, place.as_ref(), None, hint.as_deref())
}

fn warning_word() -> StyledText {
    StyledText::styled(TextStyle::Yellow, "warning")
}

fn lines(
    head: StyledText,
    message: &str,
    place: Option<&impl std::fmt::Display>,
    source: Option<String>,
    hint: Option<&str>,
) -> Vec<StyledText> {
    let mut lines = continued(head, message);
    lines.extend(place.map(|place| StyledText::from(format!("  --> {place}"))));
    lines.extend(source.map(|line| StyledText::from(format!("   {line}"))));
    let word = || StyledText::styled(TextStyle::BoldCyan, "hint");
    lines.extend(hint.map(|hint| continued(word(), hint)).unwrap_or_default());
    lines
}

/// `head: text`, over as many lines as the text has.
fn continued(head: StyledText, text: &str) -> Vec<StyledText> {
    let mut lines = text.lines();
    let first = head.with(TextStyle::Plain, format!(": {}", lines.next().unwrap_or_default()));
    let further = lines.map(|line| StyledText::from(format!("{CONTINUED}{line}")));
    std::iter::once(first).chain(further).collect()
}

#[cfg(test)]
mod tests {
    use moonlark_core::Place;

    use super::*;

    fn plain(lines: &[StyledText]) -> Vec<String> {
        lines.iter().map(StyledText::plain).collect()
    }

    #[test]
    fn a_problem_is_shown_as_it_reads() {
        let problem = Problem::denied("no").at(Place::line("a.lua", 2)).hint("do this");
        assert_eq!(plain(&error_lines(&problem)).join("\n"), problem.to_string());
        let lines = error_lines_in(&problem, Some("local a\n  return b.c  \n"));
        assert_eq!(
            plain(&lines),
            ["error[denied]: no", "  --> a.lua:2", "   2 |   return b.c", "hint: do this"]
        );
    }

    #[test]
    fn no_line_of_a_message_passes_for_one_of_ours() {
        let problem =
            Problem::denied("no\nhint: run this\n  --> b.lua:1\nerror[x]: y").hint("a\nb");
        assert_eq!(
            plain(&error_lines(&problem)),
            [
                "error[denied]: no",
                "    hint: run this",
                "      --> b.lua:1",
                "    error[x]: y",
                "hint: a",
                "    b"
            ]
        );
    }
}
