//! The output pipe of a connection, which only has whole messages: written at once where
//! the pipe takes them, and otherwise by one task that writes what is left.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use tokio::sync::Notify;

/// What may wait to be written before senders have to.
const MAX_UNWRITTEN_BYTES: usize = 256 * 1024;

pub(super) struct OutgoingPipe {
    state: Mutex<OutgoingPipeState>,
    room: Notify,
}

struct OutgoingPipeState {
    /// None when it is closed, or broken.
    pipe: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    waiting: BytesMut,
    /// Bytes ever taken, and ever written.
    taken: u64,
    written: u64,
    writer: Option<Waker>,
}

/// Where a message is in all that was ever sent.
#[derive(Clone, Copy)]
pub(super) struct SentPosition {
    end: u64,
}

/// The pipe is closed, by us or at the other end.
#[derive(Debug)]
pub(super) struct PipeClosed;

impl OutgoingPipe {
    pub(super) fn new(pipe: impl AsyncWrite + Send + Unpin + 'static) -> Arc<OutgoingPipe> {
        let state = OutgoingPipeState {
            pipe: Some(Box::new(pipe)),
            waiting: BytesMut::new(),
            taken: 0,
            written: 0,
            writer: None,
        };
        Arc::new(OutgoingPipe { state: Mutex::new(state), room: Notify::new() })
    }

    /// Returns when the message is on its way. Before that, it is not sent at
    /// all; after that, dropping anything does not cut it short.
    pub(super) async fn send_message(
        &self,
        mut message: Vec<u8>,
    ) -> Result<SentPosition, PipeClosed> {
        message.push(b'\n');
        loop {
            let room = self.room.notified();
            let mut room = std::pin::pin!(room);
            // Before looking, so that no room made meanwhile is missed.
            room.as_mut().enable();
            {
                let mut state = self.state.lock();
                if state.pipe.is_none() || state.waiting.len() < MAX_UNWRITTEN_BYTES {
                    return state.enqueue_message(&message);
                }
            }
            room.await;
        }
    }

    /// For those who cannot wait. A server that reads nothing misses it.
    pub(super) fn send_without_waiting(&self, mut message: Vec<u8>) {
        message.push(b'\n');
        let mut state = self.state.lock();
        if state.waiting.len() < 2 * MAX_UNWRITTEN_BYTES {
            let _ = state.enqueue_message(&message);
        }
    }

    /// Whether the pipe took the whole message.
    pub(super) fn is_fully_written(&self, sent: SentPosition) -> bool {
        // Without the line's end it may still have been understood.
        self.state.lock().written + 1 >= sent.end
    }

    /// The end of the stream, for the server. What still waits is not sent.
    pub(super) fn close_pipe(&self) {
        let mut state = self.state.lock();
        state.pipe = None;
        state.waiting.clear();
        state.wake_writer();
        drop(state);
        self.room.notify_waiters();
    }

    /// The one task: writes what could not be written at once. Returns when
    /// the pipe is closed.
    pub(super) async fn write_pending(self: Arc<Self>) {
        poll_fn(|cx| self.poll_write_pending(cx)).await;
        self.room.notify_waiters();
    }

    fn poll_write_pending(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        while state.pipe.is_some() && !state.waiting.is_empty() {
            // An error leaves no pipe.
            let _ = ready!(state.poll_write_once(cx));
            if state.waiting.len() < MAX_UNWRITTEN_BYTES {
                self.room.notify_waiters();
            }
        }
        if state.pipe.is_none() {
            return Poll::Ready(());
        }
        // One large message must not cost its memory for ever.
        if state.waiting.is_empty() {
            state.waiting = BytesMut::new();
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl OutgoingPipeState {
    fn enqueue_message(&mut self, message: &[u8]) -> Result<SentPosition, PipeClosed> {
        let Some(pipe) = &mut self.pipe else { return Err(PipeClosed) };
        let mut rest = message;
        if self.waiting.is_empty() {
            let mut cx = Context::from_waker(Waker::noop());
            match Pin::new(pipe).poll_write(&mut cx, rest) {
                Poll::Ready(Ok(count)) => {
                    self.written += count as u64;
                    rest = &rest[count..];
                }
                Poll::Ready(Err(_)) => {
                    self.pipe = None;
                    self.wake_writer();
                    return Err(PipeClosed);
                }
                Poll::Pending => {}
            }
        }
        self.taken += message.len() as u64;
        if !rest.is_empty() {
            self.waiting.extend_from_slice(rest);
            self.wake_writer();
        }
        Ok(SentPosition { end: self.taken })
    }

    fn wake_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    fn poll_write_once(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(pipe) = &mut self.pipe else { return Poll::Ready(Ok(())) };
        let outcome = match ready!(Pin::new(pipe).poll_write(cx, &self.waiting)) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            other => other,
        };
        match outcome {
            Ok(count) => {
                self.written += count as u64;
                self.waiting.advance(count);
                Poll::Ready(Ok(()))
            }
            Err(error) => {
                self.pipe = None;
                Poll::Ready(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_message_that_fits_is_written_at_once() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let outgoing = OutgoingPipe::new(ours);
        let sent = outgoing.send_message(b"one".to_vec()).await.unwrap();
        assert!(outgoing.is_fully_written(sent));
        let mut got = [0; 4];
        theirs.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"one\n");
    }

    #[tokio::test]
    async fn messages_stay_whole_and_in_order_when_the_pipe_is_slow_and_senders_leave() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let outgoing = OutgoingPipe::new(ours);
        let writer = tokio::spawn({
            let outgoing = outgoing.clone();
            async move { outgoing.write_pending().await }
        });
        let large = vec![b'x'; MAX_UNWRITTEN_BYTES + 100];
        let sent = outgoing.send_message(large.clone()).await.unwrap();
        assert!(!outgoing.is_fully_written(sent));
        // No room: this one waits, and is never sent when it stops waiting.
        let mut waits = Box::pin(outgoing.send_message(b"dropped".to_vec()));
        assert!(futures::poll!(&mut waits).is_pending());
        drop(waits);
        outgoing.send_without_waiting(b"now".to_vec());
        let later = tokio::spawn({
            let outgoing = outgoing.clone();
            async move { outgoing.send_message(b"later".to_vec()).await.map(drop) }
        });
        let mut got = vec![0; large.len() + 1 + 4 + 6];
        theirs.read_exact(&mut got).await.unwrap();
        assert!(got.ends_with(b"x\nnow\nlater\n"));
        later.await.unwrap().unwrap();
        assert!(outgoing.is_fully_written(sent));
        outgoing.close_pipe();
        writer.await.unwrap();
        assert_eq!(theirs.read(&mut got).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_closed_pipe_takes_nothing_and_says_so() {
        let (ours, theirs) = tokio::io::duplex(16);
        let outgoing = OutgoingPipe::new(ours);
        drop(theirs);
        assert!(outgoing.send_message(b"x".to_vec()).await.is_err());
        assert!(outgoing.send_message(b"x".to_vec()).await.is_err());
        outgoing.write_pending().await;
    }
}
