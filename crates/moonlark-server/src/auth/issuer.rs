//! An identity provider: the keys it signs with, as it publishes them.
//!
//! They are fetched when the first token comes, and again when one is signed with
//! a key that is not known, since providers change their keys; but not more often
//! than anybody should be asked because of what strangers send. A provider that
//! does not answer keeps the keys it had.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use moonlark_child::spawn_to_finish;
use moonlark_core::tool::BoxFuture;
use moonlark_core::{Problem, Result};
use serde::Deserialize;
use tokio::sync::Mutex;
use url::{Host, Url};

use super::jwks::{self, VerificationKey};
use super::jwt::{ExpectedClaims, JwtRejection, ParsedJwt};
use crate::unix_time;

/// Gets what is at an address, with bounds on time and size.
pub type FetchUrl = Arc<dyn Fn(Url) -> BoxFuture<Result<Vec<u8>>> + Send + Sync>;

/// After that, keys are looked at again: one may have been withdrawn.
const MAX_KEY_AGE: Duration = Duration::from_secs(10 * 60);
/// How often the provider is asked, at most: so many times in so long.
const MAX_FETCHES_PER_WINDOW: u32 = 5;
const KEY_FETCH_WINDOW: Duration = Duration::from_secs(60);

/// What is asked of tokens, and where their keys are.
#[derive(Debug, Clone, PartialEq)]
pub struct IssuerSettings {
    pub expected: ExpectedClaims,
    /// Where the keys are; otherwise the provider says so itself.
    pub keys: Option<Url>,
}

pub(crate) struct TokenIssuer {
    pub(crate) settings: IssuerSettings,
    fetch: FetchUrl,
    known: ArcSwap<KnownIssuerKeys>,
    /// How often it was asked so far, with or without an answer.
    asked: AtomicU64,
    asking: Mutex<KeyFetchBudget>,
}

#[derive(Default)]
struct KnownIssuerKeys {
    keys: Vec<VerificationKey>,
    at: Option<Instant>,
}

#[derive(Default)]
struct KeyFetchBudget {
    since: Option<Instant>,
    times: u32,
}

/// Why a token does not count.
pub(crate) enum TokenRejection {
    Refused(JwtRejection),
    /// Nothing can be said about any token.
    NoKeys(Problem),
}

impl TokenIssuer {
    pub(crate) fn new(settings: IssuerSettings, fetch: FetchUrl) -> Arc<Self> {
        let known = ArcSwap::default();
        Arc::new(Self {
            settings,
            fetch,
            known,
            asked: AtomicU64::new(0),
            asking: Mutex::default(),
        })
    }

    /// The name of whoever holds the token, and until when it counts, in seconds since
    /// 1970.
    pub(crate) async fn verify_token(
        self: &Arc<Self>,
        text: &str,
    ) -> Result<(String, f64), TokenRejection> {
        let token = ParsedJwt::parse(text).map_err(TokenRejection::Refused)?;
        let known = self.known.load_full();
        if known.at.is_some_and(|at| at.elapsed() > MAX_KEY_AGE) {
            // Nobody waits for this: the keys are most likely the same.
            let this = self.clone();
            spawn_to_finish(async move { this.refresh_keys().await });
        }
        if !token.is_signed_by(&known.keys) {
            let is_named =
                |key: &VerificationKey| key.id.is_some() && key.id.as_deref() == token.key_id();
            let unknown =
                TokenRejection::Refused(JwtRejection::Invalid("is not signed by its issuer"));
            if known.keys.iter().any(is_named) {
                return Err(unknown);
            }
            let looked = self.refresh_keys().await;
            let known = self.known.load_full();
            if !token.is_signed_by(&known.keys) {
                return Err(match (known.at, looked) {
                    (None, Err(problem)) => TokenRejection::NoKeys(problem),
                    _ => unknown,
                });
            }
        }
        let (name, until) = token
            .check_claims(&self.settings.expected, unix_time().as_secs_f64())
            .map_err(TokenRejection::Refused)?;
        Ok((name.to_owned(), until))
    }

    /// How many keys there are.
    pub(crate) fn key_count(&self) -> usize {
        self.known.load().keys.len()
    }

    /// Ask for the keys, unless somebody just did.
    pub(crate) async fn refresh_keys(&self) -> Result<()> {
        let before = self.asked.load(Ordering::Acquire);
        let mut pace = self.asking.lock().await;
        if self.asked.load(Ordering::Acquire) != before || !pace.allows_fetch() {
            let problem = || Problem::unavailable(format!("{} gave no keys", self.issuer()));
            return self.known.load().at.map(|_| ()).ok_or_else(problem);
        }
        let fetched = self.fetch_keys().await;
        self.asked.fetch_add(1, Ordering::Release);
        match fetched {
            Ok(keys) => {
                self.known.store(Arc::new(KnownIssuerKeys { keys, at: Some(Instant::now()) }));
                Ok(())
            }
            Err(problem) => {
                tracing::warn!("{problem}");
                Err(problem)
            }
        }
    }

    async fn fetch_keys(&self) -> Result<Vec<VerificationKey>> {
        let address = match &self.settings.keys {
            Some(address) => address.clone(),
            None => self.discover_keys_url().await?,
        };
        let set = self.fetch_document(address).await?;
        jwks::parse_key_set(&set)
            .ok_or_else(|| self.unusable_keys_problem("it publishes no set of keys"))
    }

    /// Where the provider says that its keys are, by OpenID Connect Discovery.
    async fn discover_keys_url(&self) -> Result<Url> {
        #[derive(Deserialize)]
        struct OpenIdConfiguration {
            issuer: String,
            jwks_uri: Url,
        }
        let base = self.issuer().trim_end_matches('/');
        let address = Url::parse(&format!("{base}/.well-known/openid-configuration"));
        let metadata = self
            .fetch_document(address.map_err(|_| self.unusable_keys_problem("it is not a URL"))?)
            .await?;
        let metadata: OpenIdConfiguration = serde_json::from_slice(&metadata)
            .map_err(|_| self.unusable_keys_problem("its discovery document has no jwks_uri"))?;
        if metadata.issuer != self.issuer() {
            return Err(self.unusable_keys_problem("its discovery document names another issuer"));
        }
        if is_secure_url(&metadata.jwks_uri) {
            Ok(metadata.jwks_uri)
        } else {
            Err(self.unusable_keys_problem("its jwks_uri is not https"))
        }
    }

    async fn fetch_document(&self, address: Url) -> Result<Vec<u8>> {
        (self.fetch)(address).await.map_err(|problem| self.unusable_keys_problem(&problem.message))
    }

    fn issuer(&self) -> &str {
        &self.settings.expected.issuer
    }

    fn unusable_keys_problem(&self, why: &str) -> Problem {
        let issuer = self.issuer();
        Problem::unavailable(format!("the keys of {issuer} cannot be fetched: {why}")).with_hint(
            "check server.auth.issuer and that it can be reached; set server.auth.jwks if it has no OpenID Connect Discovery",
        )
    }
}

impl KeyFetchBudget {
    fn allows_fetch(&mut self) -> bool {
        if self.since.is_none_or(|since| since.elapsed() > KEY_FETCH_WINDOW) {
            *self = KeyFetchBudget { since: Some(Instant::now()), times: 0 };
        }
        self.times += 1;
        self.times <= MAX_FETCHES_PER_WINDOW
    }
}

/// Whether nobody in between can change what is read from there.
pub fn is_secure_url(url: &Url) -> bool {
    let here = match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && here)
}
