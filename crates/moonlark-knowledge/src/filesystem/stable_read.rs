//! Consistent read of a file: whole, and as it was at one moment.

use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use cap_std::fs::{Dir, MetadataExt, OpenOptions, OpenOptionsExt};
use jiff::Timestamp;

/// How often a file that changes is read again.
const MAX_READ_ATTEMPTS: usize = 3;
/// What was changed this long ago has a time of its own. What was changed a
/// moment ago may change again within the same tick of the clock.
const TIMESTAMP_SETTLE_TIME: Duration = Duration::from_secs(2);

pub(super) enum FileReadOutcome {
    Content(Vec<u8>, FileStat),
    TooLarge(u64),
    /// Not a regular file, or no longer.
    Other,
    /// It changes whenever it is read.
    Unsettled,
}

/// Whatever of a file changes when its content does.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FileStat {
    pub(super) size: u64,
    modified: (i64, i64),
    /// Also changes when somebody sets the other one back.
    changed: (i64, i64),
}

impl FileStat {
    pub(super) fn from_metadata(found: &std::fs::Metadata) -> FileStat {
        use std::os::unix::fs::MetadataExt;
        FileStat {
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    fn from_open_metadata(found: &cap_std::fs::Metadata) -> FileStat {
        FileStat {
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    pub(super) fn stamp(&self) -> String {
        let ((a, b), (c, d)) = (self.modified, self.changed);
        format!("{}-{a}.{b:09}-{c}.{d:09}", self.size)
    }

    pub(super) fn modified_at(&self) -> Option<Timestamp> {
        Timestamp::new(self.modified.0, i32::try_from(self.modified.1).ok()?).ok()
    }

    /// Whether the next change is sure to give another stamp.
    pub(super) fn is_settled(&self) -> bool {
        let latest = self.modified.0.max(self.changed.0);
        let latest = u64::try_from(latest).unwrap_or(0);
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(latest);
        SystemTime::now().duration_since(since).is_ok_and(|age| age > TIMESTAMP_SETTLE_TIME)
    }
}

pub(super) fn read_stable(dir: &Dir, path: &Path, most: u64) -> io::Result<FileReadOutcome> {
    read_stable_while(dir, path, most, || {})
}

/// The same; `meanwhile` happens whenever it has been read.
pub(super) fn read_stable_while(
    dir: &Dir,
    path: &Path,
    most: u64,
    mut meanwhile: impl FnMut(),
) -> io::Result<FileReadOutcome> {
    for _ in 0..MAX_READ_ATTEMPTS {
        let mut options = OpenOptions::new();
        options.read(true);
        // A link that was put there meanwhile is refused; a pipe or a device
        // does not keep us waiting, and is refused below.
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
        let mut file = match dir.open_with(path, &options) {
            Ok(file) => file,
            // A link, or a socket.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENXIO)) => {
                return Ok(FileReadOutcome::Other);
            }
            Err(error) => return Err(error),
        };
        let found = file.metadata()?;
        if !found.is_file() {
            return Ok(FileReadOutcome::Other);
        }
        let before = FileStat::from_open_metadata(&found);
        if before.size > most {
            return Ok(FileReadOutcome::TooLarge(before.size));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(before.size).unwrap_or(0) + 1);
        // One byte more than allowed tells that it grew.
        (&mut file).take(most + 1).read_to_end(&mut bytes)?;
        meanwhile();
        let after = FileStat::from_open_metadata(&file.metadata()?);
        if before == after && bytes.len() as u64 == after.size {
            return Ok(FileReadOutcome::Content(bytes, after));
        }
    }
    Ok(FileReadOutcome::Unsettled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_a_moment_ago_has_no_stamp_yet() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let now = i64::try_from(now.as_secs()).unwrap();
        let at = |modified, changed| FileStat {
            size: 1,
            modified: (modified, 0),
            changed: (changed, 0),
        };
        assert!(at(now - 10, now - 10).is_settled());
        assert!(!at(now, now - 10).is_settled());
        // Somebody set the time back.
        assert!(!at(now - 10, now).is_settled());
        // The clock did not run when it was written.
        assert!(!at(now + 1000, now).is_settled());
        assert_eq!(at(5, 6).stamp(), "1-5.000000000-6.000000000");
    }
}
