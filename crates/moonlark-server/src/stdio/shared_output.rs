//! One output for several writers: messages come out whole, one after the other, for
//! as long as the client is there.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::client_presence::ClientPresence;

pub(crate) struct SharedOutput<W> {
    pipe: Arc<Mutex<W>>,
    presence: Arc<ClientPresence>,
}

/// Somebody who writes bytes and flushes after each message.
pub(crate) struct SharedOutputWriter<W> {
    pipe: Arc<Mutex<W>>,
    presence: Arc<ClientPresence>,
    turn: OutputTurn<W>,
}

/// Whose turn it is: a writer's, until it flushes.
enum OutputTurn<W> {
    Others,
    Next(BoxFuture<'static, OwnedMutexGuard<W>>),
    Ours(OwnedMutexGuard<W>),
}

impl<W: AsyncWrite + Send + Unpin + 'static> SharedOutput<W> {
    pub(super) fn new(pipe: W, presence: Arc<ClientPresence>) -> Self {
        Self { pipe: Arc::new(Mutex::new(pipe)), presence }
    }

    pub(super) fn presence(&self) -> &ClientPresence {
        &self.presence
    }

    pub(crate) fn new_writer(&self) -> SharedOutputWriter<W> {
        SharedOutputWriter {
            pipe: self.pipe.clone(),
            presence: self.presence.clone(),
            turn: OutputTurn::Others,
        }
    }

    /// Write a message that is a whole line but for its end.
    pub(crate) async fn send_line(&self, mut message: Vec<u8>) -> io::Result<()> {
        message.push(b'\n');
        let mut pipe = self.pipe.lock().await;
        if self.presence.has_left() {
            return Ok(());
        }
        // Before the client can have read it, and sent the next.
        self.presence.note_output();
        pipe.write_all(&message).await?;
        pipe.flush().await
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> SharedOutputWriter<W> {
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<&mut OwnedMutexGuard<W>> {
        if let OutputTurn::Others = self.turn {
            self.turn = match self.pipe.clone().try_lock_owned() {
                Ok(ours) => OutputTurn::Ours(ours),
                Err(_) => OutputTurn::Next(Box::pin(self.pipe.clone().lock_owned())),
            };
        }
        if let OutputTurn::Next(next) = &mut self.turn {
            self.turn = OutputTurn::Ours(ready!(next.as_mut().poll(context)));
        }
        match &mut self.turn {
            OutputTurn::Ours(ours) => Poll::Ready(ours),
            OutputTurn::Others | OutputTurn::Next(_) => Poll::Pending,
        }
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> AsyncWrite for SharedOutputWriter<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.presence.has_left() {
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(self.poll_turn(context));
        self.presence.note_output();
        let pipe = ready!(self.poll_turn(context));
        Pin::new(&mut **pipe).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.presence.has_left() {
            self.turn = OutputTurn::Others;
            return Poll::Ready(Ok(()));
        }
        let pipe = ready!(self.poll_turn(context));
        let flushed = ready!(Pin::new(&mut **pipe).poll_flush(context));
        self.turn = OutputTurn::Others;
        Poll::Ready(flushed)
    }

    /// Others may still have something to say: it ends with the last of them.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn messages_of_two_writers_come_out_whole() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let one = SharedOutput::new(ours, Arc::default());
        let mut other = one.new_writer();
        let written = async {
            let first = one.send_line(vec![b'a'; 100]);
            let second = async {
                other.write_all(&[b'b'; 50]).await.unwrap();
                other.write_all(&[b'b'; 50]).await.unwrap();
                other.flush().await.unwrap();
            };
            let (first, (), third) = tokio::join!(first, second, one.send_line(vec![b'c'; 100]));
            first.unwrap();
            third.unwrap();
        };
        let mut said = vec![0; 302];
        let (read, ()) = tokio::join!(theirs.read_exact(&mut said), written);
        read.unwrap();
        said.retain(|byte| *byte != b'\n');
        said.dedup();
        said.sort_unstable();
        assert_eq!(said, b"abc");
    }
}
