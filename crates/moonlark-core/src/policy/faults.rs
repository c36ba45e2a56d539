//! What is wrong with rules, seen with the tools that there are.

use super::Policy;
use super::rule::{Action, Rule, Subject, Terms};
use crate::catalog::Catalog;
use crate::grant::matches_pattern;
use crate::nearest::nearest;
use crate::problem::{Place, Problem};

impl Policy {
    /// Rules that do nothing, and parts of rules that do: a deny with a slip in
    /// it denies nothing.
    pub fn faults(&self, catalog: &Catalog) -> Vec<Problem> {
        let tools: Vec<Subject> = catalog.tools().iter().map(|it| Subject::of(it)).collect();
        let doors = catalog.offers().iter().map(|it| Subject::of(&it.door));
        let all: Vec<Subject> = tools.into_iter().chain(doors).collect();
        let mut faults = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            faults.extend(strangers(rule, "tools", &rule.terms.tools, |it| &it.names, &all));
            faults.extend(strangers(rule, "sources", &rule.terms.sources, |it| &it.sources, &all));
            let matched: Vec<&Subject> = all.iter().filter(|it| rule.matches(it)).collect();
            let earlier = &self.rules[..index];
            let decided: Vec<&&Subject> = matched
                .iter()
                .filter(|it| !earlier.iter().any(|was| was.covers(rule) && was.matches(it)))
                .collect();
            faults.extend(match (matched.is_empty(), decided.is_empty()) {
                (true, _) => Some(
                    fault(rule, "matches no tool")
                        .hint("loosen its conditions, or remove it; `moonlark policy explain TOOL` says which of them a tool misses"),
                ),
                (false, true) => {
                    let decides = |was: &&std::sync::Arc<Rule>| {
                        was.covers(rule) && matched.iter().any(|it| was.matches(it))
                    };
                    let names: Vec<&str> =
                        earlier.iter().filter(decides).map(|was| was.place.as_str()).collect();
                    let names = names.join(", ");
                    Some(
                        fault(rule, format!("never decides: all it matches is decided by {names}"))
                            .hint("the first rule that matches decides: move it up, or remove it"),
                    )
                }
                (false, false) => None,
            });
            let reads = decided.iter().any(|it| it.effects.is_some_and(|it| it.read_only));
            if rule.terms.cache.is_some() && !decided.is_empty() && !reads {
                faults.push(
                    fault(rule, "caches nothing: none of its tools is known to only read")
                        .hint("only answers of read-only tools are kept; remove cache"),
                );
            }
        }
        faults
    }
}

fn fault(rule: &Rule, what: impl std::fmt::Display) -> Problem {
    Problem::bad_config(format!("{} {what}", rule.place)).at(Place::file(rule.place.as_str()))
}

/// Patterns that match nothing at all, in a list where others do.
fn strangers<'a>(
    rule: &Rule,
    key: &str,
    patterns: &'a [String],
    names: impl Fn(&Subject) -> &Vec<String> + Copy + 'a,
    all: &'a [Subject],
) -> Vec<Problem> {
    let known = move || all.iter().flat_map(move |it| names(it).iter());
    let strange = |pattern: &&String| !known().any(|name| matches_pattern(pattern, name));
    let strange: Vec<&String> = patterns.iter().filter(strange).collect();
    // That the whole rule matches nothing is said once.
    if strange.len() == patterns.len() {
        return Vec::new();
    }
    let problem = |pattern: &String| {
        let near = nearest(pattern, known().map(String::as_str));
        fault(rule, format!("has {pattern:?} in {key}, which matches nothing"))
            .maybe_hint(near.map(|near| format!("did you mean {near}?")))
    };
    strange.into_iter().map(problem).collect()
}

impl Rule {
    /// Whether it is for all callers that the other is for.
    fn covers(&self, other: &Rule) -> bool {
        let Terms { callers, .. } = &self.terms;
        let covered = |theirs: &String| callers.iter().any(|it| matches_pattern(it, theirs));
        callers.is_empty()
            || (!other.terms.callers.is_empty() && other.terms.callers.iter().all(covered))
    }

    pub(crate) fn denies(&self) -> bool {
        self.terms.action == Action::Deny
    }
}
