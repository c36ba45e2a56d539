//! The floor under upstreams: an rmcp server that hands every call to an rmcp
//! client, and does nothing else.

use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{
    ClientLifecycleMode, ClientServiceExt, RoleClient, RoleServer, ServerHandler, ServiceExt,
};
use tokio::sync::OnceCell;

use super::server::beside;

#[derive(Args)]
pub struct PassThrough {
    /// Where the server is; without it, it is started as a child.
    #[arg(long)]
    url: Option<String>,
    /// Over stdin and stdout instead of HTTP.
    #[arg(long)]
    stdio: bool,
}

impl PassThrough {
    pub fn run(self) -> Result<()> {
        moonlark_http::install_tls_provider();
        let pass = Pass { url: self.url.map(Arc::from), server: Arc::default() };
        if !self.stdio {
            return super::floor_axum::serve(super::floor_rmcp::router(pass));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            pass.serve(rmcp::transport::io::stdio_pipes()).await?.waiting().await?;
            Ok(())
        })
    }
}

#[derive(Clone)]
struct Pass {
    url: Option<Arc<str>>,
    /// One connection for everybody, made for the first call.
    server: Arc<OnceCell<RunningService<RoleClient, ()>>>,
}

impl Pass {
    async fn server(&self) -> Result<&RunningService<RoleClient, ()>, ErrorData> {
        self.server.get_or_try_init(|| self.connect()).await.map_err(failed)
    }

    async fn connect(&self) -> Result<RunningService<RoleClient, ()>> {
        let modern = ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        };
        if let Some(url) = &self.url {
            let transport = StreamableHttpClientTransport::from_uri(url.clone());
            return Ok(().serve_with_lifecycle(transport, modern).await?);
        }
        let mut child = tokio::process::Command::new(beside("moonlark-bench")?)
            .args(["floor-rmcp", "--stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let ends = child.stdout.take().zip(child.stdin.take()).context("no pipes")?;
        // It ends with its input.
        tokio::spawn(async move { child.wait().await });
        Ok(().serve_with_lifecycle(ends, modern).await?)
    }
}

fn failed(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

impl ServerHandler for Pass {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.server().await?.list_tools(request).await.map_err(failed)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.server().await?.peer().call_tool_once(request).await.map_err(failed)
    }
}
