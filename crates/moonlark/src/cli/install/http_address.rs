//! `moonlark install --http`: where the project's server is reached, and the token that
//! a client shows there.

use std::net::SocketAddr;

use moonlark_core::Problem;
use moonlark_server::TokenFile;
use serde_json::{Map, Value as Json};

use super::InstallArgs;
use crate::cli::served_command::find_server;
use crate::cli::{CommandError, GlobalArgs, load_config};
use crate::http_auth;
use crate::local_server::{ConnectionPurpose, LocalServerLookup};
use moonlark_clients::registration::MCP_PATH;
use moonlark_clients::server_entry::{reached_url, shown_token};
use moonlark_config::config_file::LoadedConfig;
use moonlark_state::state_folder::prepare_state_folder;
use moonlark_state::user_text_file::UserTextFile;

/// A token that was made for the client. It goes again with this, unless the client's file
/// has it by then.
pub(super) struct NewToken {
    file: TokenFile,
    name: String,
    text: String,
    is_written: bool,
}

impl NewToken {
    pub(super) fn mark_written(&mut self) {
        self.is_written = true;
    }
}

impl Drop for NewToken {
    fn drop(&mut self) {
        if !self.is_written {
            // What went wrong before is being said already.
            let _ = self.file.remove_token(&self.name);
        }
    }
}

impl InstallArgs {
    /// The entry, and the token that was made for it.
    pub(super) async fn http_entry(
        &self,
        file: &UserTextFile,
        global: &GlobalArgs,
    ) -> Result<(Map<String, Json>, Option<NewToken>), CommandError> {
        let loaded = load_config(global)?;
        let url = mcp_url(&loaded, running_address(global).await?)?;
        let known = self.find_known_token(file, &url);
        let made = match (&known, self.dry_run) {
            (None, false) => self.create_token(&loaded)?,
            _ => None,
        };
        let token = match (known, &made) {
            (Some(known), _) => Some(known),
            (None, Some(made)) => Some(made.text.clone()),
            (None, None) => (self.dry_run && needs_token(&loaded)?).then(|| "…".to_owned()),
        };
        let entry =
            self.client.http_entry(&self.name, &url, token.as_deref()).ok_or_else(|| {
                let message = format!(
                    "{} starts its servers itself, and takes no address",
                    self.client.display_name()
                );
                Problem::bad_request(message).with_hint(
                    "leave --http out: `moonlark stdio` uses the running server of the project",
                )
            })?;
        Ok((entry, made))
    }

    /// The token that our entry has already, for the same address.
    fn find_known_token(&self, file: &UserTextFile, url: &str) -> Option<String> {
        let entry = self.registration_in(file).find_entry(file.text()).ok()??;
        let token = shown_token(&entry)?;
        (reached_url(&entry) == Some(url)).then(|| token.to_owned())
    }

    fn create_token(&self, loaded: &LoadedConfig) -> Result<Option<NewToken>, CommandError> {
        if !needs_token(loaded)? || self.client.http_entry("", "", None).is_none() {
            return Ok(None);
        }
        let file = TokenFile::new(http_auth::token_file(&loaded.root));
        let taken = |name: &String| -> Result<bool, CommandError> {
            let held = file.list_tokens()?;
            let configured = loaded.config.server.auth.tokens.contains_key(name);
            Ok(configured || held.iter().any(|it| it.name == *name))
        };
        let base = self.client.cli_name();
        let mut name = base.clone();
        let mut number = 2;
        while taken(&name)? {
            name = format!("{base}-{number}");
            number += 1;
        }
        prepare_state_folder(&loaded.state);
        let text = file.add_token(&name, Vec::new(), false)?;
        Ok(Some(NewToken { file, name, text, is_written: false }))
    }
}

/// Whether callers have to show a token. One of an identity provider the client gets
/// itself, from its user.
fn needs_token(loaded: &LoadedConfig) -> Result<bool, CommandError> {
    let auth = &loaded.config.server.auth;
    let handed_out = !TokenFile::new(http_auth::token_file(&loaded.root)).list_tokens()?.is_empty();
    Ok(auth.issuer.is_none() && (handed_out || !auth.tokens.is_empty()))
}

/// Where the project's server listens at the moment.
async fn running_address(global: &GlobalArgs) -> Result<Option<String>, CommandError> {
    Ok(match find_server(global, ConnectionPurpose::Command).await? {
        LocalServerLookup::Server(_, server) => server.address,
        LocalServerLookup::Nobody | LocalServerLookup::Unusable(_) => None,
    })
}

fn mcp_url(loaded: &LoadedConfig, running: Option<String>) -> Result<String, CommandError> {
    let server = &loaded.config.server;
    if let Some(url) = &server.auth.url {
        return Ok(format!("{}{MCP_PATH}", url.trim_end_matches('/')));
    }
    let configured = match server.host.trim_matches(['[', ']']).parse() {
        Ok(host) => SocketAddr::new(host, server.port).to_string(),
        Err(_) => format!("{}:{}", server.host, server.port),
    };
    if running.is_none() && server.port == 0 {
        return Err(Problem::bad_config("server.port is 0, so the address is another each time")
            .with_hint("set server.port, or start `moonlark serve` first")
            .into());
    }
    let address = running.unwrap_or(configured);
    // An address to listen on everywhere is none to go to.
    let address = match address.parse::<SocketAddr>() {
        Ok(it) if it.ip().is_unspecified() => format!("127.0.0.1:{}", it.port()),
        _ => address,
    };
    Ok(format!("http://{address}{MCP_PATH}"))
}
