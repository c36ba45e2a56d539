//! An identity provider: the keys it signs with, as it publishes them.
//!
//! They are fetched when the first token comes, and again when one is signed with
//! a key that is not known, since providers change their keys; but not more often
//! than anybody should be asked because of what strangers send. A provider that
//! does not answer keeps the keys it had.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use moonlark_core::tool::BoxFuture;
use moonlark_core::{Problem, Result};
use serde::Deserialize;
use tokio::sync::Mutex;
use url::{Host, Url};

use super::jwt::{Expected, Refused, Token};
use super::keys::{self, Key};

/// Gets what is at an address, with bounds on time and size.
pub type Fetch = Arc<dyn Fn(Url) -> BoxFuture<Result<Vec<u8>>> + Send + Sync>;

/// After that, keys are looked at again: one may have been withdrawn.
const FRESH: Duration = Duration::from_secs(10 * 60);
/// How often the provider is asked, at most: so many times in so long.
const TIMES: u32 = 5;
const WITHIN: Duration = Duration::from_secs(60);

/// What is asked of tokens, and where their keys are.
#[derive(Debug, Clone, PartialEq)]
pub struct IssuerSettings {
    pub expected: Expected,
    /// Where the keys are; otherwise the provider says so itself.
    pub keys: Option<Url>,
}

pub(crate) struct Issuer {
    pub(crate) settings: IssuerSettings,
    fetch: Fetch,
    known: ArcSwap<Known>,
    /// How often it was asked so far, with or without an answer.
    asked: AtomicU64,
    asking: Mutex<Pace>,
}

#[derive(Default)]
struct Known {
    keys: Vec<Key>,
    at: Option<Instant>,
}

#[derive(Default)]
struct Pace {
    since: Option<Instant>,
    times: u32,
}

/// Why a token does not count.
pub(crate) enum Doubt {
    Refused(Refused),
    /// Nothing can be said about any token.
    NoKeys(Problem),
}

impl Issuer {
    pub(crate) fn new(settings: IssuerSettings, fetch: Fetch) -> Arc<Self> {
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
    pub(crate) async fn name(self: &Arc<Self>, text: &str) -> Result<(String, f64), Doubt> {
        let token = Token::read(text).map_err(Doubt::Refused)?;
        let known = self.known.load_full();
        if known.at.is_some_and(|at| at.elapsed() > FRESH) {
            // Nobody waits for this: the keys are most likely the same.
            let this = self.clone();
            tokio::spawn(async move { this.look().await });
        }
        if !token.is_by(&known.keys) {
            let is_named = |key: &Key| key.id.is_some() && key.id.as_deref() == token.key();
            let unknown = Doubt::Refused(Refused::Invalid("is not signed by its issuer"));
            if known.keys.iter().any(is_named) {
                return Err(unknown);
            }
            let looked = self.look().await;
            let known = self.known.load_full();
            if !token.is_by(&known.keys) {
                return Err(match (known.at, looked) {
                    (None, Err(problem)) => Doubt::NoKeys(problem),
                    _ => unknown,
                });
            }
        }
        let (name, until) = token.names(&self.settings.expected, now()).map_err(Doubt::Refused)?;
        Ok((name.to_owned(), until))
    }

    /// How many keys there are.
    pub(crate) fn count(&self) -> usize {
        self.known.load().keys.len()
    }

    /// Ask for the keys, unless somebody just did.
    pub(crate) async fn look(&self) -> Result<()> {
        let before = self.asked.load(Ordering::Acquire);
        let mut pace = self.asking.lock().await;
        if self.asked.load(Ordering::Acquire) != before || !pace.allows() {
            let problem = || Problem::unavailable(format!("{} gave no keys", self.issuer()));
            return self.known.load().at.map(|_| ()).ok_or_else(problem);
        }
        let fetched = self.fetched().await;
        self.asked.fetch_add(1, Ordering::Release);
        match fetched {
            Ok(keys) => {
                self.known.store(Arc::new(Known { keys, at: Some(Instant::now()) }));
                Ok(())
            }
            Err(problem) => {
                tracing::warn!("{problem}");
                Err(problem)
            }
        }
    }

    async fn fetched(&self) -> Result<Vec<Key>> {
        let address = match &self.settings.keys {
            Some(address) => address.clone(),
            None => self.discovered().await?,
        };
        let set = self.get(address).await?;
        keys::read(&set).ok_or_else(|| self.unusable("it publishes no set of keys"))
    }

    /// Where the provider says that its keys are, by OpenID Connect Discovery.
    async fn discovered(&self) -> Result<Url> {
        #[derive(Deserialize)]
        struct Metadata {
            issuer: String,
            jwks_uri: Url,
        }
        let base = self.issuer().trim_end_matches('/');
        let address = Url::parse(&format!("{base}/.well-known/openid-configuration"));
        let metadata = self.get(address.map_err(|_| self.unusable("it is no address"))?).await?;
        let metadata: Metadata = serde_json::from_slice(&metadata)
            .map_err(|_| self.unusable("it does not say where its keys are"))?;
        if metadata.issuer != self.issuer() {
            return Err(self.unusable("it calls itself by another name"));
        }
        match is_safe(&metadata.jwks_uri) {
            true => Ok(metadata.jwks_uri),
            false => Err(self.unusable("its keys are where anybody could change them: not https")),
        }
    }

    async fn get(&self, address: Url) -> Result<Vec<u8>> {
        (self.fetch)(address).await.map_err(|problem| self.unusable(&problem.message))
    }

    fn issuer(&self) -> &str {
        &self.settings.expected.issuer
    }

    fn unusable(&self, why: &str) -> Problem {
        let issuer = self.issuer();
        Problem::unavailable(format!("the keys of {issuer} cannot be had: {why}")).hint(
            "check server.auth.issuer, and that this machine reaches it; server.auth.jwks is for one that does not say where its keys are",
        )
    }
}

impl Pace {
    fn allows(&mut self) -> bool {
        if self.since.is_none_or(|since| since.elapsed() > WITHIN) {
            *self = Pace { since: Some(Instant::now()), times: 0 };
        }
        self.times += 1;
        self.times <= TIMES
    }
}

/// In seconds since 1970.
pub(super) fn now() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64()
}

/// Whether nobody in between can change what is read from there.
pub fn is_safe(url: &Url) -> bool {
    let here = match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && here)
}
