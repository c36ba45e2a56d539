//! The fields of results that a script reads, by its text.
//!
//! Only what is plain to see is found: a field of what a call gave, of one of its
//! fields, of the items of its lists, through locals that are never changed. Whether
//! such a field is there is for the run to say, which has the answers.

use std::sync::Arc;

use luau_syntax::ast::{AstVisitor, Block, Expression, ExpressionKind, IndexNameOp};
use luau_syntax::parser::{ParseOptions, ParsedSource};
use moonlark_core::sdk::Sdk;

use crate::check::facts::{Facts, Origin};

/// Steps that are followed from a field back to the call.
const MAX_STEPS: usize = 12;
/// Stack of the thread that parses: trees nest as deep as the compiler allows.
const PARSER_STACK_BYTES: usize = 64 << 20;

/// One field of a result that the script relies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResultFieldRead {
    pub(crate) line: u32,
    /// As the script names them; the source may be known under another name.
    pub(crate) source: String,
    pub(crate) function: String,
    /// From the result to the table that is read.
    pub(crate) path: Vec<ResultStep>,
    pub(crate) field: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResultStep {
    Field(String),
    Item,
}

/// A call, and the way from its result to some value.
struct ResultPath {
    source: String,
    function: String,
    path: Vec<ResultStep>,
}

/// The fields of results that `script` reads as if they were there.
pub(crate) fn read_fields(script: &str) -> Vec<ResultFieldRead> {
    std::thread::scope(|scope| {
        let parsing = std::thread::Builder::new()
            .name("moonlark-parse".to_owned())
            .stack_size(PARSER_STACK_BYTES)
            .spawn_scoped(scope, || parse(script));
        parsing.ok().and_then(|thread| thread.join().ok()).unwrap_or_default()
    })
}

/// Whether a script may read a field that is not among `names`: a quick look, so that
/// most scripts are not parsed for it.
pub(crate) fn may_read_others(script: &str, is_known: impl Fn(&str) -> bool) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    script.match_indices('.').any(|(at, _)| {
        let before = script[..at].rsplit(|it| !is_part(it)).next().unwrap_or_default();
        let after = script[at + 1..].split(|it| !is_part(it)).next().unwrap_or_default();
        let is_name = after.starts_with(|it: char| it.is_alphabetic() || it == '_');
        is_name && !LIBRARIES.contains(&before) && !is_known(after)
    })
}

/// What has functions and no results.
const LIBRARIES: [&str; 12] = [
    "sdk",
    "string",
    "table",
    "math",
    "json",
    "os",
    "coroutine",
    "bit32",
    "utf8",
    "buffer",
    "log",
    "time",
];

fn parse(script: &str) -> Vec<ResultFieldRead> {
    let Ok(parsed) = ParsedSource::parse(script, ParseOptions::default()) else {
        return Vec::new();
    };
    let facts = Facts::of(parsed.root());
    let mut visitor = FieldVisitor { facts: &facts, reads: Vec::new() };
    parsed.root().visit(&mut visitor);
    visitor.reads
}

struct FieldVisitor<'x, 'a> {
    facts: &'x Facts<'a>,
    reads: Vec<ResultFieldRead>,
}

impl<'a> FieldVisitor<'_, 'a> {
    /// The call that a value comes from, if that is plain to see.
    fn trace(&self, expression: Expression<'a>, left: usize) -> Option<ResultPath> {
        let left = left.checked_sub(1)?;
        match expression.kind() {
            ExpressionKind::Grouped(inner) => self.trace(inner, left),
            ExpressionKind::Local { local, .. } => match self.facts.origin(local) {
                Origin::Value(value) => self.trace(value, left),
                Origin::Each(over) => self.trace_items(over, left),
                _ => None,
            },
            ExpressionKind::IndexName { expr, index, op: IndexNameOp::Dot, .. } => {
                let mut traced = self.trace(expr, left)?;
                traced.path.push(ResultStep::Field(text(index.bytes())?));
                Some(traced)
            }
            ExpressionKind::IndexExpr { expr, index } => {
                let mut traced = self.trace(expr, left)?;
                traced.path.push(match index.kind() {
                    ExpressionKind::String { value, .. } => {
                        ResultStep::Field(text(value.into_bytes())?)
                    }
                    ExpressionKind::Number { .. } => ResultStep::Item,
                    ExpressionKind::Local { local, .. }
                        if matches!(self.facts.origin(local), Origin::Counter) =>
                    {
                        ResultStep::Item
                    }
                    _ => return None,
                });
                Some(traced)
            }
            ExpressionKind::Call { func, args, .. } => self.trace_call(func, args, left),
            _ => None,
        }
    }

    fn trace_call(
        &self,
        func: Expression<'a>,
        args: &[Expression<'a>],
        left: usize,
    ) -> Option<ResultPath> {
        // `source.fn(…):await()`
        if let ExpressionKind::IndexName { expr, index, op: IndexNameOp::Colon, .. } = func.kind()
            && index.bytes() == b"await"
        {
            let promise = self.seen_through(expr);
            let ExpressionKind::Call { func, .. } = promise.kind() else { return None };
            return self.named(func, false);
        }
        if let ExpressionKind::Global(name) = func.kind()
            && name.bytes() == b"map_parallel"
        {
            return self.trace_each(args.get(1).copied()?, left);
        }
        self.named(func, true)
    }

    /// What a function gives for each item, as one of a list.
    fn trace_each(&self, function: Expression<'a>, left: usize) -> Option<ResultPath> {
        let literal = self.seen_through(function);
        let ExpressionKind::FunctionLiteral(function) = literal.kind() else { return None };
        let returned = last_return(function.body)?;
        let mut traced = self.trace(returned, left)?;
        // The list is not the tool's: from here on it is as if it were its item.
        traced.path.push(ResultStep::Field(String::new()));
        Some(traced)
    }

    fn trace_items(&self, over: Expression<'a>, left: usize) -> Option<ResultPath> {
        let list = match over.kind() {
            ExpressionKind::Call { func, args, .. } if matches!(func.kind(), ExpressionKind::Global(name) if matches!(name.bytes(), b"ipairs" | b"pairs")) => {
                args.first().copied()?
            }
            _ => over,
        };
        let mut traced = self.trace(list, left)?;
        if traced.path.last() == Some(&ResultStep::Field(String::new())) {
            traced.path.pop();
        } else {
            traced.path.push(ResultStep::Item);
        }
        Some(traced)
    }

    /// `sdk.source.function`, or without `sdk`.
    fn named(&self, func: Expression<'a>, under_sdk: bool) -> Option<ResultPath> {
        let (base, function) = field_of(self.seen_through(func))?;
        let base = self.seen_through(base);
        let source = if under_sdk {
            let (sdk, source) = field_of(base)?;
            let is_sdk = matches!(self.seen_through(sdk).kind(), ExpressionKind::Global(name) if name.bytes() == b"sdk");
            is_sdk.then_some(source)?
        } else {
            let ExpressionKind::Global(name) = base.kind() else { return None };
            text(name.bytes())?
        };
        Some(ResultPath { source, function, path: Vec::new() })
    }

    fn seen_through(&self, mut expression: Expression<'a>) -> Expression<'a> {
        for _ in 0..MAX_STEPS {
            expression = match expression.kind() {
                ExpressionKind::Grouped(inner) => inner,
                ExpressionKind::Local { local, .. } => match self.facts.origin(local) {
                    Origin::Value(value) => value,
                    _ => return expression,
                },
                _ => return expression,
            };
        }
        expression
    }
}

impl<'a> AstVisitor<'a> for FieldVisitor<'_, 'a> {
    fn visit_index_name_expression(&mut self, expression: Expression<'a>) -> bool {
        let ExpressionKind::IndexName { expr, index, index_location, op, .. } = expression.kind()
        else {
            return true;
        };
        let is_set = self.facts.assigned.contains(index.bytes());
        if op == IndexNameOp::Colon || is_set || self.facts.is_tested(expression) {
            return true;
        }
        if let Some(ResultPath { source, function, path }) = self.trace(expr, MAX_STEPS)
            && let Some(field) = text(index.bytes())
        {
            let line = index_location.begin.line + 1;
            self.reads.push(ResultFieldRead { line, source, function, path, field });
        }
        true
    }
}

fn field_of(expression: Expression<'_>) -> Option<(Expression<'_>, String)> {
    match expression.kind() {
        ExpressionKind::IndexName { expr, index, .. } => Some((expr, text(index.bytes())?)),
        ExpressionKind::IndexExpr { expr, index } => match index.kind() {
            ExpressionKind::String { value, .. } => Some((expr, text(value.into_bytes())?)),
            _ => None,
        },
        _ => None,
    }
}

fn last_return(body: Block<'_>) -> Option<Expression<'_>> {
    let last = body.as_slice().last().copied()?;
    last.as_return()?.expressions.first().copied()
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

impl ResultFieldRead {
    /// The tool that is called, by its full name, and the path as messages show it.
    pub(crate) fn tool<'c>(&self, sdk: &'c Sdk) -> Option<(&'c Arc<moonlark_core::Tool>, String)> {
        let source = sdk.source(&self.source)?;
        let function = source.function(&self.function)?;
        Some((&function.tool, format!("sdk.{}.{}", source.name, function.name)))
    }

    /// `items[].user`, for messages; empty at the top.
    pub(crate) fn place(&self) -> String {
        let mut place = String::new();
        for step in &self.path {
            match step {
                ResultStep::Item => place.push_str("[]"),
                ResultStep::Field(name) if place.is_empty() => place.push_str(name),
                ResultStep::Field(name) => place.push_str(&format!(".{name}")),
            }
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(script: &str) -> Vec<String> {
        let shown = |it: ResultFieldRead| {
            format!("{} {}.{} {}/{}", it.line, it.source, it.function, it.place(), it.field)
        };
        read_fields(script).into_iter().map(shown).collect()
    }

    #[test]
    fn fields_are_traced_to_the_call_that_gave_them() {
        for (script, expected) in [
            ("return sdk.fs.read({}).text", vec!["1 fs.read /text"]),
            ("local r = sdk.fs.read({})\nreturn r.text", vec!["2 fs.read /text"]),
            ("return fs.read({}):await().text", vec!["1 fs.read /text"]),
            ("local p = fs.read({})\nlocal r = p:await()\nreturn r.text", vec!["3 fs.read /text"]),
            ("local fs = sdk.fs\nreturn fs.read({}).text", vec!["2 fs.read /text"]),
            ("return sdk['data-server']['read-file']({}).x", vec!["1 data-server.read-file /x"]),
            (
                "for _, i in sdk.gh.issues({}).items do print(i.user.name) end",
                vec![
                    "1 gh.issues /items",
                    "1 gh.issues items[].user/name",
                    "1 gh.issues items[]/user",
                ],
            ),
            ("for _, i in ipairs(sdk.gh.issues({})) do print(i.x) end", vec!["1 gh.issues []/x"]),
            (
                "for _, r in map_parallel({ 1 }, function(i) return sdk.fs.read({ n = i }) end) do print(r.content) end",
                vec!["1 fs.read /content"],
            ),
            ("return sdk.gh.issues({})[1].title", vec!["1 gh.issues []/title"]),
            // Only looked for, set by the script itself, or not plain to see.
            ("local r = sdk.fs.read({}) if r.text then return 1 end", vec![]),
            ("return sdk.fs.read({}).text or ''", vec![]),
            ("local r = sdk.fs.read({}) r.text = 1 return r.text", vec![]),
            ("local r = sdk.fs.read({}) r = {} return r.text", vec![]),
            ("local function f(r) return r.text end return f(sdk.fs.read({}))", vec![]),
            ("return json.decode(sdk.fs.read({})).text", vec![]),
            ("return r:upper()", vec![]),
        ] {
            let mut found = reads(script);
            found.sort();
            assert_eq!(found, expected, "{script}");
        }
    }

    #[test]
    fn a_script_is_only_parsed_where_a_name_is_not_known() {
        let known = |name: &str| ["content", "read"].contains(&name);
        assert!(!may_read_others("return sdk.fs.read({}).content .. 'a.b'", |it| known(it)
            || it == "b"));
        assert!(!may_read_others("return string.format('%s', 1.5)", known));
        assert!(may_read_others("return sdk.fs.read({}).text", known));
    }
}
