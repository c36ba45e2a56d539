//! Scopes of local variables, to explain unknown names: most are misspelt, or used
//! outside of the block that declares them.

use std::collections::HashMap;

use luau_syntax::ast::{AstVisitor, Block, Expression, ExpressionKind, Local, Statement};
use luau_syntax::location::{Location, Position};

#[derive(Default)]
pub(super) struct LocalScopes<'a> {
    locals: Vec<ScopedLocal<'a>>,
    /// Blocks whose locals live longer than they do: the condition of `until` sees those of
    /// its loop.
    extended: HashMap<*const (), Position>,
}

struct ScopedLocal<'a> {
    name: &'a str,
    /// Where it is declared; the line before the script is not part of it.
    line: u32,
    scope: Location,
}

/// A local of a certain name that is not known where the name is used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UnreachableLocal {
    /// Its block has ended. The line declares it.
    Ended(u32),
    /// It is declared further down, in this line.
    Later(u32),
}

impl<'a> LocalScopes<'a> {
    pub(super) fn from_block(root: Block<'a>) -> LocalScopes<'a> {
        let mut scopes = LocalScopes::default();
        scopes.extended.insert(root.as_statement().as_ptr(), Position::missing());
        root.visit(&mut scopes);
        scopes
    }

    /// The names of the locals that are known at a place.
    pub(super) fn names_at(&self, place: Position) -> impl Iterator<Item = &'a str> {
        let known = self.locals.iter().filter(move |local| local.is_known_at(place));
        known.map(|local| local.name)
    }

    /// The local of this name that is meant by somebody who cannot reach it.
    pub(super) fn find_unreachable(&self, name: &str, place: Position) -> Option<UnreachableLocal> {
        let mut named = self.locals.iter().filter(|local| local.name == name);
        let before = named.clone().rfind(|local| local.scope.begin <= place);
        match before {
            Some(local) => Some(UnreachableLocal::Ended(local.line)),
            None => named.next().map(|local| UnreachableLocal::Later(local.line)),
        }
    }

    fn add_local(&mut self, local: &Local<'a>, begin: Position, end: Position) {
        if local.location.begin.line == 0 {
            return;
        }
        if let Ok(name) = std::str::from_utf8(local.name.bytes()) {
            let line = local.location.begin.line;
            self.locals.push(ScopedLocal { name, line, scope: Location::new(begin, end) });
        }
    }

    fn add_locals(&mut self, locals: &[&'a Local<'a>], scope: Location) {
        locals.iter().for_each(|local| self.add_local(local, scope.begin, scope.end));
    }
}

impl ScopedLocal<'_> {
    fn is_known_at(&self, place: Position) -> bool {
        self.scope.begin <= place && place < self.scope.end
    }
}

impl<'a> AstVisitor<'a> for LocalScopes<'a> {
    fn visit_block(&mut self, block: Block<'a>) -> bool {
        let extended = self.extended.get(&block.as_statement().as_ptr());
        let end = extended.copied().unwrap_or(block.location().end);
        for statement in block.as_slice() {
            if let Some(it) = statement.as_local() {
                self.add_locals(it.bindings, Location::new(statement.location().end, end));
            } else if let Some(it) = statement.as_local_function() {
                self.add_local(it.name, statement.location().begin, end);
            }
        }
        true
    }

    fn visit_statement(&mut self, statement: Statement<'a>) -> bool {
        if let Some(it) = statement.as_repeat() {
            let body = it.body.as_statement().as_ptr();
            self.extended.insert(body, statement.location().end);
        } else if let Some(it) = statement.as_numeric_for() {
            self.add_locals(&[it.name], it.body.location());
        } else if let Some(it) = statement.as_generic_for() {
            self.add_locals(it.names, it.body.location());
        }
        true
    }

    fn visit_function_literal_expression(&mut self, expression: Expression<'a>) -> bool {
        if let ExpressionKind::FunctionLiteral(function) = expression.kind() {
            self.add_locals(function.args, function.body.location());
        }
        true
    }
}
