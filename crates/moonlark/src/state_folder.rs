//! `.moonlark/`, where a project keeps what Moonlark must remember. Whichever
//! command comes first makes it here: for its user alone, and ignored by git.
//!
//! What is in it is not known here, only that it is nobody else's.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Its name below the project.
pub(crate) const STATE_FOLDER: &str = ".moonlark";

/// The journal's key, tokens and logins are in there.
const IGNORE_EVERYTHING: &str = "# Made by Moonlark: nothing in this folder belongs into git.\n*\n";

/// The bits that let others than the owner in.
const OTHERS: u32 = 0o077;

/// Where the project in `root` keeps it.
pub(crate) fn state_folder(root: &Path) -> PathBuf {
    root.join(STATE_FOLDER)
}

/// Make the folder if it is missing, and close it to others if it is open. A folder
/// that belongs to another user is left as it is.
pub(crate) fn create_state_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let there = fs::metadata(folder)?;
    if there.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    if there.mode() & OTHERS != 0 {
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
        close_files(folder);
    }
    match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(folder.join(".gitignore"))
    {
        Ok(mut file) => file.write_all(IGNORE_EVERYTHING.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// The same where the folder is only a convenience: what cannot be made is said when
/// something is to be written there.
pub(crate) fn prepare_state_folder(folder: &Path) {
    if let Err(error) = create_state_folder(folder) {
        tracing::debug!("{}: {error}", folder.display());
    }
}

/// Files that were made while the folder was open to others.
fn close_files(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // Links are left alone: what they lead to is somebody else's business.
        let Ok(there) = entry.path().symlink_metadata() else { continue };
        if there.is_file() && there.mode() & OTHERS != 0 {
            let closed = Permissions::from_mode(there.mode() & 0o777 & !OTHERS);
            let _ = fs::set_permissions(entry.path(), closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn the_folder_is_its_users_alone_and_git_ignores_it() {
        let root = tempfile::tempdir().unwrap();
        let folder = state_folder(root.path());
        create_state_folder(&folder).unwrap();
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(&folder.join(".gitignore")), 0o600);
        assert!(fs::read_to_string(folder.join(".gitignore")).unwrap().ends_with("\n*\n"));
        // What its user wrote there stays.
        fs::write(folder.join(".gitignore"), "!types\n").unwrap();
        create_state_folder(&folder).unwrap();
        assert_eq!(fs::read_to_string(folder.join(".gitignore")).unwrap(), "!types\n");
    }

    #[test]
    fn a_folder_that_was_open_to_others_is_closed_with_its_files() {
        let root = tempfile::tempdir().unwrap();
        let folder = state_folder(root.path());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("moonlark.db"), "").unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(folder.join("moonlark.db"), Permissions::from_mode(0o644)).unwrap();
        create_state_folder(&folder).unwrap();
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(&folder.join("moonlark.db")), 0o600);
    }
}
