//! One script, from its text to what is wrong with it.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::sync::Arc;

use luau_analysis::{FrontendCancellationToken, SemanticModel};
use luau_syntax::ast::{AstVisitor, Block, Expression, ExpressionKind, Statement, UnaryOp};
use luau_syntax::location::Location;
use luau_syntax::parser::{ParseOptions, ParsedSource};
use moonlark_core::sdk::{SdkFunction, SdkSource};
use moonlark_core::value::shorten_text;
use moonlark_core::{Catalog, Module};
use moonlark_render::luau::sdk_docs::sdk_function_docs;

use super::argument_checker::ArgumentChecker;
use super::check_clock::CheckClock;
use super::check_protocol::FinishedCheck;
use super::local_scopes::LocalScopes;
use super::preamble::{CheckPreamble, UsedFunction};
use super::script_facts::{
    FieldAccess, LocalOrigin, ScriptFacts, as_field_access, as_local, literal_text,
};
use super::sdk_names::{SdkCallStyle, SdkNameResolver, SdkReference, global};
use super::string_templates::find_templates;
use super::syntax_kinds::{SyntaxKinds, has_declared_result};
use super::traced_fields::TracedFieldChecker;
use super::type_checker::TypeChecker;
use super::typed_fields::TypedFieldChecker;
use super::unknown_names::UnknownNameChecker;
use super::value_kinds::KindOracle;
use super::{CheckFinding, script_globals, text_fields};
use crate::field_reads::ListOperation;
use crate::luau_errors::syntax_hint;
use crate::markdown_fences::strip_fences;
use crate::result_flow::ResultFlow;

/// More would not be read.
const MAX_FINDINGS: usize = 20;
/// Nor are more looked for.
const MAX_COLLECTED_FINDINGS: usize = 10 * MAX_FINDINGS;
/// The types of a longer script are not looked at: they would take more memory and time than
/// is worth it, and what is that long is data.
const MAX_TYPED_BYTES: usize = 128 * 1024;
/// How long a signature may be as a hint.
const MAX_SIGNATURE_BYTES: usize = 600;

/// What bounds the types of one check.
#[derive(Default)]
pub(super) struct TypingLimits<'x> {
    /// Set when they have taken too long.
    pub(super) stop: Arc<FrontendCancellationToken>,
    /// Is told what was found before types are looked at, which may not end.
    pub(super) clock: Option<&'x CheckClock>,
    /// See [`super::check_protocol::CheckRequest`].
    pub(super) run_type_functions: bool,
    /// Look at types also where they can say no more. Only tests say so.
    pub(super) always_typed: bool,
}

/// What is said of one script.
#[derive(Debug, Clone, Default)]
pub(super) struct JudgedScript {
    pub(super) findings: Vec<CheckFinding>,
    pub(super) advice: Vec<CheckFinding>,
    /// Its types were left out.
    pub(super) is_untyped: bool,
}

impl JudgedScript {
    pub(super) fn into_report(self, reusable: bool) -> FinishedCheck {
        let [findings, advice] = [self.findings, self.advice].map(sort_findings);
        FinishedCheck { findings, advice, untyped: self.is_untyped, reusable }
    }
}

/// Checks scripts on the thread it was made on.
pub(super) struct ScriptChecker {
    modules: Arc<Vec<Module>>,
    /// Made when it is first needed: many scripts are judged by their text alone. None in it
    /// if there is something wrong with it; names and literal arguments are checked all the
    /// same.
    typing: OnceCell<Option<TypeChecker>>,
}

impl ScriptChecker {
    pub(super) fn new(modules: &Arc<Vec<Module>>) -> ScriptChecker {
        ScriptChecker { modules: modules.clone(), typing: OnceCell::new() }
    }

    /// Whether it knows these host modules.
    pub(super) fn is_for(&self, modules: &Arc<Vec<Module>>) -> bool {
        Arc::ptr_eq(&self.modules, modules)
    }

    /// Read the definitions of everything that scripts may name, for the types of scripts.
    pub(super) fn load_definitions(&self) {
        self.typing.get_or_init(|| TypeChecker::new(&self.modules));
    }

    #[cfg(test)]
    pub(super) fn has_definitions(&self) -> bool {
        self.typing.get().is_some()
    }

    /// What is surely wrong with `script`, and whether its types had to be left out.
    pub(super) fn check_script(
        &mut self,
        script: &str,
        catalog: &Catalog,
        bound: TypingLimits<'_>,
    ) -> JudgedScript {
        let script = &strip_fences(script.to_owned());
        // The declarations of tools will be on a line before it.
        let text = format!("\n{script}");
        let parsed = match ParsedSource::parse(&text, ParseOptions::default()) {
            Ok(parsed) if parsed.metadata().errors.is_empty() => parsed,
            _ => {
                let findings = find_syntax_error(script);
                return JudgedScript { findings, ..JudgedScript::default() };
            }
        };
        let root = parsed.root();
        let JudgedSyntax { judged: mut untyped, used, needs_types } =
            judge_script(root, script, catalog, None);
        // The type checker would run them.
        if !bound.run_type_functions
            && let Some(refused) = find_type_function(root)
        {
            untyped.findings.push(refused);
            return untyped;
        }
        if !needs_types && !bound.always_typed && !bound.run_type_functions {
            return untyped;
        }
        untyped.is_untyped = true;
        if script.len() > MAX_TYPED_BYTES {
            return untyped;
        }
        if self.typing.get().is_none() {
            // What all scripts have in common is not part of this one's time.
            let paused = bound.clock.map(CheckClock::pause_check);
            self.load_definitions();
            drop(paused);
        }
        if let Some(clock) = bound.clock {
            clock.keep_untyped_findings(&untyped);
        }
        let typed = self.typing.get_mut().and_then(Option::as_mut).and_then(|typing| {
            let preamble = CheckPreamble::new(&used);
            let text = format!("{}{script}", preamble.text);
            typing.with_semantic_model(text, &bound.stop, |model| {
                let root = model.module().root()?;
                Some(judge_script(root, script, catalog, Some((model, &preamble))).judged)
            })
        });
        typed.flatten().unwrap_or(untyped)
    }
}

fn sort_findings(mut found: Vec<CheckFinding>) -> Vec<CheckFinding> {
    found.sort();
    found.dedup();
    found.truncate(MAX_FINDINGS);
    found
}

/// A `type function` anywhere in a script. It is code that the type checker runs, without
/// the limits that scripts have.
fn find_type_function(root: Block<'_>) -> Option<CheckFinding> {
    let mut visitor = TypeFunctionVisitor(None);
    root.visit(&mut visitor);
    let place = visitor.0?;
    let message = "type functions are not allowed here: the check would have to run them";
    let hint = "leave it out, or write the type itself: types change nothing in what a script does";
    Some(CheckFinding::new(place, message).with_hint(hint))
}

struct TypeFunctionVisitor(Option<Location>);

impl<'a> AstVisitor<'a> for TypeFunctionVisitor {
    fn visit_type_function_statement(&mut self, statement: Statement<'a>) -> bool {
        self.0.get_or_insert(statement.location());
        false
    }
}

/// The first thing that is no Luau; what follows is mostly its echo.
fn find_syntax_error(script: &str) -> Vec<CheckFinding> {
    // By itself, so that lines which the message names are right.
    let parsed = ParsedSource::parse(script, ParseOptions::default());
    let error = match &parsed {
        Ok(parsed) => parsed.metadata().errors.first(),
        Err(errors) => errors.errors().first(),
    };
    let Some(error) = error else { return Vec::new() };
    let message = error.message.to_string();
    let mut finding =
        CheckFinding::new(error.location, format!("syntax: {}", shorten_text(&message)));
    finding.line += 1;
    let line = |at: u32| script.lines().nth(at.saturating_sub(1) as usize).unwrap_or_default();
    let hint = syntax_hint(&message, finding.line, line, true);
    vec![finding.with_optional_hint(hint)]
}

/// What reading a script comes to.
struct JudgedSyntax<'c> {
    judged: JudgedScript,
    /// The functions that it names.
    used: Vec<UsedFunction<'c>>,
    /// Whether types could say more.
    needs_types: bool,
}

/// What is wrong with a script, with its types or by its text alone.
fn judge_script<'a, 'c>(
    root: Block<'a>,
    script: &str,
    catalog: &'c Catalog,
    typed: Option<(&SemanticModel<'a>, &CheckPreamble<'c>)>,
) -> JudgedSyntax<'c> {
    let facts = ScriptFacts::from_block(root);
    let names = SdkNameResolver { facts: &facts, catalog };
    let needs_types = Cell::new(false);
    let model = typed.map(|(model, _)| model);
    let oracle = KindOracle { names: &names, model, needs_types: &needs_types };
    let fields = typed.map(|(model, preamble)| TypedFieldChecker::new(model, &facts, preamble));
    let scopes = LocalScopes::from_block(root);
    let mut judge = FindingVisitor {
        oracle: &oracle,
        fields: fields.as_ref(),
        unknown: UnknownNameChecker { names: &names, scopes: &scopes, script },
        traced: TracedFieldChecker { names: &names, flow: ResultFlow::new(&facts) },
        called: HashMap::new(),
        used: Vec::new(),
        reads_typed_fields: false,
        found: Vec::new(),
    };
    root.visit(&mut judge);
    let FindingVisitor { found: findings, used, reads_typed_fields, .. } = judge;
    let advice = find_templates(root, &oracle, &scopes);
    let has_types =
        |it: &UsedFunction<'_>| it.way == SdkCallStyle::Global || has_declared_result(it.function);
    let needs_types = needs_types.get() || (reads_typed_fields && used.iter().any(has_types));
    let judged = JudgedScript { findings, advice, is_untyped: false };
    JudgedSyntax { judged, used, needs_types }
}

struct FindingVisitor<'x, 'a, 'c> {
    oracle: &'x KindOracle<'x, 'a, 'c>,
    fields: Option<&'x TypedFieldChecker<'x, 'a, 'c>>,
    unknown: UnknownNameChecker<'x, 'a, 'c>,
    traced: TracedFieldChecker<'x, 'a, 'c>,
    /// What is called, with its arguments.
    called: HashMap<*const (), &'a [Expression<'a>]>,
    used: Vec<UsedFunction<'c>>,
    /// Whether a field is read of what may be a result, by its type.
    reads_typed_fields: bool,
    found: Vec<CheckFinding>,
}

impl<'a> FindingVisitor<'_, 'a, '_> {
    fn check_field(&mut self, expression: Expression<'a>) {
        let names = self.oracle.names;
        if let Some(SdkReference::Function(way, source, function)) =
            names.resolve_expression(expression)
        {
            let same = |it: &UsedFunction<'_>| it.way == way && std::ptr::eq(it.function, function);
            if !self.used.iter().any(same) {
                self.used.push(UsedFunction { way, source, function });
            }
            return;
        }
        let Some(FieldAccess { base, name, location, .. }) = as_field_access(expression) else {
            return;
        };
        let sdk = names.catalog.sdk();
        match names.resolve_expression(base) {
            Some(SdkReference::Sdk)
                if sdk.find_source(name).is_none() && !names.is_pending_source(name) =>
            {
                if let Err(problem) = sdk.find_function(&format!("{name}.")) {
                    self.add_finding(location, problem.message, problem.hint);
                }
            }
            Some(SdkReference::Source(_, source))
                if source.find_function(name).is_none()
                    && !names.is_pending_source(&source.original) =>
            {
                let problem = source.unknown_function_problem(name);
                self.add_finding(location, problem.message, problem.hint);
            }
            Some(_) => {}
            None => {
                self.reads_typed_fields |= global(base).is_none()
                    && name != "await"
                    && SyntaxKinds { names }.infer_kinds(base).is_none();
                let typed = || {
                    let fields = self.fields.filter(|_| !self.traced.is_changed(base))?;
                    fields
                        .check_field(expression, |used| signature_hint(used.source, used.function))
                };
                let traced = || self.traced.check_field(expression, signature_hint);
                let own = || text_fields::check_text_or_list_field(self.oracle, expression);
                let called = self.called.get(&expression.as_ptr()).and_then(|args| {
                    let on_text =
                        || text_fields::check_text_dot_call(self.oracle, expression, args);
                    self.traced.check_call(expression, args).or_else(on_text)
                });
                let found = called.or_else(typed).or_else(traced).or_else(own);
                self.found.extend(found);
                self.found.extend(self.unknown.check_member(base, name, expression, location));
            }
        }
    }

    fn check_call(&mut self, expression: Expression<'a>) {
        let ExpressionKind::Call { func, args, .. } = expression.kind() else { return };
        let names = self.oracle.names;
        if let Some(SdkReference::Function(_, source, function)) = names.resolve_expression(func) {
            let path = format!("sdk.{}.{}", source.name, function.name);
            if as_field_access(func).is_some_and(|it| it.colon) {
                let message = format!("{path} is called with a dot, not with a colon");
                return self.add_finding(
                    func.location(),
                    message,
                    Some(signature_hint(source, function)),
                );
            }
            return self.check_arguments(source, function, args, expression.location());
        }
        if let Some(called) = global(func)
            && let Some(skipped) = [("pcall", 1), ("xpcall", 2)].iter().find(|it| it.0 == called)
            && let Some(first) = args.first()
            && let Some(SdkReference::Function(_, source, function)) =
                names.resolve_expression(*first)
        {
            let rest = args.get(skipped.1..).unwrap_or_default();
            return self.check_arguments(source, function, rest, expression.location());
        }
        if global(func) == Some("require") && !names.facts.made.contains("require") {
            return self.check_require(args, func.location());
        }
        if global(func) == Some("ipairs")
            && !names.facts.made.contains("ipairs")
            && let Some(list) = args.first()
        {
            let found = self.traced.check_list_use(*list, ListOperation::Ipairs, list.location());
            self.found.extend(found);
        }
        self.called.insert(func.as_ptr(), args);
        self.check_double_await(func);
    }

    /// `require("json")`: scripts of agents have no files.
    fn check_require(&mut self, args: &[Expression<'a>], place: Location) {
        let catalog = self.oracle.names.catalog;
        let hint = match args.first().and_then(|arg| literal_text(*arg)) {
            Some(name) if script_globals::is_reserved_name(catalog, name) => {
                format!("{name} is a global: use it without require")
            }
            _ => "everything there is, is a global".to_owned(),
        };
        self.add_finding(place, "require: there are no files here".to_owned(), Some(hint));
    }

    fn check_arguments(
        &mut self,
        source: &SdkSource,
        function: &SdkFunction,
        args: &[Expression<'a>],
        place: Location,
    ) {
        let found = ArgumentChecker::check_arguments(self.oracle, (source, function), args, place);
        if found.is_empty() {
            return;
        }
        let hint = signature_hint(source, function);
        self.found.extend(found.into_iter().map(|finding| finding.with_hint(hint.clone())));
    }

    /// `sdk.files.read(…):await()`, which has waited already.
    fn check_double_await(&mut self, func: Expression<'a>) {
        let names = self.oracle.names;
        let Some(FieldAccess { mut base, name: "await", location, colon: true }) =
            as_field_access(func)
        else {
            return;
        };
        if let Some(local) = as_local(base)
            && let LocalOrigin::Value(value) = names.facts.local_origin(local)
        {
            base = value;
        }
        let ExpressionKind::Call { func, .. } = base.kind() else { return };
        if let Some(SdkReference::Function(SdkCallStyle::Sdk, source, function)) =
            names.resolve_expression(func)
        {
            let (source, function) = (&source.name, &function.name);
            let message =
                format!("sdk.{source}.{function} gives its value at once: leave :await() out");
            let hint = format!("{source}.{function}(…), without sdk, gives a promise");
            self.add_finding(location, message, Some(hint));
        }
    }

    fn add_finding(&mut self, place: Location, message: String, hint: Option<String>) {
        self.found.push(CheckFinding::new(place, message).with_optional_hint(hint));
    }
}

impl<'a> AstVisitor<'a> for FindingVisitor<'_, 'a, '_> {
    fn visit_statement(&mut self, _: Statement<'a>) -> bool {
        self.found.len() < MAX_COLLECTED_FINDINGS
    }

    /// What is in there runs during the check, with other globals.
    fn visit_type_function_statement(&mut self, _: Statement<'a>) -> bool {
        false
    }

    fn visit_expression(&mut self, expression: Expression<'a>) -> bool {
        match expression.kind() {
            ExpressionKind::IndexName { .. } => self.check_field(expression),
            ExpressionKind::IndexExpr { .. } => {
                self.check_field(expression);
                self.found.extend(self.traced.check_index(expression));
            }
            ExpressionKind::Call { .. } => self.check_call(expression),
            ExpressionKind::Unary { op: UnaryOp::Length, rhs } => {
                let place = expression.location();
                self.found.extend(self.traced.check_list_use(rhs, ListOperation::Length, place));
            }
            ExpressionKind::Global(_) => {
                self.found.extend(self.unknown.check_global(expression));
            }
            _ => {}
        }
        true
    }
}

/// The signature, for a hint.
fn signature_hint(source: &SdkSource, function: &SdkFunction) -> String {
    let mut text = sdk_function_docs(source, function, None).signature;
    if text.len() > MAX_SIGNATURE_BYTES {
        text.truncate(text.floor_char_boundary(MAX_SIGNATURE_BYTES));
        text.push('…');
    }
    text
}
