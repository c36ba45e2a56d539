//! A catalog as some callers see it: without what their rules deny.
//!
//! What is denied does not exist there, so nothing that lists, searches, draws
//! or suggests has to know of rules. Names stay those of the whole catalog: a
//! script means the same whoever runs it.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Catalog, Connecting, ToolNames};
use crate::offers::{Health, Offers};
use crate::policy::{Rule, Ruling, Subject};
use crate::problem::Result;
use crate::sdk::BUILTIN;
use crate::tool::{Scope, Source, SourceKind, Tool};

/// What was made of a catalog, and for whom.
pub(super) struct Seen {
    pub(super) whole: Arc<Catalog>,
    /// The rules that may decide for these callers, in order.
    rules: Vec<Arc<Rule>>,
    /// What decides for each tool that exists, by its address; the whole catalog
    /// keeps those from being used again.
    rulings: HashMap<usize, Option<Ruling>>,
}

impl Catalog {
    /// This catalog for callers to whom `rules` apply.
    pub(crate) fn seen_by(self: &Arc<Self>, rules: Vec<Arc<Rule>>) -> Catalog {
        let rulings = rulings(self, &rules);
        let exists = |tool: &Arc<Tool>| rulings.contains_key(&address(tool));
        let own = |it: &Arc<Offers>| it.source.name == BUILTIN;
        let known = self.tool_names();
        let whole = |source: &str, kinds: &[SourceKind]| {
            let denies = |kind: &SourceKind| denies(&rules, &Subject::whole(source, *kind, known));
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
                .filter(|it| whole(&it.source, &self.kinds_of(&it.source)))
                .filter_map(|it| self.health_of(it, exists))
                .collect(),
            modules: self.modules.clone(),
            problems: self.problems.clone(),
            ..Catalog::default()
        };
        seen.seen = Some(Seen { whole: self.clone(), rules, rulings });
        seen.show();
        // What we offer ourselves says what there is.
        let mut own = self.own.map(|own| own(&seen)).unwrap_or_default();
        own.retain(|it| seen.ruling(&it.door).is_ok());
        seen.offers.extend(own);
        seen
    }

    /// Whether a source is there at all for these callers.
    pub fn knows(&self, source: &Source) -> bool {
        let whole = || Subject::whole(&source.name, source.kind, self.tool_names());
        self.seen.as_ref().is_none_or(|seen| !denies(&seen.rules, &whole()))
    }

    /// Whether a tool of the whole catalog exists here.
    pub(super) fn has(&self, tool: &Arc<Tool>) -> bool {
        self.seen.as_ref().is_none_or(|seen| seen.rulings.contains_key(&address(tool)))
    }

    /// Whether a token names the very tool: then its holder has a use for it.
    pub(super) fn is_asked_for(&self, tool: &Tool) -> bool {
        let names = |rule: &Arc<Rule>| rule.terms.except.contains(&tool.name);
        self.seen.as_ref().is_some_and(|seen| seen.rules.iter().any(names))
    }

    /// What a source that connects is, or may be while it has no tools.
    fn kinds_of(&self, source: &str) -> Vec<SourceKind> {
        match self.tools.iter().find(|it| it.source.name == source) {
            Some(tool) => vec![tool.source.kind],
            None => vec![SourceKind::Upstream, SourceKind::Api],
        }
    }

    /// How a source is doing as far as it exists: none if none of its tools does.
    fn health_of(&self, health: &Health, exists: impl Fn(&Arc<Tool>) -> bool) -> Option<Health> {
        let tools = self.tools.iter().filter(|it| it.source.name == health.source);
        let (seen, gone): (Vec<_>, Vec<_>) = tools.partition(|it| exists(it));
        let offers = self.offers.iter().find(|it| it.source.name == health.source);
        let offers =
            offers.is_some_and(|it| exists(&it.door)) && health.resources + health.prompts > 0;
        if gone.is_empty() {
            return Some(health.clone());
        }
        // What is wrong with tools names them.
        let less = Health { tools: seen.len(), flaws: Vec::new(), ..health.clone() };
        (offers || !seen.is_empty()).then_some(less)
    }

    /// What decides for a tool; none if no rule does. What does not exist for
    /// this caller is not found, however it was come by.
    pub(crate) fn ruling(&self, tool: &Tool) -> Result<Option<Ruling>> {
        let Some(seen) = &self.seen else { return Ok(None) };
        if let Some(ruling) = seen.rulings.get(&std::ptr::from_ref(tool).addr()) {
            return Ok(ruling.clone());
        }
        match deciding(&seen.rules, &Subject::of(tool, self.tool_names())) {
            Some(rule) if rule.denies() => Err(self.not_found(&tool.name)),
            rule => Ok(rule.map(|rule| Ruling::new(rule, &tool.scope))),
        }
    }
}

fn address(tool: &Arc<Tool>) -> usize {
    Arc::as_ptr(tool).addr()
}

fn deciding<'a>(rules: &'a [Arc<Rule>], subject: &Subject) -> Option<&'a Arc<Rule>> {
    rules.iter().find(|rule| rule.matches(subject))
}

fn denies(rules: &[Arc<Rule>], subject: &Subject) -> bool {
    deciding(rules, subject).is_some_and(|rule| rule.denies())
}

/// Whether a source whose tools are not known yet may have one that the rules do not deny.
/// A rule that denies the source may exempt single tools, as the tools of a token do, and
/// one that stands before it may allow them.
fn may_have_tools(rules: &[Arc<Rule>], source: &Connecting, known: &ToolNames) -> bool {
    let whole = Subject::whole(&source.source, source.kind, known);
    let mut means_part = |patterns: &[String]| patterns.iter().any(|it| source.may_be_meant_by(it));
    for rule in rules {
        let terms = &rule.terms;
        match (rule.denies(), rule.matches(&whole)) {
            (false, true) => return true,
            (false, false) if means_part(&terms.tools) => return true,
            (true, true) if !means_part(&terms.except) => return false,
            _ => {}
        }
    }
    true
}

/// What decides for every tool that is not denied, doors included.
fn rulings(catalog: &Catalog, rules: &[Arc<Rule>]) -> HashMap<usize, Option<Ruling>> {
    // The tools of one source share a scope; so do they under one rule.
    let mut scopes: HashMap<(usize, usize), Arc<Scope>> = HashMap::new();
    let mut ruling = |rule: &Arc<Rule>, tool: &Tool| {
        let both = (Arc::as_ptr(rule).addr(), Arc::as_ptr(&tool.scope).addr());
        let made = || Ruling::new(rule, &tool.scope).scope;
        Ruling { rule: rule.clone(), scope: scopes.entry(both).or_insert_with(made).clone() }
    };
    let mut rulings = HashMap::with_capacity(catalog.tools.len());
    let doors = catalog.offers.iter().map(|offers| &offers.door);
    for tool in catalog.tools.iter().chain(doors) {
        let decides = deciding(rules, &Subject::of(tool, catalog.tool_names()));
        if decides.is_some_and(|rule| rule.denies()) {
            continue;
        }
        let decides = decides.map(|rule| ruling(rule, tool));
        if let Some(raw) = &tool.raw {
            rulings.insert(address(raw), decides.clone());
        }
        rulings.insert(address(tool), decides);
    }
    rulings
}
