//! One worker process, as the engine sees it.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use libc::SIGKILL;
use moonlark_core::limits::format_size;
use moonlark_core::{Problem, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use crate::worker;
use crate::worker_protocol::{self, MAX_WORKER_FRAME_BYTES, WorkerOrder, WorkerReport};

/// Killed when it is dropped; reaped by the runtime.
pub(crate) struct WorkerProcess {
    child: Child,
    /// Read through a buffer: a message is one system call, not two.
    socket: BufReader<UnixStream>,
    buffer: Vec<u8>,
}

/// How long a worker that has closed its socket may take to be gone.
const WORKER_EXIT_TIMEOUT: Duration = Duration::from_secs(2);

impl WorkerProcess {
    pub(crate) fn start(program: &Path) -> Result<WorkerProcess> {
        Self::spawn_process(program).map_err(|error| {
            Problem::internal(format!("a worker process cannot be started: {error}"))
        })
    }

    fn spawn_process(program: &Path) -> std::io::Result<WorkerProcess> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let child = Command::new(program)
            .arg(worker::WORKER_MODE_ARG)
            // Nothing of our environment is a script's business.
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let socket = BufReader::new(UnixStream::from_std(ours)?);
        Ok(WorkerProcess { child, socket, buffer: Vec::new() })
    }

    /// None when the worker is gone.
    pub(crate) async fn send_order(&mut self, order: &WorkerOrder) -> Result<Option<()>> {
        let frame = worker_protocol::encode_frame(order)?;
        Ok(self.socket.get_mut().write_all(&frame).await.ok())
    }

    /// None when the worker is gone.
    pub(crate) async fn receive_report(&mut self) -> Result<Option<WorkerReport>> {
        let Ok(length) = self.socket.read_u32_le().await else { return Ok(None) };
        if length as usize > MAX_WORKER_FRAME_BYTES {
            return Err(Problem::internal("a worker sent a frame beyond all limits"));
        }
        self.buffer.clear();
        // Grows with what arrives, not with what was announced.
        let mut frame = (&mut self.socket).take(length.into());
        match frame.read_to_end(&mut self.buffer).await {
            Ok(read) if read == length as usize => {}
            _ => return Ok(None),
        }
        let report = worker_protocol::decode_frame(&self.buffer);
        self.buffer.shrink_to(64 * 1024);
        report.map(Some)
    }

    /// Why the worker is gone.
    pub(crate) async fn post_mortem(mut self, memory: usize) -> WorkerExit {
        let waited = tokio::time::timeout(WORKER_EXIT_TIMEOUT, self.child.wait()).await;
        let status = waited.ok().and_then(std::io::Result::ok);
        // We kill by dropping, and a script cannot.
        let by_others = status.is_some_and(|status| status.signal() == Some(SIGKILL));
        let problem = match status.and_then(|status| status.code()) {
            Some(worker::OUT_OF_MEMORY_EXIT_CODE) => out_of_memory_problem(memory),
            _ => self.exit_problem(status).await,
        };
        WorkerExit { problem, by_others }
    }

    async fn exit_problem(&mut self, status: Option<ExitStatus>) -> Problem {
        let status = status.map_or_else(|| "it closed its socket".to_owned(), |it| it.to_string());
        let mut words = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            let _ = tokio::time::timeout(
                WORKER_EXIT_TIMEOUT,
                stderr.take(64 * 1024).read_to_end(&mut words),
            )
            .await;
        }
        let words = String::from_utf8_lossy(&words);
        // What the Rust runtime says last; nothing of the script gets there.
        if words.contains("overflowed its stack") {
            return Problem::limit_exceeded("the script nests deeper than it can be followed");
        }
        tracing::error!("a Starlark worker ended: {status}: {words}");
        Problem::internal(format!("the script's process ended unexpectedly: {status}"))
            .with_hint("this is a defect of Moonlark: please report it with the server's log")
    }
}

/// How a worker ended.
pub(crate) struct WorkerExit {
    pub(crate) problem: Problem,
    /// Killed by somebody else, or by a system that ran out of memory.
    pub(crate) by_others: bool,
}

pub(crate) fn out_of_memory_problem(limit: usize) -> Problem {
    Problem::limit_exceeded(format!("the script used more than {} of memory", format_size(limit)))
        .with_hint("work in smaller pieces, or raise limits.memory")
}
