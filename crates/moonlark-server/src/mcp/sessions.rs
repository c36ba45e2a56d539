//! Sessions of old clients, each of one caller, whose answers come once.
//!
//! The SDK numbers the events of every answer so that a client can ask for what
//! it missed. But a client that saw a number asks again whenever an answer ends
//! without a result, which is how the SDK ends a cancelled call: it would ask
//! every three seconds for as long as it is connected.

use std::collections::HashMap;

use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, SessionConfig,
};
use rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionId, SessionManager,
};

use crate::who::Who;

/// Old clients that never come back lose their session after this long.
pub(crate) const IDLE: std::time::Duration = std::time::Duration::from_secs(30 * 60);

/// Sessions at once. Each costs memory until it is closed or idle for too long.
const MOST: usize = 1000;

pub(crate) struct Sessions {
    inner: LocalSessionManager,
    /// Who began each of them: nobody else gets to it.
    owners: Mutex<HashMap<SessionId, Who>>,
}

#[derive(Debug)]
pub(crate) enum SessionProblem {
    Full,
    Session(LocalSessionManagerError),
}

impl std::fmt::Display for SessionProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SessionProblem::Full => write!(f, "{MOST} sessions are open, which is the limit"),
            SessionProblem::Session(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SessionProblem {}

impl From<LocalSessionManagerError> for SessionProblem {
    fn from(error: LocalSessionManagerError) -> Self {
        SessionProblem::Session(error)
    }
}

impl Sessions {
    pub(crate) fn new() -> Self {
        let mut config = SessionConfig::default();
        config.keep_alive = Some(IDLE);
        config.sse_retry = None;
        let mut sessions = LocalSessionManager::default();
        sessions.session_config = config;
        Self { inner: sessions, owners: Mutex::default() }
    }

    /// Whether somebody else began the session of this name.
    pub(crate) fn is_of_another(&self, id: &str, who: &Who) -> bool {
        self.owners.lock().get(id).is_some_and(|owner| !owner.is(who))
    }
}

impl SessionManager for Sessions {
    type Error = SessionProblem;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        if self.inner.sessions.read().await.len() >= MOST {
            return Err(SessionProblem::Full);
        }
        let (id, transport) = self.inner.create_session().await?;
        self.owners.lock().insert(id.clone(), Who::now().unwrap_or_default());
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        Ok(self.inner.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        Ok(self.inner.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.owners.lock().remove(id);
        Ok(self.inner.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let answer = self.inner.create_stream(id, message).await?;
        Ok(answer.map(|mut event| {
            event.event_id = None;
            event
        }))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        Ok(self.inner.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.inner.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.inner.resume(id, last_event_id).await?)
    }
}
