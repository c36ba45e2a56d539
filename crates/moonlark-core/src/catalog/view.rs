//! A catalog as some callers see it: without what their rules deny.
//!
//! What is denied does not exist there, so nothing that lists, searches, draws
//! or suggests has to know of rules. Names stay those of the whole catalog: a
//! script means the same whoever runs it.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Catalog, ConnectingSource, ToolNames};
use crate::policy::{PolicyRule, PolicyRuling, RuleSubject};
use crate::problem::Result;
use crate::sdk::BUILTIN_SOURCE_NAME;
use crate::source_resources::{SourceHealth, SourceResources};
use crate::tool::{CallScope, Source, SourceKind, Tool};

/// What was made of a catalog, and for whom.
pub(super) struct CatalogView {
    pub(super) whole: Arc<Catalog>,
    /// The rules that may decide for these callers, in order.
    rules: Vec<Arc<PolicyRule>>,
    /// What decides for each tool that exists, by its address; the whole catalog
    /// keeps those from being used again.
    rulings: HashMap<usize, Option<PolicyRuling>>,
}

impl Catalog {
    /// This catalog for callers to whom `rules` apply.
    pub(crate) fn view_for(self: &Arc<Self>, rules: Vec<Arc<PolicyRule>>) -> Catalog {
        let rulings = compute_rulings(self, &rules);
        let exists = |tool: &Arc<Tool>| rulings.contains_key(&tool_address(tool));
        let own = |it: &Arc<SourceResources>| it.source.name == BUILTIN_SOURCE_NAME;
        let known = self.tool_names();
        let whole = |source: &str, kinds: &[SourceKind]| {
            let denies = |kind: &SourceKind| {
                is_denied(&rules, &RuleSubject::from_source(source, *kind, known))
            };
            !kinds.iter().any(denies)
        };
        let mut seen = Catalog {
            tools: self.tools.iter().filter(|tool| exists(tool)).cloned().collect(),
            by_name: (self.by_name.iter().filter(|(_, tool)| exists(tool)))
                .map(|(name, tool)| (name.clone(), tool.clone()))
                .collect(),
            heirs: self.heirs.clone(),
            loading: self.loading,
            idle: self.idle.clone(),
            offers: (self.offers.iter())
                .filter(|it| exists(&it.door) && !own(it))
                .cloned()
                .collect(),
            own: self.own,
            connecting: (self.connecting.iter())
                .filter(|it| may_have_tools(&rules, it, known))
                .cloned()
                .collect(),
            health: (self.health.iter())
                .filter(|it| whole(&it.source, &self.source_kinds(&it.source)))
                .filter_map(|it| self.visible_health(it, exists))
                .collect(),
            modules: self.modules.clone(),
            problems: self.problems.clone(),
            ..Catalog::default()
        };
        seen.seen = Some(CatalogView { whole: self.clone(), rules, rulings });
        seen.update_listing();
        // What we offer ourselves says what there is.
        let mut own = self.own.map(|own| own(&seen)).unwrap_or_default();
        own.retain(|it| seen.ruling_for(&it.door).is_ok());
        seen.offers.extend(own);
        seen
    }

    /// Whether a source is there at all for these callers.
    pub fn knows_source(&self, source: &Source) -> bool {
        let whole = || RuleSubject::from_source(&source.name, source.kind, self.tool_names());
        self.seen.as_ref().is_none_or(|seen| !is_denied(&seen.rules, &whole()))
    }

    /// Whether a tool of the whole catalog exists here.
    pub(super) fn has_tool(&self, tool: &Arc<Tool>) -> bool {
        self.seen.as_ref().is_none_or(|seen| seen.rulings.contains_key(&tool_address(tool)))
    }

    /// Whether a token names the very tool: then its holder has a use for it.
    pub(super) fn is_requested_by_name(&self, tool: &Tool) -> bool {
        let names = |rule: &Arc<PolicyRule>| rule.terms.except.contains(&tool.name);
        self.seen.as_ref().is_some_and(|seen| seen.rules.iter().any(names))
    }

    /// What a source that connects is, or may be while it has no tools.
    fn source_kinds(&self, source: &str) -> Vec<SourceKind> {
        match self.tools.iter().find(|it| it.source.name == source) {
            Some(tool) => vec![tool.source.kind],
            None => vec![SourceKind::Upstream, SourceKind::Api],
        }
    }

    /// How a source is doing as far as it exists: none if none of its tools does.
    fn visible_health(
        &self,
        health: &SourceHealth,
        exists: impl Fn(&Arc<Tool>) -> bool,
    ) -> Option<SourceHealth> {
        let tools = self.tools.iter().filter(|it| it.source.name == health.source);
        let (seen, gone): (Vec<_>, Vec<_>) = tools.partition(|it| exists(it));
        let offers = self.offers.iter().find(|it| it.source.name == health.source);
        let offers =
            offers.is_some_and(|it| exists(&it.door)) && health.resources + health.prompts > 0;
        if gone.is_empty() {
            return Some(health.clone());
        }
        // What is wrong with tools names them.
        let less = SourceHealth { tools: seen.len(), flaws: Vec::new(), ..health.clone() };
        (offers || !seen.is_empty()).then_some(less)
    }

    /// What decides for a tool; none if no rule does. What does not exist for
    /// this caller is not found, however it was come by.
    pub(crate) fn ruling_for(&self, tool: &Tool) -> Result<Option<PolicyRuling>> {
        let Some(seen) = &self.seen else { return Ok(None) };
        if let Some(ruling) = seen.rulings.get(&std::ptr::from_ref(tool).addr()) {
            return Ok(ruling.clone());
        }
        match first_matching_rule(&seen.rules, &RuleSubject::from_tool(tool, self.tool_names())) {
            Some(rule) if rule.is_denial() => Err(self.not_found_problem(&tool.name)),
            rule => Ok(rule.map(|rule| PolicyRuling::new(rule, &tool.scope))),
        }
    }
}

fn tool_address(tool: &Arc<Tool>) -> usize {
    Arc::as_ptr(tool).addr()
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
) -> HashMap<usize, Option<PolicyRuling>> {
    // The tools of one source share a scope; so do they under one rule.
    let mut scopes: HashMap<(usize, usize), Arc<CallScope>> = HashMap::new();
    let mut ruling = |rule: &Arc<PolicyRule>, tool: &Tool| {
        let both = (Arc::as_ptr(rule).addr(), Arc::as_ptr(&tool.scope).addr());
        let made = || PolicyRuling::new(rule, &tool.scope).scope;
        PolicyRuling { rule: rule.clone(), scope: scopes.entry(both).or_insert_with(made).clone() }
    };
    let mut rulings = HashMap::with_capacity(catalog.tools.len());
    let doors = catalog.offers.iter().map(|offers| &offers.door);
    for tool in catalog.tools.iter().chain(doors) {
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
