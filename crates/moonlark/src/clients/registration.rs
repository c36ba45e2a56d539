//! Moonlark's entry in the text of a client's file: put in, found, taken out again.
//!
//! Everything else in the text stays as it is. Nothing here knows the disk.

use std::ops::Range;

use moonlark_core::{Place, Problem};
use serde_json::{Map, Value as Json};
use url::{Host, Url};

use super::config_text::ConfigSyntax;
use super::entry::{go_the_same_way, is_moonlark, reached_url};
use super::syntax_tree::{NodeKind, SyntaxNode, TextFault};
use super::{Client, secret, toml_text, yaml_edit};

/// Where a server of ours answers MCP.
pub(crate) const MCP_PATH: &str = "/mcp";

/// One entry of one file: whose, under which name, in which syntax.
pub(crate) struct Registration<'a> {
    pub(crate) client: Client,
    pub(crate) name: &'a str,
    pub(crate) syntax: ConfigSyntax,
    /// The file as people know it.
    pub(crate) label: &'a str,
}

impl Registration<'_> {
    /// The entry of that name, whatever it is.
    pub(crate) fn find(&self, text: &str) -> Result<Option<Json>, Problem> {
        let root = self.parse(text)?;
        Ok(root.as_ref().and_then(|root| root.find(&self.path())).map(SyntaxNode::to_json))
    }

    /// Whether an entry of that name starts or reaches Moonlark.
    pub(crate) fn is_ours(&self, entry: &Json) -> bool {
        is_moonlark_named(self.name, entry)
    }

    pub(crate) fn not_ours(&self) -> Problem {
        let message = format!("there is a server {} already, and it is not Moonlark", self.name);
        Problem::bad_request(message)
            .at(Place::file(self.label))
            .hint("nothing was changed; choose another name with --name")
    }

    /// `text` with the entry. Key by key where one is there, so that an `env` that
    /// somebody added to it stays.
    pub(crate) fn with_entry(
        &self,
        text: &str,
        entry: &Map<String, Json>,
    ) -> Result<String, Problem> {
        let text = if text.trim().is_empty() { self.client.new_file() } else { text };
        let whole = Json::Object(entry.clone());
        let refuse = |fault: TextFault| self.by_hand(&fault, text, entry);
        match self.find(text)? {
            None | Some(Json::Null) => self.put_entry(text, &whole).map_err(refuse),
            Some(there) if !self.is_ours(&there) => Err(self.not_ours()),
            Some(there) if !go_the_same_way(&there, &whole) => {
                self.syntax.put(text, &self.path(), &whole).map_err(refuse)
            }
            Some(_) => self.put_keys(text, &self.path(), entry).map_err(refuse),
        }
    }

    /// `text` without servers that are behind Moonlark from now on.
    pub(crate) fn without_servers(&self, text: &str, names: &[String]) -> Result<String, Problem> {
        let mut text = text.to_owned();
        for name in names {
            let path = [self.client.servers_key(), name.as_str()];
            text = self.syntax.remove(&text, &path).map_err(|fault| self.wrong(&fault, &text))?;
        }
        Ok(text)
    }

    /// `text` with what `copy` has in the place of our entry.
    pub(crate) fn without_entry(&self, text: &str, copy: &str) -> Result<String, Problem> {
        let path = self.path();
        let before = self.syntax.parse(copy).ok().flatten();
        let before = before.as_ref();
        let wrong = |fault: TextFault| self.wrong(&fault, text);
        if before.is_some_and(|before| before.find(&path).is_some()) {
            return self.syntax.restore(text, &path, copy).map_err(wrong);
        }
        let shorter = self.syntax.remove(text, &path).map_err(wrong)?;
        let left = self.parse(&shorter)?;
        let servers = left.as_ref().and_then(|root| root.find(&path[..1]));
        let is_empty = servers.is_some_and(SyntaxNode::is_empty);
        let made_by_us = before.is_none_or(|before| before.get(path[0]).is_none());
        if !(is_empty && made_by_us) {
            return Ok(shorter);
        }
        self.syntax.remove(&shorter, &path[..1]).map_err(|fault| self.wrong(&fault, &shorter))
    }

    /// The servers of a text, in its order.
    pub(crate) fn server_names(&self, text: &str) -> Vec<String> {
        let root = self.syntax.parse(text).ok().flatten();
        let servers = root.as_ref().and_then(|root| root.find(&[self.client.servers_key()]));
        servers.map(SyntaxNode::names).unwrap_or_default()
    }

    /// `text` for people: the lines around ours may be those of a server with a token.
    pub(crate) fn without_secrets(&self, text: &str) -> String {
        let mut spans = Vec::new();
        if let Ok(Some(root)) = self.syntax.parse(text) {
            collect_secrets(&root, "", &mut spans);
        }
        spans.sort_by_key(|span| span.start);
        let mut text = text.to_owned();
        for span in spans.into_iter().rev() {
            text.replace_range(span, "\"[redacted]\"");
        }
        text
    }

    fn path(&self) -> [&str; 2] {
        [self.client.servers_key(), self.name]
    }

    fn parse(&self, text: &str) -> Result<Option<SyntaxNode>, Problem> {
        self.syntax.parse(text).map_err(|fault| self.wrong(&fault, text))
    }

    /// A new entry; a list for it is made where there is none.
    fn put_entry(&self, text: &str, entry: &Json) -> Result<String, TextFault> {
        let path = self.path();
        let root = self.syntax.parse(text)?;
        let servers = root.as_ref().and_then(|root| root.find(&path[..1]));
        if let Some(servers) = servers {
            let is_list = matches!(servers.kind, NodeKind::Array(_));
            let is_null = matches!(servers.kind, NodeKind::Scalar(Json::Null));
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
            return self.syntax.put(text, &path[..1], &Json::Array(vec![entry.clone()]));
        }
        self.syntax.put(text, &path, entry)
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
                value => self.syntax.put(&text, &path, value)?,
            };
        }
        Ok(text)
    }

    fn wrong(&self, fault: &TextFault, text: &str) -> Problem {
        fault.problem(text, self.label)
    }

    /// What cannot be written is shown, so that people can.
    fn by_hand(&self, fault: &TextFault, text: &str, entry: &Map<String, Json>) -> Problem {
        let problem = self.wrong(fault, text);
        if !fault.is_about_edit {
            return problem;
        }
        let mut entry = Json::Object(entry.clone());
        hide_secrets("", &mut entry);
        let (servers, name) = (self.client.servers_key(), self.name);
        let what = match self.syntax {
            ConfigSyntax::Toml => format!("{name} = {}", toml_text::line(&entry)),
            _ if self.client.lists_servers() => format!("- {}", yaml_edit::line(&entry)),
            _ => format!("{name}: {}", yaml_edit::line(&entry)),
        };
        problem.hint(format!("nothing was changed; add this to {servers} by hand: {what}"))
    }
}

/// Whether an entry of that name starts or reaches Moonlark. A server of ours may be at
/// any address of this machine; then the name has to say so.
pub(crate) fn is_moonlark_named(name: &str, entry: &Json) -> bool {
    is_moonlark(entry) || (name.contains("moonlark") && is_local(entry))
}

/// Whether an entry reaches an MCP server of this machine, as ours are reached.
fn is_local(entry: &Json) -> bool {
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
fn collect_secrets(node: &SyntaxNode, key: &str, spans: &mut Vec<Range<usize>>) {
    match &node.kind {
        NodeKind::Object(members) => {
            members.iter().for_each(|member| collect_secrets(&member.value, &member.key, spans));
        }
        NodeKind::Array(items) => {
            let mut before = "";
            for item in items {
                match &item.kind {
                    NodeKind::Scalar(Json::String(text)) => {
                        if secret::is_secret_argument(before, text) {
                            spans.push(item.span.clone());
                        }
                        before = text;
                    }
                    _ => collect_secrets(item, key, spans),
                }
            }
        }
        NodeKind::Scalar(Json::String(text)) if secret::is_secret(key, text) => {
            spans.push(node.span.clone());
        }
        NodeKind::Scalar(_) => {}
    }
}

fn hide_secrets(key: &str, value: &mut Json) {
    match value {
        Json::Object(members) => {
            members.iter_mut().for_each(|(key, value)| hide_secrets(key, value));
        }
        Json::String(text) if secret::is_secret(key, text) => *text = "[redacted]".to_owned(),
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
            assert_eq!(is_local(&json!({ "url": url })), expected, "{url}");
            assert_eq!(is_local(&json!({ "serverUrl": url })), expected, "{url}");
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
            let place = Registration { client: Client::Goose, name: "x", syntax, label: "f" };
            let shown = place.without_secrets(text);
            assert!(!shown.contains("hunter") && shown.contains("TOKEN"), "{shown}");
        }
    }
}
