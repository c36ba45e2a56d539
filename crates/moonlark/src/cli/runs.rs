//! `moonlark runs`: what agents' scripts did, from the journal.

mod follow;
mod list;
mod resume;
mod show;

use clap::{Args, Subcommand};
use moonlark_core::journal::Id;
use moonlark_store::{AwaitedState, Reader, RunLine, State};
use serde_json::json;

pub(super) use list::{caller, short, when};

use super::{Done, Failure, Global, here, print, print_json};
use crate::config_file::{self, Loaded};
use crate::journal;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Runs {
    #[command(subcommand)]
    command: Option<Command>,
    /// The run to show: its id, or the beginning or end of it (otherwise the newest are listed).
    id: Option<String>,
    /// Go on showing what happens until Ctrl-C, or until the run has ended.
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
enum Command {
    /// Go on with a run that was interrupted; no call that was answered is made again.
    Resume(resume::Resume),
}

impl Runs {
    pub(crate) async fn run(self, global: &Global) -> Done {
        if let Some(Command::Resume(resume)) = self.command {
            return resume.run(global).await;
        }
        let reader = journal::reader(&load(global)?);
        match &self.id {
            Some(id) => self.one(&reader, reader.find(id)?, global).await,
            None => self.list(&reader, global).await,
        }
    }

    async fn one(&self, reader: &Reader, id: Id, global: &Global) -> Done {
        if self.follow && !global.json {
            follow::one(reader, id).await?;
        } else if self.follow {
            follow::until_it_rests(reader, id).await?;
        }
        let run = reader.run(id)?;
        match global.json {
            true => print_json(&run.to_json()),
            false => show::print_run(&run),
        }
        Ok(())
    }

    async fn list(&self, reader: &Reader, global: &Global) -> Done {
        if self.calls {
            let calls = reader.calls(self.limit, None)?;
            match global.json {
                true => print_json(&json!({ "calls": calls })),
                false => list::calls(&calls).iter().for_each(print),
            }
            return Ok(());
        }
        let mut runs = reader.runs(self.limit, None)?;
        if self.follow {
            runs.reverse();
            return follow::all(reader, runs, global).await;
        }
        match global.json {
            true => print_json(&json!({ "runs": runs })),
            false => list::runs(&runs).iter().for_each(print),
        }
        Ok(())
    }
}

/// The configuration says where the journal is; nothing else is loaded.
pub(super) fn load(global: &Global) -> Result<Loaded, Failure> {
    let env = |key: &str| std::env::var(key).ok();
    Ok(config_file::load(global.config.as_deref(), &here()?, &env)?)
}

/// How a run stands, in a word: its outcome if it has ended.
fn word(run: &RunLine) -> &str {
    match run.state {
        State::Running => "running",
        State::Waiting => run.approval_state.map_or("waiting", AwaitedState::as_str),
        State::Interrupted => "interrupted",
        State::Ended => run.outcome.as_deref().unwrap_or("ended"),
    }
}
