//! The state folder `.moonlark/` of a project. Whichever command comes first makes it
//! here: for its user alone, and ignored by git.
//!
//! What is in it is not known here, only that it is nobody else's.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use moonlark_core::{Problem, Result, SourceLocation};

use crate::atomic_file::create_private_folder;

/// Its name below the project.
pub const STATE_FOLDER_NAME: &str = ".moonlark";

/// The journal's key, tokens and logins are in there.
const STATE_GITIGNORE_TEXT: &str =
    "# Made by Moonlark: nothing in this folder belongs into git.\n*\n";

/// Nobody takes longer to write a file.
const MAX_FILE_WRITE_TIME: Duration = Duration::from_secs(60 * 60);

/// The bits that let others than the owner in.
const GROUP_AND_OTHERS_MODE_BITS: u32 = 0o077;

/// Where the project in `root` keeps it.
pub fn state_folder_path(root: &Path) -> PathBuf {
    root.join(STATE_FOLDER_NAME)
}

/// A link in its place is refused: a project that came from elsewhere must not decide which
/// folder is closed to others, and written to.
pub fn check_state_folder(root: &Path) -> Result<()> {
    let folder = state_folder_path(root);
    if !folder.symlink_metadata().is_ok_and(|it| it.is_symlink()) {
        return Ok(());
    }
    Err(Problem::bad_config("this is a symbolic link, and has to be a folder of its own")
        .at_location(SourceLocation::in_file(STATE_FOLDER_NAME))
        .with_hint("remove the link; Moonlark makes the folder when it needs it"))
}

/// Make the folder if it is missing, and close it to others if it is open. A folder
/// that belongs to another user is left as it is.
pub fn create_state_folder(folder: &Path) -> io::Result<()> {
    create_private_folder(folder)?;
    let there = fs::metadata(folder)?;
    if there.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    if there.mode() & GROUP_AND_OTHERS_MODE_BITS != 0 {
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
        restrict_files_to_owner(folder);
    }
    let mut options = OpenOptions::new();
    match options.write(true).create_new(true).mode(0o600).open(folder.join(".gitignore")) {
        Ok(mut file) => file.write_all(STATE_GITIGNORE_TEXT.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// The same where the folder is only a convenience: what cannot be made is said when
/// something is to be written there.
pub fn prepare_state_folder(folder: &Path) {
    if let Err(error) = create_state_folder(folder) {
        tracing::debug!("{}: {error}", folder.display());
    }
}

/// Remove what processes that were killed have left behind: files that were being
/// written. Their names say whose they are, `learned.1234.partial`.
pub fn remove_stale_partial_files(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            // No folder in it has folders with such files.
            let inside = fs::read_dir(entry.path()).into_iter().flatten().flatten();
            inside.filter(is_stale_partial_file).for_each(|it| drop(fs::remove_file(it.path())));
        } else if is_stale_partial_file(&entry) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_stale_partial_file(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let Some(name) = name.to_str() else { return false };
    if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
        return false;
    }
    let is_old = || {
        let written = entry.metadata().and_then(|it| it.modified()).ok();
        written.and_then(|it| it.elapsed().ok()).is_some_and(|age| age > MAX_FILE_WRITE_TIME)
    };
    // Earlier versions wrote `.tmpAbCdEf`, of whichever process.
    if name.len() == ".tmpAbCdEf".len() && name.starts_with(".tmp") {
        return is_old();
    }
    let Some(rest) = name.strip_suffix(".partial") else { return false };
    let writer = rest.rsplit('.').next().and_then(|it| it.split('-').next()?.parse::<i32>().ok());
    let Some(writer) = writer.and_then(rustix::process::Pid::from_raw) else { return false };
    let is_gone = rustix::process::test_kill_process(writer) == Err(rustix::io::Errno::SRCH);
    is_gone || is_old()
}

/// Files that were made while the folder was open to others.
fn restrict_files_to_owner(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // Links are left alone: what they lead to is somebody else's business.
        let Ok(there) = entry.path().symlink_metadata() else { continue };
        if there.is_file() && there.mode() & GROUP_AND_OTHERS_MODE_BITS != 0 {
            let closed = Permissions::from_mode(there.mode() & 0o777 & !GROUP_AND_OTHERS_MODE_BITS);
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
        let folder = state_folder_path(root.path());
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
    fn a_link_in_its_place_is_refused() {
        let root = tempfile::tempdir().unwrap();
        check_state_folder(root.path()).unwrap();
        fs::create_dir(root.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", state_folder_path(root.path())).unwrap();
        let problem = check_state_folder(root.path()).unwrap_err();
        assert!(problem.message.contains("symbolic link"), "{problem}");
        assert_eq!(fs::read_dir(root.path().join("elsewhere")).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_process_was_writing_is_removed_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let folder = state_folder_path(root.path());
        fs::create_dir_all(folder.join("upstreams")).unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let (gone, here) = (ended.id(), std::process::id());
        let leftovers =
            [format!("learned.{gone}.partial"), format!("upstreams/git.{gone}-0f.partial")];
        let others = [
            "learned.json".to_owned(),
            format!("learned.{here}.partial"),
            "upstreams/my.partial".to_owned(),
            "upstreams/git.json".to_owned(),
            ".tmpAbCdEf".to_owned(),
        ];
        for name in leftovers.iter().chain(&others) {
            fs::write(folder.join(name), "").unwrap();
        }
        remove_stale_partial_files(&folder);
        for name in &leftovers {
            assert!(!folder.join(name).exists(), "{name}");
        }
        for name in &others {
            assert!(folder.join(name).exists(), "{name}");
        }
        let old = fs::File::options().write(true).open(folder.join(".tmpAbCdEf")).unwrap();
        old.set_modified(std::time::SystemTime::now() - 2 * MAX_FILE_WRITE_TIME).unwrap();
        remove_stale_partial_files(&folder);
        assert!(!folder.join(".tmpAbCdEf").exists());
    }

    #[test]
    fn a_folder_that_was_open_to_others_is_closed_with_its_files() {
        let root = tempfile::tempdir().unwrap();
        let folder = state_folder_path(root.path());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("moonlark.db"), "").unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(folder.join("moonlark.db"), Permissions::from_mode(0o644)).unwrap();
        create_state_folder(&folder).unwrap();
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(&folder.join("moonlark.db")), 0o600);
    }
}
