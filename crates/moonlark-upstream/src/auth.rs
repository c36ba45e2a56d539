//! Authentication to upstreams: which token goes with a request, where it comes
//! from, and where it is kept.
//!
//! [`authorizer`] gives the transport something to ask. While Moonlark serves,
//! nothing here waits for a person: what only a person can do is a Problem that
//! names `moonlark login`, which is [`login`]. Nothing here knows what is said
//! to an upstream once it lets us in.

mod config;
mod failure;
mod fixed;
mod flow;
mod login;
mod oauth;
mod record;
mod redirect;
mod step_ups;
mod store;
#[cfg(test)]
mod tests;
mod web;

use std::path::PathBuf;
use std::sync::Arc;

use moonlark_core::secret::Secrets;
use parking_lot::Mutex;
use url::Url;

pub use config::{Auth, Bearer, GrantType, OAuthSettings};
pub use login::{Ask, LoggedIn, LoggedOut, Revoked, login, logout, open_browser};
pub use web::{client, fetch};

use crate::mcp::Authorize;
use fixed::{Anonymous, Given, InFile};
use oauth::OAuth;

/// An upstream, as far as logging in to it goes.
#[derive(Debug, Clone)]
pub struct Account {
    /// What the operator calls it.
    pub name: String,
    pub url: Url,
    pub auth: Auth,
    /// Where Moonlark keeps things; logins are in `auth/` in there.
    pub state_dir: PathBuf,
    /// What relative paths in the configuration are relative to.
    pub base_dir: PathBuf,
    /// Answer for the person, by following the redirect of a test identity
    /// provider that asks nobody. Never so in a build that is not for tests.
    pub(crate) follow: bool,
}

impl Account {
    pub fn new(name: &str, url: Url, auth: Auth, state_dir: PathBuf, base_dir: PathBuf) -> Self {
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
pub fn authorizer(account: Account, secrets: Secrets) -> Arc<dyn Authorize> {
    let upstream = account.name.clone();
    match &account.auth {
        Auth::None => Arc::new(Anonymous { upstream }),
        Auth::Bearer(Bearer::Token(token)) => Arc::new(Given { upstream, token: token.clone() }),
        Auth::Bearer(Bearer::File(path)) => {
            let path = account.base_dir.join(path);
            Arc::new(InFile { upstream, path, secrets, seen: Mutex::new(None) })
        }
        Auth::OAuth(settings) => {
            let settings = (**settings).clone();
            Arc::new(OAuth::new(account, settings, secrets))
        }
    }
}
