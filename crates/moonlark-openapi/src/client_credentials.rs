//! OAuth client credentials: tokens requested when needed, kept until they expire.

use std::collections::HashMap;
use std::time::Duration;

use moonlark_core::secret::Secrets;
use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, Result};
use reqwest::Client;
use serde_json::Value as Json;
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::{Url, form_urlencoded};

use moonlark_core::secret::SecretText;

/// A token is asked for anew this long before the old one ends.
const TOKEN_RENEWAL_MARGIN: Duration = Duration::from_secs(60);
const DEFAULT_TOKEN_LIFETIME: Duration = Duration::from_secs(300);
/// A token is asked for anew after this time at the latest, whatever is said about it.
const MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
const TOKEN_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_TOKEN_RESPONSE_BYTES: usize = 256 * 1024;

#[derive(Clone)]
pub struct ClientCredentials {
    pub client_id: String,
    pub client_secret: SecretText,
    /// Where tokens are given out, if the document does not say, or not rightly.
    pub token_url: Option<Url>,
    pub scopes: Vec<String>,
}

pub(crate) struct ApiTokenCache {
    api: String,
    client: Client,
    /// Where tokens are made known as such.
    secrets: Secrets,
    known: Mutex<HashMap<String, (SecretText, Instant)>>,
}

impl ApiTokenCache {
    pub(crate) fn new(api: &str, client: Client, secrets: Secrets) -> Self {
        Self { api: api.to_owned(), client, secrets, known: Mutex::default() }
    }

    /// A token for the scheme `name`. One request for all that wait for it.
    pub(crate) async fn get_token(
        &self,
        name: &str,
        client: &ClientCredentials,
        documented: Option<Url>,
    ) -> Result<SecretText> {
        let mut known = self.known.lock().await;
        if let Some((token, until)) = known.get(name)
            && Instant::now() < *until
        {
            return Ok(token.clone());
        }
        let url = client
            .token_url
            .clone()
            .or(documented)
            .ok_or_else(|| self.no_token_url_problem(name))?;
        let (token, lasts) = self.request_token(&url, client).await?;
        self.secrets.learn_token(&format!("auth.{name}"), token.expose_secret());
        known.insert(name.to_owned(), (token.clone(), Instant::now() + lasts));
        Ok(token)
    }

    /// The API did not take it.
    pub(crate) async fn forget_tokens(&self) {
        self.known.lock().await.clear();
    }

    async fn request_token(
        &self,
        url: &Url,
        client: &ClientCredentials,
    ) -> Result<(SecretText, Duration)> {
        let form = {
            let mut form = form_urlencoded::Serializer::new(String::new());
            form.append_pair("grant_type", "client_credentials");
            if !client.scopes.is_empty() {
                form.append_pair("scope", &client.scopes.join(" "));
            }
            form.finish()
        };
        let encode =
            |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let secret = encode(client.client_secret.expose_secret());
        let asked = self
            .client
            .post(url.clone())
            .basic_auth(encode(&client.client_id), Some(secret))
            .header("Content-Type", "application/x-www-form-urlencoded")
            .header("Accept", "application/json")
            .timeout(TOKEN_REQUEST_TIMEOUT)
            .body(form)
            .send();
        let response = asked
            .await
            .map_err(|error| self.token_refused_problem(&error.without_url().to_string()))?;
        let status = response.status();
        let bytes = crate::api_response::read_bytes(response, MAX_TOKEN_RESPONSE_BYTES).await?;
        let answer: Json = serde_json::from_slice(&bytes).unwrap_or_default();
        let text = |key: &str| answer.get(key).and_then(Json::as_str);
        let Some(token) = text("access_token").filter(|_| status.is_success()) else {
            let why =
                text("error_description").or_else(|| text("error")).unwrap_or(status.as_str());
            return Err(self.token_refused_problem(why));
        };
        let lasts = answer
            .get("expires_in")
            .and_then(Json::as_u64)
            .map_or(DEFAULT_TOKEN_LIFETIME, Duration::from_secs);
        let lasts = lasts.min(MAX_TOKEN_LIFETIME).saturating_sub(TOKEN_RENEWAL_MARGIN);
        Ok((SecretText::new(token.to_owned()), lasts))
    }

    fn token_refused_problem(&self, why: &str) -> Problem {
        Problem::unavailable(format!(
            "API '{}': the token request was rejected: {}",
            self.api,
            shorten_text(why)
        ))
        .with_hint(format!("see client_id and client_secret in the auth of apis.{}", self.api))
    }

    fn no_token_url_problem(&self, name: &str) -> Problem {
        Problem::bad_config(format!("API '{}' names no token URL for '{name}'", self.api))
            .with_hint(format!("set token_url in apis.{}.auth.{name}", self.api))
    }
}
