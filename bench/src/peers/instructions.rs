//! Instructions in user space for one operation, counted by valgrind's callgrind: what twice as
//! many operations take more.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::report::times;
use crate::server::{AnnouncedOn, Server};
use crate::upstream_path::processes;

use super::projects::PeerProject;
use super::session_client::SessionClient;

/// The end of the files that callgrind writes, one for each process.
const PROFILE_SUFFIX: &str = ".profile";
/// What lets workers be counted, in C.
const CHILDREN_SOURCE: &str = include_str!("callgrind_children.c");
/// Workers write what was counted after the server has ended.
const WORKER_END_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn require_valgrind() -> Result<()> {
    for program in ["valgrind", "cc"] {
        let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        let is_there = version.is_ok_and(|status| status.success());
        ensure!(is_there, "`--instructions` needs {program}");
    }
    Ok(())
}

/// Over stdio. The operation is given its number.
pub(super) fn count_over_stdio(
    project: &PeerProject,
    count: u64,
    mut operation: impl FnMut(&mut SessionClient, u64) -> Result<()>,
) -> Result<f64> {
    per_operation(count, |count| {
        let profiles = Profiles::new()?;
        let mut client = SessionClient::start(profiles.command(project))?;
        (0..count).try_for_each(|number| operation(&mut client, number))?;
        let group = processes(client.pid())?.gateway;
        client.end()?;
        wait_for_workers(&group)?;
        profiles.total()
    })
}

/// Of a server that says on `stream` where it listens.
pub(super) fn count_over_http(
    project: &PeerProject,
    stream: AnnouncedOn,
    count: u64,
    operation: impl Fn(&Server) -> Result<()>,
) -> Result<f64> {
    per_operation(count, |count| {
        let profiles = Profiles::new()?;
        let server = Server::start_announced(profiles.command(project), stream)?;
        (0..count).try_for_each(|_| operation(&server))?;
        let group = processes(server.pid())?.gateway;
        server.terminate()?;
        wait_for_workers(&group)?;
        profiles.total()
    })
}

/// `instructions 0.41 M : 0.66 M = 0.62 ×`
pub(super) fn compare_instructions(ours: f64, theirs: f64) -> String {
    let millions = |count: f64| format!("{:.2} M", count / 1e6);
    format!("instructions {} : {} = {}", millions(ours), millions(theirs), times(ours / theirs))
}

fn per_operation(count: u64, mut total: impl FnMut(u64) -> Result<f64>) -> Result<f64> {
    let once = total(count)?;
    Ok((total(2 * count)? - once) / count as f64)
}

pub(super) fn wait_for_workers(group: &[u32]) -> Result<()> {
    let began = Instant::now();
    while group.iter().any(|pid| is_running(*pid)) {
        ensure!(began.elapsed() < WORKER_END_TIMEOUT, "a worker did not end with its server");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Not gone, and not only waited for.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

/// What callgrind writes about a program and those it starts.
pub(super) struct Profiles(TempDir);

impl Profiles {
    pub(super) fn new() -> Result<Profiles> {
        let folder = tempfile::Builder::new().prefix("bench-").tempdir()?;
        let source = folder.path().join("children.c");
        std::fs::write(&source, CHILDREN_SOURCE)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-shared", "-fPIC", "-o"]);
        compiler.arg(children_library(folder.path())).arg(source).arg("-ldl");
        ensure!(compiler.status()?.success(), "callgrind_children.c cannot be compiled");
        Ok(Profiles(folder))
    }

    /// The echo server behind a gateway is left alone.
    pub(super) fn command(&self, project: &PeerProject) -> Command {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--quiet", "--tool=callgrind", "--trace-children=yes", "--demangle=no"]);
        valgrind.arg("--trace-children-skip=*/moonlark-bench");
        let files = self.0.path().join(format!("%p{PROFILE_SUFFIX}"));
        valgrind.arg(format!("--callgrind-out-file={}", files.display()));
        valgrind.env("LD_PRELOAD", children_library(self.0.path()));
        valgrind.env("BENCH_PROGRAM", project.program());
        project.command_under(valgrind)
    }

    /// One for each process.
    pub(super) fn files(&self) -> Result<Vec<PathBuf>> {
        let is_profile = |path: &PathBuf| path.to_string_lossy().ends_with(PROFILE_SUFFIX);
        let all: Result<Vec<PathBuf>, _> =
            std::fs::read_dir(self.0.path())?.map(|entry| entry.map(|it| it.path())).collect();
        Ok(all?.into_iter().filter(is_profile).collect())
    }

    fn total(&self) -> Result<f64> {
        let mut total = None;
        for path in self.files()? {
            let text = std::fs::read_to_string(path)?;
            let line = text.lines().rev().find_map(|line| line.strip_prefix("totals: "));
            let count: f64 = line.context("a profile without a total")?.trim().parse()?;
            *total.get_or_insert(0.0) += count;
        }
        total.context("callgrind wrote no profile")
    }
}

fn children_library(folder: &Path) -> PathBuf {
    folder.join("children.so")
}
