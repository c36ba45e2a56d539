//! How each client writes one server: Moonlark's entry in its file, and what an entry
//! of any of them starts or reaches.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};

use super::ClientApp;

/// Seconds that goose waits for an answer; it wants the key in new entries.
const GOOSE_TIMEOUT_SECS: u32 = 300;

/// Keys that hold a command or an address, each of which is another way to a server.
const TRANSPORT_KEYS: [&str; 7] =
    ["command", "cmd", "url", "httpUrl", "serverUrl", "uri", "transport"];

impl ClientApp {
    /// How a server that it starts is written there. `path` is where the server finds
    /// programs: a client of the desktop knows hardly any folder.
    pub fn stdio_entry(
        self,
        name: &str,
        command: &str,
        args: &[String],
        path: Option<&str>,
    ) -> Map<String, Json> {
        let mut entry = self.entry_head(name, "stdio");
        match self {
            ClientApp::Opencode => {
                let mut line = vec![command.to_owned()];
                line.extend_from_slice(args);
                entry.insert("command".to_owned(), json!(line));
            }
            ClientApp::Goose => {
                entry.insert("cmd".to_owned(), json!(command));
                entry.insert("args".to_owned(), json!(args));
                entry.insert("timeout".to_owned(), json!(GOOSE_TIMEOUT_SECS));
            }
            _ => {
                entry.insert("command".to_owned(), json!(command));
                entry.insert("args".to_owned(), json!(args));
            }
        }
        let env_key = match self {
            ClientApp::Opencode => Some("environment"),
            // It takes no PATH from its file, and looks for programs itself.
            ClientApp::Goose => None,
            _ => Some("env"),
        };
        if let (Some(key), Some(path)) = (env_key, path) {
            entry.insert(key.to_owned(), json!({ "PATH": path }));
        }
        self.add_entry_tail(&mut entry);
        entry
    }

    /// How a server that runs is written there; none if it cannot be.
    pub fn http_entry(
        self,
        name: &str,
        url: &str,
        token: Option<&str>,
    ) -> Option<Map<String, Json>> {
        // It starts its servers itself.
        if self == ClientApp::ClaudeDesktop {
            return None;
        }
        let mut entry = self.entry_head(name, "http");
        let url_key = match self {
            ClientApp::Gemini | ClientApp::Qwen => "httpUrl",
            ClientApp::Windsurf => "serverUrl",
            ClientApp::Goose => "uri",
            _ => "url",
        };
        entry.insert(url_key.to_owned(), json!(url));
        if let Some(token) = token {
            let headers = json!({ "Authorization": format!("Bearer {token}") });
            match self {
                ClientApp::Codex => entry.insert("http_headers".to_owned(), headers),
                ClientApp::Continue => {
                    entry.insert("requestOptions".to_owned(), json!({ "headers": headers }))
                }
                _ => entry.insert("headers".to_owned(), headers),
            };
        }
        if self == ClientApp::Goose {
            entry.insert("timeout".to_owned(), json!(GOOSE_TIMEOUT_SECS));
        }
        self.add_entry_tail(&mut entry);
        Some(entry)
    }

    /// What stands in front of command or address: the kind of server, and its name.
    fn entry_head(self, name: &str, way: &str) -> Map<String, Json> {
        let is_stdio = way == "stdio";
        let mut entry = Map::new();
        let mut add = |key: &str, value: &str| entry.insert(key.to_owned(), json!(value));
        match self {
            ClientApp::Vscode | ClientApp::ClaudeCode => {
                add("type", way);
            }
            ClientApp::Cursor if is_stdio => {
                add("type", way);
            }
            // Versions before the end of 2025 ask for it, later ones ignore it.
            ClientApp::Zed if is_stdio => {
                add("source", "custom");
            }
            ClientApp::Opencode => {
                add("type", if is_stdio { "local" } else { "remote" });
            }
            // Without it, an address is one of the old transport.
            ClientApp::Cline => {
                add("type", if is_stdio { "stdio" } else { "streamableHttp" });
            }
            ClientApp::Continue => {
                add("name", name);
                add("type", if is_stdio { "stdio" } else { "streamable-http" });
            }
            ClientApp::Goose => {
                entry.insert("enabled".to_owned(), json!(true));
                entry.insert("type".to_owned(), json!(goose_type(is_stdio)));
                entry.insert("name".to_owned(), json!(name));
            }
            _ => {}
        }
        entry
    }

    fn add_entry_tail(self, entry: &mut Map<String, Json>) {
        if self == ClientApp::Opencode {
            entry.insert("enabled".to_owned(), json!(true));
        }
    }
}

fn goose_type(is_stdio: bool) -> &'static str {
    if is_stdio { "stdio" } else { "streamable_http" }
}

/// The program that an entry starts.
pub(crate) fn started_command(entry: &Json) -> Option<&str> {
    let command = ["command", "cmd"].iter().find_map(|key| entry.get(*key));
    match command.or_else(|| entry["transport"].get("command"))? {
        // Zed once had path and arguments in it.
        Json::Object(command) => command.get("path").and_then(Json::as_str),
        Json::Array(line) => line.first().and_then(Json::as_str),
        command => command.as_str(),
    }
}

/// The address that an entry reaches.
pub fn reached_url(entry: &Json) -> Option<&str> {
    let url = ["httpUrl", "url", "serverUrl", "uri"].iter().find_map(|key| entry.get(*key));
    url.or_else(|| entry["transport"].get("url"))?.as_str()
}

/// The token that an entry shows there.
pub fn shown_token(entry: &Json) -> Option<&str> {
    let headers = [&entry["headers"], &entry["http_headers"], &entry["requestOptions"]["headers"]];
    let header = headers.iter().find_map(|headers| headers["Authorization"].as_str())?;
    header.strip_prefix("Bearer ")
}

/// Whether both get to their server the same way, so that one can become the other
/// key by key.
pub(crate) fn use_same_transport(one: &Json, other: &Json) -> bool {
    TRANSPORT_KEYS.iter().all(|key| one.get(*key).is_some() == other.get(*key).is_some())
}

/// Whether an entry of a client's file starts, or reaches, Moonlark itself.
pub(crate) fn is_moonlark_entry(entry: &Json) -> bool {
    if let Some(command) = started_command(entry) {
        // Paths of either system, whichever this is.
        let name = command.rsplit(['/', '\\']).next().unwrap_or_default();
        let stem = Path::new(name).file_stem();
        return stem.is_some_and(|stem| stem.eq_ignore_ascii_case("moonlark"));
    }
    let url = reached_url(entry).unwrap_or_default();
    let here = ["http://localhost:7331/", "http://127.0.0.1:7331/", "http://[::1]:7331/"];
    here.iter().any(|here| url.starts_with(here))
}

/// The configuration that a Moonlark is started with.
pub fn config_argument(entry: &Json) -> Option<PathBuf> {
    let line = match (&entry["command"], &entry["args"]) {
        (Json::Array(line), _) | (_, Json::Array(line)) => line,
        _ => entry["transport"]["args"].as_array()?,
    };
    let mut words = line.iter().filter_map(Json::as_str).skip_while(|word| *word != "--config");
    words.nth(1).map(PathBuf::from)
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
            json!({"command": ["/opt/moonlark", "stdio"], "type": "local"}),
            json!({"cmd": "moonlark", "args": []}),
            json!({"transport": {"type": "stdio", "command": "moonlark"}}),
            json!({"url": "http://localhost:7331/mcp"}),
            json!({"httpUrl": "http://127.0.0.1:7331/mcp"}),
            json!({"serverUrl": "http://[::1]:7331/mcp"}),
            json!({"uri": "http://localhost:7331/mcp"}),
        ] {
            assert!(is_moonlark_entry(&entry), "{entry}");
        }
        for entry in [
            json!({"command": "npx", "args": ["moonlark"]}),
            json!({"command": ["npx", "moonlark"]}),
            json!({"command": "moonlark-other"}),
            json!({"url": "http://localhost:8000/mcp"}),
            json!({"url": "https://example.com/moonlark"}),
            json!("moonlark"),
            json!(null),
        ] {
            assert!(!is_moonlark_entry(&entry), "{entry}");
        }
    }

    #[test]
    fn the_project_of_an_entry_is_in_its_arguments() {
        for (entry, config) in [
            (
                json!({"command": "m", "args": ["stdio", "--config", "/w/a.toml"]}),
                Some("/w/a.toml"),
            ),
            (json!({"command": ["m", "stdio", "--config", "/w/a.toml"]}), Some("/w/a.toml")),
            (json!({"command": "m", "args": ["stdio", "--config"]}), None),
            (json!({"command": "m", "args": ["stdio"]}), None),
            (json!({"url": "http://localhost:7331/mcp"}), None),
        ] {
            assert_eq!(config_argument(&entry).as_deref(), config.map(Path::new), "{entry}");
        }
    }
}
