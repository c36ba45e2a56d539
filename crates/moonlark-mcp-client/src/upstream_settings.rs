//! The operator's settings of one upstream server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use moonlark_core::tool::{CallScope, ToolExposure};
use tokio::sync::Semaphore;

use crate::name_mapping::NameMapping;
use crate::upstream_target::UpstreamTarget;
use moonlark_core::tool_config::{SourceKey, ToolConfig, ToolPattern};
use moonlark_http::RequestAuthorizer;

#[derive(Clone)]
pub struct UpstreamSettings {
    pub target: UpstreamTarget,
    /// Who we are to it, where it wants to know.
    pub auth: Option<Arc<dyn RequestAuthorizer>>,
    /// What its calls may use; the secrets are those of its configuration.
    pub scope: Arc<CallScope>,
    /// How agents reach its tools.
    pub expose: ToolExposure,
    /// What stands before its tools' names; `NAME__` if nothing is said.
    pub prefix: Option<String>,
    /// Start it when it is first needed.
    pub lazy: bool,
    /// Stop it when it was not needed for this long.
    pub idle_stop: Option<Duration>,
    /// Hold back tools that changed since they were approved.
    pub pin: bool,
    /// If there are any, only these of its tools.
    pub include: Vec<ToolPattern>,
    pub exclude: Vec<ToolPattern>,
    /// What the operator says about single tools, by the server's own names.
    pub tools: BTreeMap<String, ToolConfig>,
    /// Shared by all servers: how many may be starting at once.
    pub start_permits: Arc<Semaphore>,
    /// Folders that it is told about, as URIs.
    pub roots: Vec<String>,
    /// Where what is known about it is kept.
    pub state: PathBuf,
}

impl UpstreamSettings {
    pub fn name(&self) -> &str {
        &self.target.name
    }

    /// What the names of its tools begin with where agents see them.
    pub(crate) fn tool_prefix(&self) -> String {
        // Not every client takes dots.
        self.prefix.clone().unwrap_or_else(|| format!("{}__", self.target.name.replace('.', "_")))
    }

    /// Where it stands in the configuration.
    pub(crate) fn source_key(&self) -> SourceKey<'_> {
        SourceKey { table: "mcp_servers", name: self.name() }
    }

    pub(crate) fn name_mapping(&self) -> NameMapping {
        if self.expose == ToolExposure::Direct && self.prefix.as_deref() == Some("") {
            NameMapping::without_prefixes(self.name())
        } else {
            NameMapping::with_prefixes(self.name())
        }
    }
}
