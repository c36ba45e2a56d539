//! One file, whole, and as it was at one moment.

use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use cap_std::fs::{Dir, MetadataExt, OpenOptions, OpenOptionsExt};
use jiff::Timestamp;

/// How often a file that changes is read again.
const TRIES: usize = 3;
/// What was changed this long ago has a time of its own. What was changed a
/// moment ago may change again within the same tick of the clock.
const TICK: Duration = Duration::from_secs(2);

pub(super) enum Read {
    Content(Vec<u8>, Stat),
    TooLarge(u64),
    /// Not a regular file, or no longer.
    Other,
    /// It changes whenever it is read.
    Unsettled,
}

/// Whatever of a file changes when its content does.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stat {
    pub(super) size: u64,
    modified: (i64, i64),
    /// Also changes when somebody sets the other one back.
    changed: (i64, i64),
}

impl Stat {
    pub(super) fn of(found: &std::fs::Metadata) -> Stat {
        use std::os::unix::fs::MetadataExt;
        Stat {
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    fn of_open(found: &cap_std::fs::Metadata) -> Stat {
        Stat {
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    pub(super) fn stamp(&self) -> String {
        let ((a, b), (c, d)) = (self.modified, self.changed);
        format!("{}-{a}.{b:09}-{c}.{d:09}", self.size)
    }

    pub(super) fn modified(&self) -> Option<Timestamp> {
        Timestamp::new(self.modified.0, i32::try_from(self.modified.1).ok()?).ok()
    }

    /// Whether the next change is sure to give another stamp.
    pub(super) fn settled(&self) -> bool {
        let latest = self.modified.0.max(self.changed.0);
        let latest = u64::try_from(latest).unwrap_or(0);
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(latest);
        SystemTime::now().duration_since(since).is_ok_and(|age| age > TICK)
    }
}

pub(super) fn stable(dir: &Dir, path: &Path, most: u64) -> io::Result<Read> {
    stable_while(dir, path, most, || {})
}

/// The same; `meanwhile` happens whenever it has been read.
pub(super) fn stable_while(
    dir: &Dir,
    path: &Path,
    most: u64,
    mut meanwhile: impl FnMut(),
) -> io::Result<Read> {
    for _ in 0..TRIES {
        let mut options = OpenOptions::new();
        options.read(true);
        // A link that was put there meanwhile is refused; a pipe or a device
        // does not keep us waiting, and is refused below.
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
        let mut file = match dir.open_with(path, &options) {
            Ok(file) => file,
            // A link, or a socket.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENXIO)) => {
                return Ok(Read::Other);
            }
            Err(error) => return Err(error),
        };
        let found = file.metadata()?;
        if !found.is_file() {
            return Ok(Read::Other);
        }
        let before = Stat::of_open(&found);
        if before.size > most {
            return Ok(Read::TooLarge(before.size));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(before.size).unwrap_or(0) + 1);
        // One byte more than allowed tells that it grew.
        (&mut file).take(most + 1).read_to_end(&mut bytes)?;
        meanwhile();
        let after = Stat::of_open(&file.metadata()?);
        if before == after && bytes.len() as u64 == after.size {
            return Ok(Read::Content(bytes, after));
        }
    }
    Ok(Read::Unsettled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_a_moment_ago_has_no_stamp_yet() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let now = i64::try_from(now.as_secs()).unwrap();
        let at =
            |modified, changed| Stat { size: 1, modified: (modified, 0), changed: (changed, 0) };
        assert!(at(now - 10, now - 10).settled());
        assert!(!at(now, now - 10).settled());
        // Somebody set the time back.
        assert!(!at(now - 10, now).settled());
        // The clock did not run when it was written.
        assert!(!at(now + 1000, now).settled());
        assert_eq!(at(5, 6).stamp(), "1-5.000000000-6.000000000");
    }
}
