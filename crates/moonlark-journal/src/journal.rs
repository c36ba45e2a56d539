//! The journal as the gateway sees it: entries in, nothing out but a run that is
//! to be continued.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use moonlark_core::content::ToolAnswer;
use moonlark_core::record_id::RecordId;
use moonlark_core::tool::BoxFuture;
use moonlark_core::{Problem, Result};
use moonlark_gateway::Caller;
use moonlark_gateway::journal::{
    CallBegan, CallEnded, CallRecord, JournalBacklog, JournalEntry, JournalQuery, JournalRecorder,
    RunBegan, RunCarrier, RunRecord, UpcomingCall, ValueCosts, caller_key,
};
use parking_lot::Mutex;
use serde_json::Value as Json;
use tokio::sync::oneshot;

use crate::entry_log::EntryLog;
use crate::journal_queue::{FlushMarkers, JournalQueue, JournalQueueItem};
use crate::journal_reader::{JournalReader, run_records};
use crate::journal_schema::JournalSettings;
use crate::journal_writer::{JournalShared, JournalWriter};

/// How long a program that ends waits for the rest to be written.
const JOURNAL_CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Journal {
    shared: Arc<JournalShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Runs that were interrupted, as they were last counted.
    interrupted: Mutex<Option<usize>>,
}

/// How the journal is doing.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalHealth {
    /// Why nothing can be written at the moment.
    pub problem: Option<Problem>,
    /// Entries that wait to be written.
    pub waiting: usize,
    /// Entries that were given up since the start.
    pub lost: u64,
}

impl Journal {
    /// Begin to keep one. The file is opened by the writer: what is wrong with
    /// it is known a moment later, and calls do not wait for it.
    pub fn open(settings: JournalSettings) -> Result<Arc<Journal>> {
        let queue = Arc::new(JournalQueue::default());
        queue.set_journal_size(settings.size);
        let shared = Arc::new(JournalShared {
            settings: Mutex::new(settings),
            queue,
            log: EntryLog::default(),
            trouble: Mutex::default(),
            number: AtomicI64::new(0),
            written: AtomicU64::new(0),
        });
        let writer = JournalWriter::new(shared.clone());
        let thread = std::thread::Builder::new().name("journal".to_owned());
        let thread = thread.spawn(move || writer.run_until_closed()).map_err(|error| {
            Problem::unavailable(format!("the thread of the journal cannot be started: {error}"))
        })?;
        let thread = Mutex::new(Some(thread));
        Ok(Arc::new(Journal { shared, thread, interrupted: Mutex::default() }))
    }

    /// Other settings from now on; the file stays the same.
    pub fn configure(&self, settings: JournalSettings) {
        self.shared.queue.set_journal_size(settings.size);
        let mut current = self.shared.settings.lock();
        let file = current.file.clone();
        *current = JournalSettings { file, ..settings };
    }

    pub fn health(&self) -> JournalHealth {
        let (waiting, lost) = self.shared.queue.waiting_and_lost();
        JournalHealth { problem: self.shared.trouble.lock().clone(), waiting, lost }
    }

    /// Look at what is in it.
    pub fn reader(&self) -> JournalReader {
        JournalReader::new(&self.shared.settings.lock().file)
    }

    /// Count the runs that were interrupted, for whoever asks until the next time. Blocks,
    /// as files do.
    pub fn count_interrupted(&self) -> Result<usize> {
        let counted = self.reader().count_interrupted();
        *self.interrupted.lock() = counted.as_ref().ok().copied();
        counted
    }

    /// Everything that was taken so far is in the file, or a Problem says why
    /// it is not.
    pub async fn flush(&self) -> Result<()> {
        wait_until_written(self.shared.queue.push_flush()).await
    }

    /// Write the rest, and end.
    pub async fn close(&self) {
        self.shared.queue.close();
        let Some(thread) = self.thread.lock().take() else { return };
        let ended = tokio::task::spawn_blocking(move || thread.join());
        if tokio::time::timeout(JOURNAL_CLOSE_TIMEOUT, ended).await.is_err() {
            tracing::warn!("the journal could not be written to its end");
        }
        let JournalHealth { lost, .. } = self.health();
        if lost > 0 {
            tracing::warn!("{lost} entries of the journal were lost");
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

impl JournalRecorder for Journal {
    fn record_entry(&self, entry: JournalEntry) {
        self.shared.queue.push_item(self.shared.log_entry(entry));
    }

    fn wait_for_room(&self) -> Option<BoxFuture<()>> {
        self.shared.queue.wait_for_room()
    }

    fn prepare_call(&self, call: UpcomingCall<'_>) -> Result<Option<BoxFuture<()>>> {
        self.shared.queue.prepare_call(call)
    }

    fn prepare_answer(
        &self,
        run: Option<RecordId>,
        tool: &str,
        answer: &Result<ToolAnswer>,
    ) -> Result<()> {
        let Some(run) = run else { return Ok(()) };
        self.shared.queue.count_answer(run, tool, ValueCosts::RECORDED_COSTS.result_bytes(answer))
    }

    fn record_refused_call(&self, began: CallBegan, ended: CallEnded) {
        if self.shared.queue.admit_refused_call(&ended.caller) {
            self.record_entry(JournalEntry::CallBegan(began));
            self.record_entry(JournalEntry::CallEnded(ended));
        }
    }

    fn record_durably(&self, entry: JournalEntry) -> BoxFuture<Result<()>> {
        if let Some(problem) = self.shared.trouble.lock().clone() {
            let message = format!(
                "this call must be recorded in the journal before it is made, but {}",
                problem.message
            );
            return Box::pin(std::future::ready(Err(problem.with_message(message))));
        }
        // What came before it has to survive as well, be it of a time without a log.
        let item = if self.shared.queue.is_logged() {
            self.shared.log_entry(entry)
        } else {
            JournalQueueItem::new(Some(entry), None)
        };
        if item.logged.is_some()
            && let Some(position) = self.shared.log.write_out()
        {
            self.shared.queue.push_item(item);
            if !self.shared.settings.lock().power {
                return Box::pin(std::future::ready(Ok(())));
            }
            let shared = self.shared.clone();
            let syncing = tokio::task::spawn_blocking(move || shared.log.sync_to(position));
            return Box::pin(async move {
                let synced = syncing.await.unwrap_or_else(|error| Err(error.into()));
                synced.map_err(|error| unsynced_log_problem(&error))
            });
        }
        let (waits, written) = oneshot::channel();
        self.shared.queue.push_item(item.into_durable(waits));
        Box::pin(async move { written.await.unwrap_or_else(|_| Err(journal_closed_problem())) })
    }

    fn flush_entries(&self) -> BoxFuture<()> {
        self.flush_if_written(JournalQueue::push_flush)
    }

    fn flush_caller(&self, caller: &Caller) -> BoxFuture<()> {
        self.flush_if_written(|queue| queue.push_caller_flush(caller_key(caller)))
    }

    fn claim_plan_run(&self, began: RunBegan, again: bool) -> BoxFuture<Result<Option<RecordId>>> {
        let caller = caller_key(&began.caller);
        let markers = self.shared.queue.push_caller_flush(caller.clone());
        let shared = self.shared.clone();
        Box::pin(async move {
            wait_until_written(markers).await?;
            let number = shared.number.load(Ordering::Relaxed);
            let file = shared.settings.lock().file.clone();
            let (run, bytes) = (began.run, began.script.len());
            let claim = move || run_records::claim_plan(&file, &began, number, again);
            let claimed = run_blocking("the journal could not be written", claim).await?;
            if claimed.is_none() {
                shared.queue.add_run(run, Some(caller), bytes);
            }
            Ok(claimed)
        })
    }

    fn take_over_run(&self, run: RecordId) -> BoxFuture<Result<RunRecord>> {
        self.load_run_record(run, true)
    }

    fn load_run(&self, run: RecordId) -> BoxFuture<Result<RunRecord>> {
        self.load_run_record(run, false)
    }

    fn find_run_carrier(&self, run: RecordId) -> BoxFuture<Result<Option<RunCarrier>>> {
        let markers = self.shared.queue.push_run_flush(run);
        let shared = self.shared.clone();
        Box::pin(async move {
            wait_until_written(markers).await?;
            let number = shared.number.load(Ordering::Relaxed);
            let file = shared.settings.lock().file.clone();
            let find = move || run_records::find_carrier(&file, run, number);
            run_blocking("the journal could not be read", find).await
        })
    }

    fn current_problem(&self) -> Option<Problem> {
        self.shared.trouble.lock().clone()
    }

    fn backlog(&self) -> JournalBacklog {
        let (waiting, lost) = self.shared.queue.waiting_and_lost();
        let (bytes, written) =
            (self.shared.queue.queued_bytes(), self.shared.written.load(Ordering::Relaxed));
        JournalBacklog { waiting: waiting as u64, bytes: bytes as u64, written, lost }
    }

    fn count_interrupted_runs(&self) -> Option<usize> {
        *self.interrupted.lock()
    }

    fn run_query(&self, look: JournalQuery) -> BoxFuture<Result<Json>> {
        let markers = match &look.of {
            Some(caller) => self.shared.queue.push_caller_flush(Arc::from(caller.as_str())),
            None => self.shared.queue.push_flush(),
        };
        let reader = self.reader();
        Box::pin(async move {
            // What cannot be written now can still be looked at.
            let _ = markers.wait_until_written().await;
            run_blocking("the journal could not be read", move || reader.answer_query(&look)).await
        })
    }
}

impl Journal {
    /// Done when these are written; at once while nothing can be.
    fn flush_if_written(&self, push: impl FnOnce(&JournalQueue) -> FlushMarkers) -> BoxFuture<()> {
        if self.current_problem().is_some() || self.shared.write_log() {
            return Box::pin(std::future::ready(()));
        }
        let markers = push(&self.shared.queue);
        Box::pin(async move { drop(markers.wait_until_written().await) })
    }

    fn load_run_record(&self, run: RecordId, take_over: bool) -> BoxFuture<Result<RunRecord>> {
        let markers = self.shared.queue.push_run_flush(run);
        let shared = self.shared.clone();
        Box::pin(async move {
            wait_until_written(markers).await?;
            let number = take_over.then(|| shared.number.load(Ordering::Relaxed));
            let file = shared.settings.lock().file.clone();
            let read = move || run_records::read_run_record(&file, run, number);
            let record = run_blocking("the journal could not be read", read).await?;
            if take_over {
                shared.queue.add_run(run, None, recorded_run_bytes(&record));
            }
            Ok(record)
        })
    }
}

/// What a run has put on record so far, of what counts against its limit.
fn recorded_run_bytes(record: &RunRecord) -> usize {
    let call_bytes = |call: &CallRecord| {
        let answer = call.ended.as_ref().and_then(|ended| ended.answer.as_ref());
        let costs = ValueCosts::RECORDED_COSTS;
        costs.value_bytes(&call.began.args) + answer.map_or(0, |it| costs.result_bytes(it))
    };
    record.began.script.len() + record.calls.iter().map(call_bytes).sum::<usize>()
}

async fn wait_until_written(markers: FlushMarkers) -> Result<()> {
    markers.wait_until_written().await.unwrap_or_else(|| Err(journal_closed_problem()))
}

/// Work that blocks, as files do.
pub(crate) async fn run_blocking<T: Send + 'static>(
    failure: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Problem::internal(failure)))
}

fn unsynced_log_problem(error: &std::io::Error) -> Problem {
    Problem::unavailable(format!(
        "this call must be recorded in the journal before it is made, and that failed: {error}"
    ))
    .with_hint("check the disk that .moonlark/ is on")
}

fn journal_closed_problem() -> Problem {
    Problem::unavailable("the journal is closed: the program is ending")
}
