//! What can be said about a script by reading it once: where locals come from,
//! what is assigned, what is only looked at to see whether it is there.
//!
//! Nothing here knows of tools or types.

use std::collections::{HashMap, HashSet};

use luau_syntax::ast::{
    AstVisitor, BinaryOp, Block, Expression, ExpressionKind, IndexNameOp, Local, Statement, UnaryOp,
};

use super::tested_values::TestedValues;

#[derive(Default)]
pub(crate) struct ScriptFacts<'a> {
    locals: HashMap<*const (), LocalUsage<'a>>,
    /// Globals that the script itself makes.
    pub(crate) made: HashSet<&'a [u8]>,
    /// Names of fields that are assigned somewhere, except on tables that the script wrote
    /// down.
    pub(crate) assigned: HashSet<&'a [u8]>,
    /// Tables that something is assigned to under a computed key.
    pub(crate) filled: Vec<Expression<'a>>,
    /// Locals that something is inserted into, and that hold no table of the script's own.
    pub(crate) inserted: Vec<Expression<'a>>,
    /// Names of fields that are read somewhere.
    read: HashSet<&'a [u8]>,
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
        self.filled.iter().any(|table| match table.kind() {
            ExpressionKind::Local { local, .. } => local_id(local) == local_id(list),
            _ => false,
        })
    }

    /// Whether some field of that name is read.
    pub(crate) fn reads_field(&self, field: &[u8]) -> bool {
        self.read.contains(field)
    }

    /// The names of all fields that are read.
    pub(crate) fn read_fields(&self) -> impl Iterator<Item = &'a [u8]> {
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
        if let ExpressionKind::Local { local, .. } = table.kind() {
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
                match list.kind() {
                    ExpressionKind::Local { local, .. } if self.is_written_table(local) => {}
                    ExpressionKind::Local { .. } => self.inserted.push(*list),
                    _ => self.filled.push(*list),
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

    fn record_assigned_field(&mut self, table: Expression<'a>, name: &'a [u8]) {
        let is_own = match table.kind() {
            ExpressionKind::Local { local, .. } => self.is_written_table(local),
            _ => false,
        };
        if !is_own {
            self.assigned.insert(name);
        }
    }

    /// A field that is set or called, and not read.
    fn record_unread_field(&mut self, field: Expression<'a>) {
        self.unread_fields.insert(field.as_ptr());
    }

    fn record_assignment(&mut self, target: Expression<'a>) {
        self.record_unread_field(target);
        match target.kind() {
            ExpressionKind::Local { local, .. } => self.usage_mut(local).reassigned = true,
            ExpressionKind::Global(name) => {
                self.made.insert(name.bytes());
            }
            ExpressionKind::IndexName { expr, index, .. } => {
                self.record_assigned_field(expr, index.bytes());
            }
            ExpressionKind::IndexExpr { expr, index } => match index.kind() {
                ExpressionKind::String { value, .. } => {
                    self.record_assigned_field(expr, value.into_bytes());
                }
                _ => self.filled.push(expr),
            },
            _ => {}
        }
    }
}

/// The name of a global. Those that the check declares are locals of the line before the
/// script, so a script has to begin on the line after the first.
pub(crate) fn global_name<'a>(expression: Expression<'a>) -> Option<&'a str> {
    let name = match expression.kind() {
        ExpressionKind::Global(name) => name.bytes(),
        ExpressionKind::Local { local, .. } if local.location.begin.line == 0 => local.name.bytes(),
        _ => return None,
    };
    std::str::from_utf8(name).ok()
}

/// `sdk.source`, `sdk.source.function`
fn is_sdk_name(expression: Expression<'_>) -> bool {
    let Some(base) = indexed_value(expression) else { return false };
    let is_sdk = |it: Expression<'_>| global_name(it) == Some("sdk");
    is_sdk(base) || indexed_value(base).is_some_and(is_sdk)
}

/// What a field or an item is read of.
fn indexed_value(expression: Expression<'_>) -> Option<Expression<'_>> {
    match expression.kind() {
        ExpressionKind::IndexName { expr, .. } | ExpressionKind::IndexExpr { expr, .. } => {
            Some(expr)
        }
        _ => None,
    }
}

/// The same for every use of one local.
fn value_id(value: Expression<'_>) -> *const () {
    match value.kind() {
        ExpressionKind::Local { local, .. } => local_id(local),
        _ => value.as_ptr(),
    }
}

fn local_id(local: &Local<'_>) -> *const () {
    std::ptr::from_ref(local).cast()
}

impl<'a> AstVisitor<'a> for ScriptFacts<'a> {
    fn visit_local_statement(&mut self, statement: Statement<'a>) -> bool {
        let Some(it) = statement.as_local() else { return true };
        for (index, local) in it.bindings.iter().enumerate() {
            let life = self.usage_mut(local);
            life.origin = match (it.values.get(index), it.values.last()) {
                (Some(value), _) => LocalOrigin::Value(*value),
                (None, Some(last)) => LocalOrigin::OneOf(*last),
                (None, None) => LocalOrigin::Unknown,
            };
            if let Some(value) = it.values.get(index) {
                self.record_parameters(local, *value);
            }
        }
        true
    }

    fn visit_local_function_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_local_function() {
            self.usage_mut(it.name).origin = LocalOrigin::Value(it.function);
            self.record_parameters(it.name, it.function);
        }
        true
    }

    fn visit_numeric_for_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_numeric_for() {
            self.usage_mut(it.name).origin = LocalOrigin::Counter;
        }
        true
    }

    fn visit_generic_for_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_generic_for()
            && let [over] = it.values
        {
            self.record_plain_use(*over, None);
            for (nth, local) in it.names.iter().enumerate() {
                let is_key = nth == 0;
                self.usage_mut(local).origin =
                    if is_key { LocalOrigin::Key(*over) } else { LocalOrigin::Each(*over) };
            }
        }
        true
    }

    fn visit_assign_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_assign() {
            for (nth, target) in it.vars.iter().enumerate() {
                self.record_assignment(*target);
                if let ExpressionKind::IndexExpr { expr, index } = target.kind()
                    && !matches!(index.kind(), ExpressionKind::String { .. })
                    && let ExpressionKind::Local { local, .. } = expr.kind()
                    && let Some(value) = it.values.get(nth)
                {
                    // The target itself is counted where it is visited.
                    self.added.entry(local_id(local)).or_default().values.push(*value);
                }
            }
        }
        true
    }

    fn visit_compound_assign_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_compound_assign() {
            self.record_assignment(it.var);
        }
        true
    }

    fn visit_function_declaration_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_function_declaration() {
            self.record_assignment(it.name);
        }
        true
    }

    fn visit_return_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_return() {
            it.expressions.iter().for_each(|value| self.record_plain_use(*value, None));
        }
        true
    }

    fn visit_if_statement(&mut self, statement: Statement<'a>) -> bool {
        self.tests.record_if(statement);
        true
    }

    fn visit_while_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_while() {
            self.tests.record_condition(it.condition);
        }
        true
    }

    fn visit_repeat_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_repeat() {
            self.tests.record_condition(it.condition);
        }
        true
    }

    fn visit_if_expression(&mut self, expression: Expression<'a>) -> bool {
        if let ExpressionKind::If { condition, .. } = expression.kind() {
            self.tests.record_condition(condition);
        }
        true
    }

    fn visit_unary_expression(&mut self, expression: Expression<'a>) -> bool {
        match expression.kind() {
            ExpressionKind::Unary { op: UnaryOp::Not, rhs } => {
                self.tests.record_negation(expression, rhs);
            }
            ExpressionKind::Unary { op: UnaryOp::Length, rhs } => {
                self.record_plain_use(rhs, None);
                if let ExpressionKind::Local { local, .. } = rhs.kind() {
                    self.read_places.entry(local_id(local)).or_default().push(0.0);
                }
            }
            _ => {}
        }
        true
    }

    fn visit_binary_expression(&mut self, expression: Expression<'a>) -> bool {
        use BinaryOp::{And, Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual, Or};
        let ExpressionKind::Binary { lhs, op, rhs } = expression.kind() else { return true };
        self.tests.record_binary(expression, op, [lhs, rhs]);
        if matches!(op, And | Or) {
            self.second.insert(rhs.as_ptr());
        }
        if matches!(op, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual) {
            let lengths = [lhs, rhs].into_iter().filter_map(|side| match side.kind() {
                ExpressionKind::Unary { op: UnaryOp::Length, rhs } => Some(value_id(rhs)),
                _ => None,
            });
            self.compared_lengths.extend(lengths);
        }
        true
    }

    fn visit_call_expression(&mut self, expression: Expression<'a>) -> bool {
        if let ExpressionKind::Call { func, args, .. } = expression.kind()
            && let ExpressionKind::Global(name) = func.kind()
            && matches!(name.bytes(), b"type" | b"typeof")
        {
            args.iter().for_each(|arg| self.tests.record_condition(*arg));
        }
        if let ExpressionKind::Call { func, args, .. } = expression.kind()
            && let ExpressionKind::Local { local, .. } = func.kind()
        {
            self.calls.entry(local_id(local)).or_default().push(args);
        }
        if let ExpressionKind::Call { func, args, .. } = expression.kind() {
            self.record_known_call(func, args);
            self.record_unread_field(func);
        }
        true
    }

    fn visit_local_expression(&mut self, expression: Expression<'a>) -> bool {
        if let ExpressionKind::Local { local, .. } = expression.kind() {
            self.usage_mut(local).uses += 1;
        }
        true
    }

    fn visit_index_name_expression(&mut self, expression: Expression<'a>) -> bool {
        if let ExpressionKind::IndexName { index, op: IndexNameOp::Dot, .. } = expression.kind()
            && !self.unread_fields.contains(&expression.as_ptr())
            && !is_sdk_name(expression)
        {
            self.read.insert(index.bytes());
        }
        true
    }

    fn visit_index_expression(&mut self, expression: Expression<'a>) -> bool {
        let ExpressionKind::IndexExpr { expr, index } = expression.kind() else { return true };
        self.record_plain_use(expr, None);
        match index.kind() {
            ExpressionKind::String { value, .. }
                if !self.unread_fields.contains(&expression.as_ptr()) =>
            {
                self.read.insert(value.into_bytes());
            }
            ExpressionKind::Number { value, .. } => {
                if let ExpressionKind::Local { local, .. } = expr.kind() {
                    self.read_places.entry(local_id(local)).or_default().push(value);
                }
            }
            _ => {}
        }
        true
    }
}
