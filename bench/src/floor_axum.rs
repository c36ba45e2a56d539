//! The floor under REST: bare axum routes that do the same on the wire.

use std::time::Duration;

use anyhow::Result;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use serde_json::{Value, json};

/// Serve on a free port until killed.
pub fn run() -> Result<()> {
    let router = Router::new()
        .route("/health", get(async || Json(json!({"status": "ok"}))))
        .route("/tools/echo", post(echo))
        .route("/tools/wait", post(wait))
        .route("/bytes/{count}", get(bytes));
    serve(router)
}

/// With the settings of Moonlark: all cores, no Nagle.
pub(super) fn serve(router: Router) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        eprintln!("listening on http://{}", listener.local_addr()?);
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router).await?;
        Ok(())
    })
}

async fn echo(Json(body): Json<Value>) -> Json<Value> {
    let message = body["message"].as_str().unwrap_or_default();
    Json(json!({"result": {"echo": format!("Echo: {message}")}}))
}

async fn wait(Json(body): Json<Value>) -> Json<Value> {
    let seconds = body["seconds"].as_f64().unwrap_or_default().clamp(0.0, 60.0);
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    Json(json!({"result": {"waited": seconds}}))
}

/// As many bytes as a listing has, out of memory that is there.
async fn bytes(Path(count): Path<usize>) -> Response {
    static BYTES: [u8; 4 * 1024 * 1024] = [b' '; 4 * 1024 * 1024];
    let body = Bytes::from_static(&BYTES[..count.min(BYTES.len())]);
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}
