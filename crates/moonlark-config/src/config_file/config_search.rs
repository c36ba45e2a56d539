//! Configuration lookup: the file that was named, the one of this folder or of a folder
//! above it, or the user's.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use moonlark_state::EnvLookup;

use super::CONFIG_FILE_NAME;

pub(super) struct FoundConfigFile {
    pub(super) path: PathBuf,
    /// The path as the reader knows it.
    pub(super) label: String,
}

pub(super) fn find_config_file(
    explicit: Option<&Path>,
    cwd: &Path,
    env: EnvLookup<'_>,
) -> Option<FoundConfigFile> {
    if let Some(path) = explicit {
        return Some(FoundConfigFile { path: cwd.join(path), label: path.display().to_string() });
    }
    let local = cwd.join(CONFIG_FILE_NAME);
    if path_exists(&local) {
        return Some(FoundConfigFile { path: local, label: CONFIG_FILE_NAME.to_owned() });
    }
    if let Some(found) = find_in_ancestors(cwd, env) {
        return Some(found);
    }
    let path = user_config_dir(env)?.join("moonlark").join(CONFIG_FILE_NAME);
    path_exists(&path).then(|| FoundConfigFile { label: path.display().to_string(), path })
}

/// In the folders above, as git looks for a repository: up to the home folder or the
/// border of the file system. A file that somebody else put there is not taken, since
/// it would say which programs this user starts.
fn find_in_ancestors(cwd: &Path, env: EnvLookup<'_>) -> Option<FoundConfigFile> {
    let device = |folder: &Path| folder.metadata().ok().map(|it| it.dev());
    let home = env("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let here = device(cwd)?;
    let mut up = String::new();
    for folder in cwd.ancestors() {
        if device(folder) != Some(here) {
            return None;
        }
        let path = folder.join(CONFIG_FILE_NAME);
        if !up.is_empty() && path_exists(&path) {
            if is_trusted_file(&path) {
                return Some(FoundConfigFile { label: format!("{up}{CONFIG_FILE_NAME}"), path });
            }
            tracing::warn!("{} belongs to another user and is not used", path.display());
        }
        if home.as_deref() == Some(folder) {
            return None;
        }
        up.push_str("../");
    }
    None
}

fn is_trusted_file(path: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let of_owner = |owner: u32| owner == own || owner == 0;
    path.metadata().is_ok_and(|file| of_owner(file.uid()))
        && path.parent().and_then(|folder| folder.metadata().ok()).is_some_and(|folder| {
            // In a folder like /tmp everybody can put a link to somebody's file.
            of_owner(folder.uid()) && (folder.mode() & 0o002 == 0 || !path.is_symlink())
        })
}

/// A file that is there but cannot be read, or a dangling link, counts as there:
/// its owner meant it, and silently running on defaults would hide the mistake.
fn path_exists(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(_) => true,
        Err(error) => {
            !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        }
    }
}

/// Relative values are ignored, as the XDG specification asks.
fn user_config_dir(env: EnvLookup<'_>) -> Option<PathBuf> {
    let absolute = |name| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))
}
