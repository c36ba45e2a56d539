//! Key paths in the document, as a reader would write them.

use std::fmt;

/// `tools.script.jira.headers[0]`; a key that TOML would quote is quoted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct ConfigKeyPath(Vec<KeyPathSegment>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum KeyPathSegment {
    Key(String),
    Index(usize),
}

impl ConfigKeyPath {
    pub(super) fn from_keys<const N: usize>(keys: [&str; N]) -> Self {
        Self(keys.map(|key| KeyPathSegment::Key(key.to_owned())).into())
    }

    pub(super) fn push_key(&mut self, key: &str) {
        self.0.push(KeyPathSegment::Key(key.to_owned()));
    }

    pub(super) fn push_index(&mut self, index: usize) {
        self.0.push(KeyPathSegment::Index(index));
    }

    pub(super) fn pop(&mut self) {
        self.0.pop();
    }

    pub(super) fn depth(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The names on the way, without the places in arrays.
    pub(super) fn key_names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|segment| match segment {
            KeyPathSegment::Key(key) => Some(key.as_str()),
            KeyPathSegment::Index(_) => None,
        })
    }

    /// The path without its first `count` segments.
    pub(super) fn skip_segments(&self, count: usize) -> Self {
        Self(self.0.iter().skip(count).cloned().collect())
    }

    /// The path with `key` after it, for a value that is not there.
    pub(super) fn with_key(&self, key: &str) -> Self {
        let mut path = self.clone();
        path.push_key(key);
        path
    }

    /// The first `count` segments of the path.
    pub(super) fn first_segments(&self, count: usize) -> Self {
        Self(self.0.iter().take(count).cloned().collect())
    }

    /// Whether it is `other`, or below it.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// Whether it is a place in an array.
    pub(super) fn is_array_item(&self) -> bool {
        matches!(self.0.last(), Some(KeyPathSegment::Index(_)))
    }

    /// The table of one source that the value belongs to: that of a script, a server,
    /// an API or a connector, or of the knowledge base.
    pub(super) fn source_table(&self) -> Option<Self> {
        let mut names = self.key_names();
        let depth = match names.next()? {
            "knowledge" => 1,
            "mcp_servers" | "apis" => 2,
            "tools" | "extensions" | "agents" if names.next() == Some("script") => 3,
            "connectors" if matches!(names.next(), Some("script" | "filesystem" | "git")) => 3,
            _ => return None,
        };
        (self.depth() > depth).then(|| self.first_segments(depth))
    }

    /// The last segment: what stands left of the equals sign.
    pub(super) fn last_segment(&self) -> Self {
        self.skip_segments(self.0.len().saturating_sub(1))
    }
}

impl fmt::Display for ConfigKeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                KeyPathSegment::Index(index) => write!(f, "[{index}]")?,
                KeyPathSegment::Key(key) => {
                    f.write_str(if position == 0 { "" } else { "." })?;
                    write_key(f, key)?;
                }
            }
        }
        Ok(())
    }
}

fn write_key(f: &mut fmt::Formatter<'_>, key: &str) -> fmt::Result {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(bare) { f.write_str(key) } else { write!(f, "{key:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_as_toml_would_write_it() {
        let mut path = ConfigKeyPath::from_keys(["tools", "my tool", "", "a-b"]);
        path.push_index(3);
        path.push_key("c.d");
        assert_eq!(path.to_string(), r#"tools."my tool"."".a-b[3]."c.d""#);
        assert_eq!(path.skip_segments(3).to_string(), r#"a-b[3]."c.d""#);
        assert_eq!(path.last_segment().to_string(), r#""c.d""#);
        assert_eq!(ConfigKeyPath::default().to_string(), "");
    }
}
