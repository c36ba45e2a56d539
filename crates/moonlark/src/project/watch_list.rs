//! What of a project is watched for changes: the files it consists of, and the
//! folders in which another may appear. A log or a database that lies beside them
//! changes all the time and means nothing.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use super::Project;
use crate::extensions;
use crate::saved_scripts;
use crate::scripts::ScriptKey;
use moonlark_config::config_file;

/// What changes are told of, and which of those matter.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct WatchList {
    pub(crate) folders: BTreeSet<PathBuf>,
    /// Files and folders that matter by themselves.
    files: HashSet<PathBuf>,
    /// Folders in which any script, and any folder, matters.
    script_folders: HashSet<PathBuf>,
}

impl WatchList {
    /// Whether the project may be another one after a change at `path`.
    pub(crate) fn concerns_path(&self, path: &Path) -> bool {
        if self.files.contains(path) {
            return true;
        }
        let is_script = path
            .extension()
            .is_some_and(|ending| matches!(ending.to_str(), Some("lua" | "luau" | "star")));
        let in_script_folder =
            path.parent().is_some_and(|folder| self.script_folders.contains(folder));
        if is_script {
            return in_script_folder;
        }
        match path.symlink_metadata() {
            // A link may be what one of the files is found by.
            Ok(kind) => kind.is_symlink() || (kind.is_dir() && in_script_folder),
            // It may have been a folder.
            Err(_) => in_script_folder && path.extension().is_none(),
        }
    }

    fn add_file(&mut self, file: PathBuf) {
        if let Some(folder) = file.parent()
            && !self.folders.contains(folder)
        {
            self.folders.insert(folder.to_owned());
        }
        self.files.insert(file);
    }

    fn add_script_folder(&mut self, folder: PathBuf) {
        // Its parent tells when it appears.
        self.files.insert(folder.clone());
        self.folders.insert(folder.clone());
        self.script_folders.insert(folder);
    }
}

impl Project {
    /// What to watch, as the project is now.
    pub(crate) fn watch_list(&self) -> WatchList {
        let state = self.state.lock();
        let loaded = state.loaded.clone();
        let config = &loaded.config;
        let mut list = WatchList::default();
        list.folders.insert(loaded.root.clone());
        match &self.explicit {
            Some(path) => list.add_file(self.cwd.join(path)),
            None => list.add_file(self.cwd.join(config_file::CONFIG_FILE_NAME)),
        }
        loaded.path.iter().for_each(|path| list.add_file(path.clone()));
        if config.tools.watch {
            list.add_script_folder(loaded.root.join(&config.tools.dir));
            list.add_script_folder(loaded.root.join(&config.connectors.dir));
            list.add_script_folder(loaded.root.join(&config.agents.dir));
            list.add_script_folder(loaded.root.join(&config.scripts.dir));
            if saved_scripts::may_agents_save(config) {
                list.add_script_folder(saved_scripts::saved_scripts_folder(&loaded));
            }
            for (key, _) in &state.found {
                if let ScriptKey::Script(path) | ScriptKey::Agent(path) | ScriptKey::Saved(path) =
                    key
                {
                    list.add_file(path.clone());
                }
            }
            let files = state.scripts.values().flat_map(|it| it.source_files());
            files.for_each(|file| list.add_file(file));
        }
        drop(state);
        if config.extensions.watch {
            let folders = extensions::extension_folders(&loaded.root.join(&config.extensions.dir));
            folders.into_iter().for_each(|folder| list.add_script_folder(folder));
        }
        self.apis.document_files().into_iter().for_each(|file| list.add_file(file));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_project_consists_of_matters() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let mut list = WatchList::default();
        list.add_file(root.join("moonlark.toml"));
        list.add_file(root.join("lib/data.luau"));
        list.add_script_folder(root.join("tools"));
        std::fs::create_dir_all(root.join("tools/inner")).unwrap();
        std::fs::create_dir(root.join("elsewhere")).unwrap();
        for file in ["nohup.out", "tools/data.json", "tools/state.db"] {
            std::fs::write(root.join(file), "").unwrap();
        }
        std::os::unix::fs::symlink("elsewhere", root.join("..data")).unwrap();
        for (path, matters) in [
            ("moonlark.toml", true),
            ("nohup.out", false),
            ("elsewhere", false),
            // As Kubernetes replaces files.
            ("..data", true),
            ("tools", true),
            ("tools/new.lua", true),
            ("tools/gone.luau", true),
            ("tools/inner", true),
            ("tools/gone_folder", true),
            ("tools/data.json", false),
            ("tools/state.db", false),
            ("tools/state.db-journal", false),
            ("lib/data.luau", true),
            ("lib/other.luau", false),
        ] {
            assert_eq!(list.concerns_path(&root.join(path)), matters, "{path}");
        }
    }
}
