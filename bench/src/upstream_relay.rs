//! The floor under any gateway: a process between client and server that copies
//! bytes both ways, on blocking threads, and knows no protocol.
//!
//! What it adds to a call is what the kernel takes to wake one more process on
//! the way there and one more on the way back.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result};
use clap::Args;

use super::server::beside;

const BUFFER: usize = 64 * 1024;

#[derive(Args)]
pub struct Relay {
    /// Where the server is; without it, it is started as a child.
    #[arg(long)]
    to: Option<SocketAddr>,
}

impl Relay {
    pub fn run(self) -> Result<()> {
        match self.to {
            Some(server) => over_tcp(server),
            None => over_pipes(),
        }
    }
}

/// A connection to the server for every one of a client's, until killed.
fn over_tcp(server: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    for client in listener.incoming() {
        let (client, server) = (client?, TcpStream::connect(server)?);
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        one_way(client.try_clone()?, server.try_clone()?);
        one_way(server, client);
    }
    Ok(())
}

fn one_way(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        // Either end may go away at any time.
        let _ = copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
}

/// A child of our own behind our own standard input and output.
fn over_pipes() -> Result<()> {
    let mut child = Command::new(beside("moonlark-bench")?)
        .args(["floor-rmcp", "--stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (mut to, mut from) = child.stdin.take().zip(child.stdout.take()).context("no pipes")?;
    // The child ends with its input, and that with ours.
    thread::spawn(move || copy(&mut io::stdin().lock(), &mut to));
    copy(&mut from, &mut io::stdout().lock())?;
    child.wait()?;
    Ok(())
}

/// Whatever has arrived is passed on in one piece.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..count])?;
        to.flush()?;
    }
}
