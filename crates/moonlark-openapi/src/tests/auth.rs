//! Who we are, where each API wants to know it.

use super::*;
use crate::{ApiCredential, ClientCredentials};
use moonlark_core::secret::SecretText;

fn document(server: &Server, schemes: Json, security: Json) -> Json {
    json!({
        "openapi": "3.0.3",
        "servers": [{"url": server.url()}],
        "components": {"securitySchemes": schemes},
        "security": security,
        "paths": {"/p": {"get": {"operationId": "op"}}, "/open": {"get": {"operationId": "open", "security": []}}},
    })
}

fn secret(text: &str) -> SecretText {
    SecretText::new(text.to_owned())
}

#[tokio::test]
async fn a_secret_goes_where_the_document_says() {
    let server = Server::start().await;
    for (scheme, header, expected) in [
        (json!({"type": "apiKey", "in": "header", "name": "X-Key"}), "x-key", "a:b"),
        (json!({"type": "apiKey", "in": "cookie", "name": "sid"}), "cookie", "sid=a%3Ab"),
        (json!({"type": "http", "scheme": "bearer"}), "authorization", "Bearer a:b"),
        (json!({"type": "http", "scheme": "basic"}), "authorization", "Basic YTpi"),
        (json!({"type": "oauth2", "flows": {}}), "authorization", "Bearer a:b"),
    ] {
        let document = document(&server, json!({ "s": scheme }), json!([{"s": []}]));
        let world = World::new(document, |it| it.credentials.any = Some(secret("a:b")));
        world.call("op", json!({})).await.unwrap();
        assert_eq!(server.last().header(header), expected);
        world.call("open", json!({})).await.unwrap();
        assert_eq!(server.last().header(header), "");
    }
    let scheme = json!({"s": {"type": "apiKey", "in": "query", "name": "key"}});
    let document = document(&server, scheme, json!([{"s": []}]));
    let world = World::new(document, |it| it.credentials.any = Some(secret("a&b")));
    world.call("op", json!({})).await.unwrap();
    assert_eq!(server.last().target, "/p?key=a%26b");
}

#[tokio::test]
async fn schemes_that_are_wanted_together_are_sent_together() {
    let server = Server::start().await;
    let schemes = json!({
        "app": {"type": "apiKey", "in": "header", "name": "X-App"},
        "user": {"type": "http", "scheme": "bearer"},
        "other": {"type": "apiKey", "in": "header", "name": "X-Other"},
    });
    let document = document(&server, schemes, json!([{"other": []}, {"app": [], "user": []}]));
    let world = World::new(document, |it| {
        for (name, text) in [("app", "1"), ("user", "2")] {
            it.credentials.schemes.insert(name.to_owned(), ApiCredential::Secret(secret(text)));
        }
    });
    world.call("op", json!({})).await.unwrap();
    let arrived = server.last();
    assert_eq!((arrived.header("x-app"), arrived.header("authorization")), ("1", "Bearer 2"));
    assert_eq!(arrived.header("x-other"), "");
}

#[tokio::test]
async fn client_credentials_are_traded_for_a_token_once() {
    let server = Server::start().await;
    server.answers(|arrived| match arrived.target.as_str() {
        "/token" => reply(200, "application/json", r#"{"access_token":"tok","expires_in":3600}"#),
        _ => reply(200, "application/json", "1"),
    });
    let schemes = json!({"o": {"type": "oauth2", "flows": {"clientCredentials": {
        "tokenUrl": format!("{}/token", server.url()), "scopes": {}}}}});
    let document = document(&server, schemes, json!([{"o": ["read"]}]));
    let world = World::new(document, |it| {
        let client = ClientCredentials {
            client_id: "me".to_owned(),
            client_secret: secret("s3cret"),
            token_url: None,
            scopes: vec!["read".to_owned()],
        };
        it.credentials.schemes.insert("o".to_owned(), ApiCredential::OAuth(client));
    });
    for _ in 0..3 {
        world.call("op", json!({})).await.unwrap();
        assert_eq!(server.last().header("authorization"), "Bearer tok");
    }
    let tokens: Vec<Arrived> =
        server.seen.lock().iter().filter(|it| it.target == "/token").cloned().collect();
    assert_eq!(tokens.len(), 1);
    assert_eq!(tokens[0].header("authorization"), "Basic bWU6czNjcmV0");
    assert_eq!(tokens[0].text(), "grant_type=client_credentials&scope=read");
}

#[tokio::test]
async fn a_token_may_be_said_to_last_for_any_time() {
    let server = Server::start().await;
    let schemes = json!({"o": {"type": "oauth2", "flows": {"clientCredentials": {
        "tokenUrl": format!("{}/token", server.url()), "scopes": {}}}}});
    for lasts in ["18446744073709551615", "9223372036854775807", "-1", "null"] {
        let token = format!(r#"{{"access_token":"tok","expires_in":{lasts}}}"#);
        server.answers(move |arrived| match arrived.target.as_str() {
            "/token" => reply(200, "application/json", token.clone()),
            _ => reply(200, "application/json", "1"),
        });
        let document = document(&server, schemes.clone(), json!([{"o": []}]));
        let world = World::new(document, |it| {
            let client = ClientCredentials {
                client_id: "me".to_owned(),
                client_secret: secret("s3cret"),
                token_url: None,
                scopes: Vec::new(),
            };
            it.credentials.schemes.insert("o".to_owned(), ApiCredential::OAuth(client));
        });
        assert_eq!(world.call("op", json!({})).await, Ok(json!(1)), "{lasts}");
    }
    server.answers(|_| {
        let mut busy = reply(429, "text/plain", "");
        busy.headers_mut().insert("retry-after", "4294967295".parse().unwrap());
        busy
    });
    let world = World::one(&server, "get", "/p", json!({}));
    let problem = world.call("op", json!({})).await.unwrap_err();
    assert_eq!(problem.hint.as_deref(), Some("try again in 4294967295 seconds"));
}

#[tokio::test]
async fn a_key_among_the_parameters_is_not_asked_for_once_we_have_it() {
    let server = Server::start().await;
    let schemes = json!({"k": {"type": "apiKey", "in": "query", "name": "key"}});
    let mut document = document(&server, schemes, json!([{"k": []}]));
    document["paths"]["/p"]["get"]["parameters"] = json!([
        {"name": "key", "in": "query", "required": true, "schema": {"type": "string"}},
        {"name": "q", "in": "query", "schema": {"type": "string"}},
    ]);
    let world = World::new(document.clone(), |it| it.credentials.any = Some(secret("s")));
    world.call("op", json!({"q": "x"})).await.unwrap();
    assert_eq!(server.last().target, "/p?q=x&key=s");
    assert!(world.call("op", json!({"q": "x", "key": "mine"})).await.is_err());
    let mut silent = document.clone();
    silent.as_object_mut().unwrap().remove("security");
    let world = World::new(silent, |it| it.credentials.any = Some(secret("s")));
    world.call("op", json!({"q": "y"})).await.unwrap();
    assert_eq!(server.last().target, "/p?q=y&key=s");
    let world = World::new(document, |_| {});
    world.call("op", json!({"q": "x", "key": "mine"})).await.unwrap();
    assert_eq!(server.last().target, "/p?key=mine&q=x");
}
