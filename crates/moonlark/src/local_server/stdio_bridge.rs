//! `moonlark stdio` that attaches to a running server: every message of its client
//! goes there, and every answer comes back.
//!
//! The server may end before the client does. Then the client's session is begun
//! again with the next server, or with one of this process's own, and the client
//! does not notice: what it asked for and what changes nothing is asked again.
//! Calls that were in progress may have happened; they are answered with an error
//! that says so.

mod bridged_session;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use moonlark_child::spawn_owned;
use moonlark_core::Result;
use moonlark_server::{ClientPresence, ClosedInput};
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use bridged_session::{BridgedSession, ServerMessageRoute};

/// One message. A longer one ends the session.
const MAX_BRIDGED_MESSAGE_BYTES: u64 = 256 << 20;
/// How long a script that has asked everything waits for its answers.
const BATCH_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Messages of the client that wait to be sent on.
const MAX_WAITING_MESSAGES: usize = 64;

/// Whoever answers.
pub(crate) struct BridgeBackend {
    read: Box<dyn AsyncRead + Send + Unpin>,
    write: Box<dyn AsyncWrite + Send + Unpin>,
}

impl BridgeBackend {
    pub(crate) fn new(
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
    ) -> BridgeBackend {
        BridgeBackend { read: Box::new(read), write: Box::new(write) }
    }
}

/// Serve the client at stdin and stdout by the first backend, and by those that
/// `next` finds when one has ended, until the client closes its end.
pub(crate) async fn bridge_stdio(
    first: BridgeBackend,
    next: impl AsyncFnMut() -> Result<BridgeBackend>,
) -> Result<()> {
    bridge_client(tokio::io::stdin(), tokio::io::stdout(), first, next).await
}

async fn bridge_client(
    input: impl AsyncRead + Send + Unpin + 'static,
    mut output: impl AsyncWrite + Unpin,
    first: BridgeBackend,
    mut next: impl AsyncFnMut() -> Result<BridgeBackend>,
) -> Result<()> {
    // Reading a line cannot be given up half-way, so it is a task's only work.
    let (sender, messages) = mpsc::channel(MAX_WAITING_MESSAGES);
    let presence = Arc::new(ClientPresence::default());
    let input = PresenceTrackingInput { input, presence: presence.clone() };
    let _reading = spawn_owned(read_messages(input, sender));
    let mut client = BridgeClient { messages, presence };
    let mut memory = BridgedSession::default();
    let mut backend = first;
    loop {
        match pump_messages(&mut client, &mut output, backend, &mut memory).await {
            // A client that does not read is gone as well.
            Ok(BridgeEnd::Client) | Err(_) => return Ok(()),
            Ok(BridgeEnd::Server) => {}
        }
        for answer in memory.end_server_generation() {
            if write_message(&mut output, answer.as_bytes()).await.is_err() {
                return Ok(());
            }
        }
        backend = next().await?;
        for message in memory.session_restart_messages() {
            // If that fails, it has ended as well, which is seen next.
            let _ = write_message(&mut backend.write, message.as_bytes()).await;
        }
        for message in memory.list_changed_notifications() {
            if write_message(&mut output, message.as_bytes()).await.is_err() {
                return Ok(());
            }
        }
    }
}

/// What comes from the client, and whether it is still there.
struct BridgeClient {
    messages: mpsc::Receiver<Vec<u8>>,
    presence: Arc<ClientPresence>,
}

/// The input of the client, which is noted as it comes.
struct PresenceTrackingInput<R> {
    input: R,
    presence: Arc<ClientPresence>,
}

impl<R: AsyncRead + Unpin> AsyncRead for PresenceTrackingInput<R> {
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

enum BridgeEnd {
    Client,
    Server,
}

/// Carry messages in both directions until one end closes. An error is the client's.
async fn pump_messages(
    client: &mut BridgeClient,
    output: &mut (impl AsyncWrite + Unpin),
    backend: BridgeBackend,
    memory: &mut BridgedSession,
) -> io::Result<BridgeEnd> {
    let BridgeBackend { read, mut write } = backend;
    let (sender, mut answers) = mpsc::channel(MAX_WAITING_MESSAGES);
    let _reading = spawn_owned(read_messages(read, sender));
    let mut client_is_there = true;
    let mut given_up = Instant::now();
    loop {
        // Without a client there is nothing but answers to what it has asked.
        if !client_is_there && memory.has_no_open_requests() {
            return Ok(BridgeEnd::Client);
        }
        tokio::select! {
            () = tokio::time::sleep_until(given_up), if !client_is_there => {
                return Ok(BridgeEnd::Client);
            }
            message = client.messages.recv(), if client_is_there => match message {
                Some(message) => {
                    if let Some(message) = memory.track_client_message(message)
                        && write_message(&mut write, &message).await.is_err()
                    {
                        // What it answered before it ended is still read below.
                        return drain_answers(&mut answers, output, memory).await;
                    }
                }
                None => {
                    client_is_there = false;
                    if client.presence.close_input() == ClosedInput::Left {
                        return Ok(BridgeEnd::Client);
                    }
                    // A script that piped all its requests in still gets its answers.
                    given_up = Instant::now() + BATCH_ANSWER_TIMEOUT;
                }
            },
            answer = answers.recv() => match answer {
                Some(answer) => {
                    if let ServerMessageRoute::ForClient(message) =
                        memory.track_server_message(answer)
                    {
                        // Before the client can have read it, and sent the next.
                        client.presence.note_output();
                        write_message(output, &message).await?;
                    }
                }
                None if client_is_there => return Ok(BridgeEnd::Server),
                None => return Ok(BridgeEnd::Client),
            },
        }
    }
}

async fn drain_answers(
    answers: &mut mpsc::Receiver<Vec<u8>>,
    output: &mut (impl AsyncWrite + Unpin),
    memory: &mut BridgedSession,
) -> io::Result<BridgeEnd> {
    while let Some(answer) = answers.recv().await {
        forward_answer(answer, output, memory).await?;
    }
    Ok(BridgeEnd::Server)
}

async fn forward_answer(
    answer: Vec<u8>,
    output: &mut (impl AsyncWrite + Unpin),
    memory: &mut BridgedSession,
) -> io::Result<()> {
    match memory.track_server_message(answer) {
        ServerMessageRoute::ForClient(message) => write_message(output, &message).await,
        ServerMessageRoute::ForUs => Ok(()),
    }
}

/// Whole lines without their ends, until there are no more.
async fn read_messages(input: impl AsyncRead + Unpin, sender: mpsc::Sender<Vec<u8>>) {
    let mut input = BufReader::with_capacity(64 * 1024, input);
    loop {
        let mut line = Vec::new();
        let read = (&mut input).take(MAX_BRIDGED_MESSAGE_BYTES).read_until(b'\n', &mut line).await;
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
