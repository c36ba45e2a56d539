//! Documents that are files of a git repository, as its last commit has them.
//!
//! The system's git does all of it, so whatever it can reach with the user's
//! keys and settings, Moonlark can. A repository elsewhere is fetched into a
//! folder of ours, its last commit only; one on this machine is read where it
//! is, and not touched.

mod git_command;
mod git_fetch;
mod git_objects;
mod git_problems;
mod web_url;

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use moonlark_core::tool::BoxFuture;
use moonlark_core::{Problem, ProblemCode, Result, SourceLocation, Value};

use crate::filesystem::{format_file_size, join_url_path};
use crate::globs::PathGlobs;
use crate::source_connector::{ScanFinding, ScanOutcome, SourceConnector, SourceItem, SourceScan};
use git_command::GitCommand as Command;
pub use git_fetch::redact_repository_url;
use git_objects::{GitBlobReader, GitTree, GitTreeEntry};
use web_url::forge_folder_url;

#[derive(Debug, Clone)]
pub struct GitSettings {
    /// The source's name, for messages.
    pub name: String,
    pub from: GitRepository,
    /// The one that the repository itself considers its main one if it is none.
    pub branch: Option<String>,
    /// Nothing means everything.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    /// Bytes; a larger file is neither fetched nor read.
    pub max_file: u64,
    /// A folder of ours for what is fetched, for this source alone.
    pub cache: PathBuf,
}

#[derive(Debug, Clone)]
pub enum GitRepository {
    /// Whatever git takes for one, such as `https://…` or `git@host:path`.
    Url(String),
    /// On this machine: a work tree, a part of one, or a bare repository.
    Path(PathBuf),
}

pub struct GitConnector {
    settings: GitSettings,
    globs: PathGlobs,
}

/// The commit that is read, and how.
struct GitHead {
    command: Command,
    commit: String,
    /// Where its files are on the web, if that is known.
    forge: Option<String>,
}

impl GitConnector {
    pub fn new(settings: GitSettings) -> Result<GitConnector> {
        let key = format!("connectors.git.{}", settings.name);
        let globs = PathGlobs::new(&key, &settings.include, &settings.exclude)?;
        let wrong = |field: &str, what: &str| {
            let place = SourceLocation::in_file(format!("{key}{field}"));
            Err(Problem::bad_config(what).at_location(place))
        };
        if settings.name.contains(['/', '\\']) || settings.name.starts_with('.') {
            return wrong("", "the name would be a path");
        }
        // What begins like an option would be one to some program on the way.
        if let GitRepository::Url(url) = &settings.from {
            let bad = |char: char| char.is_control() || char.is_whitespace();
            if url.is_empty() || url.starts_with('-') || url.contains(bad) {
                return wrong(".url", "the url is not one of a repository");
            }
        }
        if settings.branch.as_deref().is_some_and(|branch| !is_branch_name(branch)) {
            return wrong(".branch", "no branch can have this name");
        }
        Ok(GitConnector { settings, globs })
    }
}

impl SourceConnector for GitConnector {
    fn scan(self: Arc<Self>, scan: SourceScan) -> BoxFuture<Result<ScanOutcome>> {
        Box::pin(async move { self.scan_repository(&scan).await })
    }
}

impl GitConnector {
    async fn scan_repository(&self, scan: &SourceScan) -> Result<ScanOutcome> {
        let head = match &self.settings.from {
            GitRepository::Url(url) => self.fetch_head(url).await?,
            GitRepository::Path(path) => self.open_local_head(path).await?,
        };
        let when = head.command.commit_time(&head.commit).await?;
        let mut tree = GitTree::list_commit(&head.command, &head.commit).await?;
        let mut blobs = GitBlobReader::new(&head.command);
        while let Some(entry) = tree.next_entry().await? {
            if !self.globs.is_included(&entry.path) {
                continue;
            }
            let found = self.inspect_entry(&head, &mut blobs, entry, when, scan).await?;
            let closed = |_| Problem::new(ProblemCode::Cancelled, "the sync has ended");
            scan.out.send(found).await.map_err(closed)?;
        }
        let state = Value::from_fields([("commit", head.commit.into())]);
        Ok(ScanOutcome { complete: true, state })
    }

    async fn inspect_entry(
        &self,
        head: &GitHead,
        blobs: &mut GitBlobReader<'_>,
        entry: GitTreeEntry,
        when: Option<Timestamp>,
        scan: &SourceScan,
    ) -> Result<ScanFinding> {
        let GitTreeEntry { path, blob, .. } = match entry.skip_reason() {
            Some(reason) => return Ok(ScanFinding::Skipped(entry.path, reason.to_owned())),
            None => entry,
        };
        // The same id is the same content, whatever commit it is in.
        if (scan.known)(&path).is_some_and(|stamp| stamp == blob) {
            return Ok(ScanFinding::Same(path));
        }
        match blobs.find_size(&blob).await? {
            Some(bytes) if bytes <= self.settings.max_file => {
                let content = blobs.read_content(&blob, bytes).await?;
                if content.starts_with(b"version https://git-lfs.github.com/") {
                    let reason = "its content is not in git, but in LFS".to_owned();
                    return Ok(ScanFinding::Skipped(path, reason));
                }
                Ok(ScanFinding::Item(Box::new(SourceItem {
                    source_url: head.forge.as_ref().map(|folder| join_url_path(folder, &path)),
                    updated_at: when,
                    stamp: Some(blob),
                    ..SourceItem::from_file(path, content)
                })))
            }
            size => Ok(ScanFinding::Skipped(path, self.too_large_reason(size))),
        }
    }

    async fn fetch_head(&self, url: &str) -> Result<GitHead> {
        let command = git_fetch::fetch_newest(&self.settings, url).await?;
        let commit = command.resolve_commit(git_fetch::FETCHED_HEAD_REF).await?;
        let commit = commit.ok_or_else(|| self.empty_repository_problem())?;
        let branch = self.settings.branch.as_deref().unwrap_or("HEAD");
        Ok(GitHead { command, commit, forge: forge_folder_url(url, branch, "") })
    }

    async fn open_local_head(&self, path: &std::path::Path) -> Result<GitHead> {
        let key = format!("connectors.git.{}.path", self.settings.name);
        let command = Command::for_reading(path)
            .map(|command| command.with_name(path.display().to_string()))
            .map_err(|problem| problem.at_location(SourceLocation::in_file(key.clone())))?;
        // Says whether it is a repository at all, and which part of it.
        let prefix = command.read_output(&["rev-parse", "--show-prefix"]).await;
        let prefix = prefix.map_err(|problem| problem.at_location(SourceLocation::in_file(key)))?;
        let (commit, branch) = match &self.settings.branch {
            Some(branch) => (self.resolve_branch(&command, branch).await?, branch.clone()),
            None => {
                let commit = command.resolve_commit("HEAD").await?;
                let commit = commit.ok_or_else(|| self.empty_repository_problem())?;
                (commit, command.read_output(&["rev-parse", "--abbrev-ref", "HEAD"]).await?)
            }
        };
        let origin = command.read_output(&["config", "--get", "remote.origin.url"]).await;
        let forge = origin.ok().and_then(|url| forge_folder_url(&url, &branch, &prefix));
        Ok(GitHead { command, commit, forge })
    }

    async fn resolve_branch(&self, command: &Command, branch: &str) -> Result<String> {
        for kind in ["heads", "remotes/origin", "tags"] {
            if let Some(commit) = command.resolve_commit(&format!("refs/{kind}/{branch}")).await? {
                return Ok(commit);
            }
        }
        Err(git_problems::no_branch_problem(branch))
    }

    fn empty_repository_problem(&self) -> Problem {
        Problem::unavailable("the repository has no commits yet")
    }

    /// Of no size where it was too large to be fetched.
    fn too_large_reason(&self, size: Option<u64>) -> String {
        let most = format_file_size(self.settings.max_file);
        let key = format!("connectors.git.{}.max_file", self.settings.name);
        match size.map(format_file_size) {
            Some(size) => format!("it has {size}, and {key} is {most}"),
            None => format!("it has more than {key}, which is {most}"),
        }
    }
}

/// What git allows, as far as it matters here.
fn is_branch_name(name: &str) -> bool {
    let bad = |char: char| char.is_control() || " ~^:?*[\\".contains(char);
    !name.is_empty()
        && name.len() < 250
        && !name.starts_with(['-', '/', '.'])
        && !name.ends_with(['/', '.'])
        && !name.contains("..")
        && !name.contains("@{")
        && !name.contains("//")
        && !name.contains(bad)
}

#[cfg(test)]
mod tests;
