//! Static facts about a script: where locals come from, what is assigned, what is only
//! tested.
//!
//! Nothing here knows of tools or types.

use std::collections::{HashMap, HashSet};

use luau_syntax::ast::{
    AstVisitor, BinaryOp, Block, Expression, ExpressionKind, IndexNameOp, Local, Statement, UnaryOp,
};
use luau_syntax::location::Location;

use super::tested_values::TestedValues;

#[derive(Default)]
pub(crate) struct ScriptFacts<'a> {
    locals: HashMap<*const (), LocalUsage<'a>>,
    /// Globals that the script itself makes.
    pub(crate) made: HashSet<&'a str>,
    /// Names of fields that are assigned somewhere, except on tables that the script wrote
    /// down.
    pub(crate) assigned: HashSet<&'a str>,
    /// Tables that something is assigned to under a computed key.
    pub(crate) filled: Vec<Expression<'a>>,
    /// Locals that something is inserted into, and that hold no table of the script's own.
    pub(crate) inserted: Vec<Expression<'a>>,
    /// Names of fields that are read somewhere.
    read: HashSet<&'a str>,
    /// Fields that are set or called, which reads nothing of a result.
    unread_fields: HashSet<*const ()>,
    /// Values that are only looked at to see whether they are there.
    pub(crate) tests: TestedValues<'a>,
    /// Values whose lengths are compared with something: locals, or expressions.
    compared_lengths: HashSet<*const ()>,
    /// The places of tables that locals hold, as `t[2]` reads them; 0 for `#t`.
    read_places: HashMap<*const (), Vec<f64>>,
    /// What comes after `and` or `or`: it is the value where the first decides nothing.
    second: HashSet<*const ()>,
    /// Functions that are never handed on, by their locals: the calls of each.
    calls: HashMap<*const (), Vec<&'a [Expression<'a>]>>,
    /// The parameters of functions that locals hold: the local, and which one it is.
    parameters: HashMap<*const (), (*const (), usize)>,
    /// Tables may have methods.
    pub(crate) sets_metatables: bool,
    /// Locals whose values, or parts of them, are compared with something or asked for their
    /// types, which may say more about them in some places.
    narrowed: HashSet<*const ()>,
    /// What is put into the tables that locals hold.
    added: HashMap<*const (), AddedValues<'a>>,
}

/// What a script puts into a table, one after the other.
#[derive(Default)]
struct AddedValues<'a> {
    values: Vec<Expression<'a>>,
    /// Uses of the table that put nothing else into it.
    plain_uses: usize,
}

#[derive(Clone, Copy, Default)]
struct LocalUsage<'a> {
    origin: LocalOrigin<'a>,
    reassigned: bool,
    uses: usize,
}

/// Where a local's value comes from.
#[derive(Clone, Copy, Default)]
pub(crate) enum LocalOrigin<'a> {
    /// A parameter, or something that changes.
    #[default]
    Unknown,
    Value(Expression<'a>),
    /// One of the values that the expression gives.
    OneOf(Expression<'a>),
    /// The counter of a loop.
    Counter,
    /// A loop goes over this: the value.
    Each(Expression<'a>),
    /// The same: the key.
    Key(Expression<'a>),
    /// `table.sort` compares the items of this.
    Compared(Expression<'a>),
}

impl<'a> ScriptFacts<'a> {
    pub(crate) fn from_block(root: Block<'a>) -> ScriptFacts<'a> {
        let mut facts = ScriptFacts::default();
        root.visit(&mut facts);
        facts
    }

    /// What a local is for as long as it lives, if that is one thing.
    pub(crate) fn local_origin(&self, local: &Local<'a>) -> LocalOrigin<'a> {
        match self.locals.get(&local_id(local)) {
            Some(life) if !life.reassigned => life.origin,
            _ => LocalOrigin::Unknown,
        }
    }

    /// Whether comparisons may say more about it, or about a part of it, in some places.
    pub(crate) fn is_narrowed(&self, local: &Local<'a>) -> bool {
        self.narrowed.contains(&local_id(local))
    }

    /// Whether it is used in one place only, so that nobody can have changed it
    /// on the way there.
    pub(crate) fn is_used_once(&self, local: &Local<'a>) -> bool {
        self.locals.get(&local_id(local)).is_some_and(|life| life.uses == 1)
    }

    /// Whether nothing reads it.
    pub(crate) fn is_unread(&self, local: &Local<'a>) -> bool {
        self.locals.get(&local_id(local)).is_none_or(|life| life.uses == 0)
    }

    pub(crate) fn is_tested(&self, expression: Expression<'a>) -> bool {
        self.tests.is_tested(expression)
    }

    /// Whether the script has `#value > 0` or the like.
    pub(crate) fn is_length_compared(&self, value: Expression<'a>) -> bool {
        self.compared_lengths.contains(&value_id(value))
    }

    /// Whether something may read this place, from one, of the list that a local holds.
    pub(crate) fn may_read_place(&self, list: &Local<'a>, place: usize) -> bool {
        let Some(life) = self.locals.get(&local_id(list)) else { return false };
        let places = self.read_places.get(&local_id(list)).map_or(&[][..], Vec::as_slice);
        life.reassigned || places.len() != life.uses || places.contains(&(place as f64))
    }

    /// Whether it stands after `and` or `or`.
    pub(crate) fn is_right_operand(&self, expression: Expression<'a>) -> bool {
        self.second.contains(&expression.as_ptr())
    }

    /// What is handed over for a parameter, in all calls that there can be. None where
    /// somebody else may call the function.
    pub(crate) fn arguments_passed_for(
        &self,
        parameter: &Local<'a>,
    ) -> Option<impl Iterator<Item = Option<Expression<'a>>>> {
        let (function, nth) = self.parameters.get(&local_id(parameter))?;
        let changed = self.locals.get(&local_id(parameter)).is_some_and(|life| life.reassigned);
        let life = self.locals.get(function)?;
        let calls = self.calls.get(function).filter(|calls| calls.len() == life.uses)?;
        let known = !changed && !life.reassigned && !calls.is_empty();
        known.then(|| calls.iter().map(|args| args.get(*nth).copied()))
    }

    /// What a local list holds, beside what it was made with, if that is all to be seen:
    /// nobody else is given the list.
    pub(crate) fn added_values(&self, list: &Local<'a>) -> Option<&[Expression<'a>]> {
        let life = self.locals.get(&local_id(list)).filter(|life| !life.reassigned)?;
        let added = self.added.get(&local_id(list))?;
        (added.plain_uses == life.uses).then_some(added.values.as_slice())
    }

    /// Whether items are put into a list one after the other, and nothing under a name.
    pub(crate) fn is_inserted_into(&self, list: &Local<'a>) -> bool {
        let added = self.added.get(&local_id(list));
        added.is_some_and(|it| !it.values.is_empty()) && !self.has_computed_assignment(list)
    }

    /// Whether something is assigned under a computed key.
    fn has_computed_assignment(&self, list: &Local<'a>) -> bool {
        self.filled.iter().any(|table| value_id(*table) == local_id(list))
    }

    /// Whether some field of that name is read.
    pub(crate) fn reads_field(&self, field: &str) -> bool {
        self.read.contains(field)
    }

    /// The names of all fields that are read.
    pub(crate) fn read_fields(&self) -> impl Iterator<Item = &'a str> {
        self.read.iter().copied()
    }

    fn usage_mut(&mut self, local: &Local<'a>) -> &mut LocalUsage<'a> {
        self.locals.entry(local_id(local)).or_default()
    }

    /// Whether a local was made with a table that stands there.
    fn is_written_table(&self, local: &Local<'a>) -> bool {
        let origin = self.locals.get(&local_id(local)).map(|life| life.origin);
        matches!(origin, Some(LocalOrigin::Value(value)) if matches!(value.kind(), ExpressionKind::Table { .. }))
    }

    /// Uses of a table that put nothing into it but, maybe, `value`.
    fn record_plain_use(&mut self, table: Expression<'a>, value: Option<Expression<'a>>) {
        if let Some(local) = as_local(table) {
            let added = self.added.entry(local_id(local)).or_default();
            added.plain_uses += 1;
            added.values.extend(value);
        }
    }

    /// What calls of known functions say about their arguments.
    fn record_known_call(&mut self, func: Expression<'a>, args: &'a [Expression<'a>]) {
        match (global_name(func), args) {
            (Some("setmetatable"), _) => self.sets_metatables = true,
            (Some("map_parallel"), [list, function, ..]) => {
                self.record_plain_use(*list, None);
                if let ExpressionKind::FunctionLiteral(function) = function.kind() {
                    for (nth, parameter) in function.args.iter().enumerate() {
                        self.usage_mut(parameter).origin =
                            if nth == 0 { LocalOrigin::Each(*list) } else { LocalOrigin::Counter };
                    }
                }
            }
            (
                Some("await_all" | "await_any" | "ipairs" | "pairs" | "print" | "result"),
                [table],
            ) => {
                self.record_plain_use(*table, None);
            }
            _ => {}
        }
        let ExpressionKind::IndexName { expr, index, .. } = func.kind() else { return };
        match (global_name(expr), index.bytes(), args) {
            (Some("table"), b"insert", [list, value] | [list, _, value]) => {
                self.record_plain_use(*list, Some(*value));
                match as_local(*list) {
                    Some(local) if self.is_written_table(local) => {}
                    Some(_) => self.inserted.push(*list),
                    None => self.filled.push(*list),
                }
            }
            (Some("table"), b"sort", [list, compare]) => {
                self.record_plain_use(*list, None);
                if let ExpressionKind::FunctionLiteral(compare) = compare.kind() {
                    for parameter in compare.args {
                        self.usage_mut(parameter).origin = LocalOrigin::Compared(*list);
                    }
                }
            }
            (Some("table"), b"concat" | b"sort" | b"remove", [list, ..]) => {
                self.record_plain_use(*list, None);
            }
            _ => {}
        }
    }

    fn record_parameters(&mut self, local: &Local<'a>, value: Expression<'a>) {
        if let ExpressionKind::FunctionLiteral(function) = value.kind() {
            for (nth, parameter) in function.args.iter().enumerate() {
                self.parameters.insert(local_id(parameter), (local_id(local), nth));
            }
        }
    }

    fn record_assignment(&mut self, target: Expression<'a>) {
        self.unread_fields.insert(target.as_ptr());
        if let Some(FieldAccess { base, name, .. }) = as_field_access(target) {
            let is_own = as_local(base).is_some_and(|local| self.is_written_table(local));
            if !is_own {
                self.assigned.insert(name);
            }
            return;
        }
        match target.kind() {
            ExpressionKind::Local { local, .. } => self.usage_mut(local).reassigned = true,
            ExpressionKind::Global(name) => self.made.extend(utf8_name(name.bytes())),
            ExpressionKind::IndexExpr { expr, .. } => self.filled.push(expr),
            _ => {}
        }
    }

    fn record_binary(
        &mut self,
        expression: Expression<'a>,
        op: BinaryOp,
        sides: [Expression<'a>; 2],
    ) {
        use BinaryOp::{And, Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual, Or};
        self.tests.record_binary(expression, op, sides);
        if matches!(op, Equal | NotEqual) {
            self.narrowed.extend(sides.into_iter().filter_map(root_local));
        }
        if matches!(op, And | Or) {
            self.second.insert(sides[1].as_ptr());
        }
        if matches!(op, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual) {
            let lengths = sides.into_iter().filter_map(|side| match side.kind() {
                ExpressionKind::Unary { op: UnaryOp::Length, rhs } => Some(value_id(rhs)),
                _ => None,
            });
            self.compared_lengths.extend(lengths);
        }
    }

    fn record_call(&mut self, func: Expression<'a>, args: &'a [Expression<'a>]) {
        match func.kind() {
            ExpressionKind::Global(name) if matches!(name.bytes(), b"type" | b"typeof") => {
                args.iter().for_each(|arg| self.tests.record_condition(*arg));
                self.narrowed.extend(args.iter().copied().filter_map(root_local));
            }
            ExpressionKind::Local { local, .. } => {
                self.calls.entry(local_id(local)).or_default().push(args);
            }
            _ => {}
        }
        self.record_known_call(func, args);
        self.unread_fields.insert(func.as_ptr());
    }

    fn record_read_place(&mut self, list: Expression<'a>, place: f64) {
        self.record_plain_use(list, None);
        if let Some(local) = as_local(list) {
            self.read_places.entry(local_id(local)).or_default().push(place);
        }
    }
}

/// `x.name` or `x["name"]`.
pub(crate) struct FieldAccess<'a> {
    pub(crate) base: Expression<'a>,
    pub(crate) name: &'a str,
    pub(crate) location: Location,
    pub(crate) colon: bool,
}

/// A field that is read by a name that stands there.
pub(crate) fn as_field_access<'a>(expression: Expression<'a>) -> Option<FieldAccess<'a>> {
    match expression.kind() {
        ExpressionKind::IndexName { expr, index, index_location, op, .. } => Some(FieldAccess {
            base: expr,
            name: utf8_name(index.bytes())?,
            location: index_location,
            colon: op == IndexNameOp::Colon,
        }),
        ExpressionKind::IndexExpr { expr, index } => Some(FieldAccess {
            base: expr,
            name: literal_text(index)?,
            location: index.location(),
            colon: false,
        }),
        _ => None,
    }
}

/// The text of a string that stands there.
pub(crate) fn literal_text<'a>(expression: Expression<'a>) -> Option<&'a str> {
    match expression.kind() {
        ExpressionKind::String { value, .. } => utf8_name(value.into_bytes()),
        _ => None,
    }
}

pub(crate) fn as_local<'a>(expression: Expression<'a>) -> Option<&'a Local<'a>> {
    match expression.kind() {
        ExpressionKind::Local { local, .. } => Some(local),
        _ => None,
    }
}

fn utf8_name(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok()
}

/// The name of a global. Those that the check declares are locals of the line before the
/// script, so a script has to begin on the line after the first.
pub(crate) fn global_name<'a>(expression: Expression<'a>) -> Option<&'a str> {
    let name = match expression.kind() {
        ExpressionKind::Global(name) => name.bytes(),
        ExpressionKind::Local { local, .. } if local.location.begin.line == 0 => local.name.bytes(),
        _ => return None,
    };
    utf8_name(name)
}

/// `sdk.source`, `sdk.source.function`
fn is_sdk_name(base: Expression<'_>) -> bool {
    let is_sdk = |it: Expression<'_>| global_name(it) == Some("sdk");
    is_sdk(base)
        || match base.kind() {
            ExpressionKind::IndexName { expr, .. } | ExpressionKind::IndexExpr { expr, .. } => {
                is_sdk(expr)
            }
            _ => false,
        }
}

/// The same for every use of one local.
fn value_id(value: Expression<'_>) -> *const () {
    as_local(value).map_or(value.as_ptr(), local_id)
}

/// The local that a value is, or is a part of.
fn root_local(value: Expression<'_>) -> Option<*const ()> {
    let mut root = value;
    loop {
        root = match root.kind() {
            ExpressionKind::Local { local, .. } => return Some(local_id(local)),
            ExpressionKind::IndexName { expr, .. }
            | ExpressionKind::IndexExpr { expr, .. }
            | ExpressionKind::Grouped(expr) => expr,
            _ => return None,
        };
    }
}

fn local_id(local: &Local<'_>) -> *const () {
    std::ptr::from_ref(local).cast()
}

impl<'a> AstVisitor<'a> for ScriptFacts<'a> {
    fn visit_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_local() {
            for (index, local) in it.bindings.iter().enumerate() {
                self.usage_mut(local).origin = match (it.values.get(index), it.values.last()) {
                    (Some(value), _) => LocalOrigin::Value(*value),
                    (None, Some(last)) => LocalOrigin::OneOf(*last),
                    (None, None) => LocalOrigin::Unknown,
                };
                if let Some(value) = it.values.get(index) {
                    self.record_parameters(local, *value);
                }
            }
        } else if let Some(it) = statement.as_local_function() {
            self.usage_mut(it.name).origin = LocalOrigin::Value(it.function);
            self.record_parameters(it.name, it.function);
        } else if let Some(it) = statement.as_numeric_for() {
            self.usage_mut(it.name).origin = LocalOrigin::Counter;
        } else if let Some(it) = statement.as_generic_for()
            && let [over] = it.values
        {
            self.record_plain_use(*over, None);
            for (nth, local) in it.names.iter().enumerate() {
                let is_key = nth == 0;
                self.usage_mut(local).origin =
                    if is_key { LocalOrigin::Key(*over) } else { LocalOrigin::Each(*over) };
            }
        } else if let Some(it) = statement.as_assign() {
            for (nth, target) in it.vars.iter().enumerate() {
                self.record_assignment(*target);
                if let ExpressionKind::IndexExpr { expr, index } = target.kind()
                    && !matches!(index.kind(), ExpressionKind::String { .. })
                    && let Some(local) = as_local(expr)
                    && let Some(value) = it.values.get(nth)
                {
                    // The target itself is counted where it is visited.
                    self.added.entry(local_id(local)).or_default().values.push(*value);
                }
            }
        } else if let Some(it) = statement.as_compound_assign() {
            self.record_assignment(it.var);
        } else if let Some(it) = statement.as_function_declaration() {
            self.record_assignment(it.name);
        } else if let Some(it) = statement.as_return() {
            it.expressions.iter().for_each(|value| self.record_plain_use(*value, None));
        } else if let Some(it) = statement.as_while() {
            self.tests.record_condition(it.condition);
        } else if let Some(it) = statement.as_repeat() {
            self.tests.record_condition(it.condition);
        } else {
            self.tests.record_if(statement);
        }
        true
    }

    fn visit_expression(&mut self, expression: Expression<'a>) -> bool {
        if let Some(access) = as_field_access(expression)
            && !access.colon
            && !self.unread_fields.contains(&expression.as_ptr())
            && !is_sdk_name(access.base)
        {
            self.read.insert(access.name);
        }
        match expression.kind() {
            ExpressionKind::If { condition, .. } => self.tests.record_condition(condition),
            ExpressionKind::Unary { op: UnaryOp::Not, rhs } => {
                self.tests.record_negation(expression, rhs);
            }
            ExpressionKind::Unary { op: UnaryOp::Length, rhs } => self.record_read_place(rhs, 0.0),
            ExpressionKind::Binary { lhs, op, rhs } => {
                self.record_binary(expression, op, [lhs, rhs]);
            }
            ExpressionKind::Call { func, args, .. } => self.record_call(func, args),
            ExpressionKind::Local { local, .. } => self.usage_mut(local).uses += 1,
            ExpressionKind::IndexExpr { expr, index } => match index.kind() {
                ExpressionKind::Number { value, .. } => self.record_read_place(expr, value),
                _ => self.record_plain_use(expr, None),
            },
            _ => {}
        }
        true
    }
}
