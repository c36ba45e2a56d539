//! Fields and methods of strings and lists, as other languages have them.

use luau_syntax::ast::{Expression, ExpressionKind, TableItem};
use moonlark_core::value::shorten_text;

use super::script_facts::{FieldAccess, LocalOrigin, as_field_access, as_local};
use super::value_kinds::{KindOracle, ValueKinds};
use super::{CheckFinding, script_globals};
use crate::other_languages::{FieldReceiver, hint_for_field};

/// What is wrong with reading a field of what is surely a text or a list.
pub(super) fn check_text_or_list_field<'a>(
    oracle: &KindOracle<'_, 'a, '_>,
    expression: Expression<'a>,
) -> Option<CheckFinding> {
    let FieldAccess { base, name, location, colon } = as_field_access(expression)?;
    let facts = oracle.names.facts;
    if facts.is_tested(expression) || facts.assigned.contains(name) {
        return None;
    }
    if oracle.infer_kinds(base) == ValueKinds::STRING_KIND {
        if script_globals::is_text_function(name) {
            return None;
        }
        let what = if colon { "method" } else { "field" };
        let message = format!("a text has no {what} {}", shorten_text(name));
        let hint = hint_for_field(FieldReceiver::Text, name);
        return Some(CheckFinding::new(location, message).with_optional_hint(hint));
    }
    let hint = hint_for_field(FieldReceiver::List, name).filter(|_| is_own_list(oracle, base))?;
    let message = format!("a list has no {}", shorten_text(name));
    Some(CheckFinding::new(location, message).with_hint(hint))
}

/// `text.split(",")`: the text itself is not handed over.
pub(super) fn check_text_dot_call<'a>(
    oracle: &KindOracle<'_, 'a, '_>,
    func: Expression<'a>,
    args: &[Expression<'a>],
) -> Option<CheckFinding> {
    let FieldAccess { base, name, location, colon } = as_field_access(func)?;
    // Those take anything first.
    let takes_text = script_globals::is_text_function(name) && !matches!(name, "char" | "format");
    if colon || !takes_text || oracle.infer_kinds(base) != ValueKinds::STRING_KIND {
        return None;
    }
    if args.first().is_some_and(|first| is_same_local(base, *first)) {
        return None;
    }
    let message = format!("with a dot, {name} is not given the text");
    Some(CheckFinding::new(location, message).with_hint(format!("write a colon: text:{name}(…)")))
}

/// Whether both are one variable.
pub(super) fn is_same_local(one: Expression<'_>, other: Expression<'_>) -> bool {
    as_local(one).zip(as_local(other)).is_some_and(|(one, other)| std::ptr::eq(one, other))
}

/// A list that the script wrote down, and that nothing gives methods to.
fn is_own_list<'a>(oracle: &KindOracle<'_, 'a, '_>, base: Expression<'a>) -> bool {
    let facts = oracle.names.facts;
    let Some(local) = as_local(base) else { return false };
    let LocalOrigin::Value(value) = facts.local_origin(local) else { return false };
    let ExpressionKind::Table { items } = value.kind() else { return false };
    let is_item = |item: &TableItem<'_>| matches!(item, TableItem::List { .. });
    let has_items = !items.is_empty() && items.iter().all(is_item);
    let is_filled = items.is_empty() && facts.is_inserted_into(local);
    (has_items || is_filled) && !facts.sets_metatables
}
