//! `moonlark.toml` as structs: every key, its meaning, its default.
//!
//! The doc comments here are the documentation: [`config_schema`] turns them into the
//! JSON Schema that editors and the checker use, [`config_reference`] into the page in
//! the docs. Where a file is found, how it is checked and how `${VAR}` expands
//! is not known here but in [`config_file`].
//!
//! This crate describes what the leaves take, and holds it to their own grammar
//! (patterns, rates, logins). So it knows some of them, and only the binary knows it.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)
)]

mod agents_config;
mod api_config;
mod byte_size;
pub mod config_file;
mod config_reference;
mod config_schema;
mod connectors_config;
mod execute_config;
mod human_duration;
mod journal_config;
mod knowledge_config;
mod mcp_server_config;
mod network_config;
mod policy_config;
mod script_config;
mod server_auth_config;
mod source_tool_config;
mod store_config;
mod telemetry_config;
mod timeout_seconds;

use std::collections::BTreeMap;
use std::time::Duration;

use moonlark_core::limits::CallLimits;
use moonlark_core::tool::ToolExposure;
use moonlark_gateway::admission::AdmissionLimits;
use moonlark_gateway::server_identity::{ListedSchemas, ServerIdentity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use agents_config::{AgentsConfig, ScriptAgentConfig};
pub use api_config::{ApiAuthConfig, ApiClientCredentials, ApiConfig, ApiSchemeAuth};
pub use byte_size::ByteSize;
pub use config_reference::render_config_reference;
pub use config_schema::config_json_schema;
pub use connectors_config::default_scan_timeout;
pub use connectors_config::{
    ConnectorsConfig, FilesystemSourceConfig, GitSourceConfig, ScriptConnectorConfig,
};
pub use execute_config::{ExecuteCheckConfig, ExecuteConfig};
pub use human_duration::HumanDuration;
pub use journal_config::{ApprovalsConfig, ApproverConfig, JournalConfig, JournalDurability};
pub use knowledge_config::{
    EmbedderConfig, KnowledgeConfig, RemoteEmbedderConfig, RemoteEmbedderKind, SyncTrigger,
};
pub use mcp_server_config::{McpHttpTransport, McpServerConfig, RedactedString};
pub use network_config::NetworkConfig;
pub use policy_config::{
    PolicyConfig, PolicyRuleConfig, RuleActionConfig, RuleEffectConfig, RuleScopeConfig,
    RuleSourceKindConfig,
};
pub use script_config::{ConfigSecret, ScriptConfig};
pub use server_auth_config::ServerAuthConfig;
pub use source_tool_config::{SourceToolConfig, SourceToolEffects, to_tool_values, tool_configs};
pub(crate) use source_tool_config::{find_tool_faults, fixed_arguments, web_address_fault};
pub use store_config::StoreConfig;
pub use telemetry_config::{LogConfig, LogFormat, TelemetryConfig};
pub use timeout_seconds::TimeoutSeconds;

/// Every key is optional; without a file, all defaults hold.
///
/// `${VAR}` in any string is replaced by that environment variable, or else by the line
/// `VAR=…` of `.moonlark/secrets.env`; `${file:PATH}` by what is in a file. A missing
/// variable or file disables the script, server, API or connector that uses it, and is an
/// error elsewhere. `${VAR:-default}` has a default. `$${` is a literal `${`. Paths are
/// relative to the directory of the file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "moonlark.toml")]
pub struct ProjectConfig {
    pub server: ServerConfig,
    pub limits: LimitsConfig,
    pub policy: PolicyConfig,
    pub network: NetworkConfig,
    pub approvals: ApprovalsConfig,
    pub journal: JournalConfig,
    pub telemetry: TelemetryConfig,
    pub log: LogConfig,
    pub tools: ToolsConfig,
    pub extensions: ExtensionsConfig,
    pub agents: AgentsConfig,
    pub execute: ExecuteConfig,
    pub store: StoreConfig,
    pub knowledge: KnowledgeConfig,
    pub connectors: ConnectorsConfig,
    /// Upstream MCP servers, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp_servers: BTreeMap<String, McpServerConfig>,
    /// APIs by their OpenAPI documents, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub apis: BTreeMap<String, ApiConfig>,
    /// Fixed arguments for all APIs that have such a parameter: sent with every call,
    /// hidden from agents and scripts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "Map<String, Value>")]
    pub frozen_params: BTreeMap<String, Value>,
    /// What of those must not be echoed. Filled when a file is loaded.
    #[serde(skip)]
    pub secrets: Vec<ConfigSecret>,
}

/// The HTTP server: where it listens and which requests it accepts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// The address to listen on.
    #[schemars(length(min = 1))]
    pub host: String,
    /// The port to listen on; 0 takes any free one.
    pub port: u16,
    /// Further names that the `Host` header of a request may have, beside
    /// `localhost` and loopback addresses.
    #[schemars(example = ["moonlark.example.com"])]
    pub allowed_hosts: Vec<String>,
    /// Browser origins whose pages may call this server.
    #[schemars(example = ["https://app.example.com"])]
    pub allowed_origins: Vec<String>,
    /// What this server calls itself to MCP clients.
    #[schemars(length(min = 1))]
    pub name: String,
    /// What MCP clients tell their models about this server, before what Moonlark says
    /// about its tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"Tools of the support team. Ask before you answer a customer.")]
    pub instructions: Option<String>,
    /// Seconds that the first lists (of tools, functions, resources and prompts) wait
    /// for sources that are still connecting when the server starts; 0 to answer with
    /// what is there. Calls wait for the source of their tool in any case.
    #[serde(serialize_with = "timeout_seconds::serialize_seconds")]
    #[schemars(range(min = 0, max = 60))]
    pub settle: f64,
    /// How the schemas of tools are listed over MCP: `"portable"` as every model and
    /// every framework takes them, or `"exact"` as they were written. Arguments are
    /// checked by the exact ones in any case.
    pub schemas: ListedSchemas,
    pub auth: ServerAuthConfig,
}

/// What one call, and everything it causes, may use.
///
/// A size is a number of bytes or a string such as `"64MB"`, in units of 1024.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Timeout of one call, in seconds.
    pub timeout: TimeoutSeconds,
    /// Load timeout of a script, an extension or a connector, in seconds. While the
    /// server starts, requests wait at most twice as long for all of them.
    pub load: TimeoutSeconds,
    /// Memory of one script.
    pub memory: ByteSize,
    /// Memory of all Luau scripts in the whole server, also of those that wait. One
    /// caller may have three quarters of it. When not set: half of what the machine or
    /// its container has, and at least four times `memory`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ByteSize", example = &"1GB")]
    pub memory_total: Option<ByteSize>,
    /// Calls and loop rounds of one Starlark script.
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
    pub steps: u64,
    /// Tool calls that one call may cause.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub calls: u32,
    /// Tool calls in flight at once within one call.
    #[schemars(range(min = 1, max = 10_000))]
    pub parallel: u32,
    /// Log output of one call.
    pub logs: ByteSize,
    /// One value that goes into or comes out of a tool.
    pub value: ByteSize,
    /// The answer of an agent's script; a longer one is kept as an artifact, and
    /// its beginning shown.
    pub result: ByteSize,
    /// All artifacts together; the oldest make room for new ones.
    pub artifacts: ByteSize,
    /// The body of one HTTP response that a script reads.
    pub http_body: ByteSize,
    /// The body of one HTTP request that the server takes.
    pub request_body: ByteSize,
    /// Calls in progress at once in the whole server.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub runs: u32,
    /// Max. calls waiting for a free slot. More calls are rejected (429).
    #[schemars(range(min = 0, max = 1_000_000))]
    pub queued: u32,
    /// How long a call waits for a free slot before it is rejected.
    pub queue_time: HumanDuration,
    /// Upstream servers that are started or connected to at once. More wait for
    /// their turn.
    #[schemars(range(min = 1, max = 1_000))]
    pub starting: u32,
    /// Limits of single tools, by tool name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, ToolLimitsConfig>,
}

/// Limits of the tool `NAME`; a key that is not set is taken from `[limits]`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolLimitsConfig {
    /// Timeout of one call, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TimeoutSeconds")]
    pub timeout: Option<TimeoutSeconds>,
    /// Memory of one script.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ByteSize")]
    pub memory: Option<ByteSize>,
    /// Calls and loop rounds of one Starlark script.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 1, max = 1_000_000_000_000_u64), example = 1_000_000)]
    pub steps: Option<u64>,
    /// Tool calls that one call may cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 0, max = 1_000_000), example = 100)]
    pub calls: Option<u32>,
    /// Tool calls in flight at once within one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 10_000), example = 16)]
    pub parallel: Option<u32>,
    /// Log output of one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ByteSize")]
    pub logs: Option<ByteSize>,
}

/// Where tool scripts are found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolsConfig {
    /// The folder whose `*.lua` and `*.luau` files are tools.
    #[schemars(length(min = 1))]
    pub dir: String,
    /// Reload tool scripts, connectors and prompts when their files change.
    pub watch: bool,
    /// Script tools with a configuration of their own, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub script: BTreeMap<String, ScriptToolConfig>,
}

/// The script tool `NAME`. Every key that is not listed here is the script's
/// own and reaches it as `context.config`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptToolConfig {
    /// The script file.
    #[schemars(length(min = 1), example = &"tools/create-ticket.luau")]
    pub path: String,
    /// Timeout of one call, in seconds; when not set, that of `[limits]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TimeoutSeconds")]
    pub timeout: Option<TimeoutSeconds>,
    /// What the script may reach, as grants such as `net:api.github.com`,
    /// `env:NAME`, `fs:write` and `tool:jira.*`.
    #[serde(default)]
    #[schemars(example = ["net:api.github.com"])]
    pub allow: Vec<String>,
    /// How agents reach its tools: `"direct"` as tools of their own, `"code"`
    /// from scripts, `"both"`, `"auto"` whichever takes fewer tokens, `"hidden"`
    /// not at all.
    #[serde(default)]
    pub expose: ToolExposure,
    /// Hold every call until a person approves it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approve: bool,
    /// How often each of its tools may be called, such as `10/min`. More calls are
    /// rejected. A matching rule of `[policy]` overrides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"10/min")]
    pub rate: Option<String>,
    /// Calls of each of its tools in progress at once. More calls wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 10_000), example = 2)]
    pub concurrency: Option<u32>,
    /// All other keys. They are never serialised, since some are secrets.
    #[serde(flatten, skip_serializing)]
    #[schemars(with = "Map<String, Value>")]
    pub config: ScriptConfig,
}

/// Where Starlark extensions are found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExtensionsConfig {
    /// The folder whose `*.star` files, at any depth, are extensions. They may
    /// `load()` each other. Files whose names begin with `_` are only loaded.
    #[schemars(length(min = 1))]
    pub dir: String,
    /// Reload an extension when one of its files changes.
    pub watch: bool,
    /// Extensions with a configuration of their own, by file name without
    /// `.star`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub script: BTreeMap<String, ScriptExtensionConfig>,
}

/// The extension `NAME`. Every key that is not listed here is the extension's
/// own and reaches its handlers as `context.config`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptExtensionConfig {
    /// The file inside the extensions folder; when not set, `NAME.star`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"github/issues.star")]
    pub path: Option<String>,
    /// Timeout of one call, in seconds; when not set, that of `[limits]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TimeoutSeconds")]
    pub timeout: Option<TimeoutSeconds>,
    /// What the extension may reach, as grants such as `exec:git`,
    /// `net:api.github.com`, `env:NAME`, `sql:write` and `tool:jira.*`.
    #[serde(default)]
    #[schemars(example = ["exec:git"])]
    pub allow: Vec<String>,
    /// How agents reach its tools: `"direct"` as tools of their own, `"code"`
    /// from scripts, `"both"`, `"auto"` whichever takes fewer tokens, `"hidden"`
    /// not at all.
    #[serde(default)]
    pub expose: ToolExposure,
    /// Hold every call until a person approves it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approve: bool,
    /// How often each of its tools may be called, such as `10/min`. More calls are
    /// rejected. A matching rule of `[policy]` overrides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"10/min")]
    pub rate: Option<String>,
    /// Calls of each of its tools in progress at once. More calls wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 10_000), example = 2)]
    pub concurrency: Option<u32>,
    /// All other keys. They are never serialised, since some are secrets.
    #[serde(flatten, skip_serializing)]
    #[schemars(with = "Map<String, Value>")]
    pub config: ScriptConfig,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 7331,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            name: "moonlark".to_owned(),
            instructions: None,
            schemas: ListedSchemas::default(),
            settle: 4.0,
            auth: ServerAuthConfig::default(),
        }
    }
}

impl ServerConfig {
    /// How long first lists wait for sources.
    pub fn settle_time(&self) -> Duration {
        Duration::try_from_secs_f64(self.settle).unwrap_or_default()
    }

    /// How it introduces itself to MCP clients.
    pub fn server_identity(&self) -> ServerIdentity {
        ServerIdentity {
            name: self.name.clone(),
            instructions: self.instructions.clone(),
            schemas: self.schemas,
        }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            timeout: TimeoutSeconds::new(30),
            load: TimeoutSeconds::new(5),
            memory: ByteSize::from_mib(64),
            memory_total: None,
            steps: 1_000_000_000,
            calls: 100,
            parallel: 16,
            logs: ByteSize::from_mib(1),
            value: ByteSize::from_mib(32),
            result: ByteSize::from_kib(64),
            artifacts: ByteSize::from_mib(256),
            http_body: ByteSize::from_mib(10),
            request_body: ByteSize::from_mib(4),
            runs: 4000,
            queued: 4000,
            queue_time: HumanDuration::from_seconds(10),
            starting: 8,
            tools: BTreeMap::new(),
        }
    }
}

impl LimitsConfig {
    /// Those of the whole server.
    pub fn admission_limits(&self) -> AdmissionLimits {
        AdmissionLimits {
            runs: self.runs as usize,
            queued: self.queued as usize,
            queue_time: self.queue_time.to_duration(),
        }
    }

    /// The general limits, overridden for one tool. A `timeout` of its own is
    /// the nearest to it and wins.
    pub fn for_tool(&self, tool: &str, timeout: Option<TimeoutSeconds>) -> CallLimits {
        let own = self.tools.get(tool);
        let bytes = |size: ByteSize| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
        CallLimits {
            timeout: timeout
                .or(own.and_then(|own| own.timeout))
                .unwrap_or(self.timeout)
                .to_duration(),
            memory: bytes(own.and_then(|own| own.memory).unwrap_or(self.memory)),
            steps: own.and_then(|own| own.steps).unwrap_or(self.steps),
            calls: own.and_then(|own| own.calls).unwrap_or(self.calls),
            parallel: own.and_then(|own| own.parallel).unwrap_or(self.parallel),
            logs: own.and_then(|own| own.logs).unwrap_or(self.logs).bytes(),
            value: bytes(self.value),
            http_body: bytes(self.http_body),
        }
    }
}

impl Default for ExtensionsConfig {
    fn default() -> Self {
        Self { dir: "extensions".to_owned(), watch: true, script: BTreeMap::new() }
    }
}

impl Default for ToolsConfig {
    fn default() -> Self {
        Self { dir: "tools".to_owned(), watch: true, script: BTreeMap::new() }
    }
}
