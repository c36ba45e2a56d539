//! `--mcp NAME=COMMAND_OR_URL` and `--api NAME=SPEC`, wherever a command takes
//! sources.

use std::sync::Arc;

use clap::Args;

use super::{Failure, Global, here};
use crate::config::McpServer;
use crate::project::{More, Project, StateKept};

/// Options that name sources beside those of the configuration.
const SOURCES: &str = "Sources";

#[derive(Args, Default)]
pub(crate) struct Servers {
    /// An upstream MCP server: the command that starts it, quoted as for a shell, or its address. Comes before one of the same name in the configuration.
    #[arg(long = "mcp", value_name = "NAME=COMMAND_OR_URL", value_parser = server, help_heading = SOURCES)]
    servers: Vec<(String, McpServer)>,

    /// An API: its OpenAPI document, a file or an address. Comes before one of the same name in the configuration.
    #[arg(long = "api", value_name = "NAME=SPEC", value_parser = super::key_value, help_heading = SOURCES)]
    apis: Vec<(String, String)>,

    /// The environment variable that holds the secret of an API.
    #[arg(long = "auth", value_name = "NAME:ENV_VAR", value_parser = login, help_heading = SOURCES)]
    logins: Vec<(String, String)>,

    /// What becomes of what there is to remember where there is no project.
    #[arg(skip)]
    pub(crate) state_kept: StateKept,
}

impl Servers {
    /// Whether there is nothing but what the configuration has.
    pub(crate) fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.apis.is_empty() && self.logins.is_empty()
    }

    /// The project of the working directory, with these servers.
    pub(crate) async fn open(self, global: &Global) -> Result<Arc<Project>, Failure> {
        let project = self.prepare(global, Vec::new())?;
        project.finish_loading().await;
        Ok(project)
    }

    /// The same, with the APIs that are named without an option, and without waiting for
    /// scripts.
    pub(crate) fn prepare(
        self,
        global: &Global,
        specs: Vec<(String, String)>,
    ) -> Result<Arc<Project>, Failure> {
        let here = here()?;
        let seen_from_here = |(name, spec): (String, String)| {
            let web = spec.starts_with("http://") || spec.starts_with("https://");
            let spec = if web { spec } else { here.join(spec).to_string_lossy().into_owned() };
            (name, spec)
        };
        let more = More {
            servers: self.servers.into_iter().collect(),
            specs: self.apis.into_iter().chain(specs).map(seen_from_here).collect(),
            logins: self.logins.into_iter().collect(),
            state_kept: self.state_kept,
            ..More::default()
        };
        Ok(Arc::new(Project::prepare(global.config.as_deref(), &here, more)?))
    }
}

/// `NAME:ENV_VAR`.
fn login(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, variable)) if !name.is_empty() && !variable.is_empty() => {
            Ok((name.to_owned(), variable.to_owned()))
        }
        _ => Err("write it as NAME:ENV_VAR".to_owned()),
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
