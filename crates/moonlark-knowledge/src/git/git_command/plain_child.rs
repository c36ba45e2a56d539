//! For tests: git as a plain child. The suite runs it supervised.

use std::os::fd::AsRawFd;
use std::process::Stdio;

use moonlark_child::LaunchSpec;
use moonlark_core::Result;
use tokio::io::AsyncWrite;
use tokio::process::Command;

use super::{GitProcessStatus, RunningGit, git_problems, running_from_pipes};

pub(super) fn launch(launch: LaunchSpec) -> Result<RunningGit> {
    let folder = format!("/proc/self/fd/{}", launch.folder.as_raw_fd());
    let mut child = Command::new(launch.program)
        .args(launch.args)
        .env_clear()
        .envs(launch.env)
        .current_dir(std::fs::canonicalize(folder).unwrap())
        .stdin(if launch.feed { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| git_problems::git_unusable_problem(&error))?;
    let stdin = child.stdin.take().map(|it| Box::new(it) as Box<dyn AsyncWrite + Send + Unpin>);
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    Ok(running_from_pipes(stdin, stdout, stderr, GitProcessStatus::Plain(child)))
}
