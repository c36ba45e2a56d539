//! What both ends of the project's socket say first: one line of JSON each.
//!
//! A client says which version it is, which configuration it would use and what it
//! wants; the server says what it is, and whether that fits. A server of another
//! version, or of another configuration in the same folder, is left alone.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use moonlark_core::Problem;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
};
use tokio::net::UnixStream;

use super::project_socket::ProjectSocket;

/// How long a server may take to greet. It may just be starting.
const SERVER_GREETING_TIMEOUT: Duration = Duration::from_secs(30);
/// No greeting is longer.
pub(super) const MAX_GREETING_BYTES: u64 = 64 * 1024;

/// What a client says first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ClientGreeting {
    /// The version of Moonlark that it is.
    pub(super) moonlark: String,
    /// The configuration file that it would use; none for the defaults.
    pub(super) config: Option<PathBuf>,
    pub(super) wants: ConnectionPurpose,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConnectionPurpose {
    /// MCP, message by message in lines.
    Mcp,
    /// One command of the command line.
    Command,
}

/// What the server says first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LocalServerSummary {
    pub(crate) moonlark: String,
    pub(crate) config: Option<PathBuf>,
    pub(crate) pid: u32,
    /// The command that it is: `serve` or `stdio`.
    pub(crate) command: String,
    /// Where it listens, if it does.
    pub(crate) address: Option<String>,
}

impl LocalServerSummary {
    /// Why a client is not served, if it is not.
    pub(super) fn mismatch_reason(&self, version: &str, config: Option<&Path>) -> Option<String> {
        let shown = |path: Option<&Path>| {
            path.map_or_else(|| "no configuration file".to_owned(), |it| it.display().to_string())
        };
        let server =
            format!("the running server (moonlark {}, process {})", self.command, self.pid);
        if self.moonlark != version {
            return Some(format!(
                "{server} is version {}, this is version {version}",
                self.moonlark
            ));
        }
        if self.config.as_deref() != config {
            let (its, ours) = (shown(self.config.as_deref()), shown(config));
            return Some(format!("{server} uses {its}, this command {ours}"));
        }
        None
    }
}

/// What came of looking for a server.
pub(crate) enum LocalServerLookup {
    Nobody,
    /// Somebody is there whom this process cannot use, and why.
    Unusable(String),
    Server(BufReader<UnixStream>, LocalServerSummary),
}

/// Find the server of a project, and say what is wanted of it.
pub(crate) async fn find_local_server(
    socket: &ProjectSocket,
    config: Option<&Path>,
    wants: ConnectionPurpose,
) -> LocalServerLookup {
    let stream = match socket.connect().await {
        Ok(Some(stream)) => stream,
        Ok(None) => return LocalServerLookup::Nobody,
        Err(error) => return LocalServerLookup::Unusable(format!("the running server: {error}")),
    };
    let mut stream = BufReader::new(stream);
    let greeted = async {
        let moonlark = env!("CARGO_PKG_VERSION").to_owned();
        let config = config.map(Path::to_owned);
        write_json_line(&mut stream, &ClientGreeting { moonlark, config, wants }).await?;
        read_json_line::<LocalServerSummary>(&mut stream, MAX_GREETING_BYTES).await
    };
    match tokio::time::timeout(SERVER_GREETING_TIMEOUT, greeted).await {
        Err(_) => LocalServerLookup::Unusable("the running server does not answer".to_owned()),
        // It ended, or could not start, while it was being asked.
        Ok(Err(_) | Ok(None)) => LocalServerLookup::Nobody,
        Ok(Ok(Some(server))) => match server.mismatch_reason(env!("CARGO_PKG_VERSION"), config) {
            Some(why) => LocalServerLookup::Unusable(why),
            None => LocalServerLookup::Server(stream, server),
        },
    }
}

pub(crate) async fn write_json_line(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.flush().await
}

/// The next line; none at the end.
pub(crate) async fn read_json_line<T: DeserializeOwned>(
    stream: &mut (impl AsyncBufRead + Unpin),
    max_bytes: u64,
) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    stream.take(max_bytes).read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

/// The file that a greeting names: the same for every way to write its path.
pub(crate) fn canonical_config_path(path: Option<&Path>) -> Option<PathBuf> {
    path.map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()))
}

/// For a connection that broke.
pub(crate) fn connection_lost_problem(error: &io::Error, hint: &str) -> Problem {
    Problem::unavailable(format!("the connection to the running server broke: {error}"))
        .with_hint(hint)
        .with_retryable(false)
}
