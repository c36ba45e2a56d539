//! `moonlark sync`: bring the knowledge base up to date.

mod report;

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use moonlark_core::{Problem, Result};
use moonlark_knowledge::{Advance, Progress, Summary, SyncOptions};

use super::serve::until_asked_to_stop;
use super::{Done, Failure, Global, open};
use crate::connectors::Source;
use crate::knowledge::HOW_TO_BEGIN;
use crate::project::Project;

#[derive(Args)]
pub(crate) struct Sync {
    /// The connector to read (otherwise, or with `all`, every one).
    name: Option<String>,
    /// Read everything again, also what seems unchanged.
    #[arg(long)]
    full: bool,
    /// Go on following changes of folders until Ctrl-C.
    #[arg(long)]
    watch: bool,
}

/// What became of one source.
struct Synced {
    source: Source,
    outcome: Result<Summary>,
}

impl Sync {
    pub(crate) async fn run(self, global: &Global) -> Done {
        let project = Arc::new(open(global).await?);
        let name = self.name.as_deref().filter(|name| *name != "all");
        let sources = match name {
            Some(name) => vec![project.knowledge.source(name)?],
            None => project.knowledge.sources().to_vec(),
        };
        if sources.is_empty() {
            return Err(Problem::bad_config("there is no connector: nothing to sync")
                .hint(HOW_TO_BEGIN)
                .into());
        }
        let connects = sources.iter().any(Source::calls_tools);
        if connects {
            project.connect().await;
        }
        let mut synced = Vec::new();
        for source in sources {
            let outcome = self.sync(&project, &source, global).await;
            synced.push(Synced { source, outcome });
        }
        let forgotten = match name {
            None => project.knowledge.forget_others().await?,
            Some(_) => Vec::new(),
        };
        report::print(&synced, &forgotten, global);
        let failed = synced.iter().any(|it| it.outcome.is_err());
        if self.watch {
            let _following = project.knowledge.follow(&project.gateway);
            if !global.quiet {
                eprintln!("Following changes until Ctrl-C.");
            }
            until_asked_to_stop().await;
        }
        if connects {
            project.disconnect().await;
        }
        if failed { Err(Failure::Said) } else { Ok(()) }
    }

    async fn sync(&self, project: &Project, source: &Source, global: &Global) -> Result<Summary> {
        let bar = bar(&source.name, global);
        let shown = bar.clone();
        let progress: Progress = Arc::new(move |advance| show(&shown, advance));
        let options = SyncOptions { full: self.full, progress };
        let outcome = project.knowledge.sync(source, &project.gateway, options).await;
        bar.finish_and_clear();
        outcome
    }
}

/// Only for people who look at it.
fn bar(name: &str, global: &Global) -> ProgressBar {
    if global.quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let bar = ProgressBar::new_spinner().with_prefix(name.to_owned());
    bar.set_style(style("{spinner} {prefix}: {human_pos} items, {per_sec}, {msg}, {elapsed}"));
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

fn show(bar: &ProgressBar, advance: Advance) {
    let expected = advance.expected.filter(|expected| *expected >= advance.done);
    match (expected, bar.length()) {
        (Some(expected), None) => {
            bar.set_length(expected);
            bar.set_style(style(
                "{spinner} {prefix}: [{bar:30}] {human_pos}/{human_len}, {per_sec}, {msg}, {eta} left",
            ));
        }
        // There are more than there were last time.
        (None, Some(_)) => bar.set_length(advance.done),
        _ => {}
    }
    bar.set_position(advance.done);
    let failed = match advance.failed {
        0 => String::new(),
        count => format!(", {count} failed"),
    };
    bar.set_message(format!("{} chunks{failed}", advance.chunks));
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
        .progress_chars("=> ")
}
