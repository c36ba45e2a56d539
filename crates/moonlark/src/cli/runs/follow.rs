//! Runs while they happen. The journal is written by another process, so it is
//! looked at again and again; one number says whether anything is new.

use std::collections::HashMap;
use std::time::Duration;

use moonlark_core::Result;
use moonlark_core::journal::Id;
use moonlark_store::{Reader, RunLine, State};
use serde_json::json;

use super::super::{Done, Global, print, print_json, say};
use super::list;

const EVERY: Duration = Duration::from_millis(200);
/// How many runs are looked at for news.
const RECENT: usize = 200;

/// Every run when it begins, and when it stands otherwise than before.
pub(super) async fn all(reader: &Reader, first: Vec<RunLine>, global: &Global) -> Done {
    let mut known = HashMap::new();
    let mut say = |run: &RunLine| {
        let now = (run.state, run.approval_state, run.outcome.clone());
        if known.insert(run.id, now.clone()) == Some(now) {
            return;
        }
        match global.json {
            true => print_json(&json!(run)),
            false => print(list::run(run)),
        }
    };
    first.iter().for_each(&mut say);
    // Those from before are known, if not shown.
    let since = first.first().map(|run| run.id);
    let mut changes = Changes::of(reader)?;
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
        if changes.any(reader)? {
            let runs = reader.runs(RECENT, None)?;
            let new = runs.iter().rev().filter(|run| since.is_none_or(|since| run.id >= since));
            new.for_each(&mut say);
        }
    }
}

/// The calls of one run as they begin and end, until it rests.
pub(super) async fn one(reader: &Reader, id: Id) -> Result<()> {
    let mut known = HashMap::new();
    wait(reader, id, |run| {
        for call in run.calls.iter().filter(|call| call.place.is_some()) {
            let word = call.outcome.as_deref().unwrap_or("begun");
            if known.insert(call.id, word.to_owned()).as_deref() != Some(word) {
                say(format!("{}  {word:<12} {}", list::when(call.at), call.tool));
            }
        }
    })
    .await
}

pub(super) async fn until_it_rests(reader: &Reader, id: Id) -> Result<()> {
    wait(reader, id, |_| ()).await
}

async fn wait(
    reader: &Reader,
    id: Id,
    mut look: impl FnMut(&moonlark_store::RunShown),
) -> Result<()> {
    loop {
        let run = reader.run(id)?;
        look(&run);
        if matches!(run.line.state, State::Ended | State::Interrupted) {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

/// Whether anything was written since the last look. That a process is gone is
/// not written by anybody, so now and then there is news anyway.
struct Changes {
    watched: Option<moonlark_store::Watched>,
    quiet: u32,
}

impl Changes {
    fn of(reader: &Reader) -> Result<Changes> {
        Ok(Changes { watched: reader.watch()?, quiet: 0 })
    }

    fn any(&mut self, reader: &Reader) -> Result<bool> {
        let Some(watched) = &mut self.watched else {
            self.watched = reader.watch()?;
            return Ok(self.watched.is_some());
        };
        self.quiet += 1;
        let news = watched.changed()? || self.quiet >= 10;
        if news {
            self.quiet = 0;
        }
        Ok(news)
    }
}
