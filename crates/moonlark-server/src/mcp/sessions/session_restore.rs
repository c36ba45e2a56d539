//! Restoring a session that this process does not know, once: the other requests that arrive
//! for it wait until the SDK has served its handshake again.
//!
//! The SDK has an entry for the session before that handshake. A request that found the entry
//! would be taken for the handshake, and the session would end with it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use moonlark_child::try_spawn_to_finish;
use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{SessionId, SessionManager};
use tokio::sync::OwnedMutexGuard;

/// The sessions that are being restored, each with the lock that its requests wait for.
#[derive(Default)]
pub(super) struct SessionRestores(Mutex<HashMap<SessionId, Weak<RestoreLock>>>);

type RestoreLock = tokio::sync::Mutex<()>;

/// The right to restore a session. What was restored by half when it is dropped is closed.
pub(super) struct RestorePermit {
    sessions: Arc<LocalSessionManager>,
    name: SessionId,
    /// None once the session can be used.
    lock: Option<OwnedMutexGuard<()>>,
}

impl SessionRestores {
    /// Wait until a session can be used: None. Where no request restores it yet, the one that
    /// asks is to do that.
    pub(super) async fn wait_or_begin(
        &self,
        sessions: &Arc<LocalSessionManager>,
        name: &SessionId,
    ) -> Option<RestorePermit> {
        let lock = match self.find_restore(name) {
            Some(lock) => lock,
            None if is_known(sessions, name).await => self.find_restore(name)?,
            None => self.add_restore(name),
        };
        let lock = lock.lock_owned().await;
        if is_known(sessions, name).await {
            return None;
        }
        Some(RestorePermit { sessions: sessions.clone(), name: name.clone(), lock: Some(lock) })
    }

    fn find_restore(&self, name: &SessionId) -> Option<Arc<RestoreLock>> {
        self.0.lock().get(name)?.upgrade()
    }

    fn add_restore(&self, name: &SessionId) -> Arc<RestoreLock> {
        let mut restores = self.0.lock();
        restores.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = restores.get(name).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::default();
        restores.insert(name.clone(), Arc::downgrade(&lock));
        lock
    }
}

impl RestorePermit {
    /// The handshake was served again.
    pub(super) fn finish(mut self) {
        self.lock = None;
    }
}

impl Drop for RestorePermit {
    fn drop(&mut self) {
        let Some(lock) = self.lock.take() else { return };
        let (sessions, name) = (self.sessions.clone(), self.name.clone());
        try_spawn_to_finish(async move {
            let _ = sessions.close_session(&name).await;
            drop(lock);
        });
    }
}

async fn is_known(sessions: &LocalSessionManager, name: &SessionId) -> bool {
    sessions.has_session(name).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use axum::body::Body;
    use futures::future::join_all;
    use futures::poll;
    use serde_json::json;
    use tempfile::TempDir;
    use tokio_util::sync::CancellationToken;

    use super::super::SessionVault;
    use super::super::tests::{app_with_vault, begin_session, post};
    use crate::router::HttpApp;

    /// A process that keeps its sessions in this folder.
    fn new_process(folder: &Path) -> HttpApp {
        app_with_vault(vec![], CancellationToken::new(), SessionVault::open(folder).unwrap())
    }

    async fn session_of_earlier_process(version: &str) -> (TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let session = begin_session(&new_process(folder.path()), version).await;
        (folder, session)
    }

    async fn ping(app: &HttpApp, session: &str, id: usize) -> (u16, bool, String) {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string();
        let (status, _, text) = post(app, Some(session), Body::from(message)).await;
        (status, text.contains(&format!(r#""id":{id},"result":{{}}"#)), text)
    }

    #[tokio::test]
    async fn requests_that_arrive_while_a_session_is_restored_are_answered() {
        for version in ["2024-11-05", "2025-06-18", "2025-11-25"] {
            let (folder, session) = session_of_earlier_process(version).await;
            let app = &new_process(folder.path());
            let late = async |id: usize| {
                // Each arrives a little later than the one before.
                for _ in 0..id {
                    tokio::task::yield_now().await;
                }
                ping(app, &session, id).await
            };
            for (status, answered, text) in join_all((0..40).map(late)).await {
                assert_eq!((status, answered), (200, true), "{version}: {text}");
            }
        }
    }

    #[tokio::test]
    async fn a_client_that_leaves_while_its_session_is_restored_finds_it_again() {
        let mut polls = 0;
        loop {
            let (folder, session) = session_of_earlier_process("2025-06-18").await;
            let app = new_process(folder.path());
            let mut first = Box::pin(ping(&app, &session, 1));
            let mut ended = false;
            for _ in 0..polls {
                ended = poll!(&mut first).is_ready();
                if ended {
                    break;
                }
                tokio::task::yield_now().await;
            }
            if ended {
                break;
            }
            drop(first);
            let (status, answered, text) = ping(&app, &session, 2).await;
            assert_eq!((status, answered), (200, true), "left after {polls} polls: {text}");
            polls += 1;
        }
        assert!(polls > 3, "it left {polls} times");
    }
}
