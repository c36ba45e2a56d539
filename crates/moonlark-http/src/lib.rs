//! HTTP clients: the one place that builds them, and what all who use one share.
//!
//! [`build_http_client`] sets up certificates, redirects and the name we give ourselves.
//! The rest is rules that hold for every server: how a body is read within a bound, when
//! to try again, where a redirect leads, what an error goes back to.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)
)]

mod error_cause;
mod http_client;
mod redirect;
mod request_authorizer;
mod request_body;
mod response_body;
mod retry;
mod trace_headers;

pub use error_cause::{innermost_error, innermost_error_text};
pub use http_client::{build_http_client, install_tls_provider, shared_http_client};
pub use redirect::{becomes_get, is_redirect, location_url};
pub use request_authorizer::RequestAuthorizer;
pub use request_body::send_with_body;
pub use response_body::{BodyReadError, join_challenges, read_body, read_body_start};
pub use retry::{RetryBackoff, retry_after, retry_after_seconds};
pub use trace_headers::add_trace_headers;
