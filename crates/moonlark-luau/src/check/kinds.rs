//! What kinds of value an expression can have, and which a schema takes.
//!
//! In doubt it can have any: a kind that is missing here is surely missing.

use luau_analysis::SemanticModel;
use luau_analysis::types::{PrimitiveTypeKind, SingletonValue, TypeId, TypeKind};
use luau_syntax::ast::{BinaryOp, Expression, ExpressionKind, UnaryOp};
use serde_json::{Map, Value as Json};

use super::facts::Origin;
use super::names::{Names, access, global};

const DEEPEST: usize = 16;

/// A set of kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kinds(u8);

impl Kinds {
    pub(super) const NONE: Kinds = Kinds(0);
    pub(super) const NIL: Kinds = Kinds(1);
    pub(super) const BOOLEAN: Kinds = Kinds(2);
    pub(super) const NUMBER: Kinds = Kinds(4);
    pub(super) const STRING: Kinds = Kinds(8);
    pub(super) const TABLE: Kinds = Kinds(16);
    pub(super) const FUNCTION: Kinds = Kinds(32);
    /// Anything at all.
    pub(super) const ANY: Kinds = Kinds(255);

    pub(super) fn or(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    /// Whether some kind is in both.
    pub(super) fn meets(self, other: Kinds) -> bool {
        self.0 & other.0 != 0
    }

    /// What it is called, for a message.
    pub(super) fn words(self) -> String {
        let words: Vec<&str> = [
            (Kinds::STRING, "a string"),
            (Kinds::NUMBER, "a number"),
            (Kinds::BOOLEAN, "a boolean"),
            (Kinds::TABLE, "a table"),
            (Kinds::FUNCTION, "a function"),
            (Kinds::NIL, "nil"),
        ]
        .into_iter()
        .filter(|(kind, _)| self.meets(*kind))
        .map(|(_, word)| word)
        .collect();
        words.join(" or ")
    }
}

/// The kinds that a schema takes, by what it says of itself.
pub(super) fn of_schema(schema: &Map<String, Json>) -> Kinds {
    let of = |kind: &str| match kind {
        "string" => Kinds::STRING,
        "number" | "integer" => Kinds::NUMBER,
        "boolean" => Kinds::BOOLEAN,
        "array" | "object" => Kinds::TABLE,
        "null" => Kinds::NIL,
        _ => Kinds::ANY,
    };
    match schema.get("type") {
        Some(Json::String(kind)) => of(kind),
        Some(Json::Array(kinds)) => {
            kinds.iter().filter_map(Json::as_str).map(of).fold(Kinds::NONE, Kinds::or)
        }
        _ => Kinds::ANY,
    }
}

/// Tells kinds, with Luau's types where it has them.
pub(super) struct Oracle<'x, 'a, 'c> {
    pub(super) names: &'x Names<'x, 'a, 'c>,
    pub(super) model: Option<&'x SemanticModel<'a>>,
}

impl<'a> Oracle<'_, 'a, '_> {
    pub(super) fn kinds(&self, expression: Expression<'a>) -> Kinds {
        match expression.kind() {
            ExpressionKind::Nil => Kinds::NIL,
            ExpressionKind::Boolean(_) => Kinds::BOOLEAN,
            ExpressionKind::Number { .. } | ExpressionKind::Integer { .. } => Kinds::NUMBER,
            ExpressionKind::String { .. } | ExpressionKind::InterpString { .. } => Kinds::STRING,
            ExpressionKind::Table { .. } => Kinds::TABLE,
            ExpressionKind::FunctionLiteral(_) => Kinds::FUNCTION,
            ExpressionKind::Grouped(inner) => self.kinds(inner),
            _ if self.is_certain(expression, DEEPEST) => self.typed(expression),
            _ => Kinds::ANY,
        }
    }

    fn typed(&self, expression: Expression<'a>) -> Kinds {
        let Some(model) = self.model else { return Kinds::ANY };
        model.expression_type(expression).map_or(Kinds::ANY, |it| of_type(model, it.id(), DEEPEST))
    }

    /// Whether Luau knows the type from where the value comes from. What it
    /// concludes from how a value is used may be narrower than what is meant.
    fn is_certain(&self, expression: Expression<'a>, left: usize) -> bool {
        let Some(left) = left.checked_sub(1) else { return false };
        let both = |one, other| self.is_certain(one, left) && self.is_certain(other, left);
        match expression.kind() {
            ExpressionKind::Nil
            | ExpressionKind::Boolean(_)
            | ExpressionKind::Number { .. }
            | ExpressionKind::Integer { .. }
            | ExpressionKind::String { .. }
            | ExpressionKind::InterpString { .. }
            | ExpressionKind::Table { .. } => true,
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
            ExpressionKind::Local { local, .. } => match self.names.facts.origin(local) {
                Origin::Value(value) | Origin::OneOf(value) => self.is_certain(value, left),
                Origin::Counter => true,
                Origin::Each(over) | Origin::Key(over) => self.is_certain(over, left),
                Origin::Unknown => false,
            },
            ExpressionKind::Call { func, .. } => self.is_known_function(func, left),
            ExpressionKind::IndexExpr { expr, .. } | ExpressionKind::IndexName { expr, .. } => {
                self.is_certain(expr, left)
            }
            _ => false,
        }
    }

    fn is_known_function(&self, function: Expression<'a>, left: usize) -> bool {
        let by_the_host = |it: Expression<'a>| {
            global(it).is_some_and(|name| super::globals::is_taken(self.names.catalog, name))
        };
        if self.names.of(function).is_some() || by_the_host(function) {
            return true;
        }
        // `string.format`, `text:upper()`, `promise:await()`.
        let Some(access) = access(function) else { return false };
        by_the_host(access.base) || (access.colon && self.is_certain(access.base, left))
    }
}

fn of_type(model: &SemanticModel<'_>, id: TypeId, left: usize) -> Kinds {
    let Some(left) = left.checked_sub(1) else { return Kinds::ANY };
    let graph = model.graph();
    match graph.kind(graph.follow_type(id)) {
        TypeKind::Primitive(primitive) => match primitive.kind {
            PrimitiveTypeKind::Nil => Kinds::NIL,
            PrimitiveTypeKind::Boolean => Kinds::BOOLEAN,
            PrimitiveTypeKind::Number => Kinds::NUMBER,
            PrimitiveTypeKind::String => Kinds::STRING,
            PrimitiveTypeKind::Function => Kinds::FUNCTION,
            PrimitiveTypeKind::Table => Kinds::TABLE,
            _ => Kinds::ANY,
        },
        TypeKind::Singleton(singleton) => match singleton.value {
            SingletonValue::Boolean(_) => Kinds::BOOLEAN,
            SingletonValue::String(_) => Kinds::STRING,
        },
        TypeKind::Table(_) => Kinds::TABLE,
        TypeKind::Function(_) => Kinds::FUNCTION,
        TypeKind::Union(union) => union
            .options
            .iter()
            .map(|option| of_type(model, *option, left))
            .fold(Kinds::NONE, Kinds::or),
        _ => Kinds::ANY,
    }
}
