//! The servers in a client's file, read into one form.
//!
//! Which client wrote the file is told by its content. Values are ours
//! afterwards: their variables are translated (`variables`), and what has no
//! place in our configuration is named in `notes`.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};
use url::Url;

use super::is_moonlark;
use super::variables::{Dialect, Inputs, Scope};
use crate::env_text::parse_env_text;

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
    /// What was not taken over, for people.
    pub(crate) notes: Vec<String>,
}

/// An entry of a file: its name there, and the server or why there is none.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) server: Result<Server, String>,
}

/// Files that an entry names, read by somebody else.
pub(crate) type ReadFile<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// All servers in a document; none if it is no configuration of servers.
/// `project` is the project that it is the own file of.
pub(crate) fn all(
    document: &Json,
    project: Option<&Path>,
    home: &Path,
    read_file: ReadFile<'_>,
) -> Option<Vec<Entry>> {
    let vscode = |settings: &Json| Inputs::read(&settings["inputs"]);
    let here = project.map(Path::to_owned);
    let none = Inputs::default;
    let mut groups: Vec<(&Json, Dialect, Option<PathBuf>, Inputs)> = vec![
        (&document["mcpServers"], Dialect::Common, here.clone(), none()),
        (&document["servers"], Dialect::Vscode, here.clone(), vscode(document)),
        (&document["mcp"]["servers"], Dialect::Vscode, here.clone(), vscode(&document["mcp"])),
        (&document["mcp.servers"], Dialect::Vscode, here.clone(), none()),
        (&document["context_servers"], Dialect::Literal, here, none()),
    ];
    // Claude Code: servers of one project, by the project's path.
    for (path, settings) in document["projects"].as_object().into_iter().flatten() {
        let own = &settings["mcpServers"];
        groups.push((own, Dialect::Common, Some(PathBuf::from(path)), none()));
    }
    let mut known = false;
    let mut entries = Vec::new();
    for (servers, dialect, project, inputs) in groups {
        let Some(servers) = servers.as_object() else { continue };
        known = true;
        let scope = Scope { dialect, project, home, inputs };
        for (name, entry) in servers {
            let server = read(entry, &scope, read_file);
            entries.push(Entry { name: name.clone(), server });
        }
    }
    known.then_some(entries)
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
    let mut fields = Fields { entry, scope, used: KNOWN.to_vec() };
    let mut server = Server::default();
    match fields.kind()? {
        Kind::Starts => fields.starts(&mut server, read_file)?,
        Kind::Reaches => fields.reaches(&mut server)?,
    }
    server.notes.extend(fields.unused());
    Ok(server)
}

/// Keys that say nothing we do not know.
const KNOWN: [&str; 5] = ["type", "transport", "source", "enabled", "disabled"];

enum Kind {
    Starts,
    Reaches,
}

struct Fields<'a> {
    entry: &'a Map<String, Json>,
    scope: &'a Scope<'a>,
    used: Vec<&'static str>,
}

impl Fields<'_> {
    fn kind(&self) -> Result<Kind, String> {
        match (self.word(), self.entry.contains_key("command"), self.entry.contains_key("url")) {
            (Some("stdio") | None, true, _) => Ok(Kind::Starts),
            (Some("http" | "sse") | None, _, true) => Ok(Kind::Reaches),
            (Some(word), _, true) if is_streamable(word) => Ok(Kind::Reaches),
            (Some(word @ ("stdio" | "http" | "sse")), ..) => {
                let missing = if word == "stdio" { "command" } else { "url" };
                Err(format!("its type is {word}, and it has no {missing}"))
            }
            (Some(_), ..) => Err("its type is none that is known".to_owned()),
            (None, ..) if self.entry.contains_key("settings") => {
                Err("it is an extension of Zed, and only Zed knows what it starts".to_owned())
            }
            (None, ..) => Err("it has neither command nor url".to_owned()),
        }
    }

    /// What it says about its transport.
    fn word(&self) -> Option<&str> {
        let word = |key: &str| self.entry.get(key).and_then(Json::as_str);
        word("type").or_else(|| word("transport"))
    }

    fn starts(&mut self, server: &mut Server, read_file: ReadFile<'_>) -> Result<(), String> {
        self.used.extend(["command", "args", "env", "cwd", "envFile"]);
        // Zed once had path, arguments and environment inside `command`.
        let inner = self.entry.get("command").and_then(Json::as_object);
        let entry = inner.unwrap_or(self.entry);
        let command = match inner {
            Some(inner) => inner.get("path"),
            None => self.entry.get("command"),
        };
        let command = command.and_then(Json::as_str).filter(|command| !command.is_empty());
        let command = command.ok_or("its command is not a text")?;
        server.command = Some(self.scope.translate(command)?);
        server.args = self.list(entry.get("args"))?;
        let file = self.entry.get("envFile").and_then(Json::as_str);
        if let Some(file) = file {
            self.env_file(file, server, read_file)?;
        }
        for (key, value) in self.table("env", entry.get("env"), &mut server.notes)? {
            server.env.retain(|(other, _)| *other != key);
            server.env.push((key, value));
        }
        let cwd = self.entry.get("cwd").and_then(Json::as_str);
        server.cwd = match cwd.map(|cwd| self.scope.translate(cwd)).transpose()? {
            Some(cwd) => Some(self.in_project(&cwd)),
            None => self.cwd_for(server),
        };
        Ok(())
    }

    fn reaches(&mut self, server: &mut Server) -> Result<(), String> {
        self.used.extend(["url", "headers"]);
        let url = self.entry.get("url").and_then(Json::as_str).ok_or("its url is not a text")?;
        let url = self.scope.translate(url)?;
        let is_address = match Url::parse(&url) {
            // What a variable holds is not known yet.
            _ if url.contains("${") => true,
            Ok(url) => matches!(url.scheme(), "http" | "https") && url.has_host(),
            Err(_) => false,
        };
        if !is_address {
            return Err("its url is no address that begins with http:// or https://".to_owned());
        }
        let path = url.split(['?', '#']).next().unwrap_or_default();
        server.sse = match self.word() {
            Some("sse") => true,
            Some(word) if is_streamable(word) => false,
            // Clients that find out by trying end up there as well.
            _ => path.trim_end_matches('/').ends_with("/sse"),
        };
        server.headers = self.table("headers", self.entry.get("headers"), &mut server.notes)?;
        server.url = Some(url);
        Ok(())
    }

    fn env_file(
        &self,
        file: &str,
        server: &mut Server,
        read_file: ReadFile<'_>,
    ) -> Result<(), String> {
        let path = self.in_project(&self.scope.translate(file)?);
        let Some(text) = read_file(Path::new(&path)) else {
            // What it will hold is read when the server starts.
            server.env_file = Some(path);
            return Ok(());
        };
        let variables = parse_env_text(&text).variables.into_iter();
        server.env.extend(variables.map(|(name, value)| (name, value.replace("${", "$${"))));
        Ok(())
    }

    /// A relative path is meant from the project, wherever our file will be.
    fn in_project(&self, path: &str) -> String {
        match &self.scope.project {
            Some(project) if !path.starts_with("${") => project.join(path).display().to_string(),
            _ => path.to_owned(),
        }
    }

    /// Clients start servers in the project. That matters if a path begins there.
    fn cwd_for(&self, server: &Server) -> Option<String> {
        let project = self.scope.project.as_ref()?;
        let relative =
            |text: &String| text == "." || text.starts_with("./") || text.starts_with("../");
        let mut texts = server.command.iter().chain(&server.args);
        texts.any(relative).then(|| project.display().to_string())
    }

    fn list(&self, items: Option<&Json>) -> Result<Vec<String>, String> {
        let items = match items {
            None | Some(Json::Null) => return Ok(Vec::new()),
            Some(Json::Array(items)) => items,
            Some(_) => return Err("its args are not a list".to_owned()),
        };
        let texts = items.iter().map(|item| plain(item).ok_or("its args are not all texts"));
        texts.map(|text| self.scope.translate(&text?)).collect()
    }

    fn table(
        &self,
        key: &str,
        table: Option<&Json>,
        notes: &mut Vec<String>,
    ) -> Result<Vec<(String, String)>, String> {
        let table = match table {
            None | Some(Json::Null) => return Ok(Vec::new()),
            Some(Json::Object(table)) => table,
            Some(_) => return Err(format!("its {key} is not an object in braces")),
        };
        let mut texts = Vec::new();
        for (name, value) in table {
            match plain(value) {
                Some(text) => texts.push((name.clone(), self.scope.translate(&text)?)),
                None => notes.push(format!("{key}.{name}")),
            }
        }
        Ok(texts)
    }

    fn unused(&self) -> Vec<String> {
        self.entry.keys().filter(|key| !self.used.contains(&key.as_str())).cloned().collect()
    }
}

fn is_streamable(word: &str) -> bool {
    matches!(word, "streamable-http" | "streamable_http" | "streamableHttp")
}

/// Some write numbers and true without quotes.
fn plain(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        Json::Bool(flag) => Some(flag.to_string()),
        Json::Null | Json::Array(_) | Json::Object(_) => None,
    }
}

#[cfg(test)]
mod tests;
