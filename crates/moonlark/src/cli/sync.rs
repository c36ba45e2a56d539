//! `moonlark sync`: bring the knowledge base up to date.

mod sync_report;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use moonlark_core::visible_text::visible_in_line;
use moonlark_core::{Problem, Result};
use moonlark_knowledge::{
    ItemReadingCallback, SyncOptions, SyncProgressCallback, SyncProgressCounts, SyncSummary,
};
use parking_lot::Mutex;

use super::serve::shutdown_signal;
use super::terminal::stderr_has_colors;
use super::{CommandError, CommandResult, GlobalArgs, eprint_line, open_project};
use crate::connectors::KnowledgeSource;
use crate::knowledge_base::FIRST_SOURCE_HINT;
use crate::project::Project;

#[derive(Args)]
pub(crate) struct SyncArgs {
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
struct SyncedSource {
    source: KnowledgeSource,
    outcome: Result<SyncSummary>,
}

impl SyncArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        let project = Arc::new(open_project(global).await?);
        let name = self.name.as_deref().filter(|name| *name != "all");
        let sources = match name {
            Some(name) => vec![project.knowledge.find_source(name)?],
            None => project.knowledge.sources().to_vec(),
        };
        if sources.is_empty() {
            return Err(Problem::bad_config("there is no connector: nothing to sync")
                .with_hint(FIRST_SOURCE_HINT)
                .into());
        }
        let connects = sources.iter().any(KnowledgeSource::may_call_tools);
        if connects {
            project.connect_all_sources().await;
        }
        let mut synced = Vec::new();
        for source in sources {
            let outcome = self.sync_source(&project, &source, global).await;
            synced.push(SyncedSource { source, outcome });
        }
        let forgotten = match name {
            None => project.knowledge.forget_unconfigured_sources().await?,
            Some(_) => Vec::new(),
        };
        sync_report::print_sync_report(&synced, &forgotten, global);
        let failed = synced.iter().any(|it| it.outcome.is_err());
        if self.watch {
            let _following = project.knowledge.start_background_sync(&project.gateway);
            if !global.quiet {
                eprint_line("Following changes until Ctrl-C.");
            }
            shutdown_signal().await;
        }
        if connects {
            project.disconnect_quickly().await;
        }
        if failed { Err(CommandError::Said) } else { Ok(()) }
    }

    async fn sync_source(
        &self,
        project: &Project,
        source: &KnowledgeSource,
        global: &GlobalArgs,
    ) -> Result<SyncSummary> {
        let bar = progress_bar(&source.name, global);
        let shown = Arc::new(Mutex::new(SyncProgress::default()));
        let (its_bar, its_shown) = (bar.clone(), shown.clone());
        let progress: SyncProgressCallback = Arc::new(move |advance| {
            let mut shown = its_shown.lock();
            shown.advance = advance;
            show_progress(&its_bar, &shown);
        });
        let its_bar = bar.clone();
        let reading: ItemReadingCallback = Arc::new(move |item| {
            let mut shown = shown.lock();
            item.clone_into(&mut shown.item);
            show_progress(&its_bar, &shown);
        });
        let options = SyncOptions { full: self.full, progress, reading };
        let outcome = project.knowledge.sync_source(source, &project.gateway, options).await;
        bar.finish_and_clear();
        outcome
    }
}

/// Only for people who look at it.
fn progress_bar(name: &str, global: &GlobalArgs) -> ProgressBar {
    if global.quiet || !stderr_has_colors() {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let bar = ProgressBar::new_spinner().with_prefix(name.to_owned());
    bar.set_style(progress_style("{spinner} {prefix}: {wide_msg}"));
    bar.set_message("looking what there is");
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// How far the sync of one source is.
#[derive(Debug, Default)]
struct SyncProgress {
    advance: SyncProgressCounts,
    /// What was last begun to be read.
    item: String,
}

impl SyncProgress {
    /// `1,204 items, 57 chunks, 138/s, reading big.pdf`
    fn progress_message(&self, elapsed: Duration) -> String {
        let SyncProgressCounts { done, chunks, failed, .. } = self.advance;
        let mut parts = Vec::new();
        if done > 0 {
            parts.push(format!("{} item{}", HumanCount(done), if done == 1 { "" } else { "s" }));
            parts.push(format!(
                "{} chunk{}",
                HumanCount(chunks),
                if chunks == 1 { "" } else { "s" }
            ));
            let rate = done as f64 / elapsed.as_secs_f64().max(0.1);
            parts.push(if rate >= 1.0 {
                format!("{}/s", HumanCount(rate as u64))
            } else {
                format!("{:.0}/min", rate * 60.0)
            });
        }
        if failed > 0 {
            parts.push(format!("{} failed", HumanCount(failed)));
        }
        if !self.item.is_empty() {
            parts.push(format!("reading {}", visible_in_line(&self.item)));
        }
        parts.join(", ")
    }
}

fn show_progress(bar: &ProgressBar, progress: &SyncProgress) {
    let SyncProgressCounts { done, expected, .. } = progress.advance;
    let expected = expected.filter(|expected| *expected >= done);
    match (expected, bar.length()) {
        (Some(expected), None) => {
            bar.set_length(expected);
            bar.set_style(progress_style("{spinner} {prefix}: [{bar:20}] {eta} left, {wide_msg}"));
        }
        // There are more than there were last time.
        (None, Some(_)) => bar.set_length(done),
        _ => {}
    }
    bar.set_position(done);
    bar.set_message(progress.progress_message(bar.elapsed()));
}

fn progress_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
        .progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_says_what_there_is_to_say() {
        let check = |done, chunks, failed, item: &str, seconds, expected: &str| {
            let advance =
                SyncProgressCounts { done, chunks, failed, ..SyncProgressCounts::default() };
            let progress = SyncProgress { advance, item: item.to_owned() };
            assert_eq!(progress.progress_message(Duration::from_secs_f64(seconds)), expected);
        };
        check(0, 0, 0, "", 2.0, "");
        check(0, 0, 0, "big.pdf", 2.0, "reading big.pdf");
        check(1, 1, 0, "", 2.0, "1 item, 1 chunk, 30/min");
        check(
            1204,
            57,
            3,
            "a/\x1b[8mb.md",
            8.7,
            "1,204 items, 57 chunks, 138/s, 3 failed, reading a/\\u{1b}[8mb.md",
        );
    }
}
