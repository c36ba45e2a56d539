//! `moonlark login`: the part of OAuth that needs a person.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use moonlark_core::{Problem, ProblemCode};
use moonlark_oauth::{LoginOutcome, LoginPrompt, UpstreamAccount};
use serde_json::json;
use url::Url;

use super::{
    CommandError, CommandResult, GlobalArgs, eprint_line, load_config, near_hint, print_json,
    print_line,
};
use crate::upstreams;
use moonlark_state::state_folder::prepare_state_folder;

#[derive(Args)]
pub(crate) struct LoginArgs {
    /// The upstream server, as the configuration names it.
    name: String,
    /// Print the address to open, and open nothing.
    #[arg(long)]
    no_browser: bool,
}

impl LoginArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        let account = find_account(&self.name, global)?;
        let open = !self.no_browser;
        let show = move |url: &Url| {
            eprint_line("To log in, open this address in a browser of this machine:");
            eprint_line("");
            eprint_line(format!("  {url}"));
            eprint_line("");
            if open && !moonlark_oauth::open_browser(url) {
                eprint_line("It was not opened for you: there is no xdg-open.");
            }
            eprint_line("Waiting for the answer. Ctrl-C ends it.");
        };
        let done =
            moonlark_oauth::log_in_to_upstream(&account, &LoginPrompt::Person(&show)).await?;
        if global.json {
            print_json(&json!({ "upstream": self.name, "login": done }))
        } else {
            login_lines(&self.name, &done).into_iter().for_each(print_line)
        }
        Ok(())
    }
}

/// The upstream of that name, as far as logging in goes.
pub(super) fn find_account(
    name: &str,
    global: &GlobalArgs,
) -> Result<UpstreamAccount, CommandError> {
    let loaded = load_config(global)?;
    let servers = &loaded.config.mcp_servers;
    let Some(server) = servers.get(name) else {
        let table = || format!("write a table [mcp_servers.{name}] with a url in moonlark.toml");
        let hint = near_hint(name, servers.keys().map(String::as_str)).unwrap_or_else(table);
        let message = format!("there is no upstream server {name}");
        return Err(Problem::new(ProblemCode::NotFound, message).with_hint(hint).into());
    };
    if let Some(problem) = server.outage.first() {
        return Err(problem.clone().into());
    }
    prepare_state_folder(&loaded.state);
    let Some(url) = upstreams::upstream_url(name, server)? else {
        let message = format!("the upstream {name} is a command, which needs no login");
        let hint = format!("give it what it needs in env of [mcp_servers.{name}]");
        return Err(Problem::bad_request(message).with_hint(hint).into());
    };
    Ok(upstreams::upstream_account(name, server, url, &loaded))
}

fn login_lines(name: &str, done: &LoginOutcome) -> Vec<String> {
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
