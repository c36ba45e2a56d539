//! A small MCP server over HTTP that lists what it is told to, and remembers what it
//! was called with.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::harness::serve_inside;

pub struct Tiny {
    address: std::net::SocketAddr,
    site: Arc<Site>,
    _ends: oneshot::Sender<()>,
}

struct Site {
    tools: Value,
    resources: Value,
    calls: Mutex<Vec<Value>>,
    /// Calls whose answers break off.
    broken: Mutex<usize>,
}

impl Tiny {
    pub fn open(tools: Value, resources: Value) -> Tiny {
        let site =
            Arc::new(Site { tools, resources, calls: Mutex::default(), broken: Mutex::default() });
        let router = Router::new().fallback(answer).with_state(site.clone());
        let (address, ends) = serve_inside(router);
        Tiny { address, site, _ends: ends }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub fn last_call(&self) -> Value {
        self.site.calls.lock().last().cloned().expect("nothing was called")
    }

    pub fn calls(&self) -> usize {
        self.site.calls.lock().len()
    }

    pub fn break_off(&self, calls: usize) {
        *self.site.broken.lock() = calls;
    }
}

async fn answer(State(site): State<Arc<Site>>, body: axum::body::Bytes) -> Response {
    let Ok(request) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    };
    let params = &request["params"];
    let result = match request["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": {"name": "tiny", "version": "1"},
        }),
        "tools/list" => json!({"tools": site.tools}),
        "resources/list" => json!({"resources": site.resources}),
        "resources/templates/list" => json!({"resourceTemplates": []}),
        "resources/read" => {
            json!({"contents": [{"uri": params["uri"], "text": "<p>", "mimeType": "text/html;profile=mcp-app"}]})
        }
        "tools/call" => {
            site.calls.lock().push(params.clone());
            let mut broken = site.broken.lock();
            if *broken > 0 {
                *broken -= 1;
                let error = std::io::Error::other("broken off");
                let parts = futures::stream::iter([Err::<axum::body::Bytes, _>(error)]);
                return ([("content-type", "application/json")], Body::from_stream(parts))
                    .into_response();
            }
            json!({"content": [{"type": "text", "text": "fine"}]})
        }
        _ if request["id"].is_null() => return StatusCode::ACCEPTED.into_response(),
        _ => {
            let error = json!({"code": -32601, "message": "no such method"});
            return Json(json!({"jsonrpc": "2.0", "id": request["id"], "error": error}))
                .into_response();
        }
    };
    Json(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).into_response()
}
