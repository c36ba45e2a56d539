//! Rules of one class of callers, applied to a catalog: what exists for them, and which
//! rule decides for each tool.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use moonlark_core::catalog::{Catalog, CatalogFilter, ConnectingSource, ToolNames};
use moonlark_core::problem::Result;
use moonlark_core::tool::{CallScope, SourceKind, Tool};

use super::rule::{PolicyRule, PolicyRuling, RuleSubject};

/// The rules that may decide for some callers, and what they decide.
struct CallerRules {
    /// In order.
    rules: Vec<Arc<PolicyRule>>,
    /// What decides for each tool that exists, by its address; the whole catalog
    /// keeps those from being used again.
    rulings: HashMap<usize, Option<PolicyRuling>>,
    viewer: ToolViewer,
}

/// Whose tools exist for a caller, beside those that are everybody's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ToolViewer {
    /// Those of all callers.
    Everybody,
    /// Those of this caller.
    Owner(Arc<str>),
    Nobody,
}

impl ToolViewer {
    fn may_see(&self, tool: &Tool) -> bool {
        match (self, &tool.owner) {
            (ToolViewer::Everybody, _) | (_, None) => true,
            (ToolViewer::Owner(name), Some(owner)) => name == owner,
            (ToolViewer::Nobody, Some(_)) => false,
        }
    }
}

/// A catalog for callers to whom `rules` apply.
pub(crate) fn view_for_rules(
    catalog: &Arc<Catalog>,
    rules: Vec<Arc<PolicyRule>>,
    viewer: ToolViewer,
) -> Catalog {
    let rulings = compute_rulings(catalog, &rules, &viewer);
    catalog.view_for(Box::new(CallerRules { rules, rulings, viewer }))
}

/// What decides for a tool; none if no rule does. What does not exist for
/// this caller is not found, however it was come by.
pub(crate) fn ruling_for(catalog: &Catalog, tool: &Tool) -> Result<Option<PolicyRuling>> {
    let Some(filter) = catalog.filter() else { return Ok(None) };
    let Some(seen) = (filter as &dyn Any).downcast_ref::<CallerRules>() else {
        // Made by something else: there are no rules to say more.
        return if filter.has_tool(tool) {
            Ok(None)
        } else {
            Err(catalog.not_found_problem(&tool.name))
        };
    };
    if let Some(ruling) = seen.rulings.get(&tool_address(tool)) {
        return Ok(ruling.clone());
    }
    if !seen.viewer.may_see(tool) {
        return Err(catalog.not_found_problem(&tool.name));
    }
    match first_matching_rule(&seen.rules, &RuleSubject::from_tool(tool, catalog.tool_names())) {
        Some(rule) if rule.is_denial() => Err(catalog.not_found_problem(&tool.name)),
        rule => Ok(rule.map(|rule| PolicyRuling::new(rule, &tool.scope))),
    }
}

impl CatalogFilter for CallerRules {
    fn has_tool(&self, tool: &Tool) -> bool {
        self.rulings.contains_key(&tool_address(tool))
    }

    fn allows_new_tool(&self, tool: &Tool, known: &ToolNames) -> bool {
        !is_denied(&self.rules, &RuleSubject::from_tool(tool, known))
    }

    fn allows_source(&self, source: &str, kind: SourceKind, known: &ToolNames) -> bool {
        !is_denied(&self.rules, &RuleSubject::from_source(source, kind, known))
    }

    fn may_have_tools(&self, source: &ConnectingSource, known: &ToolNames) -> bool {
        may_have_tools(&self.rules, source, known)
    }

    fn is_requested_by_name(&self, tool: &Tool) -> bool {
        self.rules.iter().any(|rule| rule.terms.except.contains(&tool.name))
    }
}

fn tool_address(tool: &Tool) -> usize {
    std::ptr::from_ref(tool).addr()
}

fn first_matching_rule<'a>(
    rules: &'a [Arc<PolicyRule>],
    subject: &RuleSubject,
) -> Option<&'a Arc<PolicyRule>> {
    rules.iter().find(|rule| rule.matches_subject(subject))
}

fn is_denied(rules: &[Arc<PolicyRule>], subject: &RuleSubject) -> bool {
    first_matching_rule(rules, subject).is_some_and(|rule| rule.is_denial())
}

/// Whether a source whose tools are not known yet may have one that the rules do not deny.
/// A rule that denies the source may exempt single tools, as the tools of a token do, and
/// one that stands before it may allow them.
fn may_have_tools(rules: &[Arc<PolicyRule>], source: &ConnectingSource, known: &ToolNames) -> bool {
    let whole = RuleSubject::from_source(&source.source, source.kind, known);
    let means_part = |patterns: &[String]| patterns.iter().any(|it| source.may_be_meant_by(it));
    for rule in rules {
        let terms = &rule.terms;
        match (rule.is_denial(), rule.matches_subject(&whole)) {
            (false, true) => return true,
            (false, false) if means_part(&terms.tools) => return true,
            (true, true) if !means_part(&terms.except) => return false,
            _ => {}
        }
    }
    true
}

/// What decides for every tool that is not denied, doors included.
fn compute_rulings(
    catalog: &Catalog,
    rules: &[Arc<PolicyRule>],
    viewer: &ToolViewer,
) -> HashMap<usize, Option<PolicyRuling>> {
    // The tools of one source share a scope; so do they under one rule.
    let mut scopes: HashMap<(usize, usize), Arc<CallScope>> = HashMap::new();
    let mut ruling = |rule: &Arc<PolicyRule>, tool: &Tool| {
        let both = (Arc::as_ptr(rule).addr(), Arc::as_ptr(&tool.scope).addr());
        let made = || PolicyRuling::new(rule, &tool.scope).scope;
        PolicyRuling { rule: rule.clone(), scope: scopes.entry(both).or_insert_with(made).clone() }
    };
    let mut rulings = HashMap::with_capacity(catalog.tools().len());
    let doors = catalog.source_resources().iter().map(|offers| &offers.door);
    for tool in catalog.tools().iter().chain(doors).filter(|it| viewer.may_see(it)) {
        let decides =
            first_matching_rule(rules, &RuleSubject::from_tool(tool, catalog.tool_names()));
        if decides.is_some_and(|rule| rule.is_denial()) {
            continue;
        }
        let decides = decides.map(|rule| ruling(rule, tool));
        if let Some(raw) = &tool.raw {
            rulings.insert(tool_address(raw), decides.clone());
        }
        rulings.insert(tool_address(tool), decides);
    }
    rulings
}
