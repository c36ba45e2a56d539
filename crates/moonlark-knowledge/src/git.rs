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
use moonlark_core::limits::format_size;
use moonlark_core::tool::BoxFuture;
use moonlark_core::{Problem, ProblemCode, Result, SourceLocation, Value};

use crate::extract::file_extension;
use crate::globs::PathGlobs;
use crate::source_connector::{
    ItemContent, ScanFinding, ScanOutcome, SourceConnector, SourceItem, SourceScan,
};
use git_command::GitCommand as Command;
pub use git_fetch::redact_repository_url;
use git_objects::{GitBlobReader, GitBlobSize, GitTree, GitTreeEntry};
use web_url::ForgeWebUrl;

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
    inner: Arc<GitScanner>,
}

struct GitScanner {
    settings: GitSettings,
    globs: PathGlobs,
}

/// The commit that is read, and how.
struct GitHead {
    command: Command,
    commit: String,
    forge: Option<ForgeWebUrl>,
}

impl GitConnector {
    pub fn new(settings: GitSettings) -> Result<GitConnector> {
        let key = format!("connectors.git.{}", settings.name);
        let globs = PathGlobs::new(&key, &settings.include, &settings.exclude)?;
        let wrong = |field: &str, what: &str| {
            Err(Problem::bad_config(what)
                .at_location(SourceLocation::in_file(format!("{key}.{field}"))))
        };
        if settings.name.contains(['/', '\\']) || settings.name.starts_with('.') {
            return Err(Problem::bad_config("the name would be a path")
                .at_location(SourceLocation::in_file(key)));
        }
        // What begins like an option would be one to some program on the way.
        if let GitRepository::Url(url) = &settings.from {
            let bad = |char: char| char.is_control() || char.is_whitespace();
            if url.is_empty() || url.starts_with('-') || url.contains(bad) {
                return wrong("url", "the url is not one of a repository");
            }
        }
        if settings.branch.as_deref().is_some_and(|branch| !is_branch_name(branch)) {
            return wrong("branch", "no branch can have this name");
        }
        Ok(GitConnector { inner: Arc::new(GitScanner { settings, globs }) })
    }
}

impl SourceConnector for GitConnector {
    fn scan(&self, scan: SourceScan) -> BoxFuture<Result<ScanOutcome>> {
        let inner = self.inner.clone();
        Box::pin(async move { inner.scan_repository(&scan).await })
    }
}

impl GitScanner {
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
            GitBlobSize::Bytes(bytes) if bytes <= self.settings.max_file => {
                let content = blobs.read_content(&blob, bytes).await?;
                if content.starts_with(b"version https://git-lfs.github.com/") {
                    return Ok(ScanFinding::Skipped(
                        path,
                        "its content is not in git, but in LFS".into(),
                    ));
                }
                let forge = head.forge.as_ref();
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                Ok(ScanFinding::Item(Box::new(SourceItem {
                    title: None,
                    content: ItemContent::Bytes(content.into()),
                    content_type: None,
                    source_url: forge.map(|forge| forge.page_url(&path)),
                    author: None,
                    created_at: None,
                    updated_at: when,
                    metadata: Value::from_fields([
                        ("folder", folder.into()),
                        ("extension", file_extension(&path).into()),
                    ]),
                    stamp: Some(blob),
                    source_id: path,
                })))
            }
            size => Ok(ScanFinding::Skipped(path, self.too_large_reason(&size))),
        }
    }

    async fn fetch_head(&self, url: &str) -> Result<GitHead> {
        let command = git_fetch::fetch_newest(&self.settings, url).await?;
        let commit = command
            .resolve_commit(git_fetch::FETCHED_HEAD_REF)
            .await?
            .ok_or_else(|| self.empty_repository_problem())?;
        let branch = self.settings.branch.as_deref().unwrap_or("HEAD");
        Ok(GitHead { command, commit, forge: ForgeWebUrl::for_repository(url, branch, "") })
    }

    async fn open_local_head(&self, path: &std::path::Path) -> Result<GitHead> {
        let key = format!("connectors.git.{}.path", self.settings.name);
        let command = Command::for_reading(path)
            .map(|command| command.with_name(path.display().to_string()))
            .map_err(|problem| problem.at_location(SourceLocation::in_file(key.clone())))?;
        // Says whether it is a repository at all, and which part of it.
        let prefix = command.read_output(&["rev-parse", "--show-prefix"]).await;
        let prefix = prefix.map_err(|problem| problem.at_location(SourceLocation::in_file(key)))?;
        let commit = match &self.settings.branch {
            None => command
                .resolve_commit("HEAD")
                .await?
                .ok_or_else(|| self.empty_repository_problem())?,
            Some(branch) => self.resolve_branch(&command, branch).await?,
        };
        let branch = match &self.settings.branch {
            Some(branch) => branch.clone(),
            None => command.read_output(&["rev-parse", "--abbrev-ref", "HEAD"]).await?,
        };
        let origin = command.read_output(&["config", "--get", "remote.origin.url"]).await;
        let forge = origin.ok().and_then(|url| ForgeWebUrl::for_repository(&url, &branch, &prefix));
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

    fn too_large_reason(&self, found: &GitBlobSize) -> String {
        let shown = |bytes: u64| format_size(usize::try_from(bytes).unwrap_or(usize::MAX));
        let most = shown(self.settings.max_file);
        let key = format!("connectors.git.{}.max_file", self.settings.name);
        match found {
            GitBlobSize::Bytes(bytes) => format!("it has {}, and {key} is {most}", shown(*bytes)),
            GitBlobSize::NotFetched => format!("it has more than {key}, which is {most}"),
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
