//! The fields of results that a script reads, by its text.
//!
//! Only what is plain to see is found, see [`crate::result_flow`]. Whether such a field
//! is there is for the run to say, which has the answers.

use std::sync::Arc;

use luau_syntax::ast::{AstVisitor, Expression, ExpressionKind, IndexNameOp};
use luau_syntax::parser::{ParseOptions, ParsedSource};
use moonlark_core::sdk::Sdk;

use crate::check::script_facts::ScriptFacts;
use crate::result_flow::{ResultFlow, ResultPath, utf8_text};

/// Fields of one script that are looked at.
const MAX_FIELD_READS: usize = 2000;
/// Stack of the thread that parses: trees nest as deep as the compiler allows.
const FIELD_PARSER_STACK_BYTES: usize = 64 << 20;

/// One field of a result that the script relies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResultFieldRead {
    pub(crate) line: u32,
    /// The calls that may have given it, and the table in their results.
    pub(crate) origins: Vec<ResultPath>,
    pub(crate) field: String,
}

/// The fields of results that `script` reads as if they were there.
pub(crate) fn find_field_reads(script: &str) -> Vec<ResultFieldRead> {
    std::thread::scope(|scope| {
        let parsing = std::thread::Builder::new()
            .name("moonlark-parse".to_owned())
            .stack_size(FIELD_PARSER_STACK_BYTES)
            .spawn_scoped(scope, || parse_field_reads(script));
        parsing.ok().and_then(|thread| thread.join().ok()).unwrap_or_default()
    })
}

/// Whether a script may read a field that is not among `names`: a quick look, so that
/// most scripts are not parsed for it.
pub(crate) fn may_read_unknown_fields(script: &str, is_known: impl Fn(&str) -> bool) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    script.match_indices('.').any(|(at, _)| {
        let before = script[..at].rsplit(|it| !is_part(it)).next().unwrap_or_default();
        let after = script[at + 1..].split(|it| !is_part(it)).next().unwrap_or_default();
        let is_name = after.starts_with(|it: char| it.is_alphabetic() || it == '_');
        is_name && !NON_RESULT_GLOBALS.contains(&before) && !is_known(after)
    })
}

/// What has functions and no results.
const NON_RESULT_GLOBALS: [&str; 12] = [
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

fn parse_field_reads(script: &str) -> Vec<ResultFieldRead> {
    // Line 0 is for what the check declares.
    let text = format!("\n{script}");
    let Ok(parsed) = ParsedSource::parse(&text, ParseOptions::default()) else {
        return Vec::new();
    };
    let facts = ScriptFacts::from_block(parsed.root());
    let mut visitor =
        FieldReadVisitor { facts: &facts, flow: ResultFlow::new(&facts), reads: Vec::new() };
    parsed.root().visit(&mut visitor);
    visitor.reads
}

struct FieldReadVisitor<'x, 'a> {
    facts: &'x ScriptFacts<'a>,
    flow: ResultFlow<'x, 'a>,
    reads: Vec<ResultFieldRead>,
}

impl<'a> FieldReadVisitor<'_, 'a> {
    fn record_read(
        &mut self,
        expression: Expression<'a>,
        base: Expression<'a>,
        name: &'a [u8],
        line: u32,
    ) {
        let is_set = self.facts.assigned.contains(name);
        if is_set || self.facts.is_tested(expression) || self.reads.len() == MAX_FIELD_READS {
            return;
        }
        if let Some(origins) = self.flow.trace_results(base)
            && let Some(field) = utf8_text(name)
        {
            self.reads.push(ResultFieldRead { line, origins, field });
        }
    }
}

impl<'a> AstVisitor<'a> for FieldReadVisitor<'_, 'a> {
    fn visit_index_name_expression(&mut self, expression: Expression<'a>) -> bool {
        if let ExpressionKind::IndexName { expr, index, index_location, op, .. } = expression.kind()
            && op == IndexNameOp::Dot
        {
            self.record_read(expression, expr, index.bytes(), index_location.begin.line);
        }
        true
    }

    fn visit_index_expression(&mut self, expression: Expression<'a>) -> bool {
        if let ExpressionKind::IndexExpr { expr, index } = expression.kind()
            && let ExpressionKind::String { value, .. } = index.kind()
        {
            self.record_read(expression, expr, value.into_bytes(), index.location().begin.line);
        }
        true
    }
}

impl ResultPath {
    /// The tool that is called, and its path as messages show it.
    pub(crate) fn find_tool<'c>(
        &self,
        sdk: &'c Sdk,
    ) -> Option<(&'c Arc<moonlark_core::Tool>, String)> {
        let source = sdk.find_source(&self.source)?;
        let function = source.find_function(&self.function)?;
        Some((&function.tool, format!("sdk.{}.{}", source.name, function.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(script: &str) -> Vec<String> {
        let shown = |it: ResultFieldRead| {
            let origins = it.origins.iter().map(|at| {
                format!("{}.{} {}/{}", at.source, at.function, at.display_path(), it.field)
            });
            format!("{} {}", it.line, origins.collect::<Vec<_>>().join(" or "))
        };
        find_field_reads(script).into_iter().map(shown).collect()
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
            // Through helpers.
            (
                "local function f(r) return r.text end\nreturn f(sdk.fs.read({}))",
                vec!["1 fs.read /text"],
            ),
            (
                "local function f(r) return r.items[1] end\nreturn f(sdk.a.b({})).x",
                vec!["1 a.b /items", "2 a.b items[]/x"],
            ),
            (
                "local function f(r) return r.x end return f(sdk.a.b({})), f(sdk.c.d({}))",
                vec!["1 a.b /x or c.d /x"],
            ),
            (
                "local function get(n) return sdk.a.b({ n = n }) end\nreturn get(1).x",
                vec!["2 a.b /x"],
            ),
            (
                "local function get(n) if n then return nil end return sdk.a.b({}) end return get(1).x",
                vec!["1 a.b /x"],
            ),
            // Several at once.
            (
                "local rs = map_parallel({ 1 }, function(i) return sdk.fs.read({ n = i }) end)\nreturn rs[1].x",
                vec!["2 fs.read /x"],
            ),
            (
                "local rs, errors = map_parallel({ 1 }, function(i) return sdk.fs.read({}) end)\nfor i = 1, #rs do print(rs[i].x) end",
                vec!["2 fs.read /x"],
            ),
            (
                "map_parallel(sdk.a.b({}).list, function(it) return it.x end)",
                vec!["1 a.b /list", "1 a.b list[]/x"],
            ),
            (
                "local rs = await_all({ fs.read({}), gh.issues({}) })\nreturn rs[1].x, rs[2].y",
                vec!["2 fs.read /x", "2 gh.issues /y"],
            ),
            (
                "local r = await_all({ a = fs.read({}), b = gh.issues({}) })\nreturn r.a.x, r.b.y",
                vec!["2 fs.read /x", "2 gh.issues /y"],
            ),
            (
                "local ps = {}\nfor i = 1, 3 do table.insert(ps, fs.read({ n = i })) end\nfor _, r in await_all(ps) do print(r.x) end",
                vec!["3 fs.read /x"],
            ),
            (
                "local ps = {}\nfor i = 1, 3 do ps[i] = fs.read({ n = i }) end\nlocal rs = await_all(ps)\nreturn rs[2].x",
                vec!["4 fs.read /x"],
            ),
            (
                "local all = {}\nfor i = 1, 3 do table.insert(all, sdk.fs.read({})) end\nfor _, r in all do print(r.x) end",
                vec!["3 fs.read /x"],
            ),
            ("for _, r in sdk.a.b({}).items or {} do print(r['x']) end", vec!["1 a.b items[]/x"]),
            // Not plain to see.
            ("local function f(r) return r.x end return f(sdk.a.b({})), f({ x = 1 })", vec![]),
            ("local function f(r) return r.x end print(f) return f(sdk.a.b({}))", vec![]),
            ("local function f(r) r = r or {} return r.x end return f(sdk.a.b({}))", vec![]),
            ("local function f(r) return r.x end return pcall(f, sdk.a.b({}))", vec![]),
            (
                "local all = {} table.insert(all, sdk.a.b({})) table.insert(all, { x = 1 }) return all[1].x",
                vec![],
            ),
            ("local all = {} fill(all) table.insert(all, sdk.a.b({})) return all[1].x", vec![]),
            ("local function f(r) return f(r.x) end return f(sdk.a.b({}))", vec![]),
            // Only looked for, set by the script itself, or not plain to see.
            ("local r = sdk.fs.read({}) if r.text then return 1 end", vec![]),
            ("return sdk.fs.read({}).text or ''", vec![]),
            ("local r = sdk.fs.read({}) r.text = 1 return r.text", vec![]),
            ("local r = sdk.fs.read({}) r = {} return r.text", vec![]),
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
        assert!(!may_read_unknown_fields("return sdk.fs.read({}).content .. 'a.b'", |it| known(
            it
        ) || it
            == "b"));
        assert!(!may_read_unknown_fields("return string.format('%s', 1.5)", known));
        assert!(may_read_unknown_fields("return sdk.fs.read({}).text", known));
    }
}
