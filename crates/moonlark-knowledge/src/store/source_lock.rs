//! One sync of a source at a time, over all processes.
//!
//! A lock of the system on a file beside the database: it ends with the process
//! that holds it, however that ends. What is in the file only says who it is.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use moonlark_core::{Problem, Result};
use sha2::{Digest, Sha256};

pub(crate) struct SourceLock(#[expect(dead_code, reason = "held, not used")] File);

impl SourceLock {
    /// For the source `name` of the knowledge base in `database`.
    pub(crate) fn try_acquire(database: &Path, name: &str) -> Result<SourceLock> {
        let path = lock_path(database, name);
        let cannot = |error: std::io::Error| {
            Problem::unavailable(format!("cannot lock {}: {error}", path.display()))
        };
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(cannot)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0).map_err(cannot)?;
                write!(file, "process {} since {:.0}", std::process::id(), Timestamp::now())
                    .map_err(cannot)?;
                Ok(SourceLock(file))
            }
            Err(TryLockError::WouldBlock) => Err(already_syncing_problem(name, file)),
            Err(TryLockError::Error(error)) => Err(cannot(error)),
        }
    }
}

fn already_syncing_problem(name: &str, file: File) -> Problem {
    let mut who = String::new();
    // It may be about to say who it is.
    let read = file.take(200).read_to_string(&mut who).is_ok() && !who.is_empty();
    let who = if read { who } else { "another process".to_owned() };
    Problem::unavailable(format!("{name} is being synced already, by {who}"))
        .with_hint("wait for it to end; what it has committed can be searched meanwhile")
}

/// Names are the user's: what is no plain letter is not written into a path.
fn lock_path(database: &Path, name: &str) -> PathBuf {
    let plain: String = name
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
        .take(40)
        .collect();
    let digest = Sha256::digest(name.as_bytes());
    let mut path = database.as_os_str().to_owned();
    path.push(format!(
        ".{plain}-{:02x}{:02x}{:02x}{:02x}.lock",
        digest[0], digest[1], digest[2], digest[3]
    ));
    PathBuf::from(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_sync_of_a_source_is_told_who_works_on_it() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("moonlark.db");
        let first = SourceLock::try_acquire(&database, "docs/a").unwrap();
        let Err(problem) = SourceLock::try_acquire(&database, "docs/a") else {
            panic!("taken twice")
        };
        let me =
            format!("docs/a is being synced already, by process {} since ", std::process::id());
        assert!(problem.message.starts_with(&me), "{}", problem.message);
        assert!(
            SourceLock::try_acquire(&database, "docs-a").is_ok(),
            "another name is another source"
        );
        drop(first);
        assert!(SourceLock::try_acquire(&database, "docs/a").is_ok());
    }
}
