//! How this server introduces itself to clients.

/// What the operator calls the server, and has told to whoever connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerIdentity {
    pub name: String,
    pub instructions: Option<String>,
}

impl Default for ServerIdentity {
    fn default() -> Self {
        Self { name: "moonlark".to_owned(), instructions: None }
    }
}
