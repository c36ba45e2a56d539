//! What kinds of value an expression can have, and which a schema takes.
//!
//! In doubt it can have any: a kind that is missing here is surely missing.

use std::cell::Cell;

use luau_analysis::SemanticModel;
use luau_analysis::types::{PrimitiveTypeKind, SingletonValue, TypeId, TypeKind};
use luau_syntax::ast::{BinaryOp, Expression, ExpressionKind, UnaryOp};
use serde_json::{Map, Value as Json};

use super::script_facts::{LocalOrigin, as_field_access};
use super::sdk_names::{SdkNameResolver, global};
use super::syntax_kinds::SyntaxKinds;

const MAX_TYPE_DEPTH: usize = 16;

/// A set of kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ValueKinds(u8);

impl ValueKinds {
    pub(super) const NO_KIND: ValueKinds = ValueKinds(0);
    pub(super) const NIL_KIND: ValueKinds = ValueKinds(1);
    pub(super) const BOOLEAN_KIND: ValueKinds = ValueKinds(2);
    pub(super) const NUMBER_KIND: ValueKinds = ValueKinds(4);
    pub(super) const STRING_KIND: ValueKinds = ValueKinds(8);
    pub(super) const TABLE_KIND: ValueKinds = ValueKinds(16);
    pub(super) const FUNCTION_KIND: ValueKinds = ValueKinds(32);
    /// Anything at all.
    pub(super) const ANY_KIND: ValueKinds = ValueKinds(255);

    pub(super) fn join_kinds(self, other: ValueKinds) -> ValueKinds {
        ValueKinds(self.0 | other.0)
    }

    /// Whether some kind is in both.
    pub(super) fn intersects(self, other: ValueKinds) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether every kind is in the other set too.
    pub(super) fn is_within(self, other: ValueKinds) -> bool {
        self.0 & !other.0 == 0
    }

    /// What it is called, for a message.
    pub(super) fn describe_kinds(self) -> String {
        let words: Vec<&str> = [
            (ValueKinds::STRING_KIND, "a string"),
            (ValueKinds::NUMBER_KIND, "a number"),
            (ValueKinds::BOOLEAN_KIND, "a boolean"),
            (ValueKinds::TABLE_KIND, "a table"),
            (ValueKinds::FUNCTION_KIND, "a function"),
            (ValueKinds::NIL_KIND, "nil"),
        ]
        .into_iter()
        .filter(|(kind, _)| self.intersects(*kind))
        .map(|(_, word)| word)
        .collect();
        words.join(" or ")
    }
}

/// The kinds that a schema takes, by what it says of itself.
pub(super) fn kinds_of_schema(schema: &Map<String, Json>) -> ValueKinds {
    let of = |kind: &str| match kind {
        "string" => ValueKinds::STRING_KIND,
        "number" | "integer" => ValueKinds::NUMBER_KIND,
        "boolean" => ValueKinds::BOOLEAN_KIND,
        "array" | "object" => ValueKinds::TABLE_KIND,
        "null" => ValueKinds::NIL_KIND,
        _ => ValueKinds::ANY_KIND,
    };
    match schema.get("type") {
        Some(Json::String(kind)) => of(kind),
        Some(Json::Array(kinds)) => kinds
            .iter()
            .filter_map(Json::as_str)
            .map(of)
            .fold(ValueKinds::NO_KIND, ValueKinds::join_kinds),
        _ => ValueKinds::ANY_KIND,
    }
}

/// Tells kinds, with Luau's types where it has them.
pub(super) struct KindOracle<'x, 'a, 'c> {
    pub(super) names: &'x SdkNameResolver<'x, 'a, 'c>,
    pub(super) model: Option<&'x SemanticModel<'a>>,
    /// Whether something was asked that only types can answer.
    pub(super) needs_types: &'x Cell<bool>,
}

impl<'a> KindOracle<'_, 'a, '_> {
    pub(super) fn infer_kinds(&self, expression: Expression<'a>) -> ValueKinds {
        match expression.kind() {
            ExpressionKind::FunctionLiteral(_) => ValueKinds::FUNCTION_KIND,
            ExpressionKind::Grouped(inner) => self.infer_kinds(inner),
            _ => literal_kind(expression).unwrap_or_else(|| {
                if self.is_certain(expression, MAX_TYPE_DEPTH) {
                    self.kinds_from_type_checker(expression)
                } else {
                    ValueKinds::ANY_KIND
                }
            }),
        }
    }

    fn kinds_from_type_checker(&self, expression: Expression<'a>) -> ValueKinds {
        let Some(model) = self.model else {
            let known = SyntaxKinds { names: self.names }.infer_kinds(expression);
            return known.unwrap_or_else(|| {
                self.needs_types.set(true);
                ValueKinds::ANY_KIND
            });
        };
        model
            .expression_type(expression)
            .map_or(ValueKinds::ANY_KIND, |it| kinds_of_type(model, it.id(), MAX_TYPE_DEPTH))
    }

    /// Whether Luau knows the type from where the value comes from. What it
    /// concludes from how a value is used may be narrower than what is meant.
    fn is_certain(&self, expression: Expression<'a>, left: usize) -> bool {
        let Some(left) = left.checked_sub(1) else { return false };
        let both = |one, other| self.is_certain(one, left) && self.is_certain(other, left);
        match expression.kind() {
            ExpressionKind::Grouped(inner) => self.is_certain(inner, left),
            ExpressionKind::Unary { op, rhs } => {
                op != UnaryOp::Negate || self.is_certain(rhs, left)
            }
            ExpressionKind::Binary { lhs, op, rhs } => {
                use BinaryOp::{Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};
                let truth = [Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual];
                truth.contains(&op) || both(lhs, rhs)
            }
            ExpressionKind::If { then_expression, else_expression, .. } => {
                both(then_expression, else_expression)
            }
            ExpressionKind::Local { local, .. } => match self.names.facts.local_origin(local) {
                LocalOrigin::Value(value) | LocalOrigin::OneOf(value) => {
                    self.is_certain(value, left)
                }
                LocalOrigin::Counter => true,
                LocalOrigin::Each(over) | LocalOrigin::Key(over) => self.is_certain(over, left),
                LocalOrigin::Compared(_) | LocalOrigin::Unknown => false,
            },
            ExpressionKind::Call { func, .. } => self.is_known_function(func, left),
            ExpressionKind::IndexExpr { expr, .. } | ExpressionKind::IndexName { expr, .. } => {
                self.is_certain(expr, left)
            }
            _ => literal_kind(expression).is_some(),
        }
    }

    fn is_known_function(&self, function: Expression<'a>, left: usize) -> bool {
        let by_the_host = |it: Expression<'a>| {
            global(it).is_some_and(|name| {
                super::script_globals::is_reserved_name(self.names.catalog, name)
            })
        };
        if self.names.resolve_expression(function).is_some() || by_the_host(function) {
            return true;
        }
        // `string.format`, `text:upper()`, `promise:await()`.
        let Some(access) = as_field_access(function) else { return false };
        by_the_host(access.base) || (access.colon && self.is_certain(access.base, left))
    }
}

/// The kind of a value that stands there.
pub(super) fn literal_kind(expression: Expression<'_>) -> Option<ValueKinds> {
    Some(match expression.kind() {
        ExpressionKind::Nil => ValueKinds::NIL_KIND,
        ExpressionKind::Boolean(_) => ValueKinds::BOOLEAN_KIND,
        ExpressionKind::Number { .. } | ExpressionKind::Integer { .. } => ValueKinds::NUMBER_KIND,
        ExpressionKind::String { .. } | ExpressionKind::InterpString { .. } => {
            ValueKinds::STRING_KIND
        }
        ExpressionKind::Table { .. } => ValueKinds::TABLE_KIND,
        _ => return None,
    })
}

fn kinds_of_type(model: &SemanticModel<'_>, id: TypeId, left: usize) -> ValueKinds {
    let Some(left) = left.checked_sub(1) else { return ValueKinds::ANY_KIND };
    let graph = model.graph();
    match graph.kind(graph.follow_type(id)) {
        TypeKind::Primitive(primitive) => match primitive.kind {
            PrimitiveTypeKind::Nil => ValueKinds::NIL_KIND,
            PrimitiveTypeKind::Boolean => ValueKinds::BOOLEAN_KIND,
            PrimitiveTypeKind::Number => ValueKinds::NUMBER_KIND,
            PrimitiveTypeKind::String => ValueKinds::STRING_KIND,
            PrimitiveTypeKind::Function => ValueKinds::FUNCTION_KIND,
            PrimitiveTypeKind::Table => ValueKinds::TABLE_KIND,
            _ => ValueKinds::ANY_KIND,
        },
        TypeKind::Singleton(singleton) => match singleton.value {
            SingletonValue::Boolean(_) => ValueKinds::BOOLEAN_KIND,
            SingletonValue::String(_) => ValueKinds::STRING_KIND,
        },
        TypeKind::Table(_) => ValueKinds::TABLE_KIND,
        TypeKind::Function(_) => ValueKinds::FUNCTION_KIND,
        TypeKind::Union(union) => union
            .options
            .iter()
            .map(|option| kinds_of_type(model, *option, left))
            .fold(ValueKinds::NO_KIND, ValueKinds::join_kinds),
        _ => ValueKinds::ANY_KIND,
    }
}
