//! Who makes a call.

use std::sync::Arc;

use serde::Serialize;

/// Which way in a call came, and who made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Caller {
    /// `mcp`, `rest` or `cli`; what Moonlark calls by itself has `load`, `resume`, `sync`, `test` or `worker`.
    pub surface: &'static str,
    /// The name that rules know it by, where it has shown who it is.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_name")]
    pub name: Option<Arc<str>>,
    /// The client's own name for itself, where it gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

fn serialize_name<S: serde::Serializer>(name: &Option<Arc<str>>, to: S) -> Result<S::Ok, S::Error> {
    name.as_deref().serialize(to)
}

/// Callers that have no name of their own.
pub const ANONYMOUS_CALLER: &str = "anonymous";
pub const LOCAL_CALLER: &str = "local";

impl Caller {
    pub fn new(surface: &'static str) -> Self {
        Self { surface, name: None, client: None }
    }

    /// The same, known to be `name`.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The name that rules know it by. Who has not shown who it is, is nobody,
    /// unless it is surely at this machine.
    pub fn name(&self) -> &str {
        match (&self.name, self.surface) {
            (Some(name), _) => name,
            (None, "cli" | "test" | "load" | "worker" | "sync") => LOCAL_CALLER,
            (None, _) => ANONYMOUS_CALLER,
        }
    }
}
