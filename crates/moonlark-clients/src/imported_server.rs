//! The servers in a client's file, read into one form.
//!
//! Which client wrote the file is told by its content, and by its place where two write
//! alike. How single entries are written is in `fields`. Values are ours afterwards:
//! their variables are translated (`variables`), and what has no place in our
//! configuration is named in `notes`.

mod entry_fields;

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

use super::ClientApp;
use super::client_variables::{ClientDialect, VariableScope, VscodeInputs};
use super::server_entry::is_moonlark_entry;
use entry_fields::{EntryFields, ImportedServerKind};

/// One server as our configuration would have it.
#[derive(Clone, Default, PartialEq)]
pub struct ImportedServer {
    pub command: Option<String>,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Of variables that could not be read now.
    pub(crate) env_file: Option<String>,
    pub cwd: Option<String>,
    pub url: Option<String>,
    pub sse: bool,
    pub headers: Vec<(String, String)>,
    /// Seconds that a call may take.
    pub timeout: Option<f64>,
    /// Seconds until it has to answer first.
    pub connect_timeout: Option<f64>,
    /// Only these tools, if any are named.
    pub include: Vec<String>,
    /// Not these tools.
    pub exclude: Vec<String>,
    /// What was not taken over, for people.
    pub notes: Vec<String>,
}

/// Without values that may be secret: of variables and headers, in arguments and addresses.
impl fmt::Debug for ImportedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |pairs: &[(String, String)]| -> Vec<String> {
            pairs.iter().map(|(name, _)| name.clone()).collect()
        };
        f.debug_struct("ImportedServer")
            .field("command", &self.command)
            .field("env", &names(&self.env))
            .field("headers", &names(&self.headers))
            .finish_non_exhaustive()
    }
}

/// An entry of a file: its name there, and the server or why there is none.
pub struct ImportedEntry {
    pub name: String,
    pub server: Result<ImportedServer, String>,
}

/// What is known about a file beside its content.
#[derive(Clone, Copy)]
pub struct ClientFileOrigin<'a> {
    /// Whose it is, where its place or its user says so.
    pub client: Option<ClientApp>,
    /// The project that it is the own file of.
    pub project: Option<&'a Path>,
    pub home: &'a Path,
}

/// Files that an entry names, read by somebody else.
pub(crate) type ReadFileFn<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// All servers in a document; none if it is no configuration of servers.
pub fn read_entries(
    document: &Json,
    origin: ClientFileOrigin<'_>,
    read_file: ReadFileFn<'_>,
) -> Option<Vec<ImportedEntry>> {
    let mut known = false;
    let mut entries = Vec::new();
    for ServerGroup { servers, dialect, project, inputs } in server_groups(document, origin) {
        let servers = match servers {
            Json::Object(servers) => servers.clone(),
            Json::Array(servers) => key_by_name(servers),
            _ => continue,
        };
        known = true;
        let scope = VariableScope { dialect, project, home: origin.home, inputs };
        for (name, entry) in &servers {
            let server = read_server(entry, &scope, read_file);
            entries.push(ImportedEntry { name: name.clone(), server });
        }
    }
    known.then_some(entries)
}

/// Servers that stand together in a file.
struct ServerGroup<'a> {
    servers: &'a Json,
    dialect: ClientDialect,
    project: Option<PathBuf>,
    inputs: VscodeInputs,
}

fn server_groups<'a>(document: &'a Json, origin: ClientFileOrigin<'_>) -> Vec<ServerGroup<'a>> {
    let project = || origin.project.map(Path::to_owned);
    let group = |servers: &'a Json, dialect: ClientDialect| ServerGroup {
        servers,
        dialect,
        project: project(),
        inputs: VscodeInputs::default(),
    };
    let with_inputs = |servers: &'a Json, settings: &Json| ServerGroup {
        inputs: VscodeInputs::from_json(&settings["inputs"]),
        ..group(servers, ClientDialect::Vscode)
    };
    let mcp = &document["mcp"];
    let is_opencode =
        |servers: &Json| origin.client == Some(ClientApp::Opencode) || has_opencode_entry(servers);
    let mut groups = vec![
        group(&document["mcpServers"], common_dialect(document, origin.client)),
        with_inputs(&document["servers"], document),
        group(&document["mcp.servers"], ClientDialect::Vscode),
        group(&document["context_servers"], ClientDialect::Zed),
        group(&document["mcp_servers"], ClientDialect::Codex),
    ];
    // The second version of opencode has them one level down, where VS Code once had its own.
    match (is_opencode(mcp), is_opencode(&mcp["servers"])) {
        (_, true) if mcp["servers"].is_object() => {
            groups.push(group(&mcp["servers"], ClientDialect::Opencode))
        }
        (true, _) => groups.push(group(mcp, ClientDialect::Opencode)),
        (false, _) => groups.push(with_inputs(&mcp["servers"], mcp)),
    }
    if origin.client == Some(ClientApp::Goose) || has_goose_entry(&document["extensions"]) {
        groups.push(group(&document["extensions"], ClientDialect::Goose));
    }
    // Claude Code: servers of one project, by the project's path.
    for (path, settings) in document["projects"].as_object().into_iter().flatten() {
        let own = group(&settings["mcpServers"], ClientDialect::Common);
        groups.push(ServerGroup { project: Some(PathBuf::from(path)), ..own });
    }
    groups
}

/// Several clients keep servers under `mcpServers`.
fn common_dialect(document: &Json, client: Option<ClientApp>) -> ClientDialect {
    match client {
        Some(ClientApp::Gemini) => ClientDialect::Gemini,
        Some(ClientApp::Qwen) => ClientDialect::Qwen,
        Some(ClientApp::Cline) => ClientDialect::Cline,
        Some(ClientApp::Continue) => ClientDialect::Continue,
        _ if document["mcpServers"].is_array() => ClientDialect::Continue,
        _ => ClientDialect::Common,
    }
}

fn has_opencode_entry(servers: &Json) -> bool {
    let mut entries = servers.as_object().into_iter().flatten();
    entries.any(|(_, entry)| matches!(entry["type"].as_str(), Some("local" | "remote")))
}

fn has_goose_entry(extensions: &Json) -> bool {
    let mut entries = extensions.as_object().into_iter().flatten();
    entries.any(|(_, entry)| entry["type"].is_string() && entry["enabled"].is_boolean())
}

/// Continue lists servers, each with its name.
fn key_by_name(servers: &[Json]) -> Map<String, Json> {
    let mut named = Map::new();
    for (index, entry) in servers.iter().enumerate() {
        let name = entry["name"].as_str().or_else(|| entry["uses"].as_str());
        let name = name.map_or_else(|| format!("server-{index}"), str::to_owned);
        named.insert(name, entry.clone());
    }
    named
}

fn read_server(
    entry: &Json,
    scope: &VariableScope<'_>,
    read_file: ReadFileFn<'_>,
) -> Result<ImportedServer, String> {
    let Some(entry) = entry.as_object() else {
        return Err("it is not an object in braces".to_owned());
    };
    if is_moonlark_entry(&Json::Object(entry.clone())) {
        return Err("it is Moonlark itself".to_owned());
    }
    let flag = |key: &str| entry.get(key).and_then(Json::as_bool);
    if flag("disabled") == Some(true) || flag("enabled") == Some(false) {
        return Err("it is disabled there".to_owned());
    }
    let entry = &flatten_transport(entry);
    let mut fields = EntryFields::new(entry, scope);
    let mut server = ImportedServer::default();
    match fields.server_kind()? {
        ImportedServerKind::Starts => fields.read_command(&mut server, read_file)?,
        ImportedServerKind::Reaches => fields.read_address(&mut server)?,
    }
    fields.read_limits(&mut server);
    server.notes.extend(fields.unused_keys());
    Ok(server)
}

/// Cline's command line has command or address inside of `transport`.
fn flatten_transport(entry: &Map<String, Json>) -> Map<String, Json> {
    let mut flat = entry.clone();
    if let Some(Json::Object(transport)) = flat.shift_remove("transport") {
        flat.extend(transport);
        return flat;
    }
    entry.clone()
}

#[cfg(test)]
mod tests;
