//! Threads for checks: a type checker stays on the thread that made it, works
//! without a pause, and needs a deep stack.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use moonlark_core::Catalog;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::Finding;
use super::walk::Checker;

const THREADS: usize = 2;
/// Syntax trees nest as deep as a script likes. Only what is used is taken.
pub(super) const STACK: usize = 256 << 20;
/// More scripts than this do not wait for their check.
const WAITING: usize = 4096;

pub(super) struct Job {
    pub(super) script: String,
    pub(super) catalog: Arc<Catalog>,
    pub(super) answer: oneshot::Sender<Vec<Finding>>,
}

struct Pool {
    jobs: Mutex<VecDeque<Job>>,
    came: Condvar,
}

/// Have a script checked. The sender is dropped if that cannot be.
pub(super) fn submit(job: Job) {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    let pool = POOL.get_or_init(start);
    let mut jobs = pool.jobs.lock();
    if jobs.len() < WAITING {
        jobs.push_back(job);
        pool.came.notify_one();
    }
}

fn start() -> Arc<Pool> {
    let pool = Arc::new(Pool { jobs: Mutex::default(), came: Condvar::new() });
    for number in 1..=THREADS {
        let pool = pool.clone();
        let thread = std::thread::Builder::new()
            .name(format!("moonlark-check-{number}"))
            .stack_size(STACK)
            .spawn(move || work(&pool));
        if let Err(error) = thread {
            tracing::warn!("scripts are not checked before they run: no thread: {error}");
        }
    }
    pool
}

fn work(pool: &Pool) {
    let mut checker: Option<Checker> = None;
    loop {
        let job = {
            let mut jobs = pool.jobs.lock();
            loop {
                match jobs.pop_front() {
                    Some(job) => break job,
                    None => pool.came.wait(&mut jobs),
                }
            }
        };
        if job.answer.is_closed() {
            continue;
        }
        let kept = checker.take().filter(|it| it.is_for(&job.catalog));
        // A defect of the checker costs the check, not the script.
        let checked = catch_unwind(AssertUnwindSafe(|| {
            let mut checker = kept.unwrap_or_else(|| Checker::new(&job.catalog));
            (checker.check(&job.script, &job.catalog), checker)
        }));
        if let Ok((found, after)) = checked {
            checker = Some(after);
            let _ = job.answer.send(found);
        }
    }
}
