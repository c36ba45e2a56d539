//! `moonlark runs fork`: the script of a run, edited or not, on the answers on its record.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use moonlark_core::record_id::RecordId;
use moonlark_core::{Problem, Result};
use moonlark_gateway::run::NewCallPolicy;

use super::super::run::{ScriptFork, ScriptRun, parse_seconds, read_script, script_label};
use super::super::served_command::ServedCommand;
use super::super::source_args::SourceArgs;
use super::super::{CommandResult, GlobalArgs, load_config};
use super::find_named_run;
use super::run_lines::short_id;
use crate::project_journal;

#[derive(Args)]
pub(crate) struct RunsForkArgs {
    /// The run: its id, or the beginning or end of it; `last` is the newest.
    id: String,
    /// Edit the script of the run first, in $VISUAL or $EDITOR.
    #[arg(long)]
    edit: bool,
    /// Take this script instead of the run's; `-` reads it from stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "edit")]
    script: Option<PathBuf>,
    /// Calls that are not on the record: `plan` collects them, `read` makes those that only
    /// read and collects the others, `make` makes them, `error` stops the run.
    #[arg(long, value_name = "HOW", default_value = "plan", value_parser = parse_policy)]
    new_calls: NewCallPolicy,
    /// Timeout of the script in seconds, up to execute.max_timeout.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<f64>,
    #[command(flatten)]
    servers: SourceArgs,
}

fn parse_policy(word: &str) -> Result<NewCallPolicy, String> {
    NewCallPolicy::from_word(word).ok_or_else(|| {
        format!(
            "it is one of {}",
            NewCallPolicy::ALL_POLICIES.map(NewCallPolicy::as_str).join(", ")
        )
    })
}

impl RunsForkArgs {
    pub(super) async fn run(self, global: &GlobalArgs) -> CommandResult {
        let reader = project_journal::journal_reader(&load_config(global)?);
        let id = find_named_run(&reader, &self.id)?;
        let recorded = reader.load_record(id)?.began.script;
        let (file, text) = match &self.script {
            Some(file) => (script_label(file), read_script(file)?),
            None if self.edit => (format!("fork of {}", short_id(id)), edit_script(id, &recorded)?),
            None => (format!("run {}", short_id(id)), recorded),
        };
        let fork =
            ScriptFork { run: id.to_string(), new_calls: self.new_calls.as_str().to_owned() };
        let script = ScriptRun::of_fork(file, text, self.timeout, fork);
        ServedCommand::Run(script).run(self.servers, global).await
    }
}

/// The script as whoever sits there leaves it.
fn edit_script(id: RecordId, script: &str) -> Result<String> {
    let named = |name: &str| std::env::var(name).ok().filter(|it| !it.trim().is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR")).ok_or_else(|| {
        Problem::bad_request("--edit: there is no editor")
            .with_hint("set EDITOR, or write the script to a file and name it with --script FILE")
    })?;
    let failed = |why: String| {
        Problem::unavailable(format!("--edit: {why}"))
            .with_hint("or write the script to a file and name it with --script FILE")
            .with_retryable(false)
    };
    // Only this user reads it: there may be secrets in the script.
    let folder = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
    let file = folder.path().join(format!("fork-{}.luau", short_id(id)));
    moonlark_state::write_private_file(&file, script).map_err(|error| failed(error.to_string()))?;
    run_editor(&editor, &file).map_err(failed)?;
    read_script(&file)
}

/// An editor may have arguments of its own: `code --wait`.
fn run_editor(editor: &str, file: &Path) -> Result<(), String> {
    let ended = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "editor"])
        .arg(file)
        .status()
        .map_err(|error| format!("{editor} cannot be started: {error}"))?;
    if ended.success() { Ok(()) } else { Err(format!("{editor} failed, and nothing was run")) }
}
