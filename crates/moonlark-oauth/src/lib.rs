//! Authentication to upstreams: which token goes with a request, where it comes
//! from, and where it is kept.
//!
//! [`build_authorizer`] gives the transport something to ask. While Moonlark serves,
//! nothing here waits for a person: what only a person can do is a Problem that
//! names `moonlark login`, which is [`log_in_to_upstream`]. Nothing here knows what is said
//! to an upstream once it lets us in.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)
)]

mod auth_config;
mod auth_http;
mod login;
mod login_problems;
mod login_record;
mod login_store;
mod oauth_flow;
mod oauth_session;
mod redirect_listener;
mod static_auth;
mod step_up_limiter;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use moonlark_core::secret::Secrets;
use moonlark_http::RequestAuthorizer;
use parking_lot::Mutex;
use url::Url;

pub use auth_config::{BearerTokenSource, OAuthConfig, OAuthGrantType, UpstreamAuthConfig};
pub use auth_http::fetch_provider_document;
pub use login::{
    LoginOutcome, LoginPrompt, LogoutOutcome, RevocationOutcome, log_in_to_upstream,
    log_out_of_upstream, open_browser,
};

use oauth_session::OAuthAuthorizer;
use static_auth::{StaticAuthorizer, StaticCredential, TokenFile};

/// An upstream, as far as logging in to it goes.
#[derive(Debug, Clone)]
pub struct UpstreamAccount {
    /// What the operator calls it.
    pub name: String,
    pub url: Url,
    pub auth: UpstreamAuthConfig,
    /// Where Moonlark keeps things; logins are in `auth/` in there.
    pub state_dir: PathBuf,
    /// What relative paths in the configuration are relative to.
    pub base_dir: PathBuf,
    /// Answer for the person, by following the redirect of a test identity
    /// provider that asks nobody. Never so in a build that is not for tests.
    pub(crate) follow: bool,
}

impl UpstreamAccount {
    pub fn new(
        name: &str,
        url: Url,
        auth: UpstreamAuthConfig,
        state_dir: PathBuf,
        base_dir: PathBuf,
    ) -> Self {
        let follow = follows_redirects();
        Self { name: name.to_owned(), url, auth, state_dir, base_dir, follow }
    }
}

/// Whether this is a test that has nobody to ask.
fn follows_redirects() -> bool {
    #[cfg(feature = "test-idp")]
    return std::env::var_os("MOONLARK_OAUTH_FOLLOW").is_some_and(|it| it == "1");
    #[cfg(not(feature = "test-idp"))]
    false
}

/// Who says which token goes with a request to this upstream. Tokens that are obtained
/// or read are `secrets` before any of them is sent.
pub fn build_authorizer(account: UpstreamAccount, secrets: Secrets) -> Arc<dyn RequestAuthorizer> {
    let credential = match &account.auth {
        UpstreamAuthConfig::None => StaticCredential::Nothing,
        UpstreamAuthConfig::Bearer(BearerTokenSource::Token(token)) => {
            StaticCredential::Token(token.clone())
        }
        UpstreamAuthConfig::Bearer(BearerTokenSource::File(path)) => {
            let path = account.base_dir.join(path);
            StaticCredential::File(TokenFile { path, secrets, seen: Mutex::new(None) })
        }
        UpstreamAuthConfig::OAuth(settings) => {
            let settings = (**settings).clone();
            return Arc::new(OAuthAuthorizer::new(account, settings, secrets));
        }
    };
    Arc::new(StaticAuthorizer { upstream: account.name, credential })
}
