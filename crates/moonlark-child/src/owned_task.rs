//! Owned tasks: their handle, or the process, waits for them on shutdown.
//!
//! `tokio::spawn` itself is refused by clippy: what it begins goes on when nobody needs it
//! any more, and is cut off in the middle when the process ends.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

static FINISHING_TASKS: LazyLock<TaskTracker> = LazyLock::new(TaskTracker::new);

/// Begin a task that ends with the handle.
#[must_use = "the task ends with the handle"]
#[expect(clippy::disallowed_methods, reason = "the place that all others use")]
pub fn spawn_owned<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> AbortOnDropHandle<T> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

/// Begin a task that must come to its end though nobody waits for it, such as telling a
/// server that a request is cancelled. It has to be short.
pub fn spawn_to_finish<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    FINISHING_TASKS.spawn(task)
}

/// The same where there may be no runtime any more, as while something is dropped: then
/// the task is not begun.
pub fn try_spawn_to_finish(task: impl Future<Output: Send> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        FINISHING_TASKS.spawn_on(
            async move {
                task.await;
            },
            &runtime,
        );
    }
}

/// Wait for the tasks that must come to their end, and no longer than that.
pub async fn wait_for_finishing_tasks(most: Duration) {
    FINISHING_TASKS.close();
    let _ = tokio::time::timeout(most, FINISHING_TASKS.wait()).await;
    FINISHING_TASKS.reopen();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_task_ends_with_its_owner() {
        let (held, gone) = oneshot::channel::<()>();
        let task = spawn_owned(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        drop(task);
        assert!(gone.await.is_err(), "what the task held is dropped");
    }

    #[tokio::test]
    async fn what_must_come_to_its_end_is_waited_for() {
        let done = Arc::new(AtomicBool::new(false));
        let (go, wait) = oneshot::channel();
        let seen = done.clone();
        drop(spawn_to_finish(async move {
            let _ = wait.await;
            tokio::task::yield_now().await;
            seen.store(true, Ordering::Release);
        }));
        wait_for_finishing_tasks(Duration::ZERO).await;
        assert!(!done.load(Ordering::Acquire));
        go.send(()).unwrap();
        wait_for_finishing_tasks(Duration::from_secs(60)).await;
        assert!(done.load(Ordering::Acquire));
    }
}
