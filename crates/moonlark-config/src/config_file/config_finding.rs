//! Problems while their place is still an offset, and from there to line and column.

use moonlark_core::problem::{Problem, SourceLocation};

/// A problem and the byte of the text it is about, where there is one.
#[derive(Debug)]
pub(super) struct ConfigFinding {
    pub(super) offset: Option<usize>,
    pub(super) problem: Problem,
}

impl ConfigFinding {
    pub(super) fn at_offset(offset: usize, problem: Problem) -> Self {
        Self { offset: Some(offset), problem }
    }
}

/// The problems in the order of the text, each with its place in `file`.
///
/// One sweep over the text serves all of them: a hostile file can hold a hundred
/// thousand mistakes on one line.
pub(super) fn locate_findings(
    mut findings: Vec<ConfigFinding>,
    file: &str,
    text: &str,
) -> Vec<Problem> {
    findings.sort_by_key(|finding| finding.offset);

    let (mut seen, mut line, mut column) = (0, 1, 1);
    let mut locate = |offset: usize| {
        for c in text.get(seen..offset).unwrap_or_default().chars() {
            (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        seen = offset;
        SourceLocation::at_column(file, line, column)
    };
    let placed = |finding: ConfigFinding| {
        let place = finding.offset.map_or_else(|| SourceLocation::in_file(file), &mut locate);
        finding.problem.at_location(place)
    };
    findings.into_iter().map(placed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_come_in_the_order_of_the_text_with_columns_in_characters() {
        let text = "höhe = 1\r\n\n  größe = 2";
        let findings = [(text.len(), "end"), (7, "equals"), (0, "start"), (text.len(), "end too")]
            .map(|(offset, message)| ConfigFinding::at_offset(offset, Problem::bad_config(message)))
            .into_iter()
            .chain([ConfigFinding { offset: None, problem: Problem::bad_config("nowhere") }])
            .collect();
        let lines: Vec<String> =
            locate_findings(findings, "x", text).iter().map(Problem::to_line).collect();
        assert_eq!(
            lines,
            ["x: nowhere", "x:1:1: start", "x:1:7: equals", "x:3:12: end", "x:3:12: end too"]
        );
    }
}
