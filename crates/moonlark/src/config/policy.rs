//! `[policy]`: which tools exist for whom, and how they may be called.

use moonlark_core::policy::{Action, Effect, Per, Rate, Terms};
use moonlark_core::tool::SourceKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;

/// What the operator allows.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// Rules, in order: the first that matches a tool and its caller decides
    /// everything. Where none does, the call is allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleConfig>,
}

/// A rule. `tools`, `effects`, `kinds`, `sources` and `callers` say what it
/// matches: all that are set must hold, and of each list any one. The other keys
/// say what becomes of a call that it matches.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct RuleConfig {
    /// Names of tools, in any spelling that is in use for them; `*` stands for
    /// anything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["jira.*", "*.delete_*"])]
    pub tools: Vec<String>,
    /// What the tool does: `"read-only"`, `"writes"` (anything else),
    /// `"destructive"`, `"idempotent"`, `"open-world"`. A tool that does not say
    /// counts as destructive. `execute` does nothing of these as long as its
    /// scripts can only call tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["destructive"])]
    pub effects: Vec<EffectWord>,
    /// Where the tool comes from: `"upstream"`, `"api"`, `"script"`,
    /// `"extension"` or `"builtin"`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["upstream", "api"])]
    pub kinds: Vec<KindWord>,
    /// Names of upstream servers, APIs, extensions, or files of scripts; `*`
    /// stands for anything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["jira"])]
    pub sources: Vec<String>,
    /// Names of callers; `*` stands for anything. Who comes over the network
    /// without showing a name is `anonymous`, who uses the command line or stdio
    /// is `local`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["ci", "anonymous"])]
    pub callers: Vec<String>,
    /// `"allow"`; `"deny"`: the tool does not exist; `"approve"`: a person
    /// decides on every call.
    pub action: ActionWord,
    /// How often it may be called, such as `10/s`, `100/min`, `1000/h` or
    /// `5/day`. More calls are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"10/min")]
    pub rate: Option<String>,
    /// Calls in progress at once. More calls wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 10_000), example = 2)]
    pub concurrency: Option<u32>,
    /// What `rate` and `concurrency` count together: the calls of one
    /// `"caller"`, of one `"tool"`, or of one `"source"`; when not set, those of
    /// one tool by one caller. By `"tool"` and `"source"`, callers also share
    /// what `cache` keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PerWord", example = &"caller")]
    pub per: Option<PerWord>,
    /// The time of one call, in place of the tool's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Span", example = &"5s")]
    pub timeout: Option<Span>,
    /// How long an answer is given again to the same arguments, without calling
    /// the tool. Only for tools that are known to only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Span", example = &"60s")]
    pub cache: Option<Span>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum EffectWord {
    ReadOnly,
    Writes,
    Destructive,
    Idempotent,
    OpenWorld,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum KindWord {
    Upstream,
    Api,
    Script,
    Extension,
    Builtin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum ActionWord {
    #[default]
    Allow,
    Deny,
    Approve,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum PerWord {
    Caller,
    Tool,
    Source,
}

/// Beyond that a time is no protection.
const LONGEST: u64 = 86_400;

impl RuleConfig {
    /// What no schema says. The key, and what is wrong.
    pub(crate) fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if let Some(rate) = &self.rate {
            faults.extend(rate.parse::<Rate>().err().map(|message| ("rate", message)));
        }
        if self.timeout.is_some_and(|it| it.duration().as_secs() > LONGEST) {
            faults.push(("timeout", "must be at most a day".to_owned()));
        }
        let limits = [
            ("rate", self.rate.is_some()),
            ("concurrency", self.concurrency.is_some()),
            ("timeout", self.timeout.is_some()),
            ("cache", self.cache.is_some()),
        ];
        let denies = self.action == ActionWord::Deny;
        for (key, _) in limits.into_iter().filter(|(_, is_set)| denies && *is_set) {
            faults.push((key, "says how to call what action = \"deny\" takes away".to_owned()));
        }
        if self.per.is_some()
            && self.rate.is_none()
            && self.concurrency.is_none()
            && self.cache.is_none()
        {
            faults.push(("per", "counts nothing: set rate or concurrency as well".to_owned()));
        }
        let only_writes =
            |word: &EffectWord| matches!(word, EffectWord::Writes | EffectWord::Destructive);
        if self.cache.is_some() && !self.effects.is_empty() && self.effects.iter().all(only_writes)
        {
            let message = "keeps answers of tools that only read, and the rule matches others";
            faults.push(("cache", message.to_owned()));
        }
        faults
    }

    /// The rule as the gateway takes it. What is not a rate has been refused.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            tools: self.tools.clone(),
            except: Vec::new(),
            effects: self.effects.iter().map(|word| word.effect()).collect(),
            kinds: self.kinds.iter().map(|word| word.kind()).collect(),
            sources: self.sources.clone(),
            callers: self.callers.clone(),
            action: match self.action {
                ActionWord::Allow => Action::Allow,
                ActionWord::Deny => Action::Deny,
                ActionWord::Approve => Action::Approve,
            },
            rate: self.rate.as_ref().and_then(|rate| rate.parse().ok()),
            concurrency: self.concurrency.map(|most| most as usize),
            per: match self.per {
                None => Per::ToolAndCaller,
                Some(PerWord::Caller) => Per::Caller,
                Some(PerWord::Tool) => Per::Tool,
                Some(PerWord::Source) => Per::Source,
            },
            timeout: self.timeout.map(Span::duration),
            cache: self.cache.map(Span::duration),
        }
    }
}

impl EffectWord {
    fn effect(self) -> Effect {
        match self {
            EffectWord::ReadOnly => Effect::ReadOnly,
            EffectWord::Writes => Effect::Writes,
            EffectWord::Destructive => Effect::Destructive,
            EffectWord::Idempotent => Effect::Idempotent,
            EffectWord::OpenWorld => Effect::OpenWorld,
        }
    }
}

impl KindWord {
    fn kind(self) -> SourceKind {
        match self {
            KindWord::Upstream => SourceKind::Upstream,
            KindWord::Api => SourceKind::Api,
            KindWord::Script => SourceKind::Script,
            KindWord::Extension => SourceKind::Extension,
            KindWord::Builtin => SourceKind::Builtin,
        }
    }
}
