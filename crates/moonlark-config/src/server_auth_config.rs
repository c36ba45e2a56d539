//! `[server.auth]`: authentication of HTTP callers.

use std::collections::BTreeMap;

use moonlark_server::{
    AuthSettings, ExpectedClaims, IssuerSettings, TokenHash, check_token_name, is_secure_url,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::RedactedString;

/// Authentication of HTTP callers: with a token of `moonlark token add`, a token that is
/// set here, or a JSON Web Token of an identity provider. With any of them, every request
/// needs a token, except for `/health`, `/ready` and the OAuth metadata documents.
/// Without, the server listens on this machine only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerAuthConfig {
    /// Static bearer tokens: caller name = token. Policy rules refer to the name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tokens: BTreeMap<String, RedactedString>,
    /// The issuer (`iss`) whose JSON Web Tokens are accepted, exactly as they name
    /// it. Its keys are found by OpenID Connect Discovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"https://login.example.com")]
    pub issuer: Option<String>,
    /// The URL of the issuer's keys (JWKS), if it has no OpenID Connect Discovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"https://login.example.com/keys.json")]
    pub jwks: Option<String>,
    /// Accepted audiences (`aud`): a token must have one of these. Needed with `issuer`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["https://moonlark.example.com/mcp"])]
    pub audience: Vec<String>,
    /// Required scopes, separated by spaces: a token must have all of them in `scope`
    /// or `scp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"moonlark:call")]
    pub scope: Option<String>,
    /// The claim that names the caller.
    #[schemars(length(min = 1))]
    pub name_claim: String,
    /// Names of operators: callers that may see the runs of all callers and decide
    /// all approvals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["alice"])]
    pub operators: Vec<String>,
    /// Public URL of this server, without a path, if it is behind a proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"https://moonlark.example.com")]
    pub url: Option<String>,
}

impl Default for ServerAuthConfig {
    fn default() -> Self {
        Self {
            tokens: BTreeMap::new(),
            issuer: None,
            jwks: None,
            audience: Vec::new(),
            scope: None,
            name_claim: "sub".to_owned(),
            operators: Vec::new(),
            url: None,
        }
    }
}

/// Shorter ones could be guessed.
const MIN_TOKEN_BYTES: usize = 16;

impl ServerAuthConfig {
    /// What no schema says. The key, and what is wrong.
    pub fn find_faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        for (name, token) in &self.tokens {
            if let Err(message) = check_token_name(name) {
                faults.push(("auth.tokens", message));
            }
            if token.0.len() < MIN_TOKEN_BYTES {
                let message =
                    format!("the token of {name} is shorter than {MIN_TOKEN_BYTES} letters");
                faults.push(("auth.tokens", message));
            }
        }
        let address = |text: &Option<String>| {
            text.as_deref().is_none_or(|it| Url::parse(it).is_ok_and(|url| is_secure_url(&url)))
        };
        for (key, text) in [("auth.issuer", &self.issuer), ("auth.jwks", &self.jwks)] {
            if !address(text) {
                faults.push((key, "must be an address that begins with https://; http:// is for this machine only".to_owned()));
            }
        }
        let of_issuer: [(&'static str, bool); 4] = [
            ("auth.jwks", self.jwks.is_some()),
            ("auth.audience", !self.audience.is_empty()),
            ("auth.scope", self.scope.is_some()),
            ("auth.name_claim", self.name_claim != Self::default().name_claim),
        ];
        for (key, _) in of_issuer.into_iter().filter(|(_, set)| *set && self.issuer.is_none()) {
            faults.push((key, "belongs to issuer, which is not set".to_owned()));
        }
        if self.issuer.is_some() && self.audience.is_empty() {
            let message = "is required with issuer: without it, tokens for any other service would be accepted";
            faults.push(("auth.audience", message.to_owned()));
        }
        let plain = |it: char| it.is_ascii_graphic() && !matches!(it, '"' | '\\');
        let words = self.scope.as_deref().unwrap_or("a").split(' ');
        if words.into_iter().any(|word| word.is_empty() || !word.chars().all(plain)) {
            faults.push(("auth.scope", "must be words with one space between them".to_owned()));
        }
        let origin = |text: &str| {
            let url = Url::parse(text).ok()?;
            let plain = url.origin().ascii_serialization() == text.trim_end_matches('/');
            (plain && matches!(url.scheme(), "http" | "https")).then_some(())
        };
        if self.url.as_deref().is_some_and(|url| origin(url).is_none()) {
            let message = "must be an address such as https://moonlark.example.com, without a path";
            faults.push(("auth.url", message.to_owned()));
        }
        faults
    }

    /// As the server takes it. What is no address has been refused.
    pub fn to_auth_settings(&self) -> AuthSettings {
        let tokens =
            self.tokens.iter().map(|(name, it)| (name.clone(), TokenHash::from_token(&it.0)));
        let issuer = self.issuer.as_ref().map(|issuer| IssuerSettings {
            expected: ExpectedClaims {
                issuer: issuer.clone(),
                audience: self.audience.clone(),
                scopes: self.scope.iter().flat_map(|it| it.split(' ')).map(Into::into).collect(),
                name: self.name_claim.clone(),
            },
            keys: self.jwks.as_ref().and_then(|it| Url::parse(it).ok()),
        });
        AuthSettings {
            tokens: tokens.collect(),
            issuer,
            operators: self.operators.clone(),
            url: self.url.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(toml: &str) -> String {
        let auth: ServerAuthConfig = toml::from_str(toml).unwrap();
        let faults = auth.find_faults();
        faults.iter().map(|(key, it)| format!("{key}: {it}")).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn what_lets_anybody_in_is_refused() {
        let issuer = "issuer = 'https://login.example.com'\naudience = ['moonlark']";
        let long = "a".repeat(16);
        for (toml, expected) in [
            ("", ""),
            (issuer, ""),
            (&format!("{issuer}\nscope = 'a b:c'\nurl = 'https://m.example.com'"), ""),
            ("issuer = 'http://127.0.0.1:1'\naudience = ['m']", ""),
            (&format!("tokens.ci = '{long}'"), ""),
            ("tokens.ci = 'hunter22'", "auth.tokens: the token of ci is shorter than 16 letters"),
            (
                &format!("tokens.local = '{long}'"),
                "auth.tokens: local is what callers without a token are called",
            ),
            (
                "issuer = 'https://login.example.com'",
                "auth.audience: is required with issuer: without it, tokens for any other service would be accepted",
            ),
            (
                "issuer = 'http://login.example.com'\naudience = ['m']",
                "auth.issuer: must be an address that begins with https://; http:// is for this machine only",
            ),
            ("jwks = 'https://a.b/c'", "auth.jwks: belongs to issuer, which is not set"),
            (
                &format!("{issuer}\nscope = 'a  b'"),
                "auth.scope: must be words with one space between them",
            ),
            (
                "url = 'https://m.example.com/a'",
                "auth.url: must be an address such as https://moonlark.example.com, without a path",
            ),
        ] {
            assert_eq!(faults(toml), expected, "{toml}");
        }
    }
}
