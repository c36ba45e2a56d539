//! Values that a script tests for presence, and what depends on them.
//!
//! `r.a or r.b or {}` names alternatives: one of them is enough. The same holds for
//! `not r.a and not r.b` and for the conditions of `if … elseif`. Such values have one
//! group, so that whoever knows the values can ask for the group and not for each.

use std::collections::{HashMap, HashSet};

use luau_syntax::ast::{BinaryOp, Expression, ExpressionKind, Statement, UnaryOp};

#[derive(Default)]
pub(crate) struct TestedValues<'a> {
    /// Everything that may well not be there.
    tested: HashSet<*const ()>,
    operands: HashMap<*const (), TestedOperand>,
    /// Alternatives that are no fields, such as `r` in `r.data or r`.
    other_alternatives: Vec<(usize, Expression<'a>)>,
    /// Conditions and operators whose operands are known.
    joined: HashSet<*const ()>,
    groups: usize,
}

/// A value that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TestedOperand {
    /// Alternatives of each other have the same.
    pub(crate) group: usize,
    pub(crate) role: OperandRole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperandRole {
    /// It is the value if it is there: `r.a or 0`.
    Alternative,
    /// Only whether it is there counts: `if r.a then`.
    Condition,
    /// An alternative depends on it: `r.a` in `r.a and r.a.b or 0`.
    Guard,
}

impl<'a> TestedValues<'a> {
    pub(crate) fn is_tested(&self, expression: Expression<'a>) -> bool {
        self.tested.contains(&expression.as_ptr())
    }

    pub(crate) fn find_operand(&self, expression: Expression<'a>) -> Option<TestedOperand> {
        self.operands.get(&expression.as_ptr()).copied()
    }

    /// Alternatives that are no fields, with their groups.
    pub(crate) fn other_alternatives(&self) -> &[(usize, Expression<'a>)] {
        &self.other_alternatives
    }

    /// An `if` with all of its `elseif`.
    pub(super) fn record_if(&mut self, statement: Statement<'a>) {
        let Some(first) = statement.as_if() else { return };
        self.mark_tested(first.condition);
        // Those of `elseif` were recorded with the first.
        if !self.joined.insert(first.condition.as_ptr()) {
            return;
        }
        let mut conditions = vec![first.condition];
        let mut rest = first.else_body;
        while let Some(next) = rest.and_then(Statement::as_if) {
            self.joined.insert(next.condition.as_ptr());
            conditions.push(next.condition);
            rest = next.else_body;
        }
        let group = self.next_group();
        let splits = conditions.len() == 1;
        for condition in conditions {
            self.join_operands(condition, group, OperandRole::Condition, splits);
        }
    }

    /// Only whether the value is there counts.
    pub(super) fn record_condition(&mut self, condition: Expression<'a>) {
        self.mark_tested(condition);
        if !self.joined.contains(&condition.as_ptr()) {
            self.join_group(condition, OperandRole::Condition);
        }
    }

    /// `not value`
    pub(super) fn record_negation(&mut self, negation: Expression<'a>, value: Expression<'a>) {
        self.mark_tested(value);
        if !self.joined.contains(&negation.as_ptr()) {
            self.join_group(negation, OperandRole::Condition);
        }
    }

    /// `and`, `or` and comparisons with nil.
    pub(super) fn record_binary(
        &mut self,
        expression: Expression<'a>,
        op: BinaryOp,
        [lhs, rhs]: [Expression<'a>; 2],
    ) {
        let compares_nil = compared_with_nil(op, lhs, rhs).is_some();
        if !compares_nil && !matches!(op, BinaryOp::And | BinaryOp::Or) {
            return;
        }
        self.mark_tested(lhs);
        self.mark_tested(rhs);
        if self.joined.contains(&expression.as_ptr()) {
            return;
        }
        match op {
            BinaryOp::Or => self.join_group(expression, OperandRole::Alternative),
            BinaryOp::And => {
                self.joined.insert(expression.as_ptr());
                self.join_group(lhs, OperandRole::Condition);
                // `flag and (r.a or 0)` has alternatives of its own.
                if !matches!(
                    strip_groups(rhs).kind(),
                    ExpressionKind::Binary { op: BinaryOp::And | BinaryOp::Or, .. }
                ) {
                    self.join_group(rhs, OperandRole::Condition);
                }
            }
            _ => self.join_group(expression, OperandRole::Condition),
        }
    }

    fn mark_tested(&mut self, mut expression: Expression<'a>) {
        self.tested.insert(expression.as_ptr());
        while let ExpressionKind::Grouped(inner) = expression.kind() {
            expression = inner;
            self.tested.insert(expression.as_ptr());
        }
    }

    fn next_group(&mut self) -> usize {
        self.groups += 1;
        self.groups
    }

    fn join_group(&mut self, root: Expression<'a>, role: OperandRole) {
        let group = self.next_group();
        self.join_operands(root, group, role, true);
    }

    /// Give a group to all values below an expression. `splits` gives groups of their own
    /// to the parts of a condition that are no alternatives of each other.
    fn join_operands(
        &mut self,
        root: Expression<'a>,
        group: usize,
        role: OperandRole,
        splits: bool,
    ) {
        use OperandRole::{Alternative, Condition, Guard};
        let mut open = vec![(root, group, role)];
        while let Some((expression, group, role)) = open.pop() {
            let tested_role = if role == Alternative { Condition } else { role };
            match expression.kind() {
                ExpressionKind::Grouped(inner)
                | ExpressionKind::TypeAssertion { expr: inner, .. } => {
                    open.push((inner, group, role));
                }
                ExpressionKind::Unary { op: UnaryOp::Not, rhs } => {
                    self.joined.insert(expression.as_ptr());
                    open.push((rhs, group, tested_role));
                }
                ExpressionKind::Binary { lhs, op: BinaryOp::And, rhs } if role == Alternative => {
                    self.joined.insert(expression.as_ptr());
                    open.extend([(rhs, group, Alternative), (lhs, group, Guard)]);
                }
                ExpressionKind::Binary { op: op @ (BinaryOp::And | BinaryOp::Or), .. } => {
                    let sides = self.join_sides(expression, op);
                    // `a or b` and `not a and not b` ask for one of the two.
                    let are_alternatives = match op {
                        BinaryOp::Or => !sides.iter().any(is_negation),
                        _ => sides.iter().all(is_negation),
                    };
                    let splits = splits && role == Condition && !are_alternatives;
                    for side in sides {
                        let group = if splits { self.next_group() } else { group };
                        open.push((side, group, role));
                    }
                }
                ExpressionKind::Binary { lhs, op, rhs }
                    if compared_with_nil(op, lhs, rhs).is_some() =>
                {
                    self.joined.insert(expression.as_ptr());
                    open.extend(
                        compared_with_nil(op, lhs, rhs).map(|value| (value, group, tested_role)),
                    );
                }
                _ => {
                    self.operands.insert(expression.as_ptr(), TestedOperand { group, role });
                    if role == Alternative && is_other_alternative(expression) {
                        self.other_alternatives.push((group, expression));
                    }
                }
            }
        }
    }

    /// `a`, `b` and `c` of `a and b and c`.
    fn join_sides(&mut self, expression: Expression<'a>, op: BinaryOp) -> Vec<Expression<'a>> {
        let (mut open, mut sides) = (vec![expression], Vec::new());
        while let Some(expression) = open.pop() {
            let inner = strip_groups(expression);
            match inner.kind() {
                ExpressionKind::Binary { lhs, op: same, rhs } if same == op => {
                    self.joined.insert(inner.as_ptr());
                    open.extend([rhs, lhs]);
                }
                _ => sides.push(expression),
            }
        }
        sides
    }
}

/// The value that is compared with nil.
fn compared_with_nil<'a>(
    op: BinaryOp,
    lhs: Expression<'a>,
    rhs: Expression<'a>,
) -> Option<Expression<'a>> {
    let is_nil = |side: Expression<'a>| matches!(side.kind(), ExpressionKind::Nil);
    match op {
        BinaryOp::Equal | BinaryOp::NotEqual if is_nil(rhs) => Some(lhs),
        BinaryOp::Equal | BinaryOp::NotEqual if is_nil(lhs) => Some(rhs),
        _ => None,
    }
}

/// `not value`, `value == nil`
fn is_negation(expression: &Expression<'_>) -> bool {
    match strip_groups(*expression).kind() {
        ExpressionKind::Unary { op, .. } => op == UnaryOp::Not,
        ExpressionKind::Binary { lhs, op: BinaryOp::Equal, rhs } => {
            compared_with_nil(BinaryOp::Equal, lhs, rhs).is_some()
        }
        _ => false,
    }
}

/// Whether it may be a part of a result, and is no field.
fn is_other_alternative(expression: Expression<'_>) -> bool {
    match expression.kind() {
        ExpressionKind::Local { .. } | ExpressionKind::Call { .. } => true,
        ExpressionKind::IndexExpr { index, .. } => {
            !matches!(index.kind(), ExpressionKind::String { .. })
        }
        _ => false,
    }
}

fn strip_groups(mut expression: Expression<'_>) -> Expression<'_> {
    while let ExpressionKind::Grouped(inner) = expression.kind() {
        expression = inner;
    }
    expression
}
