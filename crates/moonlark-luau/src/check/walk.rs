//! One script, from its text to what is wrong with it.

use luau_analysis::SemanticModel;
use luau_syntax::ast::{AstVisitor, Block, Expression, ExpressionKind};
use luau_syntax::location::Location;
use luau_syntax::parser::{ParseOptions, ParsedSource};
use moonlark_core::Catalog;
use moonlark_core::nearest::nearest;
use moonlark_core::render::luau::sdk::signature;
use moonlark_core::sdk::{SdkFunction, SdkSource};
use moonlark_core::value::shorten;

use super::calls::Arguments;
use super::facts::{Facts, Origin};
use super::fields::Fields;
use super::kinds::Oracle;
use super::names::{Access, Named, Names, Way, access, global};
use super::preamble::{Preamble, Used};
use super::typing::Typing;
use super::{Finding, globals};
use crate::errors::luau_way;

/// More would not be read.
const MOST: usize = 20;
/// How long a signature may be as a hint.
const LONGEST: usize = 600;

/// Checks scripts on the thread it was made on. `run` has some of them.
pub struct Checker {
    /// None if there is something wrong with it; names and literal arguments
    /// are checked all the same.
    typing: Option<Typing>,
}

impl Checker {
    pub fn new(catalog: &Catalog) -> Checker {
        Checker { typing: Typing::new(catalog.modules().clone()) }
    }

    /// Whether it knows the host modules of this catalog.
    pub(super) fn is_for(&self, catalog: &Catalog) -> bool {
        self.typing.as_ref().is_none_or(|typing| typing.is_for(catalog.modules()))
    }

    /// What is surely wrong with `script`.
    pub fn check(&mut self, script: &str, catalog: &Catalog) -> Vec<Finding> {
        look(script, catalog, self.typing.as_mut())
    }

    /// What Luau itself says about a text, for tests of what is drawn for it.
    #[doc(hidden)]
    pub fn luau_says(&mut self, text: &str) -> Vec<String> {
        self.typing.as_mut().map_or_else(Vec::new, |typing| typing.mistakes(text.to_owned()))
    }
}

fn look(script: &str, catalog: &Catalog, typing: Option<&mut Typing>) -> Vec<Finding> {
    // The declarations of tools will be on a line before it.
    let text = format!("\n{script}");
    let parsed = match ParsedSource::parse(&text, ParseOptions::default()) {
        Ok(parsed) if parsed.metadata().errors.is_empty() => parsed,
        _ => return syntax(script),
    };
    let root = parsed.root();
    let used = uses(root, catalog);
    let typed = typing.and_then(|typing| {
        let preamble = Preamble::new(&used);
        let text = format!("{}{script}", preamble.text);
        typing.look(text, |model| {
            let root = model.module().root()?;
            Some(judge(root, script, catalog, Some((model, &preamble))))
        })
    });
    let mut found = typed.flatten().unwrap_or_else(|| judge(root, script, catalog, None));
    found.sort();
    found.dedup();
    found.truncate(MOST);
    found
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
    let line = script.lines().nth(error.location.begin.line as usize).unwrap_or_default();
    finding.hint = luau_way(&message, line).map(str::to_owned);
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
) -> Vec<Finding> {
    let facts = Facts::of(root);
    let names = Names { facts: &facts, catalog };
    let oracle = Oracle { names: &names, model: typed.map(|(model, _)| model) };
    let fields = typed.map(|(model, preamble)| Fields::new(model, &facts, preamble));
    let mut judge = Judge { script, oracle: &oracle, fields: fields.as_ref(), found: Vec::new() };
    root.visit(&mut judge);
    judge.found
}

struct Judge<'x, 'a, 'c> {
    script: &'x str,
    oracle: &'x Oracle<'x, 'a, 'c>,
    fields: Option<&'x Fields<'x, 'a, 'c>>,
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
                let found = self.fields.and_then(|fields| {
                    fields.check(expression, |used| signed(used.source, used.function))
                });
                self.found.extend(found);
                self.module(base, name, location);
            }
        }
    }

    /// `json.decod`
    fn module(&mut self, base: Expression<'a>, name: &str, place: Location) {
        let catalog = self.oracle.names.catalog;
        let Some(module) = global(base).and_then(|base| globals::module(catalog, base)) else {
            return;
        };
        let functions = module.functions.iter().map(|function| function.name);
        let known = || functions.clone().chain(module.constants.iter().map(|it| it.name));
        if module.callable || known().any(|known| known == name) {
            return;
        }
        let near = nearest(name, known());
        let hint = match near {
            Some(near) => format!("did you mean {}.{near}?", module.name),
            None => format!("it has {}", known().collect::<Vec<_>>().join(", ")),
        };
        self.say(place, format!("{} has no function {}", module.name, shorten(name)), Some(hint));
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
        self.waits_twice(func);
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

    fn global(&mut self, expression: Expression<'a>) {
        let names = self.oracle.names;
        let Some(name) = global(expression) else { return };
        let known = globals::is_taken(names.catalog, name)
            || names.catalog.sdk().source(name).is_some_and(|source| source.name == name)
            || names.facts.made.contains(name.as_bytes())
            || names.facts.is_tested(expression)
            || names.is_awaited(name);
        if known || expression.location().begin.line == 0 {
            return;
        }
        let place = expression.location();
        let line = self.script.lines().nth(place.begin.line.saturating_sub(1) as usize);
        let elsewhere = globals::ELSEWHERE.contains(&name);
        let hint = match luau_way("", line.filter(|_| elsewhere).unwrap_or_default()) {
            Some(hint) => Some(hint.to_owned()),
            None => nearest(name, globals::all(names.catalog))
                .map(|near| format!("did you mean {near}?")),
        };
        self.say(place, format!("there is nothing called {}", shorten(name)), hint);
    }

    fn say(&mut self, place: Location, message: String, hint: Option<String>) {
        let mut finding = Finding::new(place, message);
        finding.hint = hint;
        self.found.push(finding);
    }
}

impl<'a> AstVisitor<'a> for Judge<'_, 'a, '_> {
    fn visit_index_name_expression(&mut self, expression: Expression<'a>) -> bool {
        self.field(expression);
        true
    }

    fn visit_index_expression(&mut self, expression: Expression<'a>) -> bool {
        self.field(expression);
        true
    }

    fn visit_call_expression(&mut self, expression: Expression<'a>) -> bool {
        self.call(expression);
        true
    }

    fn visit_global_expression(&mut self, expression: Expression<'a>) -> bool {
        self.global(expression);
        true
    }
}

/// The signature, for a hint.
fn signed(source: &SdkSource, function: &SdkFunction) -> String {
    let mut text = signature(source, function, None).signature;
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}
