//! Runs while they happen. The journal is written by another process, so it is
//! looked at again and again; one number says whether anything is new.

use std::collections::HashMap;
use std::time::Duration;

use moonlark_core::Result;
use moonlark_core::record_id::RecordId;
use moonlark_journal::{JournalReader, RecordedState, RunSummary};
use serde_json::json;

use super::super::{CommandResult, GlobalArgs, eprint_line, print_json, print_line};
use super::run_lines;

const JOURNAL_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How many runs are looked at for news.
const MAX_POLLED_RUNS: usize = 200;

/// Every run when it begins, and when it stands otherwise than before.
pub(super) async fn follow_all_runs(
    reader: &JournalReader,
    first: Vec<RunSummary>,
    global: &GlobalArgs,
) -> CommandResult {
    let mut known = HashMap::new();
    let mut say = |run: &RunSummary| {
        let now = (run.state, run.approval_state, run.outcome.clone());
        if known.insert(run.id, now.clone()) == Some(now) {
            return;
        }
        if global.json { print_json(&json!(run)) } else { print_line(run_lines::run_line(run)) }
    };
    first.iter().for_each(&mut say);
    // Those from before are known, if not shown.
    let since = first.first().map(|run| run.id);
    let mut changes = JournalChangeWatch::watch_journal(reader)?;
    loop {
        tokio::select! {
            () = tokio::time::sleep(JOURNAL_POLL_INTERVAL) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
        if changes.has_changes(reader)? {
            let runs = reader.list_runs(MAX_POLLED_RUNS, None)?;
            let new = runs.iter().rev().filter(|run| since.is_none_or(|since| run.id >= since));
            new.for_each(&mut say);
        }
    }
}

/// The calls of one run as they begin and end, until it rests.
pub(super) async fn follow_run(reader: &JournalReader, id: RecordId) -> Result<()> {
    let mut known = HashMap::new();
    poll_until_stopped(reader, id, |run| {
        for call in run.calls.iter().filter(|call| call.place.is_some()) {
            let word = call.outcome.as_deref().unwrap_or("begun");
            if known.insert(call.id, word.to_owned()).as_deref() != Some(word) {
                eprint_line(format!(
                    "{}  {word:<12} {}",
                    run_lines::format_local_time(call.at),
                    call.tool
                ));
            }
        }
    })
    .await
}

pub(super) async fn wait_until_stopped(reader: &JournalReader, id: RecordId) -> Result<()> {
    poll_until_stopped(reader, id, |_| ()).await
}

async fn poll_until_stopped(
    reader: &JournalReader,
    id: RecordId,
    mut look: impl FnMut(&moonlark_journal::RunView),
) -> Result<()> {
    loop {
        let run = reader.show_run(id)?;
        look(&run);
        if matches!(run.line.state, RecordedState::Ended | RecordedState::Interrupted) {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(JOURNAL_POLL_INTERVAL) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

/// Whether anything was written since the last look. That a process is gone is
/// not written by anybody, so now and then there is news anyway.
struct JournalChangeWatch {
    watched: Option<moonlark_journal::JournalWatcher>,
    quiet: u32,
}

impl JournalChangeWatch {
    fn watch_journal(reader: &JournalReader) -> Result<JournalChangeWatch> {
        Ok(JournalChangeWatch { watched: reader.watch_changes()?, quiet: 0 })
    }

    fn has_changes(&mut self, reader: &JournalReader) -> Result<bool> {
        let Some(watched) = &mut self.watched else {
            self.watched = reader.watch_changes()?;
            return Ok(self.watched.is_some());
        };
        self.quiet += 1;
        let news = watched.has_changed()? || self.quiet >= 10;
        if news {
            self.quiet = 0;
        }
        Ok(news)
    }
}
