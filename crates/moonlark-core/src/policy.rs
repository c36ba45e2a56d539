//! What the operator allows, by rules: which tools exist for whom, how often
//! and how many at once, for how long, which answers are good for a while.
//!
//! The first rule that matches a tool and its caller decides everything; where
//! none does, the call is allowed. Which rule that is has been found when a
//! caller's catalog is made ([`Catalog::seen_by`](crate::catalog::Catalog)), so
//! a call only follows a pointer. Who is calling is not found out here.

mod faults;
mod governed;
mod kept;
mod meter;
mod rule;
#[cfg(test)]
mod tests;
mod turns;

use std::sync::Arc;

use crate::call::Caller;
use crate::catalog::Catalog;
use crate::tool::Tool;

pub use faults::patterns_without_tool;
pub(crate) use governed::governed;
use kept::Kept;
pub use meter::Rate;
pub use rule::{Action, Effect, Miss, Per, Terms};
pub(crate) use rule::{Rule, Ruling, Subject};
pub(crate) use turns::Held;

/// All rules, in order.
#[derive(Default)]
pub struct Policy {
    /// What single callers may not reach, whatever the rules say.
    limits: Vec<Arc<Rule>>,
    rules: Vec<Arc<Rule>>,
    /// Whether it matters who calls.
    tells_apart: bool,
}

/// Callers to whom the same rules apply see the same catalog. A bit for each
/// rule.
pub(crate) type Class = Vec<u64>;

impl Policy {
    /// The rules, each with where it stands.
    pub fn new(rules: Vec<(String, Terms)>) -> Policy {
        Self::with(Vec::new(), made(rules))
    }

    fn with(limits: Vec<Arc<Rule>>, rules: Vec<Arc<Rule>>) -> Policy {
        let mut all = limits.iter().chain(&rules);
        let tells_apart = all.any(|rule| !rule.terms.callers.is_empty());
        Policy { limits, rules, tells_apart }
    }

    /// The same rules after `old`: those that say the same go on counting, and
    /// what single callers may not reach stays so.
    #[must_use]
    pub(crate) fn after(&self, old: &Policy) -> Policy {
        let rule = |rule: &Arc<Rule>| match old.rules.iter().find(|was| was.terms == rule.terms) {
            Some(was) => Arc::new(was.standing_at(rule.place.clone())),
            None => rule.clone(),
        };
        Self::with(old.limits.clone(), self.rules.iter().map(rule).collect())
    }

    /// The same rules behind these limits.
    #[must_use]
    pub(crate) fn limited(&self, limits: Vec<(String, Terms)>) -> Policy {
        Self::with(made(limits), self.rules.clone())
    }

    /// In the order in which they decide.
    fn all(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.limits.iter().chain(&self.rules)
    }

    /// Whether some rule lets a person decide.
    pub fn has_approvals(&self) -> bool {
        self.all().any(|rule| rule.terms.action == Action::Approve)
    }

    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// Whether the rules of both say the same.
    pub(crate) fn is_same(&self, other: &Policy) -> bool {
        let same = |(a, b): (&Arc<Rule>, &Arc<Rule>)| a.place == b.place && a.terms == b.terms;
        self.rules.len() == other.rules.len() && self.rules.iter().zip(&other.rules).all(same)
    }

    pub(crate) fn is_limited_by(&self, limits: &[(String, Terms)]) -> bool {
        let same = |(a, b): (&Arc<Rule>, &(String, Terms))| a.place == b.0 && a.terms == b.1;
        self.limits.len() == limits.len() && self.limits.iter().zip(limits).all(same)
    }

    pub(crate) fn class(&self, caller: &Caller) -> Class {
        if !self.tells_apart {
            return Class::new();
        }
        let mut class = vec![0; (self.limits.len() + self.rules.len()).div_ceil(64)];
        for (index, rule) in self.all().enumerate() {
            class[index / 64] |= u64::from(rule.terms.is_for(caller.name())) << (index % 64);
        }
        class
    }

    /// The rules that may decide for a caller.
    pub(crate) fn rules_for(&self, caller: &Caller) -> Vec<Arc<Rule>> {
        let is_for = |rule: &&Arc<Rule>| rule.terms.is_for(caller.name());
        self.all().filter(is_for).cloned().collect()
    }

    /// What becomes of a call of `tool`, and what each rule has to do with it.
    pub fn explain(&self, catalog: &Catalog, tool: &Tool, caller: &str) -> Explanation {
        let subject = Subject::of(tool, catalog.tool_names());
        let mut looked_at = Vec::new();
        for rule in self.all() {
            let miss = rule.terms.miss(&subject, Some(caller));
            looked_at.push((rule.place.clone(), rule.terms.clone(), miss));
            if miss.is_none() {
                break;
            }
        }
        Explanation { looked_at, names: subject.names }
    }
}

/// The names of a tool that lead to no other: what a grant may know it by.
pub(crate) fn own_names(catalog: &Catalog, tool: &Tool) -> Vec<String> {
    Subject::of(tool, catalog.tool_names()).own_names
}

fn made(rules: Vec<(String, Terms)>) -> Vec<Arc<Rule>> {
    let answers = Arc::new(Kept::default());
    let rule = |(place, terms)| Arc::new(Rule::new(place, terms, answers.clone()));
    rules.into_iter().map(rule).collect()
}

/// The rules up to the one that decides, each with why it does not match.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    pub looked_at: Vec<(String, Terms, Option<Miss>)>,
    /// Every name that rules know the tool by.
    pub names: Vec<String>,
}

impl Explanation {
    /// The rule that decides; none if no rule matches.
    pub fn decides(&self) -> Option<(&str, &Terms)> {
        let (place, terms, miss) = self.looked_at.last()?;
        miss.is_none().then_some((place, terms))
    }
}
