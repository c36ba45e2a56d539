//! The repository as files: where it is, what is in it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The folder that holds everything.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// A file by its path from the root, with forward slashes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn is(&self, ending: &str) -> bool {
        self.path.ends_with(ending)
    }

    /// Lines with their number from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// Every text file that people write or commit, in order of its path.
pub(crate) fn files() -> Result<Vec<File>> {
    let (root, mut files) = (root(), Vec::new());
    collect(&root, "", &mut files).context("cannot read the repository")?;
    files.sort();
    Ok(files)
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<File>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() && !is_made(&path, &name) {
            collect(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file()
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            files.push(File { path, text });
        }
    }
    Ok(())
}

/// Folders that tools make, as `.gitignore` has them, and git's own.
fn is_made(path: &str, name: &str) -> bool {
    path == "target" || matches!(name, ".git" | ".moonlark" | "node_modules" | "__pycache__")
}
