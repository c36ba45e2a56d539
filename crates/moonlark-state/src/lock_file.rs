//! File locks between processes: let go by the system however their holder ends. The file
//! stays, so that two never lock different ones under one name.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Far more than a holder says about itself.
const MAX_HOLDER_BYTES: u64 = 200;

/// Held until it is dropped.
#[derive(Debug)]
pub struct LockFile {
    file: File,
}

impl LockFile {
    /// Wait until nobody else holds it.
    pub fn acquire(path: &Path) -> io::Result<LockFile> {
        let file = open_lock_file(path)?;
        file.lock()?;
        Ok(LockFile { file })
    }

    /// None if somebody else holds it.
    pub fn try_acquire(path: &Path) -> io::Result<Option<LockFile>> {
        let file = open_lock_file(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(LockFile { file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Say in the file who holds it.
    pub fn set_holder(&mut self, holder: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all(holder.as_bytes())
    }

    /// Who holds the lock at `path`, as far as they have said so.
    pub fn read_holder(path: &Path) -> Option<String> {
        let mut holder = String::new();
        let file = File::open(path).ok()?;
        file.take(MAX_HOLDER_BYTES).read_to_string(&mut holder).ok()?;
        Some(holder).filter(|it| !it.is_empty())
    }

    /// Whether somebody holds the lock at `path`. Where that cannot be known, somebody may.
    pub fn is_held(path: &Path) -> bool {
        match File::open(path) {
            Ok(file) => file.try_lock_shared().is_err(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }
}

fn open_lock_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn one_at_a_time_holds_it_and_may_say_who_it_is() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.lock");
        assert!(!LockFile::is_held(&path));
        let mut first = LockFile::acquire(&path).unwrap();
        assert_eq!(LockFile::read_holder(&path), None);
        first.set_holder("process 7").unwrap();
        assert_eq!(LockFile::read_holder(&path).as_deref(), Some("process 7"));
        assert!(LockFile::try_acquire(&path).unwrap().is_none());
        assert!(LockFile::is_held(&path));
        drop(first);
        assert!(!LockFile::is_held(&path));
        assert!(LockFile::try_acquire(&path).unwrap().is_some());
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    }
}
