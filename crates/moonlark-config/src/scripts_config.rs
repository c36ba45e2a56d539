//! `[scripts]`: saved scripts, which agents and scripts call by name.

use moonlark_core::tool::ToolExposure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where saved scripts are found. They may do what `[execute]` says. With `scripts:write` in
/// `execute.allow`, agents save scripts of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SavedScriptsConfig {
    /// The folder whose `*.lua` and `*.luau` files are functions of `sdk.scripts`, if they
    /// begin with a header such as `--! name: weekly_report`.
    #[schemars(length(min = 1))]
    pub dir: String,
    /// How agents reach those of the folder: `"code"` from scripts and by
    /// `execute`, `"direct"` as tools of their own, `"both"`, `"auto"` whichever
    /// takes fewer tokens, `"hidden"` not at all.
    pub expose: ToolExposure,
}

impl Default for SavedScriptsConfig {
    fn default() -> Self {
        Self { dir: "scripts".to_owned(), expose: ToolExposure::Code }
    }
}
