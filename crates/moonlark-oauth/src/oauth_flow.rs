//! The OAuth flow with one authorization server: discovery, registration, tokens.
//!
//! The protocol itself (discovery, PKCE, `resource`, `iss`) is the MCP
//! library's; only this file and [`crate::login_problems`] know its types. When a token
//! is needed, where it is kept and who is asked is decided elsewhere.

use std::fmt;

use moonlark_core::{Problem, ProblemCode, Result};
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, ClientCredentialsConfig,
    CredentialStore, InMemoryCredentialStore, OAuthClientConfig, OAuthTokenResponse,
    StoredCredentials, WWWAuthenticateParams,
};
use serde::Deserialize;
use serde_json::json;
use url::Url;

use crate::UpstreamAccount;
use crate::auth_config::OAuthConfig;
use crate::login_problems::{problem_from_auth_error, redact_sent_secret, shorten_to_line};
use crate::login_record::{OAuthClient, OAuthTokens, merge_scopes, unix_seconds_now};

pub(super) struct OAuthFlow {
    upstream: String,
    url: Url,
    settings: OAuthConfig,
    manager: AuthorizationManager,
    metadata: AuthorizationMetadata,
    /// Where the library looks for the token to renew.
    shelf: InMemoryCredentialStore,
}

/// What a login brought back.
#[derive(Default)]
pub(super) struct OAuthCallback {
    pub(super) code: Option<String>,
    pub(super) state: Option<String>,
    pub(super) issuer: Option<String>,
    pub(super) error: Option<String>,
    pub(super) error_description: Option<String>,
}

impl OAuthFlow {
    /// Ask the upstream, and whom it names. `challenge` is its answer to a
    /// request of ours, where there was one.
    pub(super) async fn discover_server(
        account: &UpstreamAccount,
        settings: &OAuthConfig,
        challenge: Option<&str>,
    ) -> Result<Self> {
        moonlark_http::install_tls_provider();
        let fail = |error| problem_from_auth_error(&account.name, settings, error);
        let url = account.url.clone();
        let manager = if settings.private_addresses {
            AuthorizationManager::new_allowing_private_addresses(url.clone()).await
        } else {
            AuthorizationManager::new(url.clone()).await
        };
        let mut manager = manager.map_err(fail)?;
        let resolution = manager.resolve_metadata_from_challenge(challenge).await.map_err(fail)?;
        let metadata = resolution.metadata;
        let shelf = InMemoryCredentialStore::new();
        manager.set_credential_store(shelf.clone());
        manager.set_metadata(metadata.clone());
        let (upstream, settings) = (account.name.clone(), settings.clone());
        let flow = Self { upstream, url, settings, manager, metadata, shelf };
        flow.check_endpoints()?;
        flow.check_issuer()?;
        Ok(flow)
    }

    /// A browser opens one of these and the others see secrets.
    fn check_endpoints(&self) -> Result<()> {
        let endpoints = [&self.metadata.authorization_endpoint, &self.metadata.token_endpoint];
        for endpoint in endpoints.into_iter().chain(&self.metadata.registration_endpoint) {
            let scheme = Url::parse(endpoint).map(|url| url.scheme().to_owned());
            let safe = match scheme.as_deref() {
                Ok("https") => true,
                // Only where the upstream itself, as the operator wrote it, is.
                Ok("http") => self.url.scheme() == "http",
                _ => false,
            };
            if !safe {
                return Err(Problem::denied(format!(
                    "the authorization server of {} names an address that is not https: {}",
                    self.upstream,
                    shorten_to_line(endpoint)
                )));
            }
        }
        Ok(())
    }

    /// An upstream that names another server must not get our secret sent there.
    fn check_issuer(&self) -> Result<()> {
        match &self.settings.issuer {
            Some(issuer) if *issuer != self.issuer() => Err(Problem::denied(format!(
                "upstream '{}' names the authorization server {}, but its auth table says {issuer}",
                self.upstream,
                self.issuer()
            ))
            .with_hint("if it moved and you trust the new one, change issuer in the auth table")),
            _ => Ok(()),
        }
    }

    /// Which authorization server this is. Old ones do not say, and are known
    /// by their address.
    pub(super) fn issuer(&self) -> String {
        self.metadata.issuer.as_ref().unwrap_or(&self.metadata.token_endpoint).clone()
    }

    /// Where tokens are given back: only where they came from.
    pub(super) fn revocation_url(&self) -> Option<Url> {
        let named = self.metadata.additional_fields.get("revocation_endpoint")?.as_str()?;
        let url = Url::parse(named).ok()?;
        let token = Url::parse(&self.metadata.token_endpoint).ok()?;
        Some(url).filter(|url| url.origin() == token.origin())
    }

    /// What to ask for: what the operator says, else what the upstream does.
    pub(super) async fn scopes_to_request(&self, also: &[String]) -> Vec<String> {
        let wanted = if self.settings.scopes.is_empty() {
            self.manager.select_initial_scopes(&[]).await
        } else {
            self.settings.scopes.clone()
        };
        self.with_offline_access(merge_scopes(&wanted, also))
    }

    /// Some servers give a token that can be renewed only to those who say this.
    fn with_offline_access(&self, mut scopes: Vec<String>) -> Vec<String> {
        let offline = "offline_access";
        let supported = self.metadata.scopes_supported.iter().flatten().any(|it| it == offline);
        if supported && !scopes.is_empty() && !scopes.iter().any(|it| it == offline) {
            scopes.push(offline.to_owned());
        }
        scopes
    }

    /// Become a client: the operator's, the one described at an address, the one
    /// `known` from last time, or a new one.
    pub(super) async fn choose_or_register_client(
        &mut self,
        known: Option<&OAuthClient>,
        redirect_uri: &str,
        scopes: &[String],
    ) -> Result<OAuthClient> {
        let metadata_url = self.settings.client_metadata_url.as_ref().filter(|_| {
            let supported =
                self.metadata.additional_fields.get("client_id_metadata_document_supported");
            supported.and_then(|it| it.as_bool()) == Some(true)
        });
        let given = |id: String| OAuthClient {
            id,
            secret: None,
            redirect_uri: redirect_uri.to_owned(),
            registered: false,
        };
        let known = known.filter(|it| it.registered && it.redirect_uri == redirect_uri);
        let client = if let Some(id) = &self.settings.client_id {
            given(id.clone())
        } else if let Some(url) = metadata_url {
            given(url.to_string())
        } else if let Some(known) = known {
            known.clone()
        } else {
            let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
            let made = self.manager.register_client("Moonlark", redirect_uri, &scopes).await;
            let made = made.map_err(|error| self.auth_problem(error))?;
            OAuthClient {
                id: made.client_id,
                secret: made.client_secret.map(Into::into),
                redirect_uri: redirect_uri.to_owned(),
                registered: true,
            }
        };
        self.use_client(&client)?;
        Ok(client)
    }

    /// Be a client that is known already.
    pub(super) fn use_client(&mut self, client: &OAuthClient) -> Result<()> {
        let mut config = OAuthClientConfig::new(&client.id, &client.redirect_uri);
        let own = self.settings.client_id.as_ref().is_some_and(|id| *id == client.id);
        let secret = if own { &self.settings.client_secret } else { &client.secret };
        if let Some(secret) = secret {
            config = config.with_client_secret(secret.expose_secret());
        }
        let done = self.manager.configure_client(config);
        done.map_err(|error| self.auth_problem(error))
    }

    /// Where a person says yes.
    pub(super) async fn authorization_url(&self, scopes: &[String]) -> Result<Url> {
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let url = self.manager.get_authorization_url(&scopes).await;
        let url = url.map_err(|error| self.auth_problem(error))?;
        Url::parse(&url).map_err(|error| self.auth_problem(error.into()))
    }

    /// The answer to a yes. `scopes` are those asked for.
    pub(super) async fn exchange_code(
        &self,
        callback: OAuthCallback,
        scopes: &[String],
    ) -> Result<OAuthTokens> {
        if let Some(error) = &callback.error {
            // From someone else, it is not worth repeating.
            self.check_callback_issuer(callback.issuer.as_deref())?;
            let more = callback.error_description.as_deref().unwrap_or_default();
            let message = format!(
                "the authorization server of {} refused: {}",
                self.upstream,
                shorten_to_line(&format!("{error} {more}"))
            );
            return Err(Problem::new(ProblemCode::Forbidden, message));
        }
        let OAuthCallback { code, state, issuer, .. } = callback;
        let (code, state) = (code.unwrap_or_default(), state.unwrap_or_default());
        let issuer = issuer.as_deref();
        let exchange = self.manager.exchange_code_for_token_with_issuer(&code, &state, issuer);
        let answer = exchange.await.map_err(|error| {
            let mut problem = self.auth_problem(error);
            redact_sent_secret(&mut problem, "code", &code);
            problem
        })?;
        self.parse_token_response(&answer, scopes)
    }

    fn check_callback_issuer(&self, issuer: Option<&str>) -> Result<()> {
        let says = "authorization_response_iss_parameter_supported";
        let required = self.metadata.additional_fields.get(says).and_then(|it| it.as_bool());
        let Some(expected_issuer) = self.metadata.issuer.clone() else {
            return Ok(());
        };
        let error = match issuer {
            Some(received) if received != expected_issuer => {
                let received_issuer = received.to_owned();
                AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer }
            }
            None if required == Some(true) => {
                AuthError::AuthorizationServerMissingIssuer { expected_issuer }
            }
            _ => return Ok(()),
        };
        Err(self.auth_problem(error))
    }

    /// New tokens for old ones; none if these will never work again, so that somebody
    /// has to log in.
    pub(super) async fn refresh_tokens(
        &mut self,
        client: &OAuthClient,
        old: &OAuthTokens,
    ) -> Result<Option<OAuthTokens>> {
        let Some(refresh) = &old.refresh else { return Ok(None) };
        self.use_client(client)?;
        let token: OAuthTokenResponse = serde_json::from_value(json!({
            "access_token": old.access.expose_secret(),
            "refresh_token": refresh.expose_secret(),
            "token_type": "bearer",
        }))
        .map_err(|_| Problem::internal("a token cannot be handed over"))?;
        // Without scopes: left out, they are those of the login.
        let stored = StoredCredentials::new(client.id.clone(), Some(token), Vec::new(), None);
        self.shelf.save(stored).await.map_err(|error| self.auth_problem(error))?;
        match self.manager.refresh_token().await {
            Ok(answer) => self.parse_token_response(&answer, &old.scopes).map(Some),
            Err(AuthError::TokenRefreshRejected(_) | AuthError::AuthorizationRequired) => Ok(None),
            Err(error) => {
                let mut problem = self.auth_problem(error);
                redact_sent_secret(&mut problem, "refresh_token", refresh.expose_secret());
                Err(problem)
            }
        }
    }

    /// Log in as ourselves.
    pub(super) async fn fetch_client_credentials_tokens(
        &mut self,
        scopes: &[String],
    ) -> Result<OAuthTokens> {
        let (Some(id), Some(secret)) =
            (self.settings.client_id.clone(), self.settings.client_secret.clone())
        else {
            return Err(Problem::bad_config(format!(
                "client_credentials for {} need client_id and client_secret",
                self.upstream
            )));
        };
        let config = ClientCredentialsConfig::ClientSecret {
            client_id: id,
            client_secret: secret.expose_secret().to_owned(),
            scopes: scopes.to_vec(),
            resource: Some(self.find_resource_indicator().await),
        };
        let ready = self
            .manager
            .validate_client_credentials_metadata(&config)
            .and_then(|()| self.manager.configure_client_credentials(&config));
        ready.map_err(|error| self.auth_problem(error))?;
        let answer = self.manager.exchange_client_credentials(&config).await;
        self.parse_token_response(&answer.map_err(|error| self.auth_problem(error))?, scopes)
    }

    /// What the upstream calls itself. The library keeps that to itself, but for
    /// the addresses that it makes.
    async fn find_resource_indicator(&mut self) -> String {
        let own = self.url.to_string();
        let config = OAuthClientConfig::new("resource", &own);
        let known = self.manager.configure_client(config).is_ok();
        let made = if known { self.manager.get_authorization_url(&[]).await.ok() } else { None };
        let made = made.and_then(|url| Url::parse(&url).ok());
        let named = made.and_then(|url| {
            let mut pairs = url.query_pairs();
            pairs.find(|(key, _)| key == "resource").map(|(_, value)| value.into_owned())
        });
        named.unwrap_or(own)
    }

    fn parse_token_response(
        &self,
        answer: &OAuthTokenResponse,
        asked: &[String],
    ) -> Result<OAuthTokens> {
        /// As much of the answer as is of use to us.
        #[derive(Deserialize)]
        struct OAuthTokenFields {
            access_token: String,
            refresh_token: Option<String>,
            expires_in: Option<u64>,
            scope: Option<String>,
        }
        let answer =
            serde_json::to_value(answer).and_then(serde_json::from_value::<OAuthTokenFields>);
        let answer = answer.map_err(|_| Problem::internal("a token cannot be read"))?;
        // It becomes a header, and must not become two.
        if answer.access_token.is_empty()
            || !answer.access_token.bytes().all(|it| it.is_ascii_graphic())
        {
            return Err(Problem::unavailable(format!(
                "the authorization server of {} sent a token that no header can hold",
                self.upstream
            ))
            .with_retryable(false));
        }
        Ok(OAuthTokens {
            access: answer.access_token.into(),
            refresh: answer.refresh_token.map(Into::into),
            expires_at: answer.expires_in.map(|seconds| unix_seconds_now().saturating_add(seconds)),
            issued_at: unix_seconds_now(),
            scopes: match answer.scope {
                Some(scope) => scope.split_whitespace().map(str::to_owned).collect(),
                // Not said: all that was asked for.
                None => asked.to_vec(),
            },
        })
    }

    fn auth_problem(&self, error: AuthError) -> Problem {
        problem_from_auth_error(&self.upstream, &self.settings, error)
    }
}

/// What a token would have to allow, if that is what a challenge is about.
pub(super) fn find_missing_scope(challenge: &str, url: &Url) -> Option<String> {
    let challenge = WWWAuthenticateParams::parse(challenge, url);
    challenge.scope.clone().filter(|_| challenge.is_insufficient_scope())
}

/// Without the code and the state, which can be exchanged for tokens.
impl fmt::Debug for OAuthCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthCallback")
            .field("issuer", &self.issuer)
            .field("error", &self.error)
            .field("error_description", &self.error_description)
            .finish_non_exhaustive()
    }
}

impl OAuthCallback {
    pub(super) fn from_query(query: &str) -> Self {
        let mut callback = OAuthCallback::default();
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let place = match key.as_ref() {
                "code" => &mut callback.code,
                "state" => &mut callback.state,
                "iss" => &mut callback.issuer,
                "error" => &mut callback.error,
                "error_description" => &mut callback.error_description,
                _ => continue,
            };
            *place = Some(value.into_owned());
        }
        callback
    }
}
