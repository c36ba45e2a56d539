//! Moonlark's entry in a client's file: added, found, removed.
//!
//! Everything else in the text stays as it is. Nothing here knows the disk.

use std::ops::Range;

use moonlark_core::{Problem, SourceLocation};
use serde_json::{Map, Value as Json};
use url::{Host, Url};

use super::config_syntax::ConfigSyntax;
use super::server_entry::{is_moonlark_entry, reached_url, shown_token, use_same_transport};
use super::syntax_tree::{SyntaxNode, SyntaxNodeKind, TextFault};
use super::{ClientApp, secret_detection, toml_text, yaml_edit};

/// Where a server of ours answers MCP.
pub const MCP_PATH: &str = "/mcp";

/// One entry of one file: whose, under which name, in which syntax.
pub struct ClientRegistration<'a> {
    pub client: ClientApp,
    pub name: &'a str,
    pub syntax: ConfigSyntax,
    /// The file as people know it.
    pub label: &'a str,
}

/// A token that a server of a client's file shows.
pub struct ShownToken {
    pub token: String,
    /// Where it is shown.
    pub url: String,
}

impl ClientRegistration<'_> {
    /// The entry of that name, whatever it is.
    pub fn find_entry(&self, text: &str) -> Result<Option<Json>, Problem> {
        let root = self.parse_text(text)?;
        Ok(root
            .as_ref()
            .and_then(|root| root.find_path(&self.entry_path()))
            .map(SyntaxNode::to_json))
    }

    /// Whether an entry of that name starts or reaches Moonlark.
    pub fn is_ours(&self, entry: &Json) -> bool {
        is_moonlark_named(self.name, entry)
    }

    pub fn not_ours_problem(&self) -> Problem {
        let message = format!("there is a server {} already, and it is not Moonlark", self.name);
        Problem::bad_request(message)
            .at_location(SourceLocation::in_file(self.label))
            .with_hint("nothing was changed; choose another name with --name")
    }

    /// `text` with the entry. Key by key where one is there, so that an `env` that
    /// somebody added to it stays.
    pub fn with_entry(&self, text: &str, entry: &Map<String, Json>) -> Result<String, Problem> {
        let text = if text.trim().is_empty() { self.client.new_file_text() } else { text };
        let whole = Json::Object(entry.clone());
        let refuse = |fault: TextFault| self.manual_edit_problem(&fault, text, entry);
        match self.find_entry(text)? {
            None | Some(Json::Null) => self.put_entry(text, &whole).map_err(refuse),
            Some(there) if !self.is_ours(&there) => Err(self.not_ours_problem()),
            Some(there) if !use_same_transport(&there, &whole) => {
                self.syntax.put_value(text, &self.entry_path(), &whole).map_err(refuse)
            }
            Some(_) => self.put_keys(text, &self.entry_path(), entry).map_err(refuse),
        }
    }

    /// `text` without servers that are behind Moonlark from now on.
    pub fn without_servers(&self, text: &str, names: &[String]) -> Result<String, Problem> {
        let mut text = text.to_owned();
        for name in names {
            let path = [self.client.servers_key(), name.as_str()];
            text = self
                .syntax
                .remove_value(&text, &path)
                .map_err(|fault| self.fault_problem(&fault, &text))?;
        }
        Ok(text)
    }

    /// `text` with what `copy` has in the place of our entry.
    pub fn without_entry(&self, text: &str, copy: &str) -> Result<String, Problem> {
        let path = self.entry_path();
        let before = self.syntax.parse(copy).ok().flatten();
        let before = before.as_ref();
        let wrong = |fault: TextFault| self.fault_problem(&fault, text);
        if before.is_some_and(|before| before.find_path(&path).is_some()) {
            return self.syntax.restore_value(text, &path, copy).map_err(wrong);
        }
        let shorter = self.syntax.remove_value(text, &path).map_err(wrong)?;
        let left = self.parse_text(&shorter)?;
        let servers = left.as_ref().and_then(|root| root.find_path(&path[..1]));
        let is_empty = servers.is_some_and(SyntaxNode::is_empty);
        let made_by_us = before.is_none_or(|before| before.get(path[0]).is_none());
        if !(is_empty && made_by_us) {
            return Ok(shorter);
        }
        self.syntax
            .remove_value(&shorter, &path[..1])
            .map_err(|fault| self.fault_problem(&fault, &shorter))
    }

    /// The servers of a text, in its order.
    pub fn server_names(&self, text: &str) -> Vec<String> {
        let root = self.syntax.parse(text).ok().flatten();
        let servers = root.as_ref().and_then(|root| root.find_path(&[self.client.servers_key()]));
        servers.map(SyntaxNode::entry_names).unwrap_or_default()
    }

    /// The tokens that servers of a text show to Moonlark, in its order.
    pub fn shown_tokens(&self, text: &str) -> Vec<ShownToken> {
        let root = self.syntax.parse(text).ok().flatten();
        let servers = root.as_ref().and_then(|root| root.find_path(&[self.client.servers_key()]));
        let entries = match servers.map(SyntaxNode::to_json) {
            Some(Json::Object(entries)) => entries.into_iter().collect(),
            Some(Json::Array(entries)) => {
                let name = |entry: &Json| entry["name"].as_str().unwrap_or_default().to_owned();
                entries.into_iter().map(|entry| (name(&entry), entry)).collect()
            }
            _ => Vec::new(),
        };
        let shown = entries.iter().filter(|(name, entry)| is_moonlark_named(name, entry));
        shown
            .filter_map(|(_, entry)| {
                let (token, url) = (shown_token(entry)?.to_owned(), reached_url(entry)?.to_owned());
                Some(ShownToken { token, url })
            })
            .collect()
    }

    /// Whether a text has what nobody else should read.
    pub fn holds_secret(&self, text: &str) -> bool {
        self.without_secrets(text) != text
    }

    /// `text` for people: the lines around ours may be those of a server with a token.
    pub fn without_secrets(&self, text: &str) -> String {
        let mut spans = Vec::new();
        if let Ok(Some(root)) = self.syntax.parse(text) {
            collect_secret_spans(&root, "", &mut spans);
        }
        spans.sort_by_key(|span| span.start);
        let mut text = text.to_owned();
        for span in spans.into_iter().rev() {
            text.replace_range(span, "\"[redacted]\"");
        }
        text
    }

    fn entry_path(&self) -> [&str; 2] {
        [self.client.servers_key(), self.name]
    }

    fn parse_text(&self, text: &str) -> Result<Option<SyntaxNode>, Problem> {
        self.syntax.parse(text).map_err(|fault| self.fault_problem(&fault, text))
    }

    /// A new entry; a list for it is made where there is none.
    fn put_entry(&self, text: &str, entry: &Json) -> Result<String, TextFault> {
        let path = self.entry_path();
        let root = self.syntax.parse(text)?;
        let servers = root.as_ref().and_then(|root| root.find_path(&path[..1]));
        if let Some(servers) = servers {
            let is_list = matches!(servers.kind, SyntaxNodeKind::Array(_));
            let is_null = matches!(servers.kind, SyntaxNodeKind::Scalar(Json::Null));
            if is_list != self.client.lists_servers()
                && !is_null
                && self.syntax == ConfigSyntax::Yaml
            {
                let what = if is_list { "a mapping" } else { "a list" };
                let message = format!("{} should be {what} here", path[0]);
                return Err(TextFault::new(servers.span.start, message));
            }
        }
        if self.client.lists_servers() && servers.is_none_or(SyntaxNode::is_empty) {
            return self.syntax.put_value(text, &path[..1], &Json::Array(vec![entry.clone()]));
        }
        self.syntax.put_value(text, &path, entry)
    }

    fn put_keys(
        &self,
        text: &str,
        path: &[&str],
        members: &Map<String, Json>,
    ) -> Result<String, TextFault> {
        let mut text = text.to_owned();
        for (key, value) in members {
            let path = [path, &[key.as_str()]].concat();
            text = match value {
                Json::Object(inner) => self.put_keys(&text, &path, inner)?,
                value => self.syntax.put_value(&text, &path, value)?,
            };
        }
        Ok(text)
    }

    fn fault_problem(&self, fault: &TextFault, text: &str) -> Problem {
        fault.to_problem(text, self.label)
    }

    /// What cannot be written is shown, so that people can.
    fn manual_edit_problem(
        &self,
        fault: &TextFault,
        text: &str,
        entry: &Map<String, Json>,
    ) -> Problem {
        let problem = self.fault_problem(fault, text);
        if !fault.is_about_edit {
            return problem;
        }
        let mut entry = Json::Object(entry.clone());
        redact_json_secrets("", &mut entry);
        let (servers, name) = (self.client.servers_key(), self.name);
        let what = match self.syntax {
            ConfigSyntax::Toml => format!("{name} = {}", toml_text::render_inline(&entry)),
            _ if self.client.lists_servers() => format!("- {}", yaml_edit::render_flow(&entry)),
            _ => format!("{name}: {}", yaml_edit::render_flow(&entry)),
        };
        problem.with_hint(format!("nothing was changed; add this to {servers} by hand: {what}"))
    }
}

/// Whether an entry of that name starts or reaches Moonlark. A server of ours may be at
/// any address of this machine; then the name has to say so.
pub fn is_moonlark_named(name: &str, entry: &Json) -> bool {
    is_moonlark_entry(entry) || (name.contains("moonlark") && is_local_mcp(entry))
}

/// Whether an entry reaches an MCP server of this machine, as ours are reached.
fn is_local_mcp(entry: &Json) -> bool {
    let Some(url) = reached_url(entry).and_then(|url| Url::parse(url).ok()) else {
        return false;
    };
    let local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    local && url.path() == MCP_PATH
}

/// The spans of secret texts under `key`. As deep as the parser went.
fn collect_secret_spans(node: &SyntaxNode, key: &str, spans: &mut Vec<Range<usize>>) {
    match &node.kind {
        SyntaxNodeKind::Object(members) => {
            members
                .iter()
                .for_each(|member| collect_secret_spans(&member.value, &member.key, spans));
        }
        SyntaxNodeKind::Array(items) => {
            let mut before = "";
            for item in items {
                match &item.kind {
                    SyntaxNodeKind::Scalar(Json::String(text)) => {
                        if secret_detection::is_secret_argument(before, text) {
                            spans.push(item.span.clone());
                        }
                        before = text;
                    }
                    _ => collect_secret_spans(item, key, spans),
                }
            }
        }
        SyntaxNodeKind::Scalar(Json::String(text)) if secret_detection::is_secret(key, text) => {
            spans.push(node.span.clone());
        }
        SyntaxNodeKind::Scalar(_) => {}
    }
}

fn redact_json_secrets(key: &str, value: &mut Json) {
    match value {
        Json::Object(members) => {
            members.iter_mut().for_each(|(key, value)| redact_json_secrets(key, value));
        }
        Json::String(text) if secret_detection::is_secret(key, text) => {
            *text = "[redacted]".to_owned()
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_address_of_this_machine_may_be_ours() {
        for (url, expected) in [
            ("http://127.0.0.1:7331/mcp", true),
            ("http://localhost:40001/mcp", true),
            ("http://[::1]:7331/mcp", true),
            ("http://localhost:7331/sse", false),
            ("https://example.com/mcp", false),
            ("not an address", false),
        ] {
            assert_eq!(is_local_mcp(&json!({ "url": url })), expected, "{url}");
            assert_eq!(is_local_mcp(&json!({ "serverUrl": url })), expected, "{url}");
        }
    }

    #[test]
    fn no_secret_of_a_file_is_shown() {
        for (syntax, text) in [
            (
                ConfigSyntax::Json,
                r#"{"a": {"env": {"TOKEN": "hunter2"}, "args": ["--key", "hunter3"]}}"#,
            ),
            (
                ConfigSyntax::Toml,
                "[a]\nargs = [\"--key\", \"hunter3\"]\nenv = { TOKEN = \"hunter2\" }\n",
            ),
            (ConfigSyntax::Toml, "a.args = ['--key=hunter3']\n[a.env]\nTOKEN = '''hunter2'''\n"),
            (ConfigSyntax::Yaml, "a:\n  env: {TOKEN: hunter2}\n  args:\n  - --key\n  - hunter3\n"),
            (
                ConfigSyntax::Yaml,
                "a:\n  env:\n    TOKEN: |\n      hunter2\n  args: ['--key', \"hunter3\"]\n",
            ),
        ] {
            let place =
                ClientRegistration { client: ClientApp::Goose, name: "x", syntax, label: "f" };
            let shown = place.without_secrets(text);
            assert!(!shown.contains("hunter") && shown.contains("TOKEN"), "{shown}");
        }
    }
}
