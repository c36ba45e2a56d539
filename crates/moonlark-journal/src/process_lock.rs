//! Liveness of processes: each holds the lock of a file for as long as it lives, and the
//! system lets go of it however the process ends.

use std::path::{Path, PathBuf};

use moonlark_core::record_id::RecordId;
use moonlark_core::{Problem, Result};
use moonlark_state::LockFile;
use moonlark_state::atomic_file::create_private_folder;

/// This process, as others see it.
pub(crate) struct ProcessLock {
    pub(crate) lock: String,
    path: PathBuf,
    _file: LockFile,
}

impl ProcessLock {
    /// Say that this process writes to the database at `file`.
    pub(crate) fn acquire(file: &Path) -> Result<ProcessLock> {
        let folder = locks_folder(file);
        let lock = RecordId::new().to_string();
        let path = folder.join(&lock);
        // Locked before it is there by its name: nobody must take it for left over.
        let aside = path.with_extension("new");
        let begun = create_private_folder(&folder)
            .and_then(|()| LockFile::acquire(&aside))
            .and_then(|file| std::fs::rename(&aside, &path).map(|()| file));
        let _file = begun.map_err(|error| {
            Problem::unavailable(format!("{} cannot be locked: {error}", path.display()))
                .with_retryable(false)
        })?;
        Ok(ProcessLock { lock, path, _file })
    }
}

impl Drop for ProcessLock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the process with this lock still writes to the database at `file`.
pub(crate) fn is_process_alive(file: &Path, lock: &str) -> bool {
    LockFile::is_held(&locks_folder(file).join(lock))
}

/// The locks of the processes that write to the database at `file`.
pub(crate) fn alive_locks(file: &Path) -> Vec<String> {
    list_locks(file).filter(|lock| is_process_alive(file, lock)).collect()
}

/// Remove what processes left that were killed.
pub(crate) fn remove_stale_locks(file: &Path) {
    let ours = list_locks(file).filter(|lock| lock.parse::<RecordId>().is_ok());
    for lock in ours.filter(|lock| !is_process_alive(file, lock)) {
        let _ = std::fs::remove_file(locks_folder(file).join(lock));
    }
}

fn list_locks(file: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(locks_folder(file)).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

fn locks_folder(file: &Path) -> PathBuf {
    file.with_extension("locks")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_until_its_lock_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal.db");
        let process = ProcessLock::acquire(&file).unwrap();
        let lock = process.lock.clone();
        assert!(is_process_alive(&file, &lock));
        remove_stale_locks(&file);
        assert!(is_process_alive(&file, &lock));
        drop(process);
        assert!(!is_process_alive(&file, &lock));
    }

    #[test]
    fn what_a_killed_process_left_is_not_alive() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal.db");
        let left = RecordId::new().to_string();
        std::fs::create_dir(folder.path().join("journal.locks")).unwrap();
        std::fs::write(folder.path().join("journal.locks").join(&left), "").unwrap();
        assert!(!is_process_alive(&file, &left));
        remove_stale_locks(&file);
        assert_eq!(std::fs::read_dir(folder.path().join("journal.locks")).unwrap().count(), 0);
    }
}
