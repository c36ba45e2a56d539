//! What to do when an upstream is not content with a request's token.

use std::sync::atomic::Ordering;

use moonlark_core::{Problem, Result};

use super::super::config::GrantType;
use super::super::failure::{login_needed, short};
use super::super::flow::{Flow, scope_missing};
use super::super::login::{Ask, log_in};
use super::super::record::union;
use super::{Login, Turn};

impl Login {
    /// The upstream does not take the token, or wants one.
    pub(super) async fn refused(&self, challenge: Option<&str>) -> Result<bool> {
        let seen = self.changes.load(Ordering::Acquire);
        let mut turn = self.turn.lock().await;
        // There is another by now, or somebody logged in.
        if self.changes.load(Ordering::Acquire) != seen || self.found_another()? {
            return Ok(true);
        }
        match turn.just_failed() {
            Some(problem) => Err(problem),
            None => {
                let done = self.replace(&mut turn, challenge).await;
                turn.remember(done)
            }
        }
    }

    /// Another token for the one that was refused: the next that somebody else
    /// got, a renewed one, or that of a new login.
    async fn replace(&self, turn: &mut Turn, challenge: Option<&str>) -> Result<bool> {
        if self.settings.grant == GrantType::ClientCredentials {
            let mut flow = self.discover(turn, challenge).await?;
            let scopes = flow.scopes(&[]).await;
            self.adopt(&flow.client_credentials(&scopes).await?);
            turn.flow = Some(flow);
            return Ok(true);
        }
        let _lock = self.store.lock().await?;
        if self.found_another()? {
            return Ok(true);
        }
        let record = self.stored()?;
        let tokens = record.as_ref().and_then(|record| record.tokens.clone());
        if record.is_none() && !self.account.follow {
            return Err(login_needed(&self.account.name, "wants a login"));
        }
        let mut flow = Flow::discover(&self.account, &self.settings, challenge).await?;
        let mut record = record.filter(|record| record.issuer == flow.issuer());
        let moved = record.is_none();
        if let (Some(record), Some(tokens)) = (&mut record, &tokens)
            && self.renew(&mut flow, record, tokens).await?.is_some()
        {
            return Ok(true);
        }
        if !self.account.follow {
            return Err(login_needed(
                &self.account.name,
                match moved {
                    true => "wants a login at another authorization server",
                    false => "has to be logged in to again: it does not take its login any more",
                },
            ));
        }
        let record = log_in(&self.account, &mut flow, record.as_ref(), &[], &Ask::Follow).await?;
        self.keep(&record)?;
        Ok(true)
    }

    /// The upstream takes the token, but wants one that allows more.
    pub(super) async fn too_little(&self, challenge: &str) -> Result<bool> {
        let Some(scope) = scope_missing(challenge, &self.account.url) else {
            return Ok(false);
        };
        let seen = self.changes.load(Ordering::Acquire);
        let mut turn = self.turn.lock().await;
        if self.changes.load(Ordering::Acquire) != seen || self.found_another()? {
            return Ok(true);
        }
        let own = self.settings.grant == GrantType::ClientCredentials;
        let needed: Vec<String> = scope.split_whitespace().map(str::to_owned).collect();
        if (own || self.account.follow) && !turn.step_ups.allow(&scope) {
            let message = format!(
                "the upstream {} keeps asking for {}, which logging in again did not bring",
                self.account.name,
                short(&scope)
            );
            return Err(Problem::denied(message)
                .hint("ask whoever runs it which permissions this account has"));
        }
        if own {
            let held = self.current().map(|token| token.scopes).unwrap_or_default();
            let mut flow = self.discover(&turn, Some(challenge)).await?;
            self.adopt(&flow.client_credentials(&union(&held, &needed)).await?);
            turn.flow = Some(flow);
            return Ok(true);
        }
        let _lock = self.store.lock().await?;
        let Some(mut record) = self.stored()? else {
            return Err(login_needed(&self.account.name, "wants a login"));
        };
        if !self.account.follow {
            // The next login asks for it.
            record.wanted = union(&record.wanted, &needed);
            self.store.save(&record)?;
            let why = format!("wants more than its login allows: {}", short(&scope));
            return Err(login_needed(&self.account.name, &why));
        }
        let mut flow = Flow::discover(&self.account, &self.settings, Some(challenge)).await?;
        let known = Some(&record).filter(|record| record.issuer == flow.issuer());
        let record = log_in(&self.account, &mut flow, known, &needed, &Ask::Follow).await?;
        self.keep(&record)?;
        Ok(true)
    }

    /// The same authorization server as last time, unless the operator named it:
    /// a secret that it was given must not be sent to whoever is named next.
    async fn discover(&self, turn: &Turn, challenge: Option<&str>) -> Result<Flow> {
        let flow = Flow::discover(&self.account, &self.settings, challenge).await?;
        match &turn.flow {
            Some(before) if before.issuer() != flow.issuer() => Err(Problem::denied(format!(
                "the upstream {} named the authorization server {} and now names {}",
                self.account.name,
                short(&before.issuer()),
                short(&flow.issuer())
            ))
            .hint("if it moved and you trust the new one, start Moonlark again")),
            _ => Ok(flow),
        }
    }
}
