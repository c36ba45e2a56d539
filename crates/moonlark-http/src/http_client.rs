//! The clients themselves: every one in the process is built here.

use std::sync::LazyLock;
use std::time::Duration;

use moonlark_core::{Problem, Result};
use reqwest::{Client, ClientBuilder};

static SHARED_HTTP_CLIENT: LazyLock<Result<Client>> =
    LazyLock::new(|| build_http_client(|builder| builder.timeout(SHARED_CLIENT_TIMEOUT)));
const SHARED_CLIENT_TIMEOUT: Duration = Duration::from_secs(30);
#[cfg(target_os = "linux")]
const UNREAD_DATA_TIMEOUT: Duration = Duration::from_secs(120);

/// A client that follows no redirects, with what `configure` adds.
#[expect(clippy::disallowed_methods, reason = "the place that all others use")]
pub fn build_http_client(configure: impl Fn(ClientBuilder) -> ClientBuilder) -> Result<Client> {
    install_tls_provider();
    let builder = || {
        let builder = Client::builder()
            .user_agent(concat!("moonlark/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none());
        // A server that reads nothing of what it is sent does not keep a connection.
        #[cfg(target_os = "linux")]
        let builder = builder.tcp_user_timeout(UNREAD_DATA_TIMEOUT);
        configure(builder)
    };
    // Without any root certificate on the system there is no trusted https, but
    // http must go on working.
    builder().build().or_else(|_| builder().tls_certs_only([]).build()).map_err(|error| {
        Problem::unavailable(format!("web requests cannot be made: {}", error.without_url()))
    })
}

/// For whatever is asked of a place that the operator named and that is no source:
/// one for all. Redirects are not followed: what proves who asks is for one place.
pub fn shared_http_client() -> Result<&'static Client> {
    SHARED_HTTP_CLIENT.as_ref().map_err(Clone::clone)
}

/// Choose the implementation of TLS, for clients that a library builds.
pub fn install_tls_provider() {
    // Fails only when another part of the process was first, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
