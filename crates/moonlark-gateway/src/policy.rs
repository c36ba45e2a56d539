//! The policy: rules about which tools exist for which callers, rates, concurrency,
//! timeouts, and cached answers.
//!
//! The first rule that matches a tool and its caller decides everything; where
//! none does, the call is allowed. Which rule that is has been found when a
//! caller's catalog is made ([`caller_rules`]), so
//! a call only follows a pointer. Who is calling is not found out here.

mod caller_rules;
mod concurrency;
mod enforcement;
mod rate_limiter;
mod response_cache;
mod rule;
mod rule_faults;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::call::Caller;
use moonlark_core::catalog::Catalog;
use moonlark_core::tool::Tool;

pub(crate) use caller_rules::{ToolViewer, ruling_for, view_for_rules};
pub(crate) use concurrency::ConcurrencyPermit;
pub(crate) use enforcement::run_under_rule;
pub use rate_limiter::CallRate;
use response_cache::ResponseCache;
pub use rule::{CountingScope, RuleAction, RuleMismatch, RuleTerms};
pub(crate) use rule::{PolicyRule, RuleSubject};
pub use rule_faults::patterns_without_tool;

/// All rules, in order.
#[derive(Default)]
pub struct CallPolicy {
    /// What single callers may not reach, whatever the rules say.
    limits: Vec<Arc<PolicyRule>>,
    rules: Vec<Arc<PolicyRule>>,
    /// Whether it matters who calls.
    tells_apart: bool,
}

/// Callers to whom the same rules apply see the same catalog. A bit for each
/// rule.
pub(crate) type CallerClass = Vec<u64>;

impl CallPolicy {
    /// The rules, each with where it stands.
    pub fn new(rules: Vec<(String, RuleTerms)>) -> CallPolicy {
        Self::from_rules(Vec::new(), build_rules(rules))
    }

    fn from_rules(limits: Vec<Arc<PolicyRule>>, rules: Vec<Arc<PolicyRule>>) -> CallPolicy {
        let mut all = limits.iter().chain(&rules);
        let tells_apart = all.any(|rule| !rule.terms.callers.is_empty());
        CallPolicy { limits, rules, tells_apart }
    }

    /// The same rules after `old`: those that say the same go on counting, and
    /// what single callers may not reach stays so.
    #[must_use]
    pub(crate) fn continued_from(&self, old: &CallPolicy) -> CallPolicy {
        let rule =
            |rule: &Arc<PolicyRule>| match old.rules.iter().find(|was| was.terms == rule.terms) {
                Some(was) => Arc::new(was.with_place(rule.place.clone())),
                None => rule.clone(),
            };
        Self::from_rules(old.limits.clone(), self.rules.iter().map(rule).collect())
    }

    /// The same rules behind these limits.
    #[must_use]
    pub(crate) fn with_caller_limits(&self, limits: Vec<(String, RuleTerms)>) -> CallPolicy {
        Self::from_rules(build_rules(limits), self.rules.clone())
    }

    /// In the order in which they decide.
    fn all_rules(&self) -> impl Iterator<Item = &Arc<PolicyRule>> {
        self.limits.iter().chain(&self.rules)
    }

    /// Whether some rule lets a person decide.
    pub fn has_approvals(&self) -> bool {
        self.all_rules().any(|rule| rule.terms.action == RuleAction::Approve)
    }

    pub fn is_empty(&self) -> bool {
        self.all_rules().next().is_none()
    }

    /// Whether the rules of both say the same.
    pub(crate) fn has_same_rules(&self, other: &CallPolicy) -> bool {
        let same =
            |(a, b): (&Arc<PolicyRule>, &Arc<PolicyRule>)| a.place == b.place && a.terms == b.terms;
        self.rules.len() == other.rules.len() && self.rules.iter().zip(&other.rules).all(same)
    }

    pub(crate) fn has_same_caller_limits(&self, limits: &[(String, RuleTerms)]) -> bool {
        let same =
            |(a, b): (&Arc<PolicyRule>, &(String, RuleTerms))| a.place == b.0 && a.terms == b.1;
        self.limits.len() == limits.len() && self.limits.iter().zip(limits).all(same)
    }

    pub(crate) fn caller_class(&self, caller: &Caller) -> CallerClass {
        if !self.tells_apart {
            return CallerClass::new();
        }
        let mut class = vec![0; (self.limits.len() + self.rules.len()).div_ceil(64)];
        for (index, rule) in self.all_rules().enumerate() {
            class[index / 64] |=
                u64::from(rule.terms.matches_caller(caller.name())) << (index % 64);
        }
        class
    }

    /// The rules that may decide for a caller.
    pub(crate) fn rules_for(&self, caller: &Caller) -> Vec<Arc<PolicyRule>> {
        let is_for = |rule: &&Arc<PolicyRule>| rule.terms.matches_caller(caller.name());
        self.all_rules().filter(is_for).cloned().collect()
    }

    /// What becomes of a call of `tool`, and what each rule has to do with it.
    pub fn explain_call(&self, catalog: &Catalog, tool: &Tool, caller: &str) -> PolicyExplanation {
        let subject = RuleSubject::from_tool(tool, catalog.tool_names());
        let mut looked_at = Vec::new();
        for rule in self.all_rules() {
            let miss = rule.terms.find_mismatch(&subject, Some(caller));
            looked_at.push((rule.place.clone(), rule.terms.clone(), miss));
            if miss.is_none() {
                break;
            }
        }
        PolicyExplanation { looked_at, names: subject.names }
    }
}

/// The names of a tool that lead to no other: what a grant may know it by.
pub(crate) fn unambiguous_names(catalog: &Catalog, tool: &Tool) -> Vec<String> {
    RuleSubject::from_tool(tool, catalog.tool_names()).own_names
}

fn build_rules(rules: Vec<(String, RuleTerms)>) -> Vec<Arc<PolicyRule>> {
    let answers = Arc::new(ResponseCache::default());
    let rule = |(place, terms)| Arc::new(PolicyRule::new(place, terms, answers.clone()));
    rules.into_iter().map(rule).collect()
}

/// The rules up to the one that decides, each with why it does not match.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyExplanation {
    pub looked_at: Vec<(String, RuleTerms, Option<RuleMismatch>)>,
    /// Every name that rules know the tool by.
    pub names: Vec<String>,
}

impl PolicyExplanation {
    /// The rule that decides; none if no rule matches.
    pub fn deciding_rule(&self) -> Option<(&str, &RuleTerms)> {
        let (place, terms, miss) = self.looked_at.last()?;
        miss.is_none().then_some((place, terms))
    }
}
