//! Data flow by the syntax tree: which call a value of a script comes from.
//!
//! A value is followed through locals that are never changed, fields, items of lists,
//! alternatives (`r.items or r.rows`), comparators of `table.sort`, helper functions that
//! are only called, `map_parallel` and `await_all`. What is not plain to see comes from
//! nowhere.

use std::cell::{Cell, OnceCell};
use std::collections::HashSet;

use luau_syntax::ast::{
    AstVisitor, BinaryOp, Expression, ExpressionKind, Local, Statement, TableItem, UnaryOp,
};

use crate::check::script_facts::{
    FieldAccess, LocalOrigin, ScriptFacts, as_field_access, global_name, literal_text,
};

/// Steps that are followed from one value back to its calls.
const MAX_TRACE_DEPTH: usize = 16;
/// The same for all values of a script together, each way through a helper for itself.
const MAX_TRACE_STEPS: usize = 50_000;
/// Calls that one value may come from.
const MAX_RESULT_ORIGINS: usize = 16;

/// A call, and the way from its result to some value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ResultPath {
    /// As the script names them; the source may be known under another name.
    pub(crate) source: String,
    pub(crate) function: String,
    pub(crate) path: Vec<ResultStep>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ResultStep {
    Field(String),
    Item,
}

/// What a value is that comes from calls.
pub(crate) enum TracedValue<'a> {
    /// A part of the result of one of these.
    Results(Vec<ResultPath>),
    /// A list of the script's own, with such parts as its items.
    ListOf(Vec<ResultPath>),
    /// A table of the script's own, as it was written.
    Written(&'a [TableItem<'a>]),
}

pub(crate) struct ResultFlow<'x, 'a> {
    facts: &'x ScriptFacts<'a>,
    steps_left: Cell<usize>,
    /// Calls whose results the script puts something into, under computed keys.
    filled: OnceCell<HashSet<(String, String)>>,
}

impl<'x, 'a> ResultFlow<'x, 'a> {
    pub(crate) fn new(facts: &'x ScriptFacts<'a>) -> ResultFlow<'x, 'a> {
        ResultFlow { facts, steps_left: Cell::new(MAX_TRACE_STEPS), filled: OnceCell::new() }
    }

    pub(crate) fn trace_value(&self, expression: Expression<'a>) -> Option<TracedValue<'a>> {
        self.trace_expression(expression, MAX_TRACE_DEPTH)
    }

    /// The calls that a value comes from, whole or in part, if all of it does.
    pub(crate) fn trace_results(&self, expression: Expression<'a>) -> Option<Vec<ResultPath>> {
        let TracedValue::Results(paths) = self.trace_value(expression)? else { return None };
        let filled = self.filled_calls();
        let is_filled = |path: &ResultPath| {
            !filled.is_empty() && filled.contains(&(path.source.clone(), path.function.clone()))
        };
        (!paths.iter().any(is_filled)).then_some(paths)
    }

    fn filled_calls(&self) -> &HashSet<(String, String)> {
        self.filled.get_or_init(|| {
            let tables = self.facts.filled.iter().chain(&self.facts.inserted);
            let traced = tables.filter_map(|table| self.trace_value(*table));
            let paths = traced.flat_map(|traced| match traced {
                TracedValue::Results(paths) => paths,
                _ => Vec::new(),
            });
            paths.map(|path| (path.source, path.function)).collect()
        })
    }

    fn trace_expression(
        &self,
        expression: Expression<'a>,
        depth: usize,
    ) -> Option<TracedValue<'a>> {
        let depth = self.take_step(depth)?;
        if let Some(FieldAccess { base, name, colon: false, .. }) = as_field_access(expression) {
            return self.trace_field(self.trace_expression(base, depth)?, name, depth);
        }
        match expression.kind() {
            ExpressionKind::Grouped(inner) => self.trace_expression(inner, depth),
            ExpressionKind::Local { local, .. } => self.trace_local(local, depth),
            ExpressionKind::IndexExpr { expr, index } => {
                self.trace_item(self.trace_expression(expr, depth)?, index, depth)
            }
            ExpressionKind::Call { func, args, .. } => self.trace_call(func, args, depth),
            ExpressionKind::Table { items } => Some(TracedValue::Written(items)),
            ExpressionKind::Binary { lhs, op: BinaryOp::Or, rhs } => {
                self.trace_alternatives(lhs, rhs, depth)
            }
            // `r.data and r.data.items`
            ExpressionKind::Binary { op: BinaryOp::And, rhs, .. } => {
                self.trace_expression(rhs, depth)
            }
            _ => None,
        }
    }

    /// `list or {}`, `r.items or r.data`
    fn trace_alternatives(
        &self,
        lhs: Expression<'a>,
        rhs: Expression<'a>,
        depth: usize,
    ) -> Option<TracedValue<'a>> {
        let first = self.trace_expression(lhs, depth)?;
        // Nothing is read of what stands for a value that is not there.
        if matches!(
            rhs.kind(),
            ExpressionKind::Table { items: [] }
                | ExpressionKind::Nil
                | ExpressionKind::Boolean(_)
                | ExpressionKind::Number { .. }
                | ExpressionKind::String { .. }
        ) {
            return Some(first);
        }
        match (first, self.trace_expression(rhs, depth)?) {
            (TracedValue::Results(mut paths), TracedValue::Results(more)) => {
                add_paths(&mut paths, more)?;
                Some(TracedValue::Results(paths))
            }
            _ => None,
        }
    }

    fn trace_local(&self, local: &'a Local<'a>, depth: usize) -> Option<TracedValue<'a>> {
        match self.facts.local_origin(local) {
            LocalOrigin::Value(value) => match value.kind() {
                ExpressionKind::Table { items } => self.trace_written_list(local, items, depth),
                _ => self.trace_expression(value, depth),
            },
            LocalOrigin::Each(over) | LocalOrigin::Compared(over) => {
                self.trace_loop_item(over, depth)
            }
            LocalOrigin::Unknown => {
                let mut paths = Vec::new();
                for argument in self.facts.arguments_passed_for(local)? {
                    match self.trace_expression(argument?, depth)? {
                        TracedValue::Results(found) => add_paths(&mut paths, found)?,
                        _ => return None,
                    }
                }
                Some(TracedValue::Results(paths))
            }
            LocalOrigin::OneOf(_) | LocalOrigin::Counter | LocalOrigin::Key(_) => None,
        }
    }

    /// A table that a local holds: as it was written, or a list of what is put into it.
    fn trace_written_list(
        &self,
        local: &Local<'a>,
        items: &'a [TableItem<'a>],
        depth: usize,
    ) -> Option<TracedValue<'a>> {
        let added = self.facts.added_values(local)?;
        if added.is_empty() {
            return Some(TracedValue::Written(items));
        }
        let mut paths = Vec::new();
        for value in items.iter().map(list_item).chain(added.iter().copied().map(Some)) {
            add_paths(&mut paths, self.trace_result_or_promise(value?, depth)?)?;
        }
        Some(TracedValue::ListOf(paths))
    }

    fn trace_field(
        &self,
        of: TracedValue<'a>,
        name: &str,
        depth: usize,
    ) -> Option<TracedValue<'a>> {
        if self.facts.assigned.contains(name) {
            return None;
        }
        match of {
            TracedValue::Results(paths) => {
                Some(TracedValue::with_step(paths, &ResultStep::Field(name.to_owned())))
            }
            TracedValue::ListOf(_) => None,
            TracedValue::Written(items) => {
                let mut named = items.iter().filter_map(|item| match item {
                    TableItem::Record { key, value } => {
                        (literal_text(*key) == Some(name)).then_some(*value)
                    }
                    _ => None,
                });
                self.trace_result_or_promise(named.next()?, depth).map(TracedValue::Results)
            }
        }
    }

    fn trace_item(
        &self,
        of: TracedValue<'a>,
        index: Expression<'a>,
        depth: usize,
    ) -> Option<TracedValue<'a>> {
        match of {
            TracedValue::Results(paths) => {
                self.is_list_index(index).then(|| TracedValue::with_step(paths, &ResultStep::Item))
            }
            TracedValue::ListOf(paths) => Some(TracedValue::Results(paths)),
            TracedValue::Written(items) => match index.kind() {
                ExpressionKind::Number { value, .. } if value >= 1.0 => {
                    let value = items.iter().filter_map(list_item).nth(value as usize - 1)?;
                    self.trace_result_or_promise(value, depth).map(TracedValue::Results)
                }
                _ => self.trace_any_item(items, depth),
            },
        }
    }

    /// Any item of a list as it was written.
    fn trace_any_item(&self, items: &'a [TableItem<'a>], depth: usize) -> Option<TracedValue<'a>> {
        let mut paths = Vec::new();
        for item in items {
            let (TableItem::List { value }
            | TableItem::Record { value, .. }
            | TableItem::General { value, .. }) = item;
            add_paths(&mut paths, self.trace_result_or_promise(*value, depth)?)?;
        }
        (!paths.is_empty()).then_some(TracedValue::Results(paths))
    }

    /// Whether an index is the place of an item, and not a name.
    fn is_list_index(&self, index: Expression<'a>) -> bool {
        match index.kind() {
            ExpressionKind::Number { .. } => true,
            ExpressionKind::Unary { op, .. } => op == UnaryOp::Length,
            ExpressionKind::Local { local, .. } => {
                matches!(self.facts.local_origin(local), LocalOrigin::Counter)
            }
            _ => false,
        }
    }

    /// What a loop is given of a list.
    fn trace_loop_item(&self, over: Expression<'a>, depth: usize) -> Option<TracedValue<'a>> {
        let depth = self.take_step(depth)?;
        let list = match over.kind() {
            ExpressionKind::Call { func, args, .. }
                if matches!(global_name(func), Some("ipairs" | "pairs")) =>
            {
                args.first().copied()?
            }
            _ => over,
        };
        match self.trace_expression(list, depth)? {
            TracedValue::Results(paths) => Some(TracedValue::with_step(paths, &ResultStep::Item)),
            TracedValue::ListOf(paths) => Some(TracedValue::Results(paths)),
            TracedValue::Written(items) => self.trace_any_item(items, depth),
        }
    }

    fn trace_call(
        &self,
        func: Expression<'a>,
        args: &'a [Expression<'a>],
        depth: usize,
    ) -> Option<TracedValue<'a>> {
        // `promise:await()`
        if let Some(FieldAccess { base, name: "await", colon: true, .. }) = as_field_access(func) {
            return self.trace_result_or_promise(base, depth).map(TracedValue::Results);
        }
        match global_name(func) {
            Some("map_parallel") => {
                let paths = self.trace_returned_values(args.get(1).copied()?, depth)?;
                return Some(TracedValue::ListOf(paths));
            }
            Some("await_all") => return self.trace_expression(args.first().copied()?, depth),
            _ => {}
        }
        if let Some(path) = self.sdk_function_path(func, true) {
            return Some(TracedValue::Results(vec![path]));
        }
        self.trace_returned_values(func, depth).map(TracedValue::Results)
    }

    /// What a function of the script gives.
    fn trace_returned_values(
        &self,
        function: Expression<'a>,
        depth: usize,
    ) -> Option<Vec<ResultPath>> {
        let literal = self.resolve_local(function);
        let ExpressionKind::FunctionLiteral(function) = literal.kind() else { return None };
        let mut returns = ReturnVisitor { values: Vec::new() };
        function.body.visit(&mut returns);
        let mut paths = Vec::new();
        for value in returns.values {
            match value {
                Some(value) if matches!(value.kind(), ExpressionKind::Nil) => {}
                Some(value) => add_paths(&mut paths, self.trace_result_or_promise(value, depth)?)?,
                None => {}
            }
        }
        (!paths.is_empty()).then_some(paths)
    }

    /// The calls behind a value, or behind a promise of one.
    fn trace_result_or_promise(
        &self,
        value: Expression<'a>,
        depth: usize,
    ) -> Option<Vec<ResultPath>> {
        let depth = self.take_step(depth)?;
        if let ExpressionKind::Call { func, .. } = self.resolve_local(value).kind()
            && let Some(path) = self.sdk_function_path(func, false)
        {
            return Some(vec![path]);
        }
        match self.trace_expression(value, depth)? {
            TracedValue::Results(paths) => Some(paths),
            _ => None,
        }
    }

    /// `sdk.source.function`, or without `sdk`.
    fn sdk_function_path(&self, func: Expression<'a>, under_sdk: bool) -> Option<ResultPath> {
        let function = as_field_access(self.resolve_local(func))?;
        let base = self.resolve_local(function.base);
        let source = if under_sdk {
            let source = as_field_access(base)?;
            (global_name(self.resolve_local(source.base)) == Some("sdk")).then_some(source.name)?
        } else {
            global_name(base)?
        };
        let (source, function) = (source.to_owned(), function.name.to_owned());
        Some(ResultPath { source, function, path: Vec::new() })
    }

    fn resolve_local(&self, mut expression: Expression<'a>) -> Expression<'a> {
        for _ in 0..MAX_TRACE_DEPTH {
            expression = match expression.kind() {
                ExpressionKind::Grouped(inner) => inner,
                ExpressionKind::Local { local, .. } if global_name(expression).is_none() => {
                    match self.facts.local_origin(local) {
                        LocalOrigin::Value(value) => value,
                        _ => return expression,
                    }
                }
                _ => return expression,
            };
        }
        expression
    }

    fn take_step(&self, depth: usize) -> Option<usize> {
        self.steps_left.set(self.steps_left.get().checked_sub(1)?);
        depth.checked_sub(1)
    }
}

/// The values that a function returns, without those of functions inside of it.
struct ReturnVisitor<'a> {
    values: Vec<Option<Expression<'a>>>,
}

impl<'a> AstVisitor<'a> for ReturnVisitor<'a> {
    fn visit_return_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_return() {
            self.values.push(it.expressions.first().copied());
        }
        true
    }

    fn visit_function_literal_expression(&mut self, _: Expression<'a>) -> bool {
        false
    }
}

/// None where there are too many.
fn add_paths(paths: &mut Vec<ResultPath>, more: Vec<ResultPath>) -> Option<()> {
    for path in more {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    (paths.len() <= MAX_RESULT_ORIGINS).then_some(())
}

fn list_item<'a>(item: &TableItem<'a>) -> Option<Expression<'a>> {
    match item {
        TableItem::List { value } => Some(*value),
        _ => None,
    }
}

impl TracedValue<'_> {
    /// A part of the results at these paths.
    fn with_step(mut paths: Vec<ResultPath>, step: &ResultStep) -> Self {
        paths.iter_mut().for_each(|it| it.path.push(step.clone()));
        TracedValue::Results(paths)
    }
}

impl ResultPath {
    /// `items[].user`, for messages; empty at the top.
    pub(crate) fn display_path(&self) -> String {
        let mut place = String::new();
        for step in &self.path {
            match step {
                ResultStep::Item => place.push_str("[]"),
                ResultStep::Field(name) if place.is_empty() => place.push_str(name),
                ResultStep::Field(name) => place.push_str(&format!(".{name}")),
            }
        }
        place
    }
}
