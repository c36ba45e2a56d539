//! Projects of other systems: `ctx.toml` of Context Harness and `toolscript.toml` of
//! ToolScript, read into tables of `moonlark.toml`.
//!
//! Their sections for scripts, connectors, servers and APIs are the ones that ours were
//! made after, so most of it is taken as it is: paths are seen from our file, and keys
//! that ours does not have are named. What has no counterpart is said with what takes
//! its place.

use std::net::IpAddr;
use std::path::Path;

use moonlark_core::{Problem, Result, SourceLocation};
use serde_json::Value as Json;
use toml::{Table, Value};

use super::imported_server::{self, ClientFileOrigin, ImportedEntry};
use crate::config_paths::normalize_path;

/// What such a file has for us.
#[derive(Default)]
pub struct OtherProject {
    pub servers: Vec<ImportedEntry>,
    pub tables: Vec<ProjectTable>,
    /// Sections that are not taken over, and what there is instead.
    pub left_out: Vec<(String, String)>,
}

/// One table of our configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ProjectTable {
    /// `["tools", "script", "jira"]`.
    pub path: Vec<String>,
    pub values: Table,
    /// What was not taken over of it, for people.
    pub notes: Vec<String>,
    /// What is left to do about it, for people.
    pub advice: Option<String>,
}

impl ProjectTable {
    fn new(path: &[&str], values: Table) -> ProjectTable {
        let path = path.iter().map(|key| (*key).to_owned()).collect();
        ProjectTable { path, values, notes: Vec::new(), advice: None }
    }
}

/// Read the file called `label` in `folder`, for a configuration in `root` whose keys
/// are those of `schema`.
pub fn read_other_project(
    text: &str,
    label: &str,
    folder: &Path,
    root: &Path,
    schema: Json,
) -> Result<OtherProject> {
    let document: Table = toml::from_str(text).map_err(|error: toml::de::Error| {
        // Only its message: the rest quotes the line, which may hold a secret.
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = u32::try_from(before.matches('\n').count() + 1).unwrap_or(u32::MAX);
        Problem::bad_config(format!("not valid TOML: {}", error.message()))
            .at_location(SourceLocation::at_line(label, line))
            .with_hint("nothing was changed; fix the file and run this again")
    })?;
    let reading = OtherProjectReader { folder, root, schema };
    let mut project = OtherProject::default();
    for (section, value) in document {
        reading.read_section(&section, value, &mut project);
    }
    if project.servers.is_empty() && project.tables.is_empty() && project.left_out.is_empty() {
        return Err(Problem::bad_request("there is nothing in it that Moonlark could take over")
            .at_location(SourceLocation::in_file(label))
            .with_hint("it should have tools.script, connectors, mcp_servers or apis"));
    }
    Ok(project)
}

struct OtherProjectReader<'a> {
    folder: &'a Path,
    root: &'a Path,
    schema: Json,
}

impl OtherProjectReader<'_> {
    fn read_section(&self, section: &str, value: Value, project: &mut OtherProject) {
        match (section, value) {
            ("tools" | "extensions" | "agents", Value::Table(kinds)) => {
                for (kind, value) in kinds {
                    match (kind.as_str(), value) {
                        ("script", Value::Table(scripts)) => {
                            project.tables.extend(self.read_tables(&[section, "script"], scripts));
                        }
                        _ => project.left_out.push((
                            format!("{section}.{kind}"),
                            "only scripts are taken over".to_owned(),
                        )),
                    }
                }
            }
            ("connectors", Value::Table(kinds)) => {
                for (kind, value) in kinds {
                    self.read_connectors(&kind, value, project);
                }
            }
            ("mcp_servers", Value::Table(servers)) => {
                let json = serde_json::to_value(servers).unwrap_or_default();
                let document = serde_json::json!({ "mcpServers": json });
                let origin = ClientFileOrigin { client: None, project: None, home: Path::new("/") };
                let entries = imported_server::read_entries(&document, origin, &|_| None);
                project.servers.extend(entries.unwrap_or_default());
            }
            ("apis", Value::Table(apis)) => {
                project.tables.extend(self.read_tables(&["apis"], apis))
            }
            ("frozen_params", Value::Table(values)) if !values.is_empty() => {
                project.tables.push(ProjectTable::new(&["frozen_params"], values));
            }
            ("execution", Value::Table(execution)) => {
                project.tables.extend(read_execution(execution));
            }
            ("auth", Value::Table(auth)) => project.tables.extend(read_auth(auth)),
            ("server", Value::Table(server)) => self.read_server(&server, project),
            (section, _) => {
                project.left_out.push((section.to_owned(), replacement_hint(section).to_owned()));
            }
        }
    }

    fn read_connectors(&self, kind: &str, value: Value, project: &mut OtherProject) {
        let section = format!("connectors.{kind}");
        let Value::Table(table) = value else {
            project.left_out.push((section, "it is not a table".to_owned()));
            return;
        };
        match kind {
            "script" => project.tables.extend(self.read_tables(&["connectors", "script"], table)),
            "filesystem" | "git" => {
                // One without a name of its own, as older files have it.
                let is_one = table.values().any(|value| !value.is_table());
                let named = if is_one {
                    Table::from_iter([(kind.to_owned(), Value::Table(table))])
                } else {
                    table
                };
                project.tables.extend(self.read_tables(&["connectors", kind], named));
            }
            _ => {
                let instead = "there is no such connector here: a connector script can do it";
                project.left_out.push((section, instead.to_owned()));
            }
        }
    }

    /// `bind = "127.0.0.1:7331"` is our default.
    fn read_server(&self, server: &Table, project: &mut OtherProject) {
        let bind = server.get("bind").and_then(Value::as_str).unwrap_or_default();
        let Some((host, port)) = bind.rsplit_once(':') else {
            project.left_out.push(("server".to_owned(), replacement_hint("server").to_owned()));
            return;
        };
        let host = host.trim_matches(['[', ']']);
        let Ok(port) = port.parse::<u16>() else { return };
        if host == "127.0.0.1" && port == 7331 {
            return;
        }
        let values = Table::from_iter([
            ("host".to_owned(), Value::String(host.to_owned())),
            ("port".to_owned(), Value::Integer(port.into())),
        ]);
        let mut table = ProjectTable::new(&["server"], values);
        let is_loopback = host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if !is_loopback {
            table.advice = Some(format!(
                "serving on {host}, beyond loopback, needs authentication: `moonlark token add \
                 NAME`, or server.auth.issuer"
            ));
        }
        project.tables.push(table);
    }

    fn read_tables(&self, section: &[&str], tables: Table) -> Vec<ProjectTable> {
        let table = |(name, value): (String, Value)| {
            let Value::Table(values) = value else { return None };
            let mut path: Vec<String> = section.iter().map(|part| (*part).to_owned()).collect();
            path.push(name);
            let (values, notes) = self.translate_values(section, values);
            Some(ProjectTable { path, values, notes, advice: None })
        };
        tables.into_iter().filter_map(table).collect()
    }

    /// The keys that ours has too, under our names.
    fn translate_values(&self, section: &[&str], values: Table) -> (Table, Vec<String>) {
        let schema = section.iter().fold(&self.schema, |schema, key| &schema["properties"][*key]);
        let schema = &schema["additionalProperties"];
        let takes_any = schema.get("additionalProperties") != Some(&Json::Bool(false));
        let (mut taken, mut notes) = (Table::new(), Vec::new());
        for (key, value) in values {
            let ours = match key.as_str() {
                "include_globs" => "include",
                "exclude_globs" => "exclude",
                key => key,
            };
            let known = schema["properties"].get(ours).is_some();
            if !known && !takes_any {
                // What is not followed here anyway is no loss.
                if !(ours == "follow_symlinks" && value == Value::Boolean(false)) {
                    notes.push(key);
                }
                continue;
            }
            let value = match (ours, value) {
                ("path" | "root" | "spec", Value::String(path)) => {
                    Value::String(self.path_from_root(&path))
                }
                (_, value) => value,
            };
            taken.insert(ours.to_owned(), value);
        }
        (taken, notes)
    }

    /// A path of that file, as ours writes it.
    fn path_from_root(&self, path: &str) -> String {
        if path.contains("://") || path.starts_with("${") || self.folder == self.root {
            return path.to_owned();
        }
        let whole = normalize_path(&self.folder.join(path));
        let below = whole.strip_prefix(normalize_path(self.root)).unwrap_or(&whole);
        below.display().to_string()
    }
}

/// `[execution]` of ToolScript as our `[limits]`.
fn read_execution(execution: Table) -> Option<ProjectTable> {
    let mut table = ProjectTable::new(&["limits"], Table::new());
    for (key, value) in execution {
        let (ours, value) = match (key.as_str(), value) {
            ("timeout_seconds", value @ (Value::Integer(_) | Value::Float(_))) => {
                ("timeout", value)
            }
            ("memory_limit_mb", Value::Integer(size)) => {
                ("memory", Value::String(format!("{size}MB")))
            }
            ("max_api_calls", value @ Value::Integer(_)) => ("calls", value),
            ("max_output_bytes", value @ Value::Integer(_)) => ("result", value),
            _ => {
                table.notes.push(key);
                continue;
            }
        };
        table.values.insert(ours.to_owned(), value);
    }
    (!table.values.is_empty()).then_some(table)
}

/// `[auth]` of ToolScript as our `[server.auth]`.
fn read_auth(auth: Table) -> Option<ProjectTable> {
    let mut table = ProjectTable::new(&["server", "auth"], Table::new());
    for (key, value) in auth {
        let (ours, value) = match (key.as_str(), value) {
            ("authority", value @ Value::String(_)) => ("issuer", value),
            ("audience", value @ Value::String(_)) => ("audience", Value::Array(vec![value])),
            ("audience", value @ Value::Array(_)) => ("audience", value),
            _ => {
                table.notes.push(key);
                continue;
            }
        };
        table.values.insert(ours.to_owned(), value);
    }
    if table.values.contains_key("issuer") && !table.values.contains_key("audience") {
        let advice = "an issuer needs audience: add what its tokens are for";
        table.advice = Some(advice.to_owned());
    }
    (!table.values.is_empty()).then_some(table)
}

/// What there is here in place of a section.
fn replacement_hint(section: &str) -> &'static str {
    match section {
        "db" => "documents are kept in .moonlark/moonlark.db; store.url names another file",
        "chunking" => "knowledge.chunk says how long a part of a document is",
        "retrieval" => "each search says its mode and its limit itself",
        "embedding" => "a model is built in; knowledge.embedder names a service in its place",
        "server" => "server.host and server.port say where to listen",
        "registries" => "copy the scripts into the folders tools and connectors",
        _ => "it has no counterpart here",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generated one: this crate does not know the configuration.
    fn schema() -> Json {
        serde_json::from_str(include_str!("../../../schema/moonlark.schema.json")).unwrap()
    }

    fn lines(text: &str) -> Vec<String> {
        let read =
            read_other_project(text, "ctx.toml", Path::new("/w/old"), Path::new("/w"), schema())
                .unwrap();
        let tables = read.tables.iter().map(|table| {
            let values = table.values.to_string().trim().replace('\n', "; ");
            let notes: String = table.notes.iter().map(|it| format!(" without {it}")).collect();
            let advice = table.advice.iter().map(|it| format!(" ({it})")).collect::<String>();
            format!("[{}] {values}{notes}{advice}", table.path.join("."))
        });
        let servers = read.servers.iter().map(|it| format!("server {}", it.name));
        let left = read.left_out.iter().map(|(section, _)| format!("left {section}"));
        tables.chain(servers).chain(left).collect()
    }

    #[test]
    fn sections_that_both_have_are_taken_with_paths_seen_from_our_file() {
        assert_eq!(
            lines(
                r#"
[db]
path = "./data/ctx.sqlite"
[retrieval]
final_limit = 12
[server]
bind = "0.0.0.0:8000"
[connectors.filesystem]
root = "./docs"
include_globs = ["**/*.md"]
exclude_globs = []
follow_symlinks = false
[connectors.git.platform]
url = "https://github.com/acme/platform.git"
branch = "main"
shallow = true
[connectors.s3.runbooks]
bucket = "x"
[connectors.script.jira]
path = "connectors/jira.lua"
timeout = 600
api_token = "${JIRA_API_TOKEN}"
[agents.script.triage]
path = "agents/triage.lua"
[agents.inline.helper]
system = "You help."
[tools.script.create_jira_ticket]
path = "tools/create-jira-ticket.lua"
timeout = 30
jira_url = "https://mycompany.atlassian.net"
"#
            ),
            [
                r#"[agents.script.triage] path = "old/agents/triage.lua""#,
                r#"[connectors.filesystem.filesystem] exclude = []; include = ["**/*.md"]; root = "old/docs""#,
                r#"[connectors.git.platform] branch = "main"; url = "https://github.com/acme/platform.git" without shallow"#,
                r#"[connectors.script.jira] api_token = "${JIRA_API_TOKEN}"; path = "old/connectors/jira.lua"; timeout = 600"#,
                r#"[server] host = "0.0.0.0"; port = 8000 (serving on 0.0.0.0, beyond loopback, needs authentication: `moonlark token add NAME`, or server.auth.issuer)"#,
                r#"[tools.script.create_jira_ticket] jira_url = "https://mycompany.atlassian.net"; path = "old/tools/create-jira-ticket.lua"; timeout = 30"#,
                "left agents.inline",
                "left connectors.s3",
                "left db",
                "left retrieval",
            ]
        );
    }

    #[test]
    fn servers_and_apis_of_toolscript_are_ours_as_they_are() {
        assert_eq!(
            lines(
                r#"
[mcp_servers.filesystem]
command = "npx"
args = ["-y", "@modelcontextprotocol/server-filesystem", "/tmp"]
env = { HOME = "/tmp" }
[mcp_servers.legacy]
url = "https://mcp.example.com/sse"
transport = "sse"
[apis.petstore]
spec = "petstore.yaml"
auth_env = "PETSTORE_KEY"
colour = "blue"
[apis.petstore.frozen_params]
tenant = "acme"
[frozen_params]
region = "eu"
[execution]
timeout_seconds = 20
memory_limit_mb = 128
max_api_calls = 50
max_output_bytes = 1048576
colour = "blue"
[auth]
authority = "https://login.example.com"
audience = "https://tools.example.com"
"#
            ),
            [
                r#"[apis.petstore] auth_env = "PETSTORE_KEY"; spec = "old/petstore.yaml"; ; [frozen_params]; tenant = "acme" without colour"#,
                r#"[server.auth] audience = ["https://tools.example.com"]; issuer = "https://login.example.com""#,
                r#"[limits] calls = 50; memory = "128MB"; result = 1048576; timeout = 20 without colour"#,
                r#"[frozen_params] region = "eu""#,
                "server filesystem",
                "server legacy",
            ]
        );
    }

    #[test]
    fn what_is_no_such_file_is_said() {
        for (text, said) in [
            ("a = [1\nb = 2", "ctx.toml:2: not valid TOML: "),
            ("", "ctx.toml: there is nothing in it that Moonlark could take over"),
        ] {
            let read =
                read_other_project(text, "ctx.toml", Path::new("/w"), Path::new("/w"), schema());
            let problem = read.err().unwrap().to_line();
            assert!(problem.starts_with(said), "{problem}");
        }
    }
}
