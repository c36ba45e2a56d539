//! `moonlark token`: bearer tokens for callers over HTTP.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use moonlark_core::Problem;
use moonlark_gateway::policy::patterns_without_tool;
use moonlark_server::{StoredToken, TokenFile};
use serde_json::{Value as Json, json};

use super::source_args::SourceArgs;
use super::{
    CommandError, CommandResult, GlobalArgs, eprint_line, load_config, print_json, print_line,
};
use crate::http_auth;
use moonlark_config::ServerAuthConfig;
use moonlark_config::config_file::LoadedConfig;
use moonlark_state::state_folder::prepare_state_folder;

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token for a caller. It is shown once.
    Add(TokenAddArgs),
    /// List the tokens by caller, with their tools.
    List,
    /// Remove a token. A running server rejects it at once.
    Remove {
        /// The caller's name.
        name: String,
    },
}

#[derive(Args)]
pub(crate) struct TokenAddArgs {
    /// The caller's name, which the rules of `[policy]` refer to.
    name: String,
    /// Tools that the caller sees, such as `jira.*`; can be given several times.
    /// Otherwise all that the rules allow.
    #[arg(long, value_name = "PATTERN")]
    tools: Vec<String>,
    /// Make the caller an operator: it sees the runs of all callers and decides all approvals.
    #[arg(long)]
    operator: bool,
}

impl TokenCommand {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        let loaded = load_config(global)?;
        let file = TokenFile::new(http_auth::token_file(&loaded.root));
        match self {
            TokenCommand::Add(add) => add.run(&file, &loaded, global).await,
            TokenCommand::List => list_tokens(&file, &loaded.config.server.auth, global),
            TokenCommand::Remove { name } => remove_token(&file, &name, global),
        }
    }
}

impl TokenAddArgs {
    async fn run(
        self,
        file: &TokenFile,
        loaded: &LoadedConfig,
        global: &GlobalArgs,
    ) -> CommandResult {
        let auth = &loaded.config.server.auth;
        if auth.tokens.contains_key(&self.name) {
            let message = format!("the configuration has a token of the name {}", self.name);
            let hint = "choose another name, or remove that line of [server.auth.tokens]";
            return Err(Problem::bad_request(message).with_hint(hint).into());
        }
        let is_first = !file.path().exists() && auth.tokens.is_empty() && auth.issuer.is_none();
        if let Some(folder) = file.path().parent() {
            prepare_state_folder(folder);
        }
        warn_of_unmatched_patterns(&self.tools, loaded, global).await;
        let token = file.add_token(&self.name, self.tools, self.operator)?;
        if global.json {
            print_json(&json!({ "name": self.name, "token": token }));
            return Ok(());
        }
        print_line(&token);
        if !global.quiet {
            eprint_line(format!(
                "This is the token of {}. It is not shown again; send it as",
                self.name
            ));
            eprint_line(format!("  Authorization: Bearer {}…", &token[..8.min(token.len())]));
        }
        if is_first && !global.quiet {
            eprint_line("From now on, every HTTP request needs a token.");
        }
        Ok(())
    }
}

/// A misspelt pattern leaves its holder without the tool. Nothing is
/// connected to for this: what upstreams and APIs have is not known here.
async fn warn_of_unmatched_patterns(
    patterns: &[String],
    loaded: &LoadedConfig,
    global: &GlobalArgs,
) {
    if patterns.is_empty() {
        return;
    }
    let Ok(project) = SourceArgs::default().open_project(global).await else { return };
    let config = &loaded.config;
    let sources = config.mcp_servers.keys().chain(config.apis.keys());
    let unknown: Vec<&str> = sources.map(String::as_str).collect();
    // Tools of a source without a prefix may have any name.
    let is_unprefixed = |prefix: &Option<String>| prefix.as_deref() == Some("");
    if config.mcp_servers.values().any(|it| is_unprefixed(&it.prefix))
        || config.apis.values().any(|it| is_unprefixed(&it.prefix))
    {
        return;
    }
    let strange = patterns_without_tool(&project.gateway.catalog(), patterns, &unknown);
    for (pattern, near) in strange {
        let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        eprint_line(format!("warning: no tool matches {pattern}{near}"));
    }
}

fn list_tokens(file: &TokenFile, auth: &ServerAuthConfig, global: &GlobalArgs) -> CommandResult {
    let held = file.list_tokens()?;
    let set = || auth.tokens.keys();
    if global.json {
        let held = held.iter().map(token_json);
        let set = set().map(|name| json!({ "name": name, "configured": true }));
        print_json(&json!({ "tokens": held.chain(set).collect::<Vec<_>>() }));
        return Ok(());
    }
    if held.is_empty() && auth.tokens.is_empty() {
        print_line("there are no tokens; `moonlark token add NAME` makes one");
    }
    held.iter().for_each(|held| print_line(token_line(held, auth)));
    set().for_each(|name| {
        print_line(format!("{name}  in the configuration{}", operator_suffix(auth, name)))
    });
    Ok(())
}

/// `ci  since 2026-11-16  jira.*, execute  operator`
fn token_line(held: &StoredToken, auth: &ServerAuthConfig) -> String {
    let tools = if held.tools.is_empty() { "all tools".to_owned() } else { held.tools.join(", ") };
    let operator = if held.operator { "  operator" } else { operator_suffix(auth, &held.name) };
    format!("{}  since {}  {tools}{operator}", held.name, format_date(held.created))
}

fn operator_suffix(auth: &ServerAuthConfig, name: &String) -> &'static str {
    if auth.operators.contains(name) { "  operator" } else { "" }
}

fn format_date(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|it| Timestamp::from_second(it).ok());
    time.unwrap_or_default().strftime("%Y-%m-%d").to_string()
}

fn token_json(held: &StoredToken) -> Json {
    let StoredToken { name, tools, operator, created, .. } = held;
    json!({ "name": name, "tools": tools, "operator": operator, "created": created })
}

fn remove_token(file: &TokenFile, name: &str, global: &GlobalArgs) -> Result<(), CommandError> {
    let left = file.remove_token(name)?;
    if global.json {
        print_json(&json!({ "removed": name, "left": left }));
        return Ok(());
    }
    print_line(format!("token of {name} revoked"));
    if left == 0 {
        eprint_no_token_left(file);
    }
    Ok(())
}

/// What it means that the last token was removed.
pub(super) fn eprint_no_token_left(file: &TokenFile) {
    let path = file.path().display();
    eprint_line(format!(
        "There is no other in {path}. Callers need one as long as that file is there."
    ));
}
