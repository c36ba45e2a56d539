//! JavaScript-style string templates, which run in Luau and mean something else.

use luau_syntax::ast::{AstVisitor, Block, Expression, ExpressionKind};
use luau_syntax::location::Location;

use super::CheckFinding;
use super::local_scopes::LocalScopes;
use super::script_facts::literal_text;
use super::value_kinds::{KindOracle, ValueKinds};

/// `"Hello ${name}"`, and `${name}` in backticks.
pub(super) fn find_templates<'a>(
    root: Block<'a>,
    oracle: &KindOracle<'_, 'a, '_>,
    scopes: &LocalScopes<'a>,
) -> Vec<CheckFinding> {
    let mut visitor =
        TemplateVisitor { oracle, scopes, found: Vec::new(), dollars: Vec::new(), plain: false };
    root.visit(&mut visitor);
    let TemplateVisitor { mut found, dollars, plain, .. } = visitor;
    // A script that also writes values without a dollar sign knows what it is doing.
    if !plain {
        found.extend(dollars.into_iter().map(|place| {
            CheckFinding::new(place, "in backticks, ${x} is a dollar sign and the value of x")
                .with_hint("write `{x}` for the value alone")
        }));
    }
    found
}

struct TemplateVisitor<'x, 'a, 'c> {
    oracle: &'x KindOracle<'x, 'a, 'c>,
    scopes: &'x LocalScopes<'a>,
    found: Vec<CheckFinding>,
    /// Values in backticks with a dollar sign before them.
    dollars: Vec<Location>,
    /// There are some without.
    plain: bool,
}

impl<'a> AstVisitor<'a> for TemplateVisitor<'_, 'a, '_> {
    fn visit_string_expression(&mut self, expression: Expression<'a>) -> bool {
        let Some(text) = literal_text(expression) else { return true };
        let place = expression.location();
        let local = text.split("${").skip(1).find_map(|rest| {
            let inside = rest.split('}').next()?;
            let name = inside.split(['.', '[']).next()?;
            self.scopes.names_at(place.begin).find(|known| *known == name)
        });
        if let Some(local) = local {
            let message = format!("${{{local}}} in quotes is plain text, not the value of {local}");
            let hint = format!("write it in backticks: `… {{{local}}} …`");
            self.found.push(CheckFinding::new(place, message).with_hint(hint));
        }
        true
    }

    fn visit_interp_string_expression(&mut self, expression: Expression<'a>) -> bool {
        let ExpressionKind::InterpString { strings, expressions } = expression.kind() else {
            return true;
        };
        for (before, value) in strings.iter().zip(expressions) {
            if !before.into_bytes().ends_with(b"$") {
                self.plain = true;
            } else if self.oracle.infer_kinds(*value) != ValueKinds::NUMBER_KIND {
                // A number with a dollar sign is money.
                self.dollars.push(value.location());
            }
        }
        true
    }
}
