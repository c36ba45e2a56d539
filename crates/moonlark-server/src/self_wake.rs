//! A task that goes on at once where its parts wake each other.
//!
//! A connection and what it serves are one task, and the one part often wakes
//! the other: here is the body you waited for. For the runtime, a task that wakes
//! itself is work for whichever thread is free, and it wakes one to look for it.
//! That costs more than the work. So what happens inside stays inside: the task
//! is polled again, a few times in a row, before the runtime hears of it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;

/// Rounds before others get their turn.
const MAX_POLLS_IN_A_ROW: usize = 16;

/// The same future, but for who is woken.
pub(crate) fn coalesce_self_wakes<F: Future + Send>(future: F) -> SelfWakeCoalescer<F> {
    let coalescing = Arc::new(CoalescingWaker::default());
    SelfWakeCoalescer { future: Box::pin(future), waker: coalescing.clone().into(), coalescing }
}

pub(crate) struct SelfWakeCoalescer<F> {
    future: Pin<Box<F>>,
    coalescing: Arc<CoalescingWaker>,
    /// The same waker, as the parts of the future have it.
    waker: Waker,
}

#[derive(Default)]
struct CoalescingWaker {
    state: AtomicU8,
    task: AtomicWaker,
}

const STATE_WAITING: u8 = 0;
const STATE_POLLED: u8 = 1;
const STATE_WOKEN: u8 = 2;

impl<F: Future> Future for SelfWakeCoalescer<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        this.coalescing.task.register(context.waker());
        let mut inner = Context::from_waker(&this.waker);
        for _ in 0..MAX_POLLS_IN_A_ROW {
            this.coalescing.state.store(STATE_POLLED, Ordering::Release);
            if let Poll::Ready(output) = this.future.as_mut().poll(&mut inner) {
                return Poll::Ready(output);
            }
            if this.coalescing.state.swap(STATE_WAITING, Ordering::AcqRel) != STATE_WOKEN {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Wake for CoalescingWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let rung = self.state.compare_exchange(
            STATE_POLLED,
            STATE_WOKEN,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if rung == Err(STATE_WAITING) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Wakes itself `times` times, then waits for its waker to be used.
    fn wakes_itself(times: usize) -> impl Future<Output = ()> {
        let mut left = times;
        std::future::poll_fn(move |context| {
            if left > 0 {
                left -= 1;
                context.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        })
    }

    fn woken_by(times: usize) -> usize {
        let count = Arc::new(Count::default());
        let waker = count.clone().into();
        let mut task = Box::pin(coalesce_self_wakes(wakes_itself(times)));
        assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        count.0.load(Ordering::Relaxed)
    }

    #[test]
    fn what_wakes_itself_is_polled_again_without_the_runtime() {
        assert_eq!(woken_by(0), 0);
        assert_eq!(woken_by(3), 0);
    }

    #[test]
    fn what_never_stops_waking_itself_lets_others_have_their_turn() {
        assert_eq!(woken_by(1000), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_woken_from_outside_goes_on() {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let sum = tokio::spawn(coalesce_self_wakes(async move {
            let mut sum = 0;
            while let Some(number) = receiver.recv().await {
                sum += number;
            }
            sum
        }));
        for number in 1..=1000 {
            sender.send(number).await.unwrap();
        }
        drop(sender);
        assert_eq!(sum.await.unwrap(), 500_500);
    }
}
