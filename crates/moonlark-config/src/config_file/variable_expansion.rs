//! Variable expansion in one string.
//!
//! One pass, left to right: what a variable holds is never scanned, so a value
//! from outside cannot reach for another variable.

use super::value_sources::{FILE_REFERENCE_PREFIX, ValueSources, VariableUse};

#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct ExpandedText {
    pub(super) text: String,
    /// Each variable that was named and what stands in its place.
    pub(super) variables: Vec<VariableUse>,
}

/// Why a string cannot be expanded. It never holds a part of the string but the
/// name of a variable, since the rest may be secret.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExpansionFault {
    Missing(String),
    /// Of `${file:PATH}`: the path, and why there is no value.
    UnreadableFile {
        path: String,
        why: String,
    },
    Unterminated,
    NotAName,
    NestedDefault(String),
}

impl ExpansionFault {
    /// The text is right, and would have a value on another machine or another day.
    pub(super) fn is_absence(&self) -> bool {
        matches!(self, ExpansionFault::Missing(_) | ExpansionFault::UnreadableFile { .. })
    }
}

pub(super) fn expand_variables(
    text: &str,
    values: &ValueSources<'_>,
) -> Result<ExpandedText, Vec<ExpansionFault>> {
    let mut expanded = ExpandedText::default();
    let mut faults = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, after) = (&rest[..start], &rest[start + 2..]);
        if let Some(before) = before.strip_suffix('$') {
            expanded.text.push_str(before);
            expanded.text.push_str("${");
            rest = after;
            continue;
        }
        expanded.text.push_str(before);
        let Some(end) = after.find('}') else {
            faults.push(ExpansionFault::Unterminated);
            rest = "";
            break;
        };
        match resolve_placeholder(&after[..end], values) {
            Ok(variable) => {
                expanded.text.push_str(&variable.value);
                expanded.variables.push(variable);
            }
            Err(fault) => faults.push(fault),
        }
        rest = &after[end + 1..];
    }
    expanded.text.push_str(rest);
    if faults.is_empty() { Ok(expanded) } else { Err(faults) }
}

/// What stands between the braces: `NAME` or `file:PATH`, and perhaps `:-default`.
fn resolve_placeholder(
    inside: &str,
    values: &ValueSources<'_>,
) -> Result<VariableUse, ExpansionFault> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let file = name.strip_prefix(FILE_REFERENCE_PREFIX).filter(|path| !path.is_empty());
    if file.is_none() && !is_variable_name(name) {
        return Err(ExpansionFault::NotAName);
    }
    // The first brace ended it, so `${A:-${B}}` would quietly mean `${B` and `}`.
    if default.is_some_and(|default| default.contains("${")) {
        return Err(ExpansionFault::NestedDefault(name.to_owned()));
    }
    let found = match file {
        Some(path) => values.read_file_value(path).map_err(|why| {
            let path = path.to_owned();
            ExpansionFault::UnreadableFile { path, why }
        }),
        None => values.find_variable(name).ok_or_else(|| ExpansionFault::Missing(name.to_owned())),
    };
    match (found, default) {
        (Err(_), Some(default)) => Ok(VariableUse::from_default(name, default)),
        (found, _) => found,
    }
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use moonlark_state::secrets_file::SecretsFile;

    fn env(name: &str) -> Option<String> {
        let value = match name {
            "A" => "${B}",
            "B" => "bee",
            "EMPTY" => "",
            "BRACE" => "}",
            _ => return None,
        };
        Some(value.to_owned())
    }

    fn values() -> ValueSources<'static> {
        ValueSources::new(&env, SecretsFile::default(), Path::new("/nonexistent"))
    }

    fn check(text: &str, expected: &str) {
        assert_eq!(
            expand_variables(text, &values()).map(|e| e.text),
            Ok(expected.to_owned()),
            "{text}"
        );
    }

    fn check_faults(text: &str, expected: &[ExpansionFault]) {
        assert_eq!(expand_variables(text, &values()).unwrap_err(), expected, "{text}");
    }

    #[test]
    fn variables_expand_once() {
        check("", "");
        check("plain", "plain");
        check("${B}", "bee");
        check("<${B}|${B}>", "<bee|bee>");
        check("${A}", "${B}");
        check("${A}}", "${B}}");
        check("${EMPTY}", "");
        check("${BRACE}${B}", "}bee");
        check("größe ${B} ü", "größe bee ü");
    }

    #[test]
    fn a_default_stands_in_for_a_variable_that_is_not_set() {
        check("${NONE:-x}", "x");
        check("${NONE:-}", "");
        check("${NONE:-a:-b}", "a:-b");
        check("${B:-x}", "bee");
        check("${EMPTY:-x}", "");
    }

    #[test]
    fn doubled_dollars_give_a_literal_brace() {
        check("$${B}", "${B}");
        check("$$${B}", "$${B}");
        check("$${", "${");
        check("$${${B}", "${bee");
        check("a $ b $$ c {d}", "a $ b $$ c {d}");
        check("$", "$");
    }

    #[test]
    fn every_fault_of_a_string_is_found() {
        check_faults("${NONE}", &[ExpansionFault::Missing("NONE".into())]);
        check_faults(
            "${X} ${Y}",
            &[ExpansionFault::Missing("X".into()), ExpansionFault::Missing("Y".into())],
        );
        check_faults("${B", &[ExpansionFault::Unterminated]);
        check_faults("${", &[ExpansionFault::Unterminated]);
        check_faults(
            "${NONE} ${",
            &[ExpansionFault::Missing("NONE".into()), ExpansionFault::Unterminated],
        );
        check_faults("${}", &[ExpansionFault::NotAName]);
        check_faults("${1}", &[ExpansionFault::NotAName]);
        check_faults("${a b}", &[ExpansionFault::NotAName]);
        check_faults("${:-x}", &[ExpansionFault::NotAName]);
        check_faults("${A:x}", &[ExpansionFault::NotAName]);
        check_faults("${A=B}", &[ExpansionFault::NotAName]);
        check_faults("${X:-${B}}", &[ExpansionFault::NestedDefault("X".into())]);
        check_faults("${file:}", &[ExpansionFault::NotAName]);
        let (path, why) = ("none".to_owned(), "there is no such file".to_owned());
        check_faults("${file:none}", &[ExpansionFault::UnreadableFile { path, why }]);
    }

    #[test]
    fn the_variables_are_remembered_with_what_they_gave() {
        let expanded = expand_variables("${B} $${A} ${NONE:-x}", &values()).unwrap();
        assert_eq!(expanded.text, "bee ${A} x");
        let variables: Vec<(&str, &str)> =
            expanded.variables.iter().map(|it| (it.name.as_str(), it.value.as_str())).collect();
        assert_eq!(variables, [("B", "bee"), ("NONE", "x")]);
    }
}
