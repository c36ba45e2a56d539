//! `moonlark login`: the part of OAuth that needs a person.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use moonlark_core::nearest::nearest;
use moonlark_core::{Code, Problem};
use moonlark_upstream::auth::{self, Account, Ask, LoggedIn};
use serde_json::json;
use url::Url;

use super::{Done, Failure, Global, here, print, print_json, say};
use crate::state_folder::prepare_state_folder;
use crate::{config_file, upstreams};

#[derive(Args)]
pub(crate) struct Login {
    /// The upstream server, as the configuration names it.
    name: String,
    /// Print the address to open, and open nothing.
    #[arg(long)]
    no_browser: bool,
}

impl Login {
    pub(crate) async fn run(self, global: &Global) -> Done {
        let account = account(&self.name, global)?;
        let open = !self.no_browser;
        let show = move |url: &Url| {
            say("To log in, open this address in a browser of this machine:");
            say("");
            say(format!("  {url}"));
            say("");
            if open && !auth::open_browser(url) {
                say("It was not opened for you: there is no xdg-open.");
            }
            say("Waiting for the answer. Ctrl-C ends it.");
        };
        let done = auth::login(&account, &Ask::Person(&show)).await?;
        match global.json {
            true => print_json(&json!({ "upstream": self.name, "login": done })),
            false => said(&self.name, &done).into_iter().for_each(print),
        }
        Ok(())
    }
}

/// The upstream of that name, as far as logging in goes.
pub(super) fn account(name: &str, global: &Global) -> Result<Account, Failure> {
    let env = |key: &str| std::env::var(key).ok();
    let loaded = config_file::load(global.config.as_deref(), &here()?, &env)?;
    let servers = &loaded.config.mcp_servers;
    let Some(server) = servers.get(name) else {
        let near = nearest(name, servers.keys().map(String::as_str));
        let hint = match near {
            Some(near) => format!("did you mean {near}?"),
            None => format!("write a table [mcp_servers.{name}] with a url in moonlark.toml"),
        };
        let message = format!("there is no upstream server {name}");
        return Err(Problem::new(Code::NotFound, message).hint(hint).into());
    };
    if let Some(problem) = server.outage.first() {
        return Err(problem.clone().into());
    }
    prepare_state_folder(&loaded.state);
    let url = server.url.as_deref().and_then(|url| Url::parse(url).ok());
    let Some(url) = url else {
        let message = format!("the upstream {name} is a command, which nobody logs in to");
        let hint = format!("give it what it needs in env of [mcp_servers.{name}]");
        return Err(Problem::bad_request(message).hint(hint).into());
    };
    Ok(upstreams::account(name, server, url, &loaded))
}

fn said(name: &str, done: &LoggedIn) -> Vec<String> {
    let mut lines = vec![format!("logged in to {name} at {}", done.issuer)];
    if !done.scopes.is_empty() {
        lines.push(format!("it allows: {}", done.scopes.join(", ")));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    lines.push(match (done.renews, done.expires_at) {
        (true, _) => "Moonlark renews it by itself".to_owned(),
        (false, Some(at)) => {
            format!("it ends in {} minutes and has to be made again", at.saturating_sub(now) / 60)
        }
        (false, None) => "it lasts until the server ends it".to_owned(),
    });
    lines
}
