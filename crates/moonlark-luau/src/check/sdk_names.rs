//! Name resolution of `sdk` expressions: the sdk, one of its sources, one of their
//! functions. Locals that are never changed are seen through.

use luau_syntax::ast::{Expression, ExpressionKind};
use moonlark_core::Catalog;
use moonlark_core::sdk::{SdkFunction, SdkSource};
use moonlark_core::source_resources::SourceState;

pub(super) use super::script_facts::global_name as global;
use super::script_facts::{FieldAccess, LocalOrigin, ScriptFacts, as_field_access};
use super::script_globals;

/// How many locals a name may go through.
const MAX_ALIAS_DEPTH: usize = 8;

#[derive(Clone, Copy)]
pub(super) enum SdkReference<'c> {
    Sdk,
    Source(SdkCallStyle, &'c SdkSource),
    Function(SdkCallStyle, &'c SdkSource, &'c SdkFunction),
}

/// How a function is reached, which decides what it gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(super) enum SdkCallStyle {
    /// `sdk.files.read`: the value.
    Sdk,
    /// `files.read`: a promise.
    Global,
}

pub(super) struct SdkNameResolver<'x, 'a, 'c> {
    pub(super) facts: &'x ScriptFacts<'a>,
    pub(super) catalog: &'c Catalog,
}

impl<'a, 'c> SdkNameResolver<'_, 'a, 'c> {
    pub(super) fn resolve_expression(
        &self,
        expression: Expression<'a>,
    ) -> Option<SdkReference<'c>> {
        self.resolve_to_depth(expression, MAX_ALIAS_DEPTH)
    }

    fn resolve_to_depth(
        &self,
        expression: Expression<'a>,
        left: usize,
    ) -> Option<SdkReference<'c>> {
        let left = left.checked_sub(1)?;
        if let Some(name) = global(expression) {
            return self.resolve_global(name);
        }
        if let Some(FieldAccess { base, name, .. }) = as_field_access(expression) {
            return match self.resolve_to_depth(base, left)? {
                SdkReference::Sdk => Some(SdkReference::Source(
                    SdkCallStyle::Sdk,
                    self.catalog.sdk().find_source(name)?,
                )),
                SdkReference::Source(way, source) => {
                    Some(SdkReference::Function(way, source, source.find_function(name)?))
                }
                SdkReference::Function(..) => None,
            };
        }
        match expression.kind() {
            ExpressionKind::Grouped(inner) => self.resolve_to_depth(inner, left),
            ExpressionKind::Local { local, .. } => match self.facts.local_origin(local) {
                LocalOrigin::Value(value) => self.resolve_to_depth(value, left),
                _ => None,
            },
            _ => None,
        }
    }

    fn resolve_global(&self, name: &str) -> Option<SdkReference<'c>> {
        if self.facts.made.contains(name) {
            return None;
        }
        if name == "sdk" {
            return Some(SdkReference::Sdk);
        }
        if script_globals::is_reserved_name(self.catalog, name) {
            return None;
        }
        let source = self.catalog.sdk().find_source(name).filter(|source| source.name == name)?;
        Some(SdkReference::Source(SdkCallStyle::Global, source))
    }

    /// Whether a source of this name may come, or is known and out of reach:
    /// the call itself will say more.
    pub(super) fn is_pending_source(&self, name: &str) -> bool {
        let is = |source: &str| source == name || moonlark_core::sdk::to_identifier(source) == name;
        let mut down = self.catalog.health().iter().filter(|it| it.state != SourceState::Ready);
        self.catalog.connecting_sources().iter().any(|it| is(&it.source))
            || down.any(|it| is(&it.source))
    }
}
