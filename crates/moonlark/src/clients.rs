//! The MCP clients that Moonlark takes servers from and registers itself with:
//! where their configuration is and how it is written.
//!
//! `import` and `install` in `cli` use this. Nothing here prints, and only `file`
//! touches the disk.

pub(crate) mod diff;
pub(crate) mod edit;
pub(crate) mod file;
pub(crate) mod jsonc;
pub(crate) mod other_project;
pub(crate) mod places;
pub(crate) mod plan;
pub(crate) mod secret;
pub(crate) mod server;
pub(crate) mod table;
pub(crate) mod variables;

use std::path::Path;

use clap::ValueEnum;
use serde_json::{Map, Value as Json, json};

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Client {
    ClaudeDesktop,
    Cursor,
    Vscode,
    Zed,
    ClaudeCode,
}

impl Client {
    /// The name that people know it by.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Client::ClaudeDesktop => "Claude Desktop",
            Client::Cursor => "Cursor",
            Client::Vscode => "VS Code",
            Client::Zed => "Zed",
            Client::ClaudeCode => "Claude Code",
        }
    }

    /// The word that the command line takes.
    pub(crate) fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The key of its file that holds the servers.
    pub(crate) fn servers_key(self) -> &'static str {
        match self {
            Client::Vscode => "servers",
            Client::Zed => "context_servers",
            Client::ClaudeDesktop | Client::Cursor | Client::ClaudeCode => "mcpServers",
        }
    }

    /// How a server that it starts is written there. `path` is where the server finds
    /// programs: a client of the desktop knows hardly any folder.
    pub(crate) fn entry(
        self,
        command: &str,
        args: &[String],
        path: Option<&str>,
    ) -> Map<String, Json> {
        let mut entry = Map::new();
        match self {
            Client::Cursor | Client::Vscode | Client::ClaudeCode => {
                entry.insert("type".to_owned(), json!("stdio"));
            }
            // Versions before the end of 2025 ask for it, later ones ignore it.
            Client::Zed => {
                entry.insert("source".to_owned(), json!("custom"));
            }
            Client::ClaudeDesktop => {}
        }
        entry.insert("command".to_owned(), json!(command));
        entry.insert("args".to_owned(), json!(args));
        if let Some(path) = path {
            entry.insert("env".to_owned(), json!({ "PATH": path }));
        }
        entry
    }

    /// How a server that runs is written there; none if it cannot be.
    pub(crate) fn http_entry(self, url: &str, token: Option<&str>) -> Option<Map<String, Json>> {
        let mut entry = Map::new();
        match self {
            // It starts its servers itself.
            Client::ClaudeDesktop => return None,
            Client::Vscode | Client::ClaudeCode => {
                entry.insert("type".to_owned(), json!("http"));
            }
            Client::Cursor | Client::Zed => {}
        }
        entry.insert("url".to_owned(), json!(url));
        if let Some(token) = token {
            entry.insert(
                "headers".to_owned(),
                json!({ "Authorization": format!("Bearer {token}") }),
            );
        }
        Some(entry)
    }
}

/// Whether an entry of a client's file starts, or reaches, Moonlark itself.
pub(crate) fn is_moonlark(entry: &Json) -> bool {
    let command = match &entry["command"] {
        Json::Object(command) => command.get("path").and_then(Json::as_str),
        command => command.as_str(),
    };
    if let Some(command) = command {
        // Paths of either system, whichever this is.
        let name = command.rsplit(['/', '\\']).next().unwrap_or_default();
        let stem = Path::new(name).file_stem();
        return stem.is_some_and(|stem| stem.eq_ignore_ascii_case("moonlark"));
    }
    let url = entry["url"].as_str().unwrap_or_default();
    let here = ["http://localhost:7331/", "http://127.0.0.1:7331/", "http://[::1]:7331/"];
    here.iter().any(|here| url.starts_with(here))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moonlark_knows_itself() {
        for entry in [
            json!({"command": "moonlark"}),
            json!({"command": "/usr/local/bin/moonlark", "args": ["stdio"]}),
            json!({"command": "C:\\Tools\\Moonlark.exe"}),
            json!({"command": {"path": "/opt/moonlark"}}),
            json!({"url": "http://localhost:7331/mcp"}),
        ] {
            assert!(is_moonlark(&entry), "{entry}");
        }
        for entry in [
            json!({"command": "npx", "args": ["moonlark"]}),
            json!({"command": "moonlark-other"}),
            json!({"url": "http://localhost:8000/mcp"}),
            json!({"url": "https://example.com/moonlark"}),
            json!("moonlark"),
            json!(null),
        ] {
            assert!(!is_moonlark(&entry), "{entry}");
        }
    }
}
