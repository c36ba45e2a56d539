//! `[mcp_servers.NAME]`: a server that Moonlark is a client of.

use std::collections::BTreeMap;
use std::fmt;

use moonlark_core::Problem;
use moonlark_core::tool::ToolExposure;
use moonlark_core::tool_config::ToolPattern;
use moonlark_oauth::UpstreamAuthConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::source_tool_config::{source_name_fault, web_address_fault};
use super::{ConfigSecret, SourceToolConfig, TimeoutSeconds};

/// The upstream MCP server `NAME`: either a command to start, or the address of
/// a server that runs. Its tools are called `NAME.TOOL`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpServerConfig {
    /// Command that starts a stdio server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"npx")]
    pub command: Option<String>,
    /// The arguments of the command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["-y", "@modelcontextprotocol/server-memory"])]
    pub args: Vec<String>,
    /// Environment variables of the command, beside the few that every program
    /// needs, such as `PATH` and `HOME`. Nothing else is passed on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, RedactedString>,
    /// A file with further variables of the command, `NAME=value` line by line; `env`
    /// overrides them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &".env")]
    pub env_file: Option<String>,
    /// The folder the command runs in; when not set, that of this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"servers/docs")]
    pub cwd: Option<String>,
    /// The address of a server that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"https://mcp.example.com/mcp")]
    pub url: Option<String>,
    /// The transport of the server at `url`: `"streamable-http"`, or `"sse"` for
    /// an old one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "McpHttpTransport")]
    pub transport: Option<McpHttpTransport>,
    /// HTTP headers that go with every request to `url`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, RedactedString>,
    /// How to log in to the server at `url`.
    #[serde(skip_serializing_if = "is_auth_unset")]
    pub auth: UpstreamAuthConfig,
    /// How agents reach its tools: `"code"` from scripts, by `execute`;
    /// `"direct"` as tools of their own; `"both"`; `"auto"` directly for as long
    /// as listing all tools is shorter than explaining scripts, and from scripts
    /// otherwise; `"hidden"` not at all. Script tools and the command line can
    /// call them in any case.
    pub expose: ToolExposure,
    /// What the names of its tools begin with where agents see them; when not
    /// set, `NAME__`. With `""` the server is transparent: its tools, prompts
    /// and URIs keep their own names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"docs_")]
    pub prefix: Option<String>,
    /// Timeout of one call, in seconds; when not set, that of `[limits]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TimeoutSeconds")]
    pub timeout: Option<TimeoutSeconds>,
    /// Connection timeout, in seconds.
    pub connect_timeout: TimeoutSeconds,
    /// Start it when it is first needed. Until then its tools are listed as
    /// of the last time it ran.
    pub lazy: bool,
    /// Seconds after which an unused server is stopped, until it is
    /// needed again; when not set, it stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TimeoutSeconds")]
    pub idle_stop: Option<TimeoutSeconds>,
    /// Hold back tools whose description or schema changed since they were
    /// approved with `moonlark pin NAME --approve`. What it offers the first
    /// time is approved.
    pub pin: bool,
    /// Only these tools: by the server's own names, with `*` for anything
    /// (`create_*`), or `tag:issues`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["create_*", "tag:issues"])]
    pub include: Vec<String>,
    /// Not these tools, written the same way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["delete_*"])]
    pub exclude: Vec<String>,
    /// What holds for single tools, by the server's own names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, SourceToolConfig>,
    /// The roots (folders) that the server gets if it asks for them outside of a call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["."])]
    pub roots: Vec<String>,
    /// What must not be echoed. Filled when a file is loaded.
    #[serde(skip)]
    pub secrets: Vec<ConfigSecret>,
    /// Variables and files that it needs and that are not there.
    #[serde(skip)]
    pub outage: Vec<Problem>,
}

impl Default for McpServerConfig {
    fn default() -> Self {
        Self {
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            env_file: None,
            cwd: None,
            url: None,
            transport: None,
            headers: BTreeMap::new(),
            auth: UpstreamAuthConfig::None,
            expose: ToolExposure::Code,
            prefix: None,
            timeout: None,
            connect_timeout: TimeoutSeconds::new(60),
            lazy: false,
            idle_stop: None,
            pin: false,
            include: Vec::new(),
            exclude: Vec::new(),
            tools: BTreeMap::new(),
            roots: Vec::new(),
            secrets: Vec::new(),
            outage: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum McpHttpTransport {
    #[default]
    StreamableHttp,
    Sse,
}

/// A value that is never shown.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct RedactedString(pub String);

impl fmt::Debug for RedactedString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl Serialize for RedactedString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("[redacted]")
    }
}

fn is_auth_unset(auth: &UpstreamAuthConfig) -> bool {
    *auth == UpstreamAuthConfig::None
}

/// What no schema says: which keys go together. The key, and what is wrong.
impl McpServerConfig {
    pub fn find_faults(&self, name: &str) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        faults.extend(source_name_fault(name).map(|fault| ("", fault)));
        for (key, patterns) in [("include", &self.include), ("exclude", &self.exclude)] {
            let wrong = patterns.iter().filter_map(|it| it.parse::<ToolPattern>().err());
            faults.extend(wrong.map(|message| (key, message)));
        }
        match (&self.command, &self.url) {
            (Some(_), Some(_)) => faults.push(("url", "command and url exclude each other".into())),
            (None, None) => faults.push(("", "needs either command or url".into())),
            _ => {}
        }
        let misplaced: [(&'static str, bool, &str); 7] = [
            ("transport", self.transport.is_some(), "url"),
            ("headers", !self.headers.is_empty(), "url"),
            ("auth", !is_auth_unset(&self.auth), "url"),
            ("args", !self.args.is_empty(), "command"),
            ("env", !self.env.is_empty(), "command"),
            ("env_file", self.env_file.is_some(), "command"),
            ("cwd", self.cwd.is_some(), "command"),
        ];
        for (key, is_set, belongs) in misplaced {
            let there = if belongs == "url" { self.url.is_some() } else { self.command.is_some() };
            if is_set && !there {
                faults.push((key, format!("belongs to {belongs}, which is not set")));
            }
        }
        let url = self.url.as_deref().and_then(web_address_fault);
        faults.extend(url.map(|message| ("url", message)));
        faults
    }

    /// From the command line: an address, or a command as a shell would read it.
    pub fn from_cli_argument(text: &str) -> Result<McpServerConfig, String> {
        if text.starts_with("http://") || text.starts_with("https://") {
            return Ok(McpServerConfig {
                url: Some(text.to_owned()),
                ..McpServerConfig::default()
            });
        }
        let mut words = shlex::split(text).ok_or("a quote is not closed")?.into_iter();
        let command = words.next().ok_or("there is no command")?;
        Ok(McpServerConfig {
            command: Some(command),
            args: words.collect(),
            ..McpServerConfig::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(toml: &str) -> String {
        let server: McpServerConfig = toml::from_str(toml).unwrap();
        let faults = server.find_faults("docs");
        faults.iter().map(|(key, it)| format!("{key}: {it}")).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn exactly_one_of_command_and_url_with_its_own_keys() {
        for (toml, expected) in [
            ("command = 'npx'\nargs = ['-y']\nenv = { A = 'b' }", ""),
            ("url = 'https://a/mcp'\ntransport = 'sse'", ""),
            ("", ": needs either command or url"),
            ("command = 'a'\nurl = 'http://a'", "url: command and url exclude each other"),
            ("command = 'a'\ntransport = 'sse'", "transport: belongs to url, which is not set"),
            ("url = 'http://a'\nargs = ['b']", "args: belongs to command, which is not set"),
            ("url = 'http://a'\nenv = { A = 'b' }", "env: belongs to command, which is not set"),
            ("url = 'ftp://a'", "url: must be an address that begins with http:// or https://"),
        ] {
            assert_eq!(faults(toml), expected, "{toml}");
        }
    }

    #[test]
    fn an_argument_is_an_address_or_a_command_as_a_shell_reads_it() {
        let http = McpServerConfig::from_cli_argument("https://a/mcp").unwrap();
        assert_eq!(http.url.as_deref(), Some("https://a/mcp"));
        let stdio = McpServerConfig::from_cli_argument("npx -y server '/a b' \"c d\"").unwrap();
        assert_eq!(stdio.command.as_deref(), Some("npx"));
        assert_eq!(stdio.args, ["-y", "server", "/a b", "c d"]);
        assert!(McpServerConfig::from_cli_argument("npx 'a").is_err());
        assert!(McpServerConfig::from_cli_argument(" ").is_err());
    }
}
