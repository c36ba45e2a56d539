//! Origins that may get the secrets of an API: the one that was known when they were
//! first used, and those that the operator adds.
//!
//! A document says itself where its API is, and one from the web is read again and
//! again. What it said the first time is remembered, so that a later version cannot
//! have a key sent elsewhere.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use moonlark_core::grant::matches_pattern;
use moonlark_core::{Problem, Result};
use moonlark_state::write_private_file;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use url::Url;

/// A further host that may be sent the secrets of an API: `uploads.example.com`,
/// `*.example.com:8443` or `http://127.0.0.1:8080`. Without a scheme it is https.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthHost {
    scheme: String,
    host: String,
    port: u16,
}

impl FromStr for AuthHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "must be a host such as \"uploads.example.com\", or an origin such as \"http://127.0.0.1:8080\"".to_owned()
        };
        let (scheme, rest) = text.trim().split_once("://").unwrap_or(("https", text.trim()));
        let default_port = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return Err(wrong()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        // The colons inside [::1] are not the one before a port.
        let port_at = rest.rfind(':').filter(|at| !rest[*at..].contains(']'));
        let (host, port) = match port_at {
            Some(at) => (&rest[..at], rest[at + 1..].parse().map_err(|_| wrong())?),
            None => (rest, default_port),
        };
        let is_part = |it: char| it.is_ascii_alphanumeric() || ".-_*[]:".contains(it);
        if host.trim_matches(['*', '.']).is_empty() || !host.chars().all(is_part) {
            return Err(wrong());
        }
        Ok(AuthHost { scheme: scheme.to_owned(), host: host.to_ascii_lowercase(), port })
    }
}

impl AuthHost {
    fn covers_url(&self, url: &Url) -> bool {
        url.scheme() == self.scheme
            && url.port_or_known_default() == Some(self.port)
            && url.host_str().is_some_and(|host| matches_pattern(&self.host, host))
    }
}

/// What is remembered of a document from the web.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct FirstSeenOrigins {
    /// Tells one document from another: when `spec` changes, nothing is remembered.
    spec: String,
    origin: Option<String>,
    /// Where each scheme gave out tokens.
    #[serde(default)]
    token_origins: BTreeMap<String, String>,
}

/// Where the secrets of one API may go.
pub(crate) struct SecretOrigins {
    api: String,
    first_seen: FirstSeenOrigins,
    hosts: Vec<AuthHost>,
    /// The document came from the web: it is believed once, and hosts that it names
    /// beside the API's own are reached only if they are public.
    pub(crate) from_web: bool,
}

/// Where it is remembered what a document from the web said first.
#[derive(Debug, Clone)]
pub struct OriginMemory {
    pub file: PathBuf,
    pub spec: Url,
}

impl SecretOrigins {
    /// `origin` is where the document says that the API is, `token_origins` where it
    /// says that tokens are given out.
    pub(crate) fn new(
        api: &str,
        hosts: &[AuthHost],
        memory: Option<&OriginMemory>,
        origin: Option<String>,
        token_origins: BTreeMap<String, String>,
    ) -> SecretOrigins {
        let said = FirstSeenOrigins { spec: String::new(), origin, token_origins };
        let first_seen = match memory {
            Some(memory) => memory.recall_or_remember(said),
            None => said,
        };
        let from_web = memory.is_some();
        SecretOrigins { api: api.to_owned(), first_seen, hosts: hosts.to_vec(), from_web }
    }

    /// Wherever the document says it is, the operator says that it is here.
    pub(crate) fn with_base_url(mut self, base_url: &Url) -> SecretOrigins {
        self.first_seen.origin = Some(base_url.origin().ascii_serialization());
        self
    }

    /// Whether the API's own secrets may be sent to this address.
    pub(crate) fn covers_url(&self, url: &Url) -> bool {
        let is_home =
            self.first_seen.origin.as_deref() == Some(&url.origin().ascii_serialization());
        is_home || self.hosts.iter().any(|host| host.covers_url(url))
    }

    /// Refuse to send secrets to an address that is not known to be the API's.
    pub(crate) fn check_url(&self, url: &Url) -> Result<()> {
        if self.covers_url(url) {
            return Ok(());
        }
        let (api, there) = (&self.api, url.origin().ascii_serialization());
        let home = match &self.first_seen.origin {
            Some(origin) => format!("they belong to {origin}"),
            None => "it is not known where they belong".to_owned(),
        };
        Err(Problem::denied(format!(
            "the document of API '{api}' names {there}, which is not sent the secrets of '{api}': {home}"
        ))
        .with_hint(format!(
            "if {there} belongs to this API, add auth_hosts = [\"{there}\"] to [apis.{}]",
            toml_key(api)
        )))
    }

    /// Refuse to send a client secret to an address that did not give out tokens before.
    pub(crate) fn check_token_url(&self, scheme: &str, url: &Url) -> Result<()> {
        let there = url.origin().ascii_serialization();
        if self.first_seen.token_origins.get(scheme) == Some(&there) || self.covers_url(url) {
            return Ok(());
        }
        let api = &self.api;
        Err(Problem::denied(format!(
            "the document of API '{api}' names {there} for tokens of '{scheme}', which is not sent its client secret: it named another server before"
        ))
        .with_hint(format!(
            "if tokens are given out there now, set token_url in apis.{}.auth.{scheme}",
            toml_key(api)
        )))
    }
}

impl OriginMemory {
    /// What the document said the first time; what it says now if this is it.
    fn recall_or_remember(&self, said: FirstSeenOrigins) -> FirstSeenOrigins {
        // The address may have a secret in it.
        let spec = format!("{:x}", Sha256::digest(self.spec.as_str()));
        let kept = std::fs::read(&self.file).ok().and_then(|it| serde_json::from_slice(&it).ok());
        let mut known = match kept {
            Some(FirstSeenOrigins { spec: same, origin, token_origins }) if same == spec => {
                FirstSeenOrigins { spec, origin, token_origins }
            }
            _ => FirstSeenOrigins { spec, ..FirstSeenOrigins::default() },
        };
        let before = known.clone();
        known.origin = known.origin.or(said.origin);
        for (scheme, origin) in said.token_origins {
            known.token_origins.entry(scheme).or_insert(origin);
        }
        if (known != before || !self.file.exists())
            && let Ok(text) = serde_json::to_string(&known)
            && let Err(error) = write_private_file(&self.file, &text)
        {
            tracing::warn!(target: "upstream", "{}: {error}", self.file.display());
        }
        known
    }
}

/// A name as a key of TOML.
fn toml_key(name: &str) -> String {
    let is_bare = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    if name.chars().all(is_bare) { name.to_owned() } else { format!("{name:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> AuthHost {
        text.parse().unwrap()
    }

    #[test]
    fn hosts_are_read_as_people_write_them_and_cover_only_themselves() {
        let url = |text: &str| Url::parse(text).unwrap();
        for (entry, address, expected) in [
            ("uploads.example.com", "https://uploads.example.com/a", true),
            ("uploads.example.com", "http://uploads.example.com/a", false),
            ("uploads.example.com", "https://uploads.example.com:8443/a", false),
            ("https://Uploads.Example.com/", "https://uploads.example.com/a", true),
            ("*.example.com", "https://a.example.com/", true),
            ("*.example.com", "https://example.com.evil.org/", false),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/x", true),
            ("[::1]:8080", "https://[::1]:8080/", true),
            ("http://[::1]", "http://[::1]/", true),
        ] {
            assert_eq!(host(entry).covers_url(&url(address)), expected, "{entry} {address}");
        }
        for wrong in ["", "*", "*.*", "ftp://a", "a b", "a:port", "https://a/b", "me@a"] {
            assert!(wrong.parse::<AuthHost>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_document_from_the_web_is_believed_once_and_across_restarts() {
        let folder = tempfile::tempdir().unwrap();
        let memory = |spec: &str| OriginMemory {
            file: folder.path().join("apis/shop.json"),
            spec: Url::parse(spec).unwrap(),
        };
        let origin = |text: &str| Some(text.to_owned());
        let home = |spec: &str, said: &str, token: &str| {
            let tokens = BTreeMap::from([("login".to_owned(), token.to_owned())]);
            SecretOrigins::new("shop", &[], Some(&memory(spec)), origin(said), tokens)
        };
        let covers = |home: &SecretOrigins, url: &str| home.covers_url(&Url::parse(url).unwrap());
        let first = home("https://docs.a/api.json", "https://api.a", "https://login.a");
        assert!(covers(&first, "https://api.a/x"));
        let moved = home("https://docs.a/api.json", "https://evil.b", "https://evil.b");
        assert!(covers(&moved, "https://api.a/x") && !covers(&moved, "https://evil.b/x"));
        let evil = Url::parse("https://evil.b/token").unwrap();
        assert_eq!(
            moved.check_token_url("login", &evil).unwrap_err().hint.as_deref(),
            Some("if tokens are given out there now, set token_url in apis.shop.auth.login")
        );
        assert_eq!(
            moved.check_url(&evil).unwrap_err().to_string(),
            "error[denied]: the document of API 'shop' names https://evil.b, which is not sent the secrets of 'shop': they belong to https://api.a\nhint: if https://evil.b belongs to this API, add auth_hosts = [\"https://evil.b\"] to [apis.shop]"
        );
        // Another document is another API.
        let other = home("https://docs.b/api.json", "https://evil.b", "https://evil.b");
        assert!(covers(&other, "https://evil.b/x"));
    }
}
