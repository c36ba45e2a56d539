//! Source selection: which sources a command starts.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use moonlark_core::tool::SourceKind;

use crate::project::Project;
use crate::upstreams::upstream_listing_file;
use moonlark_config::config_file::LoadedConfig;

/// Older listings are read from the server again.
const MAX_LISTING_AGE: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SourceSelection {
    All,
    /// Servers whose tools are known from an earlier time wait until one is called.
    WhenNeeded,
    Only(BTreeSet<String>),
    Nothing,
}

impl SourceSelection {
    /// What a call of this tool may need.
    pub(crate) async fn for_tool(name: &str, project: &Project) -> SourceSelection {
        if let Ok(tool) = project.gateway.catalog().find_tool(name) {
            let kind = tool.source.kind;
            let calls = kind == SourceKind::Builtin || tool.scope.grants.has_kind("tool");
            return if calls { SourceSelection::WhenNeeded } else { SourceSelection::Nothing };
        }
        let config = project.config().await;
        let servers = config.mcp_servers.iter().map(|(name, it)| (name, it.prefix.as_deref()));
        let apis = config.apis.iter().map(|(name, it)| (name, it.prefix.as_deref()));
        let named = servers
            .chain(apis)
            .filter(|(source, prefix)| may_belong_to_source(name, source, *prefix));
        let named: BTreeSet<String> = named.map(|(source, _)| source.clone()).collect();
        if named.is_empty() { SourceSelection::All } else { SourceSelection::Only(named) }
    }

    /// The configuration with only what is to be started.
    pub(crate) fn restrict_config(&self, loaded: &LoadedConfig) -> LoadedConfig {
        let mut loaded = loaded.clone();
        match self {
            SourceSelection::All => {}
            SourceSelection::WhenNeeded => {
                let files = loaded
                    .config
                    .mcp_servers
                    .keys()
                    .map(|name| upstream_listing_file(&loaded, name));
                let files: Vec<PathBuf> = files.collect();
                for (server, file) in loaded.config.mcp_servers.values_mut().zip(files) {
                    let file = file.metadata();
                    let age =
                        file.and_then(|it| it.modified()).ok().and_then(|it| it.elapsed().ok());
                    server.lazy |= age.is_some_and(|age| age < MAX_LISTING_AGE);
                }
            }
            SourceSelection::Only(names) => {
                loaded.config.mcp_servers.retain(|name, _| names.contains(name));
                loaded.config.apis.retain(|name, _| names.contains(name));
            }
            SourceSelection::Nothing => {
                loaded.config.mcp_servers.clear();
                loaded.config.apis.clear();
            }
        }
        loaded
    }
}

/// Whether the name may be that of a tool of this source: `git.log`, `git__log`,
/// or with the prefix that its tools have.
pub(crate) fn may_belong_to_source(tool: &str, source: &str, prefix: Option<&str>) -> bool {
    let after = tool.strip_prefix(source).and_then(|rest| rest.chars().next());
    let by_name = after.is_some_and(|letter| !letter.is_alphanumeric());
    by_name || prefix.is_some_and(|prefix| !prefix.is_empty() && tool.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_of_the_source_that_its_name_begins_with() {
        for (tool, source, prefix, expected) in [
            ("time.now", "time", None, true),
            ("time__now", "time", None, true),
            ("timer.now", "time", None, false),
            ("time", "time", None, false),
            ("t_now", "time", Some("t_"), true),
            ("now", "time", Some(""), false),
        ] {
            assert_eq!(may_belong_to_source(tool, source, prefix), expected, "{tool}");
        }
    }
}
