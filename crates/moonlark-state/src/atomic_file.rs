//! Atomic file writes: under another name beside, flushed to the disk, then renamed. A
//! reader sees the old content or the new one, also after a crash; a writer that fails
//! leaves nothing behind.
//!
//! The name beside says which process writes, `tokens.json.1234-0.partial`, so that
//! [`crate::state_folder::remove_stale_partial_files`] can remove what a killed one left.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const PRIVATE_FILE_MODE: u32 = 0o600;
const PRIVATE_FOLDER_MODE: u32 = 0o700;
/// As any new file: less what the umask takes away.
const SHARED_FILE_MODE: u32 = 0o666;

/// Replace or make a file that only this user may read, and make its folder.
pub fn write_private_file(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    create_private_folder(parent_folder(path))?;
    PartialFile::write(path, bytes.as_ref(), PRIVATE_FILE_MODE, None)?.replace(path)
}

/// Make a file that only this user may read, unless there is one: false, and that one
/// stays as it is. Of several processes that make one at once, one succeeds.
pub fn create_private_file(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<bool> {
    create_private_folder(parent_folder(path))?;
    PartialFile::write(path, bytes.as_ref(), PRIVATE_FILE_MODE, None)?.link_if_missing(path)
}

/// Replace or make a file that people and other programs use too. One that is there keeps
/// its mode, and a link keeps leading to it.
pub fn write_user_file(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let target = match fs::symlink_metadata(path) {
        Ok(there) if there.is_symlink() => fs::canonicalize(path)?,
        _ => path.to_owned(),
    };
    fs::create_dir_all(parent_folder(&target))?;
    let permissions = fs::metadata(&target).ok().map(|there| there.permissions());
    // Until it has the mode that it should have, it is nobody else's to read.
    let mode = if permissions.is_some() { PRIVATE_FILE_MODE } else { SHARED_FILE_MODE };
    PartialFile::write(&target, bytes.as_ref(), mode, permissions)?.replace(&target)
}

/// Keep a copy with these permissions under `path`, unless there is something already.
pub(crate) fn create_copy(path: &Path, bytes: &[u8], permissions: Permissions) -> io::Result<bool> {
    PartialFile::write(path, bytes, PRIVATE_FILE_MODE, Some(permissions))?.link_if_missing(path)
}

/// Make a folder, and those above it, for this user alone. One that is there stays as it is.
pub fn create_private_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER_MODE).create(folder)
}

pub(crate) fn parent_folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The content beside its target, removed when it is dropped.
struct PartialFile {
    path: PathBuf,
}

impl PartialFile {
    fn write(
        target: &Path,
        bytes: &[u8],
        mode: u32,
        permissions: Option<Permissions>,
    ) -> io::Result<PartialFile> {
        let (partial, mut file) = PartialFile::create(target, mode)?;
        file.write_all(bytes)?;
        if let Some(permissions) = permissions {
            file.set_permissions(permissions)?;
        }
        file.sync_all()?;
        Ok(partial)
    }

    fn create(target: &Path, mode: u32) -> io::Result<(PartialFile, File)> {
        static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
        loop {
            let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
            let path =
                target.with_file_name(format!("{name}.{}-{number}.partial", std::process::id()));
            let mut options = OpenOptions::new();
            match options.write(true).create_new(true).mode(mode).open(&path) {
                // Left by a process that had the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                file => return file.map(|file| (PartialFile { path }, file)),
            }
        }
    }

    fn replace(self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        sync_folder(target);
        Ok(())
    }

    /// A link, unlike renaming, never replaces.
    fn link_if_missing(self, target: &Path) -> io::Result<bool> {
        match fs::hard_link(&self.path, target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            linked => linked?,
        }
        sync_folder(target);
        Ok(true)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The new name survives a loss of power too, on file systems that can say so.
fn sync_folder(path: &Path) {
    let _ = File::open(parent_folder(path)).and_then(|folder| folder.sync_all());
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_private_file_is_its_users_alone_and_replaced_whole() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b/tokens.json");
        write_private_file(&path, "one").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let old = File::open(&path).unwrap();
        write_private_file(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(io::read_to_string(old).unwrap(), "one");
        assert_eq!((mode(&path), mode(&root.path().join("a"))), (0o600, 0o700));
        assert_eq!(mode(&root.path().join("a/b")), 0o700);
        assert_eq!(names(&root.path().join("a/b")), ["tokens.json"]);
    }

    #[test]
    fn a_failure_leaves_the_old_content_and_nothing_beside_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("tokens");
        // No file can be renamed over a folder.
        fs::create_dir(&path).unwrap();
        fs::write(path.join("inside"), "kept").unwrap();
        assert!(write_private_file(&path, "new").is_err());
        assert_eq!(fs::read_to_string(path.join("inside")).unwrap(), "kept");
        assert_eq!(names(root.path()), ["tokens"]);
        assert!(write_private_file(Path::new("/"), "new").is_err());
    }

    #[test]
    fn what_a_killed_process_left_is_in_nobodys_way() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        for number in 0..64 {
            let left = format!("a.{}-{number}.partial", std::process::id());
            fs::write(root.path().join(left), "half").unwrap();
        }
        write_private_file(&path, "whole").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
    }

    #[test]
    fn of_many_who_make_a_file_at_once_one_succeeds() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("journal.key");
        let made: Vec<bool> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8)
                .map(|number| {
                    let path = &path;
                    scope.spawn(move || create_private_file(path, [number; 4]).unwrap())
                })
                .collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        assert_eq!(made.iter().filter(|it| **it).count(), 1);
        let winner = made.iter().position(|it| *it).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [u8::try_from(winner).unwrap(); 4]);
        assert_eq!((mode(&path), names(root.path()).len()), (0o600, 1));
    }

    #[test]
    fn a_file_of_people_keeps_its_mode_and_its_link() {
        let root = tempfile::tempdir().unwrap();
        let (real, link) = (root.path().join("real.json"), root.path().join("link.json"));
        fs::write(&real, "one").unwrap();
        fs::set_permissions(&real, Permissions::from_mode(0o640)).unwrap();
        symlink("real.json", &link).unwrap();
        write_user_file(&link, "two").unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!((fs::read_to_string(&real).unwrap().as_str(), mode(&real)), ("two", 0o640));
        let new = root.path().join("new/file.json");
        write_user_file(&new, "three").unwrap();
        assert_eq!(mode(&new) & 0o600, 0o600);
        symlink("nowhere", root.path().join("dangling")).unwrap();
        assert!(write_user_file(&root.path().join("dangling"), "x").is_err());
    }
}
