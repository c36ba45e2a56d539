//! The floor under MCP: a bare rmcp server with a native echo tool.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::routing::get;
use axum::{Json, Router};
use clap::Args;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};

#[derive(Args)]
pub struct FloorRmcp {
    /// Over stdin and stdout instead of HTTP.
    #[arg(long)]
    stdio: bool,
    /// Tools to list.
    #[arg(long, default_value_t = 1)]
    tools: usize,
    /// Tools that say nothing about what they may do.
    #[arg(long)]
    without_annotations: bool,
    /// How long each call takes, in milliseconds.
    #[arg(long, default_value_t = 0)]
    delay: u64,
}

impl FloorRmcp {
    pub fn run(self) -> Result<()> {
        let tools = (0..self.tools.min(10_000)).map(describe);
        let native = Native {
            tools: if self.without_annotations {
                tools.collect()
            } else {
                tools.map(annotate).collect()
            },
            delay: Duration::from_millis(self.delay),
        };
        if !self.stdio {
            return super::floor_axum::serve(router(native));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            native.serve(rmcp::transport::io::stdio_pipes()).await?.waiting().await?;
            Ok(())
        })
    }
}

/// With the settings of Moonlark.
pub(super) fn router(handler: impl ServerHandler + Clone) -> Router {
    let config = StreamableHttpServerConfig::default()
        .with_json_response(true)
        .disable_allowed_hosts()
        .disable_allowed_origins();
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(handler.clone()), sessions, config);
    Router::new()
        .route("/health", get(async || Json(json!({"status": "ok"}))))
        .nest_service("/mcp", service)
}

#[derive(Clone)]
struct Native {
    tools: Arc<[Tool]>,
    delay: Duration,
}

/// The same tools that `scripts` writes for Moonlark.
fn describe(index: usize) -> Tool {
    let name = if index == 0 { "echo".to_owned() } else { super::scripts::name(index) };
    let Value::Object(schema) = super::scripts::schema() else { unreachable!("an object") };
    Tool::new(name, super::scripts::DESCRIPTION, schema)
}

fn annotate(mut tool: Tool) -> Tool {
    let mut annotations = ToolAnnotations::new();
    annotations.read_only_hint = Some(true);
    annotations.destructive_hint = Some(true);
    annotations.idempotent_hint = Some(true);
    annotations.open_world_hint = Some(false);
    tool.annotations = Some(annotations);
    tool
}

impl ServerHandler for Native {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let page = self.tools.len().min(1000);
        Ok(ListToolsResult::with_all_items(self.tools[..page].to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        let arguments = request.arguments.unwrap_or_default();
        let message = arguments.get("message").and_then(Value::as_str).unwrap_or_default();
        let result = CallToolResult::structured(json!({"echo": format!("Echo: {message}")}));
        Ok(CallToolResponse::Complete(result))
    }
}
