//! `[execute]`: what agents' scripts may do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TimeoutSeconds;

/// What the scripts that agents run with `execute` may do and use. Memory, calls
/// and the rest are those of `[limits]`, or of `[limits.tools.execute]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExecuteConfig {
    /// What they may reach, as grants: tools such as `tool:jira.*`, and beyond
    /// tools `net:api.github.com`, `env:NAME` or `exec:git`, which bring `http`,
    /// `env` and `exec` with them. `scripts:write` lets agents save scripts of their
    /// own, `scripts:write-all` see and replace those of all callers as well.
    #[schemars(example = ["tool:*", "net:api.github.com"])]
    pub allow: Vec<String>,
    /// The folder that `fs` and `sqlite` work in; without one, scripts have
    /// neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"workspace")]
    pub dir: Option<String>,
    /// Type check of agents' scripts: `"error"` rejects a script with findings before it
    /// runs, `"warn"` logs them, `"off"` skips the check.
    pub check: ExecuteCheckConfig,
    /// Default timeout of an agent's script in seconds; when not set, that of
    /// `[limits]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TimeoutSeconds")]
    pub timeout: Option<TimeoutSeconds>,
    /// Maximum timeout that a script may request, in seconds; when not set, `timeout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TimeoutSeconds")]
    pub max_timeout: Option<TimeoutSeconds>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum ExecuteCheckConfig {
    // Refuse the script.
    #[default]
    Error,
    // Run it, and log what was found.
    Warn,
    // Do not look.
    Off,
}

impl Default for ExecuteConfig {
    fn default() -> Self {
        Self {
            allow: vec!["tool:*".to_owned()],
            dir: None,
            check: ExecuteCheckConfig::default(),
            timeout: None,
            max_timeout: None,
        }
    }
}
