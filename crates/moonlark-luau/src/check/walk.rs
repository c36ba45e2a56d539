//! One script, from its text to what is wrong with it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use luau_analysis::{FrontendCancellationToken, SemanticModel};
use luau_syntax::ast::{AstVisitor, Block, Expression, ExpressionKind, Statement};
use luau_syntax::location::Location;
use luau_syntax::parser::{ParseOptions, ParsedSource};
use moonlark_core::render::luau::sdk::signature;
use moonlark_core::sdk::{SdkFunction, SdkSource};
use moonlark_core::value::shorten;
use moonlark_core::{Catalog, Module};

use super::calls::Arguments;
use super::clock::CheckClock;
use super::facts::{Facts, Origin};
use super::fields::Fields;
use super::kinds::Oracle;
use super::names::{Access, Named, Names, Way, access, global};
use super::preamble::{Preamble, Used};
use super::scopes::LocalScopes;
use super::templates::find_templates;
use super::traced_fields::TracedFields;
use super::typing::Typing;
use super::unknown_names::UnknownNames;
use super::wire::CheckedReport;
use super::{Finding, globals, texts};
use crate::errors::syntax_hint;
use crate::fences::strip_fences;
use crate::result_flow::ResultFlow;

/// More would not be read.
const MAX_FINDINGS: usize = 20;
/// Nor are more looked for.
const MAX_COLLECTED: usize = 10 * MAX_FINDINGS;
/// The types of a longer script are not looked at: they would take more memory and time than
/// is worth it, and what is that long is data.
const MAX_TYPED_BYTES: usize = 128 * 1024;
/// How long a signature may be as a hint.
const MAX_SIGNATURE_BYTES: usize = 600;

/// What bounds the types of one check.
#[derive(Default)]
pub(super) struct TypingBound<'x> {
    /// Set when they have taken too long.
    pub(super) stop: Arc<FrontendCancellationToken>,
    /// Is told what was found before types are looked at, which may not end.
    pub(super) clock: Option<&'x CheckClock>,
    /// See [`super::wire::CheckRequest`].
    pub(super) run_type_functions: bool,
}

/// What is said of one script.
#[derive(Debug, Clone, Default)]
pub(super) struct JudgedScript {
    pub(super) findings: Vec<Finding>,
    pub(super) advice: Vec<Finding>,
    /// Its types were left out.
    pub(super) is_untyped: bool,
}

impl JudgedScript {
    pub(super) fn report(self, reusable: bool) -> CheckedReport {
        let JudgedScript { findings, advice, is_untyped } = self.in_order();
        CheckedReport { findings, advice, untyped: is_untyped, reusable }
    }

    fn in_order(self) -> JudgedScript {
        let [findings, advice] = [self.findings, self.advice].map(in_order);
        JudgedScript { findings, advice, ..self }
    }
}

/// Checks scripts on the thread it was made on.
pub struct Checker {
    /// None if there is something wrong with it; names and literal arguments
    /// are checked all the same.
    typing: Option<Typing>,
}

impl Checker {
    pub fn new(modules: &Arc<Vec<Module>>) -> Checker {
        Checker { typing: Typing::new(modules.clone()) }
    }

    /// Whether it knows these host modules.
    pub(super) fn is_for(&self, modules: &Arc<Vec<Module>>) -> bool {
        self.typing.as_ref().is_none_or(|typing| typing.is_for(modules))
    }

    /// What is surely wrong with `script`, and whether its types had to be left
    /// out. `find` is given the names in the script, and gives a catalog that
    /// knows whatever they mean; without one there is no answer.
    pub(super) fn check_with(
        &mut self,
        script: &str,
        bound: TypingBound<'_>,
        find: impl FnOnce(&BTreeSet<&str>) -> Option<Arc<Catalog>>,
    ) -> Option<JudgedScript> {
        look(script, find, self.typing.as_mut(), bound)
    }

    /// What Luau itself says about a text, for tests of what is drawn for it.
    #[doc(hidden)]
    pub fn luau_says(&mut self, text: &str) -> Vec<String> {
        self.typing.as_mut().map_or_else(Vec::new, |typing| typing.mistakes(text.to_owned()))
    }
}

fn look(
    script: &str,
    find: impl FnOnce(&BTreeSet<&str>) -> Option<Arc<Catalog>>,
    typing: Option<&mut Typing>,
    bound: TypingBound<'_>,
) -> Option<JudgedScript> {
    let script = &strip_fences(script.to_owned());
    // The declarations of tools will be on a line before it.
    let text = format!("\n{script}");
    let parsed = match ParsedSource::parse(&text, ParseOptions::default()) {
        Ok(parsed) if parsed.metadata().errors.is_empty() => parsed,
        _ => return Some(JudgedScript { findings: syntax(script), ..JudgedScript::default() }),
    };
    let root = parsed.root();
    let mut mentioned = MentionedNames::default();
    root.visit(&mut mentioned);
    let catalog = &*find(&mentioned.0)?;
    let used = uses(root, catalog);
    let mut untyped = judge(root, script, catalog, None);
    // The type checker would run them.
    if !bound.run_type_functions
        && let Some(refused) = find_type_function(root)
    {
        untyped.findings.push(refused);
        return Some(untyped.in_order());
    }
    untyped.is_untyped = true;
    if script.len() > MAX_TYPED_BYTES {
        return Some(untyped.in_order());
    }
    if let Some(clock) = bound.clock {
        clock.keep_untyped(&untyped);
    }
    let typed = typing.and_then(|typing| {
        let preamble = Preamble::new(&used);
        let text = format!("{}{script}", preamble.text);
        typing.look(text, &bound.stop, |model| {
            let root = model.module().root()?;
            Some(judge(root, script, catalog, Some((model, &preamble))))
        })
    });
    Some(typed.flatten().unwrap_or(untyped).in_order())
}

fn in_order(mut found: Vec<Finding>) -> Vec<Finding> {
    found.sort();
    found.dedup();
    found.truncate(MAX_FINDINGS);
    found
}

/// A `type function` anywhere in a script. It is code that the type checker runs, without
/// the limits that scripts have.
fn find_type_function(root: Block<'_>) -> Option<Finding> {
    let mut visitor = TypeFunctionVisitor(None);
    root.visit(&mut visitor);
    let place = visitor.0?;
    let message = "type functions are not allowed here: the check would have to run them";
    let hint = "leave it out, or write the type itself: types change nothing in what a script does";
    Some(Finding::new(place, message).hint(hint))
}

struct TypeFunctionVisitor(Option<Location>);

impl<'a> AstVisitor<'a> for TypeFunctionVisitor {
    fn visit_type_function_statement(&mut self, statement: Statement<'a>) -> bool {
        self.0.get_or_insert(statement.location());
        false
    }
}

/// The names that may be those of sources and functions.
#[derive(Default)]
struct MentionedNames<'a>(BTreeSet<&'a str>);

impl<'a> AstVisitor<'a> for MentionedNames<'a> {
    fn visit_index_name_expression(&mut self, expression: Expression<'a>) -> bool {
        self.0.extend(access(expression).map(|it| it.name));
        true
    }

    fn visit_index_expression(&mut self, expression: Expression<'a>) -> bool {
        self.0.extend(access(expression).map(|it| it.name));
        true
    }

    fn visit_global_expression(&mut self, expression: Expression<'a>) -> bool {
        self.0.extend(global(expression));
        true
    }
}

/// The first thing that is no Luau; what follows is mostly its echo.
fn syntax(script: &str) -> Vec<Finding> {
    // By itself, so that lines which the message names are right.
    let parsed = ParsedSource::parse(script, ParseOptions::default());
    let error = match &parsed {
        Ok(parsed) => parsed.metadata().errors.first(),
        Err(errors) => errors.errors().first(),
    };
    let Some(error) = error else { return Vec::new() };
    let message = error.message.to_string();
    let mut finding = Finding::new(error.location, format!("syntax: {}", shorten(&message)));
    finding.line += 1;
    let line = |at: u32| script.lines().nth(at.saturating_sub(1) as usize).unwrap_or_default();
    finding.hint = syntax_hint(&message, finding.line, line, true).map(str::to_owned);
    vec![finding]
}

/// The functions that the script names.
fn uses<'c>(root: Block<'_>, catalog: &'c Catalog) -> Vec<Used<'c>> {
    let facts = Facts::of(root);
    let mut seen = Seen { names: Names { facts: &facts, catalog }, used: Vec::new() };
    root.visit(&mut seen);
    seen.used
}

struct Seen<'x, 'a, 'c> {
    names: Names<'x, 'a, 'c>,
    used: Vec<Used<'c>>,
}

impl<'a> Seen<'_, 'a, '_> {
    fn see(&mut self, expression: Expression<'a>) -> bool {
        if let Some(Named::Function(way, source, function)) = self.names.of(expression) {
            let same = |it: &Used<'_>| it.way == way && std::ptr::eq(it.function, function);
            if !self.used.iter().any(same) {
                self.used.push(Used { way, source, function });
            }
        }
        true
    }
}

impl<'a> AstVisitor<'a> for Seen<'_, 'a, '_> {
    fn visit_index_name_expression(&mut self, expression: Expression<'a>) -> bool {
        self.see(expression)
    }

    fn visit_index_expression(&mut self, expression: Expression<'a>) -> bool {
        self.see(expression)
    }
}

fn judge<'a>(
    root: Block<'a>,
    script: &str,
    catalog: &Catalog,
    typed: Option<(&SemanticModel<'a>, &Preamble<'_>)>,
) -> JudgedScript {
    let facts = Facts::of(root);
    let names = Names { facts: &facts, catalog };
    let oracle = Oracle { names: &names, model: typed.map(|(model, _)| model) };
    let fields = typed.map(|(model, preamble)| Fields::new(model, &facts, preamble));
    let scopes = LocalScopes::of(root);
    let unknown = UnknownNames { names: &names, scopes: &scopes, script };
    let traced = TracedFields { names: &names, flow: ResultFlow::new(&facts) };
    let (fields, found) = (fields.as_ref(), Vec::new());
    let called = HashMap::new();
    let mut judge = Judge { oracle: &oracle, fields, unknown, traced, called, found };
    root.visit(&mut judge);
    let findings = judge.found;
    let advice = find_templates(root, &oracle, &scopes);
    JudgedScript { findings, advice, is_untyped: false }
}

struct Judge<'x, 'a, 'c> {
    oracle: &'x Oracle<'x, 'a, 'c>,
    fields: Option<&'x Fields<'x, 'a, 'c>>,
    unknown: UnknownNames<'x, 'a, 'c>,
    traced: TracedFields<'x, 'a, 'c>,
    /// What is called, with its arguments.
    called: HashMap<*const (), &'a [Expression<'a>]>,
    found: Vec<Finding>,
}

impl<'a> Judge<'_, 'a, '_> {
    fn field(&mut self, expression: Expression<'a>) {
        let names = self.oracle.names;
        let Some(Access { base, name, location, .. }) = access(expression) else { return };
        let sdk = names.catalog.sdk();
        match names.of(base) {
            Some(Named::Sdk) if sdk.source(name).is_none() && !names.is_awaited(name) => {
                if let Err(problem) = sdk.find(&format!("{name}.")) {
                    self.say(location, problem.message, problem.hint);
                }
            }
            Some(Named::Source(_, source))
                if source.function(name).is_none() && !names.is_awaited(&source.original) =>
            {
                let problem = source.unknown(name);
                self.say(location, problem.message, problem.hint);
            }
            Some(_) => {}
            None => {
                let typed = || {
                    let fields = self.fields.filter(|_| !self.traced.is_changed(base))?;
                    fields.check(expression, |used| signed(used.source, used.function))
                };
                let traced = || self.traced.check_field(expression, signed);
                let own = || texts::check_field(self.oracle, expression);
                let called = self.called.get(&expression.as_ptr()).and_then(|args| {
                    let on_text = || texts::check_call(self.oracle, expression, args);
                    self.traced.check_call(expression, args).or_else(on_text)
                });
                let found = called.or_else(typed).or_else(traced).or_else(own);
                self.found.extend(found);
                self.found.extend(self.unknown.check_member(base, name, expression, location));
            }
        }
    }

    fn call(&mut self, expression: Expression<'a>) {
        let ExpressionKind::Call { func, args, .. } = expression.kind() else { return };
        let names = self.oracle.names;
        if let Some(Named::Function(_, source, function)) = names.of(func) {
            let path = format!("sdk.{}.{}", source.name, function.name);
            if access(func).is_some_and(|it| it.colon) {
                let message = format!("{path} is called with a dot, not with a colon");
                return self.say(func.location(), message, Some(signed(source, function)));
            }
            return self.arguments(source, function, args, expression.location());
        }
        if let Some(called) = global(func)
            && let Some(skipped) = [("pcall", 1), ("xpcall", 2)].iter().find(|it| it.0 == called)
            && let Some(first) = args.first()
            && let Some(Named::Function(_, source, function)) = names.of(*first)
        {
            let rest = args.get(skipped.1..).unwrap_or_default();
            return self.arguments(source, function, rest, expression.location());
        }
        if global(func) == Some("require") && !names.facts.made.contains(b"require".as_slice()) {
            return self.require(args, func.location());
        }
        self.called.insert(func.as_ptr(), args);
        self.waits_twice(func);
    }

    /// `require("json")`: scripts of agents have no files.
    fn require(&mut self, args: &[Expression<'a>], place: Location) {
        let asked = args.first().and_then(|arg| match arg.kind() {
            ExpressionKind::String { value, .. } => std::str::from_utf8(value.into_bytes()).ok(),
            _ => None,
        });
        let catalog = self.oracle.names.catalog;
        let hint = match asked {
            Some(name) if globals::is_taken(catalog, name) => {
                format!("{name} is a global: use it without require")
            }
            _ => "everything there is, is a global".to_owned(),
        };
        self.say(place, "require: there are no files here".to_owned(), Some(hint));
    }

    fn arguments(
        &mut self,
        source: &SdkSource,
        function: &SdkFunction,
        args: &[Expression<'a>],
        place: Location,
    ) {
        let found = Arguments::check(self.oracle, (source, function), args, place);
        if found.is_empty() {
            return;
        }
        let hint = signed(source, function);
        self.found.extend(found.into_iter().map(|finding| finding.hint(hint.clone())));
    }

    /// `sdk.files.read(…):await()`, which has waited already.
    fn waits_twice(&mut self, func: Expression<'a>) {
        let names = self.oracle.names;
        let Some(Access { base, name: "await", location, colon: true }) = access(func) else {
            return;
        };
        let mut base = base;
        if let ExpressionKind::Local { local, .. } = base.kind()
            && let Origin::Value(value) = names.facts.origin(local)
        {
            base = value;
        }
        let ExpressionKind::Call { func, .. } = base.kind() else { return };
        if let Some(Named::Function(Way::Sdk, source, function)) = names.of(func) {
            let (source, function) = (&source.name, &function.name);
            let message =
                format!("sdk.{source}.{function} gives its value at once: leave :await() out");
            let hint = format!("{source}.{function}(…), without sdk, gives a promise");
            self.say(location, message, Some(hint));
        }
    }

    fn say(&mut self, place: Location, message: String, hint: Option<String>) {
        let mut finding = Finding::new(place, message);
        finding.hint = hint;
        self.found.push(finding);
    }
}

impl<'a> AstVisitor<'a> for Judge<'_, 'a, '_> {
    fn visit_statement(&mut self, _: Statement<'a>) -> bool {
        self.found.len() < MAX_COLLECTED
    }

    /// What is in there runs during the check, with other globals.
    fn visit_type_function_statement(&mut self, _: Statement<'a>) -> bool {
        false
    }

    fn visit_index_name_expression(&mut self, expression: Expression<'a>) -> bool {
        self.field(expression);
        true
    }

    fn visit_index_expression(&mut self, expression: Expression<'a>) -> bool {
        self.field(expression);
        self.found.extend(self.traced.check_index(expression));
        true
    }

    fn visit_call_expression(&mut self, expression: Expression<'a>) -> bool {
        self.call(expression);
        true
    }

    fn visit_global_expression(&mut self, expression: Expression<'a>) -> bool {
        self.found.extend(self.unknown.check_global(expression));
        true
    }
}

/// The signature, for a hint.
fn signed(source: &SdkSource, function: &SdkFunction) -> String {
    let mut text = signature(source, function, None).signature;
    if text.len() > MAX_SIGNATURE_BYTES {
        let end =
            (0..=MAX_SIGNATURE_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}
