//! The lock of a source: one sync at a time, over all processes.
//!
//! A lock on a file beside the database. What is in the file only says who holds it.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use moonlark_core::{Problem, Result};
use moonlark_state::LockFile;
use sha2::{Digest, Sha256};

/// Held while a source is synced.
pub(crate) struct SourceLock(#[expect(dead_code, reason = "held, not used")] LockFile);

impl SourceLock {
    /// For the source `name` of the knowledge base in `database`.
    pub(crate) fn try_acquire(database: &Path, name: &str) -> Result<SourceLock> {
        let path = lock_path(database, name);
        let cannot = |error: std::io::Error| {
            Problem::unavailable(format!("cannot lock {}: {error}", path.display()))
        };
        let Some(mut lock) = LockFile::try_acquire(&path).map_err(cannot)? else {
            // It may be about to say who it is.
            let who = LockFile::read_holder(&path).unwrap_or_else(|| "another process".to_owned());
            return Err(Problem::unavailable(format!("{name} is being synced already, by {who}"))
                .with_hint("wait for it to end; what it has committed can be searched meanwhile"));
        };
        let holder = format!("process {} since {:.0}", std::process::id(), Timestamp::now());
        lock.set_holder(&holder).map_err(cannot)?;
        Ok(SourceLock(lock))
    }
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
