//! What must be remembered of sessions beyond a process: the key that seals their ids,
//! which of them were ended, and which messages they want.
//!
//! Two files in the state folder, for this user's eyes only: the key, which is made once, and
//! the record ([`session_record`](super::session_record)). When the vault is opened, a damaged
//! file of either kind is repaired with one warning.

use std::io;
use std::path::Path;
use std::sync::Arc;

use moonlark_state::read_or_make_key;

use super::session_id::{SESSION_KEY_BYTES, SessionIdContent, SessionIdKey};
use super::session_record::{
    MAX_SESSION_AGE, RECORD_NAME, RecordedSession, SessionRecord, SessionRecordLine, caller_key,
    move_damaged_file,
};
use crate::unix_time;

const KEY_NAME: &str = "sessions.key";

/// Keeps sessions beyond a process.
pub struct SessionVault {
    key: SessionIdKey,
    /// None where nothing is kept: sessions end with the process.
    record: Option<Arc<SessionRecord>>,
}

impl SessionVault {
    /// With the key in this folder, which is made if there is none.
    pub fn open(folder: &Path) -> io::Result<Arc<SessionVault>> {
        let record = SessionRecord::new(folder.join(RECORD_NAME));
        let path = folder.join(KEY_NAME);
        let key = match read_key(&path)? {
            Some(key) => key,
            None => replace_key(&path, &record)?,
        };
        record.repair()?;
        Ok(Arc::new(SessionVault { key, record: Some(Arc::new(record)) }))
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
        let age = unix_time().as_secs().saturating_sub(content.issued);
        let Some(record) = self.record.clone() else { return RecordedSession::Ended };
        if age > MAX_SESSION_AGE.as_secs() {
            return RecordedSession::Ended;
        }
        let content = content.clone();
        let found = tokio::task::spawn_blocking(move || record.find_session(&content));
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
            caller: Some(caller_key(content.caller.as_deref())),
            level,
        };
        let written = tokio::task::spawn_blocking(move || {
            let path = record.path().display();
            record.add_line(&line).map_err(|error| format!("{path}: {error}"))
        });
        if let Ok(Err(error)) = written.await {
            tracing::warn!("{error}");
        }
    }
}

/// The key at `path`, made if there is none; none if it is damaged.
fn read_key(path: &Path) -> io::Result<Option<SessionIdKey>> {
    let name = path.display().to_string();
    Ok(SessionIdKey::from_bytes(&read_or_make_key(path, SESSION_KEY_BYTES, &name)?))
}

/// Replace a damaged key.
fn replace_key(path: &Path, record: &SessionRecord) -> io::Result<SessionIdKey> {
    // Several processes that find it damaged at once must end up with the same key.
    let _locked = record.lock()?;
    if let Some(key) = read_key(path)? {
        return Ok(key);
    }
    let aside = move_damaged_file(path)?;
    tracing::warn!(
        "{} was damaged, and a new key was made: clients of earlier MCP sessions have to \
         connect again; the old file is {}",
        path.display(),
        aside.display()
    );
    let error = || io::Error::other(format!("{} cannot be made", path.display()));
    read_key(path)?.ok_or_else(error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use moonlark_state::write_private_file;

    use super::super::session_record::RECORD_NAME;
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
        let (one, other) =
            (content("one", unix_time().as_secs()), content("other", unix_time().as_secs()));
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
        let old = content("old", unix_time().as_secs() - MAX_SESSION_AGE.as_secs() - 1);
        assert_eq!(vault.find_recorded(&old).await, RecordedSession::Ended);
        let passing = SessionVault::in_memory();
        let one = content("one", unix_time().as_secs());
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

    #[tokio::test]
    async fn a_damaged_key_is_moved_away_for_one_that_all_processes_have() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join(KEY_NAME);
        let one = content("one", unix_time().as_secs());
        let first = SessionVault::open(folder.path()).unwrap();
        let id = first.seal_id(one.clone()).unwrap();
        for damaged in [&b""[..], &[7; SESSION_KEY_BYTES - 1], &[7; SESSION_KEY_BYTES + 1]] {
            write_private_file(&key, damaged).unwrap();
            let vaults: Vec<_> = std::thread::scope(|scope| {
                let open = || SessionVault::open(folder.path()).unwrap();
                let all: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
                all.into_iter().map(|it| it.join().unwrap()).collect()
            });
            assert_eq!(vaults[0].open_id(&id), None);
            let renewed = vaults[0].seal_id(one.clone()).unwrap();
            assert!(vaults.iter().all(|it| it.open_id(&renewed) == Some(one.clone())));
            assert_eq!(std::fs::read(&key).unwrap().len(), SESSION_KEY_BYTES);
            let aside = folder.path().join("sessions.key.damaged");
            assert_eq!(std::fs::read(aside).unwrap(), damaged);
        }
    }
}
