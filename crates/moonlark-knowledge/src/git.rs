//! Documents that are files of a git repository, as its last commit has them.
//!
//! The system's git does all of it, so whatever it can reach with the user's
//! keys and settings, Moonlark can. A repository elsewhere is fetched into a
//! folder of ours, its last commit only; one on this machine is read where it
//! is, and not touched.

mod command;
mod failure;
mod fetch;
mod forge;
mod objects;

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use moonlark_core::limits::size;
use moonlark_core::tool::BoxFuture;
use moonlark_core::{Code, Place, Problem, Result, Value};

use crate::extract::extension;
use crate::globs::Globs;
use crate::item::{Connector, Content, Found, Item, Scan, Scanned};
use command::Git as Command;
pub use fetch::without_secrets;
use forge::Forge;
use objects::{Blobs, Entry, Size, Tree};

#[derive(Debug, Clone)]
pub struct GitSettings {
    /// The source's name, for messages.
    pub name: String,
    pub from: Repository,
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
pub enum Repository {
    /// Whatever git takes for one, such as `https://…` or `git@host:path`.
    Url(String),
    /// On this machine: a work tree, a part of one, or a bare repository.
    Path(PathBuf),
}

pub struct Git {
    inner: Arc<Inner>,
}

struct Inner {
    settings: GitSettings,
    globs: Globs,
}

/// The commit that is read, and how.
struct Head {
    command: Command,
    commit: String,
    forge: Option<Forge>,
}

impl Git {
    pub fn new(settings: GitSettings) -> Result<Git> {
        let key = format!("connectors.git.{}", settings.name);
        let globs = Globs::new(&key, &settings.include, &settings.exclude)?;
        let wrong = |field: &str, what: &str| {
            Err(Problem::bad_config(what).at(Place::file(format!("{key}.{field}"))))
        };
        if settings.name.contains(['/', '\\']) || settings.name.starts_with('.') {
            return Err(Problem::bad_config("the name would be a path").at(Place::file(key)));
        }
        // What begins like an option would be one to some program on the way.
        if let Repository::Url(url) = &settings.from {
            let bad = |char: char| char.is_control() || char.is_whitespace();
            if url.is_empty() || url.starts_with('-') || url.contains(bad) {
                return wrong("url", "the url is not one of a repository");
            }
        }
        if settings.branch.as_deref().is_some_and(|branch| !is_branch(branch)) {
            return wrong("branch", "no branch can have this name");
        }
        Ok(Git { inner: Arc::new(Inner { settings, globs }) })
    }
}

impl Connector for Git {
    fn scan(&self, scan: Scan) -> BoxFuture<Result<Scanned>> {
        let inner = self.inner.clone();
        Box::pin(async move { inner.scan(&scan).await })
    }
}

impl Inner {
    async fn scan(&self, scan: &Scan) -> Result<Scanned> {
        let head = match &self.settings.from {
            Repository::Url(url) => self.fetched(url).await?,
            Repository::Path(path) => self.local(path).await?,
        };
        let when = head.command.committed(&head.commit).await?;
        let mut tree = Tree::list(&head.command, &head.commit).await?;
        let mut blobs = Blobs::of(&head.command);
        while let Some(entry) = tree.next().await? {
            if !self.globs.takes(&entry.path) {
                continue;
            }
            let found = self.look(&head, &mut blobs, entry, when, scan).await?;
            let closed = |_| Problem::new(Code::Cancelled, "the sync has ended");
            scan.out.send(found).await.map_err(closed)?;
        }
        let state = Value::object([("commit", head.commit.into())]);
        Ok(Scanned { complete: true, state })
    }

    async fn look(
        &self,
        head: &Head,
        blobs: &mut Blobs<'_>,
        entry: Entry,
        when: Option<Timestamp>,
        scan: &Scan,
    ) -> Result<Found> {
        let Entry { path, blob, .. } = match entry.skipped() {
            Some(reason) => return Ok(Found::Skipped(entry.path, reason.to_owned())),
            None => entry,
        };
        // The same id is the same content, whatever commit it is in.
        if (scan.known)(&path).is_some_and(|stamp| stamp == blob) {
            return Ok(Found::Same(path));
        }
        match blobs.size(&blob).await? {
            Size::Bytes(bytes) if bytes <= self.settings.max_file => {
                let content = blobs.content(&blob, bytes).await?;
                if content.starts_with(b"version https://git-lfs.github.com/") {
                    return Ok(Found::Skipped(
                        path,
                        "its content is not in git, but in LFS".into(),
                    ));
                }
                let forge = head.forge.as_ref();
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                Ok(Found::Item(Box::new(Item {
                    title: None,
                    content: Content::Bytes(content.into()),
                    content_type: None,
                    source_url: forge.map(|forge| forge.page(&path)),
                    author: None,
                    created_at: None,
                    updated_at: when,
                    metadata: Value::object([
                        ("folder", folder.into()),
                        ("extension", extension(&path).into()),
                    ]),
                    stamp: Some(blob),
                    source_id: path,
                })))
            }
            size => Ok(Found::Skipped(path, self.too_large(&size))),
        }
    }

    async fn fetched(&self, url: &str) -> Result<Head> {
        let command = fetch::newest(&self.settings, url).await?;
        let commit = command.commit(fetch::HEAD).await?.ok_or_else(|| self.empty())?;
        let branch = self.settings.branch.as_deref().unwrap_or("HEAD");
        Ok(Head { command, commit, forge: Forge::of(url, branch, "") })
    }

    async fn local(&self, path: &std::path::Path) -> Result<Head> {
        let key = format!("connectors.git.{}.path", self.settings.name);
        let command = Command::reading(path)
            .map(|command| command.named(path.display().to_string()))
            .map_err(|problem| problem.at(Place::file(key.clone())))?;
        // Says whether it is a repository at all, and which part of it.
        let prefix = command.line(&["rev-parse", "--show-prefix"]).await;
        let prefix = prefix.map_err(|problem| problem.at(Place::file(key)))?;
        let commit = match &self.settings.branch {
            None => command.commit("HEAD").await?.ok_or_else(|| self.empty())?,
            Some(branch) => self.branch(&command, branch).await?,
        };
        let branch = match &self.settings.branch {
            Some(branch) => branch.clone(),
            None => command.line(&["rev-parse", "--abbrev-ref", "HEAD"]).await?,
        };
        let origin = command.line(&["config", "--get", "remote.origin.url"]).await;
        let forge = origin.ok().and_then(|url| Forge::of(&url, &branch, &prefix));
        Ok(Head { command, commit, forge })
    }

    async fn branch(&self, command: &Command, branch: &str) -> Result<String> {
        for kind in ["heads", "remotes/origin", "tags"] {
            if let Some(commit) = command.commit(&format!("refs/{kind}/{branch}")).await? {
                return Ok(commit);
            }
        }
        Err(failure::no_branch(branch))
    }

    fn empty(&self) -> Problem {
        Problem::unavailable("the repository has no commits yet")
    }

    fn too_large(&self, found: &Size) -> String {
        let shown = |bytes: u64| size(usize::try_from(bytes).unwrap_or(usize::MAX));
        let most = shown(self.settings.max_file);
        let key = format!("connectors.git.{}.max_file", self.settings.name);
        match found {
            Size::Bytes(bytes) => format!("it has {}, and {key} is {most}", shown(*bytes)),
            Size::NotFetched => format!("it has more than {key}, which is {most}"),
        }
    }
}

/// What git allows, as far as it matters here.
fn is_branch(name: &str) -> bool {
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
