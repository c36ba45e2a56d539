//! Starlark extensions on disk: which there are, and the files they load.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use moonlark_core::{Problem, Result, SourceLocation};
use moonlark_starlark::{ExtensionFile, MAX_EXTENSION_DATA_BYTES, ScriptFileReader};

use crate::scripts::{
    self, DiscoveredScript, MAX_SCRIPTS_PER_FOLDER, ScriptKind, display_path, read_script_text,
    read_text_up_to, too_many_scripts_problem,
};
use moonlark_config::ProjectConfig;
use moonlark_config::config_file::LoadedConfig;

/// Folders inside folders that are looked into.
const MAX_EXTENSION_FOLDER_DEPTH: usize = 8;

/// The folder that a script's files are in; `load()` and `require` stay inside.
#[derive(Debug, Clone)]
pub struct ScriptFolder {
    pub path: PathBuf,
    /// As messages show it.
    pub label: String,
    /// The script's main file in there.
    pub main: String,
}

/// Add every extension of the extensions folder to `found`.
pub fn find_extensions(
    loaded: &LoadedConfig,
    found: &mut Vec<DiscoveredScript>,
    problems: &mut Vec<Problem>,
) {
    let config = &loaded.config.extensions;
    let path = loaded.root.join(&config.dir);
    let label = display_path(&loaded.root, &path);
    let mut files = Vec::new();
    if let Err(error) = collect_extension_files(&path, "", 0, &mut files)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        problems.push(
            Problem::bad_config(format!("the extensions folder cannot be read: {error}"))
                .at_location(SourceLocation::in_file(config.dir.clone())),
        );
    }
    files.sort();
    problems.extend(too_many_scripts_problem(files.len(), &config.dir));
    files.truncate(MAX_SCRIPTS_PER_FOLDER);
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
        found.push(discovered_extension(&path, label.clone(), main, configured));
    }
}

/// The extension `main` of the folder at `path`.
pub fn discovered_extension(
    path: &Path,
    label: String,
    main: String,
    configured: Option<String>,
) -> DiscoveredScript {
    DiscoveredScript {
        path: path.join(&main),
        file: format!("{label}/{main}"),
        configured,
        kind: ScriptKind::Extension(ScriptFolder { path: path.to_owned(), label, main }),
    }
}

fn collect_extension_files(
    dir: &Path,
    inside: &str,
    depth: usize,
    files: &mut Vec<String>,
) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let Ok(entry) = entry else { continue };
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if name.starts_with(['.', '_', '#']) || files.len() > MAX_SCRIPTS_PER_FOLDER {
            continue;
        }
        let path = format!("{inside}{name}");
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if depth < MAX_EXTENSION_FOLDER_DEPTH {
                // A folder that vanishes while we look has no extensions.
                let _ =
                    collect_extension_files(&entry.path(), &format!("{path}/"), depth + 1, files);
            }
        } else if name.ends_with(".star") && !name.ends_with("_test.star") {
            files.push(path);
        }
    }
    Ok(())
}

/// All folders in which a change may concern an extension.
pub fn extension_folders(dir: &Path) -> Vec<PathBuf> {
    fn collect_folders(dir: &Path, depth: usize, all: &mut Vec<PathBuf>) {
        all.push(dir.to_owned());
        let Ok(entries) = std::fs::read_dir(dir) else { return };
        for entry in entries.filter_map(std::result::Result::ok) {
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if depth < MAX_EXTENSION_FOLDER_DEPTH
                && !hidden
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
            {
                collect_folders(&entry.path(), depth + 1, all);
            }
        }
    }
    let mut all = Vec::new();
    collect_folders(dir, 0, &mut all);
    all
}

/// The files of a folder. No path and no link leads out of it.
pub fn folder_files(folder: &ScriptFolder) -> ScriptFileReader {
    let (path, label) = (folder.path.clone(), folder.label.clone());
    Arc::new(move |file| {
        let shown = if label.is_empty() { file.to_owned() } else { format!("{label}/{file}") };
        let unreadable = |error: std::io::Error| {
            Problem::bad_script(format!("the script's folder cannot be read: {error}"))
                .at_location(SourceLocation::in_file(label.clone()))
        };
        let dir = Dir::open_ambient_dir(&path, ambient_authority()).map_err(unreadable)?;
        let is_file = dir.metadata(file).map(|kind| kind.is_file());
        if file.ends_with(".json") {
            return read_text_up_to(&shown, MAX_EXTENSION_DATA_BYTES, is_file, || dir.open(file));
        }
        read_script_text(&shown, is_file, || dir.open(file))
    })
}

/// An extension, ready to be loaded.
pub fn prepare_extension(
    found: &DiscoveredScript,
    folder: &ScriptFolder,
    config: &ProjectConfig,
) -> Result<ExtensionFile> {
    let (scope, loading) = scripts::script_scopes(found, config)?;
    Ok(ExtensionFile {
        folder: folder.label.clone(),
        main: folder.main.clone(),
        files: folder_files(folder),
        scope,
        loading: Arc::new(loading),
    })
}
