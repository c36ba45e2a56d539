//! A client of MCP 2025-06-18 over the pipes of a server it started, one request at a time:
//! what Moonlark and its peers all speak.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::old_clients::initialized;
use crate::stdio::id_of;

pub(super) const SESSION_VERSION: &str = "2025-06-18";
/// For an answer: valgrind makes fifty times as slow.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// After its input has ended.
const END_TIMEOUT: Duration = Duration::from_secs(60);
const READ_BUFFER_BYTES: usize = 64 * 1024;

pub(super) struct SessionClient {
    child: Child,
    /// None once it was closed.
    input: Option<ChildStdin>,
    output: ChildStdout,
    received: Vec<u8>,
    last_id: usize,
}

impl SessionClient {
    /// Start the server and a session with it.
    pub(super) fn start(mut command: Command) -> Result<SessionClient> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("no pipe from the server")?;
        let mut client = SessionClient { child, input, output, received: Vec::new(), last_id: 0 };
        let hello = client.request("initialize", &initialize_params());
        // Some know only the version before it, which differs in nothing that is used here.
        client.exchange(&hello, "\"protocolVersion\"")?;
        client.send(&format!("{}\n", initialized()))?;
        Ok(client)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Call a tool; the answer must hold `expect`.
    pub(super) fn call(&mut self, tool: &str, arguments: &Value, expect: &str) -> Result<Duration> {
        let line = self.request("tools/call", &json!({"name": tool, "arguments": arguments}));
        let began = Instant::now();
        self.exchange(&line, expect)?;
        Ok(began.elapsed())
    }

    /// End its input and wait until it has ended by itself.
    pub(super) fn end(mut self) -> Result<()> {
        self.wait_for_end()
    }

    fn request(&mut self, method: &str, params: &Value) -> String {
        self.last_id += 1;
        let id = self.last_id;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        format!("{request}\n")
    }

    /// Send the request made last and wait for its answer.
    fn exchange(&mut self, line: &str, expect: &str) -> Result<()> {
        self.send(line)?;
        loop {
            let end = self.next_line()?;
            let answer = std::str::from_utf8(&self.received[..end])?;
            // It may say that its tools changed.
            if id_of(answer) == Some(self.last_id) && !answer.contains("\"method\":") {
                let is_right = answer.contains(expect) && !answer.contains("\"isError\":true");
                ensure!(is_right, "unexpected answer: {answer}");
                self.received.drain(..=end);
                return Ok(());
            }
            self.received.drain(..=end);
        }
    }

    fn send(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("the input of the server was closed")?;
        Ok(input.write_all(line.as_bytes())?)
    }

    /// Where the first line received ends.
    fn next_line(&mut self) -> Result<usize> {
        let mut looked_at = 0;
        let mut chunk = [0; READ_BUFFER_BYTES];
        loop {
            let rest = &self.received[looked_at..];
            if let Some(place) = rest.iter().position(|byte| *byte == b'\n') {
                return Ok(looked_at + place);
            }
            looked_at = self.received.len();
            self.wait_for_output()?;
            let read = self.output.read(&mut chunk)?;
            ensure!(read > 0, "the server closed its output");
            self.received.extend_from_slice(&chunk[..read]);
        }
    }

    fn wait_for_output(&self) -> Result<()> {
        let mut waiting =
            libc::pollfd { fd: self.output.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let limit = i32::try_from(ANSWER_TIMEOUT.as_millis())?;
        // SAFETY: one entry, of a descriptor that is open.
        let ready = unsafe { libc::poll(&raw mut waiting, 1, limit) };
        ensure!(ready == 1, "the server did not answer in time");
        Ok(())
    }

    fn wait_for_end(&mut self) -> Result<()> {
        drop(self.input.take());
        let began = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(began.elapsed() < END_TIMEOUT, "the server did not end with its input");
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

impl Drop for SessionClient {
    fn drop(&mut self) {
        let _ = self.wait_for_end();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn initialize_params() -> Value {
    json!({
        "protocolVersion": SESSION_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    })
}
