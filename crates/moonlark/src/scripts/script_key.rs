//! Keys of scripts: what a script is known by from one look at the disk to the next.

use std::cmp::Ordering;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What a script is known by from one look at the disk to the next.
#[derive(Debug, Clone)]
pub(crate) enum ScriptKey {
    /// A tool or an extension, by its file.
    Script(PathBuf),
    /// A connector, by its name.
    Connector(String),
    /// A prompt, by its file.
    Agent(PathBuf),
    /// A saved script, by its file.
    Saved(PathBuf),
}

impl ScriptKey {
    /// The text of the path, or the name, with a number for what it is: paths themselves are
    /// compared part by part, which takes longer than anything else with many scripts.
    fn order(&self) -> (u8, &[u8]) {
        match self {
            ScriptKey::Script(path) => (0, path.as_os_str().as_bytes()),
            ScriptKey::Connector(name) => (1, name.as_bytes()),
            ScriptKey::Agent(path) => (2, path.as_os_str().as_bytes()),
            ScriptKey::Saved(path) => (3, path.as_os_str().as_bytes()),
        }
    }

    /// By its ending.
    pub(crate) fn is_starlark(&self) -> bool {
        matches!(self, ScriptKey::Script(path) if path.extension().is_some_and(|it| it == "star"))
    }
}

impl Ord for ScriptKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for ScriptKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ScriptKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ScriptKey {}
