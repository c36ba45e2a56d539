//! Challenges (401, 403): what to do when an upstream does not accept a request's token.

use std::sync::atomic::Ordering;

use moonlark_core::{Problem, Result};

use super::{OAuthRenewalState, OAuthSession};
use crate::auth_config::OAuthGrantType;
use crate::login::{LoginPrompt, run_login_flow};
use crate::login_problems::{login_needed_problem, shorten_to_line};
use crate::login_record::merge_scopes;
use crate::oauth_flow::{OAuthFlow, find_missing_scope};

impl OAuthSession {
    /// The upstream does not take the token, or wants one.
    pub(super) async fn replace_rejected_token(&self, challenge: Option<&str>) -> Result<bool> {
        let seen = self.changes.load(Ordering::Acquire);
        let mut turn = self.turn.lock().await;
        // There is another by now, or somebody logged in.
        if self.changes.load(Ordering::Acquire) != seen || self.adopt_newer_stored_tokens()? {
            return Ok(true);
        }
        match turn.recent_failure() {
            Some(problem) => Err(problem),
            None => {
                let done = self.obtain_replacement_token(&mut turn, challenge).await;
                turn.remember_failure(done)
            }
        }
    }

    /// Another token for the one that was refused: the next that somebody else
    /// got, a renewed one, or that of a new login.
    async fn obtain_replacement_token(
        &self,
        turn: &mut OAuthRenewalState,
        challenge: Option<&str>,
    ) -> Result<bool> {
        if self.settings.grant == OAuthGrantType::ClientCredentials {
            let mut flow = self.discover_same_issuer(turn, challenge).await?;
            let scopes = flow.scopes_to_request(&[]).await;
            self.adopt_tokens(&flow.fetch_client_credentials_tokens(&scopes).await?);
            turn.flow = Some(flow);
            return Ok(true);
        }
        let _lock = self.store.acquire_lock().await?;
        if self.adopt_newer_stored_tokens()? {
            return Ok(true);
        }
        let record = self.load_stored_login()?;
        let tokens = record.as_ref().and_then(|record| record.tokens.clone());
        if record.is_none() && !self.account.follow {
            return Err(login_needed_problem(&self.account.name, "requires a login"));
        }
        let mut flow = OAuthFlow::discover_server(&self.account, &self.settings, challenge).await?;
        let mut record = record.filter(|record| record.issuer == flow.issuer());
        let moved = record.is_none();
        if let (Some(record), Some(tokens)) = (&mut record, &tokens)
            && self.refresh_and_store(&mut flow, record, tokens).await?.is_some()
        {
            return Ok(true);
        }
        if !self.account.follow {
            return Err(login_needed_problem(
                &self.account.name,
                if moved {
                    "now uses another authorization server: a new login is needed"
                } else {
                    "no longer accepts its login"
                },
            ));
        }
        let record =
            run_login_flow(&self.account, &mut flow, record.as_ref(), &[], &LoginPrompt::Follow)
                .await?;
        self.save_and_adopt(&record)?;
        Ok(true)
    }

    /// The upstream takes the token, but wants one that allows more.
    pub(super) async fn obtain_missing_scopes(&self, challenge: &str) -> Result<bool> {
        let Some(scope) = find_missing_scope(challenge, &self.account.url) else {
            return Ok(false);
        };
        let seen = self.changes.load(Ordering::Acquire);
        let mut turn = self.turn.lock().await;
        if self.changes.load(Ordering::Acquire) != seen || self.adopt_newer_stored_tokens()? {
            return Ok(true);
        }
        let own = self.settings.grant == OAuthGrantType::ClientCredentials;
        let needed: Vec<String> = scope.split_whitespace().map(str::to_owned).collect();
        if (own || self.account.follow) && !turn.step_ups.allow_step_up(&scope) {
            let message = format!(
                "the upstream {} keeps asking for {}, which logging in again did not bring",
                self.account.name,
                shorten_to_line(&scope)
            );
            return Err(Problem::denied(message)
                .with_hint("ask its operator which permissions this account has"));
        }
        if own {
            let held = self.current_tokens().map(|token| token.scopes).unwrap_or_default();
            let mut flow = self.discover_same_issuer(&turn, Some(challenge)).await?;
            self.adopt_tokens(
                &flow.fetch_client_credentials_tokens(&merge_scopes(&held, &needed)).await?,
            );
            turn.flow = Some(flow);
            return Ok(true);
        }
        let _lock = self.store.acquire_lock().await?;
        let Some(mut record) = self.load_stored_login()? else {
            return Err(login_needed_problem(&self.account.name, "requires a login"));
        };
        if !self.account.follow {
            // The next login asks for it.
            record.wanted = merge_scopes(&record.wanted, &needed);
            self.store.save_record(&record)?;
            let why = format!("requires scopes that its login lacks: {}", shorten_to_line(&scope));
            return Err(login_needed_problem(&self.account.name, &why));
        }
        let mut flow =
            OAuthFlow::discover_server(&self.account, &self.settings, Some(challenge)).await?;
        let known = Some(&record).filter(|record| record.issuer == flow.issuer());
        let record =
            run_login_flow(&self.account, &mut flow, known, &needed, &LoginPrompt::Follow).await?;
        self.save_and_adopt(&record)?;
        Ok(true)
    }

    /// The same authorization server as last time, unless the operator named it:
    /// a secret that it was given must not be sent to whoever is named next.
    async fn discover_same_issuer(
        &self,
        turn: &OAuthRenewalState,
        challenge: Option<&str>,
    ) -> Result<OAuthFlow> {
        let flow = OAuthFlow::discover_server(&self.account, &self.settings, challenge).await?;
        match &turn.flow {
            Some(before) if before.issuer() != flow.issuer() => Err(Problem::denied(format!(
                "the upstream {} named the authorization server {} and now names {}",
                self.account.name,
                shorten_to_line(&before.issuer()),
                shorten_to_line(&flow.issuer())
            ))
            .with_hint("if it moved and you trust the new one, start Moonlark again")),
            _ => Ok(flow),
        }
    }
}
