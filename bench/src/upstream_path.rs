//! The ways from a client to the echo server, and the processes of each.

use std::net::{SocketAddr, TcpListener};
use std::path::Path as Folder;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::Effort;
use super::echo::{self, ANSWER};
use super::http::{Connection, Request};
use super::server::{Server, beside};
use super::upstream_load::{Pipe, Processes, Sample, over_http};

/// A hidden command of this binary: the server that is called.
const ECHO: &str = "floor-rmcp";
/// And the gateway that only passes on.
const PASS: &str = "pass-through";
/// And what only copies bytes.
const RELAY: &str = "relay";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Http,
    Stdio,
}

impl Transport {
    pub(super) fn name(self) -> &'static str {
        match self {
            Transport::Http => "HTTP",
            Transport::Stdio => "stdio",
        }
    }
}

/// One way, with everything on it started.
pub(super) struct Path {
    entry: Entry,
    /// Over HTTP.
    request: Request,
    processes: Processes,
    /// What else must stay: the server behind a gateway, the gateway's project.
    _kept: (Option<Server>, Option<TempDir>),
}

enum Entry {
    Http(Server),
    Pipe(Pipe),
}

impl Path {
    pub(super) fn direct(transport: Transport) -> Result<Path> {
        Ok(match transport {
            Transport::Http => {
                let server = Server::floor(&[ECHO])?;
                let processes = Processes { gateway: vec![], server: vec![server.pid()] };
                Path {
                    entry: Entry::Http(server),
                    request: request(),
                    processes,
                    _kept: (None, None),
                }
            }
            Transport::Stdio => {
                let pipe = pipe("moonlark-bench", &[ECHO, "--stdio"], Folder::new("."))?;
                let processes = Processes { gateway: vec![], server: vec![pipe.child.id()] };
                Path {
                    entry: Entry::Pipe(pipe),
                    request: request(),
                    processes,
                    _kept: (None, None),
                }
            }
        })
    }

    pub(super) fn through_moonlark(transport: Transport) -> Result<Path> {
        let project = tempfile::Builder::new().prefix("bench-").tempdir()?;
        let echo = (transport == Transport::Http).then(|| Server::floor(&[ECHO])).transpose()?;
        let target = match &echo {
            Some(echo) => format!("url = \"http://{}/mcp\"", echo.address),
            None => {
                format!("command = {:?}\nargs = [{ECHO:?}, \"--stdio\"]", beside("moonlark-bench")?)
            }
        };
        let config = format!("[mcp_servers.echo]\n{target}\nexpose = \"direct\"\nprefix = \"\"\n");
        std::fs::write(project.path().join("moonlark.toml"), config)?;
        std::fs::create_dir(project.path().join("tools"))?;
        let entry = match transport {
            Transport::Http => Entry::Http(Server::moonlark(project.path())?),
            Transport::Stdio => {
                Entry::Pipe(pipe("moonlark", &["stdio", "--quiet"], project.path())?)
            }
        };
        Path::through(entry, echo, Some(project))
    }

    pub(super) fn through_rmcp(transport: Transport) -> Result<Path> {
        Ok(match transport {
            Transport::Http => {
                let echo = Server::floor(&[ECHO])?;
                let url = format!("http://{}/mcp", echo.address);
                let gateway = Server::floor(&[PASS, "--url", &url])?;
                Path::through(Entry::Http(gateway), Some(echo), None)?
            }
            Transport::Stdio => {
                let pipe = pipe("moonlark-bench", &[PASS, "--stdio"], Folder::new("."))?;
                Path::through(Entry::Pipe(pipe), None, None)?
            }
        })
    }

    pub(super) fn through_relay(transport: Transport) -> Result<Path> {
        Ok(match transport {
            Transport::Http => {
                let echo = Server::floor(&[ECHO])?;
                let relay = Server::floor(&[RELAY, "--to", &echo.address.to_string()])?;
                Path::through(Entry::Http(relay), Some(echo), None)?
            }
            Transport::Stdio => {
                let pipe = pipe("moonlark-bench", &[RELAY], Folder::new("."))?;
                Path::through(Entry::Pipe(pipe), None, None)?
            }
        })
    }

    /// The gateway of somebody else, over HTTP, with nothing turned on.
    pub(super) fn through_mcp_proxy(binary: &Folder) -> Result<Path> {
        let project = tempfile::Builder::new().prefix("bench-").tempdir()?;
        let echo = Server::floor(&[ECHO])?;
        // It wants to be told its port, and says nowhere which it took.
        let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let config = format!(
            "[proxy]\nname = \"peer\"\n[proxy.listen]\nhost = \"127.0.0.1\"\nport = {}\n\
             [observability]\naudit = false\nlog_level = \"error\"\n\
             [[backends]]\nname = \"echo\"\ntransport = \"http\"\nurl = \"http://{}/mcp\"\n",
            address.port(),
            echo.address
        );
        let file = project.path().join("proxy.toml");
        std::fs::write(&file, config)?;
        let mut command = Command::new(binary);
        command.arg("--config").arg(file);
        let gateway = Entry::Http(Server::start_at(command, address)?);
        let request = echo::mcp_at("/", &echo::call_of("echo/echo", 1));
        Path::asking(request, gateway, Some(echo), Some(project))
    }

    /// Call once, so that the server is there, and see which processes there are.
    fn through(entry: Entry, echo: Option<Server>, project: Option<TempDir>) -> Result<Path> {
        Path::asking(request(), entry, echo, project)
    }

    fn asking(
        request: Request,
        mut entry: Entry,
        echo: Option<Server>,
        project: Option<TempDir>,
    ) -> Result<Path> {
        let gateway = entry.first_call(&request)?;
        let mut processes = processes(gateway)?;
        processes.server.extend(echo.as_ref().map(Server::pid));
        Ok(Path { entry, request, processes, _kept: (echo, project) })
    }

    pub(super) fn measure(&mut self, clients: usize, effort: Effort) -> Result<Sample> {
        match &mut self.entry {
            Entry::Http(server) => {
                let request = std::slice::from_ref(&self.request);
                over_http(server.address, request, clients, &self.processes, effort)
            }
            Entry::Pipe(pipe) => pipe.load(requests(clients), ANSWER, &self.processes, effort),
        }
    }
}

impl Entry {
    /// Returns the process that answered.
    fn first_call(&mut self, request: &Request) -> Result<u32> {
        match self {
            Entry::Http(server) => {
                call_once(server.address, request)?;
                Ok(server.pid())
            }
            Entry::Pipe(pipe) => {
                pipe.call_once(&requests(1), ANSWER)?;
                Ok(pipe.child.id())
            }
        }
    }
}

fn call_once(address: SocketAddr, request: &Request) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        Connection::open(address).await?.ask(request).await?;
        Ok(())
    })
}

fn request() -> Request {
    echo::mcp(&echo::call(1))
}

fn requests(count: usize) -> Vec<String> {
    (0..count).map(|id| format!("{}\n", echo::call(id))).collect()
}

pub(super) fn pipe(binary: &str, args: &[&str], folder: &Folder) -> Result<Pipe> {
    let child = Command::new(beside(binary)?)
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start an MCP server")?;
    Ok(Pipe::new(child))
}

/// A gateway and all it started, the echo server among them.
pub(super) fn processes(gateway: u32) -> Result<Processes> {
    let mut processes = Processes { gateway: vec![gateway], server: vec![] };
    for pid in descendants(gateway)? {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_echo = command.windows(ECHO.len()).any(|window| window == ECHO.as_bytes())
            && is_this_binary(pid);
        if is_echo { &mut processes.server } else { &mut processes.gateway }.push(pid);
    }
    Ok(processes)
}

/// Children, and theirs.
fn descendants(of: u32) -> Result<Vec<u32>> {
    let mut parents: Vec<(u32, u32)> = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The command, in parentheses, may hold anything.
        let numbers = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        if let Some(parent) = numbers.split_whitespace().nth(1).and_then(|n| n.parse().ok()) {
            parents.push((pid, parent));
        }
    }
    let mut found = vec![of];
    // Grows while it is walked; no process is its own ancestor.
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.remove(0);
    Ok(found)
}

/// A supervisor has the command it watches over among its own words.
fn is_this_binary(pid: u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    program.is_some() && program == beside("moonlark-bench").ok()
}
