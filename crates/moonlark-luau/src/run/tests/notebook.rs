//! A journal in memory, which can be cut anywhere.

use std::sync::Arc;

use moonlark_core::journal::{CallRecord, Entry, Id, Recorder, RunRecord};
use moonlark_core::tool::BoxFuture;
use moonlark_core::{Code, Problem, Result};
use parking_lot::Mutex;

#[derive(Default)]
pub(super) struct Notebook(Mutex<Vec<Entry>>);

impl Notebook {
    pub(super) fn of(entries: &[Entry]) -> Arc<Notebook> {
        Arc::new(Notebook(Mutex::new(entries.to_vec())))
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        self.0.lock().clone()
    }

    /// The run that is in it.
    pub(super) fn run_id(&self) -> Option<Id> {
        self.0.lock().iter().find_map(|entry| match entry {
            Entry::RunBegan(began) => Some(began.run),
            _ => None,
        })
    }

    fn read(&self, run: Id) -> Result<RunRecord> {
        read(&self.0.lock(), run)
            .ok_or_else(|| Problem::new(Code::NotFound, format!("there is no run {run}")))
    }
}

/// What entries say about a run.
pub(super) fn read(entries: &[Entry], run: Id) -> Option<RunRecord> {
    let mut record: Option<RunRecord> = None;
    for entry in entries {
        match entry {
            Entry::RunBegan(began) if began.run == run => {
                let (began, calls) = (began.clone(), Vec::new());
                record = Some(RunRecord { began, calls, paused: None, ended: None });
            }
            Entry::CallBegan(began) if began.run == Some(run) && began.place.is_some() => {
                record.as_mut()?.calls.push(CallRecord { began: began.clone(), ended: None });
            }
            Entry::CallEnded(ended) => {
                let calls = record.iter_mut().flat_map(|record| &mut record.calls);
                if let Some(call) = calls.into_iter().find(|call| call.began.call == ended.call) {
                    call.ended = Some(ended.clone());
                }
            }
            Entry::RunEnded(ended) if ended.run == run => {
                record.as_mut()?.ended = Some(ended.clone());
            }
            _ => {}
        }
    }
    record
}

impl Recorder for Notebook {
    fn record(&self, entry: Entry) {
        self.0.lock().push(entry);
    }

    fn room(&self) -> Option<BoxFuture<()>> {
        None
    }

    fn durable(&self, entry: Entry) -> BoxFuture<Result<()>> {
        self.record(entry);
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(())
        })
    }

    fn take_over(&self, run: Id) -> BoxFuture<Result<RunRecord>> {
        self.run(run)
    }

    fn run(&self, run: Id) -> BoxFuture<Result<RunRecord>> {
        Box::pin(std::future::ready(self.read(run)))
    }
}
