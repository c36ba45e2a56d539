//! Running `git`: in an environment of its own, without prompts, and with a deadline.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use moonlark_child::{LaunchSpec, ProcessEnding, spawn_owned};
use moonlark_core::{Problem, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::ChildStdout;
use tokio_util::task::AbortOnDropHandle;

use super::git_problems;

#[cfg(test)]
mod plain_child;

/// What git needs of our own environment to reach what the user can reach.
const INHERITED_ENV_VARS: &[&str] = &[
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
const FIXED_ENV_VARS: &[(&str, &str)] = &[
    ("LC_ALL", "C"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", ""),
    ("SSH_ASKPASS", ""),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("GIT_OPTIONAL_LOCKS", "0"),
];

/// Settings that win over those of the user and of the repository.
const FORCED_GIT_CONFIG: &[(&str, &str)] = &[
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("gc.autoDetach", "false"),
    ("maintenance.autoDetach", "false"),
    ("protocol.allow", "never"),
    ("protocol.ext.allow", "never"),
];

/// What a command prints that we keep, and what it complains.
const MAX_GIT_OUTPUT_BYTES: usize = 64 * 1024;

pub(super) struct GitCommand {
    program: PathBuf,
    folder: PathBuf,
    env: Vec<(OsString, OsString)>,
    /// What messages call the repository.
    name: String,
}

pub(super) struct RunningGit {
    pub(super) stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    pub(super) stdout: BufReader<ChildStdout>,
    complaints: AbortOnDropHandle<Vec<u8>>,
    status: GitProcessStatus,
}

enum GitProcessStatus {
    #[cfg_attr(test, expect(dead_code, reason = "the suite starts it so"))]
    Supervised(moonlark_child::SupervisorHandle),
    #[cfg(test)]
    Plain(tokio::process::Child),
}

impl GitCommand {
    /// For a repository that nothing is fetched into.
    pub(super) fn for_reading(folder: &Path) -> Result<GitCommand> {
        let mut git = GitCommand::with_protocols(folder, "never", &[])?;
        // What is missing stays so; older versions do not know this, and then
        // find all ways closed.
        git.env.push(("GIT_NO_LAZY_FETCH".into(), "1".into()));
        Ok(git)
    }

    /// For fetching into a bare repository of ours.
    pub(super) fn for_fetching(folder: &Path, url: &str) -> Result<GitCommand> {
        // By the environment: others see the arguments of our processes.
        let url = [("remote.origin.url", url)];
        let mut git = GitCommand::with_protocols(folder, "always", &url)?;
        git.env.push(("GIT_DIR".into(), folder.into()));
        Ok(git)
    }

    /// `allow` is `always` or `never`, for every way to another repository.
    fn with_protocols(folder: &Path, allow: &str, more: &[(&str, &str)]) -> Result<GitCommand> {
        let program = find_program("git").ok_or_else(git_problems::git_missing_problem)?;
        let mut env: Vec<(OsString, OsString)> = INHERITED_ENV_VARS
            .iter()
            .filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)))
            .collect();
        env.extend(FIXED_ENV_VARS.iter().map(|(name, value)| (name.into(), value.into())));
        let protocols = ["https", "http", "ssh", "git", "file"].into_iter();
        let allowed = protocols.map(|name| (format!("protocol.{name}.allow"), allow));
        let rest =
            FORCED_GIT_CONFIG.iter().chain(more).map(|(key, value)| ((*key).to_owned(), *value));
        let config: Vec<(String, &str)> = allowed.chain(rest).collect();
        env.push(("GIT_CONFIG_COUNT".into(), config.len().to_string().into()));
        for (number, (key, value)) in config.into_iter().enumerate() {
            env.push((format!("GIT_CONFIG_KEY_{number}").into(), key.into()));
            env.push((format!("GIT_CONFIG_VALUE_{number}").into(), value.into()));
        }
        Ok(GitCommand { program, folder: folder.to_owned(), env, name: String::new() })
    }

    pub(super) fn with_name(mut self, name: String) -> GitCommand {
        self.name = name;
        self
    }

    /// What it prints, without the end of the line.
    pub(super) async fn read_output(&self, args: &[&str]) -> Result<String> {
        let mut running = self.start_process(args, false).await?;
        let mut out = Vec::new();
        let read =
            (&mut running.stdout).take(MAX_GIT_OUTPUT_BYTES as u64).read_to_end(&mut out).await;
        read.map_err(|error| git_problems::git_unusable_problem(&error))?;
        running.wait_for_success(&self.name).await?;
        Ok(String::from_utf8_lossy(&out).trim_end().to_owned())
    }

    /// The commit that a name stands for, if it stands for one.
    pub(super) async fn resolve_commit(&self, name: &str) -> Result<Option<String>> {
        let wanted = format!("{name}^{{commit}}");
        let args = ["rev-parse", "--verify", "--quiet", "--end-of-options", &wanted];
        match self.read_output(&args).await {
            // Before 2.30 the word comes back as well.
            Ok(out) => Ok(out.lines().last().map(str::to_owned)),
            Err(problem) if git_problems::is_silent_failure(&problem) => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// When a commit was made.
    pub(super) async fn commit_time(&self, commit: &str) -> Result<Option<Timestamp>> {
        let text = self.read_output(&["cat-file", "commit", commit]).await?;
        let line = text.lines().take_while(|line| !line.is_empty());
        let line = line.into_iter().find_map(|line| line.strip_prefix("committer "));
        let seconds = line.and_then(|line| line.rsplit(' ').nth(1)?.parse().ok());
        Ok(seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()))
    }

    pub(super) async fn start_process(&self, args: &[&str], feed: bool) -> Result<RunningGit> {
        let (program, env) = (self.program.clone(), self.env.clone());
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let folder = self.folder.clone();
        let start = move || {
            let folder = open_folder(&folder)?;
            launch(LaunchSpec { program, args, env, folder, feed })
        };
        let started = tokio::task::spawn_blocking(start).await;
        started.unwrap_or_else(|error| Err(Problem::internal(format!("git: {error}"))))
    }
}

impl RunningGit {
    /// Wait for its end, which must be a good one.
    pub(super) async fn wait_for_success(mut self, name: &str) -> Result<()> {
        drop(self.stdin.take());
        let ending = self.status.wait_for_exit().await;
        match ending.map_err(|error| git_problems::git_unusable_problem(&error))? {
            ProcessEnding::Exited(0) => Ok(()),
            ProcessEnding::NotStarted { errno } => {
                Err(git_problems::git_unusable_problem(&std::io::Error::from_raw_os_error(errno)))
            }
            _ => {
                let said = self.complaints.await.unwrap_or_default();
                Err(git_problems::explain_failure(name, &String::from_utf8_lossy(&said)))
            }
        }
    }

    pub(super) async fn write_line(&mut self, line: &str) -> Result<()> {
        let Some(stdin) = &mut self.stdin else {
            return Err(Problem::internal("git has no input"));
        };
        let written = async {
            stdin.write_all(line.as_bytes()).await?;
            stdin.flush().await
        };
        written.await.map_err(|error| git_problems::git_unusable_problem(&error))
    }
}

impl GitProcessStatus {
    async fn wait_for_exit(&mut self) -> std::io::Result<ProcessEnding> {
        match self {
            GitProcessStatus::Supervised(status) => status.wait_for_end().await,
            #[cfg(test)]
            GitProcessStatus::Plain(child) => {
                Ok(ProcessEnding::Exited(child.wait().await?.code().unwrap_or(-1)))
            }
        }
    }
}

/// Of tests it is one without a supervisor: they are not the binary that is one.
#[cfg(test)]
use plain_child::launch;

#[cfg(not(test))]
fn launch(launch: LaunchSpec) -> Result<RunningGit> {
    let moonlark_child::SupervisedProcess { stdin, stdout, stderr, status } =
        moonlark_child::SupervisedProcess::start(launch)
            .map_err(|error| git_problems::git_unusable_problem(&error))?;
    let stdin = stdin.map(|stdin| Box::new(stdin) as Box<dyn AsyncWrite + Send + Unpin>);
    Ok(running_from_pipes(stdin, stdout, stderr, GitProcessStatus::Supervised(status)))
}

fn running_from_pipes(
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    stdout: ChildStdout,
    stderr: impl AsyncRead + Send + Unpin + 'static,
    status: GitProcessStatus,
) -> RunningGit {
    // Read while it runs: a full pipe would stop it.
    let complaints = spawn_owned(read_tail(stderr));
    let stdout = BufReader::with_capacity(MAX_GIT_OUTPUT_BYTES, stdout);
    RunningGit { stdin, stdout, complaints, status }
}

/// The last of what somebody has to say, however much it is.
async fn read_tail(mut from: impl AsyncRead + Unpin) -> Vec<u8> {
    let (mut kept, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = from.read(&mut piece).await {
        kept.extend_from_slice(&piece[..read]);
        if kept.len() > MAX_GIT_OUTPUT_BYTES {
            kept.drain(..kept.len() - MAX_GIT_OUTPUT_BYTES / 2);
        }
    }
    kept
}

fn open_folder(folder: &Path) -> Result<OwnedFd> {
    let shown = folder.display();
    let problem = |what: String| Problem::unavailable(what);
    let found = File::open(folder).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => problem(format!("there is no folder {shown}")),
        kind => problem(format!("the folder {shown} cannot be read: {kind}")),
    })?;
    if found.metadata().is_ok_and(|found| found.is_dir()) {
        Ok(found.into())
    } else {
        Err(problem(format!("{shown} is not a folder")))
    }
}

fn find_program(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsStr::new("/usr/bin:/bin").into());
    std::env::split_paths(&path).filter(|folder| folder.is_absolute()).find_map(|folder| {
        let program = folder.join(name);
        let found = program.metadata().ok()?;
        (found.is_file() && found.permissions().mode() & 0o111 != 0).then_some(program)
    })
}
