//! Who is calling: by a bearer token that was handed out here ([`tokens`]), or by
//! one that an identity provider signed ([`jwt`], [`issuer`], [`keys`]).
//!
//! [`check`] stands in front of every route but the few that anybody may ask. It
//! puts a [`Who`] into the request and takes the token out of it: nothing behind
//! it sees one, so none can be passed on. What a caller may do is not decided
//! here; its name selects the rules.

mod challenge;
mod issuer;
mod jwt;
mod keys;
mod tokens;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures::StreamExt;
use http::{HeaderMap, header};
use moonlark_core::call::{ANONYMOUS, LOCAL};
use moonlark_core::policy::{Action, Terms};
use moonlark_core::{Code, Gateway, Problem, Result};
use parking_lot::Mutex;

use crate::who::Who;
use challenge::Refusal;
use issuer::{Doubt, Issuer};
use jwt::Refused;
use tokens::Table;

pub(crate) use challenge::{LOGIN_PATHS, WELL_KNOWN, explain_tokens, metadata};
pub use issuer::{Fetch, IssuerSettings, is_safe};
pub use jwt::Expected;
pub use tokens::{Hash, Held, TokenFile, check_name};

/// How often it is looked whether the token of an open stream is still good.
const LOOK: Duration = Duration::from_secs(2);

/// What the operator decides about callers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AuthSettings {
    /// Names, and the hashes of their tokens.
    pub tokens: Vec<(String, Hash)>,
    pub issuer: Option<IssuerSettings>,
    /// Names of those who may see and decide what others may not.
    pub operators: Vec<String>,
    /// Where clients reach this server, if not where it listens.
    pub url: Option<String>,
}

/// Finds out who makes a request.
pub struct Auth {
    gateway: Gateway,
    file: TokenFile,
    fetch: Fetch,
    configured: ArcSwap<Configured>,
    table: ArcSwap<Table>,
    /// One at a time takes over what is new in the file.
    changing: Mutex<()>,
    /// Nobody may call without a token, even if there is none.
    always: AtomicBool,
}

#[derive(Default)]
struct Configured {
    settings: AuthSettings,
    issuer: Option<Arc<Issuer>>,
}

/// What a caller has shown.
enum Shown {
    /// A token of ours.
    Ours(Hash),
    /// One that a provider signed, and until when it counts.
    Signed(Arc<Issuer>, f64),
}

/// Lets whoever shows who they are through to what is behind it.
pub(crate) async fn check(
    auth: &Arc<Auth>,
    mut request: Request,
    next: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    match auth.who(request.headers()).await {
        Ok(Some((who, token))) => {
            request.headers_mut().remove(header::AUTHORIZATION);
            request.extensions_mut().insert(who);
            let response = next(request).await;
            while_good(response, auth, token)
        }
        Ok(None) => next(request).await,
        Err(refusal) => refusal.response(auth, &request),
    }
}

/// A stream that goes on for long ends soon after its token was taken back, or has
/// expired: whoever wants to hear more comes with another one.
fn while_good(response: Response, auth: &Arc<Auth>, token: Shown) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    if kind.is_none_or(|kind| !kind.as_bytes().starts_with(b"text/event-stream")) {
        return response;
    }
    let auth = auth.clone();
    let over = async move {
        while auth.is_good(&token) {
            tokio::time::sleep(LOOK).await;
        }
    };
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(over))))
}

impl Auth {
    /// Tokens are kept in `file`, and documents of providers got by `fetch`.
    pub fn new(gateway: Gateway, file: PathBuf, fetch: Fetch) -> Arc<Auth> {
        let auth = Auth {
            gateway,
            file: TokenFile::new(file),
            fetch,
            configured: ArcSwap::default(),
            table: ArcSwap::default(),
            changing: Mutex::default(),
            always: AtomicBool::new(false),
        };
        auth.table();
        Arc::new(auth)
    }

    /// From now on. The keys of a provider stay known if nothing is new about it.
    pub fn configure(&self, settings: AuthSettings) {
        let before = self.configured.load();
        if before.settings == settings {
            return;
        }
        let kept = before.issuer.iter().find(|it| Some(&it.settings) == settings.issuer.as_ref());
        let new = || settings.issuer.clone().map(|it| Issuer::new(it, self.fetch.clone()));
        let issuer = kept.cloned().or_else(new);
        self.configured.store(Arc::new(Configured { settings, issuer }));
    }

    /// Let nobody call without a token, whatever becomes of tokens and settings.
    pub fn require(&self) {
        self.always.store(true, Ordering::Relaxed);
    }

    /// Whether callers have to show who they are.
    pub fn is_required(&self) -> bool {
        self.requires(&self.table(), &self.configured.load())
    }

    fn requires(&self, table: &Table, configured: &Configured) -> bool {
        self.always.load(Ordering::Relaxed)
            || !configured.settings.tokens.is_empty()
            || configured.issuer.is_some()
            || table.is_there
    }

    /// How callers are known, in words; for a provider, whether it answers.
    pub async fn summary(&self) -> Result<String> {
        let (table, configured) = (self.table(), self.configured.load_full());
        if let Some(problem) = &table.problem {
            return Err(problem.clone());
        }
        let good = table.held.iter().filter(|it| it.hash.is_some()).map(|it| it.name.as_str());
        let set = configured.settings.tokens.iter().map(|(name, _)| name.as_str());
        let names: Vec<&str> = good.chain(set).collect();
        let mut ways = Vec::new();
        if !names.is_empty() {
            ways.push(format!("by token: {}", names.join(", ")));
        }
        if let Some(issuer) = &configured.issuer {
            issuer.look().await?;
            let (name, keys) = (&issuer.settings.expected.issuer, issuer.count());
            let many = if keys == 1 { "" } else { "s" };
            ways.push(format!("by {name}, which has {keys} key{many}"));
        }
        Ok(match (ways.is_empty(), self.requires(&table, &configured)) {
            (false, _) => ways.join("; "),
            (true, true) => "nobody has a token, so nobody may call over HTTP".to_owned(),
            (true, false) => "nobody has to show who they are, on this machine".to_owned(),
        })
    }

    /// Whether what was shown still counts.
    fn is_good(&self, token: &Shown) -> bool {
        let configured = self.configured.load();
        match token {
            Shown::Ours(hash) => configured.owner(*hash, &self.table()).is_some(),
            Shown::Signed(by, until) => {
                issuer::now() < *until
                    && configured.issuer.as_ref().is_some_and(|it| Arc::ptr_eq(it, by))
            }
        }
    }

    /// Who makes a request, and by which token; none if nobody has to say.
    async fn who(&self, headers: &HeaderMap) -> Result<Option<(Who, Shown)>, Refusal> {
        let (table, configured) = (self.table(), self.configured.load_full());
        if !self.requires(&table, &configured) {
            return Ok(None);
        }
        let token = bearer(headers)?;
        let hash = Hash::of(token);
        if let Some(who) = configured.owner(hash, &table) {
            return Ok(Some((who, Shown::Ours(hash))));
        }
        let Some(issuer) = &configured.issuer else {
            return Err(Refusal::invalid("is not one that was handed out here"));
        };
        let (name, until) = issuer.name(token).await.map_err(|doubt| match doubt {
            Doubt::Refused(Refused::Invalid(why)) => Refusal::invalid(why),
            Doubt::Refused(Refused::LacksScope) => Refusal::lacks_scope(issuer),
            Doubt::NoKeys(problem) => Refusal::plain(problem),
        })?;
        // A provider's users do not become ours by taking their names.
        let is_ours = matches!(name.as_str(), LOCAL | ANONYMOUS)
            || table.held.iter().any(|it| it.name == name)
            || configured.settings.tokens.iter().any(|(ours, _)| *ours == name);
        match is_ours {
            true => Err(Refusal::invalid("has a name that belongs to somebody else here")),
            false => Ok(Some((configured.who(&name, false), Shown::Signed(issuer.clone(), until)))),
        }
    }

    /// The tokens as the file has them now. What their holders may not reach is in
    /// force before the first of them counts.
    fn table(&self) -> Arc<Table> {
        let last = self.table.load_full();
        if Arc::ptr_eq(&self.file.current(&last), &last) {
            return last;
        }
        let _changing = self.changing.lock();
        let last = self.table.load_full();
        let table = self.file.current(&last);
        if Arc::ptr_eq(&table, &last) {
            return last;
        }
        match &table.problem {
            None => self.gateway.limit_callers(limits(&table)),
            // What is known of their limits holds on.
            Some(problem) if last.problem.as_ref() != Some(problem) => tracing::error!("{problem}"),
            Some(_) => {}
        }
        self.table.store(table.clone());
        table
    }
}

/// What tokens leave out, as rules.
fn limits(table: &Table) -> Vec<(String, Terms)> {
    let limited = table.held.iter().filter(|it| !it.tools.is_empty());
    let rule = |held: &Held| {
        let (callers, except) = (vec![held.name.clone()], held.tools.clone());
        let terms = Terms { callers, except, action: Action::Deny, ..Terms::default() };
        (format!("the token {}", held.name), terms)
    };
    limited.map(rule).collect()
}

impl Configured {
    /// Whose token of ours it is.
    fn owner(&self, token: Hash, table: &Table) -> Option<Who> {
        if let Some(held) = table.find(token) {
            return Some(self.who(&held.name, held.operator));
        }
        let mut set = self.settings.tokens.iter();
        set.find(|(_, set)| set.is(token)).map(|(name, _)| self.who(name, false))
    }

    fn who(&self, name: &str, operator: bool) -> Who {
        let operator = operator || self.settings.operators.iter().any(|it| it == name);
        Who::named(name).operating(operator)
    }
}

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = all.next() else { return Err(Refusal::missing()) };
    let (scheme, token) = value.to_str().ok().and_then(|it| it.split_once(' ')).unwrap_or_default();
    match scheme.eq_ignore_ascii_case("bearer") && all.next().is_none() {
        true => Ok(token.trim()),
        false => Err(Refusal::plain(
            Problem::new(Code::Unauthorized, "the Authorization header has no bearer token")
                .hint("send it once, as: Authorization: Bearer TOKEN"),
        )),
    }
}
