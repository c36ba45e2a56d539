//! Warnings about rules, given the tools that exist.

use super::CallPolicy;
use super::rule::{PolicyRule, RuleAction, RuleSubject, RuleTerms};
use moonlark_core::catalog::Catalog;
use moonlark_core::grant::matches_pattern;
use moonlark_core::nearest::nearest_name;
use moonlark_core::problem::{Problem, SourceLocation};
use moonlark_core::source_resources::SourceState;

impl CallPolicy {
    /// Rules that do nothing, and parts of rules that do: a deny with a slip in
    /// it denies nothing.
    pub fn find_faults(&self, catalog: &Catalog) -> Vec<Problem> {
        let known = KnownSubjects::from_catalog(catalog);
        let all = &known.subjects;
        let mut faults: Vec<Problem> =
            self.limits.iter().flat_map(|limit| known.unmatched_limit_problems(limit)).collect();
        for (index, rule) in self.rules.iter().enumerate() {
            let tools = known.unmatched_patterns(&rule.terms.tools, |it| &it.names);
            let sources = known.unmatched_patterns(&rule.terms.sources, |it| &it.sources);
            let (of_tools, of_sources) = (&rule.terms.tools, &rule.terms.sources);
            let is_idle = |strange: &[UnmatchedPattern], of: &[String]| {
                !of.is_empty() && strange.len() == of.len()
            };
            if is_idle(&tools, of_tools) || is_idle(&sources, of_sources) {
                faults.push(matches_nothing_problem(rule, tools.iter().chain(&sources)));
                continue;
            }
            for (key, strange) in [("tools", &tools), ("sources", &sources)] {
                faults.extend(strange.iter().map(|it| it.to_problem(rule, key)));
            }
            // Which tools it is about is known when their source has connected.
            if of_tools.iter().chain(of_sources).any(|pattern| known.may_match_later(pattern)) {
                continue;
            }
            let matched: Vec<&RuleSubject> =
                all.iter().filter(|it| rule.matches_subject(it)).collect();
            let earlier = &self.rules[..index];
            let decided: Vec<&&RuleSubject> = matched
                .iter()
                .filter(|it| {
                    !earlier.iter().any(|was| was.covers_callers(rule) && was.matches_subject(it))
                })
                .collect();
            faults.extend(match (matched.is_empty(), decided.is_empty()) {
                (true, _) => Some(matches_nothing_problem(rule, std::iter::empty())),
                (false, true) => {
                    let decides = |was: &&std::sync::Arc<PolicyRule>| {
                        was.covers_callers(rule) && matched.iter().any(|it| was.matches_subject(it))
                    };
                    let names: Vec<&str> =
                        earlier.iter().filter(decides).map(|was| was.place.as_str()).collect();
                    let names = names.join(", ");
                    Some(
                        rule_problem(
                            rule,
                            format!("never decides: all it matches is decided by {names}"),
                        )
                        .with_hint("the first rule that matches decides: move it up, or remove it"),
                    )
                }
                (false, false) => None,
            });
            let reads = decided.iter().any(|it| it.effects.is_some_and(|it| it.read_only));
            if rule.terms.cache.is_some() && !decided.is_empty() && !reads {
                faults.push(
                    rule_problem(rule, "caches nothing: none of its tools is known to only read")
                        .with_hint("only answers of read-only tools are kept; remove cache"),
                );
            }
        }
        faults
    }
}

/// What rules can be about: all there is, and the sources that have not said yet what
/// they offer.
struct KnownSubjects<'a> {
    subjects: Vec<RuleSubject>,
    unknown_sources: Vec<&'a str>,
}

/// A pattern that matches nothing, and what it was likely to be.
struct UnmatchedPattern<'a> {
    pattern: &'a str,
    near: Option<String>,
}

impl<'a> KnownSubjects<'a> {
    fn from_catalog(catalog: &'a Catalog) -> Self {
        let names = catalog.tool_names();
        let tools = catalog.tools().iter().map(|it| RuleSubject::from_tool(it, names));
        let doors =
            catalog.source_resources().iter().map(|it| RuleSubject::from_tool(&it.door, names));
        let subjects = tools.chain(doors).collect();
        KnownSubjects { subjects, unknown_sources: unknown_sources(catalog) }
    }

    /// Whether the pattern may be for what a source offers once it has connected.
    fn may_match_later(&self, pattern: &str) -> bool {
        self.unknown_sources.iter().any(|source| may_match_source(pattern, source))
    }

    fn unmatched_patterns<'p>(
        &self,
        patterns: &'p [String],
        names: impl Fn(&RuleSubject) -> &Vec<String>,
    ) -> Vec<UnmatchedPattern<'p>> {
        let known: Vec<&str> =
            self.subjects.iter().flat_map(|it| names(it).iter().map(String::as_str)).collect();
        let strange = patterns.iter().filter(|pattern| {
            !self.may_match_later(pattern)
                && !known.iter().any(|name| matches_pattern(pattern, name))
        });
        strange
            .map(|pattern| UnmatchedPattern {
                pattern: pattern.as_str(),
                near: nearest_pattern(pattern, &known, &self.unknown_sources),
            })
            .collect()
    }

    /// Patterns of what a single caller may reach that match no tool.
    fn unmatched_limit_problems(&self, limit: &PolicyRule) -> Vec<Problem> {
        let strange = self.unmatched_patterns(&limit.terms.except, |it| &it.names);
        strange.iter().map(|it| it.to_problem(limit, "tools")).collect()
    }
}

impl UnmatchedPattern<'_> {
    fn to_problem(&self, rule: &PolicyRule, key: &str) -> Problem {
        rule_problem(rule, format!("has {:?} in {key}, which matches nothing", self.pattern))
            .with_optional_hint(self.near.as_ref().map(|near| format!("did you mean {near}?")))
    }
}

/// A rule that is about nothing at all, with what each of its patterns was likely to be.
fn matches_nothing_problem<'a>(
    rule: &PolicyRule,
    strange: impl Iterator<Item = &'a UnmatchedPattern<'a>>,
) -> Problem {
    let strange: Vec<&UnmatchedPattern<'_>> = strange.collect();
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
    rule_problem(rule, "matches no tool").with_hint(hint)
}

/// The name, or the pattern for tools of a source, that a pattern with a slip was
/// likely to be.
fn nearest_pattern(pattern: &str, known: &[&str], unknown_sources: &[&str]) -> Option<String> {
    if let Some(near) = nearest_name(pattern, known.iter().copied()) {
        return Some(near.to_owned());
    }
    let (source, rest) = pattern.split_once('.')?;
    let sources = known.iter().filter_map(|name| Some(name.split_once('.')?.0));
    let near = nearest_name(source, sources.chain(unknown_sources.iter().copied()))?;
    (near != source).then(|| format!("{near}.{rest}"))
}

/// Patterns for names that match no tool there is, each with the name it was
/// likely to be. Those that may be for one of the `unknown` sources are passed over.
pub fn patterns_without_tool(
    catalog: &Catalog,
    patterns: &[String],
    unknown: &[&str],
) -> Vec<(String, Option<String>)> {
    let known =
        KnownSubjects { unknown_sources: unknown.to_vec(), ..KnownSubjects::from_catalog(catalog) };
    let strange = known.unmatched_patterns(patterns, |it| &it.names);
    strange.into_iter().map(|it| (it.pattern.to_owned(), it.near)).collect()
}

/// Sources that have not said yet what they offer.
fn unknown_sources(catalog: &Catalog) -> Vec<&str> {
    let silent =
        catalog.health().iter().filter(|it| it.tools == 0 && it.state != SourceState::Ready);
    silent.map(|it| it.source.as_str()).collect()
}

/// Whether the pattern may be for a source, or for tools of it.
fn may_match_source(pattern: &str, source: &str) -> bool {
    let literal = pattern.split('*').next().unwrap_or_default();
    match literal.strip_prefix(source) {
        Some(rest) => !rest.starts_with(char::is_alphanumeric),
        None => literal.len() < pattern.len() && source.starts_with(literal),
    }
}

fn rule_problem(rule: &PolicyRule, what: impl std::fmt::Display) -> Problem {
    Problem::bad_config(format!("{} {what}", rule.place))
        .at_location(SourceLocation::in_file(rule.place.as_str()))
}

impl PolicyRule {
    /// Whether it is for all callers that the other is for.
    fn covers_callers(&self, other: &PolicyRule) -> bool {
        let RuleTerms { callers, .. } = &self.terms;
        let covered = |theirs: &String| callers.iter().any(|it| matches_pattern(it, theirs));
        callers.is_empty()
            || (!other.terms.callers.is_empty() && other.terms.callers.iter().all(covered))
    }

    pub(crate) fn is_denial(&self) -> bool {
        self.terms.action == RuleAction::Deny
    }
}
