//! `[store]`: where everything that lasts is kept.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where what lasts is kept: one file, with the knowledge base in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// `sqlite:` and the path of the file.
    #[schemars(length(min = 1))]
    pub url: String,
}

const SCHEME: &str = "sqlite:";

impl Default for Store {
    fn default() -> Self {
        Self { url: format!("{SCHEME}.moonlark/moonlark.db") }
    }
}

impl Store {
    /// The file, seen from the project.
    pub fn file(&self, root: &Path) -> PathBuf {
        root.join(path(&self.url))
    }

    /// What no schema says. The key, and what is wrong.
    pub(crate) fn faults(&self) -> Vec<(&'static str, String)> {
        let message = match self.url.split_once(':').map(|(scheme, _)| scheme) {
            Some("sqlite") if !path(&self.url).is_empty() => return Vec::new(),
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
fn path(url: &str) -> &str {
    let rest = url.strip_prefix(SCHEME).unwrap_or(url);
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
            let store = Store { url: url.to_owned() };
            assert_eq!(store.file(Path::new("/p")), Path::new(file), "{url}");
            assert_eq!(store.faults(), [], "{url}");
        }
        for (url, word) in [
            ("postgres://localhost/x", "PostgreSQL yet"),
            ("postgresql://localhost/x", "PostgreSQL yet"),
            ("sqlite:", "names no file"),
            ("sqlite://", "names no file"),
            ("mysql://x", "must be"),
            ("x.db", "must be"),
        ] {
            let faults = Store { url: url.to_owned() }.faults();
            assert!(faults[0].1.contains(word), "{url}: {faults:?}");
        }
    }
}
