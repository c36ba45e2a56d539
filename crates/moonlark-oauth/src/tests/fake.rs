//! An authorization server and an upstream it guards, both on this machine.
//!
//! It checks what a real one would (PKCE, redirect address, client, resource,
//! one use of every code and refresh token) and misbehaves on request.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use url::Url;

/// How it behaves.
#[derive(Clone)]
pub(super) struct Manners {
    pub(super) expires_in: Option<u64>,
    pub(super) registers: bool,
    /// Whether clients that register get a secret.
    pub(super) secrets: bool,
    pub(super) methods: Vec<&'static str>,
    pub(super) iss: Iss,
    /// What a request needs.
    pub(super) needs: Vec<&'static str>,
    /// What a renewal is answered with.
    pub(super) refresh_fails: Option<(u16, &'static str)>,
    pub(super) revokes: bool,
    pub(super) denies: bool,
    /// Whom the upstream names, if not this one.
    pub(super) servers: Option<Vec<String>>,
    /// More in the metadata.
    pub(super) metadata: Value,
    /// Never more scopes than these.
    pub(super) gives: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Iss {
    Silent,
    Right,
    Wrong,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            expires_in: Some(3600),
            registers: true,
            secrets: false,
            methods: vec!["none", "client_secret_basic", "client_secret_post"],
            iss: Iss::Right,
            needs: vec!["read"],
            refresh_fails: None,
            revokes: true,
            denies: false,
            servers: None,
            metadata: json!({ "a_number": 12.5 }),
            gives: None,
        }
    }
}

#[derive(Default)]
struct Books {
    clients: HashMap<String, Option<String>>,
    codes: HashMap<String, AuthorizationCode>,
    access: HashMap<String, String>,
    refresh: HashMap<String, (String, String)>,
    count: u64,
    seen: Vec<String>,
}

struct AuthorizationCode {
    client: String,
    challenge: String,
    redirect_uri: String,
    scope: String,
}

pub(super) struct Fake {
    pub(super) base: String,
    pub(super) manners: Mutex<Manners>,
    /// Renewals wait while this is held for writing.
    pub(super) gate: tokio::sync::RwLock<()>,
    pub(super) refreshing: tokio::sync::Notify,
    books: Mutex<Books>,
}

type Shared = State<Arc<Fake>>;

impl Fake {
    pub(super) async fn start(manners: Manners) -> Arc<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let fake = Arc::new(Self {
            base,
            manners: Mutex::new(manners),
            gate: tokio::sync::RwLock::default(),
            refreshing: tokio::sync::Notify::default(),
            books: Mutex::default(),
        });
        let router = Router::new()
            .route("/mcp", post(mcp).get(mcp))
            .route("/.well-known/oauth-protected-resource/mcp", get(resource_metadata))
            .route("/.well-known/oauth-authorization-server", get(server_metadata))
            .route("/register", post(register))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .route("/revoke", post(revoke))
            .with_state(fake.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        fake
    }

    pub(super) fn url(&self) -> Url {
        format!("{}/mcp", self.base).parse().unwrap()
    }

    pub(super) fn change(&self, edit: impl FnOnce(&mut Manners)) {
        edit(&mut self.manners.lock());
    }

    /// A client that somebody registered by hand.
    pub(super) fn add_client(&self, id: &str, secret: &str) {
        self.books.lock().clients.insert(id.into(), Some(secret.into()));
    }

    /// What was asked of it since the last time, by kind.
    pub(super) fn seen(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for what in std::mem::take(&mut self.books.lock().seen) {
            *counts.entry(what).or_default() += 1;
        }
        counts
    }

    /// All access tokens stop working.
    pub(super) fn forget_access(&self) {
        self.books.lock().access.clear();
    }

    pub(super) fn forget_refresh(&self) {
        self.books.lock().refresh.clear();
    }

    pub(super) fn refresh_tokens(&self) -> usize {
        self.books.lock().refresh.len()
    }

    fn saw(&self, what: impl Into<String>) {
        self.books.lock().seen.push(what.into());
    }

    fn issue(&self, client: &str, scope: &str, refresh: bool) -> Response {
        let manners = self.manners.lock().clone();
        let scope = manners.gives.unwrap_or(scope);
        let mut books = self.books.lock();
        books.count += 1;
        let (access, again) = (format!("access-{}", books.count), format!("again-{}", books.count));
        books.access.insert(access.clone(), scope.into());
        let mut answer = json!({
            "access_token": access, "token_type": "Bearer", "scope": scope, "weight": 1.25,
        });
        if let Some(seconds) = manners.expires_in {
            answer["expires_in"] = seconds.into();
        }
        if refresh {
            books.refresh.insert(again.clone(), (client.into(), scope.into()));
            answer["refresh_token"] = again.into();
        }
        json_answer(StatusCode::OK, answer)
    }
}

async fn mcp(State(fake): Shared, headers: HeaderMap) -> Response {
    let token = headers.get(header::AUTHORIZATION).and_then(|it| it.to_str().ok());
    let token = token.and_then(|it| it.strip_prefix("Bearer "));
    let granted = token.and_then(|token| fake.books.lock().access.get(token).cloned());
    let needs = fake.manners.lock().needs.clone();
    let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", fake.base);
    let challenge = |status: StatusCode, error: &str| {
        let challenge = format!(
            "Bearer {error}scope=\"{}\", resource_metadata=\"{metadata}\"",
            needs.join(" ")
        );
        (status, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
    };
    match granted {
        None => challenge(StatusCode::UNAUTHORIZED, ""),
        Some(scope) if needs.iter().all(|need| scope.split(' ').any(|it| it == *need)) => {
            StatusCode::OK.into_response()
        }
        Some(_) => challenge(StatusCode::FORBIDDEN, "error=\"insufficient_scope\", "),
    }
}

async fn resource_metadata(State(fake): Shared) -> Response {
    fake.saw("resource metadata");
    let servers = fake.manners.lock().servers.clone();
    let servers = servers.unwrap_or_else(|| vec![fake.base.clone()]);
    let metadata = json!({ "resource": fake.url(), "authorization_servers": servers });
    json_answer(StatusCode::OK, metadata)
}

async fn server_metadata(State(fake): Shared) -> Response {
    fake.saw("server metadata");
    let (base, manners) = (&fake.base, fake.manners.lock().clone());
    let mut metadata = json!({
        "issuer": base,
        "authorization_endpoint": format!("{base}/authorize"),
        "token_endpoint": format!("{base}/token"),
        "code_challenge_methods_supported": ["S256"],
        "response_types_supported": ["code"],
        "token_endpoint_auth_methods_supported": manners.methods,
        "authorization_response_iss_parameter_supported": manners.iss == Iss::Right,
    });
    if manners.registers {
        metadata["registration_endpoint"] = format!("{base}/register").into();
    }
    if manners.revokes {
        metadata["revocation_endpoint"] = format!("{base}/revoke").into();
    }
    for (key, value) in manners.metadata.as_object().unwrap() {
        metadata[key] = value.clone();
    }
    json_answer(StatusCode::OK, metadata)
}

async fn register(State(fake): Shared, body: Bytes) -> Response {
    fake.saw("register");
    let asked: Value = serde_json::from_slice(&body).unwrap();
    let secret = fake.manners.lock().secrets.then(|| "s3cret-of-registration".to_owned());
    let mut books = fake.books.lock();
    let id = format!("client-{}", books.clients.len() + 1);
    books.clients.insert(id.clone(), secret.clone());
    let mut answer = json!({ "client_id": id, "redirect_uris": asked["redirect_uris"] });
    if let Some(secret) = secret {
        answer["client_secret"] = secret.into();
    }
    json_answer(StatusCode::CREATED, answer)
}

async fn authorize(State(fake): Shared, RawQuery(query): RawQuery) -> Response {
    let query = form(query.unwrap_or_default().as_bytes());
    let scope = query.get("scope").cloned().unwrap_or_default();
    fake.saw(format!("authorize {scope}"));
    assert_eq!(query["response_type"], "code");
    assert_eq!(query["code_challenge_method"], "S256");
    assert_eq!(query["resource"], fake.url().as_str());
    let manners = fake.manners.lock().clone();
    let mut back = Url::parse(&query["redirect_uri"]).unwrap();
    back.query_pairs_mut().append_pair("state", &query["state"]);
    match manners.iss {
        Iss::Silent => {}
        Iss::Right => drop(back.query_pairs_mut().append_pair("iss", &fake.base)),
        Iss::Wrong => drop(back.query_pairs_mut().append_pair("iss", "https://evil.example")),
    }
    if manners.denies {
        back.query_pairs_mut().append_pair("error", "access_denied");
    } else {
        let mut books = fake.books.lock();
        books.count += 1;
        let code = format!("code-{}", books.count);
        back.query_pairs_mut().append_pair("code", &code);
        let challenge = query["code_challenge"].clone();
        let (client, redirect_uri) = (query["client_id"].clone(), query["redirect_uri"].clone());
        books.codes.insert(code, AuthorizationCode { client, challenge, redirect_uri, scope });
    }
    (StatusCode::FOUND, [(header::LOCATION, back.to_string())]).into_response()
}

async fn token(State(fake): Shared, headers: HeaderMap, body: Bytes) -> Response {
    let form = form(&body);
    let Some((client, how)) = fake.client(&headers, &form) else {
        fake.saw("token for nobody");
        return refuse(StatusCode::UNAUTHORIZED, "invalid_client");
    };
    fake.saw(format!("token {} {how}", form["grant_type"]));
    assert_eq!(form["resource"], fake.url().as_str());
    match form["grant_type"].as_str() {
        "authorization_code" => {
            let Some(code) = fake.books.lock().codes.remove(&form["code"]) else {
                return refuse(StatusCode::BAD_REQUEST, "invalid_grant");
            };
            let verifier = Sha256::digest(form["code_verifier"].as_bytes());
            assert_eq!(code.challenge, BASE64_URL_SAFE_NO_PAD.encode(verifier));
            assert_eq!(
                (code.client, code.redirect_uri),
                (client.clone(), form["redirect_uri"].clone())
            );
            fake.issue(&client, &code.scope, true)
        }
        "refresh_token" => {
            fake.refreshing.notify_one();
            let _open = fake.gate.read().await;
            if let Some((status, error)) = fake.manners.lock().refresh_fails {
                return refuse(StatusCode::from_u16(status).unwrap(), error);
            }
            // Good for one use.
            let found = fake.books.lock().refresh.remove(&form["refresh_token"]);
            match found {
                Some((owner, scope)) if owner == client => fake.issue(&client, &scope, true),
                _ => refuse(StatusCode::BAD_REQUEST, "invalid_grant"),
            }
        }
        "client_credentials" => {
            let scope = form.get("scope").cloned().unwrap_or_default();
            fake.issue(&client, &scope, false)
        }
        _ => refuse(StatusCode::BAD_REQUEST, "unsupported_grant_type"),
    }
}

async fn revoke(State(fake): Shared, headers: HeaderMap, body: Bytes) -> Response {
    let form = form(&body);
    assert!(fake.client(&headers, &form).is_some());
    fake.saw(format!("revoke {}", form["token_type_hint"]));
    fake.books.lock().refresh.remove(&form["token"]);
    StatusCode::OK.into_response()
}

impl Fake {
    /// Who is asking, and how they proved it.
    fn client(
        &self,
        headers: &HeaderMap,
        form: &HashMap<String, String>,
    ) -> Option<(String, &'static str)> {
        let basic = headers.get(header::AUTHORIZATION).map(|value| {
            let text = value.to_str().unwrap().strip_prefix("Basic ").unwrap().to_owned();
            let text = String::from_utf8(BASE64_STANDARD.decode(text).unwrap()).unwrap();
            let (id, secret) = text.split_once(':').unwrap();
            (id.to_owned(), secret.to_owned())
        });
        let (id, secret, how) = match basic {
            Some((id, secret)) => (id, Some(secret), "basic"),
            None => match form.get("client_secret") {
                Some(secret) => (form["client_id"].clone(), Some(secret.clone()), "post"),
                None => (form["client_id"].clone(), None, "none"),
            },
        };
        let known = self.books.lock().clients.get(&id).cloned();
        // An address as a client's name: registered nowhere.
        let known = known.or_else(|| id.starts_with("https://").then_some(None));
        (known? == secret).then_some((id, how))
    }
}

fn form(body: &[u8]) -> HashMap<String, String> {
    url::form_urlencoded::parse(body).into_owned().collect()
}

fn refuse(status: StatusCode, error: &str) -> Response {
    json_answer(status, json!({ "error": error }))
}

fn json_answer(status: StatusCode, value: Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
