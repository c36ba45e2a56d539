//! `moonlark runs`: what agents' scripts did, from the journal.

mod diff;
mod follow;
mod fork;
mod resume;
mod run_lines;
mod save;
mod save_test;
mod save_tool;
mod show;
mod trace;

use clap::{Args, Subcommand};
use diff::RunsDiffArgs;
use fork::RunsForkArgs;
use moonlark_core::record_id::RecordId;
use moonlark_core::{Problem, Result};
use moonlark_journal::{AwaitedApprovalState, JournalReader, RecordedState, RunSummary};
use serde_json::json;

pub(crate) use resume::RunsResumeArgs;
pub(super) use run_lines::{caller_label, format_local_time, short_id};
use save::RunsSaveArgs;
pub(crate) use save_test::SaveTestRequest;
pub(crate) use trace::RunsTraceArgs;

use super::{CommandResult, GlobalArgs, load_config, print_json, print_line};
use crate::project_journal;

/// What stands for the id of the newest run.
const NEWEST_RUN: &str = "last";

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    command: Option<RunsCommand>,
    /// The run to show: its id, or the beginning or end of it; `last` is the newest (without
    /// one, the newest are listed).
    id: Option<String>,
    /// Keep showing what happens until Ctrl-C, or until the run has ended.
    #[arg(long, short)]
    follow: bool,
    /// List the calls that came from outside, instead of runs.
    #[arg(long, conflicts_with_all = ["id", "follow"])]
    calls: bool,
    /// How many to list.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    limit: usize,
}

#[derive(Subcommand)]
enum RunsCommand {
    /// Resume an interrupted run, or carry out a plan. Calls that were answered are not made again.
    Resume(RunsResumeArgs),
    /// Run the script of a run again, edited or not, on its recorded answers. Nothing that
    /// is recorded is called again.
    Fork(RunsForkArgs),
    /// Show what differs between two runs: script, calls, answers, result and logs.
    Diff(RunsDiffArgs),
    /// Show what the script's variables held at every call, or line. No call is made.
    Trace(RunsTraceArgs),
    /// Make a run into a test or a tool of the project.
    Save(RunsSaveArgs),
}

impl RunsArgs {
    /// Whether a script runs, and what it says is shown as it is.
    pub(crate) fn is_fork(&self) -> bool {
        matches!(self.command, Some(RunsCommand::Fork(_)))
    }

    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        match self.command {
            Some(RunsCommand::Resume(resume)) => return resume.run(global).await,
            Some(RunsCommand::Fork(fork)) => return fork.run(global).await,
            Some(RunsCommand::Diff(diff)) => return diff.run(global).await,
            Some(RunsCommand::Trace(trace)) => return trace.run(global).await,
            Some(RunsCommand::Save(save)) => return save.run(global).await,
            None => {}
        }
        let reader = project_journal::journal_reader(&load_config(global)?);
        match &self.id {
            Some(id) => self.show_run(&reader, find_named_run(&reader, id)?, global).await,
            None => self.list_recent(&reader, global).await,
        }
    }

    async fn show_run(
        &self,
        reader: &JournalReader,
        id: RecordId,
        global: &GlobalArgs,
    ) -> CommandResult {
        if self.follow && !global.json {
            follow::follow_run(reader, id).await?;
        } else if self.follow {
            follow::wait_until_stopped(reader, id).await?;
        }
        let run = reader.show_run(id)?;
        if global.json {
            print_json(&run.to_json())
        } else {
            show::print_run(&run)
        }
        Ok(())
    }

    async fn list_recent(&self, reader: &JournalReader, global: &GlobalArgs) -> CommandResult {
        if self.calls {
            let calls = reader.list_calls(self.limit, None)?;
            if global.json {
                print_json(&json!({ "calls": calls }))
            } else {
                run_lines::call_lines(&calls).iter().for_each(print_line)
            }
            return Ok(());
        }
        let mut runs = reader.list_runs(self.limit, None)?;
        if self.follow {
            runs.reverse();
            return follow::follow_all_runs(reader, runs, global).await;
        }
        if global.json {
            print_json(&json!({ "runs": runs }))
        } else {
            run_lines::list_lines(&runs).iter().for_each(print_line)
        }
        Ok(())
    }
}

/// The run that is named: its id, the beginning or end of it, or `last`.
fn find_named_run(reader: &JournalReader, name: &str) -> Result<RecordId> {
    if name != NEWEST_RUN {
        return reader.find_run(name);
    }
    let newest = reader.list_runs(1, None)?.first().map(|run| run.id);
    newest.ok_or_else(|| {
        Problem::not_found("there is no run yet").with_hint("`moonlark run FILE` makes one")
    })
}

/// How a run stands, in a word: its outcome if it has ended.
fn run_status(run: &RunSummary) -> &str {
    match run.state {
        RecordedState::Running => "running",
        RecordedState::Waiting => {
            run.approval_state.map_or("waiting", AwaitedApprovalState::as_str)
        }
        RecordedState::Interrupted => "interrupted",
        RecordedState::Ended => run.outcome.as_deref().unwrap_or("ended"),
    }
}
