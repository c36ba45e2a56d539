//! What kind of value an expression has, by the script's text alone: where Luau's type checker
//! could say no more, it need not run.
//!
//! Most scripts that agents write use tools that declare no results. What such a tool answers
//! is `any` to the type checker, and so is everything made of it. The type checker takes most
//! of the time of a check, so a script that it has nothing to say about is checked without it.
//! In doubt there is no answer here, and the type checker is asked.

use luau_syntax::ast::{BinaryOp, Expression, ExpressionKind, UnaryOp};
use moonlark_render::luau::sdk_docs::declared_result;

use super::script_facts::{FieldAccess, LocalOrigin, as_field_access};
use super::sdk_names::{SdkCallStyle, SdkNameResolver, SdkReference, global};
use super::value_kinds::{ValueKinds, literal_kind};
use moonlark_core::sdk::SdkFunction;

/// How many parts of expressions, one inside the other, are looked at.
const MAX_EXPRESSION_DEPTH: usize = 16;

/// Whether the type checker knows what a function gives.
pub(super) fn has_declared_result(function: &SdkFunction) -> bool {
    declared_result(function, "").is_some_and(|(result, _)| result != "any")
}

/// Tells kinds by the text of a script.
pub(super) struct SyntaxKinds<'x, 'a, 'c> {
    pub(super) names: &'x SdkNameResolver<'x, 'a, 'c>,
}

impl<'a> SyntaxKinds<'_, 'a, '_> {
    /// The kinds that the type checker would tell; none where that cannot be said without it.
    pub(super) fn infer_kinds(&self, expression: Expression<'a>) -> Option<ValueKinds> {
        self.infer_to_depth(expression, MAX_EXPRESSION_DEPTH)
    }

    fn infer_to_depth(&self, expression: Expression<'a>, left: usize) -> Option<ValueKinds> {
        let left = left.checked_sub(1)?;
        if let Some(kind) = literal_kind(expression) {
            return Some(kind);
        }
        match expression.kind() {
            ExpressionKind::Grouped(inner) => self.infer_to_depth(inner, left),
            ExpressionKind::Unary { op: UnaryOp::Not, .. } => Some(ValueKinds::BOOLEAN_KIND),
            ExpressionKind::Unary { op: UnaryOp::Negate, rhs } => {
                self.infer_to_depth(rhs, left).filter(|kinds| is_number_or_any(*kinds))
            }
            ExpressionKind::Binary { lhs, op, rhs } => {
                let sides = [self.infer_to_depth(lhs, left)?, self.infer_to_depth(rhs, left)?];
                binary_kinds(op, sides)
            }
            ExpressionKind::Local { local, .. } => {
                let facts = self.names.facts;
                if facts.is_narrowed(local) {
                    return None;
                }
                match facts.local_origin(local) {
                    LocalOrigin::Value(value) => self.infer_to_depth(value, left),
                    LocalOrigin::OneOf(values) => self.kinds_after_first(values),
                    LocalOrigin::Each(over) => self.item_kinds(over, left),
                    LocalOrigin::Counter
                    | LocalOrigin::Key(_)
                    | LocalOrigin::Compared(_)
                    | LocalOrigin::Unknown => None,
                }
            }
            ExpressionKind::Call { func, .. } => self.call_kinds(func, left),
            ExpressionKind::IndexExpr { expr, .. } | ExpressionKind::IndexName { expr, .. } => {
                // A part of what may be anything may be anything.
                self.infer_to_depth(expr, left).filter(|kinds| *kinds == ValueKinds::ANY_KIND)
            }
            _ => None,
        }
    }

    /// What a call gives first.
    fn call_kinds(&self, func: Expression<'a>, left: usize) -> Option<ValueKinds> {
        match self.names.resolve_expression(func) {
            Some(SdkReference::Function(SdkCallStyle::Sdk, _, function)) => {
                return (!has_declared_result(function)).then_some(ValueKinds::ANY_KIND);
            }
            Some(_) => return None,
            None => {}
        }
        match self.host_function(func) {
            Some("pcall" | "xpcall") => return Some(ValueKinds::BOOLEAN_KIND),
            Some("tostring") => return Some(ValueKinds::STRING_KIND),
            _ => {}
        }
        match as_field_access(func)? {
            FieldAccess { base, name: "await", colon: true, .. } => self.awaited_kinds(base, left),
            // A method of what may be anything.
            FieldAccess { base, colon: true, .. } => {
                self.infer_to_depth(base, left).filter(|kinds| *kinds == ValueKinds::ANY_KIND)
            }
            FieldAccess { .. } => None,
        }
    }

    /// What `promise:await()` gives.
    fn awaited_kinds(&self, promise: Expression<'a>, left: usize) -> Option<ValueKinds> {
        let left = left.checked_sub(1)?;
        match promise.kind() {
            ExpressionKind::Grouped(inner) => self.awaited_kinds(inner, left),
            ExpressionKind::Local { local, .. } => match self.names.facts.local_origin(local) {
                LocalOrigin::Value(value) if !self.names.facts.is_narrowed(local) => {
                    self.awaited_kinds(value, left)
                }
                _ => None,
            },
            ExpressionKind::Call { func, .. } => match self.names.resolve_expression(func)? {
                SdkReference::Function(SdkCallStyle::Global, _, function) => {
                    (!has_declared_result(function)).then_some(ValueKinds::ANY_KIND)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// What a call gives behind its first value.
    fn kinds_after_first(&self, values: Expression<'a>) -> Option<ValueKinds> {
        let ExpressionKind::Call { func, .. } = values.kind() else { return None };
        let is_caught = matches!(self.host_function(func), Some("pcall" | "xpcall"));
        is_caught.then_some(ValueKinds::ANY_KIND)
    }

    /// What a loop over this gives beside the key.
    fn item_kinds(&self, over: Expression<'a>, left: usize) -> Option<ValueKinds> {
        let list = match over.kind() {
            ExpressionKind::Call { func, args: [list], .. }
                if matches!(self.host_function(func), Some("pairs" | "ipairs")) =>
            {
                *list
            }
            _ => over,
        };
        self.infer_to_depth(list, left).filter(|kinds| *kinds == ValueKinds::ANY_KIND)
    }

    /// The name of a global function that the script has not made itself.
    fn host_function(&self, func: Expression<'a>) -> Option<&'a str> {
        global(func).filter(|name| !self.names.facts.made.contains(name))
    }
}

fn is_number_or_any(kinds: ValueKinds) -> bool {
    kinds == ValueKinds::NUMBER_KIND || kinds == ValueKinds::ANY_KIND
}

fn binary_kinds(op: BinaryOp, sides: [ValueKinds; 2]) -> Option<ValueKinds> {
    use BinaryOp::{And, Concat, Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual, Or};
    let is_any = sides.contains(&ValueKinds::ANY_KIND);
    match op {
        Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual => {
            Some(ValueKinds::BOOLEAN_KIND)
        }
        And | Or => is_any.then_some(ValueKinds::ANY_KIND),
        Concat => {
            let text = ValueKinds::STRING_KIND.join_kinds(ValueKinds::NUMBER_KIND);
            let is_text = sides.iter().all(|kinds| kinds.is_within(text));
            is_text.then_some(ValueKinds::STRING_KIND)
        }
        _ => (sides == [ValueKinds::NUMBER_KIND; 2]).then_some(ValueKinds::NUMBER_KIND),
    }
}
