//! An API on loopback that remembers what came, and documents of it.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

use crate::harness::PATIENCE;

/// The document, with the schema of an order in a file beside it.
pub const DOCUMENT: &str = r#"
openapi: 3.1.0
info: { title: Shop, version: "1" }
servers: [{ url: "http://127.0.0.1:PORT/v1" }]
security: [{ key: [] }]
paths:
  /orders:
    get:
      operationId: listOrders
      summary: List the orders of the shop.
      tags: [orders]
      parameters:
        - { name: state, in: query, description: Only these., schema: { type: string, enum: [open, done] } }
      responses:
        "200":
          description: The orders.
          content: { application/json: { schema: { type: array, items: { $ref: "parts/order.yaml#/Order" } } } }
    post:
      operationId: createOrder
      requestBody:
        required: true
        content: { application/json: { schema: { $ref: "parts/order.yaml#/Order" } } }
      responses: { "201": { description: Made. } }
  /orders/{id}:
    get:
      operationId: getOrder
      parameters: [{ name: id, in: path, required: true, schema: { type: string } }]
      responses: { "200": { description: The order. } }
  /mirror: { get: { operationId: mirror, responses: { "200": { description: What came. } } } }
  /meet: { get: { operationId: meet, responses: { "200": { description: All are there. } } } }
components:
  securitySchemes:
    key: { type: apiKey, in: header, name: X-Key }
"#;

pub const ORDER: &str = r#"
Order:
  type: object
  required: [item]
  properties:
    id: { type: string, readOnly: true }
    item: { type: string }
    count: { type: integer, minimum: 1 }
"#;

#[derive(Debug, Clone)]
pub struct Arrived {
    /// `GET /v1/orders?state=open`
    pub line: String,
    pub headers: HeaderMap,
    pub body: String,
}

pub struct Shop {
    pub port: u16,
    seen: Arc<Mutex<Vec<Arrived>>>,
    /// Ends the server when it is dropped.
    _ends: oneshot::Sender<()>,
}

struct Site {
    seen: Arc<Mutex<Vec<Arrived>>>,
    /// How many came to `/arrived`.
    present: watch::Sender<usize>,
}

impl Shop {
    pub fn open() -> Shop {
        let (ends, ended) = oneshot::channel::<()>();
        let (tell, port) = std::sync::mpsc::channel();
        let seen: Arc<Mutex<Vec<Arrived>>> = Arc::default();
        let site = Arc::new(Site { seen: seen.clone(), present: watch::Sender::new(0) });
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap().port()).unwrap();
                let app = Router::new().fallback(answer).with_state(site);
                tokio::select! {
                    served = axum::serve(listener, app) => served.unwrap(),
                    _ = ended => {}
                }
            });
        });
        Shop { port: port.recv_timeout(PATIENCE).unwrap(), seen, _ends: ends }
    }

    pub fn document(&self) -> String {
        DOCUMENT.replace("PORT", &self.port.to_string())
    }

    pub fn seen(&self) -> Vec<Arrived> {
        self.seen.lock().clone()
    }

    pub fn last(&self) -> Arrived {
        self.seen.lock().last().cloned().expect("nothing arrived")
    }
}

async fn answer(State(site): State<Arc<Site>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let path = parts.uri.path().to_owned();
    site.seen.lock().push(Arrived {
        line: format!("{} {}", parts.method, parts.uri),
        headers: parts.headers.clone(),
        body: String::from_utf8_lossy(&body).into_owned(),
    });
    let key = parts.headers.get("x-key").map_or("", |it| it.to_str().unwrap());
    match (parts.method.as_str(), path.as_str()) {
        ("GET", "/v1/orders") => ok(json!([{"id": "1", "item": "tea", "count": 2}])),
        ("POST", "/v1/orders") => {
            (StatusCode::CREATED, axum::Json(json!({"id": "2"}))).into_response()
        }
        ("GET", "/v1/orders/1") => ok(json!({"id": "1", "item": "tea"})),
        ("GET", "/v1/mirror") => {
            ok(json!({"key": key, "in": [{"text": format!("the key is {key}")}]}))
        }
        ("GET", "/v1/meet") => {
            let mut present = site.present.subscribe();
            let all = present.wait_for(|present| *present == 2);
            match tokio::time::timeout(PATIENCE, all).await {
                Ok(_) => ok(json!({"met": 2})),
                Err(_) => StatusCode::GATEWAY_TIMEOUT.into_response(),
            }
        }
        ("GET", "/arrived") => {
            site.present.send_modify(|present| *present += 1);
            ok(json!("here"))
        }
        _ => {
            let message = format!("no {path} for {key}");
            (StatusCode::NOT_FOUND, axum::Json(json!({"error": {"message": message}})))
                .into_response()
        }
    }
}

fn ok(body: Value) -> Response {
    axum::Json(body).into_response()
}
