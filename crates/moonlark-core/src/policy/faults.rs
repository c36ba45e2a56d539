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
        let known = catalog.tool_names();
        let tools: Vec<Subject> = catalog.tools().iter().map(|it| Subject::of(it, known)).collect();
        let doors = catalog.offers().iter().map(|it| Subject::of(&it.door, known));
        let all: Vec<Subject> = tools.into_iter().chain(doors).collect();
        let unknown = unknown_sources(catalog);
        let mut faults: Vec<Problem> =
            self.limits.iter().flat_map(|limit| idle_patterns(limit, &all, &unknown)).collect();
        for (index, rule) in self.rules.iter().enumerate() {
            // Which tools it is about is known when their source has connected.
            let mut patterns = rule.terms.tools.iter().chain(&rule.terms.sources);
            if patterns.any(|pattern| unknown.iter().any(|source| may_name(pattern, source))) {
                continue;
            }
            faults.extend(strangers(rule, "tools", &rule.terms.tools, |it| &it.names, &all));
            faults.extend(strangers(rule, "sources", &rule.terms.sources, |it| &it.sources, &all));
            let matched: Vec<&Subject> = all.iter().filter(|it| rule.matches(it)).collect();
            let earlier = &self.rules[..index];
            let decided: Vec<&&Subject> = matched
                .iter()
                .filter(|it| !earlier.iter().any(|was| was.covers(rule) && was.matches(it)))
                .collect();
            faults.extend(match (matched.is_empty(), decided.is_empty()) {
                (true, _) => Some(fault(rule, "matches no tool").hint(
                    nearest_hint(&rule.terms.tools, &all).unwrap_or_else(|| {
                        "loosen its conditions, or remove it; `moonlark policy explain TOOL` says which of them a tool misses".to_owned()
                    }),
                )),
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

/// Patterns of what a single caller may reach that match no tool.
fn idle_patterns(limit: &Rule, all: &[Subject], unknown: &[&str]) -> Vec<Problem> {
    let known = || all.iter().flat_map(|it| it.names.iter());
    let idle = |pattern: &&String| {
        !known().any(|name| matches_pattern(pattern, name))
            && !unknown.iter().any(|source| may_name(pattern, source))
    };
    let problem = |pattern: &String| {
        let near = nearest(pattern, known().map(String::as_str));
        fault(limit, format!("has {pattern:?} in tools, which matches nothing"))
            .maybe_hint(near.map(|near| format!("did you mean {near}?")))
    };
    limit.terms.except.iter().filter(idle).map(problem).collect()
}

/// What a slip in patterns that match nothing was to be.
fn nearest_hint(patterns: &[String], all: &[Subject]) -> Option<String> {
    let known = || all.iter().flat_map(|it| it.names.iter().map(String::as_str));
    let near = |pattern: &String| {
        let strange = !known().any(|name| matches_pattern(pattern, name));
        let near = nearest(pattern, known()).filter(|_| strange)?;
        Some(format!("did you mean {near}?"))
    };
    patterns.iter().find_map(near)
}

/// Patterns for names that match no tool there is, each with the name it was
/// likely to be. Those that may be for one of the `unknown` sources are passed over.
pub fn patterns_without_tool(
    catalog: &Catalog,
    patterns: &[String],
    unknown: &[&str],
) -> Vec<(String, Option<String>)> {
    let names = catalog.tool_names();
    let all: Vec<Subject> = catalog.tools().iter().map(|it| Subject::of(it, names)).collect();
    let known = || all.iter().flat_map(|it| it.names.iter().map(String::as_str));
    let strange = patterns.iter().filter(|pattern| {
        let expected = unknown.iter().any(|source| may_name(pattern, source));
        !expected && !known().any(|name| matches_pattern(pattern, name))
    });
    strange.map(|pattern| (pattern.clone(), nearest(pattern, known()).map(str::to_owned))).collect()
}

/// Sources that have not said yet what they offer.
fn unknown_sources(catalog: &Catalog) -> Vec<&str> {
    let silent = catalog.health().iter().filter(|it| it.tools == 0 && it.state != "ready");
    silent.map(|it| it.source.as_str()).collect()
}

/// Whether the pattern may be for a source, or for tools of it.
fn may_name(pattern: &str, source: &str) -> bool {
    let literal = pattern.split('*').next().unwrap_or_default();
    match literal.strip_prefix(source) {
        Some(rest) => !rest.starts_with(char::is_alphanumeric),
        None => literal.len() < pattern.len() && source.starts_with(literal),
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
