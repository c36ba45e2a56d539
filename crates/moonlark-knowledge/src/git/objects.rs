//! What is in a commit: paths with their blobs, and the blobs' content.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use moonlark_core::{Problem, Result};
use tokio::io::{AsyncBufReadExt, AsyncReadExt};

use super::command::{Git, Running};
use super::failure;
use crate::filesystem::id;

/// Bytes of one line of a listing: longer than any path.
const LONGEST: u64 = 64 * 1024;

/// The files of a commit, one after the other.
pub(super) struct Tree {
    running: Option<Running>,
}

pub(super) struct Entry {
    pub(super) path: String,
    pub(super) blob: String,
    mode: String,
}

impl Entry {
    /// Why there is nothing to read.
    pub(super) fn skipped(&self) -> Option<&'static str> {
        match self.mode.as_str() {
            "120000" => Some("it is a link, and links are not followed"),
            "160000" => Some("it is another repository"),
            _ => None,
        }
    }
}

impl Tree {
    pub(super) async fn list(git: &Git, commit: &str) -> Result<Tree> {
        let running = git.start(&["ls-tree", "-r", "-z", commit], false).await?;
        Ok(Tree { running: Some(running) })
    }

    pub(super) async fn next(&mut self) -> Result<Option<Entry>> {
        let Some(running) = &mut self.running else { return Ok(None) };
        let mut line = Vec::new();
        let mut bounded = (&mut running.stdout).take(LONGEST);
        let read = bounded.read_until(0, &mut line).await;
        read.map_err(|error| failure::lost(&error))?;
        if line.is_empty() {
            // Only now it is known whether that was all.
            if let Some(running) = self.running.take() {
                running.ended("").await?;
            }
            return Ok(None);
        }
        parse(&line).map(Some).ok_or_else(|| Problem::internal("git lists files in an unknown way"))
    }
}

/// `mode type id TAB path NUL`
fn parse(line: &[u8]) -> Option<Entry> {
    let line = line.strip_suffix(b"\0")?;
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    let (fields, path) = (std::str::from_utf8(&line[..tab]).ok()?, &line[tab + 1..]);
    let mut fields = fields.split(' ');
    let (mode, _kind, blob) = (fields.next()?, fields.next()?, fields.next()?);
    let path = id(Path::new(OsStr::from_bytes(path)));
    Some(Entry { path, blob: blob.to_owned(), mode: mode.to_owned() })
}

/// Content by id; the processes for it are started when first asked.
pub(super) struct Blobs<'a> {
    git: &'a Git,
    sizes: Option<Running>,
    contents: Option<Running>,
}

pub(super) enum Size {
    Bytes(u64),
    /// It was too large to be fetched.
    NotFetched,
}

impl<'a> Blobs<'a> {
    pub(super) fn of(git: &'a Git) -> Self {
        Blobs { git, sizes: None, contents: None }
    }

    pub(super) async fn size(&mut self, blob: &str) -> Result<Size> {
        let running = started(self.git, &mut self.sizes, "--batch-check").await?;
        Ok(match ask(running, blob).await? {
            Some(bytes) => Size::Bytes(bytes),
            None => Size::NotFetched,
        })
    }

    /// Of a blob whose size is known.
    pub(super) async fn content(&mut self, blob: &str, bytes: u64) -> Result<Vec<u8>> {
        let running = started(self.git, &mut self.contents, "--batch").await?;
        if ask(running, blob).await? != Some(bytes) {
            return Err(confused());
        }
        let mut content = Vec::new();
        // An empty line ends it.
        let read = (&mut running.stdout).take(bytes + 1).read_to_end(&mut content).await;
        read.map_err(|error| failure::lost(&error))?;
        match content.pop() {
            Some(b'\n') if content.len() as u64 == bytes => Ok(content),
            _ => Err(confused()),
        }
    }
}

async fn started<'b>(
    git: &Git,
    running: &'b mut Option<Running>,
    how: &str,
) -> Result<&'b mut Running> {
    let new = match running.take() {
        Some(running) => running,
        None => git.start(&["cat-file", how], true).await?,
    };
    Ok(running.insert(new))
}

/// The size of a blob; none if it is not there.
async fn ask(running: &mut Running, blob: &str) -> Result<Option<u64>> {
    running.say(&format!("{blob}\n")).await?;
    let mut line = String::new();
    let mut bounded = (&mut running.stdout).take(LONGEST);
    bounded.read_line(&mut line).await.map_err(|error| failure::lost(&error))?;
    let mut fields = line.trim_end().split(' ');
    match (fields.next(), fields.next(), fields.next()) {
        (Some(_), Some("missing"), None) => Ok(None),
        (Some(id), Some("blob"), Some(bytes)) if id == blob => {
            bytes.parse().map(Some).map_err(|_| confused())
        }
        _ => Err(confused()),
    }
}

fn confused() -> Problem {
    Problem::unavailable("git does not give what it listed")
        .hint("the repository may be damaged: git fsck tells")
}
