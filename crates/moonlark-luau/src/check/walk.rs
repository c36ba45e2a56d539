//! One script, from its text to what is wrong with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use luau_analysis::SemanticModel;
use luau_syntax::ast::{AstVisitor, Block, Expression, ExpressionKind, Statement};
use luau_syntax::location::Location;
use luau_syntax::parser::{ParseOptions, ParsedSource};
use moonlark_core::nearest::nearest;
use moonlark_core::render::luau::sdk::signature;
use moonlark_core::sdk::{SdkFunction, SdkSource};
use moonlark_core::value::shorten;
use moonlark_core::{Catalog, Module};

use super::calls::Arguments;
use super::facts::{Facts, Origin};
use super::fields::Fields;
use super::kinds::Oracle;
use super::names::{Access, Named, Names, Way, access, global};
use super::preamble::{Preamble, Used};
use super::typing::Typing;
use super::{Finding, NOTHING_CALLED, globals};
use crate::errors::{luau_way, syntax_hint};
use crate::fences::strip_fences;
use crate::foreign;

/// More would not be read.
const MOST: usize = 20;
/// How long a signature may be as a hint.
const LONGEST: usize = 600;

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
        find: impl FnOnce(&BTreeSet<&str>) -> Option<Arc<Catalog>>,
    ) -> Option<(Vec<Finding>, bool)> {
        look(script, find, self.typing.as_mut())
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
) -> Option<(Vec<Finding>, bool)> {
    let script = &strip_fences(script.to_owned());
    // The declarations of tools will be on a line before it.
    let text = format!("\n{script}");
    let parsed = match ParsedSource::parse(&text, ParseOptions::default()) {
        Ok(parsed) if parsed.metadata().errors.is_empty() => parsed,
        _ => return Some((syntax(script), false)),
    };
    let root = parsed.root();
    let mut mentioned = MentionedNames::default();
    root.visit(&mut mentioned);
    let catalog = &*find(&mentioned.0)?;
    let used = uses(root, catalog);
    let typed = typing.and_then(|typing| {
        let preamble = Preamble::new(&used);
        let text = format!("{}{script}", preamble.text);
        typing.look(text, |model| {
            let root = model.module().root()?;
            Some(judge(root, script, catalog, Some((model, &preamble))))
        })
    });
    let typed = typed.flatten();
    let untyped = typed.is_none();
    let mut found = typed.unwrap_or_else(|| judge(root, script, catalog, None));
    found.sort();
    found.dedup();
    found.truncate(MOST);
    Some((found, untyped))
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
    let line = script.lines().nth(error.location.begin.line as usize).unwrap_or_default();
    finding.hint = syntax_hint(&message, line, true).map(str::to_owned);
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
        // A source of the same name is there too, under sdk.
        let source = catalog.sdk().source(module.name);
        let of_source = |name: &str| {
            let function = source?.function(name)?;
            Some(format!("did you mean sdk.{}.{}?", source?.name, function.name))
        };
        let near_of_source = || {
            let names = source?.functions.iter().map(|it| it.name.as_str());
            of_source(nearest(name, names)?)
        };
        let near =
            || nearest(name, known()).map(|near| format!("did you mean {}.{near}?", module.name));
        let hint = of_source(name).or_else(near).or_else(near_of_source).unwrap_or_else(|| {
            let also = source.map(|it| format!("; the source of that name is sdk.{}", it.name));
            let has = known().collect::<Vec<_>>().join(", ");
            format!("it has {has}{}", also.unwrap_or_default())
        });
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
        if global(func) == Some("require") && !names.facts.made.contains(b"require".as_slice()) {
            return self.require(args, func.location());
        }
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
        let line = line.unwrap_or_default();
        let in_lua = luau_way("", line, true).filter(|_| elsewhere);
        let elsewhere = in_lua.or_else(|| foreign::hint_for_global(name, line));
        let near = || nearest(name, globals::all(names.catalog)).map(str::to_owned);
        let hint = match elsewhere {
            Some(hint) => Some(hint.to_owned()),
            None => near().map(|near| format!("did you mean {near}?")),
        };
        self.say(place, format!("{NOTHING_CALLED}{}", shorten(name)), hint);
    }

    fn say(&mut self, place: Location, message: String, hint: Option<String>) {
        let mut finding = Finding::new(place, message);
        finding.hint = hint;
        self.found.push(finding);
    }
}

impl<'a> AstVisitor<'a> for Judge<'_, 'a, '_> {
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
