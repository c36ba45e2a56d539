//! Field reads: the fields of results that a script reads, by its text.
//!
//! Only what is plain to see is found, see [`crate::result_flow`]. Whether such a field
//! is there is for the run to say, which has the answers.

use std::collections::{HashMap, HashSet};

use luau_syntax::ast::{AstVisitor, Block, Expression, ExpressionKind, UnaryOp};
use luau_syntax::parser::{ParseOptions, ParsedSource};
use moonlark_core::Tool;
use moonlark_core::sdk::{Sdk, SdkFunction, SdkSource};

use crate::check::script_facts::{ScriptFacts, as_field_access, global_name};
use crate::check::tested_values::{OperandRole, TestedOperand};
use crate::result_flow::{ResultFlow, ResultPath};

/// Fields of one script that are looked at, and uses of results as lists.
const MAX_FIELD_READS: usize = 2000;
/// Stack of the thread that parses.
const PARSER_STACK_BYTES: usize = 64 << 20;

/// What a script reads of results.
#[derive(Debug, Default)]
pub(crate) struct ScriptReads {
    pub(crate) fields: Vec<ResultFieldRead>,
    pub(crate) lists: Vec<ResultListUse>,
    /// The names of all fields that it reads, of whatever table.
    pub(crate) names: HashSet<String>,
}

/// One field of a result that the script reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResultFieldRead {
    pub(crate) line: u32,
    /// The calls that may have given it, and the table in their results.
    pub(crate) origins: Vec<ResultPath>,
    pub(crate) field: String,
    /// None where the script relies on it.
    pub(crate) test: Option<TestedOperand>,
}

/// A part of a result that the script takes for a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResultListUse {
    pub(crate) line: u32,
    pub(crate) origins: Vec<ResultPath>,
    pub(crate) operation: ListOperation,
    /// The length is compared: it may be asked whether this is a list at all.
    pub(crate) is_compared: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListOperation {
    Length,
    Ipairs,
}

impl ListOperation {
    /// What it does with an object, for messages.
    pub(crate) fn describe_for_object(self) -> &'static str {
        match self {
            ListOperation::Length => "# gives 0",
            ListOperation::Ipairs => "ipairs finds nothing in it",
        }
    }
}

/// What `script` reads of the results of its calls.
pub(crate) fn find_script_reads(script: &str) -> ScriptReads {
    // Line 0 is for what the check declares.
    parse_on_deep_stack(&format!("\n{script}"), |root, facts| {
        let flow = ResultFlow::new(facts);
        let mut visitor = FieldReadVisitor { facts, flow, reads: ScriptReads::default() };
        root.visit(&mut visitor);
        let FieldReadVisitor { flow, mut reads, .. } = visitor;
        // `r.data or r`: something of the result is taken in any case.
        let is_result = |it: &&(usize, Expression<'_>)| flow.trace_results(it.1).is_some();
        let others = facts.tests.other_alternatives().iter().take(MAX_FIELD_READS);
        let settled: HashSet<usize> = others.filter(is_result).map(|it| it.0).collect();
        reads.fields.retain(|read| read.test.is_none_or(|test| !settled.contains(&test.group)));
        reads.mark_guarded_reads();
        reads.names = facts.read_fields().map(str::to_owned).collect();
        reads
    })
}

/// Look at the syntax tree of a script, with a stack for trees as deep as the compiler
/// allows. Nothing where it does not parse.
pub(crate) fn parse_on_deep_stack<T: Default + Send>(
    script: &str,
    look: impl for<'a> FnOnce(Block<'a>, &ScriptFacts<'a>) -> T + Send,
) -> T {
    let parse = || {
        let Ok(parsed) = ParsedSource::parse(script, ParseOptions::default()) else {
            return T::default();
        };
        look(parsed.root(), &ScriptFacts::from_block(parsed.root()))
    };
    std::thread::scope(|scope| {
        let parsing = std::thread::Builder::new()
            .name("moonlark-parse".to_owned())
            .stack_size(PARSER_STACK_BYTES)
            .spawn_scoped(scope, parse);
        parsing.ok().and_then(|thread| thread.join().ok()).unwrap_or_default()
    })
}

/// Whether a script may read a field of a result, or take one for a list: a quick look, so
/// that scripts which only call are not parsed for it.
pub(crate) fn may_read_results(script: &str, is_function: impl Fn(&str) -> bool) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let reads_field = script.match_indices('.').any(|(at, _)| {
        let before = script[..at].rsplit(|it| !is_part(it)).next().unwrap_or_default();
        let after = script[at + 1..].split(|it| !is_part(it)).next().unwrap_or_default();
        let is_name = after.starts_with(|it: char| it.is_alphabetic() || it == '_');
        is_name && !NON_RESULT_GLOBALS.contains(&before) && !is_function(after)
    });
    reads_field || ["[\"", "['", "#", "ipairs"].iter().any(|part| script.contains(part))
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

impl ScriptReads {
    /// `if r.note then print(r.note) end`: what the script has looked for it does not
    /// rely on.
    fn mark_guarded_reads(&mut self) {
        let mut conditions: HashMap<(Vec<ResultPath>, String), TestedOperand> = HashMap::new();
        for read in &self.fields {
            if let Some(test) = read.test
                && test.role != OperandRole::Alternative
            {
                conditions.entry((read.origins.clone(), read.field.clone())).or_insert(test);
            }
        }
        if conditions.is_empty() {
            return;
        }
        for read in self.fields.iter_mut().filter(|read| read.test.is_none()) {
            let key = (read.origins.clone(), read.field.clone());
            read.test = conditions.get(&key).copied();
        }
    }
}

struct FieldReadVisitor<'x, 'a> {
    facts: &'x ScriptFacts<'a>,
    flow: ResultFlow<'x, 'a>,
    reads: ScriptReads,
}

impl<'a> FieldReadVisitor<'_, 'a> {
    fn record_read(&mut self, expression: Expression<'a>) {
        let Some(access) = as_field_access(expression).filter(|it| !it.colon) else { return };
        let is_set = self.facts.assigned.contains(access.name);
        if is_set || self.reads.fields.len() == MAX_FIELD_READS {
            return;
        }
        if let Some(origins) = self.flow.trace_results(access.base) {
            let (line, field) = (access.location.begin.line, access.name.to_owned());
            let test = self.facts.tests.find_operand(expression);
            self.reads.fields.push(ResultFieldRead { line, origins, field, test });
        }
    }

    fn record_list_use(&mut self, value: Expression<'a>, operation: ListOperation, line: u32) {
        if self.reads.lists.len() < MAX_FIELD_READS
            && let Some(origins) = self.flow.trace_results(value)
        {
            let is_compared = self.facts.is_length_compared(value);
            self.reads.lists.push(ResultListUse { line, origins, operation, is_compared });
        }
    }
}

impl<'a> AstVisitor<'a> for FieldReadVisitor<'_, 'a> {
    fn visit_expression(&mut self, expression: Expression<'a>) -> bool {
        self.record_read(expression);
        match expression.kind() {
            ExpressionKind::Unary { op: UnaryOp::Length, rhs } => {
                let line = expression.location().begin.line;
                self.record_list_use(rhs, ListOperation::Length, line);
            }
            ExpressionKind::Call { func, args: [list, ..], .. }
                if global_name(func) == Some("ipairs") =>
            {
                let line = func.location().begin.line;
                self.record_list_use(*list, ListOperation::Ipairs, line);
            }
            _ => {}
        }
        true
    }
}

impl ResultPath {
    /// The function that is called.
    pub(crate) fn find_function<'c>(
        &self,
        sdk: &'c Sdk,
    ) -> Option<(&'c SdkSource, &'c SdkFunction)> {
        let source = sdk.find_source(&self.source)?;
        Some((source, source.find_function(&self.function)?))
    }

    /// The tool that is called, and its path as messages show it.
    pub(crate) fn find_tool<'c>(&self, sdk: &'c Sdk) -> Option<(&'c Tool, String)> {
        let (source, function) = self.find_function(sdk)?;
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
            let test = it.test.map_or("", |test| match test.role {
                OperandRole::Alternative => "?",
                OperandRole::Condition => "!",
                OperandRole::Guard => "&",
            });
            format!("{} {}{test}", it.line, origins.collect::<Vec<_>>().join(" or "))
        };
        find_script_reads(script).fields.into_iter().map(shown).collect()
    }

    /// The names of fields by group, and how each is looked at.
    fn groups(script: &str) -> Vec<String> {
        let script = format!("local r = sdk.a.b({{}})\n{script}");
        let mut groups: std::collections::BTreeMap<usize, Vec<String>> = Default::default();
        for read in find_script_reads(&script).fields {
            let Some(test) = read.test else { continue };
            let mark = match test.role {
                OperandRole::Alternative => "",
                OperandRole::Condition => "!",
                OperandRole::Guard => "&",
            };
            groups.entry(test.group).or_default().push(format!("{}{mark}", read.field));
        }
        let mut groups: Vec<String> = groups
            .into_values()
            .map(|mut names| {
                names.sort();
                names.join(" ")
            })
            .collect();
        groups.sort();
        groups
    }

    #[test]
    fn alternatives_have_one_group() {
        for (script, expected) in [
            ("return r.a or 0", vec!["a"]),
            ("return r.a or r.b or {}", vec!["a b"]),
            ("return r.a or (r.b or {})", vec!["a b"]),
            ("return r.a or r.b, r.c or 1", vec!["a b", "c"]),
            ("if r.a then end", vec!["a!"]),
            ("if r.a or r.b then end", vec!["a! b!"]),
            ("if r.a and r.b then end", vec!["a!", "b!"]),
            ("if not r.a and not r.b and r.c == nil then end", vec!["a! b! c!"]),
            ("if not r.a or not r.b then end", vec!["a!", "b!"]),
            ("if not (r.a or r.b) then end", vec!["a! b!"]),
            ("if r.a then elseif r.b then elseif r.c and r.d then end", vec!["a! b! c! d!"]),
            ("if r.a then end if r.b then end", vec!["a!", "b!"]),
            ("return if r.a then 1 else 2", vec!["a!"]),
            ("while r.a do end repeat until r.b ~= nil", vec!["a!", "b!"]),
            ("return r.a and r.a.b or 1", vec!["a& a& b"]),
            ("return r.a and r.b", vec!["a!", "b!"]),
            ("return flag and (r.a or 0)", vec!["a"]),
            ("return type(r.a) == 'table'", vec!["a!"]),
            // A part of the result is taken in any case.
            ("return r.a or r", vec![]),
            ("return r.a or r[1]", vec![]),
            ("local other = {} return r.a or other", vec!["a"]),
            // What was looked for is not relied on.
            ("if r.a then return r.a end", vec!["a! a!"]),
        ] {
            assert_eq!(groups(script), expected, "{script}");
        }
    }

    #[test]
    fn results_that_are_taken_for_lists_are_found() {
        let uses = |script: &str| {
            let shown = |it: ResultListUse| {
                let at: Vec<String> = it.origins.iter().map(ResultPath::display_path).collect();
                let compared = if it.is_compared { " compared" } else { "" };
                format!("{} {:?} {}{compared}", it.line, it.operation, at.join(" or "))
            };
            find_script_reads(script).lists.into_iter().map(shown).collect::<Vec<_>>()
        };
        for (script, expected) in [
            ("local r = sdk.a.b({})\nreturn #r", vec!["2 Length "]),
            ("for i = 1, #sdk.a.b({}).items do end", vec!["1 Length items"]),
            ("for _, x in ipairs(sdk.a.b({})) do end", vec!["1 Ipairs "]),
            ("local r = sdk.a.b({}) if #r > 0 then end", vec!["1 Length  compared"]),
            (
                "local r = sdk.a.b({}) if #r == 0 then return #r end",
                vec!["1 Length  compared", "1 Length  compared"],
            ),
            ("local r = sdk.a.b({}) table.insert(r, 1) return #r", vec![]),
            ("local l = {} return #l", vec![]),
        ] {
            assert_eq!(uses(script), expected, "{script}");
        }
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
            (
                "for _, r in sdk.a.b({}).items or {} do print(r['x']) end",
                vec!["1 a.b /items?", "1 a.b items[]/x"],
            ),
            (
                "local r = sdk.a.b({}) for _, i in r.items or r.rows or {} do print(i.x) end",
                vec!["1 a.b /items?", "1 a.b /rows?", "1 a.b items[]/x or a.b rows[]/x"],
            ),
            (
                "local l = sdk.a.b({}) table.sort(l, function(a, b) return a.x < b.y end)",
                vec!["1 a.b []/x", "1 a.b []/y"],
            ),
            ("local out = {} out.x = sdk.a.b({}).x return out", vec!["1 a.b /x"]),
            // Looked for.
            ("local r = sdk.fs.read({}) if r.text then return 1 end", vec!["1 fs.read /text!"]),
            ("return sdk.fs.read({}).text or ''", vec!["1 fs.read /text?"]),
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
            // Set by the script itself, or not plain to see.
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
    fn scripts_without_end_are_survived() {
        let many = 20_000;
        for script in [
            format!("local r = sdk.a.b({{}}) return {}", vec!["r.a"; many].join(" or ")),
            format!("local r = sdk.a.b({{}}) return {}", vec!["not r.a"; many].join(" and ")),
            format!("local r = sdk.a.b({{}}) if r.a then {}end", "elseif r.b then ".repeat(many)),
            format!("local r = sdk.a.b({{}}) {}", "if r.a then print(r.a) end ".repeat(many)),
            format!("local r = sdk.a.b({{}}) {}", "table.insert(r, #r) ".repeat(many)),
            format!("local r = sdk.a.b({{}}) return r{}", ".a".repeat(many)),
        ] {
            let reads = find_script_reads(&script);
            assert!(reads.fields.len() <= MAX_FIELD_READS && reads.lists.len() <= MAX_FIELD_READS);
        }
    }

    #[test]
    fn a_script_that_reads_nothing_is_not_parsed() {
        let is_function = |name: &str| name == "read";
        assert!(!may_read_results("return sdk.fs.read({})", is_function));
        assert!(!may_read_results("return string.format('%s', 1.5)", is_function));
        assert!(may_read_results("return sdk.fs.read({}).text", is_function));
        assert!(may_read_results("return sdk.fs.read({})['text']", is_function));
        assert!(may_read_results("return #sdk.fs.read({})", is_function));
    }
}
