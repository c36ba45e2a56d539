//! What must be remembered of sessions beyond a process: the key that seals their ids,
//! which of them were ended, and which messages they want.
//!
//! Two files in the state folder, for this user's eyes only. The key is made once. The
//! record is a list of lines that is only ever added to, until it is long: then it is
//! written anew without what has expired.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use super::session_id::{SESSION_KEY_BYTES, SessionIdContent, SessionIdKey};

const KEY_NAME: &str = "sessions.key";
const RECORD_NAME: &str = "sessions.log";

/// Sessions that were begun earlier are not taken up again.
const MAX_SESSION_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// A longer record is written anew.
const MAX_RECORD_BYTES: u64 = 1 << 20;
/// Lines that stay when a record is too long: the newest.
const MAX_KEPT_LINES: usize = 5000;

/// Keeps sessions beyond a process.
pub struct SessionVault {
    key: SessionIdKey,
    /// None where nothing is kept: sessions end with the process.
    record: Option<PathBuf>,
}

/// One line of the record.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SessionRecordLine {
    /// The session's name; none if it is about all that were begun until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    /// When the session was begun, in seconds since 1970.
    issued: u64,
    /// The least severe message it wants; none if it was ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<String>,
}

/// What the record says of a session that is to be taken up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RecordedSession {
    Ended,
    /// The least severe message it wants, if it said so.
    Open(Option<String>),
}

impl SessionVault {
    /// With the key in this folder, which is made if there is none.
    pub fn open(folder: &Path) -> io::Result<Arc<SessionVault>> {
        let path = folder.join(KEY_NAME);
        let bytes = match read_key(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => make_key(&path)?,
            other => other?,
        };
        let key = SessionIdKey::from_bytes(&bytes)
            .ok_or_else(|| io::Error::other(format!("{} is damaged", path.display())))?;
        Ok(Arc::new(SessionVault { key, record: Some(folder.join(RECORD_NAME)) }))
    }

    /// For sessions that end with this process.
    pub fn in_memory() -> Arc<SessionVault> {
        Arc::new(SessionVault { key: SessionIdKey::random_key(), record: None })
    }

    pub(super) fn seal_id(&self, content: SessionIdContent) -> Option<String> {
        self.key.seal_content(content)
    }

    pub(super) fn open_id(&self, id: &str) -> Option<SessionIdContent> {
        self.key.open_content(id)
    }

    /// Whether a session may be taken up that this process does not know.
    pub(super) async fn find_recorded(
        self: &Arc<Self>,
        content: &SessionIdContent,
    ) -> RecordedSession {
        let age = unix_seconds().saturating_sub(content.issued);
        let Some(record) = self.record.clone() else { return RecordedSession::Ended };
        if age > MAX_SESSION_AGE.as_secs() {
            return RecordedSession::Ended;
        }
        let (name, issued) = (content.name.clone(), content.issued);
        let found = tokio::task::spawn_blocking(move || find_in_record(&record, &name, issued));
        match found.await {
            Ok(Ok(found)) => found,
            // Who cannot read who was ended takes nobody up.
            _ => RecordedSession::Ended,
        }
    }

    /// The session is over, for every process.
    pub(super) async fn note_end(&self, content: &SessionIdContent) {
        self.append_line(content, None).await;
    }

    /// The session wants these messages, also when it is taken up again.
    pub(super) async fn note_level(&self, content: &SessionIdContent, level: &str) {
        self.append_line(content, Some(level.to_owned())).await;
    }

    async fn append_line(&self, content: &SessionIdContent, level: Option<String>) {
        let Some(record) = self.record.clone() else { return };
        let line = SessionRecordLine {
            session: Some(content.name.clone()),
            issued: content.issued,
            level,
        };
        let written = tokio::task::spawn_blocking(move || {
            add_line(&record, &line).map_err(|error| format!("{}: {error}", record.display()))
        });
        if let Ok(Err(error)) = written.await {
            tracing::warn!("{error}");
        }
    }
}

pub(super) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn read_key(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        let message = format!("others can read {}: `chmod 600` keeps it", path.display());
        return Err(io::Error::other(message));
    }
    let mut bytes = Vec::new();
    file.take(1024).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Written aside and linked into place: processes that make one at the same time end up
/// with the same.
fn make_key(path: &Path) -> io::Result<Vec<u8>> {
    let mut key = vec![0; SESSION_KEY_BYTES];
    SystemRandom::new().fill(&mut key).map_err(|_| io::Error::other("there is no randomness"))?;
    let aside = partial_file(path);
    let written = write_file(&aside, &key);
    let linked = written.and_then(|()| match std::fs::hard_link(&aside, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read_key(path),
        Err(error) => Err(error),
        Ok(()) => Ok(key),
    });
    let _ = std::fs::remove_file(&aside);
    linked
}

/// Says whose it is, so that what a killed process leaves behind can be removed.
fn partial_file(path: &Path) -> PathBuf {
    path.with_extension(format!("{}.partial", std::process::id()))
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn read_lines(mut file: &File) -> io::Result<Vec<SessionRecordLine>> {
    let mut text = String::new();
    (&mut file).take(4 * MAX_RECORD_BYTES).read_to_string(&mut text)?;
    // Half a line is all that a crash can leave.
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

fn find_in_record(record: &Path, name: &str, issued: u64) -> io::Result<RecordedSession> {
    let lines = match File::open(record) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        file => read_lines(&file?)?,
    };
    let mut level = None;
    for line in lines {
        match &line.session {
            None if issued <= line.issued => return Ok(RecordedSession::Ended),
            Some(session) if session == name => match line.level {
                None => return Ok(RecordedSession::Ended),
                wanted => level = wanted,
            },
            _ => {}
        }
    }
    Ok(RecordedSession::Open(level))
}

fn add_line(record: &Path, line: &SessionRecordLine) -> io::Result<()> {
    let mut file = open_locked(record)?;
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    file.write_all(&text)?;
    if file.metadata()?.len() > MAX_RECORD_BYTES {
        compact_record(record, &file)?;
    }
    Ok(())
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

/// Write it anew without what has expired, and with no more than the newest lines.
fn compact_record(record: &Path, _locked: &File) -> io::Result<()> {
    let mut lines = read_lines(&File::open(record)?)?;
    let oldest = unix_seconds().saturating_sub(MAX_SESSION_AGE.as_secs());
    lines.retain(|line| line.issued >= oldest);
    let many = lines.len().saturating_sub(MAX_KEPT_LINES);
    // Sessions whose end is forgotten here stay ended, with all that are as old.
    let forgotten = lines.drain(..many).map(|line| line.issued).max();
    let limit = forgotten.map(|issued| SessionRecordLine { session: None, issued, level: None });
    let mut text = Vec::new();
    for line in limit.iter().chain(&lines) {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    let aside = partial_file(record);
    let written = write_file(&aside, &text).and_then(|()| std::fs::rename(&aside, record));
    written.inspect_err(|_| {
        let _ = std::fs::remove_file(&aside);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(name: &str, issued: u64) -> SessionIdContent {
        SessionIdContent { name: name.to_owned(), issued, caller: None, initialize: None }
    }

    #[tokio::test]
    async fn processes_that_share_a_folder_know_each_others_sessions() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (
            SessionVault::open(folder.path()).unwrap(),
            SessionVault::open(folder.path()).unwrap(),
        );
        let (one, other) = (content("one", unix_seconds()), content("other", unix_seconds()));
        let id = first.seal_id(one.clone()).unwrap();
        assert_eq!(second.open_id(&id), Some(one.clone()));
        assert_eq!(second.find_recorded(&one).await, RecordedSession::Open(None));
        first.note_level(&one, "warning").await;
        first.note_level(&one, "error").await;
        first.note_end(&other).await;
        assert_eq!(
            second.find_recorded(&one).await,
            RecordedSession::Open(Some("error".to_owned()))
        );
        assert_eq!(second.find_recorded(&other).await, RecordedSession::Ended);
        for name in [KEY_NAME, RECORD_NAME] {
            assert_eq!(folder.path().join(name).metadata().unwrap().mode() & 0o777, 0o600);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[tokio::test]
    async fn sessions_expire_and_those_of_a_process_without_a_folder_end_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let vault = SessionVault::open(folder.path()).unwrap();
        let old = content("old", unix_seconds() - MAX_SESSION_AGE.as_secs() - 1);
        assert_eq!(vault.find_recorded(&old).await, RecordedSession::Ended);
        let passing = SessionVault::in_memory();
        let one = content("one", unix_seconds());
        let id = passing.seal_id(one.clone()).unwrap();
        assert_eq!(passing.open_id(&id), Some(one.clone()));
        assert_eq!(passing.find_recorded(&one).await, RecordedSession::Ended);
        assert_eq!(SessionVault::in_memory().open_id(&id), None);
    }

    #[test]
    fn a_key_that_others_can_read_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let _vault = SessionVault::open(folder.path()).unwrap();
        let key = folder.path().join(KEY_NAME);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&key, open).unwrap();
        let error = SessionVault::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_long_record_is_shortened_and_nobody_who_was_ended_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join(RECORD_NAME);
        let start = unix_seconds() - 100_000;
        let line = |number: u64, issued: u64| SessionRecordLine {
            session: Some(format!("session {number:028}")),
            issued,
            level: None,
        };
        let mut text = Vec::new();
        for number in 0..20_000 {
            serde_json::to_writer(&mut text, &line(number, start + number)).unwrap();
            text.push(b'\n');
        }
        write_file(&record, &text).unwrap();
        assert!(text.len() as u64 > MAX_RECORD_BYTES);
        add_line(&record, &line(20_000, start + 20_000)).unwrap();
        assert!(record.metadata().unwrap().len() < MAX_RECORD_BYTES / 2);
        let find = |name: &str, issued| find_in_record(&record, name, issued).unwrap();
        for number in [0, 10_000, 15_000, 19_999, 20_000] {
            let name = format!("session {number:028}");
            assert_eq!(find(&name, start + number), RecordedSession::Ended, "{number}");
        }
        assert_eq!(find("another", start + 19_000), RecordedSession::Open(None));
    }
}
