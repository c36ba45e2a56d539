//! The few requests that the MCP library does not make for us: what an upstream
//! answers to a stranger, where a test identity provider redirects to, giving
//! tokens back, and what identity providers publish.

use std::sync::LazyLock;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use moonlark_core::limits::format_size;
use moonlark_core::{Problem, Result};
use reqwest::{Client, Response};
use url::Url;

use super::login_record::LoginRecord;
use crate::mcp::SecretText;

static SHARED_HTTP_CLIENT: LazyLock<Result<Client>> = LazyLock::new(build_shared_http_client);
const AUTH_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// While a caller waits to be let in.
const PROVIDER_DOCUMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest document that a provider may publish.
const MAX_PROVIDER_DOCUMENT_BYTES: usize = 512 * 1024;

fn build_shared_http_client() -> Result<Client> {
    // Fails only when another part of the process was first, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        Client::builder()
            .user_agent(concat!("moonlark/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .timeout(AUTH_REQUEST_TIMEOUT)
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

/// The challenge that a request without a token gets. Some upstreams say only
/// there what they need.
pub(super) async fn request_challenge(url: &Url) -> Option<String> {
    let request = shared_http_client()
        .ok()?
        .post(url.clone())
        .header(ACCEPT, "application/json, text/event-stream")
        .header(CONTENT_TYPE, "application/json")
        .body(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    let answer = request.send().await.ok()?;
    (answer.status() == http::StatusCode::UNAUTHORIZED).then(|| join_challenges(&answer)).flatten()
}

fn join_challenges(answer: &Response) -> Option<String> {
    let all = answer.headers().get_all(WWW_AUTHENTICATE).iter();
    let all: Vec<&str> = all.filter_map(|value| value.to_str().ok()).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Where an identity provider that asks nobody sends the browser.
pub(super) async fn fetch_redirect_target(url: &Url) -> Result<Url> {
    let answer = shared_http_client()?.get(url.clone()).send().await.map_err(|error| {
        Problem::unavailable(format!(
            "no answer from the authorization server: {}",
            error.without_url()
        ))
    })?;
    let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    location.and_then(|location| url.join(location).ok()).ok_or_else(|| {
        Problem::unavailable(format!(
            "the authorization server answers {} in place of redirecting at once",
            answer.status().as_u16()
        ))
        .with_retryable(false)
        .with_hint("a person has to answer it: moonlark login")
    })
}

/// What an identity provider publishes at `url`, in a bounded time.
pub async fn fetch_provider_document(url: Url) -> Result<Vec<u8>> {
    let no_answer = |error: reqwest::Error| {
        Problem::unavailable(format!("no answer from {url}: {}", error.without_url()))
    };
    let request = shared_http_client()?
        .get(url.clone())
        .header(ACCEPT, "application/json")
        .timeout(PROVIDER_DOCUMENT_TIMEOUT);
    let mut answer = request.send().await.map_err(no_answer)?;
    if !answer.status().is_success() {
        let status = answer.status().as_u16();
        return Err(Problem::unavailable(format!("{url} answers with status {status}")));
    }
    let mut whole = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(no_answer)? {
        if whole.len() + part.len() > MAX_PROVIDER_DOCUMENT_BYTES {
            return Err(Problem::unavailable(format!(
                "{url} answers with more than {}",
                format_size(MAX_PROVIDER_DOCUMENT_BYTES)
            )));
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole)
}

/// Give the tokens of `record` back, so that whoever may have a copy has nothing.
pub(super) async fn revoke_tokens(
    record: &LoginRecord,
    secret: Option<&SecretText>,
) -> Result<bool> {
    let (Some(url), Some(tokens)) = (&record.revocation, &record.tokens) else {
        return Ok(false);
    };
    let (token, kind) = match &tokens.refresh {
        Some(refresh) => (refresh, "refresh_token"),
        None => (&tokens.access, "access_token"),
    };
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.append_pair("token", token.expose_secret()).append_pair("token_type_hint", kind);
    let mut request = shared_http_client()?.post(url.clone());
    match secret {
        Some(secret) => {
            request = request.basic_auth(&record.client.id, Some(secret.expose_secret()))
        }
        None => {
            form.append_pair("client_id", &record.client.id);
        }
    }
    let request =
        request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(form.finish());
    let refused = |why: String| Problem::unavailable(format!("the tokens were not revoked: {why}"));
    let answer = request.send().await.map_err(|error| refused(error.without_url().to_string()))?;
    match answer.status() {
        status if status.is_success() => Ok(true),
        status => Err(refused(format!("{} answers {}", record.issuer, status.as_u16()))),
    }
}
