//! The way to a value in the document, as a reader would write it.

use std::fmt;

/// `tools.script.jira.headers[0]`; a key that TOML would quote is quoted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct KeyPath(Vec<Segment>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    Key(String),
    Index(usize),
}

impl KeyPath {
    pub(super) fn of<const N: usize>(keys: [&str; N]) -> Self {
        Self(keys.map(|key| Segment::Key(key.to_owned())).into())
    }

    pub(super) fn key(&mut self, key: &str) {
        self.0.push(Segment::Key(key.to_owned()));
    }

    pub(super) fn index(&mut self, index: usize) {
        self.0.push(Segment::Index(index));
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
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|segment| match segment {
            Segment::Key(key) => Some(key.as_str()),
            Segment::Index(_) => None,
        })
    }

    /// The path without its first `count` segments.
    pub(super) fn skip(&self, count: usize) -> Self {
        Self(self.0.iter().skip(count).cloned().collect())
    }

    /// The path with `key` after it, for a value that is not there.
    pub(super) fn with(&self, key: &str) -> Self {
        let mut path = self.clone();
        path.key(key);
        path
    }

    /// The first `count` segments of the path.
    pub(super) fn first(&self, count: usize) -> Self {
        Self(self.0.iter().take(count).cloned().collect())
    }

    /// Whether it is `other`, or below it.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// Whether it is a place in an array.
    pub(super) fn is_item(&self) -> bool {
        matches!(self.0.last(), Some(Segment::Index(_)))
    }

    /// The table of one source that the value belongs to: that of a script, a server,
    /// an API or a connector, or of the knowledge base.
    pub(super) fn source_table(&self) -> Option<Self> {
        let mut names = self.names();
        let depth = match names.next()? {
            "knowledge" => 1,
            "mcp_servers" | "apis" => 2,
            "tools" | "extensions" | "agents" if names.next() == Some("script") => 3,
            "connectors" if matches!(names.next(), Some("script" | "filesystem" | "git")) => 3,
            _ => return None,
        };
        (self.depth() > depth).then(|| self.first(depth))
    }

    /// The last segment: what stands left of the equals sign.
    pub(super) fn last(&self) -> Self {
        self.skip(self.0.len().saturating_sub(1))
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) => {
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
        let mut path = KeyPath::of(["tools", "my tool", "", "a-b"]);
        path.index(3);
        path.key("c.d");
        assert_eq!(path.to_string(), r#"tools."my tool"."".a-b[3]."c.d""#);
        assert_eq!(path.skip(3).to_string(), r#"a-b[3]."c.d""#);
        assert_eq!(path.last().to_string(), r#""c.d""#);
        assert_eq!(KeyPath::default().to_string(), "");
    }
}
