//! The worker's end of the socket.

use std::cell::RefCell;
use std::io::{BufReader, Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;

use moonlark_core::{Problem, Result, Value};

use crate::worker_protocol::{self, MAX_WORKER_FRAME_BYTES, WorkerOrder, WorkerReport};

/// Read through a buffer: a message is one system call, not two.
pub(super) struct EngineLink(RefCell<BufReader<UnixStream>>);

impl EngineLink {
    /// Stdin is a socket when the engine started us; nothing else may.
    pub(super) fn from_stdin() -> Option<EngineLink> {
        // SAFETY: file descriptor 0 is ours from the start and nothing else
        // in a worker uses it.
        let socket = unsafe { UnixStream::from_raw_fd(0) };
        socket.peer_addr().ok()?;
        exit_when_closed();
        Some(EngineLink(RefCell::new(BufReader::new(socket))))
    }

    /// None when the engine is gone.
    pub(super) fn receive_order(&self) -> Option<WorkerOrder> {
        let mut socket = self.0.borrow_mut();
        let mut length = [0; 4];
        socket.read_exact(&mut length).ok()?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_WORKER_FRAME_BYTES {
            return None;
        }
        let mut body = vec![0; length];
        socket.read_exact(&mut body).ok()?;
        worker_protocol::decode_frame(&body).ok()
    }

    pub(super) fn send_report(&self, report: &WorkerReport) {
        let frame = worker_protocol::encode_frame(report).or_else(|problem| {
            let reply = Err(problem.into());
            worker_protocol::encode_frame(&WorkerReport::Done { reply, clean: true })
        });
        if let Ok(frame) = frame {
            self.send_frame(&frame);
        }
    }

    fn send_frame(&self, frame: &[u8]) {
        if self.0.borrow_mut().get_mut().write_all(frame).is_err() {
            exit_process();
        }
    }

    /// Ask the engine, and wait.
    pub(super) fn ask_engine(&self, report: &WorkerReport) -> Result<Value> {
        self.send_frame(&worker_protocol::encode_frame(report)?);
        match self.receive_order() {
            Some(WorkerOrder::Answer(reply)) => reply.map_err(Problem::from),
            _ => exit_process(),
        }
    }
}

/// What tells that the other end is closed. Elsewhere than on Linux that comes
/// unasked.
#[cfg(target_os = "linux")]
const POLL_CLOSED_EVENT: libc::c_short = libc::POLLRDHUP;
#[cfg(not(target_os = "linux"))]
const POLL_CLOSED_EVENT: libc::c_short = 0;

/// The engine may die while a script computes; so must we.
fn exit_when_closed() {
    std::thread::spawn(|| {
        let mut socket = libc::pollfd { fd: 0, events: POLL_CLOSED_EVENT, revents: 0 };
        loop {
            // SAFETY: one descriptor that stays open as long as the process.
            let ready = unsafe { libc::poll(&mut socket, 1, -1) };
            if ready > 0 {
                exit_process();
            }
        }
    });
}

fn exit_process() -> ! {
    // Nobody is left to read what destructors would have to say.
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}
