//! What agents save, on disk: `NAME.luau` is the script in use, `versions/NAME.N.luau` what
//! it was before. Bounded for each caller and in total.
//!
//! Several processes of a project write one after the other, under a lock. What is in use
//! is decided by the files: whoever serves the project follows them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use moonlark_config::config_file::LoadedConfig;
use moonlark_core::{Problem, ProblemCode, Result, Tool};
use moonlark_state::atomic_file::create_private_folder;
use moonlark_state::state_folder::create_state_folder;
use moonlark_state::{LockFile, write_private_file};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::saved_file::SavedFile;
use super::{SavedScriptProduct, are_saves_shared, may_agents_save, saved_scripts_folder};
use crate::scripts::read_script;

/// Saved scripts of one caller, and of all.
const MAX_SCRIPTS_PER_OWNER: usize = 200;
const MAX_SAVED_SCRIPTS: usize = 2000;
/// The longest script that is saved.
pub(super) const MAX_SAVED_SCRIPT_BYTES: usize = 64 * 1024;
/// Versions of one script that are kept.
const MAX_KEPT_VERSIONS: usize = 20;
/// What the scripts of one caller take, versions included.
const MAX_BYTES_PER_OWNER: u64 = 16 * 1024 * 1024;
/// How long a save waits until what was saved is in use.
const MAX_PUBLISH_WAIT: Duration = Duration::from_secs(5);

const VERSIONS_FOLDER: &str = "versions";
const LOCK_FILE: &str = "lock";

/// Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct SavedScriptStore(Arc<StoreInner>);

#[derive(Default)]
struct StoreInner {
    place: Mutex<StorePlace>,
    tools: Mutex<Vec<Arc<Tool>>>,
    /// Wakes whoever loads scripts; none where nobody does.
    look_again: Mutex<Option<Arc<Notify>>>,
    /// The versions in use of what agents saved, by name.
    published: watch::Sender<HashMap<String, u32>>,
}

#[derive(Default, Clone)]
pub(super) struct StorePlace {
    pub(super) folder: PathBuf,
    /// What one caller saves is everybody's.
    pub(super) shared: bool,
}

/// A script in the store.
#[derive(Debug, Clone)]
pub(super) struct StoredScript {
    pub(super) name: String,
    pub(super) file: SavedFile,
}

impl SavedScriptStore {
    /// The tools that agents save with, if they may.
    pub(crate) fn tools_for_agents(&self, loaded: &LoadedConfig) -> Result<Vec<Arc<Tool>>> {
        if !may_agents_save(&loaded.config) {
            return Ok(Vec::new());
        }
        let place = StorePlace {
            folder: saved_scripts_folder(loaded),
            shared: are_saves_shared(&loaded.config),
        };
        // So that it can be watched before there is anything in it.
        if create_state_folder(&loaded.state).is_ok() {
            let _ = create_private_folder(&place.folder.join(VERSIONS_FOLDER));
        }
        *self.0.place.lock() = place;
        let mut tools = self.0.tools.lock();
        if tools.is_empty() {
            *tools = self.make_tools()?;
        }
        Ok(tools.clone())
    }

    pub(super) fn place(&self) -> StorePlace {
        self.0.place.lock().clone()
    }

    /// From now on somebody loads scripts when they are told.
    pub(crate) fn follow_changes(&self, look_again: Arc<Notify>) {
        *self.0.look_again.lock() = Some(look_again);
    }

    /// These scripts are in use.
    pub(crate) fn note_published<'a>(
        &self,
        scripts: impl Iterator<Item = &'a Arc<SavedScriptProduct>>,
    ) {
        // One of the project may have the same name.
        let versions: HashMap<String, u32> = scripts
            .filter(|it| it.version > 0)
            .map(|it| (it.script.name().to_owned(), it.version))
            .collect();
        self.0.published.send_if_modified(|known| {
            let is_new = *known != versions;
            if is_new {
                *known = versions;
            }
            is_new
        });
    }

    /// Whether this version is in use.
    pub(super) fn is_published(&self, name: &str, version: u32) -> bool {
        self.0.published.borrow().get(name) == Some(&version)
    }

    /// Wait until this version is in use, or none if the script was removed. Whether it is.
    pub(super) async fn wait_until_published(&self, name: &str, version: Option<u32>) -> bool {
        let Some(look_again) = self.0.look_again.lock().clone() else { return false };
        let mut published = self.0.published.subscribe();
        look_again.notify_one();
        let is_so = |known: &HashMap<String, u32>| known.get(name).copied() == version;
        let waited = tokio::time::timeout(MAX_PUBLISH_WAIT, published.wait_for(is_so)).await;
        matches!(waited, Ok(Ok(_)))
    }
}

impl StorePlace {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.luau"))
    }

    fn version_path(&self, name: &str, version: u32) -> PathBuf {
        self.folder.join(VERSIONS_FOLDER).join(format!("{name}.{version}.luau"))
    }

    fn lock(&self) -> Result<LockFile> {
        create_private_folder(&self.folder.join(VERSIONS_FOLDER))
            .and_then(|()| LockFile::acquire(&self.folder.join(LOCK_FILE)))
            .map_err(|error| unwritable_problem(&error))
    }

    /// Those that this caller may see, by name; all for whoever may.
    pub(super) fn list(&self, owner: Option<&str>) -> Vec<StoredScript> {
        let mut all = self.read_all();
        all.retain(|it| self.shared || owner.is_none_or(|owner| *it.file.owner == *owner));
        all
    }

    fn read_all(&self) -> Vec<StoredScript> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut all: Vec<StoredScript> = entries
            .filter_map(|entry| {
                let path = entry.path();
                let name = path.file_name()?.to_str()?.strip_suffix(".luau")?.to_owned();
                let file = read_saved_file(&path).ok()?;
                Some(StoredScript { name, file })
            })
            .collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// The script in use; none if there is none.
    pub(super) fn find(&self, name: &str) -> Result<Option<SavedFile>> {
        match read_saved_file(&self.path(name)) {
            Ok(file) => Ok(Some(file)),
            Err(problem) if problem.code == ProblemCode::NotFound => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// The versions that are kept, the newest first.
    pub(super) fn versions(&self, name: &str) -> Vec<SavedFile> {
        let entries =
            fs::read_dir(self.folder.join(VERSIONS_FOLDER)).into_iter().flatten().flatten();
        let mut all: Vec<SavedFile> = entries
            .filter(|entry| version_of(&entry.path(), name).is_some())
            .filter_map(|entry| read_saved_file(&entry.path()).ok())
            .collect();
        all.sort_by_key(|file| std::cmp::Reverse(file.version));
        all
    }

    /// Save a script: `may_replace` says whether one that is there may be replaced.
    pub(super) fn save(
        &self,
        name: &str,
        text: &str,
        owner: &Arc<str>,
        may_replace: impl FnOnce(&SavedFile) -> Result<()>,
    ) -> Result<u32> {
        if text.len() > MAX_SAVED_SCRIPT_BYTES {
            let most = MAX_SAVED_SCRIPT_BYTES >> 10;
            return Err(Problem::limit_exceeded(format!("a saved script may have {most} KB"))
                .with_hint("save what is common as a script of its own: sdk.scripts.NAME({ … })"));
        }
        let _lock = self.lock()?;
        let old = self.find(name)?;
        if let Some(old) = &old {
            may_replace(old)?;
        } else {
            self.check_room(owner)?;
        }
        let kept = self.versions(name);
        let last = kept.iter().chain(&old).map(|file| file.version).max().unwrap_or(0);
        let file = SavedFile {
            // It stays the caller's whose it was.
            owner: old.map_or_else(|| owner.clone(), |old| old.owner),
            version: last.saturating_add(1),
            saved_at: seconds_now(),
            text: text.to_owned(),
        };
        for oldest in kept.iter().skip(MAX_KEPT_VERSIONS - 1) {
            let _ = fs::remove_file(self.version_path(name, oldest.version));
        }
        let bytes = file.to_text();
        self.make_room(&file.owner, bytes.len() as u64 * 2)?;
        write_private_file(&self.version_path(name, file.version), &bytes)
            .and_then(|()| write_private_file(&self.path(name), &bytes))
            .map_err(|error| unwritable_problem(&error))?;
        Ok(file.version)
    }

    /// Remove a script with its versions.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        let _lock = self.lock()?;
        fs::remove_file(self.path(name)).map_err(|error| unwritable_problem(&error))?;
        for file in self.versions(name) {
            let _ = fs::remove_file(self.version_path(name, file.version));
        }
        Ok(())
    }

    fn check_room(&self, owner: &str) -> Result<()> {
        let all = self.read_all();
        let own = all.iter().filter(|it| *it.file.owner == *owner).count();
        if own < MAX_SCRIPTS_PER_OWNER && all.len() < MAX_SAVED_SCRIPTS {
            return Ok(());
        }
        let most = if own < MAX_SCRIPTS_PER_OWNER {
            format!("{MAX_SAVED_SCRIPTS} scripts are saved")
        } else {
            format!("{MAX_SCRIPTS_PER_OWNER} scripts of yours are saved")
        };
        Err(Problem::limit_exceeded(format!("{most}, which is all there may be"))
            .with_hint("remove one with remove_script; list_scripts has them"))
    }

    /// Remove the oldest versions of a caller's scripts until this much more fits.
    fn make_room(&self, owner: &str, more: u64) -> Result<()> {
        let folders = [self.folder.clone(), self.folder.join(VERSIONS_FOLDER)];
        let mut files: Vec<(u64, u64, bool, PathBuf)> = Vec::new();
        for (index, folder) in folders.iter().enumerate() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let Ok(file) = read_saved_file(&entry.path()) else { continue };
                if *file.owner == *owner {
                    let size = entry.metadata().map_or(0, |it| it.len());
                    files.push((file.saved_at, size, index == 1, entry.path()));
                }
            }
        }
        let mut taken: u64 = files.iter().map(|(_, size, ..)| size).sum();
        files.sort();
        for (_, size, is_old_version, path) in files {
            if taken + more <= MAX_BYTES_PER_OWNER {
                return Ok(());
            }
            if is_old_version && fs::remove_file(path).is_ok() {
                taken -= size;
            }
        }
        if taken + more <= MAX_BYTES_PER_OWNER {
            return Ok(());
        }
        let most = MAX_BYTES_PER_OWNER >> 20;
        Err(Problem::limit_exceeded(format!("the saved scripts of one caller may take {most} MB"))
            .with_hint("remove one with remove_script; list_scripts has them"))
    }
}

/// The version that a file is one of, if it is one of this script.
fn version_of(path: &Path, name: &str) -> Option<u32> {
    let file = path.file_name()?.to_str()?.strip_suffix(".luau")?;
    file.strip_prefix(name)?.strip_prefix('.')?.parse().ok()
}

fn read_saved_file(path: &Path) -> Result<SavedFile> {
    let shown = path.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
    SavedFile::parse(&shown, &read_script(path, &shown)?)
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs())
}

fn unwritable_problem(error: &std::io::Error) -> Problem {
    Problem::unavailable(format!("saved scripts cannot be written: {error}"))
        .with_retryable(false)
        .with_hint("the operator has to see to the folder .moonlark/scripts")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, StorePlace) {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace { folder: folder.path().join("scripts"), shared: false };
        (folder, place)
    }

    fn save(place: &StorePlace, name: &str, text: &str, owner: &str) -> Result<u32> {
        place.save(name, text, &owner.into(), |_| Ok(()))
    }

    #[test]
    fn versions_are_kept_up_to_a_number_and_the_owner_stays() {
        let (_folder, place) = store();
        for version in 1..=30 {
            let text = format!("return {version}");
            assert_eq!(
                save(&place, "report", &text, if version == 1 { "ann" } else { "ben" }),
                Ok(version)
            );
        }
        let kept: Vec<u32> = place.versions("report").iter().map(|it| it.version).collect();
        assert_eq!(kept, (11..=30).rev().collect::<Vec<_>>());
        let now = place.find("report").unwrap().unwrap();
        assert_eq!((&*now.owner, now.version, now.text.as_str()), ("ann", 30, "return 30"));
        assert_eq!(place.list(Some("ben")).len(), 0);
        assert_eq!(place.list(Some("ann")).len(), 1);
        place.remove("report").unwrap();
        assert!(place.find("report").unwrap().is_none() && place.versions("report").is_empty());
    }

    #[test]
    fn a_version_of_another_script_is_none_of_this_one() {
        let (_folder, place) = store();
        save(&place, "report", "return 1", "ann").unwrap();
        save(&place, "report_2", "return 2", "ann").unwrap();
        assert_eq!(place.versions("report").len(), 1);
        assert_eq!(place.versions("report")[0].text, "return 1");
    }

    #[test]
    fn one_caller_has_a_bounded_number_of_scripts_and_others_have_theirs() {
        let (_folder, place) = store();
        for number in 0..MAX_SCRIPTS_PER_OWNER {
            save(&place, &format!("s{number}"), "return 1", "ann").unwrap();
        }
        let problem = save(&place, "more", "return 1", "ann").unwrap_err();
        assert_eq!(problem.code, ProblemCode::Limit);
        assert_eq!(save(&place, "more", "return 1", "ben"), Ok(1));
        assert_eq!(save(&place, "s0", "return 2", "ann"), Ok(2));
    }

    #[test]
    fn what_one_caller_takes_is_bounded_and_the_oldest_versions_go_first() {
        let (_folder, place) = store();
        let text = "-".repeat(MAX_SAVED_SCRIPT_BYTES);
        for number in 0..100 {
            for _ in 0..3 {
                save(&place, &format!("s{number}"), &text, "ann").unwrap();
            }
        }
        let bytes = |folder: &Path| -> u64 {
            let files = fs::read_dir(folder).unwrap().flatten();
            files
                .filter_map(|it| it.metadata().ok())
                .filter(|it| it.is_file())
                .map(|it| it.len())
                .sum()
        };
        let all = bytes(&place.folder) + bytes(&place.folder.join(VERSIONS_FOLDER));
        assert!(all <= MAX_BYTES_PER_OWNER, "{all}");
        // All that are in use are there.
        assert_eq!(place.list(Some("ann")).len(), 100);
        assert!(save(&place, "long", &format!("{text}-"), "ann").is_err());
    }
}
