//! Logging in, which only a person can do, and logging out.

use std::process::Stdio;
use std::time::Duration;

use moonlark_core::{Problem, Result};
use serde::Serialize;
use url::Url;

use super::Account;
use super::config::{Auth, GrantType, OAuthSettings};
use super::flow::{Callback, Flow};
use super::record::{Record, union};
use super::redirect::{Redirect, port, uri};
use super::store::Store;
use super::web;

/// How long a person may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// Where a login that nobody waits for would come back to.
const NOWHERE: u16 = 7332;

/// Who is asked whether we may.
pub enum Ask<'a> {
    /// A person: what to do with the address for their browser.
    Person(&'a (dyn Fn(&Url) + Send + Sync)),
    /// Nobody: the redirect of a test identity provider is taken for a yes.
    Follow,
}

/// What a login brought.
#[derive(Debug, Serialize)]
pub struct LoggedIn {
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
pub struct LoggedOut {
    /// Whether there was a login.
    pub removed: bool,
    pub revoked: Revoked,
}

/// Whether the authorization server was told.
#[derive(Debug, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Revoked {
    Yes,
    /// It takes no such notice.
    NotOffered,
    /// It was told and did not agree, or was not there.
    Failed(String),
}

/// Log in to an upstream, and keep the login.
pub async fn login(account: &Account, ask: &Ask<'_>) -> Result<LoggedIn> {
    let settings = settings(account)?;
    let challenge = web::challenge(&account.url).await;
    let mut flow = Flow::discover(account, settings, challenge.as_deref()).await?;
    if settings.grant == GrantType::ClientCredentials {
        let scopes = flow.scopes(&[]).await;
        let tokens = flow.client_credentials(&scopes).await?;
        let (scopes, expires_at) = (tokens.scopes, tokens.expires_at);
        return Ok(LoggedIn { issuer: flow.issuer(), scopes, expires_at, renews: true });
    }
    let store = Store::new(&account.state_dir, &account.name);
    // One that is damaged, or that others could read, is about to be replaced.
    let known = store.load().unwrap_or_default();
    let known = known.filter(|it| it.resource == account.url && it.issuer == flow.issuer());
    let record = log_in(account, &mut flow, known.as_ref(), &[], ask).await?;
    let _lock = store.lock().await?;
    store.save(&record)?;
    let tokens = record.tokens.as_ref();
    Ok(LoggedIn {
        scopes: tokens.map(|tokens| tokens.scopes.clone()).unwrap_or_default(),
        expires_at: tokens.and_then(|tokens| tokens.expires_at),
        renews: tokens.is_some_and(|tokens| tokens.refresh.is_some()),
        issuer: record.issuer,
    })
}

/// Forget a login, and tell the authorization server.
pub async fn logout(account: &Account) -> Result<LoggedOut> {
    let store = Store::new(&account.state_dir, &account.name);
    let _lock = store.lock().await?;
    // Whatever is wrong with it, it goes.
    let record = store.load().unwrap_or_default();
    let secret = match (&record, &account.auth) {
        (Some(record), Auth::OAuth(settings)) if !record.client.registered => {
            settings.client_secret.as_ref()
        }
        (Some(record), _) => record.client.secret.as_ref(),
        (None, _) => None,
    };
    let revoked = match &record {
        Some(record) => match web::revoke(record, secret).await {
            Ok(true) => Revoked::Yes,
            Ok(false) => Revoked::NotOffered,
            Err(problem) => Revoked::Failed(problem.message),
        },
        None => Revoked::NotOffered,
    };
    Ok(LoggedOut { removed: store.remove()?, revoked })
}

fn settings(account: &Account) -> Result<&OAuthSettings> {
    match &account.auth {
        Auth::OAuth(settings) => Ok(settings),
        other => {
            let name = &account.name;
            let why = match other {
                Auth::Bearer(_) => "has a token of yours and needs no login",
                _ => "is not configured for logins",
            };
            Err(Problem::bad_config(format!("upstream '{name}' {why}"))
                .hint(format!("write `auth = \"oauth\"` in [mcp_servers.{name}]")))
        }
    }
}

/// Get tokens by asking, for what is needed now, `also`, and what a login for
/// the same authorization server had before. Nothing is kept here.
pub(super) async fn log_in(
    account: &Account,
    flow: &mut Flow,
    known: Option<&Record>,
    also: &[String],
    ask: &Ask<'_>,
) -> Result<Record> {
    let settings = settings(account)?;
    let had = known.and_then(|record| record.tokens.as_ref()).map(|tokens| &tokens.scopes[..]);
    let wanted = known.map(|record| &record.wanted[..]).unwrap_or_default();
    let more = union(had.unwrap_or_default(), &union(wanted, also));
    let scopes = flow.scopes(&more).await;

    let known_port = known.and_then(|record| port(&record.client.redirect_uri));
    let (redirect, redirect_uri) = match ask {
        Ask::Follow => (None, uri(settings.redirect_port.or(known_port).unwrap_or(NOWHERE))),
        Ask::Person(_) => {
            let redirect = listen(settings.redirect_port, known_port).await?;
            let uri = redirect.uri();
            (Some(redirect), uri)
        }
    };
    let client = known.map(|record| &record.client);
    let client = flow.become_client(client, &redirect_uri, &scopes).await?;
    let url = flow.authorization_url(&scopes).await?;
    let callback = match (ask, redirect) {
        (Ask::Person(show), Some(redirect)) => {
            show(&url);
            redirect.wait(&state(&url), PATIENCE).await?
        }
        _ => followed(&url).await?,
    };
    let tokens = flow.exchange(callback, &scopes).await?;
    Ok(Record {
        upstream: account.name.clone(),
        resource: account.url.clone(),
        issuer: flow.issuer(),
        client,
        tokens: Some(tokens),
        wanted: Vec::new(),
        revocation: flow.revocation(),
    })
}

/// Where last time was, if it can be had: the client is registered for it.
async fn listen(set: Option<u16>, known: Option<u16>) -> Result<Redirect> {
    if let Some(port) = set {
        return Redirect::listen(port).await;
    }
    match Redirect::listen(known.unwrap_or(0)).await {
        Err(_) if known.is_some() => Redirect::listen(0).await,
        listening => listening,
    }
}

async fn followed(url: &Url) -> Result<Callback> {
    let location = web::redirect(url).await?;
    let callback = Callback::from_query(location.query().unwrap_or_default());
    match callback.state.as_deref() == Some(&state(url)) {
        true => Ok(callback),
        false => Err(Problem::denied("the authorization server answered to another login")),
    }
}

/// The word by which an answer is known to be one to this question.
fn state(url: &Url) -> String {
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
            // Some browsers stay; nobody waits for them.
            tokio::spawn(async move { child.wait().await });
            true
        }
        Err(_) => false,
    }
}
