//! APIs that send us elsewhere with what is theirs, and documents that give one name
//! to a call that reads and to one that writes.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::execute;
use crate::harness::{Project, serve_inside};

const SECRET: &str = "canary-95d2f0aa";

/// An API and a proxy in one: all that came, with its headers and body.
struct Site {
    address: std::net::SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    _ends: oneshot::Sender<()>,
}

impl Site {
    fn open() -> Site {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let (address, ends) = serve_inside(Router::new().fallback(answer).with_state(seen.clone()));
        Site { address, seen, _ends: ends }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().clone()
    }

    fn project(&self, paths: Value, config: &str) -> Project {
        let document = json!({
            "openapi": "3.1.0",
            "info": {"title": "x", "version": "1"},
            "servers": [{"url": format!("http://{}", self.address)}],
            "paths": paths,
        });
        Project::new(&[("doc.json", &document.to_string()), ("moonlark.toml", config)])
    }
}

async fn answer(State(seen): State<Arc<Mutex<Vec<String>>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let mut text = format!("{} {}\n", parts.method, parts.uri);
    for (name, value) in &parts.headers {
        text += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
    }
    text += &String::from_utf8_lossy(&body);
    seen.lock().push(text);
    match parts.uri.path() {
        "/away" => {
            let there = [("location", "http://elsewhere.example/there")];
            (StatusCode::FOUND, there).into_response()
        }
        _ => axum::Json(json!({"ok": true})).into_response(),
    }
}

#[test]
fn nothing_of_a_request_goes_to_another_host_that_the_api_redirects_to() {
    let site = Site::open();
    let param =
        |name: &str, place: &str| json!({"name": name, "in": place, "schema": {"type": "string"}});
    let paths = json!({"/away": {"get": {
        "operationId": "away",
        "parameters": [
            param("X-Api-Key", "header"), param("X-Note", "header"), param("sid", "cookie"),
            param("key", "query"),
        ],
        "requestBody": {"content": {"application/json": {"schema":
            {"type": "object", "properties": {"pin": {"type": "string"}}}}}},
    }}});
    let config = "[apis.shop]\nspec = \"doc.json\"\nheaders = { X-Team = \"${KEY}\" }\n\
        frozen_params = { X-Api-Key = \"${KEY}\", sid = \"${KEY}\", key = \"${KEY}\", pin = \"${KEY}\" }\n";
    let project = site.project(paths, config);
    let proxy = format!("http://{}", site.address);
    let env = [("KEY", SECRET), ("http_proxy", proxy.as_str()), ("no_proxy", "127.0.0.1")];
    let server = project.serve_with(&[], &env);
    let answer = execute(&server, "return sdk.shop.away({ ['X-Note'] = 'a note' })");
    assert_eq!(answer, Ok(json!({"ok": true})));
    let seen = site.seen();
    let [home, there] = seen.as_slice() else { panic!("{seen:#?}") };
    // The header of the configuration, three parameters and the body.
    assert_eq!(home.matches(SECRET).count(), 5, "{home}");
    assert!(there.starts_with("GET http://elsewhere.example/there\n"), "{there}");
    let told = ["accept: ", "accept-encoding: ", "user-agent: ", "host: ", "proxy-connection: "];
    for line in there.lines().skip(1) {
        assert!(told.iter().any(|it| line.starts_with(it)), "{line:?} in {there}");
    }
}

#[test]
fn what_is_said_of_a_reading_operation_does_not_hold_for_a_writing_one_of_its_name() {
    let site = Site::open();
    let paths = json!({
        "/list": {"get": {"operationId": "list"}},
        "/wipe": {"post": {"operationId": "list"}},
    });
    let config = "[apis.shop]\nspec = \"doc.json\"\n[apis.shop.tools.list.effects]\nread_only = true\n\
        [[policy.rules]]\ntools = [\"shop.*\"]\neffects = [\"writes\"]\naction = \"approve\"\n";
    let project = site.project(paths, config);
    let server = project.serve();
    assert_eq!(execute(&server, "return sdk.shop.list()"), Ok(json!({"ok": true})));
    assert_eq!(site.seen().len(), 1);
    let (_, planned) =
        server.post("execute", &json!({"script": "return sdk.shop.list_2()", "plan": true}));
    let (status, held) = server.post("shop.list_2", &json!({}));
    assert_ne!(status, 200, "{held}");
    assert_eq!(site.seen().len(), 1, "{planned} {:?}", site.seen());
}
