//! Uses of results: what a script does with them, by its text.
//!
//! A function cannot see how many of its results are taken. `map_parallel` has to
//! know, because it raises unless the script takes its errors. So it asks here,
//! when something failed and only then: the line that called it stands in the
//! script's syntax tree, and the tree says what becomes of each result.

use std::collections::HashMap;

use luau_syntax::ast::{AstVisitor, Expression, ExpressionKind, Local, Statement, TableItem};
use luau_syntax::location::{Location, Position};

use crate::check::script_facts::{LocalOrigin, ScriptFacts, as_local};
use crate::field_reads::parse_on_deep_stack;

/// Locals that the name of a function may go through.
const MAX_ALIASES: usize = 8;
/// Results in a table of which is known whether they are read.
const MAX_PACKED_RESULTS: usize = 4;

/// The calls and the field reads of one script.
#[derive(Default)]
pub(crate) struct ResultUses {
    calls: Vec<ParsedCall>,
    functions: Vec<FunctionSpan>,
    reads: Vec<FieldRead>,
}

/// What becomes of one result of a call. Where there is doubt, the last of these counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ResultUse {
    /// The script has it, and reads it.
    Taken,
    /// A variable has it that nothing reads.
    Unread,
    /// The function that made the call returns it, this many places further on.
    Returned(usize),
    /// Nobody has it.
    Dropped,
}

/// The stack frame that made a call, as the VM describes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallerFrame {
    /// Where its function is defined.
    pub(crate) defined: u32,
    pub(crate) params: usize,
    pub(crate) variadic: bool,
    /// Where it is now.
    pub(crate) line: u32,
}

struct ParsedCall {
    /// The line that the VM says while the call runs: where the function's name ends.
    line: u32,
    position: Position,
    /// What the function is called here, and what it was called before that.
    names: Vec<String>,
    results: ResultTarget,
}

/// Where the results of a call go.
#[derive(Clone)]
enum ResultTarget {
    /// To as many places as there are items; whether each is read.
    Places(Vec<bool>),
    /// All of them, into a table or a function that takes any number.
    All,
    /// All of them, into a table that a local holds; whether the first ones may be read.
    Packed([bool; MAX_PACKED_RESULTS]),
    Returned(usize),
}

struct FunctionSpan {
    location: Location,
    params: usize,
    variadic: bool,
}

struct FieldRead {
    line: u32,
    name: String,
    /// It is only looked at to see whether it is there.
    tested: bool,
}

impl ResultUses {
    /// Read a script that the compiler takes.
    pub(crate) fn from_script(script: &str) -> ResultUses {
        parse_on_deep_stack(script, |root, facts| {
            let (targets, held) = (Vec::new(), HashMap::new());
            let mut visitor =
                ResultUseVisitor { facts, targets, held, uses: ResultUses::default() };
            root.visit(&mut visitor);
            visitor.uses
        })
    }

    /// What becomes of result number `nth`, from one, of the function `callee` that
    /// the frame calls at this moment.
    pub(crate) fn find_use(&self, frame: CallerFrame, callee: &str, nth: usize) -> ResultUse {
        let on_line = || self.calls.iter().filter(|site| site.line == frame.line);
        let in_frame = |site: &&ParsedCall| self.is_in_frame(site, frame);
        let mut sites: Vec<&ParsedCall> = on_line().filter(in_frame).collect();
        if sites.is_empty() {
            sites = on_line().collect();
        }
        let is_named = |site: &&ParsedCall| site.names.iter().any(|name| name == callee);
        if sites.iter().any(&is_named) {
            sites.retain(|site| is_named(site));
        }
        // Where several calls on one line could be meant, all have to agree.
        let uses = sites.into_iter().map(|site| site.results.use_of_result(nth));
        uses.max().unwrap_or(ResultUse::Dropped)
    }

    /// Whether a field of this name is read on the line as if it were there.
    pub(crate) fn relies_on_field(&self, line: u32, name: &str) -> bool {
        let mut reads = self.reads.iter().filter(|read| read.line == line && read.name == name);
        reads.next().is_some_and(|read| !read.tested) && reads.all(|read| !read.tested)
    }

    /// Whether the call is made by the function whose frame this is, and not by one
    /// inside or around it.
    fn is_in_frame(&self, site: &ParsedCall, frame: CallerFrame) -> bool {
        let around = self.functions.iter().filter(|span| {
            span.location.begin <= site.position && site.position < span.location.end
        });
        match around.max_by_key(|span| span.location.begin) {
            Some(span) => {
                span.location.begin.line + 1 == frame.defined
                    && span.params == frame.params
                    && span.variadic == frame.variadic
            }
            None => frame.params == 0 && frame.variadic,
        }
    }
}

impl ResultTarget {
    fn use_of_result(&self, nth: usize) -> ResultUse {
        match self {
            ResultTarget::Places(read) => match read.get(nth.saturating_sub(1)) {
                Some(true) => ResultUse::Taken,
                Some(false) => ResultUse::Unread,
                None => ResultUse::Dropped,
            },
            ResultTarget::All => ResultUse::Taken,
            ResultTarget::Packed(read) => match read.get(nth.saturating_sub(1)) {
                Some(false) => ResultUse::Unread,
                _ => ResultUse::Taken,
            },
            ResultTarget::Returned(further) => ResultUse::Returned(*further),
        }
    }
}

struct ResultUseVisitor<'x, 'a> {
    facts: &'x ScriptFacts<'a>,
    /// Where the results of calls go whose parents were visited.
    targets: Vec<(*const (), ResultTarget)>,
    /// Values of locals whose places may be read, by the value.
    held: HashMap<*const (), &'a Local<'a>>,
    uses: ResultUses,
}

impl<'a> ResultUseVisitor<'_, 'a> {
    /// Remember where the results of the last of several expressions go.
    fn set_last_target(
        &mut self,
        values: &[Expression<'a>],
        target: impl FnOnce(usize) -> ResultTarget,
    ) {
        if let Some(last) = values.last()
            && matches!(last.kind(), ExpressionKind::Call { .. })
        {
            self.targets.push((last.as_ptr(), target(values.len() - 1)));
        }
    }

    fn take_target(&mut self, call: Expression<'a>) -> ResultTarget {
        let known = self.targets.iter().rposition(|(of, _)| *of == call.as_ptr());
        known.map_or(ResultTarget::Places(vec![true]), |at| self.targets.swap_remove(at).1)
    }

    /// Where results go that are put into a table, after some items.
    fn packed_target(&self, table: Expression<'a>, before: usize) -> ResultTarget {
        match self.held.get(&table.as_ptr()) {
            Some(local) => ResultTarget::Packed(std::array::from_fn(|nth| {
                self.facts.may_read_place(local, before + nth + 1)
            })),
            None => ResultTarget::All,
        }
    }

    /// Where the results of a call go that is the last argument of another.
    fn argument_target(
        &self,
        call: Expression<'a>,
        func: Expression<'a>,
        self_call: bool,
        before: usize,
    ) -> ResultTarget {
        let names = self.callee_names(func);
        if names.iter().any(|name| name == "pack") {
            return self.packed_target(call, before);
        }
        if names.iter().any(|name| name == "select") {
            return ResultTarget::All;
        }
        let literal = match (func.kind(), as_local(func).map(|it| self.facts.local_origin(it))) {
            (_, Some(LocalOrigin::Value(value))) => value,
            (ExpressionKind::Grouped(inner), _) => inner,
            _ => func,
        };
        let ExpressionKind::FunctionLiteral(function) = literal.kind() else {
            return ResultTarget::Places(vec![true]);
        };
        if function.vararg {
            return ResultTarget::All;
        }
        let first = before + usize::from(self_call);
        let params = function.args.iter().skip(first);
        ResultTarget::Places(params.map(|param| !self.facts.is_unread(param)).collect())
    }

    /// What a function is called, and what the locals stand for that name it.
    fn callee_names(&self, func: Expression<'a>) -> Vec<String> {
        let mut names = Vec::new();
        let mut named = func;
        for _ in 0..MAX_ALIASES {
            let name = match named.kind() {
                ExpressionKind::Global(name) => name.bytes(),
                ExpressionKind::IndexName { index, .. } => index.bytes(),
                ExpressionKind::Local { local, .. } => local.name.bytes(),
                ExpressionKind::Grouped(inner) => {
                    named = inner;
                    continue;
                }
                _ => break,
            };
            names.push(String::from_utf8_lossy(name).into_owned());
            let origin = as_local(named).map(|local| self.facts.local_origin(local));
            let Some(LocalOrigin::Value(value)) = origin else { break };
            named = value;
        }
        names
    }
}

impl<'a> AstVisitor<'a> for ResultUseVisitor<'_, 'a> {
    fn visit_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_expression() {
            self.set_last_target(&[it.expr], |_| ResultTarget::Places(Vec::new()));
        } else if let Some(it) = statement.as_local() {
            let held = it.values.iter().zip(it.bindings);
            self.held.extend(held.map(|(value, local)| (value.as_ptr(), *local)));
            let facts = self.facts;
            self.set_last_target(it.values, |before| {
                let places = it.bindings.iter().skip(before);
                ResultTarget::Places(places.map(|local| !facts.is_unread(local)).collect())
            });
        } else if let Some(it) = statement.as_assign() {
            let places = it.vars.len();
            self.set_last_target(it.values, |before| {
                ResultTarget::Places(vec![true; places.saturating_sub(before)])
            });
        } else if let Some(it) = statement.as_return() {
            self.set_last_target(it.expressions, ResultTarget::Returned);
        }
        true
    }

    fn visit_expression(&mut self, expression: Expression<'a>) -> bool {
        match expression.kind() {
            ExpressionKind::Table { items } => {
                if let Some(TableItem::List { value }) = items.last() {
                    let is_item = |item: &&TableItem<'_>| matches!(item, TableItem::List { .. });
                    let before = items.iter().filter(is_item).count() - 1;
                    let target = self.packed_target(expression, before);
                    self.set_last_target(&[*value], |_| target);
                }
            }
            ExpressionKind::Call { func, args, self_call, .. } => {
                let results = self.take_target(expression);
                let names = self.callee_names(func);
                let end = func.location().end;
                let position = Position::new(end.line, end.column.saturating_sub(1));
                self.uses.calls.push(ParsedCall { line: end.line + 1, position, names, results });
                let before = args.len().saturating_sub(1);
                let target = self.argument_target(expression, func, self_call, before);
                self.set_last_target(args, |_| target);
            }
            ExpressionKind::FunctionLiteral(function) => self.uses.functions.push(FunctionSpan {
                location: function.location,
                params: function.args.len() + usize::from(function.self_parameter.is_some()),
                variadic: function.vararg,
            }),
            ExpressionKind::IndexName { index, index_location, .. } => {
                self.uses.reads.push(FieldRead {
                    line: index_location.begin.line + 1,
                    name: String::from_utf8_lossy(index.bytes()).into_owned(),
                    tested: self.facts.is_tested(expression),
                });
            }
            _ => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: CallerFrame = CallerFrame { defined: 1, params: 0, variadic: true, line: 1 };

    #[test]
    fn the_second_result_is_taken_where_something_has_it() {
        use ResultUse::{Dropped, Returned, Taken, Unread};
        for (script, expected) in [
            ("local a, b = map_parallel(x, f) print(b)", Taken),
            ("local a, b = map_parallel(x, f) print(a)", Unread),
            ("local a, _ = map_parallel(x, f)", Unread),
            ("local a = map_parallel(x, f)", Dropped),
            ("local a, b = map_parallel(x, f), 1", Dropped),
            ("local a, b, c = 1, map_parallel(x, f) print(c)", Taken),
            ("local a, b = 1, map_parallel(x, f)", Dropped),
            ("a, b = map_parallel(x, f)", Taken),
            ("t.a, t.b = map_parallel(x, f)", Taken),
            ("a = map_parallel(x, f)", Dropped),
            ("map_parallel(x, f)", Dropped),
            ("for _, r in map_parallel(x, f) do end", Dropped),
            ("return map_parallel(x, f)", Returned(0)),
            ("return 1, map_parallel(x, f)", Returned(1)),
            ("return (map_parallel(x, f))", Dropped),
            ("return #map_parallel(x, f)", Dropped),
            ("return { map_parallel(x, f) }", Taken),
            ("return { r = map_parallel(x, f) }", Dropped),
            ("return { map_parallel(x, f), 1 }", Dropped),
            ("local t = table.pack(map_parallel(x, f)) return t", Taken),
            ("local t = table.pack(map_parallel(x, f)) return t[1]", Unread),
            ("local t = table.pack(map_parallel(x, f)) return t[2]", Taken),
            ("local t = { map_parallel(x, f) } return t", Taken),
            ("local t = { map_parallel(x, f) } return t[2]", Taken),
            ("local t = { map_parallel(x, f) } return t[1], #t", Unread),
            ("local t = { map_parallel(x, f) }", Unread),
            ("local t = { 1, map_parallel(x, f) } return t[2]", Unread),
            ("local t = { 1, map_parallel(x, f) } return t[3]", Taken),
            ("local t = { map_parallel(x, f) } local n = 2 return t[n]", Taken),
            ("local t = { map_parallel(x, f) } t = {} return t[1]", Taken),
            ("local e = select(2, map_parallel(x, f))", Taken),
            ("print(map_parallel(x, f))", Dropped),
            ("local mp = map_parallel local a, b = mp(x, f) print(b)", Taken),
            ("local mp = map_parallel local a = mp(x, f)", Dropped),
            ("local function h(r, e) print(e) end h(map_parallel(x, f))", Taken),
            ("local function h(r, e) end h(map_parallel(x, f))", Unread),
            ("local function h(r) end h(map_parallel(x, f))", Dropped),
            ("local function h(...) end h(map_parallel(x, f))", Taken),
            ("local a, b = g() local c = map_parallel(x, f)", Dropped),
            ("local a, b = map_parallel(x, f) local c = map_parallel(x, f) print(b)", Dropped),
            (
                "local a = map_parallel(x, function(y) local c, d = map_parallel(y, f) return d end)",
                Dropped,
            ),
            (
                "local a, b = map_parallel(x, function(y) return map_parallel(y, f) end) print(b)",
                Taken,
            ),
            ("if map_parallel(x, f) then end", Dropped),
        ] {
            let found = ResultUses::from_script(script).find_use(MAIN, "map_parallel", 2);
            assert_eq!(found, expected, "{script}");
        }
    }

    #[test]
    fn what_a_function_passes_on_is_asked_of_its_caller() {
        let script = "local function all(x)\n  return map_parallel(x, f)\nend\nlocal a, b = all(y)\nprint(b)\nlocal c = all(z)";
        let uses = ResultUses::from_script(script);
        let inside = CallerFrame { defined: 1, params: 1, variadic: false, line: 2 };
        assert_eq!(uses.find_use(inside, "map_parallel", 2), ResultUse::Returned(0));
        assert_eq!(uses.find_use(CallerFrame { line: 4, ..MAIN }, "all", 2), ResultUse::Taken);
        assert_eq!(uses.find_use(CallerFrame { line: 6, ..MAIN }, "all", 2), ResultUse::Dropped);
    }

    #[test]
    fn a_field_is_relied_on_unless_it_is_looked_for() {
        let uses =
            ResultUses::from_script("local a = r.text\nif r.text then end\nlocal b = r.text or 1");
        let found: Vec<bool> = (1..=3).map(|line| uses.relies_on_field(line, "text")).collect();
        assert_eq!(found, [true, false, false]);
        assert!(!uses.relies_on_field(1, "other"));
    }
}
