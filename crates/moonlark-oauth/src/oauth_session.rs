//! OAuth sessions: a token for every request, renewed in time, by one caller for all.
//!
//! What is asked of an authorization server is in [`crate::oauth_flow`], what happens
//! when the upstream is not content in [`token_challenge`]. A process may share its
//! login with others, so the file is looked at before and written after every
//! renewal, under its lock.

mod token_challenge;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use moonlark_core::secret::{SecretText, Secrets};
use moonlark_core::{Problem, Result};
use moonlark_http::RequestAuthorizer;
use parking_lot::RwLock;
use tokio::sync::Mutex;

use crate::UpstreamAccount;
use crate::auth_config::{OAuthConfig, OAuthGrantType};
use crate::login_problems::login_needed_problem;
use crate::login_record::{LoginRecord, OAuthTokens};
use crate::login_store::LoginStore;
use crate::oauth_flow::OAuthFlow;
use crate::step_up_limiter::StepUpLimiter;

/// After a failure, before the authorization server is asked again.
const FAILED_RENEWAL_PAUSE: Duration = Duration::from_secs(5);

pub(super) struct OAuthAuthorizer(Arc<OAuthSession>);

struct OAuthSession {
    account: UpstreamAccount,
    settings: OAuthConfig,
    /// Where tokens are made known as such.
    secrets: Secrets,
    store: LoginStore,
    /// What most requests need, without waiting for anybody.
    current: RwLock<Option<OAuthTokens>>,
    /// How often `current` has changed.
    changes: AtomicU64,
    turn: Mutex<OAuthRenewalState>,
}

/// Only who holds this talks to the authorization server.
#[derive(Default)]
struct OAuthRenewalState {
    /// For client credentials, which nothing is stored of.
    flow: Option<OAuthFlow>,
    step_ups: StepUpLimiter,
    /// Those who waited for what failed do not each wait for it again.
    failed: Option<(Instant, Problem)>,
}

impl RequestAuthorizer for OAuthAuthorizer {
    fn authorization_header(&self) -> BoxFuture<'_, Result<Option<SecretText>>> {
        async move {
            if let Some(token) = self.0.current_tokens().filter(OAuthTokens::is_fresh) {
                return Ok(Some(token.bearer_header()));
            }
            let login = self.0.clone();
            let token = run_to_completion(async move { login.obtain_token().await }).await?;
            Ok(token.map(|token| token.bearer_header()))
        }
        .boxed()
    }

    fn handle_challenge(
        &self,
        status: u16,
        challenge: Option<String>,
    ) -> BoxFuture<'_, Result<bool>> {
        let login = self.0.clone();
        run_to_completion(async move {
            match (status, challenge) {
                (401, challenge) => login.replace_rejected_token(challenge.as_deref()).await,
                (403, Some(challenge)) => login.obtain_missing_scopes(&challenge).await,
                _ => Ok(false),
            }
        })
        .boxed()
    }
}

/// Whoever asked may go away meanwhile. A refresh token is good for one use: if
/// the answer to it got lost, so would the login.
async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    match moonlark_child::spawn_to_finish(work).await {
        Ok(done) => done,
        Err(error) => Err(Problem::internal(format!("a login was not renewed: {error}"))),
    }
}

impl OAuthAuthorizer {
    pub(super) fn new(account: UpstreamAccount, settings: OAuthConfig, secrets: Secrets) -> Self {
        let store = LoginStore::new(&account.state_dir, &account.name);
        Self(Arc::new(OAuthSession {
            account,
            settings,
            secrets,
            store,
            current: RwLock::new(None),
            changes: AtomicU64::new(0),
            turn: Mutex::new(OAuthRenewalState::default()),
        }))
    }
}

impl OAuthSession {
    async fn obtain_token(&self) -> Result<Option<OAuthTokens>> {
        let mut turn = match (self.turn.try_lock(), self.current_tokens()) {
            (Ok(turn), _) => turn,
            // Somebody is on it, and this one will do for the moment.
            (Err(_), Some(token)) if token.is_unexpired() => return Ok(Some(token)),
            _ => self.turn.lock().await,
        };
        let known = match self.settings.grant {
            OAuthGrantType::ClientCredentials => self.current_tokens(),
            // The file knows more than we do.
            OAuthGrantType::AuthorizationCode => self.adopt_stored_tokens()?,
        };
        match known {
            // The upstream says first what it wants.
            None => Ok(None),
            Some(token) if token.is_fresh() => Ok(Some(token)),
            Some(old) => self.renew_or_keep(&mut turn, old).await,
        }
    }

    /// A token that is fresh, or `old` while it lives.
    async fn renew_or_keep(
        &self,
        turn: &mut OAuthRenewalState,
        old: OAuthTokens,
    ) -> Result<Option<OAuthTokens>> {
        let alive = old.is_unexpired();
        let renewed = match (turn.recent_failure(), self.settings.grant) {
            (Some(problem), _) => Err(problem),
            (None, OAuthGrantType::ClientCredentials) => {
                let renewed = self.renew_client_credentials(turn, &old).await;
                turn.remember_failure(renewed)
            }
            (None, OAuthGrantType::AuthorizationCode) => {
                turn.remember_failure(self.renew_stored_login().await)
            }
        };
        match renewed {
            Err(problem) if alive => {
                tracing::debug!(upstream = self.account.name, "{}", problem.message);
                Ok(Some(old))
            }
            Err(problem) => Err(problem),
            Ok(Some(tokens)) => Ok(Some(tokens)),
            Ok(None) if alive => Ok(Some(old)),
            // The upstream will refuse, and then it is followed.
            Ok(None) if self.account.follow => Ok(None),
            Ok(None) => Err(login_needed_problem(
                &self.account.name,
                "requires a new login: its login has expired",
            )),
        }
    }

    async fn renew_client_credentials(
        &self,
        turn: &mut OAuthRenewalState,
        old: &OAuthTokens,
    ) -> Result<Option<OAuthTokens>> {
        let Some(flow) = &mut turn.flow else {
            return Ok(None);
        };
        let tokens = flow.fetch_client_credentials_tokens(&old.scopes).await?;
        self.adopt_tokens(&tokens);
        Ok(Some(tokens))
    }

    async fn renew_stored_login(&self) -> Result<Option<OAuthTokens>> {
        let _lock = self.store.acquire_lock().await?;
        // Another process may have been here.
        let Some(mut record) = self.load_stored_login()? else {
            return Ok(None);
        };
        let old = match record.tokens.clone() {
            Some(tokens) if !tokens.is_fresh() => tokens,
            tokens => {
                tokens.iter().for_each(|tokens| self.adopt_tokens(tokens));
                return Ok(tokens);
            }
        };
        if old.refresh.is_none() {
            return Ok(None);
        }
        let mut flow = OAuthFlow::discover_server(&self.account, &self.settings, None).await?;
        if flow.issuer() == record.issuer {
            self.refresh_and_store(&mut flow, &mut record, &old).await
        } else {
            Ok(None)
        }
    }

    /// New tokens for `old`, or none if that will never work again.
    async fn refresh_and_store(
        &self,
        flow: &mut OAuthFlow,
        record: &mut LoginRecord,
        old: &OAuthTokens,
    ) -> Result<Option<OAuthTokens>> {
        let renewed = flow.refresh_tokens(&record.client, old).await?;
        match (&renewed, &mut record.tokens) {
            (Some(tokens), kept) => *kept = Some(tokens.clone()),
            (None, Some(kept)) => kept.refresh = None,
            (None, None) => {}
        }
        self.store.save_record(record)?;
        renewed.iter().for_each(|tokens| self.adopt_tokens(tokens));
        Ok(renewed)
    }

    /// The login on disk, if it is for this upstream where it is now.
    fn load_stored_login(&self) -> Result<Option<LoginRecord>> {
        let record = self.store.load_record()?.filter(|record| record.resource == self.account.url);
        if let Some(secret) = record.as_ref().and_then(|record| record.client.secret.as_ref()) {
            self.secrets.learn_token("auth.client_secret", secret.expose_secret());
        }
        Ok(record)
    }

    /// The token on disk, or none: whoever logs out elsewhere is logged out here.
    fn adopt_stored_tokens(&self) -> Result<Option<OAuthTokens>> {
        let tokens = self.load_stored_login()?.and_then(|record| record.tokens);
        match &tokens {
            Some(tokens) => self.adopt_tokens(tokens),
            None => *self.current.write() = None,
        }
        Ok(tokens)
    }

    /// Whether somebody logged in meanwhile, or another process renewed it.
    fn adopt_newer_stored_tokens(&self) -> Result<bool> {
        if self.settings.grant == OAuthGrantType::ClientCredentials {
            return Ok(false);
        }
        let stored = self.load_stored_login()?.and_then(|record| record.tokens);
        let known = self.current_tokens();
        let is_newer = |stored: &OAuthTokens| {
            stored.is_fresh() && known.is_none_or(|known| known.access != stored.access)
        };
        let newer = stored.filter(is_newer);
        newer.iter().for_each(|tokens| self.adopt_tokens(tokens));
        Ok(newer.is_some())
    }

    fn save_and_adopt(&self, record: &LoginRecord) -> Result<()> {
        self.store.save_record(record)?;
        record.tokens.iter().for_each(|tokens| self.adopt_tokens(tokens));
        Ok(())
    }

    fn current_tokens(&self) -> Option<OAuthTokens> {
        self.current.read().clone()
    }

    fn adopt_tokens(&self, tokens: &OAuthTokens) {
        self.secrets.learn_token("auth.access_token", tokens.access.expose_secret());
        if let Some(refresh) = &tokens.refresh {
            self.secrets.learn_token("auth.refresh_token", refresh.expose_secret());
        }
        let mut current = self.current.write();
        if current.as_ref() != Some(tokens) {
            *current = Some(tokens.clone());
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl OAuthRenewalState {
    fn recent_failure(&self) -> Option<Problem> {
        let (at, problem) = self.failed.as_ref()?;
        (at.elapsed() < FAILED_RENEWAL_PAUSE).then(|| problem.clone())
    }

    fn remember_failure<T>(&mut self, done: Result<T>) -> Result<T> {
        self.failed = done.as_ref().err().map(|problem| (Instant::now(), problem.clone()));
        done
    }
}
