//! Running git: in an environment of our making, never asking anybody, and
//! never longer than somebody waits for it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use moonlark_child::{Ending, Launch};
use moonlark_core::{Problem, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::ChildStdout;
use tokio::task::JoinHandle;

use super::failure;

#[cfg(test)]
mod plain;

/// What git needs of our own environment to reach what the user can reach.
const INHERITED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "SSH_AUTH_SOCK",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSL_CAINFO",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
];

/// Nobody is asked for anything, and messages are in the language we read.
const FIXED: &[(&str, &str)] = &[
    ("LC_ALL", "C"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", ""),
    ("SSH_ASKPASS", ""),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("GIT_OPTIONAL_LOCKS", "0"),
];

/// Settings that win over those of the user and of the repository.
const CONFIG: &[(&str, &str)] = &[
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("gc.autoDetach", "false"),
    ("maintenance.autoDetach", "false"),
    ("protocol.allow", "never"),
    ("protocol.ext.allow", "never"),
];

/// What a command prints that we keep, and what it complains.
const MOST: usize = 64 * 1024;

pub(super) struct Git {
    program: PathBuf,
    folder: PathBuf,
    env: Vec<(OsString, OsString)>,
    /// What messages call the repository.
    name: String,
}

pub(super) struct Running {
    pub(super) stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    pub(super) stdout: BufReader<ChildStdout>,
    complaints: JoinHandle<Vec<u8>>,
    status: Status,
}

enum Status {
    #[cfg_attr(test, expect(dead_code, reason = "the suite starts it so"))]
    Supervised(moonlark_child::Status),
    #[cfg(test)]
    Plain(tokio::process::Child),
}

impl Git {
    /// For a repository that nothing is fetched into.
    pub(super) fn reading(folder: &Path) -> Result<Git> {
        let none = ["https", "http", "ssh", "git", "file"].map(|it| (it, "never"));
        let mut git = Git::with(folder, &none, &[])?;
        // What is missing stays so; older versions do not know this, and then
        // find all ways closed.
        git.env.push(("GIT_NO_LAZY_FETCH".into(), "1".into()));
        Ok(git)
    }

    /// For fetching into a bare repository of ours.
    pub(super) fn fetching(folder: &Path, url: &str) -> Result<Git> {
        let all = ["https", "http", "ssh", "git", "file"].map(|it| (it, "always"));
        // By the environment: others see the arguments of our processes.
        let mut git = Git::with(folder, &all, &[("remote.origin.url", url)])?;
        git.env.push(("GIT_DIR".into(), folder.into()));
        Ok(git)
    }

    fn with(folder: &Path, protocols: &[(&str, &str)], more: &[(&str, &str)]) -> Result<Git> {
        let program = find("git").ok_or_else(failure::no_git)?;
        let mut env: Vec<(OsString, OsString)> = INHERITED
            .iter()
            .filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)))
            .collect();
        env.extend(FIXED.iter().map(|(name, value)| (name.into(), value.into())));
        let allowed = protocols.iter().map(|(name, say)| (format!("protocol.{name}.allow"), *say));
        let rest = CONFIG.iter().chain(more).map(|(key, value)| ((*key).to_owned(), *value));
        let config: Vec<(String, &str)> = allowed.chain(rest).collect();
        env.push(("GIT_CONFIG_COUNT".into(), config.len().to_string().into()));
        for (number, (key, value)) in config.into_iter().enumerate() {
            env.push((format!("GIT_CONFIG_KEY_{number}").into(), key.into()));
            env.push((format!("GIT_CONFIG_VALUE_{number}").into(), value.into()));
        }
        Ok(Git { program, folder: folder.to_owned(), env, name: String::new() })
    }

    pub(super) fn named(mut self, name: String) -> Git {
        self.name = name;
        self
    }

    /// What it prints, without the end of the line.
    pub(super) async fn line(&self, args: &[&str]) -> Result<String> {
        let mut running = self.start(args, false).await?;
        let mut out = Vec::new();
        let read = (&mut running.stdout).take(MOST as u64).read_to_end(&mut out).await;
        read.map_err(|error| failure::lost(&error))?;
        running.ended(&self.name).await?;
        Ok(String::from_utf8_lossy(&out).trim_end().to_owned())
    }

    /// The commit that a name stands for, if it stands for one.
    pub(super) async fn commit(&self, name: &str) -> Result<Option<String>> {
        let wanted = format!("{name}^{{commit}}");
        match self.line(&["rev-parse", "--verify", "--quiet", "--end-of-options", &wanted]).await {
            // Before 2.30 the word comes back as well.
            Ok(out) => Ok(out.lines().last().map(str::to_owned)),
            Err(problem) if failure::is_silent(&problem) => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// When a commit was made.
    pub(super) async fn committed(&self, commit: &str) -> Result<Option<Timestamp>> {
        let text = self.line(&["cat-file", "commit", commit]).await?;
        let line = text.lines().take_while(|line| !line.is_empty());
        let line = line.into_iter().find_map(|line| line.strip_prefix("committer "));
        let seconds = line.and_then(|line| line.rsplit(' ').nth(1)?.parse().ok());
        Ok(seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()))
    }

    pub(super) async fn start(&self, args: &[&str], feed: bool) -> Result<Running> {
        let (program, env) = (self.program.clone(), self.env.clone());
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let folder = self.folder.clone();
        let start = move || {
            let folder = open(&folder)?;
            launch(Launch { program, args, env, folder, feed })
        };
        let started = tokio::task::spawn_blocking(start).await;
        started.unwrap_or_else(|error| Err(Problem::internal(format!("git: {error}"))))
    }
}

impl Running {
    /// Wait for its end, which must be a good one.
    pub(super) async fn ended(mut self, name: &str) -> Result<()> {
        drop(self.stdin.take());
        let ending = self.status.ended().await.map_err(|error| failure::lost(&error))?;
        match ending {
            Ending::Exited(0) => Ok(()),
            Ending::NotStarted { errno } => {
                Err(failure::lost(&std::io::Error::from_raw_os_error(errno)))
            }
            _ => {
                let said = self.complaints.await.unwrap_or_default();
                Err(failure::explain(name, &String::from_utf8_lossy(&said)))
            }
        }
    }

    pub(super) async fn say(&mut self, line: &str) -> Result<()> {
        let Some(stdin) = &mut self.stdin else {
            return Err(Problem::internal("git has no input"));
        };
        let written = async {
            stdin.write_all(line.as_bytes()).await?;
            stdin.flush().await
        };
        written.await.map_err(|error| failure::lost(&error))
    }
}

impl Status {
    async fn ended(&mut self) -> std::io::Result<Ending> {
        match self {
            Status::Supervised(status) => status.ended().await,
            #[cfg(test)]
            Status::Plain(child) => Ok(Ending::Exited(child.wait().await?.code().unwrap_or(-1))),
        }
    }
}

/// Of tests it is one without a supervisor: they are not the binary that is one.
#[cfg(test)]
use plain::launch;

#[cfg(not(test))]
fn launch(launch: Launch) -> Result<Running> {
    let moonlark_child::Supervised { stdin, stdout, stderr, status } =
        moonlark_child::Supervised::start(launch).map_err(|error| failure::lost(&error))?;
    let stdin = stdin.map(|stdin| Box::new(stdin) as Box<dyn AsyncWrite + Send + Unpin>);
    Ok(running(stdin, stdout, stderr, Status::Supervised(status)))
}

fn running(
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    stdout: ChildStdout,
    stderr: impl AsyncRead + Send + Unpin + 'static,
    status: Status,
) -> Running {
    // Read while it runs: a full pipe would stop it.
    let complaints = tokio::spawn(last_of(stderr));
    Running { stdin, stdout: BufReader::with_capacity(MOST, stdout), complaints, status }
}

/// The last of what somebody has to say, however much it is.
async fn last_of(mut from: impl AsyncRead + Unpin) -> Vec<u8> {
    let (mut kept, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = from.read(&mut piece).await {
        kept.extend_from_slice(&piece[..read]);
        if kept.len() > MOST {
            kept.drain(..kept.len() - MOST / 2);
        }
    }
    kept
}

fn open(folder: &Path) -> Result<OwnedFd> {
    let shown = folder.display();
    let problem = |what: String| Problem::unavailable(what);
    let found = File::open(folder).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => problem(format!("there is no folder {shown}")),
        kind => problem(format!("the folder {shown} cannot be read: {kind}")),
    })?;
    match found.metadata().is_ok_and(|found| found.is_dir()) {
        true => Ok(found.into()),
        false => Err(problem(format!("{shown} is not a folder"))),
    }
}

fn find(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsStr::new("/usr/bin:/bin").into());
    std::env::split_paths(&path).filter(|folder| folder.is_absolute()).find_map(|folder| {
        let program = folder.join(name);
        let found = program.metadata().ok()?;
        (found.is_file() && found.permissions().mode() & 0o111 != 0).then_some(program)
    })
}
