//! Fields of results: one that a tool does not declare, but nearly, is misspelt.

use luau_analysis::SemanticModel;
use luau_analysis::types::{PrimitiveTypeKind, TableState, TableType, TypeId, TypeKind};
use luau_syntax::ast::Expression;

use super::CheckFinding;
use super::preamble::{CheckPreamble, UsedFunction};
use super::script_facts::{FieldAccess, ScriptFacts, as_field_access};
use super::traced_fields::find_misspelt_field;

const MAX_UNION_DEPTH: usize = 8;

pub(super) struct TypedFieldChecker<'x, 'a, 'c> {
    model: &'x SemanticModel<'a>,
    facts: &'x ScriptFacts<'a>,
    preamble: &'x CheckPreamble<'c>,
    /// Types of results that the script adds to under computed keys.
    open: Vec<u32>,
}

impl<'x, 'a, 'c> TypedFieldChecker<'x, 'a, 'c> {
    pub(super) fn new(
        model: &'x SemanticModel<'a>,
        facts: &'x ScriptFacts<'a>,
        preamble: &'x CheckPreamble<'c>,
    ) -> Self {
        let mut fields = TypedFieldChecker { model, facts, preamble, open: Vec::new() };
        let filled = facts.filled.iter().filter_map(|filled| fields.declared_tables(*filled));
        fields.open = filled.flatten().map(declaration_column).collect();
        fields
    }

    /// What is wrong with reading this field, if anything surely is.
    pub(super) fn check_field(
        &self,
        expression: Expression<'a>,
        signature: impl Fn(&UsedFunction<'c>) -> String,
    ) -> Option<CheckFinding> {
        let FieldAccess { base, name, location, colon } = as_field_access(expression)?;
        if self.facts.assigned.contains(name) {
            return None;
        }
        let tables = self.declared_tables(base)?;
        let lacks = |table: &&TableType| {
            !table.props.contains_key(name.as_bytes())
                && !self.open.contains(&declaration_column(table))
        };
        let table = *tables.first()?;
        if !tables.iter().all(lacks) {
            return None;
        }
        let known = tables.iter().flat_map(|table| table.props.keys());
        let known = known.filter_map(|name| std::str::from_utf8(name).ok());
        if table.name.as_ref().is_some_and(|name| name == "M0_Promise") {
            let message = format!("this is a promise, which has no {name}: its value does");
            return Some(
                CheckFinding::new(location, message).with_hint("call :await() on it first"),
            );
        }
        // `text:upper()` on a table is another mistake than ours to explain.
        if colon {
            return None;
        }
        let used = self.preamble.function_declared_at(declaration_column(table));
        let whose = used.map_or_else(String::new, |used| {
            format!(" of sdk.{}.{}", used.source.name, used.function.name)
        });
        let whose = format!("the result{whose}");
        let found = find_misspelt_field(self.facts, expression, &whose, known)?;
        Some(found.with_optional_hint(used.map(|used| signature(&used))))
    }

    /// The declared tables that an expression can be; none if it can be
    /// anything else.
    fn declared_tables(&self, expression: Expression<'a>) -> Option<Vec<&TableType>> {
        let mut found = Vec::new();
        let id = self.model.expression_type(expression)?.id();
        self.collect_tables(id, MAX_UNION_DEPTH, &mut found)?;
        Some(found)
    }

    fn collect_tables<'s>(
        &'s self,
        id: TypeId,
        left: usize,
        found: &mut Vec<&'s TableType>,
    ) -> Option<()> {
        let left = left.checked_sub(1)?;
        let graph = self.model.graph();
        match graph.kind(graph.follow_type(id)) {
            TypeKind::Table(table) => {
                let ours =
                    table.definition_location.begin.line == 0 && declaration_column(table) > 0;
                let closed = table.state == TableState::Sealed && table.indexer.is_none();
                (ours && closed && !table.props.is_empty()).then(|| found.push(table))
            }
            TypeKind::Union(union) => union
                .options
                .iter()
                .try_for_each(|option| self.collect_tables(*option, left, found)),
            // Reading a field of nothing is for the run to find.
            TypeKind::Primitive(primitive) if primitive.kind == PrimitiveTypeKind::Nil => Some(()),
            _ => None,
        }
    }
}

/// Where the table was declared, on the line before the script.
fn declaration_column(table: &TableType) -> u32 {
    table.definition_location.begin.column
}
