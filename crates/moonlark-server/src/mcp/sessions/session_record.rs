//! What is remembered of sessions: which were ended, and which messages they want.
//!
//! A list of lines in one file that is only ever added to, until it is long: then it is
//! written anew with the last line of each session, without what has expired. Every caller
//! has a share of it, and what one caller does is never at the cost of another's sessions.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use moonlark_state::write_private_file;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::session_id::SessionIdContent;
use crate::unix_time;

pub(super) const RECORD_NAME: &str = "sessions.log";
/// Suffix of a damaged file that was moved away.
const DAMAGED_FILE_SUFFIX: &str = ".damaged";

/// Sessions that were begun earlier are not taken up again.
pub(super) const MAX_SESSION_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// A longer record is written anew, once it is also twice as long as it was after that.
const MAX_RECORD_BYTES: u64 = 1 << 20;
/// No record is read that is longer.
const MAX_READ_BYTES: u64 = 64 << 20;
/// Ended sessions of one caller that stay when a record is too long: those begun last.
const MAX_ENDS_PER_CALLER: usize = 1000;
/// Levels of one caller's sessions that stay then. A session whose level is dropped goes
/// on with the level that it had at the beginning.
const MAX_LEVELS_PER_CALLER: usize = 200;

/// The file of what is remembered about sessions.
pub(super) struct SessionRecord {
    path: PathBuf,
    /// How long it was when this process has written it anew.
    compacted_bytes: AtomicU64,
}

/// One line of the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SessionRecordLine {
    /// The session's name; none if it is about all of the caller's that were begun until
    /// then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<String>,
    /// When the session was begun, in seconds since 1970.
    pub(super) issued: u64,
    /// Whose it is, see [`caller_key`]; none in records of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) caller: Option<String>,
    /// The least severe message it wants; none if it was ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) level: Option<String>,
}

/// What the record says of a session that is to be taken up.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RecordedSession {
    Ended,
    /// The least severe message it wants, if it said so.
    Open(Option<String>),
}

/// Names a caller in the record, in the same length whatever its name.
pub(super) fn caller_key(name: Option<&str>) -> String {
    match name {
        Some(name) => URL_SAFE_NO_PAD.encode(&digest(&SHA256, name.as_bytes()).as_ref()[..16]),
        None => "anonymous".to_owned(),
    }
}

/// Move a damaged file to another name.
pub(super) fn move_damaged_file(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(DAMAGED_FILE_SUFFIX);
    let aside = PathBuf::from(name);
    std::fs::rename(path, &aside)?;
    Ok(aside)
}

impl SessionRecord {
    pub(super) fn new(path: PathBuf) -> SessionRecord {
        SessionRecord { path, compacted_bytes: AtomicU64::new(0) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The record, locked until the file is closed.
    pub(super) fn lock(&self) -> io::Result<File> {
        open_locked(&self.path)
    }

    /// Write the record anew if some of it cannot be read.
    pub(super) fn repair(&self) -> io::Result<()> {
        let is_whole = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            file => {
                let file = file?;
                file.metadata()?.len() <= MAX_READ_BYTES && read_lines(&file)?.unreadable == 0
            }
        };
        if is_whole { Ok(()) } else { self.write_anew(&self.lock()?) }
    }

    pub(super) fn find_session(&self, content: &SessionIdContent) -> io::Result<RecordedSession> {
        let lines = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            file => read_lines(&file?)?.lines,
        };
        let caller = caller_key(content.caller.as_deref());
        let mut level = None;
        for line in lines {
            let is_callers = line.caller.as_ref().is_none_or(|it| *it == caller);
            match line.session {
                None if is_callers && content.issued <= line.issued => {
                    return Ok(RecordedSession::Ended);
                }
                Some(session) if session == content.name => match line.level {
                    None => return Ok(RecordedSession::Ended),
                    wanted => level = wanted,
                },
                _ => {}
            }
        }
        Ok(RecordedSession::Open(level))
    }

    pub(super) fn add_line(&self, line: &SessionRecordLine) -> io::Result<()> {
        let mut file = self.lock()?;
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        if !ends_with_line(&file)? {
            text.insert(0, b'\n');
        }
        file.write_all(&text)?;
        let compacted = self.compacted_bytes.load(Ordering::Relaxed);
        if file.metadata()?.len() > MAX_RECORD_BYTES.max(2 * compacted) {
            self.write_anew(&file)?;
        }
        Ok(())
    }

    fn write_anew(&self, _locked: &File) -> io::Result<()> {
        let file = File::open(&self.path)?;
        let read = if file.metadata()?.len() > MAX_READ_BYTES {
            let aside = move_damaged_file(&self.path)?;
            tracing::warn!(
                "{} was too long, and a new one was begun: MCP sessions that were ended may be \
                 taken up again; the old file is {}",
                self.path.display(),
                aside.display()
            );
            ReadRecord::default()
        } else {
            read_lines(&file)?
        };
        if read.unreadable > 0 {
            tracing::warn!(
                "{} was damaged: {} of its lines could not be read and are left out; an MCP \
                 session that one of them was about may be taken up again though it was ended, \
                 or with another log level",
                self.path.display(),
                read.unreadable
            );
        }
        let mut text = Vec::new();
        for line in compact_lines(read.lines) {
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
        }
        write_private_file(&self.path, &text)?;
        self.compacted_bytes.store(text.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

#[derive(Default)]
struct ReadRecord {
    lines: Vec<SessionRecordLine>,
    /// How many lines could not be read.
    unreadable: usize,
}

fn read_lines(mut file: &File) -> io::Result<ReadRecord> {
    if file.metadata()?.len() > MAX_READ_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let mut read = ReadRecord::default();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(line) => read.lines.push(line),
            Err(_) => read.unreadable += 1,
        }
    }
    Ok(read)
}

/// Whether the file ends with a whole line: a crash can leave half of one.
fn ends_with_line(file: &File) -> io::Result<bool> {
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    Ok(last == [b'\n'])
}

/// The record, for this process alone until it is closed.
fn open_locked(record: &Path) -> io::Result<File> {
    loop {
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).mode(0o600).open(record)?;
        file.lock()?;
        // It may have been replaced by a shorter one before it was locked.
        let replaced = !std::fs::metadata(record)
            .is_ok_and(|it| it.ino() == file.metadata().map_or(0, |it| it.ino()));
        if !replaced {
            return Ok(file);
        }
    }
}

/// What the record says of one caller's sessions.
#[derive(Default)]
struct CallerRecord {
    /// All sessions that were begun until then are over.
    all_ended_until: Option<u64>,
    ended: Vec<SessionRecordLine>,
    levels: Vec<SessionRecordLine>,
}

/// The last line of each session, without what has expired, and of each caller no more
/// than its share.
fn compact_lines(lines: Vec<SessionRecordLine>) -> Vec<SessionRecordLine> {
    let oldest = unix_time().as_secs().saturating_sub(MAX_SESSION_AGE.as_secs());
    let mut callers: HashMap<Option<String>, CallerRecord> = HashMap::new();
    let mut last: HashMap<String, SessionRecordLine> = HashMap::new();
    for line in lines.into_iter().filter(|line| line.issued >= oldest) {
        match &line.session {
            None => {
                let record = callers.entry(line.caller).or_default();
                record.all_ended_until = record.all_ended_until.max(Some(line.issued));
            }
            // Who has ended does not begin again.
            Some(session) if last.get(session).is_some_and(|it| it.level.is_none()) => {}
            Some(session) => drop(last.insert(session.clone(), line)),
        }
    }
    for line in last.into_values() {
        let record = callers.entry(line.caller.clone()).or_default();
        match line.level {
            None => record.ended.push(line),
            Some(_) => record.levels.push(line),
        }
    }
    callers.into_iter().flat_map(|(caller, record)| record.compact(caller)).collect()
}

impl CallerRecord {
    fn compact(mut self, caller: Option<String>) -> Vec<SessionRecordLine> {
        // A session whose end is forgotten stays ended, with all of this caller's that are
        // as old. That a level is forgotten ends nothing.
        let forgotten = drop_oldest(&mut self.ended, MAX_ENDS_PER_CALLER);
        drop_oldest(&mut self.levels, MAX_LEVELS_PER_CALLER);
        let until = self.all_ended_until.max(forgotten);
        let bound =
            until.map(|issued| SessionRecordLine { session: None, issued, caller, level: None });
        let rest = self.ended.into_iter().chain(self.levels);
        let rest = rest.filter(|line| until.is_none_or(|until| line.issued > until));
        bound.into_iter().chain(rest).collect()
    }
}

/// Keep the lines of the sessions that were begun last; when the youngest of the others was.
fn drop_oldest(lines: &mut Vec<SessionRecordLine>, most: usize) -> Option<u64> {
    lines.sort_unstable_by_key(|line| line.issued);
    let many = lines.len().saturating_sub(most);
    lines.drain(..many).next_back().map(|line| line.issued)
}

#[cfg(test)]
mod tests {
    use super::super::session_vault::SessionVault;
    use super::*;

    fn content(name: &str, issued: u64) -> SessionIdContent {
        SessionIdContent { name: name.to_owned(), issued, caller: None, initialize: None }
    }

    #[tokio::test]
    async fn what_can_be_read_of_a_damaged_record_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join(RECORD_NAME);
        let now = unix_time().as_secs();
        let vault = SessionVault::open(folder.path()).unwrap();
        let (ended, lost, open) =
            (content("ended", now), content("lost", now), content("open", now));
        vault.note_end(&lost).await;
        let mut bytes = std::fs::read(&record).unwrap();
        bytes[10] = 0xff;
        bytes.extend(b"\n{\"half");
        write_private_file(&record, &bytes).unwrap();
        // A line behind half of one is a line.
        vault.note_end(&ended).await;
        vault.note_level(&open, "error").await;
        let expected = [
            RecordedSession::Ended,
            RecordedSession::Open(None),
            RecordedSession::Open(Some("error".to_owned())),
        ];
        for round in 0..3 {
            let vault = SessionVault::open(folder.path()).unwrap();
            let mut found = Vec::new();
            for content in [&ended, &lost, &open] {
                found.push(vault.find_recorded(content).await);
            }
            assert_eq!(found, expected, "{round}");
            let read = read_lines(&File::open(&record).unwrap()).unwrap();
            assert_eq!((read.lines.len(), read.unreadable), (2, 0), "{round}");
        }
    }

    #[tokio::test]
    async fn a_record_that_is_too_long_to_be_read_is_moved_away() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join(RECORD_NAME);
        write_private_file(&record, b"").unwrap();
        OpenOptions::new().write(true).open(&record).unwrap().set_len(MAX_READ_BYTES + 1).unwrap();
        let vault = SessionVault::open(folder.path()).unwrap();
        let one = content("one", unix_time().as_secs());
        assert_eq!(vault.find_recorded(&one).await, RecordedSession::Open(None));
        vault.note_end(&one).await;
        assert_eq!(vault.find_recorded(&one).await, RecordedSession::Ended);
        assert!(folder.path().join("sessions.log.damaged").exists());
    }

    fn line(caller: &str, number: u64, issued: u64, level: Option<&str>) -> SessionRecordLine {
        SessionRecordLine {
            session: Some(format!("{caller} {number:030}")),
            issued,
            caller: Some(caller_key(Some(caller))),
            level: level.map(str::to_owned),
        }
    }

    fn session(caller: &str, number: u64, issued: u64) -> SessionIdContent {
        let caller = Some(caller.to_owned());
        let name = format!("{} {number:030}", caller.as_deref().unwrap());
        SessionIdContent { name, issued, caller, initialize: None }
    }

    /// A record of these lines, to which one more was added.
    fn record_of(folder: &Path, lines: &[SessionRecordLine]) -> SessionRecord {
        let record = SessionRecord::new(folder.join(RECORD_NAME));
        let (last, lines) = lines.split_last().unwrap();
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, line).unwrap();
            text.push(b'\n');
        }
        assert!(text.len() as u64 > MAX_RECORD_BYTES);
        write_private_file(&record.path, &text).unwrap();
        record.add_line(last).unwrap();
        assert!(record.path.metadata().unwrap().len() < MAX_RECORD_BYTES / 2);
        record
    }

    #[test]
    fn a_long_record_is_shortened_and_nobody_who_was_ended_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let start = unix_time().as_secs() - 100_000;
        let ended = |number| line("bob", number, start + number, None);
        let record = record_of(folder.path(), &(0..=20_000).map(ended).collect::<Vec<_>>());
        let find = |caller, number, issued| {
            record.find_session(&session(caller, number, start + issued)).unwrap()
        };
        for number in [0, 10_000, 15_000, 19_999, 20_000] {
            assert_eq!(find("bob", number, number), RecordedSession::Ended, "{number}");
        }
        assert_eq!(find("bob", 30_000, 19_500), RecordedSession::Open(None));
        // That many ends were forgotten costs only the one who ended them.
        assert_eq!(find("bob", 30_000, 10_000), RecordedSession::Ended);
        assert_eq!(find("alice", 1, 0), RecordedSession::Open(None));
    }

    #[test]
    fn levels_that_a_caller_sets_again_and_again_end_nobodys_session() {
        let folder = tempfile::tempdir().unwrap();
        let start = unix_time().as_secs() - 1000;
        // One session of bob's, then many; alice has ended one and has set the level of another.
        let mut lines = vec![
            line("alice", 1, start, None),
            line("alice", 2, start, Some("error")),
            line("alice", 3, start, Some("error")),
            line("alice", 3, start, None),
            line("alice", 3, start, Some("debug")),
        ];
        lines.extend((0..14_000).map(|round| {
            line("bob", 1, start + 1, Some(if round % 2 == 0 { "info" } else { "debug" }))
        }));
        lines.extend((2..5000).map(|number| line("bob", number, start + 2, Some("info"))));
        let record = record_of(folder.path(), &lines);
        let find =
            |caller, number, issued| record.find_session(&session(caller, number, issued)).unwrap();
        let level = |level: &str| RecordedSession::Open(Some(level.to_owned()));
        assert_eq!(find("alice", 1, start), RecordedSession::Ended);
        assert_eq!(find("alice", 2, start), level("error"));
        assert_eq!(find("alice", 3, start), RecordedSession::Ended);
        assert_eq!(find("alice", 4, start), RecordedSession::Open(None));
        // A level of bob's may be forgotten, a session is not.
        for number in [1, 2, 4000, 4999] {
            assert_ne!(find("bob", number, start + 2), RecordedSession::Ended, "{number}");
        }
        let kept = read_lines(&File::open(&record.path).unwrap()).unwrap().lines;
        assert_eq!(kept.len(), 3 + MAX_LEVELS_PER_CALLER);
        assert!(kept.iter().all(|line| line.session.is_some()));
    }
}
