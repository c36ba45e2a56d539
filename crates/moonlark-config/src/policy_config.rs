//! `[policy]`: rules about tools: access, rates, concurrency, timeouts, caching.

use moonlark_core::tool::{EffectKind, SourceKind};
use moonlark_gateway::policy::{CallRate, CountingScope, RuleAction, RuleTerms};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HumanDuration;

/// Rules that allow, deny, limit or hold calls.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// Rules, in order: the first that matches a tool and its caller decides
    /// everything. Where none does, the call is allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<PolicyRuleConfig>,
}

/// A rule. `tools`, `effects`, `kinds`, `sources` and `callers` say what it
/// matches: all that are set must match, with any one entry of each list. The other
/// keys apply to the calls that it matches.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct PolicyRuleConfig {
    /// Names of tools, in any spelling that is in use for them; `*` stands for
    /// anything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["jira.*", "*.delete_*"])]
    pub tools: Vec<String>,
    /// What the tool does: `"read-only"`, `"writes"` (anything else),
    /// `"destructive"`, `"idempotent"`, `"open-world"`. A tool without
    /// annotations is treated as destructive. `execute` has none of these effects as
    /// long as its scripts can only call tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["destructive"])]
    pub effects: Vec<RuleEffectConfig>,
    /// Where the tool comes from: `"upstream"`, `"api"`, `"script"`,
    /// `"extension"` or `"builtin"`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["upstream", "api"])]
    pub kinds: Vec<RuleSourceKindConfig>,
    /// Names of upstream servers, APIs, extensions, or files of scripts; `*`
    /// stands for anything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["jira"])]
    pub sources: Vec<String>,
    /// Names of callers; `*` stands for anything. HTTP callers without
    /// credentials are `anonymous`, the user of the command line or of stdio is
    /// `local`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["ci", "anonymous"])]
    pub callers: Vec<String>,
    /// `"allow"`; `"deny"`: the tool does not exist; `"approve"`: a person
    /// decides on every call.
    pub action: RuleActionConfig,
    /// How often it may be called, such as `10/s`, `100/min`, `1000/h` or
    /// `5/day`. Excess calls are rejected (429).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"10/min")]
    pub rate: Option<String>,
    /// Calls in progress at once. More calls are queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 10_000), example = 2)]
    pub concurrency: Option<u32>,
    /// What `rate` and `concurrency` are counted for: the calls of one
    /// `"caller"`, of one `"tool"`, or of one `"source"`; when not set, those of
    /// one tool by one caller. With `"tool"` and `"source"`, callers also share
    /// cached answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RuleScopeConfig", example = &"caller")]
    pub per: Option<RuleScopeConfig>,
    /// The timeout of one call; overrides the tool's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HumanDuration", example = &"5s")]
    pub timeout: Option<HumanDuration>,
    /// Response cache: how long an answer is reused for the same arguments. Only for
    /// read-only tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HumanDuration", example = &"60s")]
    pub cache: Option<HumanDuration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum RuleEffectConfig {
    ReadOnly,
    Writes,
    Destructive,
    Idempotent,
    OpenWorld,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum RuleSourceKindConfig {
    Upstream,
    Api,
    Script,
    Extension,
    Saved,
    Builtin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum RuleActionConfig {
    #[default]
    Allow,
    Deny,
    Approve,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum RuleScopeConfig {
    Caller,
    Tool,
    Source,
}

/// Beyond that a time is no protection.
const MAX_RULE_TIMEOUT_SECONDS: u64 = 86_400;

impl PolicyRuleConfig {
    /// What no schema says. The key, and what is wrong.
    pub fn find_faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if let Some(rate) = &self.rate {
            faults.extend(rate.parse::<CallRate>().err().map(|message| ("rate", message)));
        }
        if self.timeout.is_some_and(|it| it.to_duration().as_secs() > MAX_RULE_TIMEOUT_SECONDS) {
            faults.push(("timeout", "must be at most a day".to_owned()));
        }
        let limits = [
            ("rate", self.rate.is_some()),
            ("concurrency", self.concurrency.is_some()),
            ("timeout", self.timeout.is_some()),
            ("cache", self.cache.is_some()),
        ];
        let denies = self.action == RuleActionConfig::Deny;
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
        let only_writes = |word: &RuleEffectConfig| {
            matches!(word, RuleEffectConfig::Writes | RuleEffectConfig::Destructive)
        };
        if self.cache.is_some() && !self.effects.is_empty() && self.effects.iter().all(only_writes)
        {
            let message = "keeps answers of tools that only read, and the rule matches others";
            faults.push(("cache", message.to_owned()));
        }
        faults
    }

    /// The rule as the gateway takes it. What is not a rate has been refused.
    pub fn to_policy_terms(&self) -> RuleTerms {
        RuleTerms {
            tools: self.tools.clone(),
            except: Vec::new(),
            effects: self.effects.iter().map(|word| word.to_effect()).collect(),
            kinds: self.kinds.iter().map(|word| word.to_source_kind()).collect(),
            sources: self.sources.clone(),
            callers: self.callers.clone(),
            action: match self.action {
                RuleActionConfig::Allow => RuleAction::Allow,
                RuleActionConfig::Deny => RuleAction::Deny,
                RuleActionConfig::Approve => RuleAction::Approve,
            },
            rate: self.rate.as_ref().and_then(|rate| rate.parse().ok()),
            concurrency: self.concurrency.map(|most| most as usize),
            per: match self.per {
                None => CountingScope::ToolAndCaller,
                Some(RuleScopeConfig::Caller) => CountingScope::Caller,
                Some(RuleScopeConfig::Tool) => CountingScope::Tool,
                Some(RuleScopeConfig::Source) => CountingScope::Source,
            },
            timeout: self.timeout.map(HumanDuration::to_duration),
            cache: self.cache.map(HumanDuration::to_duration),
        }
    }
}

impl RuleEffectConfig {
    fn to_effect(self) -> EffectKind {
        match self {
            RuleEffectConfig::ReadOnly => EffectKind::ReadOnly,
            RuleEffectConfig::Writes => EffectKind::Writes,
            RuleEffectConfig::Destructive => EffectKind::Destructive,
            RuleEffectConfig::Idempotent => EffectKind::Idempotent,
            RuleEffectConfig::OpenWorld => EffectKind::OpenWorld,
        }
    }
}

impl RuleSourceKindConfig {
    fn to_source_kind(self) -> SourceKind {
        match self {
            RuleSourceKindConfig::Upstream => SourceKind::Upstream,
            RuleSourceKindConfig::Api => SourceKind::Api,
            RuleSourceKindConfig::Script => SourceKind::Script,
            RuleSourceKindConfig::Extension => SourceKind::Extension,
            RuleSourceKindConfig::Saved => SourceKind::Saved,
            RuleSourceKindConfig::Builtin => SourceKind::Builtin,
        }
    }
}
