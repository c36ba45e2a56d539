//! Git objects: paths with their blobs, and the blobs' content.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use moonlark_core::{Problem, Result};
use tokio::io::{AsyncBufReadExt, AsyncReadExt};

use super::git_command::{GitCommand, RunningGit};
use super::git_problems;
use crate::filesystem::source_id_from_path;

/// Bytes of one line of a listing: longer than any path.
const MAX_LISTING_LINE_BYTES: u64 = 64 * 1024;

/// The files of a commit, one after the other.
pub(super) struct GitTree {
    running: Option<RunningGit>,
}

pub(super) struct GitTreeEntry {
    pub(super) path: String,
    pub(super) blob: String,
    mode: String,
}

impl GitTreeEntry {
    /// Why there is nothing to read.
    pub(super) fn skip_reason(&self) -> Option<&'static str> {
        match self.mode.as_str() {
            "120000" => Some("it is a link, and links are not followed"),
            "160000" => Some("it is another repository"),
            _ => None,
        }
    }
}

impl GitTree {
    pub(super) async fn list_commit(git: &GitCommand, commit: &str) -> Result<GitTree> {
        let running = git.start_process(&["ls-tree", "-r", "-z", commit], false).await?;
        Ok(GitTree { running: Some(running) })
    }

    pub(super) async fn next_entry(&mut self) -> Result<Option<GitTreeEntry>> {
        let Some(running) = &mut self.running else { return Ok(None) };
        let mut line = Vec::new();
        let mut bounded = (&mut running.stdout).take(MAX_LISTING_LINE_BYTES);
        let read = bounded.read_until(0, &mut line).await;
        read.map_err(|error| git_problems::git_unusable_problem(&error))?;
        if line.is_empty() {
            // Only now it is known whether that was all.
            if let Some(running) = self.running.take() {
                running.wait_for_success("").await?;
            }
            return Ok(None);
        }
        parse_tree_line(&line)
            .map(Some)
            .ok_or_else(|| Problem::internal("git lists files in an unknown way"))
    }
}

/// `mode type id TAB path NUL`
fn parse_tree_line(line: &[u8]) -> Option<GitTreeEntry> {
    let line = line.strip_suffix(b"\0")?;
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    let (fields, path) = (std::str::from_utf8(&line[..tab]).ok()?, &line[tab + 1..]);
    let mut fields = fields.split(' ');
    let (mode, _kind, blob) = (fields.next()?, fields.next()?, fields.next()?);
    let path = source_id_from_path(Path::new(OsStr::from_bytes(path)));
    Some(GitTreeEntry { path, blob: blob.to_owned(), mode: mode.to_owned() })
}

/// Content by id; the processes for it are started when first asked.
pub(super) struct GitBlobReader<'a> {
    git: &'a GitCommand,
    sizes: Option<RunningGit>,
    contents: Option<RunningGit>,
}

impl<'a> GitBlobReader<'a> {
    pub(super) fn new(git: &'a GitCommand) -> Self {
        GitBlobReader { git, sizes: None, contents: None }
    }

    /// None where it was too large to be fetched.
    pub(super) async fn find_size(&mut self, blob: &str) -> Result<Option<u64>> {
        let running = ensure_started(self.git, &mut self.sizes, "--batch-check").await?;
        request_blob_size(running, blob).await
    }

    /// Of a blob whose size is known.
    pub(super) async fn read_content(&mut self, blob: &str, bytes: u64) -> Result<Vec<u8>> {
        let running = ensure_started(self.git, &mut self.contents, "--batch").await?;
        if request_blob_size(running, blob).await? != Some(bytes) {
            return Err(inconsistent_git_problem());
        }
        let mut content = Vec::new();
        // An empty line ends it.
        let read = (&mut running.stdout).take(bytes + 1).read_to_end(&mut content).await;
        read.map_err(|error| git_problems::git_unusable_problem(&error))?;
        match content.pop() {
            Some(b'\n') if content.len() as u64 == bytes => Ok(content),
            _ => Err(inconsistent_git_problem()),
        }
    }
}

async fn ensure_started<'b>(
    git: &GitCommand,
    running: &'b mut Option<RunningGit>,
    how: &str,
) -> Result<&'b mut RunningGit> {
    let new = match running.take() {
        Some(running) => running,
        None => git.start_process(&["cat-file", how], true).await?,
    };
    Ok(running.insert(new))
}

/// The size of a blob; none if it is not there.
async fn request_blob_size(running: &mut RunningGit, blob: &str) -> Result<Option<u64>> {
    running.write_line(&format!("{blob}\n")).await?;
    let mut line = String::new();
    let mut bounded = (&mut running.stdout).take(MAX_LISTING_LINE_BYTES);
    let read = bounded.read_line(&mut line).await;
    read.map_err(|error| git_problems::git_unusable_problem(&error))?;
    let mut fields = line.trim_end().split(' ');
    match (fields.next(), fields.next(), fields.next()) {
        (Some(_), Some("missing"), None) => Ok(None),
        (Some(id), Some("blob"), Some(bytes)) if id == blob => {
            bytes.parse().map(Some).map_err(|_| inconsistent_git_problem())
        }
        _ => Err(inconsistent_git_problem()),
    }
}

fn inconsistent_git_problem() -> Problem {
    Problem::unavailable("git does not give what it listed")
        .with_hint("the repository may be damaged: git fsck tells")
}
