//! Documents that are files below a folder.
//!
//! What ignore files name is left out, as people know it from git and ripgrep.
//! Nothing outside the folder is ever read: links are not followed, and files
//! are opened from an open descriptor of the folder.

mod stable_read;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use ignore::{DirEntry, WalkBuilder};
use moonlark_core::limits::format_size;
use moonlark_core::tool::BoxFuture;
use moonlark_core::{Problem, ProblemCode, Result, SourceLocation, Value};

use crate::globs::PathGlobs;
use crate::source_connector::{ScanFinding, ScanOutcome, SourceConnector, SourceItem, SourceScan};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use stable_read::{FileReadOutcome, FileStat};

#[derive(Debug, Clone)]
pub struct FilesystemSettings {
    /// The source's name, for messages.
    pub name: String,
    pub root: PathBuf,
    /// Nothing means everything.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    /// Take files and folders whose names begin with a dot.
    pub hidden: bool,
    /// Bytes; a larger file is not read.
    pub max_file: u64,
    /// Where the files are on the web, if they are: before their paths.
    pub url: Option<String>,
}

pub struct FilesystemConnector {
    settings: FilesystemSettings,
    globs: PathGlobs,
}

/// A file of ours that says what not to read.
const IGNORE_FILE_NAME: &str = ".moonlarkignore";

impl FilesystemConnector {
    pub fn new(settings: FilesystemSettings) -> Result<FilesystemConnector> {
        let key = format!("connectors.filesystem.{}", settings.name);
        let globs = PathGlobs::new(&key, &settings.include, &settings.exclude)?;
        Ok(FilesystemConnector { settings, globs })
    }
}

impl SourceConnector for FilesystemConnector {
    fn scan(self: Arc<Self>, scan: SourceScan) -> BoxFuture<Result<ScanOutcome>> {
        Box::pin(async move {
            // It ends when nobody listens any more.
            let scanned = tokio::task::spawn_blocking(move || self.scan_folder(&scan)).await;
            scanned.unwrap_or_else(|error| {
                Err(Problem::internal(format!("reading the folder ended: {error}")))
            })
        })
    }
}

impl FilesystemConnector {
    fn scan_folder(&self, scan: &SourceScan) -> Result<ScanOutcome> {
        let (root, before) = self.resolve_root()?;
        let dir = Dir::open_ambient_dir(&root, ambient_authority())
            .map_err(|error| self.unusable_root_problem(&error))?;
        let mut complete = true;
        for entry in self.walk_folder(&root) {
            let found = match entry {
                Ok(entry) => self.inspect_entry(&root, &dir, &entry, scan),
                // What is in a folder that cannot be listed stays as it was, so
                // nothing may count as gone for not being named.
                Err(error) => folder_problem(&root, &error).map(|(path, problem)| {
                    complete = false;
                    ScanFinding::Failed(path, problem)
                }),
            };
            if let Some(found) = found {
                let closed = |_| Problem::new(ProblemCode::Cancelled, "the sync has ended");
                scan.out.blocking_send(found).map_err(closed)?;
            }
        }
        // A disk that went away meanwhile must not look like an empty one.
        if self.resolve_root()?.1 == before {
            return Ok(ScanOutcome { complete, state: Value::Null });
        }
        let shown = self.settings.root.display();
        Err(Problem::unavailable(format!("the folder {shown} became another while it was read"))
            .with_hint("sync again"))
    }

    /// The folder as it is now, and which one that is.
    fn resolve_root(&self) -> Result<(PathBuf, (u64, u64))> {
        use std::os::unix::fs::MetadataExt;
        let unusable = |error| self.unusable_root_problem(&error);
        let root = self.settings.root.canonicalize().map_err(unusable)?;
        let found = root.metadata().map_err(unusable)?;
        if !found.is_dir() {
            let shown = self.settings.root.display();
            return Err(Problem::bad_config(format!("{shown} is not a folder"))
                .at_location(SourceLocation::in_file(self.config_key()))
                .with_hint("root is the folder that the documents are in"));
        }
        Ok((root, (found.dev(), found.ino())))
    }

    fn walk_folder(&self, root: &Path) -> ignore::Walk {
        let globs = self.globs.clone();
        let above = root.to_owned();
        WalkBuilder::new(root)
            .hidden(!self.settings.hidden)
            .follow_links(false)
            // Ignore files count without a repository too; those of the user's
            // whole account do not.
            .require_git(false)
            .git_global(false)
            .add_custom_ignore_filename(IGNORE_FILE_NAME)
            .sort_by_file_name(|a, b| a.cmp(b))
            .filter_entry(move |entry| {
                let name = entry.file_name();
                let Ok(below) = entry.path().strip_prefix(&above) else { return false };
                entry.depth() == 0
                    || (name != ".git"
                        && name != ".moonlark"
                        && !globs.is_excluded(&source_id_from_path(below)))
            })
            .build()
    }

    fn inspect_entry(
        &self,
        root: &Path,
        dir: &Dir,
        entry: &DirEntry,
        scan: &SourceScan,
    ) -> Option<ScanFinding> {
        let path = entry.path().strip_prefix(root).ok()?;
        let kind = entry.file_type()?;
        let id = source_id_from_path(path);
        if kind.is_dir() || !self.globs.is_included(&id) {
            return None;
        }
        if kind.is_symlink() {
            let reason = "it is a link, and links are not followed".to_owned();
            return Some(ScanFinding::Skipped(id, reason));
        }
        let irregular = || "it is not a regular file".to_owned();
        if !kind.is_file() {
            return Some(ScanFinding::Skipped(id, irregular()));
        }
        let stat = match entry.metadata() {
            Ok(metadata) => FileStat::from_metadata(&metadata),
            Err(error) => return self.read_failure(id, error.into_io_error()?),
        };
        if stat.size > self.settings.max_file {
            return Some(ScanFinding::Skipped(id, self.too_large_reason(stat.size)));
        }
        if (scan.known)(&id).is_some_and(|stamp| stamp == stat.stamp()) {
            return Some(ScanFinding::Same(id));
        }
        Some(match stable_read::read_stable(dir, path, self.settings.max_file) {
            Ok(FileReadOutcome::Content(bytes, stat)) => ScanFinding::Item(Box::new(SourceItem {
                source_url: self.settings.url.as_deref().map(|url| join_url_path(url, &id)),
                updated_at: stat.modified_at(),
                stamp: stat.is_settled().then(|| stat.stamp()),
                ..SourceItem::from_file(id, bytes)
            })),
            Ok(FileReadOutcome::TooLarge(size)) => {
                ScanFinding::Skipped(id, self.too_large_reason(size))
            }
            Ok(FileReadOutcome::Other) => ScanFinding::Skipped(id, irregular()),
            Ok(FileReadOutcome::Unsettled) => ScanFinding::Failed(
                id,
                Problem::unavailable("the file changes while it is read")
                    .with_hint("it is read again at the next sync"),
            ),
            Err(error) => return self.read_failure(id, error),
        })
    }

    /// None when it is gone: that is no problem, it is just not there.
    fn read_failure(&self, id: String, error: std::io::Error) -> Option<ScanFinding> {
        if error.kind() == std::io::ErrorKind::NotFound {
            return None;
        }
        Some(ScanFinding::Failed(id, unreadable_problem("the file", &error)))
    }

    fn too_large_reason(&self, bytes: u64) -> String {
        let (has, most) = (format_file_size(bytes), format_file_size(self.settings.max_file));
        format!("it has {has}, and {}.max_file is {most}", self.config_key())
    }

    fn config_key(&self) -> String {
        format!("connectors.filesystem.{}", self.settings.name)
    }

    fn unusable_root_problem(&self, error: &std::io::Error) -> Problem {
        let shown = self.settings.root.display();
        let problem = match error.kind() {
            std::io::ErrorKind::NotFound => {
                Problem::not_found(format!("there is no folder {shown}"))
            }
            kind => Problem::unavailable(format!("the folder {shown} cannot be read: {kind}")),
        };
        problem
            .at_location(SourceLocation::in_file(format!("{}.root", self.config_key())))
            .with_hint(
                "what was read of it before stays; correct root, or mount what belongs there",
            )
    }
}

pub(crate) fn format_file_size(bytes: u64) -> String {
    format_size(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// A folder that cannot be listed; none if it is only gone.
fn folder_problem(root: &Path, error: &ignore::Error) -> Option<(String, Problem)> {
    let io = error.io_error();
    if io.is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return None;
    }
    let path = error_path(error)
        .and_then(|path| path.strip_prefix(root).ok())
        .map_or(".".into(), source_id_from_path);
    let problem = match io {
        Some(error) => unreadable_problem("the folder", error),
        None => Problem::unavailable(format!("the folder cannot be read: {error}")),
    };
    Some((path, problem))
}

fn error_path(error: &ignore::Error) -> Option<&Path> {
    // Wrapped a few times: line, depth, path.
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => {
            error_path(err)
        }
        _ => None,
    }
}

fn unreadable_problem(what: &str, error: &std::io::Error) -> Problem {
    let problem = Problem::unavailable(format!("{what} cannot be read: {}", error.kind()));
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => problem
            .with_hint("give the user that runs Moonlark the right to read it, or exclude it"),
        _ => problem,
    }
}

/// A path as the source's name for it. Bytes that are no text are written as in
/// URLs.
pub(crate) fn source_id_from_path(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut out = String::new();
    for part in path.as_os_str().as_bytes().utf8_chunks() {
        out.push_str(part.valid());
        for byte in part.invalid() {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The address of a path below another.
pub(crate) fn join_url_path(url: &str, path: &str) -> String {
    const ESCAPED_IN_PATHS: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');
    format!("{}/{}", url.trim_end_matches('/'), utf8_percent_encode(path, ESCAPED_IN_PATHS))
}

#[cfg(test)]
mod tests;
