//! Unknown names: globals that nobody made, and functions that a module or a library of
//! the language does not have.

use luau_syntax::ast::Expression;
use luau_syntax::location::Location;
use moonlark_core::nearest::nearest_name;
use moonlark_core::value::shorten_text;

use super::local_scopes::{LocalScopes, UnreachableLocal};
use super::sdk_names::{SdkNameResolver, global};
use super::{CheckFinding, UNKNOWN_NAME_PREFIX, script_globals};
use crate::luau_errors::hint_for_lua_spelling;
use crate::other_languages;

/// A shorter global is like too many others to be a misspelling of one.
const MIN_MISSPELT_GLOBAL_LETTERS: usize = 4;

/// The same for locals.
const MIN_MISSPELT_LOCAL_BYTES: usize = 3;

pub(super) struct UnknownNameChecker<'x, 'a, 'c> {
    pub(super) names: &'x SdkNameResolver<'x, 'a, 'c>,
    pub(super) scopes: &'x LocalScopes<'a>,
    pub(super) script: &'x str,
}

impl<'a> UnknownNameChecker<'_, 'a, '_> {
    /// What is wrong with reading this global, if nobody has made it.
    pub(super) fn check_global(&self, expression: Expression<'a>) -> Option<CheckFinding> {
        let SdkNameResolver { facts, catalog } = self.names;
        let name = global(expression)?;
        let known = script_globals::is_reserved_name(catalog, name)
            || catalog.sdk().find_source(name).is_some_and(|source| source.name == name)
            || facts.made.contains(name)
            || self.names.is_pending_source(name);
        let place = expression.location();
        if known || place.begin.line == 0 {
            return None;
        }
        // Whether something is there may be asked of anything, but not of what is
        // plainly another name.
        let is_asked_for = facts.is_tested(expression) && !facts.is_right_operand(expression);
        // Other versions of the language are told apart by what they have.
        if is_asked_for && script_globals::UNAVAILABLE_LUA_GLOBALS.contains(&name) {
            return None;
        }
        let hint = other_languages::hint_for_constant(name)
            .map(str::to_owned)
            .or_else(|| self.hint_for_local(name, place));
        let near = || nearest_name(name, script_globals::all_global_names(catalog));
        let hint = if is_asked_for {
            let is_long = name.chars().count() >= MIN_MISSPELT_GLOBAL_LETTERS;
            Some(hint.or_else(|| near().filter(|_| is_long).map(did_you_mean))?)
        } else {
            hint.or_else(|| self.hint_for_foreign_global(name, place).map(str::to_owned))
                .or_else(|| near().map(did_you_mean))
        };
        let message = format!("{UNKNOWN_NAME_PREFIX}{}", shorten_text(name));
        Some(CheckFinding::new(place, message).with_optional_hint(hint))
    }

    /// What a global of other languages is called here.
    fn hint_for_foreign_global(&self, name: &str, place: Location) -> Option<&'static str> {
        let line = self.source_line(place);
        let is_of_lua = script_globals::UNAVAILABLE_LUA_GLOBALS.contains(&name);
        let in_lua = hint_for_lua_spelling("", line, true).filter(|_| is_of_lua);
        in_lua.or_else(|| other_languages::hint_for_global(name, line))
    }

    /// The local that is meant: one that is out of reach, or spelt otherwise.
    fn hint_for_local(&self, name: &str, place: Location) -> Option<String> {
        match self.scopes.find_unreachable(name, place.begin) {
            Some(UnreachableLocal::Ended(line)) => Some(format!(
                "the local {name} of line {line} is only known inside of its block: \
                 declare it before the block, with local {name}"
            )),
            Some(UnreachableLocal::Later(line)) => {
                Some(format!("{name} is declared later, in line {line}: move that up"))
            }
            None if name.len() < MIN_MISSPELT_LOCAL_BYTES => None,
            None => nearest_name(name, self.scopes.names_at(place.begin)).map(did_you_mean),
        }
    }

    /// `json.decod`, `string.trim`
    pub(super) fn check_member(
        &self,
        base: Expression<'a>,
        name: &str,
        expression: Expression<'a>,
        place: Location,
    ) -> Option<CheckFinding> {
        let facts = self.names.facts;
        let owner = global(base).filter(|owner| !facts.made.contains(owner))?;
        if let Some(finding) = self.check_module_member(owner, name, place) {
            return Some(finding);
        }
        let (library, members) = script_globals::find_library(owner)?;
        // Older versions of the language are told apart like this.
        if members.contains(&name) || facts.is_tested(expression) {
            return None;
        }
        let hint = other_languages::hint_for_member(library, name).map(str::to_owned);
        let near = || {
            let near = nearest_name(name, members.iter().copied())?;
            Some(format!("did you mean {library}.{near}?"))
        };
        let in_lua = || {
            let hint = hint_for_lua_spelling("", self.source_line(place), true)
                .filter(|_| library == "os");
            hint.map(str::to_owned)
        };
        let finding =
            CheckFinding::new(place, format!("{library} has no function {}", shorten_text(name)));
        let has = || format!("it has {}", members.join(", "));
        Some(finding.with_hint(hint.or_else(in_lua).or_else(near).unwrap_or_else(has)))
    }

    fn check_module_member(
        &self,
        owner: &str,
        name: &str,
        place: Location,
    ) -> Option<CheckFinding> {
        let catalog = self.names.catalog;
        let module = script_globals::find_module(catalog, owner)?;
        let functions = module.functions.iter().map(|function| function.name);
        let known = || functions.clone().chain(module.constants.iter().map(|it| it.name));
        if module.callable || known().any(|known| known == name) {
            return None;
        }
        // A source of the same name is there too, under sdk.
        let source = catalog.sdk().find_source(module.name);
        let of_source = |name: &str| {
            let function = source?.find_function(name)?;
            Some(format!("did you mean sdk.{}.{}?", source?.name, function.name))
        };
        let near_of_source = || {
            let names = source?.functions.iter().map(|it| it.name.as_str());
            of_source(nearest_name(name, names)?)
        };
        let elsewhere = || other_languages::hint_for_member(module.name, name).map(str::to_owned);
        let near = || {
            nearest_name(name, known()).map(|near| format!("did you mean {}.{near}?", module.name))
        };
        let hint = of_source(name).or_else(elsewhere).or_else(near).or_else(near_of_source);
        let hint = hint.unwrap_or_else(|| {
            let also = source.map(|it| format!("; the source of that name is sdk.{}", it.name));
            let has = known().collect::<Vec<_>>().join(", ");
            format!("it has {has}{}", also.unwrap_or_default())
        });
        let message = format!("{} has no function {}", module.name, shorten_text(name));
        Some(CheckFinding::new(place, message).with_hint(hint))
    }

    fn source_line(&self, place: Location) -> &str {
        let line = place.begin.line.saturating_sub(1) as usize;
        self.script.lines().nth(line).unwrap_or_default()
    }
}

fn did_you_mean(name: &str) -> String {
    format!("did you mean {name}?")
}
