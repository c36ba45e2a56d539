//! `moonlark token`: hands out what callers over HTTP show.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use moonlark_core::Problem;
use moonlark_server::{Held, TokenFile};
use serde_json::{Value as Json, json};

use super::{Done, Failure, Global, here, print};
use crate::config::ServerAuth;
use crate::{config_file, who};

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
    pub(crate) fn run(self, global: &Global) -> Done {
        let env = |key: &str| std::env::var(key).ok();
        let loaded = config_file::load(global.config.as_deref(), &here()?, &env)?;
        let file = TokenFile::new(who::file(&loaded.root));
        match self {
            Token::Add(add) => add.run(&file, &loaded.config.server.auth, global),
            Token::List => list(&file, &loaded.config.server.auth, global),
            Token::Remove { name } => remove(&file, &name, global),
        }
    }
}

impl Add {
    fn run(self, file: &TokenFile, auth: &ServerAuth, global: &Global) -> Done {
        if auth.tokens.contains_key(&self.name) {
            let message = format!("the configuration has a token of the name {}", self.name);
            let hint = "choose another name, or remove that line of [server.auth.tokens]";
            return Err(Problem::bad_request(message).hint(hint).into());
        }
        let is_first = !file.path().exists() && auth.tokens.is_empty() && auth.issuer.is_none();
        let token = file.add(&self.name, self.tools, self.operator)?;
        if global.json {
            print(&json!({ "name": self.name, "token": token }).to_string());
            return Ok(());
        }
        print(&token);
        if !global.quiet {
            eprintln!("This is the token of {}. It is not shown again; send it as", self.name);
            eprintln!("  Authorization: Bearer {}…", &token[..8.min(token.len())]);
        }
        if is_first && !global.quiet {
            eprintln!("From now on, nobody calls over HTTP without a token.");
        }
        Ok(())
    }
}

fn list(file: &TokenFile, auth: &ServerAuth, global: &Global) -> Done {
    let held = file.list()?;
    let set = || auth.tokens.keys();
    if global.json {
        let held = held.iter().map(as_json);
        let set = set().map(|name| json!({ "name": name, "configured": true }));
        print(&json!({ "tokens": held.chain(set).collect::<Vec<_>>() }).to_string());
        return Ok(());
    }
    if held.is_empty() && auth.tokens.is_empty() {
        print("nobody has a token; `moonlark token add NAME` hands one out");
    }
    held.iter().for_each(|held| print(&line(held, auth)));
    set().for_each(|name| print(&format!("{name}  in the configuration{}", operates(auth, name))));
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
        print(&json!({ "removed": name, "left": left }).to_string());
        return Ok(());
    }
    print(&format!("the token of {name} is no longer good"));
    if left == 0 {
        let path = file.path().display();
        eprintln!("There is no other in {path}. Callers need one as long as that file is there.");
    }
    Ok(())
}
