//! The SDK's store of sessions: it finds a session that this process does not know in the id
//! of the request that it serves.

use std::pin::Pin;
use std::sync::Arc;

use rmcp::transport::streamable_http_server::session::{
    SessionState, SessionStore, SessionStoreError,
};

use super::session_record::RecordedSession;
use super::session_vault::SessionVault;
use super::{OpenedSession, SERVED_REQUEST};

/// What the SDK knows as a store of sessions: what is sealed in the id of the request.
pub(super) struct SealedSessionStore(pub(super) Arc<SessionVault>);

type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SessionStoreError>> + Send + 'a>>;

impl SealedSessionStore {
    /// The session of the request that this task serves.
    fn served_session(name: &str) -> Option<OpenedSession> {
        let session = SERVED_REQUEST.try_with(|served| served.session.clone()).ok()?;
        session.filter(|it| it.content.name == name)
    }
}

impl SessionStore for SealedSessionStore {
    fn load<'a, 'b, 'c>(&'a self, name: &'b str) -> StoreFuture<'c, Option<SessionState>>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        let session = Self::served_session(name);
        Box::pin(async move {
            let Some(session) = session else { return Ok(None) };
            // It was here a moment ago where it is not taken up.
            let is_open = session.taken_up.is_some()
                || self.0.find_recorded(&session.content).await != RecordedSession::Ended;
            let params = session.content.initialize.clone().filter(|_| is_open);
            Ok(params.map(SessionState::new))
        })
    }

    /// It is in the id.
    fn store<'a, 'b, 'c, 'd>(&'a self, _: &'b str, _: &'c SessionState) -> StoreFuture<'d, ()>
    where
        'a: 'd,
        'b: 'd,
        'c: 'd,
        Self: 'd,
    {
        Box::pin(std::future::ready(Ok(())))
    }

    fn delete<'a, 'b, 'c>(&'a self, name: &'b str) -> StoreFuture<'c, ()>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        let session = Self::served_session(name);
        Box::pin(async move {
            if let Some(session) = session {
                self.0.note_end(&session.content).await;
            }
            Ok(())
        })
    }
}
