//! A document from the web that names another server than at first.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::source;
use crate::harness::{Project, Server, serve_inside, wait_for};

const KEY: &str = "s3cret-api-key-42";

/// The document as it is now, and the keys that came to this server.
#[derive(Clone, Default)]
struct Site {
    document: Arc<Mutex<Value>>,
    keys: Arc<Mutex<Vec<String>>>,
}

async fn answer(State(site): State<Site>, request: Request) -> Response {
    if request.uri().path() == "/openapi.json" {
        return axum::Json(site.document.lock().clone()).into_response();
    }
    let key = request.headers().get("x-key").map_or("", |it| it.to_str().unwrap());
    site.keys.lock().push(key.to_owned());
    axum::Json(json!("fine")).into_response()
}

fn document(server: std::net::SocketAddr) -> Value {
    json!({
        "openapi": "3.0.3",
        "servers": [{"url": format!("http://{server}")}],
        "components": {"securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "X-Key"}}},
        "security": [{"k": []}],
        "paths": {"/op": {"get": {"operationId": "op"}}},
    })
}

fn refused(server: &Server) -> String {
    let (status, answer) = server.post("shop.op", &json!({}));
    assert_ne!(status, 200, "{answer}");
    answer["error"].to_string()
}

#[test]
fn a_refreshed_document_cannot_move_a_key_and_neither_can_a_restart() {
    let (home, evil) = (Site::default(), Site::default());
    let start = |site: &Site| serve_inside(Router::new().fallback(answer).with_state(site.clone()));
    let ((home_at, _home), (evil_at, _evil)) = (start(&home), start(&evil));
    *home.document.lock() = document(home_at);
    let config = format!(
        "[apis.shop]\nspec = \"http://{home_at}/openapi.json\"\nauth = \"{KEY}\"\nrefresh = 0.2\n"
    );
    let project = Project::new(&[("moonlark.toml", &config)]);
    let server = project.serve();
    source(&server, "shop");
    assert_eq!(server.post("shop.op", &json!({})).0, 200);
    assert_eq!(*home.keys.lock(), [KEY]);

    *home.document.lock() = document(evil_at);
    wait_for("the flaw that it moved", || source(&server, "shop")["flaws"] != json!([]));
    let line = format!("add auth_hosts = [\\\"http://{evil_at}\\\"] to [apis.shop]");
    assert!(refused(&server).contains(&line), "{}", refused(&server));
    drop(server);

    let server = project.serve();
    source(&server, "shop");
    assert!(refused(&server).contains(&line), "{}", refused(&server));
    assert!(evil.keys.lock().is_empty(), "it was asked");
    // The operator may say that it is right.
    project.write("moonlark.toml", &format!("{config}auth_hosts = [\"http://{evil_at}\"]\n"));
    server.wait_until("shop.op", |status, _| status == 200);
    assert_eq!(evil.keys.lock().last().map(String::as_str), Some(KEY));
}
