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
        let known = KnownSubjects::of(catalog);
        let all = &known.subjects;
        let mut faults: Vec<Problem> =
            self.limits.iter().flat_map(|limit| known.idle_patterns(limit)).collect();
        for (index, rule) in self.rules.iter().enumerate() {
            let tools = known.strange_patterns(&rule.terms.tools, |it| &it.names);
            let sources = known.strange_patterns(&rule.terms.sources, |it| &it.sources);
            let (of_tools, of_sources) = (&rule.terms.tools, &rule.terms.sources);
            let is_idle = |strange: &[StrangePattern], of: &[String]| {
                !of.is_empty() && strange.len() == of.len()
            };
            if is_idle(&tools, of_tools) || is_idle(&sources, of_sources) {
                faults.push(matches_nothing(rule, tools.iter().chain(&sources)));
                continue;
            }
            for (key, strange) in [("tools", &tools), ("sources", &sources)] {
                faults.extend(strange.iter().map(|it| it.problem(rule, key)));
            }
            // Which tools it is about is known when their source has connected.
            if of_tools.iter().chain(of_sources).any(|pattern| known.may_come(pattern)) {
                continue;
            }
            let matched: Vec<&Subject> = all.iter().filter(|it| rule.matches(it)).collect();
            let earlier = &self.rules[..index];
            let decided: Vec<&&Subject> = matched
                .iter()
                .filter(|it| !earlier.iter().any(|was| was.covers(rule) && was.matches(it)))
                .collect();
            faults.extend(match (matched.is_empty(), decided.is_empty()) {
                (true, _) => Some(matches_nothing(rule, std::iter::empty())),
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

/// What rules can be about: all there is, and the sources that have not said yet what
/// they offer.
struct KnownSubjects<'a> {
    subjects: Vec<Subject>,
    unknown_sources: Vec<&'a str>,
}

/// A pattern that matches nothing, and what it was likely to be.
struct StrangePattern<'a> {
    pattern: &'a str,
    near: Option<String>,
}

impl<'a> KnownSubjects<'a> {
    fn of(catalog: &'a Catalog) -> Self {
        let names = catalog.tool_names();
        let tools = catalog.tools().iter().map(|it| Subject::of(it, names));
        let doors = catalog.offers().iter().map(|it| Subject::of(&it.door, names));
        let subjects = tools.chain(doors).collect();
        KnownSubjects { subjects, unknown_sources: unknown_sources(catalog) }
    }

    /// Whether the pattern may be for what a source offers once it has connected.
    fn may_come(&self, pattern: &str) -> bool {
        self.unknown_sources.iter().any(|source| may_name(pattern, source))
    }

    fn strange_patterns<'p>(
        &self,
        patterns: &'p [String],
        names: impl Fn(&Subject) -> &Vec<String>,
    ) -> Vec<StrangePattern<'p>> {
        let known: Vec<&str> =
            self.subjects.iter().flat_map(|it| names(it).iter().map(String::as_str)).collect();
        let strange = patterns.iter().filter(|pattern| {
            !self.may_come(pattern) && !known.iter().any(|name| matches_pattern(pattern, name))
        });
        strange
            .map(|pattern| StrangePattern {
                pattern: pattern.as_str(),
                near: nearest_pattern(pattern, &known, &self.unknown_sources),
            })
            .collect()
    }

    /// Patterns of what a single caller may reach that match no tool.
    fn idle_patterns(&self, limit: &Rule) -> Vec<Problem> {
        let strange = self.strange_patterns(&limit.terms.except, |it| &it.names);
        strange.iter().map(|it| it.problem(limit, "tools")).collect()
    }
}

impl StrangePattern<'_> {
    fn problem(&self, rule: &Rule, key: &str) -> Problem {
        fault(rule, format!("has {:?} in {key}, which matches nothing", self.pattern))
            .maybe_hint(self.near.as_ref().map(|near| format!("did you mean {near}?")))
    }
}

/// A rule that is about nothing at all, with what each of its patterns was likely to be.
fn matches_nothing<'a>(
    rule: &Rule,
    strange: impl Iterator<Item = &'a StrangePattern<'a>>,
) -> Problem {
    let strange: Vec<&StrangePattern<'_>> = strange.collect();
    let near: Vec<String> = (strange.iter())
        .filter_map(|it| {
            let near = it.near.as_ref()?;
            // Whose it is has to be said only if there are others.
            Some(match strange.len() {
                1 => near.clone(),
                _ => format!("{near} for {}", it.pattern),
            })
        })
        .collect();
    let hint = if near.is_empty() {
        "loosen its conditions, or remove it; `moonlark policy explain TOOL` says which of them a tool misses".to_owned()
    } else {
        format!("did you mean {}?", near.join(", "))
    };
    fault(rule, "matches no tool").hint(hint)
}

/// The name, or the pattern for tools of a source, that a pattern with a slip was
/// likely to be.
fn nearest_pattern(pattern: &str, known: &[&str], unknown_sources: &[&str]) -> Option<String> {
    if let Some(near) = nearest(pattern, known.iter().copied()) {
        return Some(near.to_owned());
    }
    let (source, rest) = pattern.split_once('.')?;
    let sources = known.iter().filter_map(|name| Some(name.split_once('.')?.0));
    let near = nearest(source, sources.chain(unknown_sources.iter().copied()))?;
    (near != source).then(|| format!("{near}.{rest}"))
}

/// Patterns for names that match no tool there is, each with the name it was
/// likely to be. Those that may be for one of the `unknown` sources are passed over.
pub fn patterns_without_tool(
    catalog: &Catalog,
    patterns: &[String],
    unknown: &[&str],
) -> Vec<(String, Option<String>)> {
    let known = KnownSubjects { unknown_sources: unknown.to_vec(), ..KnownSubjects::of(catalog) };
    let strange = known.strange_patterns(patterns, |it| &it.names);
    strange.into_iter().map(|it| (it.pattern.to_owned(), it.near)).collect()
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
