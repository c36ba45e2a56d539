//! What can be said about a script by reading it once: where locals come from,
//! what is assigned, what is only looked at to see whether it is there.
//!
//! Nothing here knows of tools or types.

use std::collections::{HashMap, HashSet};

use luau_syntax::ast::{
    AstVisitor, BinaryOp, Block, Expression, ExpressionKind, Local, Statement, UnaryOp,
};

#[derive(Default)]
pub(crate) struct Facts<'a> {
    locals: HashMap<*const (), Life<'a>>,
    /// Globals that the script itself makes.
    pub(crate) made: HashSet<&'a [u8]>,
    /// Names of fields that are assigned somewhere, on whatever table.
    pub(crate) assigned: HashSet<&'a [u8]>,
    /// Tables that something is assigned to under a computed key.
    pub(crate) filled: Vec<Expression<'a>>,
    /// Names of fields that are read somewhere.
    read: HashMap<&'a [u8], usize>,
    /// Expressions that are only looked at to see whether they are there.
    tested: HashSet<*const ()>,
}

#[derive(Clone, Copy, Default)]
struct Life<'a> {
    origin: Origin<'a>,
    reassigned: bool,
    uses: usize,
}

/// Where a local's value comes from.
#[derive(Clone, Copy, Default)]
pub(crate) enum Origin<'a> {
    /// A parameter, or something that changes.
    #[default]
    Unknown,
    Value(Expression<'a>),
    /// One of the values that the expression gives.
    OneOf(Expression<'a>),
    /// The counter of a loop.
    Counter,
    /// A loop goes over this.
    Each(Expression<'a>),
}

impl<'a> Facts<'a> {
    pub(crate) fn of(root: Block<'a>) -> Facts<'a> {
        let mut facts = Facts::default();
        root.visit(&mut facts);
        facts
    }

    /// What a local is for as long as it lives, if that is one thing.
    pub(crate) fn origin(&self, local: &Local<'a>) -> Origin<'a> {
        match self.locals.get(&id(local)) {
            Some(life) if !life.reassigned => life.origin,
            _ => Origin::Unknown,
        }
    }

    /// Whether it is used in one place only, so that nobody can have changed it
    /// on the way there.
    pub(crate) fn is_used_once(&self, local: &Local<'a>) -> bool {
        self.locals.get(&id(local)).is_some_and(|life| life.uses == 1)
    }

    /// Whether nothing reads it.
    pub(crate) fn is_unread(&self, local: &Local<'a>) -> bool {
        self.locals.get(&id(local)).is_none_or(|life| life.uses == 0)
    }

    pub(crate) fn is_tested(&self, expression: Expression<'a>) -> bool {
        self.tested.contains(&expression.as_ptr())
    }

    /// Whether some field of that name is read.
    pub(crate) fn reads(&self, field: &[u8]) -> bool {
        self.read.contains_key(field)
    }

    fn life(&mut self, local: &Local<'a>) -> &mut Life<'a> {
        self.locals.entry(id(local)).or_default()
    }

    fn test(&mut self, mut expression: Expression<'a>) {
        self.tested.insert(expression.as_ptr());
        while let ExpressionKind::Grouped(inner) = expression.kind() {
            expression = inner;
            self.tested.insert(expression.as_ptr());
        }
    }

    fn assign(&mut self, target: Expression<'a>) {
        match target.kind() {
            ExpressionKind::Local { local, .. } => self.life(local).reassigned = true,
            ExpressionKind::Global(name) => {
                self.made.insert(name.bytes());
            }
            ExpressionKind::IndexName { index, .. } => {
                self.assigned.insert(index.bytes());
            }
            ExpressionKind::IndexExpr { expr, index } => match index.kind() {
                ExpressionKind::String { value, .. } => {
                    self.assigned.insert(value.into_bytes());
                }
                _ => self.filled.push(expr),
            },
            _ => {}
        }
    }
}

fn id(local: &Local<'_>) -> *const () {
    std::ptr::from_ref(local).cast()
}

impl<'a> AstVisitor<'a> for Facts<'a> {
    fn visit_local_statement(&mut self, statement: Statement<'a>) -> bool {
        let Some(it) = statement.as_local() else { return true };
        for (index, local) in it.bindings.iter().enumerate() {
            let life = self.life(local);
            life.origin = match (it.values.get(index), it.values.last()) {
                (Some(value), _) => Origin::Value(*value),
                (None, Some(last)) => Origin::OneOf(*last),
                (None, None) => Origin::Unknown,
            };
        }
        true
    }

    fn visit_local_function_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_local_function() {
            self.life(it.name).origin = Origin::Value(it.function);
        }
        true
    }

    fn visit_numeric_for_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_numeric_for() {
            self.life(it.name).origin = Origin::Counter;
        }
        true
    }

    fn visit_generic_for_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_generic_for()
            && let [over] = it.values
        {
            for local in it.names {
                self.life(local).origin = Origin::Each(*over);
            }
        }
        true
    }

    fn visit_assign_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_assign() {
            it.vars.iter().for_each(|target| self.assign(*target));
        }
        true
    }

    fn visit_compound_assign_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_compound_assign() {
            self.assign(it.var);
        }
        true
    }

    fn visit_function_declaration_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_function_declaration() {
            self.assign(it.name);
        }
        true
    }

    fn visit_if_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_if() {
            self.test(it.condition);
        }
        true
    }

    fn visit_while_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_while() {
            self.test(it.condition);
        }
        true
    }

    fn visit_repeat_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_repeat() {
            self.test(it.condition);
        }
        true
    }

    fn visit_if_expression(&mut self, expression: Expression<'a>) -> bool {
        if let ExpressionKind::If { condition, .. } = expression.kind() {
            self.test(condition);
        }
        true
    }

    fn visit_unary_expression(&mut self, expression: Expression<'a>) -> bool {
        if let ExpressionKind::Unary { op: UnaryOp::Not, rhs } = expression.kind() {
            self.test(rhs);
        }
        true
    }

    fn visit_binary_expression(&mut self, expression: Expression<'a>) -> bool {
        let ExpressionKind::Binary { lhs, op, rhs } = expression.kind() else { return true };
        let is_nil = |side: Expression<'a>| matches!(side.kind(), ExpressionKind::Nil);
        match op {
            BinaryOp::And | BinaryOp::Or => {
                self.test(lhs);
                self.test(rhs);
            }
            BinaryOp::Equal | BinaryOp::NotEqual if is_nil(lhs) || is_nil(rhs) => {
                self.test(lhs);
                self.test(rhs);
            }
            _ => {}
        }
        true
    }

    fn visit_call_expression(&mut self, expression: Expression<'a>) -> bool {
        if let ExpressionKind::Call { func, args, .. } = expression.kind()
            && let ExpressionKind::Global(name) = func.kind()
            && matches!(name.bytes(), b"type" | b"typeof")
        {
            args.iter().for_each(|arg| self.test(*arg));
        }
        true
    }

    fn visit_local_expression(&mut self, expression: Expression<'a>) -> bool {
        if let ExpressionKind::Local { local, .. } = expression.kind() {
            self.life(local).uses += 1;
        }
        true
    }

    fn visit_index_name_expression(&mut self, expression: Expression<'a>) -> bool {
        if let ExpressionKind::IndexName { index, .. } = expression.kind() {
            *self.read.entry(index.bytes()).or_default() += 1;
        }
        true
    }
}
