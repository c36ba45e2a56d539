//! A Jira that is just real enough: it checks what arrives and answers like one.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};

/// What was asked for, in order.
pub type Seen = Arc<Mutex<Vec<Value>>>;

/// Start it on a thread of its own; its port and what it sees.
pub fn start() -> (u16, Seen) {
    let seen = Seen::default();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = Router::new().route("/rest/api/3/issue", post(create)).with_state(seen.clone());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
    });
    (port, seen)
}

async fn create(State(seen): State<Seen>, headers: HeaderMap, body: String) -> Response {
    let header = |name: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let issue: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
    let fields = &issue["fields"];
    seen.lock().unwrap().push(json!({"authorization": header("authorization"), "fields": fields}));
    if header("content-type") != "application/json" || header("authorization").is_empty() {
        return (StatusCode::UNAUTHORIZED, "no").into_response();
    }
    if fields["project"]["key"] == "NOPE" {
        return (StatusCode::FORBIDDEN, "{\"errorMessages\":[\"no such project\"]}")
            .into_response();
    }
    let key = format!("{}-1234", fields["project"]["key"].as_str().unwrap_or("X"));
    (StatusCode::CREATED, axum::Json(json!({"id": "10000", "key": key}))).into_response()
}
