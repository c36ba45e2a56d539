//! Over HTTP: what is refused before a session is begun.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use moonlark_core::Catalog;
use moonlark_gateway::Gateway;
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::*;
use crate::router::{CallerIdentification, HttpApp, HttpServerOptions, build_http_app};

fn app() -> HttpApp {
    let options = HttpServerOptions {
        allowed_hosts: vec![],
        allowed_origins: vec![],
        request_body: 200_000,
        callers: CallerIdentification::Anybody,
        sessions: SessionVault::in_memory(),
    };
    let gateway = Gateway::new(Catalog::new(Arc::default(), vec![], &[], vec![]), 10);
    build_http_app(gateway, options, CancellationToken::new())
}

fn initialize(experimental: Json) -> Json {
    let params = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {"experimental": {"x": {"y": experimental}}},
        "clientInfo": {"name": "suite", "version": "1"},
    });
    json!({"jsonrpc": "2.0", "id": "first", "method": "initialize", "params": params})
}

/// The status, the id of the session, and the answer.
async fn post(app: &HttpApp, session: Option<&str>, body: Body) -> (u16, Option<String>, String) {
    let mut request = Request::post("/mcp")
        .header("host", "localhost")
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json");
    if let Some(session) = session {
        request = request.header(SESSION_HEADER, session);
    }
    let response = app.clone().oneshot(request.body(body).unwrap()).await.unwrap();
    let session = response.headers().get(SESSION_HEADER);
    let session = session.map(|it| it.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), 100_000).await.unwrap();
    (status, session, String::from_utf8(body.to_vec()).unwrap())
}

/// A body that comes in pieces, of unknown length.
fn in_pieces(text: &str) -> Body {
    let pieces: Vec<Result<Vec<u8>, Infallible>> =
        text.as_bytes().chunks(1000).map(|piece| Ok(piece.to_vec())).collect();
    Body::from_stream(futures::stream::iter(pieces))
}

#[tokio::test]
async fn no_session_is_begun_with_parameters_over_the_limit() {
    let app = app();
    let large = initialize(json!(vec![0; 50_000])).to_string();
    let refused = json!({
        "jsonrpc": "2.0",
        "id": "first",
        "error": {
            "code": -32602,
            "message": "the parameters of initialize are too large: 78 bytes of text and 50009 \
                values; the limits are 64 KB and 500 values",
        },
    });
    for body in [Body::from(large.clone()), in_pieces(&large)] {
        let (status, session, text) = post(&app, None, body).await;
        assert_eq!((status, session), (200, None), "{text}");
        assert_eq!(serde_json::from_str::<Json>(&text).unwrap(), refused);
    }
    // What is longer than any request may be is refused for that.
    let longest = initialize(json!(vec![0; 200_000])).to_string();
    assert_eq!(post(&app, None, in_pieces(&longest)).await.0, 413);
    let (status, session, _) =
        post(&app, None, in_pieces(&initialize(json!("x".repeat(5000))).to_string())).await;
    assert_eq!((status, session.is_some()), (200, true));
}

#[tokio::test]
async fn long_resource_uris_and_ids_are_refused_in_a_session() {
    let app = app();
    let (_, session, _) = post(&app, None, initialize(json!(0)).to_string().into()).await;
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let session = session.as_deref();
    assert_eq!(post(&app, session, ready.to_string().into()).await.0, 202);
    let uri = format!("mcp://bank/t://{}", "x".repeat(10_000));
    for method in ["resources/subscribe", "resources/unsubscribe", "resources/read"] {
        let message = json!({"jsonrpc": "2.0", "id": 3, "method": method, "params": {"uri": uri}});
        let (status, _, text) = post(&app, session, message.to_string().into()).await;
        let error: Json = serde_json::from_str(&text).unwrap();
        let message = "the resource URI has 10015 bytes; the limit is 8 KB";
        assert_eq!((status, &error["error"]["message"]), (200, &json!(message)), "{method}");
    }
    let message = json!({"jsonrpc": "2.0", "id": "x".repeat(10_000), "method": "ping"});
    let (status, _, text) = post(&app, session, message.to_string().into()).await;
    assert_eq!(status, 400);
    assert!(text.contains("the limit is 1 KB"), "{text}");
    // The session goes on.
    let message = json!({"jsonrpc": "2.0", "id": "x".repeat(1000), "method": "ping"});
    let (status, _, text) = post(&app, session, message.to_string().into()).await;
    assert!(status == 200 && text.contains("\"result\":{}"), "{text}");
}
