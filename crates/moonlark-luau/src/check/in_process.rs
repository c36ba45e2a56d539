//! Checks in this very process, for tests and benchmarks of parts: a thread with
//! a deep stack. Nothing bounds them; the binary has worker processes.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock};

use moonlark_core::Catalog;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::check_pool::PooledCheck;
use super::check_server::CHECK_STACK_BYTES;
use super::script_checker::{ScriptChecker, TypingLimits};

struct CheckJob {
    script: String,
    catalog: Arc<Catalog>,
    answer: oneshot::Sender<PooledCheck>,
}

static CHECK_JOBS: LazyLock<Mutex<Sender<CheckJob>>> = LazyLock::new(|| {
    let (sender, jobs) = channel();
    let thread = std::thread::Builder::new().stack_size(CHECK_STACK_BYTES);
    if let Err(error) = thread.spawn(move || run_check_jobs(&jobs)) {
        tracing::warn!("scripts are not checked before they run: no thread: {error}");
    }
    Mutex::new(sender)
});

/// None if the check failed.
pub(super) async fn check_in_process(script: &str, catalog: &Arc<Catalog>) -> Option<PooledCheck> {
    let (answer, checked) = oneshot::channel();
    let job = CheckJob { script: script.to_owned(), catalog: catalog.clone(), answer };
    CHECK_JOBS.lock().send(job).ok()?;
    checked.await.ok()
}

fn run_check_jobs(jobs: &Receiver<CheckJob>) {
    let mut checker: Option<ScriptChecker> = None;
    for CheckJob { script, catalog, answer } in jobs {
        let kept = checker.take().filter(|it| it.is_for(catalog.modules()));
        let mut using = kept.unwrap_or_else(|| ScriptChecker::new(catalog.modules()));
        let judged = using.check_script(&script, &catalog, TypingLimits::default());
        let _ = answer.send(PooledCheck { report: judged.into_report(true), repeatable: true });
        checker = Some(using);
    }
}
