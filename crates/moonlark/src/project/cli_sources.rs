//! What a command adds to a project, and makes of its folder.

use std::collections::BTreeMap;

use moonlark_config::McpServerConfig;
use moonlark_config::config_file::ValueRequirement;

/// Sources from the command line, which come before those of the file, and what the
/// command makes of the project.
#[derive(Debug, Default, Clone)]
pub struct CliSources {
    pub servers: BTreeMap<String, McpServerConfig>,
    /// Documents of APIs, by the names they get. Files are seen from the working
    /// directory.
    pub specs: BTreeMap<String, String>,
    /// The environment variables that hold their secrets.
    pub logins: BTreeMap<String, String>,
    /// Whether the values of variables have to be there.
    pub values_needed: ValueRequirement,
    /// What becomes of what there is to remember where there is no project.
    pub state_kept: StateRetention,
}

/// Where a folder that is no project keeps what Moonlark remembers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum StateRetention {
    /// Nowhere: a command that is done in a moment leaves nothing behind.
    #[default]
    UntilTheEnd,
    /// In the folder, which is the project of a server from then on.
    InFolder,
}
