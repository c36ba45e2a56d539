//! `moonlark token`: hands out what callers over HTTP show.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use moonlark_core::Problem;
use moonlark_core::policy::patterns_without_tool;
use moonlark_server::{Held, TokenFile};
use serde_json::{Value as Json, json};

use super::servers::Servers;
use super::{Done, Failure, Global, here, print, print_json, say};
use crate::config::ServerAuth;
use crate::config_file::{self, Loaded};
use crate::state_folder::prepare_state_folder;
use crate::who;

#[derive(Subcommand)]
pub(crate) enum Token {
    /// Hand out a token. It is shown once.
    Add(Add),
    /// List whose tokens there are, and what they are for.
    List,
    /// Take a token back. A server that runs refuses it from now on.
    Remove {
        /// The name of its holder.
        name: String,
    },
}

#[derive(Args)]
pub(crate) struct Add {
    /// The name of its holder, which the rules of `[policy]` know it by.
    name: String,
    /// Tools that there are for it, such as `jira.*`; can be given several times.
    /// Otherwise all that the rules leave.
    #[arg(long, value_name = "PATTERN")]
    tools: Vec<String>,
    /// Let its holder see the runs of all, and decide all approvals.
    #[arg(long)]
    operator: bool,
}

impl Token {
    pub(crate) async fn run(self, global: &Global) -> Done {
        let env = |key: &str| std::env::var(key).ok();
        let loaded = config_file::load(global.config.as_deref(), &here()?, &env)?;
        let file = TokenFile::new(who::file(&loaded.root));
        match self {
            Token::Add(add) => add.run(&file, &loaded, global).await,
            Token::List => list(&file, &loaded.config.server.auth, global),
            Token::Remove { name } => remove(&file, &name, global),
        }
    }
}

impl Add {
    async fn run(self, file: &TokenFile, loaded: &Loaded, global: &Global) -> Done {
        let auth = &loaded.config.server.auth;
        if auth.tokens.contains_key(&self.name) {
            let message = format!("the configuration has a token of the name {}", self.name);
            let hint = "choose another name, or remove that line of [server.auth.tokens]";
            return Err(Problem::bad_request(message).hint(hint).into());
        }
        let is_first = !file.path().exists() && auth.tokens.is_empty() && auth.issuer.is_none();
        if let Some(folder) = file.path().parent() {
            prepare_state_folder(folder);
        }
        warn_of_strange_patterns(&self.tools, loaded, global).await;
        let token = file.add(&self.name, self.tools, self.operator)?;
        if global.json {
            print_json(&json!({ "name": self.name, "token": token }));
            return Ok(());
        }
        print(&token);
        if !global.quiet {
            say(format!("This is the token of {}. It is not shown again; send it as", self.name));
            say(format!("  Authorization: Bearer {}…", &token[..8.min(token.len())]));
        }
        if is_first && !global.quiet {
            say("From now on, nobody calls over HTTP without a token.");
        }
        Ok(())
    }
}

/// A pattern with a slip in it leaves its holder without the tool. Nothing is
/// connected to for this: what upstreams and APIs have is not known here.
async fn warn_of_strange_patterns(patterns: &[String], loaded: &Loaded, global: &Global) {
    if patterns.is_empty() {
        return;
    }
    let Ok(project) = Servers::default().open(global).await else { return };
    let config = &loaded.config;
    let sources = config.mcp_servers.keys().chain(config.apis.keys());
    let unknown: Vec<&str> = sources.map(String::as_str).collect();
    let strange = patterns_without_tool(&project.gateway.catalog(), patterns, &unknown);
    for (pattern, near) in strange {
        let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        say(format!("warning: no tool there is now is called {pattern}{near}"));
    }
}

fn list(file: &TokenFile, auth: &ServerAuth, global: &Global) -> Done {
    let held = file.list()?;
    let set = || auth.tokens.keys();
    if global.json {
        let held = held.iter().map(as_json);
        let set = set().map(|name| json!({ "name": name, "configured": true }));
        print_json(&json!({ "tokens": held.chain(set).collect::<Vec<_>>() }));
        return Ok(());
    }
    if held.is_empty() && auth.tokens.is_empty() {
        print("nobody has a token; `moonlark token add NAME` hands one out");
    }
    held.iter().for_each(|held| print(line(held, auth)));
    set().for_each(|name| print(format!("{name}  in the configuration{}", operates(auth, name))));
    Ok(())
}

/// `ci  since 2026-11-16  jira.*, execute  operator`
fn line(held: &Held, auth: &ServerAuth) -> String {
    let tools = match held.tools.is_empty() {
        true => "all tools".to_owned(),
        false => held.tools.join(", "),
    };
    let operator = if held.operator { "  operator" } else { operates(auth, &held.name) };
    format!("{}  since {}  {tools}{operator}", held.name, day(held.created))
}

fn operates(auth: &ServerAuth, name: &String) -> &'static str {
    if auth.operators.contains(name) { "  operator" } else { "" }
}

fn day(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|it| Timestamp::from_second(it).ok());
    time.unwrap_or_default().strftime("%Y-%m-%d").to_string()
}

fn as_json(held: &Held) -> Json {
    let Held { name, tools, operator, created, .. } = held;
    json!({ "name": name, "tools": tools, "operator": operator, "created": created })
}

fn remove(file: &TokenFile, name: &str, global: &Global) -> Result<(), Failure> {
    let left = file.remove(name)?;
    if global.json {
        print_json(&json!({ "removed": name, "left": left }));
        return Ok(());
    }
    print(format!("the token of {name} is no longer good"));
    if left == 0 {
        let path = file.path().display();
        say(format!(
            "There is no other in {path}. Callers need one as long as that file is there."
        ));
    }
    Ok(())
}
