//! Who is calling: by a bearer token that was handed out here ([`token_file`]), or by
//! one that an identity provider signed ([`jwt`], [`issuer`], [`jwks`]).
//!
//! [`authenticate_request`] stands in front of every route but the few that anybody may ask. It
//! puts a [`Principal`] into the request and takes the token out of it: nothing behind
//! it sees one, so none can be passed on. What a caller may do is not decided
//! here; its name selects the rules.

mod challenge;
mod issuer;
mod jwks;
mod jwt;
mod token_file;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use futures::StreamExt;
use http::{HeaderMap, header};
use moonlark_core::{Problem, ProblemCode, Result};
use moonlark_gateway::Gateway;
use moonlark_gateway::call::{ANONYMOUS_CALLER, LOCAL_CALLER};
use moonlark_gateway::policy::{RuleAction, RuleTerms};
use parking_lot::Mutex;

use crate::principal::Principal;
use crate::unix_time;
use challenge::AuthRefusal;
use issuer::{TokenIssuer, TokenRejection};
use jwt::JwtRejection;
use token_file::TokenTable;

pub(crate) use challenge::{
    LOGIN_PATHS, RESOURCE_METADATA_PATH, explain_tokens, serve_resource_metadata,
};
pub use issuer::{FetchUrl, IssuerSettings, is_secure_url};
pub use jwt::ExpectedClaims;
pub use token_file::{StoredToken, TokenFile, TokenHash, check_token_name};

/// How often it is looked whether the token of an open stream is still good.
const TOKEN_RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// What the operator decides about callers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AuthSettings {
    /// Names, and the hashes of their tokens.
    pub tokens: Vec<(String, TokenHash)>,
    pub issuer: Option<IssuerSettings>,
    /// Names of those who may see and decide what others may not.
    pub operators: Vec<String>,
    /// Where clients reach this server, if not where it listens.
    pub url: Option<String>,
}

/// Finds out who makes a request.
pub struct RequestAuthenticator {
    gateway: Gateway,
    file: TokenFile,
    fetch: FetchUrl,
    configured: ArcSwap<ConfiguredAuth>,
    table: ArcSwap<TokenTable>,
    /// One at a time takes over what is new in the file.
    changing: Mutex<()>,
    /// Nobody may call without a token, even if there is none.
    always: AtomicBool,
}

#[derive(Default)]
struct ConfiguredAuth {
    settings: AuthSettings,
    issuer: Option<Arc<TokenIssuer>>,
}

/// What a caller has shown.
enum PresentedToken {
    /// A token of ours.
    Ours(TokenHash),
    /// One that a provider signed, and until when it counts.
    Signed(Arc<TokenIssuer>, f64),
}

/// Lets whoever shows who they are through to what is behind it.
pub(crate) async fn authenticate_request(
    auth: &Arc<RequestAuthenticator>,
    mut request: Request,
    next: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    match auth.identify_caller(request.headers()).await {
        Ok(Some((who, token))) => {
            request.headers_mut().remove(header::AUTHORIZATION);
            request.extensions_mut().insert(who);
            let response = next(request).await;
            end_stream_with_token(response, auth, token)
        }
        Ok(None) => next(request).await,
        Err(refusal) => refusal.into_challenge_response(auth, &request),
    }
}

/// A stream that goes on for long ends soon after its token was taken back, or has
/// expired: whoever wants to hear more comes with another one.
fn end_stream_with_token(
    response: Response,
    auth: &Arc<RequestAuthenticator>,
    token: PresentedToken,
) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    // Events that are all there do not go on.
    if !is_stream || response.body().size_hint().exact().is_some() {
        return response;
    }
    let auth = auth.clone();
    let over = async move {
        while auth.is_still_valid(&token) {
            tokio::time::sleep(TOKEN_RECHECK_INTERVAL).await;
        }
    };
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(over))))
}

impl RequestAuthenticator {
    /// Tokens are kept in `file`, and documents of providers got by `fetch`.
    pub fn new(gateway: Gateway, file: PathBuf, fetch: FetchUrl) -> Arc<RequestAuthenticator> {
        let auth = RequestAuthenticator {
            gateway,
            file: TokenFile::new(file),
            fetch,
            configured: ArcSwap::default(),
            table: ArcSwap::default(),
            changing: Mutex::default(),
            always: AtomicBool::new(false),
        };
        auth.current_token_table();
        Arc::new(auth)
    }

    /// From now on. The keys of a provider stay known if nothing is new about it.
    pub fn configure(&self, settings: AuthSettings) {
        let before = self.configured.load();
        if before.settings == settings {
            return;
        }
        let kept = before.issuer.iter().find(|it| Some(&it.settings) == settings.issuer.as_ref());
        let new = || settings.issuer.clone().map(|it| TokenIssuer::new(it, self.fetch.clone()));
        let issuer = kept.cloned().or_else(new);
        self.configured.store(Arc::new(ConfiguredAuth { settings, issuer }));
    }

    /// Let nobody call without a token, whatever becomes of tokens and settings.
    pub fn require_token(&self) {
        self.always.store(true, Ordering::Relaxed);
    }

    /// Whether callers have to show who they are.
    pub fn is_required(&self) -> bool {
        self.requires_token(&self.current_token_table(), &self.configured.load())
    }

    fn requires_token(&self, table: &TokenTable, configured: &ConfiguredAuth) -> bool {
        self.always.load(Ordering::Relaxed)
            || !configured.settings.tokens.is_empty()
            || configured.issuer.is_some()
            || table.is_there
    }

    /// How callers are known, in words; for a provider, whether it answers.
    pub async fn summary(&self) -> Result<String> {
        let (table, configured) = (self.current_token_table(), self.configured.load_full());
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
            issuer.refresh_keys().await?;
            let (name, keys) = (&issuer.settings.expected.issuer, issuer.key_count());
            let many = if keys == 1 { "" } else { "s" };
            ways.push(format!("by {name}, which has {keys} key{many}"));
        }
        Ok(match (ways.is_empty(), self.requires_token(&table, &configured)) {
            (false, _) => ways.join("; "),
            (true, true) => {
                "authentication is required and there are no tokens: every HTTP request is rejected"
                    .to_owned()
            }
            (true, false) => "no authentication, on this machine only".to_owned(),
        })
    }

    /// Whether what was shown still counts.
    fn is_still_valid(&self, token: &PresentedToken) -> bool {
        let configured = self.configured.load();
        match token {
            PresentedToken::Ours(hash) => {
                configured.find_token_owner(*hash, &self.current_token_table()).is_some()
            }
            PresentedToken::Signed(by, until) => {
                unix_time().as_secs_f64() < *until
                    && configured.issuer.as_ref().is_some_and(|it| Arc::ptr_eq(it, by))
            }
        }
    }

    /// Who makes a request, and by which token; none if nobody has to say.
    async fn identify_caller(
        &self,
        headers: &HeaderMap,
    ) -> Result<Option<(Principal, PresentedToken)>, AuthRefusal> {
        let (table, configured) = (self.current_token_table(), self.configured.load_full());
        if !self.requires_token(&table, &configured) {
            return Ok(None);
        }
        let token = bearer_token(headers)?;
        let hash = TokenHash::from_token(token);
        if let Some(who) = configured.find_token_owner(hash, &table) {
            return Ok(Some((who, PresentedToken::Ours(hash))));
        }
        let Some(issuer) = &configured.issuer else {
            return Err(AuthRefusal::unknown_token());
        };
        let (name, until) = issuer.verify_token(token).await.map_err(|doubt| match doubt {
            TokenRejection::Refused(JwtRejection::Invalid(why)) => AuthRefusal::invalid_token(why),
            TokenRejection::Refused(JwtRejection::LacksScope) => {
                AuthRefusal::insufficient_scope(issuer)
            }
            TokenRejection::NoKeys(problem) => AuthRefusal::from_problem(problem),
        })?;
        // A provider's users do not become ours by taking their names.
        let is_ours = matches!(name.as_str(), LOCAL_CALLER | ANONYMOUS_CALLER)
            || table.held.iter().any(|it| it.name == name)
            || configured.settings.tokens.iter().any(|(ours, _)| *ours == name);
        if is_ours {
            Err(AuthRefusal::invalid_token("has a name that one of this server's own tokens uses"))
        } else {
            Ok(Some((
                configured.principal_for(&name, false),
                PresentedToken::Signed(issuer.clone(), until),
            )))
        }
    }

    /// The tokens as the file has them now. What their holders may not reach is in
    /// force before the first of them counts.
    fn current_token_table(&self) -> Arc<TokenTable> {
        let last = self.table.load_full();
        if Arc::ptr_eq(&self.file.current_table(&last), &last) {
            return last;
        }
        let _changing = self.changing.lock();
        let last = self.table.load_full();
        let table = self.file.current_table(&last);
        if Arc::ptr_eq(&table, &last) {
            return last;
        }
        match &table.problem {
            None => self.gateway.limit_callers(token_rules(&table)),
            // What is known of their limits holds on.
            Some(problem) if last.problem.as_ref() != Some(problem) => tracing::error!("{problem}"),
            Some(_) => {}
        }
        self.table.store(table.clone());
        table
    }
}

/// What tokens leave out, as rules.
fn token_rules(table: &TokenTable) -> Vec<(String, RuleTerms)> {
    let limited = table.held.iter().filter(|it| !it.tools.is_empty());
    let rule = |held: &StoredToken| {
        let (callers, except) = (vec![held.name.clone()], held.tools.clone());
        let terms = RuleTerms { callers, except, action: RuleAction::Deny, ..RuleTerms::default() };
        (format!("the token {}", held.name), terms)
    };
    limited.map(rule).collect()
}

impl ConfiguredAuth {
    /// Whose token of ours it is.
    fn find_token_owner(&self, token: TokenHash, table: &TokenTable) -> Option<Principal> {
        if let Some(held) = table.find_token(token) {
            return Some(self.principal_for(&held.name, held.operator));
        }
        let mut set = self.settings.tokens.iter();
        set.find(|(_, set)| set.equals_in_constant_time(token))
            .map(|(name, _)| self.principal_for(name, false))
    }

    fn principal_for(&self, name: &str, operator: bool) -> Principal {
        let operator = operator || self.settings.operators.iter().any(|it| it == name);
        Principal::with_name(name).with_operator(operator)
    }
}

/// The token of a request.
fn bearer_token(headers: &HeaderMap) -> Result<&str, AuthRefusal> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = all.next() else { return Err(AuthRefusal::missing_token()) };
    let (scheme, token) = value.to_str().ok().and_then(|it| it.split_once(' ')).unwrap_or_default();
    if scheme.eq_ignore_ascii_case("bearer") && all.next().is_none() {
        Ok(token.trim())
    } else {
        Err(AuthRefusal::from_problem(
            Problem::new(ProblemCode::Unauthorized, "the Authorization header has no bearer token")
                .with_hint("send it once, as: Authorization: Bearer TOKEN"),
        ))
    }
}
