//! Servers as child processes: started on a free port, ended by their id.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::http::{Connection, Request};

/// How long a server may take to start.
const START: Duration = Duration::from_secs(60);

/// Where a server says that it listens.
#[derive(Clone, Copy)]
pub(super) enum AnnouncedOn {
    Stdout,
    Stderr,
}

pub(super) struct Server {
    child: Child,
    pub(super) address: SocketAddr,
    /// From the start of the process to its first answer.
    pub(super) started_in: Duration,
}

impl Server {
    /// `moonlark serve` in `project`.
    pub(super) fn moonlark(project: &Path) -> Result<Server> {
        let mut command = Command::new(beside("moonlark")?);
        command.args(["serve", "--port", "0"]).current_dir(project);
        Server::start_announced(command, AnnouncedOn::Stderr)
    }

    /// A floor: a hidden command of this binary.
    pub(super) fn floor(args: &[&str]) -> Result<Server> {
        let mut command = Command::new(beside("moonlark-bench")?);
        command.args(args);
        Server::start_announced(command, AnnouncedOn::Stderr)
    }

    /// A server of somebody else, known to be there when it takes connections.
    pub(super) fn start_at(mut command: Command, address: SocketAddr) -> Result<Server> {
        let began = Instant::now();
        let nothing = Stdio::null;
        let child = command.stdin(nothing()).stdout(nothing()).stderr(nothing()).spawn()?;
        let mut server = Server { child, address, started_in: Duration::ZERO };
        while TcpStream::connect(address).is_err() {
            ensure!(server.child.try_wait()?.is_none(), "the server ended at once");
            ensure!(began.elapsed() < START, "the server did not start in time");
            std::thread::sleep(Duration::from_millis(20));
        }
        server.started_in = began.elapsed();
        Ok(server)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A server that says where it listens.
    pub(super) fn start_announced(mut command: Command, stream: AnnouncedOn) -> Result<Server> {
        let began = Instant::now();
        match stream {
            AnnouncedOn::Stdout => command.stdout(Stdio::piped()).stderr(Stdio::null()),
            AnnouncedOn::Stderr => command.stdout(Stdio::null()).stderr(Stdio::piped()),
        };
        let mut child = command.stdin(Stdio::null()).spawn()?;
        let announcements: Box<dyn Read + Send> = match (child.stdout.take(), child.stderr.take()) {
            (Some(stdout), _) => Box::new(stdout),
            (None, stderr) => Box::new(stderr.context("no stderr")?),
        };
        let mut server =
            Server { child, address: ([0, 0, 0, 0], 0).into(), started_in: Duration::ZERO };
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            // Read to the end, or the server would stall on a full pipe.
            let mut said = Vec::new();
            for line in BufReader::new(announcements).lines().map_while(Result::ok) {
                if let Some(address) = listening(&line) {
                    let _ = sender.send(Ok(address));
                } else if said.len() < 20 {
                    said.push(line);
                }
            }
            let _ = sender.send(Err(said.join("\n")));
        });
        server.address = receiver
            .recv_timeout(START)
            .context("the server did not start in time")?
            .map_err(|said| anyhow::anyhow!("the server did not start:\n{said}"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut connection = loop {
                match Connection::open(server.address).await {
                    Ok(connection) => break connection,
                    // Some say so before they do.
                    Err(_) if began.elapsed() < START => tokio::task::yield_now().await,
                    Err(error) => return Err(error),
                }
            };
            connection.ask(&Request::get("/health", "")).await
        })?;
        server.started_in = began.elapsed();
        Ok(server)
    }

    /// Ask it to end, and wait until it has.
    pub(super) fn terminate(mut self) -> Result<()> {
        let began = Instant::now();
        // SAFETY: a signal to a child that was not waited for, so that the id is still its own.
        unsafe { libc::kill(libc::pid_t::try_from(self.child.id())?, libc::SIGTERM) };
        while self.child.try_wait()?.is_none() {
            ensure!(began.elapsed() < START, "the server did not end in time");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in `… listening on http://127.0.0.1:1234 …`.
fn listening(line: &str) -> Option<SocketAddr> {
    let rest = line.split_once("listening on http://")?.1;
    rest.split_whitespace().next()?.parse().ok()
}

/// A binary of the same build as this one.
pub(super) fn beside(name: &str) -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    Ok(this.parent().context("no folder")?.join(name))
}
