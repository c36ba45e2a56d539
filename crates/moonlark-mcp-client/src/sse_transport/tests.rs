//! HTTP+SSE with a server that does as it is told.

use std::collections::BTreeMap;
use std::sync::Arc;

use moonlark_core::value::Object;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;

use super::SseTransport;
use crate::connection::{McpRequestOptions, ProtocolEra};
use crate::handshake;
use crate::http_endpoint::HttpEndpoint;
use crate::json_rpc::RequestFailure;
use crate::mcp_testing::{Asked, Ear, Server, event, limits, object, reply, soon, stream, us};
use crate::rpc_session::RpcSession;
use crate::upstream_target::{McpTransportConfig, UpstreamTarget};

/// A server whose stream begins with `address`, and what to say on it.
async fn server(address: &str) -> (Server, mpsc::Sender<String>) {
    let (sender, receiver) = mpsc::channel(8);
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let server = Server::start(move |asked: Asked| {
        let receiver = receiver.clone();
        async move {
            match asked.method.as_str() {
                "GET" => stream(receiver.lock().take().unwrap()),
                _ if asked.body["method"] == "refused" => reply(500, &[], &Json::Null),
                _ => reply(202, &[], &Json::Null),
            }
        }
    })
    .await;
    sender.send(format!(": hi\n\nevent: endpoint\ndata: {address}\n\n")).await.unwrap();
    (server, sender)
}

async fn connect(server: &Server, inbox: Arc<Ear>) -> Result<Arc<SseTransport>, RequestFailure> {
    let site = HttpEndpoint::new("old", &server.url, &BTreeMap::new(), None).unwrap();
    soon(SseTransport::open_stream(RpcSession::new("old", limits(), inbox), site)).await
}

#[tokio::test]
async fn messages_are_posted_to_where_the_stream_says_and_answered_on_it() {
    let (server, sender) = server("/messages?session=1").await;
    let inbox = Ear::new();
    let sse = connect(&server, inbox.clone()).await.unwrap();
    let request = tokio::spawn({
        let sse = sse.clone();
        async move { sse.send_request("tools/list", Object::new(), McpRequestOptions::default()).await }
    });
    let asked = server.until(|asked| asked.body["method"] == "tools/list").await;
    assert_eq!(
        (asked.path.as_str(), asked.header("content-type")),
        ("/messages", "application/json")
    );
    let question = json!({"jsonrpc": "2.0", "id": 9, "method": "roots/list"});
    sender.send(format!("event: message\n{}", event(&question))).await.unwrap();
    let answer = server.until(|asked| asked.body["id"] == 9).await;
    assert_eq!(answer.body["result"], json!({"to": "roots/list"}));
    sender.send(event(&json!({"jsonrpc": "2.0", "id": 1, "result": {"a": 1}}))).await.unwrap();
    assert_eq!(soon(request).await.unwrap(), Ok(object(json!({"a": 1}))));
    assert_eq!(inbox.heard(), ["? roots/list {}"]);
    let refused =
        soon(sse.send_request("refused", Object::new(), McpRequestOptions::default())).await;
    assert!(matches!(refused, Err(RequestFailure::Lost(_))), "{refused:?}");
}

#[tokio::test]
async fn another_server_gets_no_messages() {
    for address in ["http://evil.example/x", "//evil.example/x", "ftp:x", "http://["] {
        let (server, _sender) = server(address).await;
        let outcome = connect(&server, Ear::new()).await.err();
        let Some(RequestFailure::Lost(problem)) = outcome else { panic!("{outcome:?}") };
        assert!(problem.message.starts_with("upstream 'old' wants messages at "), "{problem}");
    }
}

#[tokio::test]
async fn the_end_of_the_stream_is_the_end_of_the_connection() {
    let (server, sender) = server("m").await;
    let sse = connect(&server, Ear::new()).await.unwrap();
    let request = tokio::spawn({
        let sse = sse.clone();
        async move { sse.send_request("a", Object::new(), McpRequestOptions::default()).await }
    });
    server.until(|asked| asked.body["method"] == "a").await;
    drop(sender);
    let outcome = soon(request).await.unwrap();
    let Err(RequestFailure::Lost(problem)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(problem.message, "upstream 'old' ended its stream");
    assert!(!sse.rpc_session().is_open());
}

#[tokio::test]
async fn a_request_that_is_dropped_is_called_off() {
    let (server, _sender) = server("m").await;
    let sse = connect(&server, Ear::new()).await.unwrap();
    let request = tokio::spawn({
        let sse = sse.clone();
        async move { sse.send_request("a", Object::new(), McpRequestOptions::default()).await }
    });
    server.until(|asked| asked.body["method"] == "a").await;
    request.abort();
    let told = server.until(|asked| asked.body["method"] == "notifications/cancelled").await;
    assert_eq!(told.body["params"], json!({"requestId": 1}));
}

#[tokio::test]
async fn it_is_opened_by_a_handshake_and_closed_by_its_stream() {
    let (server, sender) = server("/m").await;
    let transport = McpTransportConfig::Sse { url: server.url.clone(), headers: BTreeMap::new() };
    let target = UpstreamTarget { name: "old".into(), transport, limits: limits() };
    let us = us();
    let opening = handshake::connect_transport(&target, None, None, Ear::new(), &us);
    let answering = async {
        server.until(|asked| asked.body["method"] == "initialize").await;
        let result = json!({"protocolVersion": "2024-11-05", "capabilities": {}});
        sender.send(event(&json!({"jsonrpc": "2.0", "id": 1, "result": result}))).await.unwrap();
    };
    let (opened, ()) = soon(async { tokio::join!(opening, answering) }).await;
    let (carrier, found) = opened.unwrap();
    assert_eq!((found.era, found.version.as_str()), (ProtocolEra::Legacy, "2024-11-05"));
    assert_eq!(server.lines(), ["GET ", "POST initialize", "POST notifications/initialized"]);
    drop(carrier);
    soon(sender.closed()).await;
}
