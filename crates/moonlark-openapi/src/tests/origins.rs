//! Secrets of an API go where they belong, whatever its document says.

use std::collections::BTreeMap;

use url::Url;

use super::*;
use crate::{ApiCredential, AuthHost, ClientCredentials, OriginMemory};
use moonlark_core::secret::SecretText;

const SECRET: &str = "s3cret-api-key-42";

fn secret() -> SecretText {
    SecretText::new(SECRET)
}

/// An operation at home, and others that name another server themselves.
fn document(home: &Server, other: &Server) -> Json {
    let there = json!([{"url": other.url()}]);
    json!({
        "openapi": "3.0.3",
        "servers": [{"url": home.url()}],
        "components": {"securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "X-Api-Key"}}},
        "security": [{"k": []}],
        "paths": {
            "/home": {"get": {"operationId": "home"}},
            "/op": {"get": {"operationId": "moved", "servers": there}},
            "/path": {"servers": there, "get": {"operationId": "under_path"}},
            "/open": {"get": {"operationId": "open", "servers": there, "security": []}},
            "/frozen": {"get": {"operationId": "frozen", "servers": there, "security": [],
                "parameters": [{"name": "token", "in": "query", "schema": {"type": "string"}}]}},
        },
    })
}

/// Whether anything that arrived has the secret in it.
fn leaked(server: &Server) -> bool {
    server.seen.lock().iter().any(|it| {
        let in_headers = it.headers.values().any(|value| value.as_bytes() == SECRET.as_bytes());
        in_headers || it.target.contains(SECRET) || it.text().contains(SECRET)
    })
}

#[tokio::test]
async fn a_key_is_not_sent_to_another_host_that_an_operation_names() {
    let (home, other) = (Server::start().await, Server::start().await);
    let world = World::new(document(&home, &other), |it| it.credentials.any = Some(secret()));
    world.call("home", json!({})).await.unwrap();
    assert_eq!(home.last().header("x-api-key"), SECRET);
    for tool in ["moved", "under_path"] {
        let problem = world.call(tool, json!({})).await.unwrap_err();
        assert_eq!(
            problem.to_string(),
            format!(
                "error[denied]: the document of API 'api' names {0}, which is not sent the secrets of 'api': they belong to {1}\nhint: if {0} belongs to this API, add auth_hosts = [\"{0}\"] to [apis.api]",
                other.url(),
                home.url()
            )
        );
    }
    assert_eq!(other.count(), 0);
    // What proves nothing may be asked anywhere.
    world.call("open", json!({})).await.unwrap();
    assert!(!leaked(&other));
    // It is said before anybody calls.
    assert_eq!(world.problems.len(), 1, "{:?}", world.problems);
    assert!(world.problems[0].message.contains(&other.url()));

    let host: AuthHost = other.url().parse().unwrap();
    let world = World::new(document(&home, &other), |it| {
        it.credentials.any = Some(secret());
        it.auth_hosts = vec![host];
    });
    world.call("moved", json!({})).await.unwrap();
    assert_eq!(other.last().header("x-api-key"), SECRET);
    assert_eq!(world.problems, []);
}

#[tokio::test]
async fn headers_and_secret_arguments_are_bound_like_keys() {
    let (home, other) = (Server::start().await, Server::start().await);
    let with_header = World::new(document(&home, &other), |it| {
        it.headers = vec![("X-Team".to_owned(), secret())];
    });
    with_header.call("home", json!({})).await.unwrap();
    assert_eq!(home.last().header("x-team"), SECRET);
    assert!(with_header.call("open", json!({})).await.is_err());
    let with_argument = World::new(document(&home, &other), |it| {
        it.frozen = BTreeMap::from([("token".to_owned(), Value::from(SECRET))]);
        it.secret_frozen = ["token".to_owned()].into();
    });
    assert!(with_argument.call("frozen", json!({})).await.is_err());
    with_argument.call("open", json!({})).await.unwrap();
    assert!(!leaked(&other));
    let plain = World::new(document(&home, &other), |it| {
        it.frozen = BTreeMap::from([("token".to_owned(), Value::from("public"))]);
    });
    plain.call("frozen", json!({})).await.unwrap();
    assert_eq!(other.last().target, "/frozen?token=public");
}

#[tokio::test]
async fn a_document_that_moves_does_not_take_the_key_along() {
    let (home, evil) = (Server::start().await, Server::start().await);
    let folder = tempfile::tempdir().unwrap();
    let world = |server: &Server| {
        World::new(document(server, server), |it| {
            it.credentials.any = Some(secret());
            it.memory = Some(OriginMemory {
                file: folder.path().join("apis/api.json"),
                spec: Url::parse("https://docs.example.com/api.json").unwrap(),
            });
        })
    };
    world(&home).call("home", json!({})).await.unwrap();
    assert!(leaked(&home));
    // As after a refresh, or after a restart: only the file knows.
    let moved = world(&evil);
    let problem = moved.call("home", json!({})).await.unwrap_err();
    assert!(problem.message.ends_with(&format!("they belong to {}", home.url())), "{problem}");
    assert_eq!(moved.problems.len(), 1, "{:?}", moved.problems);
    // Nor does it reach into this machine without one.
    let problem = moved.call("open", json!({})).await.unwrap_err();
    assert!(problem.message.ends_with("which is no public address"), "{problem}");
    assert_eq!(evil.count(), 0);
    world(&home).call("home", json!({})).await.unwrap();
}

#[tokio::test]
async fn a_client_secret_goes_to_the_token_server_that_was_named_first() {
    let (home, evil) = (Server::start().await, Server::start().await);
    for server in [&home, &evil] {
        server.answers(|_| reply(200, "application/json", r#"{"access_token":"tok"}"#));
    }
    let folder = tempfile::tempdir().unwrap();
    let world = |tokens: &Server| {
        let mut document = document(&home, &home);
        document["security"] = json!([{"o": []}]);
        document["components"]["securitySchemes"] = json!({"o": {"type": "oauth2", "flows": {
            "clientCredentials": {"tokenUrl": format!("{}/token", tokens.url()), "scopes": {}}}}});
        World::new(document, |it| {
            let client = ClientCredentials {
                client_id: "me".to_owned(),
                client_secret: secret(),
                token_url: None,
                scopes: Vec::new(),
            };
            it.credentials.schemes.insert("o".to_owned(), ApiCredential::OAuth(client));
            it.memory = Some(OriginMemory {
                file: folder.path().join("api.json"),
                spec: Url::parse("https://docs.example.com/api.json").unwrap(),
            });
        })
    };
    // Tokens may well be given out elsewhere than the API is.
    let login = Server::start().await;
    login.answers(|_| reply(200, "application/json", r#"{"access_token":"tok"}"#));
    world(&login).call("home", json!({})).await.unwrap();
    assert_eq!(login.count(), 1);
    let problem = world(&evil).call("home", json!({})).await.unwrap_err();
    assert_eq!(
        problem.hint.as_deref(),
        Some("if tokens are given out there now, set token_url in apis.api.auth.o")
    );
    assert_eq!(evil.count(), 0);
}

#[tokio::test]
async fn a_document_names_no_header_that_the_connection_needs() {
    let server = Server::start().await;
    let names =
        ["Host", "content-length", "Transfer-Encoding", "Connection", "Expect", "TE", "Upgrade"];
    let params: Vec<Json> = names
        .iter()
        .chain(&["X-Fine"])
        .map(|name| json!({"name": name, "in": "header", "schema": {"type": "string"}}))
        .collect();
    let operation = json!({"parameters": params, "requestBody": {"content": {"text/plain": {"schema": {"type": "string"}}}}});
    let world = World::one(&server, "post", "/p", operation);
    let schema = world.tools["api.op"].input.json();
    let shown: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(shown, ["X-Fine", "body"]);
    world.call("op", json!({"X-Fine": "1", "body": "whole"})).await.unwrap();
    assert_eq!(server.last().text(), "whole");
    assert_eq!(server.last().header("host"), format!("127.0.0.1:{}", server.port));
    for name in names {
        let refused = world.call("op", json!({name: "3", "body": "whole"})).await.unwrap_err();
        assert!(refused.message.contains("unknown parameter"), "{refused}");
    }
    let mut document = document(&server, &server);
    document["components"]["securitySchemes"]["k"]["name"] = json!("Host");
    let world = World::new(document, |it| it.credentials.any = Some(secret()));
    let refused = world.call("home", json!({})).await.unwrap_err();
    assert!(refused.message.contains("in the header Host, which cannot be set"), "{refused}");
}
