//! Over HTTP: what is refused before a session is begun, and streams that are read again.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use futures::StreamExt;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{Source, SourceKind};
use moonlark_core::{Catalog, Tool};
use moonlark_gateway::Gateway;
use moonlark_gateway::tool_body::ToolBody;
use serde_json::{Value as Json, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::*;
use crate::router::{CallerIdentification, HttpApp, HttpServerOptions, build_http_app};

fn app() -> HttpApp {
    app_with_tools(vec![])
}

pub(super) fn app_with_tools(tools: Vec<Arc<Tool>>) -> HttpApp {
    app_until(tools, CancellationToken::new())
}

/// The same until the server is to stop.
pub(super) fn app_until(tools: Vec<Arc<Tool>>, stop: CancellationToken) -> HttpApp {
    app_with_vault(tools, stop, SessionVault::in_memory())
}

/// As a process has it whose sessions are kept there.
pub(super) fn app_with_vault(
    tools: Vec<Arc<Tool>>,
    stop: CancellationToken,
    sessions: Arc<SessionVault>,
) -> HttpApp {
    let options = HttpServerOptions {
        allowed_hosts: vec![],
        allowed_origins: vec![],
        request_body: 200_000,
        callers: CallerIdentification::Anybody,
        sessions,
    };
    let gateway = Gateway::new(Catalog::new(Arc::default(), tools, &[], vec![]), 10);
    build_http_app(gateway, options, stop)
}

pub(super) fn initialize(experimental: Json) -> Json {
    let params = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {"experimental": {"x": {"y": experimental}}},
        "clientInfo": {"name": "suite", "version": "1"},
    });
    json!({"jsonrpc": "2.0", "id": "first", "method": "initialize", "params": params})
}

/// A message for a session, or for none.
pub(super) fn post_request(session: Option<&str>, body: Body) -> Request {
    let mut request = Request::post("/mcp")
        .header("host", "localhost")
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json");
    if let Some(session) = session {
        request = request.header(SESSION_HEADER, session);
    }
    request.body(body).unwrap()
}

/// The status, the id of the session, and the answer.
pub(super) async fn post(
    app: &HttpApp,
    session: Option<&str>,
    body: Body,
) -> (u16, Option<String>, String) {
    let response = app.clone().oneshot(post_request(session, body)).await.unwrap();
    let session = response.headers().get(SESSION_HEADER);
    let session = session.map(|it| it.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), 100_000).await.unwrap();
    (status, session, String::from_utf8(body.to_vec()).unwrap())
}

/// A body that comes in pieces, of unknown length.
pub(super) fn in_pieces(text: &str) -> Body {
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

/// A tool that answers when it is let go.
pub(super) fn waiting_tool(go: &Arc<Notify>) -> Arc<Tool> {
    let go = go.clone();
    let body = ToolBody::from_async_fn(move |_, args| {
        let go = go.clone();
        async move {
            go.notified().await;
            Ok(args)
        }
    });
    let source = Arc::new(Source { kind: SourceKind::Script, name: "a".to_owned() });
    Arc::new(Tool::new("wait", source, Schema::without_parameters(), body))
}

pub(super) async fn begin_session(app: &HttpApp, version: &str) -> String {
    let mut message = initialize(json!(0));
    message["params"]["protocolVersion"] = version.into();
    let (_, session, _) = post(app, None, message.to_string().into()).await;
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(post(app, session.as_deref(), ready.to_string().into()).await.0, 202);
    session.unwrap()
}

/// Call the tool; the id of the priming event, and the rest of the stream.
async fn begin_call(app: &HttpApp, session: &str, id: u64) -> (String, axum::body::BodyDataStream) {
    let call =
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "wait"}});
    let request = Request::post("/mcp")
        .header("host", "localhost")
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header(SESSION_HEADER, session)
        .body(Body::from(call.to_string()))
        .unwrap();
    let mut stream = app.clone().oneshot(request).await.unwrap().into_body().into_data_stream();
    let first = stream.next().await.unwrap().unwrap();
    let first = String::from_utf8(first.to_vec()).unwrap();
    let lines: Vec<&str> = first.lines().collect();
    assert_eq!((lines[0], lines[2]), ("data: ", "retry: 3000"), "{first}");
    (lines[1].strip_prefix("id: ").unwrap().to_owned(), stream)
}

pub(super) async fn read_on(app: &HttpApp, session: &str, last_event_id: &str) -> (u16, Body) {
    let request = Request::get("/mcp")
        .header("host", "localhost")
        .header("accept", "text/event-stream")
        .header("last-event-id", last_event_id)
        .header(SESSION_HEADER, session)
        .body(Body::empty())
        .unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    (response.status().as_u16(), response.into_body())
}

pub(super) async fn whole_text(body: Body) -> String {
    String::from_utf8(to_bytes(body, 100_000).await.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn a_client_whose_stream_broke_off_reads_its_answer_when_it_reconnects() {
    let go = Arc::new(Notify::new());
    let app = app_with_tools(vec![waiting_tool(&go)]);
    let session = begin_session(&app, "2025-11-25").await;
    let (event, stream) = begin_call(&app, &session, 2).await;
    drop(stream);
    // While the call is in progress.
    let (status, resumed) = read_on(&app, &session, &event).await;
    assert_eq!(status, 200);
    go.notify_one();
    let answer = whole_text(resumed).await;
    assert!(answer.contains(r#""id":2,"result":"#), "{answer}");
    assert!(answer.contains(&format!("id: {}", event.replace("-0", "-1"))), "{answer}");
    // And when it has ended.
    let (status, again) = read_on(&app, &session, &event).await;
    assert_eq!((status, whole_text(again).await), (200, answer));
    let other = begin_session(&app, "2025-11-25").await;
    assert_eq!(read_on(&app, &other, &event).await.0, 405, "it is another session's");
}

#[tokio::test]
async fn a_client_that_asks_for_events_that_are_not_kept_is_answered_405() {
    let go = Arc::new(Notify::new());
    let app = app_with_tools(vec![waiting_tool(&go)]);
    let session = begin_session(&app, "2025-11-25").await;
    let (event, stream) = begin_call(&app, &session, 2).await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
    assert_eq!(post(&app, Some(&session), cancel.to_string().into()).await.0, 202);
    assert_eq!(stream.count().await, 0, "no result");
    for unknown in [event.as_str(), "x-0", "0/1", "nonsense"] {
        let (status, body) = read_on(&app, &session, unknown).await;
        assert_eq!(status, 405, "{unknown}");
        let answer: Json = serde_json::from_str(&whole_text(body).await).unwrap();
        assert_eq!(answer["error"]["message"], "nothing is kept of the stream that had this event");
    }
    // Its id may be used again.
    let (_, stream) = begin_call(&app, &session, 2).await;
    go.notify_one();
    assert_eq!(stream.count().await, 1);
}
