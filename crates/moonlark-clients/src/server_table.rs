//! A server as a table of `moonlark.toml`.

use toml::Value;

use super::imported_server::ImportedServer;
use super::other_project::ProjectTable;

/// Longer lines are broken up.
const MAX_TOML_LINE_BYTES: usize = 100;

/// `[mcp_servers.NAME]` and what belongs to it, ending in a newline.
pub(crate) fn server_table_text(name: &str, server: &ImportedServer) -> String {
    let table = format!("mcp_servers.{name}");
    let mut lines = format!("[{table}]\n");
    let mut add = |key: &str, value: &Option<String>| {
        if let Some(value) = value {
            lines.push_str(&format!("{key} = {}\n", quote_string(value)));
        }
    };
    add("command", &server.command);
    add("url", &server.url);
    add("transport", &server.sse.then(|| "sse".to_owned()));
    if !server.args.is_empty() {
        lines.push_str(&render_list("args", &server.args));
    }
    for (key, path) in [("env_file", &server.env_file), ("cwd", &server.cwd)] {
        if let Some(path) = path {
            lines.push_str(&format!("{key} = {}\n", quote_string(path)));
        }
    }
    for (key, seconds) in [("timeout", server.timeout), ("connect_timeout", server.connect_timeout)]
    {
        if let Some(seconds) = seconds {
            lines.push_str(&format!("{key} = {seconds}\n"));
        }
    }
    for (key, tools) in [("include", &server.include), ("exclude", &server.exclude)] {
        if !tools.is_empty() {
            lines.push_str(&render_list(key, tools));
        }
    }
    // Tables of their own come last, or the keys after them would be theirs.
    let mut below = String::new();
    for (key, pairs) in [("env", &server.env), ("headers", &server.headers)] {
        if pairs.is_empty() {
            continue;
        }
        let pairs: Vec<String> = pairs
            .iter()
            .map(|(key, value)| format!("{} = {}", quote_key(key), quote_string(value)))
            .collect();
        let inline = format!("{key} = {{ {} }}\n", pairs.join(", "));
        if inline.len() <= MAX_TOML_LINE_BYTES && !inline.trim_end().contains('\n') {
            lines.push_str(&inline);
        } else {
            below.push_str(&format!("\n[{table}.{key}]\n{}\n", pairs.join("\n")));
        }
    }
    lines + &below
}

/// Another table of ours and what belongs to it, ending in a newline.
pub(crate) fn project_table_text(table: &ProjectTable) -> String {
    let inner = Value::Table(table.values.clone());
    let whole = table
        .path
        .iter()
        .rev()
        .fold(inner, |inner, key| Value::Table(toml::Table::from_iter([(key.clone(), inner)])));
    toml::to_string(&whole).unwrap_or_default()
}

/// Whether `there` has all that `new` says. Of texts with a variable only the
/// owner knows the value; they count as the same.
pub(crate) fn has_all_values(there: &Value, new: &Value) -> bool {
    match (there, new) {
        (Value::Table(there), Value::Table(new)) => new
            .iter()
            .all(|(key, new)| there.get(key).is_some_and(|there| has_all_values(there, new))),
        (Value::Array(there), Value::Array(new)) => {
            there.len() == new.len()
                && there.iter().zip(new).all(|(there, new)| has_all_values(there, new))
        }
        (Value::String(there), Value::String(new)) => {
            there == new || there.contains("${") || new.contains("${")
        }
        (there, new) => there == new,
    }
}

/// Ours may have 64 letters; some are left for a number behind it.
const MAX_SERVER_NAME_BYTES: usize = 56;

/// The name as a key of ours: letters, digits, `_` and `-`.
pub(crate) fn to_valid_name(name: &str) -> String {
    let mut valid = String::new();
    for letter in name.chars() {
        match letter {
            letter if letter.is_ascii_alphanumeric() || "_-".contains(letter) => valid.push(letter),
            _ if valid.is_empty() || valid.ends_with('-') => {}
            _ => valid.push('-'),
        }
    }
    valid.truncate(MAX_SERVER_NAME_BYTES);
    let valid = valid.trim_end_matches('-');
    if valid.is_empty() { "server".to_owned() } else { valid.to_owned() }
}

fn render_list(key: &str, items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| quote_string(item)).collect();
    let line = format!("{key} = [{}]\n", items.join(", "));
    if line.len() <= MAX_TOML_LINE_BYTES {
        return line;
    }
    let lines: String = items.iter().map(|item| format!("    {item},\n")).collect();
    format!("{key} = [\n{lines}]\n")
}

fn quote_string(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

fn quote_key(key: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    if !key.is_empty() && key.chars().all(plain) { key.to_owned() } else { quote_string(key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_server_reads_as_people_would_write_it() {
        let server = ImportedServer {
            command: Some("npx".to_owned()),
            args: vec!["-y".to_owned(), "a \"b\" \\ c".to_owned()],
            env: pairs(&[("A", "${A}"), ("odd.key", "x\ny")]),
            cwd: Some("/w".to_owned()),
            ..ImportedServer::default()
        };
        let written = server_table_text("x", &server);
        let read: Value = toml::from_str(&written).unwrap();
        let table = &read["mcp_servers"]["x"];
        assert_eq!(table["args"][1].as_str(), Some("a \"b\" \\ c"));
        assert_eq!(table["env"]["odd.key"].as_str(), Some("x\ny"));
        assert_eq!(table["cwd"].as_str(), Some("/w"));

        let server = ImportedServer {
            url: Some("https://example.com/sse".to_owned()),
            sse: true,
            headers: pairs(&[("X-Team", "a")]),
            ..ImportedServer::default()
        };
        assert_eq!(
            server_table_text("web", &server),
            "[mcp_servers.web]\nurl = \"https://example.com/sse\"\ntransport = \"sse\"\nheaders = { X-Team = \"a\" }\n"
        );
    }

    #[test]
    fn long_lines_are_broken_up() {
        let long = "x".repeat(60);
        let server = ImportedServer {
            command: Some("c".to_owned()),
            args: vec![long.clone(), long.clone()],
            env: pairs(&[("A", &long), ("B", &long)]),
            ..ImportedServer::default()
        };
        assert_eq!(
            server_table_text("n", &server),
            format!(
                "[mcp_servers.n]\ncommand = \"c\"\nargs = [\n    \"{long}\",\n    \"{long}\",\n]\n\n[mcp_servers.n.env]\nA = \"{long}\"\nB = \"{long}\"\n"
            )
        );
    }

    #[test]
    fn names_are_made_valid() {
        for (name, valid) in [
            ("github", "github"),
            ("My Server!", "My-Server"),
            ("io.github/x", "io-github-x"),
            ("größe", "gr-e"),
            ("  ", "server"),
            ("", "server"),
            (&"x".repeat(100), &"x".repeat(56)),
        ] {
            assert_eq!(to_valid_name(name), valid);
        }
    }
}
