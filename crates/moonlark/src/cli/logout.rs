//! `moonlark logout`: forgets a login, and tells the authorization server.

use clap::Args;
use moonlark_oauth::{LogoutOutcome, RevocationOutcome};
use serde_json::json;

use super::{CommandResult, GlobalArgs, login, print_json, print_line};

#[derive(Args)]
pub(crate) struct LogoutArgs {
    /// The upstream server, as the configuration names it.
    name: String,
}

impl LogoutArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        let account = login::find_account(&self.name, global)?;
        let done = moonlark_oauth::log_out_of_upstream(&account).await?;
        if global.json {
            print_json(&json!({ "upstream": self.name, "logout": done }))
        } else {
            print_line(logout_line(&self.name, &done))
        }
        Ok(())
    }
}

fn logout_line(name: &str, done: &LogoutOutcome) -> String {
    if !done.removed {
        return format!("there was no login for {name}");
    }
    match &done.revoked {
        RevocationOutcome::Yes => format!("logged out of {name}; its tokens are revoked"),
        RevocationOutcome::NotOffered => format!(
            "logged out of {name}; its authorization server revokes no tokens, so they are good \
             until they expire"
        ),
        RevocationOutcome::Failed(why) => {
            format!("logged out of {name}, but its tokens are good until they expire: {why}")
        }
    }
}
