//! Starlark extensions on disk: which there are, and the files they load.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use moonlark_core::{Place, Problem, Result};
use moonlark_starlark::{Extension, Files, MAX_DATA_BYTES};

use crate::config::Config;
use crate::config_file::Loaded;
use crate::scripts::{self, Found, Kind, MAX_SCRIPTS, read_text, read_within, shown, too_many};

/// Folders inside folders that are looked into.
const DEPTH: usize = 8;

/// The folder that a script's files are in; `load()` and `require` stay inside.
#[derive(Debug, Clone)]
pub struct Folder {
    pub path: PathBuf,
    /// As messages show it.
    pub label: String,
    /// The script's main file in there.
    pub main: String,
}

/// Add every extension of the extensions folder to `found`.
pub fn find(loaded: &Loaded, found: &mut Vec<Found>, problems: &mut Vec<Problem>) {
    let config = &loaded.config.extensions;
    let path = loaded.root.join(&config.dir);
    let label = shown(&loaded.root, &path);
    let mut files = Vec::new();
    if let Err(error) = walk(&path, "", 0, &mut files)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        problems.push(
            Problem::bad_config(format!("the extensions folder cannot be read: {error}"))
                .at(Place::file(config.dir.clone())),
        );
    }
    files.sort();
    problems.extend(too_many(files.len(), &config.dir));
    files.truncate(MAX_SCRIPTS);
    let main_of =
        |name: &String| config.script[name].path.clone().unwrap_or_else(|| format!("{name}.star"));
    for name in config.script.keys() {
        let main = main_of(name);
        // One that is not there is a Problem of its own.
        if !files.contains(&main) {
            files.push(main);
        }
    }
    files.sort();
    for main in files {
        let configured = config.script.keys().find(|name| main_of(name) == main).cloned();
        found.push(extension(&path, label.clone(), main, configured));
    }
}

/// The extension `main` of the folder at `path`.
pub fn extension(path: &Path, label: String, main: String, configured: Option<String>) -> Found {
    Found {
        path: path.join(&main),
        file: format!("{label}/{main}"),
        configured,
        kind: Kind::Extension(Folder { path: path.to_owned(), label, main }),
    }
}

fn walk(dir: &Path, inside: &str, depth: usize, files: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let Ok(entry) = entry else { continue };
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if name.starts_with(['.', '_', '#']) || files.len() > MAX_SCRIPTS {
            continue;
        }
        let path = format!("{inside}{name}");
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if depth < DEPTH {
                // A folder that vanishes while we look has no extensions.
                let _ = walk(&entry.path(), &format!("{path}/"), depth + 1, files);
            }
        } else if name.ends_with(".star") && !name.ends_with("_test.star") {
            files.push(path);
        }
    }
    Ok(())
}

/// All folders in which a change may concern an extension.
pub fn folders(dir: &Path) -> Vec<PathBuf> {
    fn inner(dir: &Path, depth: usize, all: &mut Vec<PathBuf>) {
        all.push(dir.to_owned());
        let Ok(entries) = std::fs::read_dir(dir) else { return };
        for entry in entries.filter_map(std::result::Result::ok) {
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if depth < DEPTH && !hidden && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                inner(&entry.path(), depth + 1, all);
            }
        }
    }
    let mut all = Vec::new();
    inner(dir, 0, &mut all);
    all
}

/// The files of a folder. No path and no link leads out of it.
pub fn files(folder: &Folder) -> Files {
    let (path, label) = (folder.path.clone(), folder.label.clone());
    Arc::new(move |file| {
        let shown = if label.is_empty() { file.to_owned() } else { format!("{label}/{file}") };
        let unreadable = |error: std::io::Error| {
            Problem::bad_script(format!("the script's folder cannot be read: {error}"))
                .at(Place::file(label.clone()))
        };
        let dir = Dir::open_ambient_dir(&path, ambient_authority()).map_err(unreadable)?;
        let is_file = dir.metadata(file).map(|kind| kind.is_file());
        if file.ends_with(".json") {
            return read_within(&shown, MAX_DATA_BYTES, is_file, || dir.open(file));
        }
        read_text(&shown, is_file, || dir.open(file))
    })
}

/// An extension, ready to be loaded.
pub fn prepare(found: &Found, folder: &Folder, config: &Config) -> Result<Extension> {
    let (scope, loading) = scripts::scopes(found, config)?;
    Ok(Extension {
        folder: folder.label.clone(),
        main: folder.main.clone(),
        files: files(folder),
        scope,
        loading: Arc::new(loading),
    })
}
