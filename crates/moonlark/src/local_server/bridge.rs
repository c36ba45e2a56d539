//! `moonlark stdio` that attaches to a running server: every message of its client
//! goes there, and every answer comes back.
//!
//! The server may end before the client does. Then the client's session is begun
//! again with the next server, or with one of this process's own, and the client
//! does not notice: what it asked for and what changes nothing is asked again.
//! Calls that were in progress may have happened; they are answered with an error
//! that says so.

mod session_memory;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use moonlark_core::Result;
use moonlark_server::{ClientPresence, ClosedInput};
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf,
};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use session_memory::{FromServer, SessionMemory};

/// One message. A longer one ends the session.
const MAX_MESSAGE_BYTES: u64 = 256 << 20;
/// How long a script that has asked everything waits for its answers.
const BATCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Messages of the client that wait to be sent on.
const MAX_WAITING_MESSAGES: usize = 64;

/// Whoever answers.
pub(crate) struct Backend {
    read: Box<dyn AsyncRead + Send + Unpin>,
    write: Box<dyn AsyncWrite + Send + Unpin>,
}

impl Backend {
    pub(crate) fn new(
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Backend {
        Backend { read: Box::new(read), write: Box::new(write) }
    }
}

/// Serve the client at stdin and stdout by the first backend, and by those that
/// `next` finds when one has ended, until the client closes its end.
pub(crate) async fn bridge_stdio(
    first: Backend,
    next: impl AsyncFnMut() -> Result<Backend>,
) -> Result<()> {
    bridge(tokio::io::stdin(), tokio::io::stdout(), first, next).await
}

async fn bridge(
    input: impl AsyncRead + Send + Unpin + 'static,
    mut output: impl AsyncWrite + Unpin,
    first: Backend,
    mut next: impl AsyncFnMut() -> Result<Backend>,
) -> Result<()> {
    // Reading a line cannot be given up half-way, so it is a task's only work.
    let (sender, messages) = mpsc::channel(MAX_WAITING_MESSAGES);
    let presence = Arc::new(ClientPresence::default());
    let input = NotedInput { input, presence: presence.clone() };
    let _reading = AbortOnDropHandle::new(tokio::spawn(read_messages(input, sender)));
    let mut client = ClientSide { messages, presence };
    let mut memory = SessionMemory::default();
    let mut backend = first;
    loop {
        match pump(&mut client, &mut output, backend, &mut memory).await {
            // A client that does not read is gone as well.
            Ok(Ended::Client) | Err(_) => return Ok(()),
            Ok(Ended::Server) => {}
        }
        for answer in memory.lose_server() {
            if write_message(&mut output, answer.as_bytes()).await.is_err() {
                return Ok(());
            }
        }
        backend = next().await?;
        for message in memory.begin_again() {
            // If that fails, it has ended as well, which is seen next.
            let _ = write_message(&mut backend.write, message.as_bytes()).await;
        }
        for message in memory.what_may_have_changed() {
            if write_message(&mut output, message.as_bytes()).await.is_err() {
                return Ok(());
            }
        }
    }
}

/// What comes from the client, and whether it is still there.
struct ClientSide {
    messages: mpsc::Receiver<Vec<u8>>,
    presence: Arc<ClientPresence>,
}

/// The input of the client, which is noted as it comes.
struct NotedInput<R> {
    input: R,
    presence: Arc<ClientPresence>,
}

impl<R: AsyncRead + Unpin> AsyncRead for NotedInput<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.input).poll_read(context, buffer);
        self.presence.note_input(&buffer.filled()[before..]);
        read
    }
}

enum Ended {
    Client,
    Server,
}

/// Carry messages in both directions until one end closes. An error is the client's.
async fn pump(
    client: &mut ClientSide,
    output: &mut (impl AsyncWrite + Unpin),
    backend: Backend,
    memory: &mut SessionMemory,
) -> io::Result<Ended> {
    let Backend { read, mut write } = backend;
    let (sender, mut answers) = mpsc::channel(MAX_WAITING_MESSAGES);
    let _reading = AbortOnDropHandle::new(tokio::spawn(read_messages(read, sender)));
    let mut client_is_there = true;
    let mut given_up = Instant::now();
    loop {
        // Without a client there is nothing but answers to what it has asked.
        if !client_is_there && memory.has_no_open_requests() {
            return Ok(Ended::Client);
        }
        tokio::select! {
            () = tokio::time::sleep_until(given_up), if !client_is_there => {
                return Ok(Ended::Client);
            }
            message = client.messages.recv(), if client_is_there => match message {
                Some(message) => {
                    if let Some(message) = memory.note_from_client(message)
                        && write_message(&mut write, &message).await.is_err()
                    {
                        // What it answered before it ended is still read below.
                        return drain(&mut answers, output, memory).await;
                    }
                }
                None => {
                    client_is_there = false;
                    if client.presence.close_input() == ClosedInput::Left {
                        return Ok(Ended::Client);
                    }
                    // A script that piped all its requests in still gets its answers.
                    given_up = Instant::now() + BATCH_TIMEOUT;
                }
            },
            answer = answers.recv() => match answer {
                Some(answer) => {
                    pass_back(answer, output, memory).await?;
                    client.presence.note_output();
                }
                None if client_is_there => return Ok(Ended::Server),
                None => return Ok(Ended::Client),
            },
        }
    }
}

async fn drain(
    answers: &mut mpsc::Receiver<Vec<u8>>,
    output: &mut (impl AsyncWrite + Unpin),
    memory: &mut SessionMemory,
) -> io::Result<Ended> {
    while let Some(answer) = answers.recv().await {
        pass_back(answer, output, memory).await?;
    }
    Ok(Ended::Server)
}

async fn pass_back(
    answer: Vec<u8>,
    output: &mut (impl AsyncWrite + Unpin),
    memory: &mut SessionMemory,
) -> io::Result<()> {
    match memory.note_from_server(answer) {
        FromServer::ForClient(message) => write_message(output, &message).await,
        FromServer::ForUs => Ok(()),
    }
}

/// Whole lines without their ends, until there are no more.
async fn read_messages(input: impl AsyncRead + Unpin, sender: mpsc::Sender<Vec<u8>>) {
    let mut input = BufReader::with_capacity(64 * 1024, input);
    loop {
        let mut line = Vec::new();
        let read = (&mut input).take(MAX_MESSAGE_BYTES).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(1..)) {
            return;
        }
        match line.pop() {
            Some(b'\n') => {}
            // Too long, or half a line at the end: nobody can read that.
            _ => return,
        }
        if sender.send(line).await.is_err() {
            return;
        }
    }
}

async fn write_message(to: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> io::Result<()> {
    to.write_all(message).await?;
    to.write_all(b"\n").await?;
    to.flush().await
}

#[cfg(test)]
mod tests;
