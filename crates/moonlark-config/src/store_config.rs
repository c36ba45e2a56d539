//! `[store]`: the file of the knowledge base.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The SQLite file of the knowledge base. The journal is beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// `sqlite:` and the path of the file.
    #[schemars(length(min = 1))]
    pub url: String,
}

const SQLITE_URL_SCHEME: &str = "sqlite:";

impl Default for StoreConfig {
    fn default() -> Self {
        Self { url: format!("{SQLITE_URL_SCHEME}.moonlark/moonlark.db") }
    }
}

impl StoreConfig {
    /// The file, seen from the project.
    pub fn sqlite_file(&self, root: &Path) -> PathBuf {
        root.join(sqlite_path(&self.url))
    }

    /// What no schema says. The key, and what is wrong.
    pub fn find_faults(&self) -> Vec<(&'static str, String)> {
        let message = match self.url.split_once(':').map(|(scheme, _)| scheme) {
            Some("sqlite") if !sqlite_path(&self.url).is_empty() => return Vec::new(),
            Some("sqlite") => "names no file: write \"sqlite:PATH\"",
            Some("postgres" | "postgresql") => {
                "this version of Moonlark cannot keep its data in PostgreSQL yet: write \"sqlite:PATH\""
            }
            _ => "must be \"sqlite:\" and the path of a file",
        };
        vec![("url", message.to_owned())]
    }
}

/// `sqlite:x.db`, `sqlite:///var/x.db` and `sqlite://x.db` alike.
fn sqlite_path(url: &str) -> &str {
    let rest = url.strip_prefix(SQLITE_URL_SCHEME).unwrap_or(url);
    rest.strip_prefix("//").unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_file_or_says_what_is_wrong() {
        for (url, file) in [
            ("sqlite:a/b.db", "/p/a/b.db"),
            ("sqlite:/var/b.db", "/var/b.db"),
            ("sqlite:///var/b.db", "/var/b.db"),
            ("sqlite://b.db", "/p/b.db"),
        ] {
            let store = StoreConfig { url: url.to_owned() };
            assert_eq!(store.sqlite_file(Path::new("/p")), Path::new(file), "{url}");
            assert_eq!(store.find_faults(), [], "{url}");
        }
        for (url, word) in [
            ("postgres://localhost/x", "PostgreSQL yet"),
            ("postgresql://localhost/x", "PostgreSQL yet"),
            ("sqlite:", "names no file"),
            ("sqlite://", "names no file"),
            ("mysql://x", "must be"),
            ("x.db", "must be"),
        ] {
            let faults = StoreConfig { url: url.to_owned() }.find_faults();
            assert!(faults[0].1.contains(word), "{url}: {faults:?}");
        }
    }
}
