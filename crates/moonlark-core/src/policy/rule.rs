//! One rule: what it matches, and what it says about that.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::kept::Kept;
use super::meter::{Meter, Rate};
use super::turns::Turns;
use crate::call::Caller;
use crate::catalog::{ToolNames, names_made_of};
use crate::grant::matches_pattern;
use crate::sdk::{home, identifier};
use crate::tool::{Effects, RAW, Scope, Shown, SourceKind, Tool};

/// What a rule says. A list that is empty matches everything.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Terms {
    /// Patterns for names: `jira.*`, `*.delete_*`.
    pub tools: Vec<String>,
    /// Patterns for names that it does not match, whatever else it does.
    pub except: Vec<String>,
    /// Any of these.
    pub effects: Vec<Effect>,
    pub kinds: Vec<SourceKind>,
    /// Patterns for names of sources.
    pub sources: Vec<String>,
    /// Patterns for names of callers.
    pub callers: Vec<String>,
    pub action: Action,
    /// How often it may be called.
    pub rate: Option<Rate>,
    /// How many calls may run at once; more wait.
    pub concurrency: Option<usize>,
    /// What rate and concurrency are counted for.
    pub per: Per,
    /// The time of one call, in place of the tool's own.
    pub timeout: Option<Duration>,
    /// How long an answer is good for, if the tool only reads.
    pub cache: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Action {
    #[default]
    Allow,
    /// The tool does not exist.
    Deny,
    /// A person decides on each call.
    Approve,
}

impl Action {
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Allow => "allow",
            Action::Deny => "deny",
            Action::Approve => "approve",
        }
    }
}

/// What a call may do to the world, as rules name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    ReadOnly,
    /// Anything but reading.
    Writes,
    Destructive,
    Idempotent,
    OpenWorld,
}

impl Effect {
    pub fn as_str(self) -> &'static str {
        match self {
            Effect::ReadOnly => "read-only",
            Effect::Writes => "writes",
            Effect::Destructive => "destructive",
            Effect::Idempotent => "idempotent",
            Effect::OpenWorld => "open-world",
        }
    }

    fn is_of(self, effects: Effects) -> bool {
        match self {
            Effect::ReadOnly => effects.read_only,
            Effect::Writes => !effects.read_only,
            // What only reads says nothing by its other marks.
            Effect::Destructive => effects.destructive && !effects.read_only,
            Effect::Idempotent => effects.idempotent || effects.read_only,
            Effect::OpenWorld => effects.open_world,
        }
    }

    /// All that rules see in a tool; none in one that only calls others.
    pub fn seen_in(tool: &Tool) -> impl Iterator<Item = Effect> {
        Self::all_of(tool.effects).filter(|_| !tool.only_calls)
    }

    /// All that hold for what a tool says of itself.
    pub fn all_of(effects: Effects) -> impl Iterator<Item = Effect> {
        [
            Effect::ReadOnly,
            Effect::Writes,
            Effect::Destructive,
            Effect::Idempotent,
            Effect::OpenWorld,
        ]
        .into_iter()
        .filter(move |effect| effect.is_of(effects))
    }
}

/// What is counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Per {
    /// Each tool for each caller.
    #[default]
    ToolAndCaller,
    Tool,
    Caller,
    Source,
}

/// Why a rule does not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Miss {
    Tools,
    Except,
    Effects,
    Kinds,
    Sources,
    Callers,
}

impl Terms {
    pub(super) fn is_for(&self, caller: &str) -> bool {
        fits(&self.callers, &[caller])
    }

    /// Whether it takes nothing away: then it is for the tool that has the name,
    /// and not for another whose source calls it the same.
    fn only_permits(&self) -> bool {
        self.action == Action::Allow && self.rate.is_none() && self.concurrency.is_none()
    }

    /// The first of its conditions that does not hold; of the caller only if
    /// one is given.
    pub(super) fn miss(&self, subject: &Subject, caller: Option<&str>) -> Option<Miss> {
        let holds = |it: &Effect| subject.effects.is_some_and(|effects| it.is_of(effects));
        let effects = self.effects.is_empty() || self.effects.iter().any(holds);
        let kinds = self.kinds.is_empty() || self.kinds.contains(&subject.kind);
        let names = if self.only_permits() { &subject.own_names } else { &subject.names };
        match () {
            () if !fits(&self.tools, names) => Some(Miss::Tools),
            // What is exempt from a rule is what a caller may reach.
            () if !self.except.is_empty() && fits(&self.except, &subject.own_names) => {
                Some(Miss::Except)
            }
            () if !effects => Some(Miss::Effects),
            () if !kinds => Some(Miss::Kinds),
            () if !fits(&self.sources, &subject.sources) => Some(Miss::Sources),
            () if caller.is_some_and(|caller| !self.is_for(caller)) => Some(Miss::Callers),
            () => None,
        }
    }
}

fn fits(patterns: &[String], names: &[impl AsRef<str>]) -> bool {
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
pub(crate) struct Subject {
    pub(crate) names: Vec<String>,
    /// Those of the names that lead to no other tool, for what only permits.
    pub(crate) own_names: Vec<String>,
    pub(crate) sources: Vec<String>,
    /// None for what has none of its own.
    pub(crate) effects: Option<Effects>,
    pub(crate) kind: SourceKind,
}

impl Subject {
    pub(crate) fn of(tool: &Tool, known: &ToolNames) -> Subject {
        let (kind, source) = (tool.source.kind, &tool.source.name);
        let own = tool.name.strip_suffix(RAW).filter(|_| tool.shown == Shown::Not);
        // Not shown, and no variant of a tool: the door to the rest of a source.
        if tool.shown == Shown::Not && own.is_none() {
            return Subject::whole(source, kind, known);
        }
        let mut sources = vec![source.clone()];
        let mut names = vec![own.unwrap_or(&tool.name).to_owned()];
        names.extend(tool.aliases.iter().cloned());
        if let Shown::As(name) = &tool.shown {
            names.push(name.clone());
            // What it is listed as where it is listed, which a rule may name before.
            names.extend(names_made_of(name));
        }
        let original = tool.original_name();
        if let Some((source, name)) = home(tool) {
            let name = name.strip_suffix(RAW).filter(|_| own.is_some()).unwrap_or(&name);
            for name in [name, original] {
                names.push(format!("{}.{}", identifier(&source), identifier(name)));
                names.push(format!("{source}.{name}"));
            }
            sources.push(identifier(&source));
            sources.extend(known.source_identifier(&source).map(str::to_owned));
            sources.push(source);
        }
        match kind {
            SourceKind::Upstream | SourceKind::Api => names.push(format!("{source}__{original}")),
            _ => names.push(original.to_owned()),
        }
        names.extend_from_slice(known.given_to(tool));
        let mut met = HashSet::new();
        names.retain(|name| met.insert(name.clone()));
        let own_names = names.iter().filter(|name| !known.is_of_another(name, tool)).cloned();
        let effects = (!tool.only_calls).then_some(tool.effects);
        Subject { own_names: own_names.collect(), names, sources, effects, kind }
    }

    /// A source as a whole: what it offers beside tools, and that it is there.
    pub(crate) fn whole(source: &str, kind: SourceKind, known: &ToolNames) -> Subject {
        let mut sources = vec![source.to_owned(), identifier(source)];
        sources.extend(known.source_identifier(source).map(str::to_owned));
        let names: Vec<String> = sources.iter().map(|source| format!("{source}.")).collect();
        let effects = Some(Effects::READ);
        Subject { own_names: names.clone(), names, sources, effects, kind }
    }
}

/// A rule in force: what it says, and what it has counted so far.
pub(crate) struct Rule {
    /// Where it stands, for messages: `policy.rules[2]`.
    pub(crate) place: String,
    pub(crate) terms: Terms,
    state: Arc<State>,
}

struct State {
    meter: Meter,
    turns: Turns,
    answers: Arc<Kept>,
}

impl Rule {
    pub(super) fn new(place: String, terms: Terms, answers: Arc<Kept>) -> Rule {
        let turns = Turns::new(terms.concurrency.unwrap_or(usize::MAX));
        let state = State { meter: Meter::default(), turns, answers };
        Rule { place, terms, state: Arc::new(state) }
    }

    /// The same rule, elsewhere in the list.
    pub(super) fn standing_at(&self, place: String) -> Rule {
        Rule { place, terms: self.terms.clone(), state: self.state.clone() }
    }

    /// Whether it matches what it is asked about; for whom is another question.
    pub(crate) fn matches(&self, subject: &Subject) -> bool {
        self.terms.miss(subject, None).is_none()
    }

    pub(super) fn meter(&self) -> &Meter {
        &self.state.meter
    }

    pub(super) fn turns(&self) -> &Turns {
        &self.state.turns
    }

    pub(super) fn answers(&self) -> &Kept {
        &self.state.answers
    }

    /// What calls are counted under.
    pub(super) fn key(&self, tool: &Tool, caller: &Caller) -> String {
        match self.terms.per {
            Per::ToolAndCaller => format!("{}\0{}", counted_name(tool), caller.name()),
            Per::Tool => counted_name(tool),
            Per::Caller => caller.name().to_owned(),
            Per::Source => tool.source.name.clone(),
        }
    }
}

/// What was found to hold for a tool.
#[derive(Clone)]
pub(crate) struct Ruling {
    pub(crate) rule: Arc<Rule>,
    /// What a call of the tool may use, as the rule has it.
    pub(crate) scope: Arc<Scope>,
}

impl Ruling {
    pub(crate) fn new(rule: &Arc<Rule>, scope: &Arc<Scope>) -> Ruling {
        let scope = match rule.terms.timeout {
            Some(timeout) => {
                let mut scope = Scope::clone(scope);
                scope.limits.timeout = timeout;
                Arc::new(scope)
            }
            None => scope.clone(),
        };
        Ruling { rule: rule.clone(), scope }
    }
}
