//! Calls of operations against a real server that says what arrived.

mod auth;
mod bodies;
mod configured;
mod operations;
mod origins;
mod params;
mod responses;

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use moonlark_core::catalog::Catalog;
use moonlark_core::content::ToolAnswer;
use moonlark_core::{Problem, Tool, Value};
use moonlark_gateway::{Caller, Gateway};
use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use crate::{ApiSettings, DocumentTree, OpenApiDocument, build_api_tools};

/// A request as it came.
#[derive(Debug, Clone)]
struct Arrived {
    /// Path and query, undecoded.
    target: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Arrived {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |it| it.to_str().unwrap())
    }

    fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }
}

type Reply = Box<dyn Fn(&Arrived) -> Response + Send + Sync>;

/// An API on loopback that answers as it is told and remembers what came.
struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<Arrived>>>,
    reply: Arc<Mutex<Reply>>,
}

impl Server {
    async fn start() -> Server {
        let seen: Arc<Mutex<Vec<Arrived>>> = Arc::default();
        let reply: Arc<Mutex<Reply>> =
            Arc::new(Mutex::new(Box::new(|_| axum::Json(json!({"ok": true})).into_response())));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let app = Router::new().fallback(answer).with_state((seen.clone(), reply.clone()));
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Server { port, seen, reply }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn answers(&self, reply: impl Fn(&Arrived) -> Response + Send + Sync + 'static) {
        *self.reply.lock() = Box::new(reply);
    }

    fn last(&self) -> Arrived {
        self.seen.lock().last().cloned().expect("nothing arrived")
    }

    fn count(&self) -> usize {
        self.seen.lock().len()
    }
}

type Shared = (Arc<Mutex<Vec<Arrived>>>, Arc<Mutex<Reply>>);

async fn answer(State((seen, reply)): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let target = parts.uri.path_and_query().unwrap().to_string();
    let arrived = Arrived { target, headers: parts.headers, body };
    seen.lock().push(arrived.clone());
    let reply = reply.lock();
    reply(&arrived)
}

/// The tools of a document, behind a gateway.
struct World {
    gateway: Gateway,
    tools: HashMap<String, Arc<Tool>>,
    problems: Vec<Problem>,
}

fn settings() -> ApiSettings {
    ApiSettings { file: "api.yaml".to_owned(), ..ApiSettings::new("api") }
}

impl World {
    fn new(document: Json, change: impl FnOnce(&mut ApiSettings)) -> World {
        let mut settings = settings();
        change(&mut settings);
        let document =
            OpenApiDocument::new(DocumentTree::from_json(&document), HashMap::new(), None).unwrap();
        let (tools, problems) = build_api_tools(settings, Arc::new(document)).unwrap();
        let tools: Vec<Arc<Tool>> = tools.into_iter().map(Arc::new).collect();
        let by_name = tools.iter().map(|tool| (tool.name.clone(), tool.clone())).collect();
        let catalog = Catalog::new(Arc::default(), tools, &[], Vec::new());
        World { gateway: Gateway::new(catalog, 100), tools: by_name, problems }
    }

    /// One operation, `op`, that takes what is given at `path`.
    fn one(server: &Server, method: &str, path: &str, operation: Json) -> World {
        let mut operation = operation;
        operation["operationId"] = json!("op");
        let document = json!({
            "openapi": "3.0.3",
            "servers": [{"url": server.url()}],
            "paths": {path: {method: operation}},
        });
        World::new(document, |_| {})
    }

    async fn ask(&self, tool: &str, args: Json) -> Result<ToolAnswer, Problem> {
        let call = self.gateway.open_call(Caller::new("test")).unwrap();
        let tool = self.tools.get(&format!("api.{tool}")).expect("no such tool");
        self.gateway.invoke(&call, tool, Value::from_json(args).unwrap()).await
    }

    async fn call(&self, tool: &str, args: Json) -> Result<Json, Problem> {
        self.ask(tool, args).await.map(|answer| answer.into_plain_value().to_json_lossy())
    }

    async fn raw(&self, tool: &str, args: Json) -> Result<Json, Problem> {
        let call = self.gateway.open_call(Caller::new("test")).unwrap();
        let tool = self.tools[&format!("api.{tool}")].raw.clone().unwrap();
        let args = Value::from_json(args).unwrap();
        let answer = self.gateway.invoke(&call, &tool, args).await;
        answer.map(|answer| answer.into_plain_value().to_json_lossy())
    }
}

fn reply(status: u16, kind: &str, body: impl Into<Vec<u8>>) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    (status, [("content-type", kind.to_owned())], body.into()).into_response()
}
