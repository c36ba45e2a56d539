//! `moonlark logout`: forgets a login, and tells the authorization server.

use clap::Args;
use moonlark_upstream::auth::{self, LoggedOut, Revoked};
use serde_json::json;

use super::{Done, Global, login, print, print_json};

#[derive(Args)]
pub(crate) struct Logout {
    /// The upstream server, as the configuration names it.
    name: String,
}

impl Logout {
    pub(crate) async fn run(self, global: &Global) -> Done {
        let account = login::account(&self.name, global)?;
        let done = auth::logout(&account).await?;
        match global.json {
            true => print_json(&json!({ "upstream": self.name, "logout": done })),
            false => print(said(&self.name, &done)),
        }
        Ok(())
    }
}

fn said(name: &str, done: &LoggedOut) -> String {
    if !done.removed {
        return format!("there was no login for {name}");
    }
    match &done.revoked {
        Revoked::Yes => format!("logged out of {name}; its tokens are revoked"),
        Revoked::NotOffered => format!(
            "logged out of {name}; its authorization server revokes no tokens, so they are good \
             until they expire"
        ),
        Revoked::Failed(why) => {
            format!("logged out of {name}, but its tokens are good until they expire: {why}")
        }
    }
}
