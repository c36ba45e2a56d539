//! APIs by their OpenAPI documents: every operation is a tool.
//!
//! A document is walked tolerantly, one operation at a time: what cannot be
//! used is named and left out, and never takes the rest with it. What follows,
//! in the order of a call: [`operation_input`] says what arguments look like,
//! [`request_builder`] makes a request of them, [`api_credentials`] adds
//! who we are, [`api_exchange`] sends it, [`api_response`] reads what
//! comes back.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)
)]

mod api_credentials;
mod api_error_body;
mod api_exchange;
mod api_rate_limiter;
mod api_response;
mod api_tools;
mod client_credentials;
mod document_loader;
mod document_tree;
mod openapi_document;
mod operation;
mod operation_input;
mod operation_output;
mod operation_rules;
mod pagination;
mod param_style;
mod parameter;
mod request_body;
mod request_builder;
mod schema_converter;
mod secret_origins;
mod swagger;
#[cfg(test)]
mod tests;

pub use api_credentials::{ApiCredential, ApiCredentials};
pub use api_rate_limiter::CallRate;
pub use api_tools::{ApiSettings, build_api_tools};
pub use client_credentials::ClientCredentials;
pub use document_loader::{LoadedOpenApiDocument, RefPermission, SpecLocation, load_document};
pub use document_tree::{DocumentTree, TreeNode};
pub use openapi_document::{OpenApiDocument, parse_document};
pub use operation_rules::OperationRule;
pub use secret_origins::{AuthHost, OriginMemory};
