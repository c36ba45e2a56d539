//! OAuth while Moonlark serves: a token for every request, renewed in time, by
//! one caller for all.
//!
//! What is asked of an authorization server is in [`super::flow`], what happens
//! when the upstream is not content in [`challenged`]. A process may share its
//! login with others, so the file is looked at before and written after every
//! renewal, under its lock.

mod challenged;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use moonlark_core::secret::Secrets;
use moonlark_core::{Problem, Result};
use parking_lot::RwLock;
use tokio::sync::Mutex;

use super::Account;
use super::config::{GrantType, OAuthSettings};
use super::failure::login_needed;
use super::flow::{Flow, Renewal};
use super::record::{Record, Tokens};
use super::step_ups::StepUps;
use super::store::Store;
use crate::mcp::{Authorize, SecretText};

/// After a failure, before the authorization server is asked again.
const PAUSE: Duration = Duration::from_secs(5);

pub(super) struct OAuth(Arc<Login>);

struct Login {
    account: Account,
    settings: OAuthSettings,
    /// Where tokens are made known as such.
    secrets: Secrets,
    store: Store,
    /// What most requests need, without waiting for anybody.
    current: RwLock<Option<Tokens>>,
    /// How often `current` has changed.
    changes: AtomicU64,
    turn: Mutex<Turn>,
}

/// Only who holds this talks to the authorization server.
#[derive(Default)]
struct Turn {
    /// For client credentials, which nothing is stored of.
    flow: Option<Flow>,
    step_ups: StepUps,
    /// Those who waited for what failed do not each wait for it again.
    failed: Option<(Instant, Problem)>,
}

impl Authorize for OAuth {
    fn header(&self) -> BoxFuture<'_, Result<Option<SecretText>>> {
        async move {
            if let Some(token) = self.0.current().filter(Tokens::fresh) {
                return Ok(Some(token.header()));
            }
            let login = self.0.clone();
            let token = to_its_end(async move { login.token().await }).await?;
            Ok(token.map(|token| token.header()))
        }
        .boxed()
    }

    fn challenged(&self, status: u16, challenge: Option<String>) -> BoxFuture<'_, Result<bool>> {
        let login = self.0.clone();
        to_its_end(async move {
            match (status, challenge) {
                (401, challenge) => login.refused(challenge.as_deref()).await,
                (403, Some(challenge)) => login.too_little(&challenge).await,
                _ => Ok(false),
            }
        })
        .boxed()
    }
}

/// Whoever asked may go away meanwhile. A refresh token is good for one use: if
/// the answer to it got lost, so would the login.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(error) => Err(Problem::internal(format!("a login was not renewed: {error}"))),
    }
}

impl OAuth {
    pub(super) fn new(account: Account, settings: OAuthSettings, secrets: Secrets) -> Self {
        let store = Store::new(&account.state_dir, &account.name);
        Self(Arc::new(Login {
            account,
            settings,
            secrets,
            store,
            current: RwLock::new(None),
            changes: AtomicU64::new(0),
            turn: Mutex::new(Turn::default()),
        }))
    }
}

impl Login {
    async fn token(&self) -> Result<Option<Tokens>> {
        let mut turn = match (self.turn.try_lock(), self.current()) {
            (Ok(turn), _) => turn,
            // Somebody is on it, and this one will do for the moment.
            (Err(_), Some(token)) if token.alive() => return Ok(Some(token)),
            _ => self.turn.lock().await,
        };
        let known = match self.settings.grant {
            GrantType::ClientCredentials => self.current(),
            // The file knows more than we do.
            GrantType::AuthorizationCode => self.adopt_stored()?,
        };
        match known {
            // The upstream says first what it wants.
            None => Ok(None),
            Some(token) if token.fresh() => Ok(Some(token)),
            Some(old) => self.renewed(&mut turn, old).await,
        }
    }

    /// A token that is fresh, or `old` while it lives.
    async fn renewed(&self, turn: &mut Turn, old: Tokens) -> Result<Option<Tokens>> {
        let alive = old.alive();
        let renewed = match (turn.just_failed(), self.settings.grant) {
            (Some(problem), _) => Err(problem),
            (None, GrantType::ClientCredentials) => {
                let renewed = self.renew_own(turn, &old).await;
                turn.remember(renewed)
            }
            (None, GrantType::AuthorizationCode) => turn.remember(self.renew_stored().await),
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
            Ok(None) => Err(login_needed(
                &self.account.name,
                "has to be logged in to again: its login has expired",
            )),
        }
    }

    async fn renew_own(&self, turn: &mut Turn, old: &Tokens) -> Result<Option<Tokens>> {
        let Some(flow) = &mut turn.flow else {
            return Ok(None);
        };
        let tokens = flow.client_credentials(&old.scopes).await?;
        self.adopt(&tokens);
        Ok(Some(tokens))
    }

    async fn renew_stored(&self) -> Result<Option<Tokens>> {
        let _lock = self.store.lock().await?;
        // Another process may have been here.
        let Some(mut record) = self.stored()? else {
            return Ok(None);
        };
        let old = match record.tokens.clone() {
            Some(tokens) if !tokens.fresh() => tokens,
            tokens => {
                tokens.iter().for_each(|tokens| self.adopt(tokens));
                return Ok(tokens);
            }
        };
        if old.refresh.is_none() {
            return Ok(None);
        }
        let mut flow = Flow::discover(&self.account, &self.settings, None).await?;
        match flow.issuer() == record.issuer {
            true => self.renew(&mut flow, &mut record, &old).await,
            false => Ok(None),
        }
    }

    /// New tokens for `old`, or none if that will never work again.
    async fn renew(
        &self,
        flow: &mut Flow,
        record: &mut Record,
        old: &Tokens,
    ) -> Result<Option<Tokens>> {
        match flow.renew(&record.client, old).await? {
            Renewal::Renewed(tokens) => {
                record.tokens = Some(tokens.clone());
                self.store.save(record)?;
                self.adopt(&tokens);
                Ok(Some(tokens))
            }
            Renewal::Rejected => {
                if let Some(tokens) = &mut record.tokens {
                    tokens.refresh = None;
                }
                self.store.save(record)?;
                Ok(None)
            }
        }
    }

    /// The login on disk, if it is for this upstream where it is now.
    fn stored(&self) -> Result<Option<Record>> {
        let record = self.store.load()?.filter(|record| record.resource == self.account.url);
        if let Some(secret) = record.as_ref().and_then(|record| record.client.secret.as_ref()) {
            self.secrets.learn("auth.client_secret", secret.expose());
        }
        Ok(record)
    }

    /// The token on disk, or none: whoever logs out elsewhere is logged out here.
    fn adopt_stored(&self) -> Result<Option<Tokens>> {
        let tokens = self.stored()?.and_then(|record| record.tokens);
        match &tokens {
            Some(tokens) => self.adopt(tokens),
            None => *self.current.write() = None,
        }
        Ok(tokens)
    }

    /// Whether somebody logged in meanwhile, or another process renewed it.
    fn found_another(&self) -> Result<bool> {
        if self.settings.grant == GrantType::ClientCredentials {
            return Ok(false);
        }
        let before = self.current();
        let Some(stored) = self.stored()?.and_then(|record| record.tokens) else {
            return Ok(false);
        };
        let another = before.is_none_or(|before| before.access != stored.access);
        if another && stored.fresh() {
            self.adopt(&stored);
        }
        Ok(another && stored.fresh())
    }

    fn keep(&self, record: &Record) -> Result<()> {
        self.store.save(record)?;
        record.tokens.iter().for_each(|tokens| self.adopt(tokens));
        Ok(())
    }

    fn current(&self) -> Option<Tokens> {
        self.current.read().clone()
    }

    fn adopt(&self, tokens: &Tokens) {
        self.secrets.learn("auth.access_token", tokens.access.expose());
        if let Some(refresh) = &tokens.refresh {
            self.secrets.learn("auth.refresh_token", refresh.expose());
        }
        let mut current = self.current.write();
        if current.as_ref() != Some(tokens) {
            *current = Some(tokens.clone());
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Turn {
    fn just_failed(&self) -> Option<Problem> {
        let (at, problem) = self.failed.as_ref()?;
        (at.elapsed() < PAUSE).then(|| problem.clone())
    }

    fn remember<T>(&mut self, done: Result<T>) -> Result<T> {
        self.failed = done.as_ref().err().map(|problem| (Instant::now(), problem.clone()));
        done
    }
}
