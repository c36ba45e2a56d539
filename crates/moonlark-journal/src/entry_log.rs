//! The append-only log in front of the journal's database: entries that are not in it
//! yet.
//!
//! A transaction costs a hundred times what an append does, and whoever waits for an
//! entry to survive the process needs no more than the append: the writer moves entries
//! to the database later, many at once. What a process that was killed left here is moved
//! by whoever opens the database next ([`recover_left_logs`]).
//!
//! A file begins with a salt, from which its key is made. Entries follow, sealed, each
//! with its length and its number. One that is not whole, as after a loss of power, is left
//! out. When all of a file is in the database, it is emptied or removed.
//!
//! Entries are encoded and sealed, and large ones written, while nobody waits: an entry
//! of one caller holds up no other.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moonlark_core::{Problem, Result};
use moonlark_gateway::journal::JournalEntry;
use moonlark_state::LockFile;
use moonlark_state::atomic_file::create_private_folder;
use parking_lot::Mutex;
use ring::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use crate::entry_codec::{decode_entry, encode_entry};
use crate::journal_rows;
use crate::journal_schema::JournalError;
use crate::process_lock::is_process_alive;
use crate::sealing::JournalSeal;

/// How a file begins, before its salt.
const LOG_MAGIC: &[u8; 8] = b"mlk-log2";
/// How that of any version begins.
const ANY_LOG_MAGIC: &[u8] = b"mlk-log";
const LOG_SALT_BYTES: usize = 16;
const LOG_HEADER_BYTES: u64 = (LOG_MAGIC.len() + LOG_SALT_BYTES) as u64;
/// Bytes of the length before each entry, which is that of all behind it.
const ENTRY_LENGTH_BYTES: usize = 4;
const ENTRY_NUMBER_BYTES: usize = 8;
const ENTRY_HEAD_BYTES: usize = ENTRY_LENGTH_BYTES + ENTRY_NUMBER_BYTES;
/// A file that has grown to this is followed by another.
const MAX_LOG_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// A file of which all is in the database is emptied from this size on.
const MIN_EMPTIED_BYTES: u64 = 1024 * 1024;
/// Bytes that wait for somebody who waits for them. A larger entry is written by itself.
const MAX_UNWRITTEN_BYTES: usize = 256 * 1024;

/// The log of this process; nothing in it before it is [opened](EntryLog::open).
#[derive(Default)]
pub(crate) struct EntryLog {
    open: Mutex<Option<OpenEntryLog>>,
    /// The number of the next file. None has the number of another, whatever lock it is of.
    next_number: AtomicU64,
    /// Held while files are synced, with how many writes had been made before: whoever
    /// comes meanwhile finds that it was done.
    synced_writes: Mutex<u64>,
}

struct OpenEntryLog {
    /// The number of its first file, which tells it from those before and after it.
    first_file: u64,
    folder: PathBuf,
    /// The name of the lock that this process holds.
    lock: String,
    seal: Arc<JournalSeal>,
    /// The last is the one that is written.
    files: Vec<EntryLogFile>,
    /// Entries that are not in the last file yet.
    unwritten: Vec<u8>,
    /// How often something was written, to any of the files.
    writes: u64,
    /// Nothing can be appended until what is there has been moved.
    is_broken: bool,
}

struct EntryLogFile {
    number: u64,
    path: PathBuf,
    file: Arc<File>,
    key: Arc<LessSafeKey>,
    /// Entries that have, or are getting, a number.
    numbered: u64,
    /// Entries that are not in the database.
    unmoved: usize,
    /// Bytes that are written, or being written.
    length: u64,
    /// Which write was the last to it.
    last_write: u64,
}

/// How far the log is written: what has to be synced for an entry to survive a loss of
/// power.
#[derive(Clone, Copy)]
pub(crate) struct LogPosition {
    first_file: u64,
    writes: u64,
}

/// The number of an entry that is being sealed for one file, which stays as long.
struct EntryNumber {
    file: u64,
    key: Arc<LessSafeKey>,
    number: u64,
}

enum EntryPlacement {
    /// It is written with what is written next.
    Taken,
    /// It is written by itself.
    Reserved(LogPlace),
}

/// Where in which file an entry is written, behind its head.
struct LogPlace {
    file: Arc<File>,
    number: u64,
    at: u64,
}

impl EntryLog {
    /// Begin to log, beside the database at `file`, as the process that holds `lock`.
    pub(crate) fn open(&self, file: &Path, lock: &str, seal: Arc<JournalSeal>) -> io::Result<()> {
        let folder = logs_folder(file);
        create_private_folder(&folder)?;
        let lock = lock.to_owned();
        let first_file = self.take_number();
        let mut new = OpenEntryLog {
            first_file,
            folder,
            lock,
            seal,
            files: Vec::new(),
            unwritten: Vec::new(),
            writes: 0,
            is_broken: false,
        };
        new.begin_file(first_file)?;
        let mut synced_writes = self.synced_writes.lock();
        *self.open.lock() = Some(new);
        *synced_writes = 0;
        Ok(())
    }

    fn take_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Take an entry. The number of the file that it is in, or will be with what is
    /// written next; none if there is no log at the moment.
    pub(crate) fn append_entry(&self, entry: &JournalEntry, shown: Option<&str>) -> Option<u64> {
        let mut bytes = vec![0; ENTRY_HEAD_BYTES];
        encode_entry(entry, shown, &mut bytes).ok()?;
        let reserved = self.reserve_number()?;
        let sealed = reserved.seal_entry(&mut bytes);
        let done = sealed.and_then(|()| match self.place_entry(reserved.file, &bytes)? {
            EntryPlacement::Taken => Some(()),
            EntryPlacement::Reserved(place) => self.write_entry(&place, &bytes),
        });
        if done.is_none() {
            self.settle([reserved.file].into_iter(), false);
        }
        done.map(|()| reserved.file)
    }

    fn reserve_number(&self) -> Option<EntryNumber> {
        let mut open = self.open.lock();
        let log = open.as_mut().filter(|log| !log.is_broken)?;
        if log.files.last().is_some_and(|file| file.length >= MAX_LOG_FILE_BYTES) {
            log.write_out().ok()?;
            log.begin_file(self.take_number()).ok()?;
        }
        let file = log.files.last_mut()?;
        let number = file.numbered;
        file.numbered += 1;
        file.unmoved += 1;
        Some(EntryNumber { file: file.number, key: file.key.clone(), number })
    }

    /// Take a sealed entry, or say where it is to be written: a large one, or one whose file
    /// is followed by another since.
    fn place_entry(&self, file: u64, bytes: &[u8]) -> Option<EntryPlacement> {
        let mut open = self.open.lock();
        let log = open.as_mut().filter(|log| !log.is_broken)?;
        let is_last = log.files.last().is_some_and(|last| last.number == file);
        if !is_last || bytes.len() >= MAX_UNWRITTEN_BYTES {
            log.write_out().ok()?;
            return log.reserve_place(file, bytes).map(EntryPlacement::Reserved);
        }
        log.unwritten.extend_from_slice(bytes);
        if log.unwritten.len() >= MAX_UNWRITTEN_BYTES {
            // Where that fails, the log is broken, and nobody relies on it.
            let _ = log.write_out();
        }
        Some(EntryPlacement::Taken)
    }

    fn write_entry(&self, place: &LogPlace, bytes: &[u8]) -> Option<()> {
        let written = place.file.write_all_at(&bytes[ENTRY_HEAD_BYTES..], place.at);
        self.open.lock().as_mut()?.count_write(place.number, &written);
        written.ok()
    }

    /// Write what was taken: it survives this process from here on. None if there is no
    /// log at the moment.
    pub(crate) fn write_out(&self) -> Option<LogPosition> {
        let mut open = self.open.lock();
        let log = open.as_mut().filter(|log| !log.is_broken)?;
        log.write_out().ok()?;
        Some(LogPosition { first_file: log.first_file, writes: log.writes })
    }

    /// Wait until what is written up to `position` survives a loss of power. Blocks.
    pub(crate) fn sync_to(&self, position: LogPosition) -> io::Result<()> {
        let mut synced_writes = self.synced_writes.lock();
        let (writes, files) = {
            let open = self.open.lock();
            let log = open.as_ref().filter(|log| log.first_file == position.first_file);
            let log = log.ok_or_else(|| io::Error::other("the log was closed meanwhile"))?;
            if *synced_writes >= position.writes {
                return Ok(());
            }
            let unsynced = log.files.iter().filter(|file| file.last_write > *synced_writes);
            (log.writes, unsynced.map(|file| file.file.clone()).collect::<Vec<_>>())
        };
        files.iter().try_for_each(|file| file.sync_data())?;
        // Who waits for the lock meanwhile has written already, and need not sync again.
        *synced_writes = writes;
        Ok(())
    }

    /// Entries are in the database now: those of the files with these numbers. With
    /// `may_empty`, what is no longer needed goes.
    pub(crate) fn settle(&self, moved: impl Iterator<Item = u64>, may_empty: bool) {
        let mut open = self.open.lock();
        let Some(log) = open.as_mut() else { return };
        for number in moved {
            if let Some(file) = log.files.iter_mut().find(|file| file.number == number) {
                file.unmoved = file.unmoved.saturating_sub(1);
            }
        }
        if may_empty {
            log.remove_moved(|| self.take_number());
        }
    }

    /// The process ends: files go that are moved. What is left is moved by the next.
    pub(crate) fn close(&self) {
        let Some(mut log) = self.open.lock().take() else { return };
        let _ = log.write_out();
        for file in log.files.iter().filter(|file| file.unmoved == 0) {
            let _ = std::fs::remove_file(&file.path);
        }
    }
}

impl OpenEntryLog {
    fn begin_file(&mut self, number: u64) -> io::Result<()> {
        let path = self.folder.join(format!("{}.{number}", self.lock));
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path)?;
        let mut header = [0; LOG_HEADER_BYTES as usize];
        let (magic, salt) = header.split_at_mut(LOG_MAGIC.len());
        magic.copy_from_slice(LOG_MAGIC);
        getrandom::fill(salt).map_err(io::Error::other)?;
        let key = self.seal.log_key(salt).ok_or_else(|| io::Error::other("no key"))?;
        let key = Arc::new(key);
        let written = file.write_all_at(&header, 0);
        let written = written.and_then(|()| File::open(&self.folder)?.sync_all());
        if let Err(error) = written {
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        let file = Arc::new(file);
        self.files.push(EntryLogFile {
            number,
            path,
            file,
            key,
            numbered: 0,
            unmoved: 0,
            length: LOG_HEADER_BYTES,
            last_write: 0,
        });
        Ok(())
    }

    /// A place for a sealed entry that is written by itself. Its head is there already, so
    /// that whoever reads finds what comes behind it.
    fn reserve_place(&mut self, number: u64, bytes: &[u8]) -> Option<LogPlace> {
        let file = self.files.iter_mut().find(|file| file.number == number)?;
        let at = file.length + ENTRY_HEAD_BYTES as u64;
        let place = LogPlace { file: file.file.clone(), number, at };
        let written = write_to_log(file, &bytes[..ENTRY_HEAD_BYTES]);
        file.length += bytes.len() as u64;
        self.count_write(number, &written);
        written.ok().map(|()| place)
    }

    fn write_out(&mut self) -> io::Result<()> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let Some(file) = self.files.last_mut() else { return Ok(()) };
        let written = write_to_log(file, &self.unwritten);
        if written.is_ok() {
            file.length += self.unwritten.len() as u64;
        }
        self.unwritten.clear();
        let number = file.number;
        self.count_write(number, &written);
        written
    }

    /// Something was written to a file, or could not be.
    fn count_write(&mut self, number: u64, written: &io::Result<()>) {
        self.writes += 1;
        self.is_broken |= written.is_err();
        if let Some(file) = self.files.iter_mut().find(|file| file.number == number) {
            file.last_write = self.writes;
        }
    }

    /// Remove the files whose entries are all in the database, and empty the last.
    fn remove_moved(&mut self, take_number: impl FnOnce() -> u64) {
        let last = self.files.last().map(|file| file.number);
        self.files.retain(|file| {
            let stays = file.unmoved > 0 || Some(file.number) == last;
            if !stays {
                let _ = std::fs::remove_file(&file.path);
            }
            stays
        });
        let Some(file) = self.files.last().filter(|file| file.unmoved == 0) else { return };
        if file.length < MIN_EMPTIED_BYTES && !self.is_broken {
            return;
        }
        // A new one, because a key must not seal two entries with one number.
        let (path, old) = (file.path.clone(), file.number);
        self.unwritten.clear();
        if self.begin_file(take_number()).is_ok() {
            self.is_broken = false;
            self.files.retain(|file| file.number != old);
            let _ = std::fs::remove_file(path);
        }
    }
}

impl EntryNumber {
    /// Seal an encoded entry that has room for its head in front.
    fn seal_entry(&self, bytes: &mut Vec<u8>) -> Option<()> {
        let (head, plain) = bytes.split_at_mut(ENTRY_HEAD_BYTES);
        let nonce = entry_nonce(self.number);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::empty(), plain).ok()?;
        let length = ENTRY_NUMBER_BYTES + plain.len() + tag.as_ref().len();
        let (length_bytes, number_bytes) = head.split_at_mut(ENTRY_LENGTH_BYTES);
        length_bytes.copy_from_slice(&u32::try_from(length).ok()?.to_le_bytes());
        number_bytes.copy_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(tag.as_ref());
        Some(())
    }
}

/// Write behind all that is in the file.
fn write_to_log(file: &EntryLogFile, bytes: &[u8]) -> io::Result<()> {
    #[cfg(test)]
    crate::tests::limit_log(&file.path)?;
    file.file.write_all_at(bytes, file.length)
}

fn entry_nonce(number: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Where the logs are of the database at `file`.
fn logs_folder(file: &Path) -> PathBuf {
    file.with_extension("log")
}

/// Move what processes left that were killed into the database at `file`. `own` is the
/// lock of this process, if it has one.
pub(crate) fn recover_left_logs(
    connection: &mut Connection,
    file: &Path,
    own: Option<&str>,
) -> Result<(), JournalError> {
    let mut left = left_logs(file);
    left.retain(|log| Some(&*log.lock) != own);
    if left.is_empty() {
        return Ok(());
    }
    let seal = JournalSeal::load_beside(file)?;
    // One process at a time; the second finds nothing left.
    let guard = LockFile::acquire(&logs_folder(file).join("recovery"));
    let _guard = guard.map_err(|error| unreadable_log_problem(file, &error))?;
    left.retain(|log| log.path.exists());
    left.sort_unstable();
    let mut recovered = 0;
    connection.pragma_update(None, "synchronous", "FULL")?;
    for log in &left {
        let bytes = match std::fs::read(&log.path) {
            Ok(bytes) => bytes,
            Err(error) => {
                // One file is no reason to do without all the others.
                tracing::warn!("{}", unreadable_log_problem(&log.path, &error));
                continue;
            }
        };
        let LogContent { entries, has_unknown } = read_log(&bytes, &seal);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let known = "SELECT number FROM journal_processes WHERE lock = ?1";
        let known = transaction.query_row(known, [&log.lock], |row| row.get(0)).optional()?;
        let process: i64 = match known {
            Some(number) => number,
            None => {
                transaction.execute(
                    "INSERT INTO journal_processes (lock, pid, at) VALUES (?1, 0, 0)",
                    params![log.lock],
                )?;
                transaction.last_insert_rowid()
            }
        };
        let borrowed = entries.iter().map(|(entry, shown)| (entry, shown.as_deref()));
        journal_rows::write_left_entries(&transaction, borrowed, process, &seal)?;
        transaction.commit()?;
        recovered += entries.len();
        // Should this fail, the same is written once more by the next.
        if has_unknown {
            let kept = log.path.with_extension(format!("{}.unread", log.number));
            tracing::warn!("{} has entries of another version of Moonlark: kept", kept.display());
            let _ = std::fs::rename(&log.path, kept);
        } else {
            let _ = std::fs::remove_file(&log.path);
        }
    }
    if recovered > 0 {
        tracing::info!(
            target: "journal",
            "{recovered} entries of a process that was killed are in the journal now"
        );
    }
    Ok(())
}

/// The log of a process that is gone. In the order they were written.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct LeftLog {
    lock: String,
    number: u64,
    path: PathBuf,
}

fn left_logs(file: &Path) -> Vec<LeftLog> {
    let Ok(entries) = std::fs::read_dir(logs_folder(file)) else { return Vec::new() };
    let left = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let (lock, number) = name.split_once('.')?;
        let (lock, number) = (lock.to_owned(), number.parse().ok()?);
        (!is_process_alive(file, &lock)).then_some(LeftLog { lock, number, path: entry.path() })
    });
    left.collect()
}

/// What is in a log.
#[derive(Default)]
pub(crate) struct LogContent {
    /// Each with what people are shown of it.
    pub(crate) entries: Vec<(JournalEntry, Option<String>)>,
    /// There is more, which is whole and of a form that is not known here.
    pub(crate) has_unknown: bool,
}

/// The entries of a log that are whole.
pub(crate) fn read_log(bytes: &[u8], seal: &JournalSeal) -> LogContent {
    let mut content = LogContent::default();
    let begin = || {
        let (magic, rest) = bytes.split_at_checked(LOG_MAGIC.len())?;
        let (salt, rest) = rest.split_at_checked(LOG_SALT_BYTES)?;
        (magic == LOG_MAGIC).then_some((seal.log_key(salt)?, rest))
    };
    let Some((key, mut rest)) = begin() else {
        content.has_unknown = bytes.starts_with(ANY_LOG_MAGIC) && !bytes.starts_with(LOG_MAGIC);
        return content;
    };
    let mut next_sealed = || {
        let (length, after) = rest.split_first_chunk::<ENTRY_LENGTH_BYTES>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (entry, after) = after.split_at_checked(length)?;
        rest = after;
        let (number, sealed) = entry.split_first_chunk::<ENTRY_NUMBER_BYTES>()?;
        Some((u64::from_le_bytes(*number), sealed))
    };
    while let Some((number, sealed)) = next_sealed() {
        let mut sealed = sealed.to_vec();
        // The process was killed while it wrote this one, and others behind it.
        let Ok(plain) = key.open_in_place(entry_nonce(number), Aad::empty(), &mut sealed) else {
            continue;
        };
        match decode_entry(plain) {
            Some(entry) => content.entries.push(entry),
            None => content.has_unknown = true,
        }
    }
    content
}

fn unreadable_log_problem(path: &Path, error: &io::Error) -> Problem {
    let path = path.display();
    Problem::unavailable(format!("{path}, the end of the journal, cannot be read: {error}"))
        .with_retryable(false)
        .with_hint("check that this user may read and write it")
}

#[cfg(test)]
mod tests;
