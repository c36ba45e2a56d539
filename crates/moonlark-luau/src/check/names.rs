//! What an expression names: the sdk, one of its sources, one of their
//! functions. Locals that are never changed are seen through.

use luau_syntax::ast::{Expression, ExpressionKind, IndexNameOp};
use luau_syntax::location::Location;
use moonlark_core::Catalog;
use moonlark_core::sdk::{SdkFunction, SdkSource};

pub(super) use super::facts::global_name as global;
use super::facts::{Facts, Origin};
use super::globals;

/// How many locals a name may go through.
const DEEPEST: usize = 8;

#[derive(Clone, Copy)]
pub(super) enum Named<'c> {
    Sdk,
    Source(Way, &'c SdkSource),
    Function(Way, &'c SdkSource, &'c SdkFunction),
}

/// How a function is reached, which decides what it gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(super) enum Way {
    /// `sdk.files.read`: the value.
    Sdk,
    /// `files.read`: a promise.
    Global,
}

pub(super) struct Names<'x, 'a, 'c> {
    pub(super) facts: &'x Facts<'a>,
    pub(super) catalog: &'c Catalog,
}

/// `x.name` or `x["name"]`.
pub(super) struct Access<'a> {
    pub(super) base: Expression<'a>,
    pub(super) name: &'a str,
    pub(super) location: Location,
    pub(super) colon: bool,
}

/// A field that is read by a name that stands there.
pub(super) fn access<'a>(expression: Expression<'a>) -> Option<Access<'a>> {
    match expression.kind() {
        ExpressionKind::IndexName { expr, index, index_location, op, .. } => Some(Access {
            base: expr,
            name: std::str::from_utf8(index.bytes()).ok()?,
            location: index_location,
            colon: op == IndexNameOp::Colon,
        }),
        ExpressionKind::IndexExpr { expr, index } => match index.kind() {
            ExpressionKind::String { value, .. } => Some(Access {
                base: expr,
                name: std::str::from_utf8(value.into_bytes()).ok()?,
                location: index.location(),
                colon: false,
            }),
            _ => None,
        },
        _ => None,
    }
}

impl<'a, 'c> Names<'_, 'a, 'c> {
    pub(super) fn of(&self, expression: Expression<'a>) -> Option<Named<'c>> {
        self.through(expression, DEEPEST)
    }

    fn through(&self, expression: Expression<'a>, left: usize) -> Option<Named<'c>> {
        let left = left.checked_sub(1)?;
        if let Some(name) = global(expression) {
            return self.global(name);
        }
        if let Some(Access { base, name, .. }) = access(expression) {
            return match self.through(base, left)? {
                Named::Sdk => Some(Named::Source(Way::Sdk, self.catalog.sdk().source(name)?)),
                Named::Source(way, source) => {
                    Some(Named::Function(way, source, source.function(name)?))
                }
                Named::Function(..) => None,
            };
        }
        match expression.kind() {
            ExpressionKind::Grouped(inner) => self.through(inner, left),
            ExpressionKind::Local { local, .. } => match self.facts.origin(local) {
                Origin::Value(value) => self.through(value, left),
                _ => None,
            },
            _ => None,
        }
    }

    fn global(&self, name: &str) -> Option<Named<'c>> {
        if self.facts.made.contains(name.as_bytes()) {
            return None;
        }
        if name == "sdk" {
            return Some(Named::Sdk);
        }
        if globals::is_taken(self.catalog, name) {
            return None;
        }
        let source = self.catalog.sdk().source(name).filter(|source| source.name == name)?;
        Some(Named::Source(Way::Global, source))
    }

    /// Whether a source of this name may come, or is known and out of reach:
    /// the call itself will say more.
    pub(super) fn is_awaited(&self, name: &str) -> bool {
        let is = |source: &str| source == name || moonlark_core::sdk::identifier(source) == name;
        let down = self.catalog.health().iter().filter(|it| it.state != "ready");
        self.catalog.connecting().iter().any(|it| is(&it.source))
            || down.into_iter().any(|it| is(&it.source))
    }
}
