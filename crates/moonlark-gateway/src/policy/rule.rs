//! One rule: what it matches, and what it says about that.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::concurrency::KeyedSemaphore;
use super::rate_limiter::{CallRate, KeyedRateLimiter};
use super::response_cache::ResponseCache;
use crate::call::Caller;
use moonlark_core::catalog::{ToolNames, listed_name_variants};
use moonlark_core::grant::matches_pattern;
use moonlark_core::sdk::{sdk_location, to_identifier};
use moonlark_core::tool::{
    CallEffects, CallScope, EffectKind, RAW_SUFFIX, SourceKind, Tool, ToolListing,
};

/// What a rule says. A list that is empty matches everything.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RuleTerms {
    /// Patterns for names: `jira.*`, `*.delete_*`.
    pub tools: Vec<String>,
    /// Patterns for names that it does not match, whatever else it does.
    pub except: Vec<String>,
    /// Any of these.
    pub effects: Vec<EffectKind>,
    pub kinds: Vec<SourceKind>,
    /// Patterns for names of sources.
    pub sources: Vec<String>,
    /// Patterns for names of callers.
    pub callers: Vec<String>,
    pub action: RuleAction,
    /// How often it may be called.
    pub rate: Option<CallRate>,
    /// How many calls may run at once; more wait.
    pub concurrency: Option<usize>,
    /// What rate and concurrency are counted for.
    pub per: CountingScope,
    /// The time of one call, in place of the tool's own.
    pub timeout: Option<Duration>,
    /// How long an answer is good for, if the tool only reads.
    pub cache: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RuleAction {
    #[default]
    Allow,
    /// The tool does not exist.
    Deny,
    /// A person decides on each call.
    Approve,
}

impl RuleAction {
    pub fn as_str(self) -> &'static str {
        match self {
            RuleAction::Allow => "allow",
            RuleAction::Deny => "deny",
            RuleAction::Approve => "approve",
        }
    }
}

/// What is counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CountingScope {
    /// Each tool for each caller.
    #[default]
    ToolAndCaller,
    Tool,
    Caller,
    Source,
}

/// Why a rule does not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleMismatch {
    Tools,
    Except,
    Effects,
    Kinds,
    Sources,
    Callers,
}

impl RuleTerms {
    pub(super) fn matches_caller(&self, caller: &str) -> bool {
        matches_any(&self.callers, &[caller])
    }

    /// Whether it takes nothing away: then it is for the tool that has the name,
    /// and not for another whose source calls it the same.
    fn only_permits(&self) -> bool {
        self.action == RuleAction::Allow && self.rate.is_none() && self.concurrency.is_none()
    }

    /// The first of its conditions that does not hold; of the caller only if
    /// one is given.
    pub(super) fn find_mismatch(
        &self,
        subject: &RuleSubject,
        caller: Option<&str>,
    ) -> Option<RuleMismatch> {
        let holds = |it: &EffectKind| subject.effects.is_some_and(|effects| it.holds_for(effects));
        let effects = self.effects.is_empty() || self.effects.iter().any(holds);
        let kinds = self.kinds.is_empty() || self.kinds.contains(&subject.kind);
        let names = if self.only_permits() { &subject.own_names } else { &subject.names };
        match () {
            () if !matches_any(&self.tools, names) => Some(RuleMismatch::Tools),
            // What is exempt from a rule is what a caller may reach.
            () if !self.except.is_empty() && matches_any(&self.except, &subject.own_names) => {
                Some(RuleMismatch::Except)
            }
            () if !effects => Some(RuleMismatch::Effects),
            () if !kinds => Some(RuleMismatch::Kinds),
            () if !matches_any(&self.sources, &subject.sources) => Some(RuleMismatch::Sources),
            () if caller.is_some_and(|caller| !self.matches_caller(caller)) => {
                Some(RuleMismatch::Callers)
            }
            () => None,
        }
    }
}

fn matches_any(patterns: &[String], names: &[impl AsRef<str>]) -> bool {
    let named = |pattern: &String| names.iter().any(|it| matches_pattern(pattern, it.as_ref()));
    patterns.is_empty() || patterns.iter().any(named)
}

/// What rules count a tool under: the name its source uses, so that a tool that
/// is listed under two names is counted once.
fn counted_name(tool: &Tool) -> String {
    match tool.source.kind {
        SourceKind::Upstream | SourceKind::Api => {
            format!("{}.{}", tool.source.name, tool.original_name())
        }
        _ => tool.original_name().to_owned(),
    }
}

/// What rules look at: a tool, under every name that somebody may know it by.
/// A rule that misses because of a spelling would let through what it is to stop.
pub(crate) struct RuleSubject {
    pub(crate) names: Vec<String>,
    /// Those of the names that lead to no other tool, for what only permits.
    pub(crate) own_names: Vec<String>,
    pub(crate) sources: Vec<String>,
    /// None for what has none of its own.
    pub(crate) effects: Option<CallEffects>,
    pub(crate) kind: SourceKind,
}

impl RuleSubject {
    pub(crate) fn from_tool(tool: &Tool, known: &ToolNames) -> RuleSubject {
        let (kind, source) = (tool.source.kind, &tool.source.name);
        let own = tool.raw_variant_of();
        if tool.is_passthrough() {
            return RuleSubject::from_source(source, kind, known);
        }
        let mut sources = vec![source.clone()];
        let mut names = vec![own.unwrap_or(&tool.name).to_owned()];
        names.extend(tool.aliases.iter().cloned());
        let mut wanted = &tool.name;
        if let ToolListing::As(name) = &tool.shown {
            names.push(name.clone());
            wanted = name;
            // With its prefix, whatever that is, and the name that its source uses.
            let renamed = sdk_location(tool).map(|(_, renamed)| renamed);
            if let Some(prefix) = renamed.and_then(|renamed| name.strip_suffix(&*renamed)) {
                names.push(format!("{prefix}{}", tool.original_name()));
            }
        }
        // What it is listed as where it is listed, which a rule may name before, and what it
        // would be if no other tool had that name.
        names.extend(listed_name_variants(wanted));
        let original = tool.original_name();
        if let Some((source, name)) = sdk_location(tool) {
            let name = name.strip_suffix(RAW_SUFFIX).filter(|_| own.is_some()).unwrap_or(&name);
            for name in [name, original] {
                names.push(format!("{}.{}", to_identifier(&source), to_identifier(name)));
                names.push(format!("{source}.{name}"));
            }
            sources.push(to_identifier(&source));
            sources.extend(known.source_identifier(&source).map(str::to_owned));
            sources.push(source);
        }
        match kind {
            SourceKind::Upstream | SourceKind::Api => names.push(format!("{source}__{original}")),
            _ => names.push(original.to_owned()),
        }
        names.extend_from_slice(known.names_of(tool));
        let mut met = HashSet::new();
        names.retain(|name| met.insert(name.clone()));
        let own_names = names.iter().filter(|name| !known.belongs_to_another(name, tool)).cloned();
        let effects = (!tool.only_calls).then_some(tool.effects);
        RuleSubject { own_names: own_names.collect(), names, sources, effects, kind }
    }

    /// A source as a whole: what it offers beside tools, and that it is there.
    pub(crate) fn from_source(source: &str, kind: SourceKind, known: &ToolNames) -> RuleSubject {
        let mut sources = vec![source.to_owned(), to_identifier(source)];
        sources.extend(known.source_identifier(source).map(str::to_owned));
        let names: Vec<String> = sources.iter().map(|source| format!("{source}.")).collect();
        let effects = Some(CallEffects::READ_ONLY);
        RuleSubject { own_names: names.clone(), names, sources, effects, kind }
    }
}

/// A rule in force: what it says, and what it has counted so far.
pub(crate) struct PolicyRule {
    /// Where it stands, for messages: `policy.rules[2]`.
    pub(crate) place: String,
    pub(crate) terms: RuleTerms,
    state: Arc<RuleState>,
}

struct RuleState {
    meter: KeyedRateLimiter,
    turns: KeyedSemaphore,
    answers: Arc<ResponseCache>,
}

impl PolicyRule {
    pub(super) fn new(place: String, terms: RuleTerms, answers: Arc<ResponseCache>) -> PolicyRule {
        let turns = KeyedSemaphore::new(terms.concurrency.unwrap_or(usize::MAX));
        let state = RuleState { meter: KeyedRateLimiter::default(), turns, answers };
        PolicyRule { place, terms, state: Arc::new(state) }
    }

    /// The same rule, elsewhere in the list.
    pub(super) fn with_place(&self, place: String) -> PolicyRule {
        PolicyRule { place, terms: self.terms.clone(), state: self.state.clone() }
    }

    /// Whether it matches what it is asked about; for whom is another question.
    pub(crate) fn matches_subject(&self, subject: &RuleSubject) -> bool {
        self.terms.find_mismatch(subject, None).is_none()
    }

    pub(super) fn rate_limiter(&self) -> &KeyedRateLimiter {
        &self.state.meter
    }

    pub(super) fn keyed_semaphore(&self) -> &KeyedSemaphore {
        &self.state.turns
    }

    pub(super) fn response_cache(&self) -> &ResponseCache {
        &self.state.answers
    }

    /// What calls are counted under.
    pub(super) fn counting_key(&self, tool: &Tool, caller: &Caller) -> String {
        match self.terms.per {
            CountingScope::ToolAndCaller => format!("{}\0{}", counted_name(tool), caller.name()),
            CountingScope::Tool => counted_name(tool),
            CountingScope::Caller => caller.name().to_owned(),
            CountingScope::Source => tool.source.name.clone(),
        }
    }
}

/// What was found to hold for a tool.
#[derive(Clone)]
pub(crate) struct PolicyRuling {
    pub(crate) rule: Arc<PolicyRule>,
    /// What a call of the tool may use, as the rule has it.
    pub(crate) scope: Arc<CallScope>,
}

impl PolicyRuling {
    pub(crate) fn new(rule: &Arc<PolicyRule>, scope: &Arc<CallScope>) -> PolicyRuling {
        let scope = match rule.terms.timeout {
            Some(timeout) => {
                let mut scope = CallScope::clone(scope);
                scope.limits.timeout = timeout;
                Arc::new(scope)
            }
            None => scope.clone(),
        };
        PolicyRuling { rule: rule.clone(), scope }
    }
}
