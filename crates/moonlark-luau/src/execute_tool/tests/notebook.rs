//! A journal in memory, which can be cut anywhere.

use std::sync::Arc;

use moonlark_core::record_id::RecordId;
use moonlark_core::tool::BoxFuture;
use moonlark_core::{Problem, ProblemCode, Result};
use moonlark_gateway::journal::{CallRecord, JournalEntry, JournalRecorder, RunRecord};
use parking_lot::Mutex;

#[derive(Default)]
pub(super) struct Notebook(Mutex<Vec<JournalEntry>>);

impl Notebook {
    pub(super) fn of(entries: &[JournalEntry]) -> Arc<Notebook> {
        Arc::new(Notebook(Mutex::new(entries.to_vec())))
    }

    pub(super) fn entries(&self) -> Vec<JournalEntry> {
        self.0.lock().clone()
    }

    /// The run that is in it.
    pub(super) fn run_id(&self) -> Option<RecordId> {
        self.0.lock().iter().find_map(|entry| match entry {
            JournalEntry::RunBegan(began) => Some(began.run),
            _ => None,
        })
    }

    fn read(&self, run: RecordId) -> Result<RunRecord> {
        read(&self.0.lock(), run)
            .ok_or_else(|| Problem::new(ProblemCode::NotFound, format!("there is no run {run}")))
    }
}

/// What entries say about a run.
pub(super) fn read(entries: &[JournalEntry], run: RecordId) -> Option<RunRecord> {
    let mut record: Option<RunRecord> = None;
    for entry in entries {
        match entry {
            JournalEntry::RunBegan(began) if began.run == run => {
                let (began, calls) = (began.clone(), Vec::new());
                record =
                    Some(RunRecord { began, calls, paused: None, ended: None, removed_calls: 0 });
            }
            JournalEntry::CallBegan(began) if began.run == Some(run) && began.place.is_some() => {
                record.as_mut()?.calls.push(CallRecord { began: began.clone(), ended: None });
            }
            JournalEntry::CallEnded(ended) => {
                let calls = record.iter_mut().flat_map(|record| &mut record.calls);
                if let Some(call) = calls.into_iter().find(|call| call.began.call == ended.call) {
                    call.ended = Some(ended.clone());
                }
            }
            JournalEntry::RunEnded(ended) if ended.run == run => {
                record.as_mut()?.ended = Some(ended.clone());
            }
            _ => {}
        }
    }
    record
}

impl JournalRecorder for Notebook {
    fn record_entry(&self, entry: JournalEntry) {
        self.0.lock().push(entry);
    }

    fn wait_for_room(&self) -> Option<BoxFuture<()>> {
        None
    }

    fn record_durably(&self, entry: JournalEntry) -> BoxFuture<Result<()>> {
        self.record_entry(entry);
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(())
        })
    }

    fn take_over_run(&self, run: RecordId) -> BoxFuture<Result<RunRecord>> {
        self.load_run(run)
    }

    fn load_run(&self, run: RecordId) -> BoxFuture<Result<RunRecord>> {
        Box::pin(std::future::ready(self.read(run)))
    }
}
