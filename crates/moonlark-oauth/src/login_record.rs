//! The record of a login: whose it is, the client it was made for, the tokens.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use url::Url;

use moonlark_core::secret::SecretText;

/// Tokens are renewed this long before they expire, so that none does on its way.
const RENEW_BEFORE_EXPIRY_SECONDS: u64 = 60;
/// Those that live shorter: when this part of their life is left.
const RENEW_LIFETIME_DIVISOR: u64 = 4;

/// One upstream's login. It is good for one address and one authorization
/// server: whatever else the upstream names later is never shown any of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct LoginRecord {
    pub(super) upstream: String,
    pub(super) resource: Url,
    pub(super) issuer: String,
    pub(super) client: OAuthClient,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tokens: Option<OAuthTokens>,
    /// What the upstream asked for and the tokens do not allow: the next login
    /// asks for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) wanted: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) revocation: Option<Url>,
}

/// Who we are to the authorization server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct OAuthClient {
    pub(super) id: String,
    /// Only of clients that registered themselves; the secrets of others stay
    /// where the operator put them.
    #[serde(default, with = "exposed", skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<SecretText>,
    pub(super) redirect_uri: String,
    /// Made by registering, so only this authorization server knows it.
    pub(super) registered: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct OAuthTokens {
    #[serde(with = "exposed_always")]
    pub(super) access: SecretText,
    #[serde(default, with = "exposed", skip_serializing_if = "Option::is_none")]
    pub(super) refresh: Option<SecretText>,
    /// In seconds since 1970; not every server says when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<u64>,
    #[serde(default)]
    pub(super) issued_at: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) scopes: Vec<String>,
}

impl OAuthTokens {
    /// Good for a request, and not about to expire.
    pub(super) fn is_fresh(&self) -> bool {
        self.expires_at.is_none_or(|at| {
            let life = at.saturating_sub(self.issued_at);
            at.saturating_sub(RENEW_BEFORE_EXPIRY_SECONDS.min(life / RENEW_LIFETIME_DIVISOR))
                > unix_seconds_now()
        })
    }

    /// Good for a request that is sent at once.
    pub(super) fn is_unexpired(&self) -> bool {
        self.expires_at.is_none_or(|at| at > unix_seconds_now())
    }

    pub(super) fn bearer_header(&self) -> SecretText {
        SecretText::new(format!("Bearer {}", self.access.expose_secret()))
    }
}

pub(super) fn unix_seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// All of both, in order, each once.
pub(super) fn merge_scopes(some: &[String], more: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::with_capacity(some.len() + more.len());
    for scope in some.iter().chain(more) {
        if !all.contains(scope) {
            all.push(scope.clone());
        }
    }
    all
}

/// The file is the one place where these may be written out.
mod exposed {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use moonlark_core::secret::SecretText;

    pub(super) fn serialize<S: Serializer>(
        text: &Option<SecretText>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        text.as_ref().map(SecretText::expose_secret).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<SecretText>, D::Error> {
        Ok(Option::<String>::deserialize(from)?.map(SecretText::from))
    }
}

mod exposed_always {
    use serde::{Deserialize, Deserializer, Serializer};

    use moonlark_core::secret::SecretText;

    pub(super) fn serialize<S: Serializer>(text: &SecretText, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(text.expose_secret())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SecretText, D::Error> {
        Ok(String::deserialize(from)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_stale_a_minute_before_they_expire() {
        let long_ago = unix_seconds_now() - 3600;
        for (issued_at, expires_at, fresh, alive) in [
            (long_ago, None, true, true),
            (long_ago, Some(unix_seconds_now() + 120), true, true),
            (long_ago, Some(unix_seconds_now() + 30), false, true),
            (long_ago, Some(unix_seconds_now() - 1), false, false),
            // Or none of a server with short tokens would ever be fresh.
            (unix_seconds_now(), Some(unix_seconds_now() + 40), true, true),
        ] {
            let (access, scopes) = ("a".into(), Vec::new());
            let token = OAuthTokens { access, refresh: None, expires_at, issued_at, scopes };
            assert_eq!((token.is_fresh(), token.is_unexpired()), (fresh, alive), "{expires_at:?}");
        }
    }

    #[test]
    fn scopes_are_united_in_order() {
        let list = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(merge_scopes(&list("a b"), &list("b c a d")), list("a b c d"));
    }
}
