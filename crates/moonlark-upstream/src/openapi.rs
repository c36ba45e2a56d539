//! APIs by their OpenAPI documents: every operation is a tool.
//!
//! A document is walked tolerantly, one operation at a time: what cannot be
//! used is named and left out, and never takes the rest with it. What follows,
//! in the order of a call: [`input`](input) says what arguments look like,
//! [`request`](request) makes a request of them, [`security`](security) adds
//! who we are, [`exchange`](exchange) sends it, [`answer`](answer) reads what
//! comes back.

mod answer;
mod api;
mod body;
mod document;
mod exchange;
mod failure;
mod input;
mod load;
mod operation;
mod output;
mod pace;
mod pages;
mod parameter;
mod request;
mod rules;
mod schema;
mod secret_home;
mod security;
mod style;
mod swagger;
#[cfg(test)]
mod tests;
mod tokens;
mod tree;

pub use api::{ApiSettings, build_api_tools};
pub use document::{OpenApiDocument, parse_document};
pub use load::{LoadedOpenApiDocument, RefPermission, SpecLocation, load_document};
pub use pace::CallRate;
pub use rules::OperationRule;
pub use secret_home::{AuthHost, OriginMemory};
pub use security::{ApiCredential, ApiCredentials};
pub use tokens::ClientCredentials;
pub use tree::{DocumentTree, TreeNode};
