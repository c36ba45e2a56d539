//! `--mcp NAME=COMMAND_OR_URL`, wherever a command takes upstream servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Args;

use super::{Failure, Global, here};
use crate::config::McpServer;
use crate::project::Project;

#[derive(Args, Default)]
pub(crate) struct Servers {
    /// An upstream MCP server: the command that starts it, quoted as for a shell, or its address. Comes before one of the same name in the configuration.
    #[arg(long = "mcp", value_name = "NAME=COMMAND_OR_URL", value_parser = server)]
    servers: Vec<(String, McpServer)>,
}

impl Servers {
    /// The project of the working directory, with these servers.
    pub(crate) async fn open(self, global: &Global) -> Result<Arc<Project>, Failure> {
        let servers: BTreeMap<String, McpServer> = self.servers.into_iter().collect();
        let project = Project::open_with(global.config.as_deref(), &here()?, servers).await?;
        Ok(Arc::new(project))
    }
}

fn server(text: &str) -> Result<(String, McpServer), String> {
    let (name, value) = super::key_value(text)?;
    let server = McpServer::from_argument(&value)?;
    match server.faults(&name).into_iter().next() {
        Some((_, fault)) => Err(fault),
        None => Ok((name, server)),
    }
}
