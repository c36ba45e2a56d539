//! `--mcp NAME=COMMAND_OR_URL` and `--api NAME=SPEC`, wherever a command takes
//! sources.

use std::sync::Arc;

use clap::Args;

use super::{CommandError, GlobalArgs, working_dir};
use crate::project::{CliSources, Project, StateRetention};
use moonlark_config::McpServerConfig;

/// Options that name sources beside those of the configuration.
const SOURCE_OPTIONS_HEADING: &str = "Sources";

#[derive(Args, Default)]
pub(crate) struct SourceArgs {
    /// An upstream MCP server: the command that starts it, quoted as for a shell, or its address. Overrides one of the same name in the configuration.
    #[arg(long = "mcp", value_name = "NAME=COMMAND_OR_URL", value_parser = parse_server, help_heading = SOURCE_OPTIONS_HEADING)]
    servers: Vec<(String, McpServerConfig)>,

    /// An API: its OpenAPI document, a file or an address. Overrides one of the same name in the configuration.
    #[arg(long = "api", value_name = "NAME=SPEC", value_parser = super::parse_key_value, help_heading = SOURCE_OPTIONS_HEADING)]
    apis: Vec<(String, String)>,

    /// The environment variable that holds the secret of an API.
    #[arg(long = "auth", value_name = "NAME:ENV_VAR", value_parser = parse_login, help_heading = SOURCE_OPTIONS_HEADING)]
    logins: Vec<(String, String)>,

    /// What becomes of what there is to remember where there is no project.
    #[arg(skip)]
    pub(crate) state_kept: StateRetention,
}

impl SourceArgs {
    /// Whether there is nothing but what the configuration has.
    pub(crate) fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.apis.is_empty() && self.logins.is_empty()
    }

    /// The project of the working directory, with these servers.
    pub(crate) async fn open_project(
        self,
        global: &GlobalArgs,
    ) -> Result<Arc<Project>, CommandError> {
        let project = self.prepare_project(global, Vec::new())?;
        project.load_scripts_initially().await;
        Ok(project)
    }

    /// The same, with the APIs that are named without an option, and without waiting for
    /// scripts.
    pub(crate) fn prepare_project(
        self,
        global: &GlobalArgs,
        specs: Vec<(String, String)>,
    ) -> Result<Arc<Project>, CommandError> {
        let here = working_dir()?;
        let seen_from_here = |(name, spec): (String, String)| {
            let web = spec.starts_with("http://") || spec.starts_with("https://");
            let spec = if web { spec } else { here.join(spec).to_string_lossy().into_owned() };
            (name, spec)
        };
        let more = CliSources {
            servers: self.servers.into_iter().collect(),
            specs: self.apis.into_iter().chain(specs).map(seen_from_here).collect(),
            logins: self.logins.into_iter().collect(),
            state_kept: self.state_kept,
            ..CliSources::default()
        };
        Ok(Arc::new(Project::open_without_scripts(global.config.as_deref(), &here, more)?))
    }
}

/// `NAME:ENV_VAR`.
fn parse_login(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, variable)) if !name.is_empty() && !variable.is_empty() => {
            Ok((name.to_owned(), variable.to_owned()))
        }
        _ => Err("write it as NAME:ENV_VAR".to_owned()),
    }
}

fn parse_server(text: &str) -> Result<(String, McpServerConfig), String> {
    let (name, value) = super::parse_key_value(text)?;
    let server = McpServerConfig::from_cli_argument(&value)?;
    match server.find_faults(&name).into_iter().next() {
        Some((_, fault)) => Err(fault),
        None => Ok((name, server)),
    }
}
