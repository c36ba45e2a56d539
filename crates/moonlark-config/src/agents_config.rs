//! `[agents]`: scripts that make prompts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ScriptConfig, TimeoutSeconds};

/// Scripts that make prompts, which MCP clients offer to their users.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentsConfig {
    /// The folder whose `*.lua` and `*.luau` files are prompts.
    #[schemars(length(min = 1))]
    pub dir: String,
    /// Prompt scripts with a configuration of their own, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub script: BTreeMap<String, ScriptAgentConfig>,
}

/// The prompt script `NAME`. Every key that is not listed here is the script's
/// own and reaches `agent.resolve` as `config`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptAgentConfig {
    /// The script file.
    #[schemars(length(min = 1), example = &"agents/triage.lua")]
    pub path: String,
    /// Timeout of a request for the prompt, in seconds; when not set, that of `[limits]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TimeoutSeconds")]
    pub timeout: Option<TimeoutSeconds>,
    /// What the script may reach, as grants such as `net:api.github.com`,
    /// `env:NAME` and `tool:jira.*`.
    #[serde(default)]
    #[schemars(example = ["tool:search"])]
    pub allow: Vec<String>,
    /// All other keys. They are never serialised, since some are secrets.
    #[serde(flatten, skip_serializing)]
    #[schemars(with = "Map<String, Value>")]
    pub config: ScriptConfig,
}

impl Default for AgentsConfig {
    fn default() -> Self {
        Self { dir: "agents".to_owned(), script: BTreeMap::new() }
    }
}
