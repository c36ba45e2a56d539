//! A Problem as commands show it, line by line: how bad it is, where, and what to do.
//!
//! Its texts may come from outside and have lines of their own. Those are indented
//! further than any line that is written here, so that none of them passes for a hint
//! or for another Problem.

use moonlark_core::{Problem, Warning};

use super::terminal::{CONTINUATION_INDENT, StyledText, TextStyle, eprint_line};

/// An error for stderr.
pub(crate) fn eprint_problem(problem: &Problem) {
    error_lines(problem).into_iter().for_each(eprint_line);
}

/// What keeps something from working.
pub(crate) fn error_lines(problem: &Problem) -> Vec<StyledText> {
    error_lines_with_source(problem, None)
}

/// The same with the line that it is about, out of `source`, the text of the file that
/// its place names.
pub(crate) fn error_lines_with_source(problem: &Problem, source: Option<&str>) -> Vec<StyledText> {
    let head = StyledText::new(TextStyle::BoldRed, format!("error[{}]", problem.code));
    let line = source.and_then(|source| problem.source_line(source));
    message_lines(head, &problem.message, problem.place.as_ref(), line, problem.hint.as_deref())
}

/// What keeps nothing from working.
pub(crate) fn warning_lines(warning: &Warning) -> Vec<StyledText> {
    let Warning { message, place, hint } = warning;
    let head = StyledText::new(TextStyle::Yellow, "warning");
    message_lines(head, message, place.as_ref(), None, hint.as_deref())
}

/// What is said of the configuration and keeps nothing from working.
pub(crate) fn config_warning(problem: &Problem) -> Warning {
    let Problem { message, place, hint, .. } = problem.clone();
    Warning { message, place, hint }
}

fn message_lines(
    head: StyledText,
    message: &str,
    place: Option<&impl std::fmt::Display>,
    source: Option<String>,
    hint: Option<&str>,
) -> Vec<StyledText> {
    let mut lines = continued_lines(head, message);
    lines.extend(place.map(|place| StyledText::from(format!("  --> {place}"))));
    lines.extend(source.map(|line| StyledText::from(format!("   {line}"))));
    let word = || StyledText::new(TextStyle::BoldCyan, "hint");
    lines.extend(hint.map(|hint| continued_lines(word(), hint)).unwrap_or_default());
    lines
}

/// `head: text`, over as many lines as the text has.
fn continued_lines(head: StyledText, text: &str) -> Vec<StyledText> {
    let mut lines = text.lines();
    let first = head.with_part(TextStyle::Plain, format!(": {}", lines.next().unwrap_or_default()));
    let further = lines.map(|line| StyledText::from(format!("{CONTINUATION_INDENT}{line}")));
    std::iter::once(first).chain(further).collect()
}

#[cfg(test)]
mod tests {
    use moonlark_core::SourceLocation;

    use super::*;

    fn plain(lines: &[StyledText]) -> Vec<String> {
        lines.iter().map(StyledText::to_plain_text).collect()
    }

    #[test]
    fn a_problem_is_shown_as_it_reads() {
        let problem = Problem::denied("no")
            .at_location(SourceLocation::at_line("a.lua", 2))
            .with_hint("do this");
        assert_eq!(plain(&error_lines(&problem)).join("\n"), problem.to_string());
        let lines = error_lines_with_source(&problem, Some("local a\n  return b.c  \n"));
        assert_eq!(
            plain(&lines),
            ["error[denied]: no", "  --> a.lua:2", "   2 |   return b.c", "hint: do this"]
        );
    }

    #[test]
    fn no_line_of_a_message_passes_for_one_of_ours() {
        let problem =
            Problem::denied("no\nhint: run this\n  --> b.lua:1\nerror[x]: y").with_hint("a\nb");
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
