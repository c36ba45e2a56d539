//! OAuth requests that the MCP library does not make: probing an upstream, redirects of a
//! test identity provider, token revocation, and metadata documents.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use moonlark_core::limits::format_size;
use moonlark_core::{Problem, Result};
use moonlark_http::{BodyReadError, join_challenges, location_url, read_body, shared_http_client};
use url::Url;

use crate::login_record::LoginRecord;
use moonlark_core::secret::SecretText;

/// While a caller waits to be let in.
const PROVIDER_DOCUMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest document that a provider may publish.
const MAX_PROVIDER_DOCUMENT_BYTES: usize = 512 * 1024;

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

/// Where an identity provider that asks nobody sends the browser.
pub(super) async fn fetch_redirect_target(url: &Url) -> Result<Url> {
    let answer = shared_http_client()?.get(url.clone()).send().await.map_err(|error| {
        Problem::unavailable(format!(
            "no answer from the authorization server: {}",
            error.without_url()
        ))
    })?;
    location_url(url, answer.headers()).and_then(|location| location.ok()).ok_or_else(|| {
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
    let answer = request.send().await.map_err(no_answer)?;
    if !answer.status().is_success() {
        let status = answer.status().as_u16();
        return Err(Problem::unavailable(format!("{url} answers with status {status}")));
    }
    let whole =
        read_body(answer, MAX_PROVIDER_DOCUMENT_BYTES).await.map_err(|error| match error {
            BodyReadError::Broken(error) => no_answer(error),
            BodyReadError::TooLong => Problem::unavailable(format!(
                "{url} answers with more than {}",
                format_size(MAX_PROVIDER_DOCUMENT_BYTES)
            )),
        })?;
    Ok(whole.into())
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
