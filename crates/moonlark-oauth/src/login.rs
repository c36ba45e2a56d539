//! Login, which only a person can do, and logout.

use std::process::Stdio;
use std::time::Duration;

use moonlark_core::{Problem, Result};
use serde::Serialize;
use url::Url;

use crate::UpstreamAccount;
use crate::auth_config::{OAuthConfig, OAuthGrantType, UpstreamAuthConfig};
use crate::auth_http;
use crate::login_record::{LoginRecord, merge_scopes};
use crate::login_store::LoginStore;
use crate::oauth_flow::{OAuthCallback, OAuthFlow};
use crate::redirect_listener::{RedirectListener, port_of_redirect_uri, redirect_uri_for_port};

/// How long a person may take.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(600);
/// Where a login that nobody waits for would come back to.
const DEFAULT_REDIRECT_PORT: u16 = 7332;

/// Who is asked whether we may.
pub enum LoginPrompt<'a> {
    /// A person: what to do with the address for their browser.
    Person(&'a (dyn Fn(&Url) + Send + Sync)),
    /// Nobody: the redirect of a test identity provider is taken for a yes.
    Follow,
}

/// What a login brought.
#[derive(Debug, Serialize)]
pub struct LoginOutcome {
    /// The authorization server.
    pub issuer: String,
    /// What it allows.
    pub scopes: Vec<String>,
    /// When it ends, in seconds since 1970, where the server says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// Whether it is renewed without a person.
    pub renews: bool,
}

#[derive(Debug, Serialize)]
pub struct LogoutOutcome {
    /// Whether there was a login.
    pub removed: bool,
    pub revoked: RevocationOutcome,
}

/// Whether the authorization server was told.
#[derive(Debug, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum RevocationOutcome {
    Yes,
    /// It takes no such notice.
    NotOffered,
    /// It was told and did not agree, or was not there.
    Failed(String),
}

/// Log in to an upstream, and keep the login.
pub async fn log_in_to_upstream(
    account: &UpstreamAccount,
    ask: &LoginPrompt<'_>,
) -> Result<LoginOutcome> {
    let settings = require_oauth_config(account)?;
    let challenge = auth_http::request_challenge(&account.url).await;
    let mut flow = OAuthFlow::discover_server(account, settings, challenge.as_deref()).await?;
    if settings.grant == OAuthGrantType::ClientCredentials {
        let scopes = flow.scopes_to_request(&[]).await;
        let tokens = flow.fetch_client_credentials_tokens(&scopes).await?;
        let (scopes, expires_at) = (tokens.scopes, tokens.expires_at);
        return Ok(LoginOutcome { issuer: flow.issuer(), scopes, expires_at, renews: true });
    }
    let store = LoginStore::new(&account.state_dir, &account.name);
    // One that is damaged, or that others could read, is about to be replaced.
    let known = store.load_record().unwrap_or_default();
    let known = known.filter(|it| it.resource == account.url && it.issuer == flow.issuer());
    let record = run_login_flow(account, &mut flow, known.as_ref(), &[], ask).await?;
    let _lock = store.acquire_lock().await?;
    store.save_record(&record)?;
    let tokens = record.tokens.as_ref();
    Ok(LoginOutcome {
        scopes: tokens.map(|tokens| tokens.scopes.clone()).unwrap_or_default(),
        expires_at: tokens.and_then(|tokens| tokens.expires_at),
        renews: tokens.is_some_and(|tokens| tokens.refresh.is_some()),
        issuer: record.issuer,
    })
}

/// Forget a login, and tell the authorization server.
pub async fn log_out_of_upstream(account: &UpstreamAccount) -> Result<LogoutOutcome> {
    let store = LoginStore::new(&account.state_dir, &account.name);
    let _lock = store.acquire_lock().await?;
    // Whatever is wrong with it, it goes.
    let record = store.load_record().unwrap_or_default();
    let secret = match (&record, &account.auth) {
        (Some(record), UpstreamAuthConfig::OAuth(settings)) if !record.client.registered => {
            settings.client_secret.as_ref()
        }
        (Some(record), _) => record.client.secret.as_ref(),
        (None, _) => None,
    };
    let revoked = match &record {
        Some(record) => match auth_http::revoke_tokens(record, secret).await {
            Ok(true) => RevocationOutcome::Yes,
            Ok(false) => RevocationOutcome::NotOffered,
            Err(problem) => RevocationOutcome::Failed(problem.message),
        },
        None => RevocationOutcome::NotOffered,
    };
    Ok(LogoutOutcome { removed: store.remove_record()?, revoked })
}

fn require_oauth_config(account: &UpstreamAccount) -> Result<&OAuthConfig> {
    match &account.auth {
        UpstreamAuthConfig::OAuth(settings) => Ok(settings),
        other => {
            let name = &account.name;
            let why = match other {
                UpstreamAuthConfig::Bearer(_) => "has a token of yours and needs no login",
                _ => "is not configured for logins",
            };
            Err(Problem::bad_config(format!("upstream '{name}' {why}"))
                .with_hint(format!("write `auth = \"oauth\"` in [mcp_servers.{name}]")))
        }
    }
}

/// Get tokens by asking, for what is needed now, `also`, and what a login for
/// the same authorization server had before. Nothing is kept here.
pub(super) async fn run_login_flow(
    account: &UpstreamAccount,
    flow: &mut OAuthFlow,
    known: Option<&LoginRecord>,
    also: &[String],
    ask: &LoginPrompt<'_>,
) -> Result<LoginRecord> {
    let settings = require_oauth_config(account)?;
    let had = known.and_then(|record| record.tokens.as_ref()).map(|tokens| &tokens.scopes[..]);
    let wanted = known.map(|record| &record.wanted[..]).unwrap_or_default();
    let more = merge_scopes(had.unwrap_or_default(), &merge_scopes(wanted, also));
    let scopes = flow.scopes_to_request(&more).await;

    let known_port = known.and_then(|record| port_of_redirect_uri(&record.client.redirect_uri));
    let (redirect, redirect_uri) = match ask {
        LoginPrompt::Follow => (
            None,
            redirect_uri_for_port(
                settings.redirect_port.or(known_port).unwrap_or(DEFAULT_REDIRECT_PORT),
            ),
        ),
        LoginPrompt::Person(_) => {
            let redirect = listen_for_redirect(settings.redirect_port, known_port).await?;
            let uri = redirect.redirect_uri();
            (Some(redirect), uri)
        }
    };
    let client = known.map(|record| &record.client);
    let client = flow.choose_or_register_client(client, &redirect_uri, &scopes).await?;
    let url = flow.authorization_url(&scopes).await?;
    let callback = match (ask, redirect) {
        (LoginPrompt::Person(show), Some(redirect)) => {
            show(&url);
            redirect.wait_for_callback(&state_parameter(&url), LOGIN_TIMEOUT).await?
        }
        _ => follow_redirect_callback(&url).await?,
    };
    let tokens = flow.exchange_code(callback, &scopes).await?;
    Ok(LoginRecord {
        upstream: account.name.clone(),
        resource: account.url.clone(),
        issuer: flow.issuer(),
        client,
        tokens: Some(tokens),
        wanted: Vec::new(),
        revocation: flow.revocation_url(),
    })
}

/// Where last time was, if it can be had: the client is registered for it.
async fn listen_for_redirect(set: Option<u16>, known: Option<u16>) -> Result<RedirectListener> {
    if let Some(port) = set {
        return RedirectListener::bind_port(port).await;
    }
    match RedirectListener::bind_port(known.unwrap_or(0)).await {
        Err(_) if known.is_some() => RedirectListener::bind_port(0).await,
        listening => listening,
    }
}

async fn follow_redirect_callback(url: &Url) -> Result<OAuthCallback> {
    let location = auth_http::fetch_redirect_target(url).await?;
    let callback = OAuthCallback::from_query(location.query().unwrap_or_default());
    if callback.state.as_deref() == Some(&state_parameter(url)) {
        Ok(callback)
    } else {
        Err(Problem::denied("the authorization server answered to another login"))
    }
}

/// The word by which an answer is known to be one to this question.
fn state_parameter(url: &Url) -> String {
    let state = url.query_pairs().find(|(key, _)| key == "state");
    state.map(|(_, value)| value.into_owned()).unwrap_or_default()
}

/// Show an address in the browser, without a shell in between.
pub fn open_browser(url: &Url) -> bool {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = tokio::process::Command::new(program);
    command.arg(url.as_str()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(mut child) => {
            #[expect(
                clippy::disallowed_methods,
                reason = "some browsers stay, and nobody waits for them"
            )]
            tokio::spawn(async move { child.wait().await });
            true
        }
        Err(_) => false,
    }
}
