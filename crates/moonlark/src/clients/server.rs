//! The servers in a client's file, read into one form.
//!
//! Which client wrote the file is told by its content, and by its place where two write
//! alike. How single entries are written is in `fields`. Values are ours afterwards:
//! their variables are translated (`variables`), and what has no place in our
//! configuration is named in `notes`.

mod fields;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

use super::Client;
use super::entry::is_moonlark;
use super::variables::{Dialect, Inputs, Scope};
use fields::{EntryFields, ServerKind};

/// One server as our configuration would have it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Server {
    pub(crate) command: Option<String>,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// Of variables that could not be read now.
    pub(crate) env_file: Option<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) url: Option<String>,
    pub(crate) sse: bool,
    pub(crate) headers: Vec<(String, String)>,
    /// Seconds that a call may take.
    pub(crate) timeout: Option<f64>,
    /// Seconds until it has to answer first.
    pub(crate) connect_timeout: Option<f64>,
    /// Only these tools, if any are named.
    pub(crate) include: Vec<String>,
    /// Not these tools.
    pub(crate) exclude: Vec<String>,
    /// What was not taken over, for people.
    pub(crate) notes: Vec<String>,
}

/// An entry of a file: its name there, and the server or why there is none.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) server: Result<Server, String>,
}

/// What is known about a file beside its content.
#[derive(Clone, Copy)]
pub(crate) struct FileOrigin<'a> {
    /// Whose it is, where its place or its user says so.
    pub(crate) client: Option<Client>,
    /// The project that it is the own file of.
    pub(crate) project: Option<&'a Path>,
    pub(crate) home: &'a Path,
}

/// Files that an entry names, read by somebody else.
pub(crate) type ReadFile<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// All servers in a document; none if it is no configuration of servers.
pub(crate) fn all(
    document: &Json,
    origin: FileOrigin<'_>,
    read_file: ReadFile<'_>,
) -> Option<Vec<Entry>> {
    let mut known = false;
    let mut entries = Vec::new();
    for ServerGroup { servers, dialect, project, inputs } in groups(document, origin) {
        let servers = match servers {
            Json::Object(servers) => servers.clone(),
            Json::Array(servers) => by_name(servers),
            _ => continue,
        };
        known = true;
        let scope = Scope { dialect, project, home: origin.home, inputs };
        for (name, entry) in &servers {
            let server = read(entry, &scope, read_file);
            entries.push(Entry { name: name.clone(), server });
        }
    }
    known.then_some(entries)
}

/// Servers that stand together in a file.
struct ServerGroup<'a> {
    servers: &'a Json,
    dialect: Dialect,
    project: Option<PathBuf>,
    inputs: Inputs,
}

fn groups<'a>(document: &'a Json, origin: FileOrigin<'_>) -> Vec<ServerGroup<'a>> {
    let project = || origin.project.map(Path::to_owned);
    let group = |servers: &'a Json, dialect: Dialect| ServerGroup {
        servers,
        dialect,
        project: project(),
        inputs: Inputs::default(),
    };
    let with_inputs = |servers: &'a Json, settings: &Json| ServerGroup {
        inputs: Inputs::read(&settings["inputs"]),
        ..group(servers, Dialect::Vscode)
    };
    let mcp = &document["mcp"];
    let is_opencode =
        |servers: &Json| origin.client == Some(Client::Opencode) || any_of_opencode(servers);
    let mut groups = vec![
        group(&document["mcpServers"], common_dialect(document, origin.client)),
        with_inputs(&document["servers"], document),
        group(&document["mcp.servers"], Dialect::Vscode),
        group(&document["context_servers"], Dialect::Zed),
        group(&document["mcp_servers"], Dialect::Codex),
    ];
    // The second version of opencode has them one level down, where VS Code once had its own.
    match (is_opencode(mcp), is_opencode(&mcp["servers"])) {
        (_, true) if mcp["servers"].is_object() => {
            groups.push(group(&mcp["servers"], Dialect::Opencode))
        }
        (true, _) => groups.push(group(mcp, Dialect::Opencode)),
        (false, _) => groups.push(with_inputs(&mcp["servers"], mcp)),
    }
    if origin.client == Some(Client::Goose) || any_of_goose(&document["extensions"]) {
        groups.push(group(&document["extensions"], Dialect::Goose));
    }
    // Claude Code: servers of one project, by the project's path.
    for (path, settings) in document["projects"].as_object().into_iter().flatten() {
        let own = group(&settings["mcpServers"], Dialect::Common);
        groups.push(ServerGroup { project: Some(PathBuf::from(path)), ..own });
    }
    groups
}

/// Several clients keep servers under `mcpServers`.
fn common_dialect(document: &Json, client: Option<Client>) -> Dialect {
    match client {
        Some(Client::Gemini) => Dialect::Gemini,
        Some(Client::Qwen) => Dialect::Qwen,
        Some(Client::Cline) => Dialect::Cline,
        Some(Client::Continue) => Dialect::Continue,
        _ if document["mcpServers"].is_array() => Dialect::Continue,
        _ => Dialect::Common,
    }
}

fn any_of_opencode(servers: &Json) -> bool {
    let mut entries = servers.as_object().into_iter().flatten();
    entries.any(|(_, entry)| matches!(entry["type"].as_str(), Some("local" | "remote")))
}

fn any_of_goose(extensions: &Json) -> bool {
    let mut entries = extensions.as_object().into_iter().flatten();
    entries.any(|(_, entry)| entry["type"].is_string() && entry["enabled"].is_boolean())
}

/// Continue lists servers, each with its name.
fn by_name(servers: &[Json]) -> Map<String, Json> {
    let mut named = Map::new();
    for (index, entry) in servers.iter().enumerate() {
        let name = entry["name"].as_str().or_else(|| entry["uses"].as_str());
        let name = name.map_or_else(|| format!("server-{index}"), str::to_owned);
        named.insert(name, entry.clone());
    }
    named
}

fn read(entry: &Json, scope: &Scope<'_>, read_file: ReadFile<'_>) -> Result<Server, String> {
    let Some(entry) = entry.as_object() else {
        return Err("it is not an object in braces".to_owned());
    };
    if is_moonlark(&Json::Object(entry.clone())) {
        return Err("it is Moonlark itself".to_owned());
    }
    let flag = |key: &str| entry.get(key).and_then(Json::as_bool);
    if flag("disabled") == Some(true) || flag("enabled") == Some(false) {
        return Err("it is disabled there".to_owned());
    }
    let entry = &flattened(entry);
    let mut fields = EntryFields::new(entry, scope);
    let mut server = Server::default();
    match fields.kind()? {
        ServerKind::Starts => fields.read_command(&mut server, read_file)?,
        ServerKind::Reaches => fields.read_address(&mut server)?,
    }
    fields.read_limits(&mut server);
    server.notes.extend(fields.unused());
    Ok(server)
}

/// Cline's command line has command or address inside of `transport`.
fn flattened(entry: &Map<String, Json>) -> Map<String, Json> {
    let mut flat = entry.clone();
    if let Some(Json::Object(transport)) = flat.shift_remove("transport") {
        flat.extend(transport);
        return flat;
    }
    entry.clone()
}

#[cfg(test)]
mod tests;
