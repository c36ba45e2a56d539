//! An identity provider on loopback: it publishes keys, and signs what it is told
//! to.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING,
    ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
    RSA_PSS_SHA512, RsaEncoding, RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::harness::PATIENCE;

/// Made for these tests, and good for nothing else.
const RSA: &str = include_str!("rsa.key");

pub struct Provider {
    pub port: u16,
    site: Arc<Site>,
    /// Ends the server when it is dropped.
    _ends: oneshot::Sender<()>,
}

struct Site {
    port: Mutex<u16>,
    /// Signs for whoever logs in.
    login: Signer,
    keys: Mutex<Vec<Value>>,
    is_down: Mutex<bool>,
    asked: Mutex<Vec<String>>,
}

impl Provider {
    pub fn open(keys: &[&Signer]) -> Provider {
        let (ends, ended) = oneshot::channel::<()>();
        let (tell, port) = std::sync::mpsc::channel();
        let site = Arc::new(Site {
            port: Mutex::default(),
            login: Signer::p256("login"),
            keys: Mutex::new(keys.iter().map(|key| key.public()).collect()),
            is_down: Mutex::default(),
            asked: Mutex::default(),
        });
        let shared = site.clone();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let port = listener.local_addr().unwrap().port();
                *shared.port.lock() = port;
                tell.send(port).unwrap();
                let app = Router::new().fallback(answer).with_state(shared);
                tokio::select! {
                    served = axum::serve(listener, app) => served.unwrap(),
                    _ = ended => {}
                }
            });
        });
        Provider { port: port.recv_timeout(PATIENCE).unwrap(), site, _ends: ends }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn publish(&self, keys: &[&Signer]) {
        *self.site.keys.lock() = keys.iter().map(|key| key.public()).collect();
    }

    /// Let everybody log in who asks to.
    pub fn publish_login(&self) {
        self.publish(&[&self.site.login]);
    }

    /// The token of somebody who has logged in.
    pub fn logged_in(&self, audience: &str) -> String {
        self.site.token(audience, "")
    }

    pub fn go_down(&self, is_down: bool) {
        *self.site.is_down.lock() = is_down;
    }

    /// The paths it was asked for so far.
    pub fn asked(&self) -> Vec<String> {
        self.site.asked.lock().clone()
    }
}

async fn answer(State(site): State<Arc<Site>>, uri: Uri, body: String) -> Response {
    site.asked.lock().push(uri.path().to_owned());
    if *site.is_down.lock() {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    let issuer = format!("http://127.0.0.1:{}", site.port.lock());
    match uri.path() {
        "/.well-known/openid-configuration" => {
            let at = |path: &str| format!("{issuer}/{path}");
            axum::Json(json!({
                "issuer": issuer,
                "jwks_uri": at("keys"),
                "authorization_endpoint": at("authorize"),
                "token_endpoint": at("token"),
                "registration_endpoint": at("register"),
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
            }))
            .into_response()
        }
        "/register" => {
            let mut client: Value = serde_json::from_str(&body).unwrap();
            client["client_id"] = json!("suite");
            (StatusCode::CREATED, axum::Json(client)).into_response()
        }
        // Nobody is asked anything: the code says what is wanted.
        "/authorize" => {
            let asked = fields(uri.query().unwrap_or_default());
            let code = encoded(
                json!([
                    asked["code_challenge"],
                    asked["resource"],
                    asked.get("scope").cloned().unwrap_or_default()
                ])
                .to_string(),
            );
            let back = format!("{}?code={code}&state={}", asked["redirect_uri"], asked["state"]);
            (StatusCode::FOUND, [("location", back)]).into_response()
        }
        "/token" => {
            let asked = fields(&body);
            let code = URL_SAFE_NO_PAD.decode(&asked["code"]).unwrap();
            let [challenge, resource, scope]: [String; 3] = serde_json::from_slice(&code).unwrap();
            let verifier = digest(&SHA256, asked["code_verifier"].as_bytes());
            assert_eq!(encoded(verifier), challenge);
            assert_eq!(asked["resource"], resource);
            let token = site.token(&resource, &scope);
            axum::Json(json!({"access_token": token, "token_type": "Bearer", "expires_in": 300}))
                .into_response()
        }
        "/keys" => axum::Json(json!({"keys": *site.keys.lock()})).into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn fields(form: &str) -> HashMap<String, String> {
    url::form_urlencoded::parse(form.as_bytes()).into_owned().collect()
}

impl Site {
    fn token(&self, audience: &str, scope: &str) -> String {
        let issuer = format!("http://127.0.0.1:{}", self.port.lock());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let claims = json!({
            "iss": issuer, "aud": audience, "sub": "ann", "scope": scope, "exp": now + 300,
        });
        self.login.sign("ES256", &claims)
    }
}

/// A key, with the name and the algorithm it is published under.
pub struct Signer {
    id: String,
    algorithm: Option<&'static str>,
    pair: Pair,
}

enum Pair {
    Ed25519(Ed25519KeyPair),
    Ec(EcdsaKeyPair, &'static str),
    Rsa(RsaKeyPair),
}

impl Signer {
    pub fn ed25519(id: &str) -> Signer {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
        Signer { id: id.to_owned(), algorithm: None, pair: Pair::Ed25519(pair) }
    }

    pub fn p256(id: &str) -> Signer {
        Self::ec(id, &ECDSA_P256_SHA256_FIXED_SIGNING, "P-256")
    }

    pub fn p384(id: &str) -> Signer {
        Self::ec(id, &ECDSA_P384_SHA384_FIXED_SIGNING, "P-384")
    }

    /// Writes its signatures as certificates do, not as tokens do.
    pub fn asn1(id: &str) -> Signer {
        Self::ec(id, &ECDSA_P256_SHA256_ASN1_SIGNING, "P-256")
    }

    fn ec(id: &str, by: &'static EcdsaSigningAlgorithm, curve: &'static str) -> Signer {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(by, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(by, pkcs8.as_ref(), &random).unwrap();
        Signer { id: id.to_owned(), algorithm: None, pair: Pair::Ec(pair, curve) }
    }

    /// Always the same key.
    pub fn rsa(id: &str, algorithm: Option<&'static str>) -> Signer {
        let pkcs8 = STANDARD.decode(RSA.split_whitespace().collect::<String>()).unwrap();
        let pair = RsaKeyPair::from_pkcs8(&pkcs8).unwrap();
        Signer { id: id.to_owned(), algorithm, pair: Pair::Rsa(pair) }
    }

    pub fn modulus(&self) -> Vec<u8> {
        let Pair::Rsa(pair) = &self.pair else { panic!("no RSA key") };
        RsaPublicKeyComponents::<Vec<u8>>::from(pair.public()).n
    }

    /// The bytes of the public key: for RSA, PKCS #1.
    pub fn bytes(&self) -> Vec<u8> {
        match &self.pair {
            Pair::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Ec(pair, _) => pair.public_key().as_ref().to_vec(),
            Pair::Rsa(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    pub fn public(&self) -> Value {
        let mut key = match &self.pair {
            Pair::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encoded(pair.public_key())})
            }
            Pair::Ec(pair, curve) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                json!({"kty": "EC", "crv": curve, "x": encoded(x), "y": encoded(y)})
            }
            Pair::Rsa(pair) => {
                let parts = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "n": encoded(parts.n), "e": encoded(parts.e)})
            }
        };
        key["kid"] = json!(self.id);
        if let Some(algorithm) = self.algorithm {
            key["alg"] = json!(algorithm);
        }
        key
    }

    /// A token with these claims, by this algorithm.
    pub fn sign(&self, algorithm: &str, claims: &Value) -> String {
        self.sign_with(&json!({"alg": algorithm, "kid": self.id, "typ": "JWT"}), claims)
    }

    /// The same with a header of any kind; the signature is what its `alg` says, or
    /// what the key can.
    pub fn sign_with(&self, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        let signature = self.signature(header["alg"].as_str().unwrap_or(""), signed.as_bytes());
        format!("{signed}.{}", encoded(signature))
    }

    pub fn signature(&self, algorithm: &str, of: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        let rsa = |pair: &RsaKeyPair, by: &'static dyn RsaEncoding| {
            let mut signature = vec![0; pair.public().modulus_len()];
            pair.sign(by, &random, of, &mut signature).unwrap();
            signature
        };
        match (&self.pair, algorithm) {
            (Pair::Ed25519(pair), _) => pair.sign(of).as_ref().to_vec(),
            (Pair::Ec(pair, _), _) => pair.sign(&random, of).unwrap().as_ref().to_vec(),
            (Pair::Rsa(pair), "RS384") => rsa(pair, &RSA_PKCS1_SHA384),
            (Pair::Rsa(pair), "RS512") => rsa(pair, &RSA_PKCS1_SHA512),
            (Pair::Rsa(pair), "PS256") => rsa(pair, &RSA_PSS_SHA256),
            (Pair::Rsa(pair), "PS384") => rsa(pair, &RSA_PSS_SHA384),
            (Pair::Rsa(pair), "PS512") => rsa(pair, &RSA_PSS_SHA512),
            (Pair::Rsa(pair), _) => rsa(pair, &RSA_PKCS1_SHA256),
        }
    }
}

/// Header and claims, as they are signed.
pub fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()))
}

pub fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
