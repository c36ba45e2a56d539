//! How this server introduces itself to clients.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the operator calls the server, and has told to whoever connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerIdentity {
    pub name: String,
    pub instructions: Option<String>,
    pub schemas: ListedSchemas,
}

/// The form in which clients are told the schemas of tools. The variants have plain
/// comments: with others, the schema of the configuration would not be a list of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum ListedSchemas {
    // As every model and every framework takes them.
    #[default]
    Portable,
    // As they were written.
    Exact,
}

impl Default for ServerIdentity {
    fn default() -> Self {
        Self { name: "moonlark".to_owned(), instructions: None, schemas: ListedSchemas::default() }
    }
}
