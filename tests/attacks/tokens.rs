//! Forged tokens: whatever is not signed by the provider, for this server and for
//! now, lets nobody in.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use ring::hmac;
use serde_json::{Value, json};

use super::provider::{Provider, Signer, encoded, unsigned};
use crate::harness::{Answer, Project, Server};

const WHOAMI: &str = r#"
tool = { name = "whoami", description = "Who calls" }
function tool.execute(params, context)
    return context.caller.name
end
"#;

struct World {
    provider: Provider,
    server: Server,
    _project: Project,
    ed: Signer,
    es: Signer,
    es384: Signer,
    rs256: Signer,
    rsa: Signer,
}

impl World {
    fn new() -> World {
        let (ed, es, es384) = (Signer::ed25519("ed"), Signer::p256("es"), Signer::p384("es384"));
        let (rs256, rsa) = (Signer::rsa("rs256", Some("RS256")), Signer::rsa("rsa", None));
        let provider = Provider::open(&[&ed, &es, &es384, &rs256, &rsa]);
        let config = format!(
            "[server.auth]\nissuer = \"{}\"\naudience = [\"moonlark\"]\nscope = \"call\"\ntokens.ci = \"a-token-that-nobody-would-guess\"\n",
            provider.url()
        );
        let project = Project::new(&[("moonlark.toml", &config), ("tools/whoami.lua", WHOAMI)]);
        let server = project.serve();
        World { provider, server, _project: project, ed, es, es384, rs256, rsa }
    }

    /// What a good token says.
    fn claims(&self) -> Value {
        json!({
            "iss": self.provider.url(), "aud": "moonlark", "sub": "ann", "scope": "call more",
            "exp": now() + 300, "nbf": now() - 5, "iat": now(),
        })
    }

    fn with(&self, claim: &str, value: Value) -> Value {
        let mut claims = self.claims();
        claims[claim] = value;
        claims
    }

    fn without(&self, claim: &str) -> Value {
        let mut claims = self.claims();
        claims.as_object_mut().unwrap().shift_remove(claim);
        claims
    }

    fn call(&self, token: &str) -> Answer {
        call(&self.server, &[("Authorization", &format!("Bearer {token}"))])
    }
}

fn call(server: &Server, headers: &[(&str, &str)]) -> Answer {
    let mut all = vec![("Content-Type", "application/json")];
    all.extend(headers);
    server.request("POST", "/tools/whoami", &all, b"{}")
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

#[track_caller]
fn let_in(answer: &Answer, name: &str, what: &str) {
    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    assert_eq!(answer.json(), json!({ "result": name }), "{what}");
}

#[track_caller]
fn kept_out(answer: &Answer, what: &str) {
    assert_eq!(answer.status, 401, "{what}: {}", answer.text());
    assert_eq!(answer.json()["error"]["code"], "unauthorized", "{what}");
    let challenge = answer.header("www-authenticate").unwrap_or_default();
    assert!(challenge.starts_with("Bearer realm=\"moonlark\""), "{what}: {challenge}");
}

#[test]
fn only_what_the_provider_signed_counts() {
    let world = World::new();
    let World { ed, es, es384, rs256, rsa, .. } = &world;
    for (signer, algorithm) in [
        (ed, "EdDSA"),
        (ed, "Ed25519"),
        (es, "ES256"),
        (es384, "ES384"),
        (rs256, "RS256"),
        (rsa, "RS384"),
        (rsa, "RS512"),
        (rsa, "PS256"),
        (rsa, "PS384"),
        (rsa, "PS512"),
    ] {
        let answer = world.call(&signer.sign(algorithm, &world.claims()));
        let_in(&answer, "ann", algorithm);
    }
    // A token need not say with which key it is signed.
    let_in(&world.call(&es.sign_with(&json!({"alg": "ES256"}), &world.claims())), "ann", "no kid");
    for (what, token) in forged(&world) {
        kept_out(&world.call(&token), &what);
    }
}

fn forged(world: &World) -> Vec<(String, String)> {
    let World { ed, es, rs256, rsa, .. } = world;
    let claims = world.claims();
    let mut forged: Vec<(String, String)> = Vec::new();
    let mut add = |what: &str, token: String| forged.push((what.to_owned(), token));

    // No signature at all.
    for alg in ["none", "None", "NONE", "nOnE", ""] {
        for kid in [json!("es"), Value::Null] {
            let bare = unsigned(&json!({"alg": alg, "kid": kid}), &claims);
            add(&format!("alg={alg}"), format!("{bare}."));
            add(&format!("alg={alg}, without a part for it"), bare);
        }
    }
    add("no alg", format!("{}.", unsigned(&json!({"kid": "es"}), &claims)));

    // A public key as the secret of HMAC.
    for (what, key) in public_keys(rsa).into_iter().chain([
        ("an Ed25519 key", ed.bytes()),
        ("a point", es.bytes()),
        ("a JWK", es.public().to_string().into_bytes()),
        ("nothing", Vec::new()),
    ]) {
        for kid in ["rsa", "rs256", "es", "ed", "other"] {
            let header = json!({"alg": "HS256", "kid": kid, "typ": "JWT"});
            let signed = unsigned(&header, &claims);
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), signed.as_bytes());
            add(&format!("HS256 by {what} as {kid}"), format!("{signed}.{}", encoded(tag)));
        }
    }

    // A signature by a key that cannot make it, or was not made for it.
    for (signer, alg, kid) in [
        (rs256, "RS384", "rs256"),
        (rs256, "PS256", "rs256"),
        (rsa, "RS256", "es"),
        (es, "ES256", "rsa"),
        (es, "RS256", "es"),
        (es, "ES384", "es"),
        (ed, "ES256", "ed"),
        (es, "EdDSA", "ed"),
        (ed, "EdDSA", "es"),
        (rsa, "RS1", "rsa"),
        (es, "ES256K", "es"),
        (es, "ES512", "es"),
    ] {
        let header = json!({"alg": alg, "kid": kid});
        add(&format!("{alg} as {kid}"), signer.sign_with(&header, &claims));
    }
    let stranger = Signer::p256("es");
    add("another key of the same name", stranger.sign("ES256", &claims));
    let asn1 = Signer::asn1("es");
    add("another way to write it, by another key", asn1.sign("ES256", &claims));

    // Signatures that are no signatures.
    let head = unsigned(&json!({"alg": "ES256", "kid": "es"}), &claims);
    let whole = es.signature("ES256", head.as_bytes());
    // The order of P-256: r and s are below it.
    let order: Vec<u8> =
        (0..32).map(|at| u8::from_str_radix(&ORDER[2 * at..2 * at + 2], 16).unwrap()).collect();
    let longer = [whole.clone(), vec![0]].concat();
    let prefixed = [vec![0], whole.clone()].concat();
    for (what, signature) in [
        ("no bytes", Vec::new()),
        ("zeros", vec![0; 64]),
        ("a long row of zeros", vec![0; 132]),
        ("r and s of the order", [order.clone(), order.clone()].concat()),
        ("r of zero", [vec![0; 32], whole[32..].to_vec()].concat()),
        ("s of zero", [whole[..32].to_vec(), vec![0; 32]].concat()),
        ("a byte less", whole[..63].to_vec()),
        ("half of it", whole[..32].to_vec()),
        ("a byte more", longer),
        ("a byte before", prefixed),
        ("all ones", vec![255; 64]),
        ("the zeros of ASN.1", vec![0x30, 6, 2, 1, 0, 2, 1, 0]),
    ] {
        add(&format!("a signature of {what}"), format!("{head}.{}", encoded(signature)));
    }
    let empty_rsa = unsigned(&json!({"alg": "RS256", "kid": "rs256"}), &claims);
    for signature in [Vec::new(), vec![0; 256], vec![1; 256], rsa.modulus()] {
        add("an RSA signature of nothing", format!("{empty_rsa}.{}", encoded(signature)));
    }

    // Other claims than those that were signed.
    let good = es.sign("ES256", &claims);
    let parts: Vec<&str> = good.split('.').collect();
    let other = encoded(world.with("sub", json!("root")).to_string());
    add("other claims", format!("{}.{other}.{}", parts[0], parts[2]));
    let header = encoded(json!({"alg": "ES256", "kid": "es", "x": 1}).to_string());
    add("another header", format!("{header}.{}.{}", parts[1], parts[2]));

    // Claims that are signed, and not for us or not for now.
    for (what, claims) in [
        ("another audience", world.with("aud", json!("someone-else"))),
        ("an audience that contains ours", world.with("aud", json!("moonlark.evil.example"))),
        ("an audience within an array within", world.with("aud", json!([["moonlark"]]))),
        ("no audience", world.without("aud")),
        ("another issuer", world.with("iss", json!("http://127.0.0.1:1"))),
        ("an issuer with a slash more", world.with("iss", json!(world.provider.url() + "/"))),
        ("no issuer", world.without("iss")),
        ("expired", world.with("exp", json!(now() - 61))),
        ("expired long ago", world.with("exp", json!(0))),
        ("an end that is no number", world.with("exp", json!("9999999999"))),
        ("no end", world.without("exp")),
        ("not valid yet", world.with("nbf", json!(now() + 300))),
        ("no name", world.without("sub")),
        ("a name that is a list", world.with("sub", json!(["ann"]))),
        ("the name of who needs no token", world.with("sub", json!("local"))),
        ("the name of who has no token", world.with("sub", json!("anonymous"))),
        ("the name of a token", world.with("sub", json!("ci"))),
    ] {
        add(what, es.sign("ES256", &claims));
    }

    // Names of keys that lead elsewhere.
    for kid in [
        json!("unknown"),
        json!(""),
        json!("../../../../dev/null"),
        json!("/dev/null"),
        json!("file:///etc/passwd"),
        json!("es' OR '1'='1"),
        json!("es\u{0}"),
        json!("ES"),
        json!("x".repeat(4000)),
        json!(["es"]),
        json!({"es": 1}),
        json!(0),
    ] {
        let header = json!({"alg": "HS256", "kid": kid});
        let signed = unsigned(&header, &claims);
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b""), signed.as_bytes());
        add(&format!("kid={kid}, an empty secret"), format!("{signed}.{}", encoded(tag)));
        let header = json!({"alg": "ES256", "kid": kid});
        add(&format!("kid={kid}"), stranger.sign_with(&header, &claims));
    }

    // What must be understood, and is not.
    let crit = json!({"alg": "ES256", "kid": "es", "crit": ["b64"], "b64": false});
    add("crit", es.sign_with(&crit, &claims));

    // What is no token, or not in one piece.
    add("a token with a tail", format!("{good}.{}", parts[2]));
    add("a token within blanks", format!("{} {}", parts[0], good));
    add("padding", format!("{}.{}.{}==", parts[0], parts[1], parts[2]));
    add("another alphabet", {
        let claims = URL_SAFE.encode(claims.to_string());
        format!("{}.{claims}.{}", parts[0], STANDARD.encode(&whole))
    });
    add("five parts", format!("{good}.a.b"));
    add("one part", parts[0].to_owned());
    add("a token in quotes", format!("\"{good}\""));
    add("nothing", String::new());
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    add("deep claims", format!("{}.{}.{}", parts[0], encoded(deep), parts[2]));
    let huge = world.with("filler", json!("x".repeat(40_000)));
    add("a huge token that is right", es.sign("ES256", &huge));
    forged
}

/// What somebody would take for the secret who knows an RSA key only as a file.
fn public_keys(rsa: &Signer) -> Vec<(&'static str, Vec<u8>)> {
    let pkcs1 = rsa.bytes();
    // Of an RSA key of this size, everything before the key is the same.
    let spki = [
        &[0x30, 0x82, 0x01, 0x22, 0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d][..],
        &[0x01, 0x01, 0x01, 0x05, 0x00, 0x03, 0x82, 0x01, 0x0f, 0x00],
        &pkcs1,
    ]
    .concat();
    let pem = |what: &str, der: &[u8]| {
        let text = STANDARD.encode(der);
        let lines: Vec<&str> =
            (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
        format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", lines.join("\n"))
    };
    let text = pem("PUBLIC KEY", &spki);
    vec![
        ("PEM", text.clone().into_bytes()),
        ("PEM without the last line end", text.trim_end().to_owned().into_bytes()),
        ("PEM of PKCS #1", pem("RSA PUBLIC KEY", &pkcs1).into_bytes()),
        ("DER", spki),
        ("PKCS #1", pkcs1),
        ("the modulus", rsa.modulus()),
        ("the modulus as text", encoded(rsa.modulus()).into_bytes()),
        ("the JWK", rsa.public().to_string().into_bytes()),
    ]
}

const ORDER: &str = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551";

#[test]
fn keys_and_addresses_in_a_token_lead_nowhere() {
    let world = World::new();
    let evil = Signer::p256("evil");
    let elsewhere = Provider::open(&[&evil]);
    let address = format!("{}/keys", elsewhere.url());
    for header in [
        json!({"alg": "ES256", "kid": "evil", "jku": address}),
        json!({"alg": "ES256", "kid": "evil", "x5u": address}),
        json!({"alg": "ES256", "kid": address}),
        json!({"alg": "ES256", "kid": "evil", "jwk": evil.public()}),
        json!({"alg": "ES256", "jwk": evil.public()}),
        json!({"alg": "ES256", "kid": "es", "jwk": evil.public(), "x5c": ["AAAA"]}),
    ] {
        kept_out(&world.call(&evil.sign_with(&header, &world.claims())), &header.to_string());
    }
    // Claiming to be of another issuer does not make that one be asked.
    let claims = world.with("iss", json!(elsewhere.url()));
    kept_out(&world.call(&evil.sign("ES256", &claims)), "another issuer");
    assert_eq!(elsewhere.asked(), Vec::<String>::new());
}

#[test]
fn a_token_counts_only_where_it_belongs() {
    let world = World::new();
    let token = world.es.sign("ES256", &world.claims());
    let bearer = format!("Bearer {token}");
    let_in(&call(&world.server, &[("Authorization", &format!("bearer {token}"))]), "ann", "bearer");
    let ci = call(&world.server, &[("Authorization", "Bearer a-token-that-nobody-would-guess")]);
    let_in(&ci, "ci", "a configured token");
    for (what, headers) in [
        ("nothing", vec![]),
        ("another scheme", vec![("Authorization", format!("Basic {token}"))]),
        ("no scheme", vec![("Authorization", token.clone())]),
        ("a cookie", vec![("Cookie", format!("token={token}; access_token={token}"))]),
        ("another header", vec![("X-Authorization", bearer.clone())]),
        ("a proxy's", vec![("Proxy-Authorization", bearer.clone())]),
        ("two", vec![("Authorization", bearer.clone()), ("Authorization", bearer.clone())]),
        ("its beginning", vec![("Authorization", "Bearer a-token-that-nobody".to_owned())]),
    ] {
        let headers: Vec<(&str, &str)> = headers.iter().map(|(a, b)| (*a, b.as_str())).collect();
        kept_out(&call(&world.server, &headers), what);
    }
    let path = format!("/tools/whoami?access_token={token}");
    kept_out(&world.server.request("POST", &path, &[], b""), "a query");
}

#[test]
fn a_token_without_the_scope_is_told_which() {
    let world = World::new();
    for claims in [world.without("scope"), world.with("scope", json!("calls"))] {
        let answer = world.call(&world.es.sign("ES256", &claims));
        assert_eq!(answer.status, 403, "{}", answer.text());
        let metadata = world.server.url("/.well-known/oauth-protected-resource");
        let challenge = format!(
            r#"Bearer realm="moonlark", error="insufficient_scope", scope="call", resource_metadata="{metadata}""#
        );
        assert_eq!(answer.header("www-authenticate"), Some(challenge.as_str()));
    }
}

#[test]
fn keys_change_and_a_provider_that_is_down_keeps_them() {
    let world = World::new();
    let (old, new) = (&world.es, Signer::p256("new"));
    let_in(&world.call(&old.sign("ES256", &world.claims())), "ann", "the first key");
    assert_eq!(world.provider.asked(), ["/.well-known/openid-configuration", "/keys"]);

    // Nobody has to be told: the first token with the new key is enough.
    world.provider.publish(&[old, &new]);
    let_in(&world.call(&new.sign("ES256", &world.claims())), "ann", "a new key");
    let_in(&world.call(&old.sign("ES256", &world.claims())), "ann", "the old key");
    assert_eq!(world.provider.asked().len(), 4);

    world.provider.go_down(true);
    let_in(&world.call(&new.sign("ES256", &world.claims())), "ann", "while it is down");
    let unknown = Signer::p256("unknown");
    kept_out(&world.call(&unknown.sign("ES256", &world.claims())), "a key nobody knows");
    let_in(&world.call(&old.sign("ES256", &world.claims())), "ann", "after that");

    // What strangers send does not make us ask for ever.
    world.provider.go_down(false);
    for number in 0..40 {
        let header = json!({"alg": "ES256", "kid": format!("unknown-{number}")});
        kept_out(&world.call(&unknown.sign_with(&header, &world.claims())), "unknown keys");
    }
    let asked = world.provider.asked().len();
    assert!(asked <= 2 * 5, "asked {asked} times");

    // And what was good all the time still is.
    let_in(&world.call(&new.sign("ES256", &world.claims())), "ann", "in the end");
}

#[test]
fn without_any_key_the_server_says_that_it_cannot_tell() {
    let world = World::new();
    world.provider.go_down(true);
    let answer = world.call(&world.es.sign("ES256", &world.claims()));
    assert_eq!(answer.status, 503, "{}", answer.text());
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("the keys of http://127.0.0.1:"), "{message}");
    // Tokens of its own need no provider.
    let ci = call(&world.server, &[("Authorization", "Bearer a-token-that-nobody-would-guess")]);
    let_in(&ci, "ci", "meanwhile");
    world.provider.go_down(false);
    let_in(&world.call(&world.es.sign("ES256", &world.claims())), "ann", "afterwards");
}
