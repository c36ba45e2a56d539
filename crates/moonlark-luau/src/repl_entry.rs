//! Definitions of a REPL entry, so that later entries can have them.
//!
//! Every entry of `moonlark repl` is a script of its own. Variables that hold values
//! are carried over as values; functions, and names for parts of `sdk`, as the text
//! that defines them.

use std::ops::Range;

use luau_syntax::ast::{Block, Expression, ExpressionKind, Statement};
use luau_syntax::location::{Location, Position};
use luau_syntax::parser::{ParseOptions, ParsedSource};

/// What an entry defines at its top level, and whether it ends with `return`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ParsedReplEntry {
    pub defined: Vec<ReplDefinition>,
    /// Where the last statement is, if it is a `return`, and where its values are.
    pub returned: Option<(Range<usize>, Range<usize>)>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct ReplDefinition {
    pub name: String,
    /// The text that defines it, if that is all there is to it.
    pub definition: Option<String>,
}

impl ParsedReplEntry {
    /// Read an entry; none if it is no script.
    pub fn parse(text: &str) -> Option<ParsedReplEntry> {
        let parsed = ParsedSource::parse(text, ParseOptions::default()).ok()?;
        if !parsed.metadata().errors.is_empty() {
            return None;
        }
        let mut entry = ParsedReplEntry::default();
        let offsets = LineOffsets::from_text(text);
        let root: Block<'_> = parsed.root();
        for statement in root.as_slice() {
            entry.add_statement(*statement, text, &offsets);
        }
        let last = root.as_slice().last().copied();
        if let Some(last) = last
            && let Some(returned) = last.as_return()
        {
            let whole = offsets.to_range(last.location());
            let first =
                returned.expressions.first().map(|it| offsets.to_range(it.location()).start);
            let end = returned.expressions.last().map(|it| offsets.to_range(it.location()).end);
            let values = first.zip(end).map_or(whole.end..whole.end, |(first, end)| first..end);
            entry.returned = Some((whole.start..text.len(), values));
        }
        Some(entry)
    }

    fn add_statement(&mut self, statement: Statement<'_>, text: &str, offsets: &LineOffsets) {
        let definition = || text.get(offsets.to_range(statement.location())).map(str::to_owned);
        if let Some(it) = statement.as_local() {
            let one = it.bindings.len() == 1 && it.values.len() == 1;
            let by_text = one && it.values.first().is_some_and(|value| is_reference(*value));
            for local in it.bindings {
                self.define_name(local.name.bytes(), definition().filter(|_| by_text));
            }
        } else if let Some(it) = statement.as_local_function() {
            self.define_name(it.name.name.bytes(), definition());
        } else if let Some(it) = statement.as_function_declaration() {
            if let ExpressionKind::Global(name) = it.name.kind() {
                self.define_name(name.bytes(), definition());
            }
        } else if let Some(it) = statement.as_assign() {
            for target in it.vars {
                if let ExpressionKind::Global(name) = target.kind() {
                    self.define_name(name.bytes(), None);
                }
            }
        } else if let Some(it) = statement.as_compound_assign()
            && let ExpressionKind::Global(name) = it.var.kind()
        {
            self.define_name(name.bytes(), None);
        }
    }

    fn define_name(&mut self, name: &[u8], definition: Option<String>) {
        let Ok(name) = std::str::from_utf8(name) else { return };
        self.defined.retain(|it| it.name != name);
        self.defined.push(ReplDefinition { name: name.to_owned(), definition });
    }
}

/// A function, or a name for something that is always there: `sdk.files`.
fn is_reference(value: Expression<'_>) -> bool {
    match value.kind() {
        ExpressionKind::FunctionLiteral(_) | ExpressionKind::Global(_) => true,
        ExpressionKind::IndexName { expr, .. } => {
            is_reference(expr) && !matches!(expr.kind(), ExpressionKind::FunctionLiteral(_))
        }
        _ => false,
    }
}

/// Where the lines of a text begin.
struct LineOffsets(Vec<usize>, usize);

impl LineOffsets {
    fn from_text(text: &str) -> LineOffsets {
        let after = text.match_indices('\n').map(|(at, _)| at + 1);
        LineOffsets(std::iter::once(0).chain(after).collect(), text.len())
    }

    fn to_offset(&self, position: Position) -> usize {
        let line = self.0.get(position.line as usize).copied().unwrap_or(self.1);
        (line + position.column as usize).min(self.1)
    }

    fn to_range(&self, location: Location) -> Range<usize> {
        self.to_offset(location.begin)..self.to_offset(location.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defined(text: &str) -> Vec<(String, Option<String>)> {
        let entry = ParsedReplEntry::parse(text).unwrap();
        entry.defined.into_iter().map(|it| (it.name, it.definition)).collect()
    }

    #[test]
    fn values_are_told_from_what_is_defined_by_its_text() {
        let value = |name: &str| (name.to_owned(), None);
        let text = |name: &str, text: &str| (name.to_owned(), Some(text.to_owned()));
        for (entry, expected) in [
            ("local x = 5", vec![value("x")]),
            ("local a, b = f()", vec![value("a"), value("b")]),
            ("x = 1 x += 2", vec![value("x")]),
            ("local fs = sdk.fs", vec![text("fs", "local fs = sdk.fs")]),
            (
                "local function f(n)\n  return n\nend",
                vec![text("f", "local function f(n)\n  return n\nend")],
            ),
            ("function f() end", vec![text("f", "function f() end")]),
            ("local f = function() end", vec![text("f", "local f = function() end")]),
            ("for i = 1, 2 do local y = i end", vec![]),
            ("t.a = 1", vec![]),
        ] {
            assert_eq!(defined(entry), expected, "{entry}");
        }
    }

    #[test]
    fn the_values_that_an_entry_returns_are_found() {
        for (entry, expected) in [
            ("local a = 1\nreturn a, 2", Some(("return a, 2", "a, 2"))),
            ("return", Some(("return", ""))),
            ("return f(1);", Some(("return f(1);", "f(1)"))),
            ("if x then return 1 end", None),
            ("print(1)", None),
        ] {
            let returned = ParsedReplEntry::parse(entry).unwrap().returned;
            let found = returned.map(|(whole, values)| (&entry[whole], &entry[values]));
            assert_eq!(found, expected, "{entry}");
        }
        assert_eq!(ParsedReplEntry::parse("local = 1"), None);
    }
}
