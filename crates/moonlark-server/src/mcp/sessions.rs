//! Sessions of old clients, each of one caller, whose answers come once.
//!
//! The SDK numbers the events of every answer so that a client can ask for what
//! it missed. But a client that saw a number asks again whenever an answer ends
//! without a result, which is how the SDK ends a cancelled call: it would ask
//! every three seconds for as long as it is connected.
//!
//! Every caller has a share of the sessions, and makes room with its own. Requests
//! of one session must differ in their ids while they are in flight: the SDK keeps
//! one place for each id, so that all but one would never be answered.

mod session_table;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::response::Response;
use futures::{Stream, StreamExt};
use moonlark_core::{Code, Problem};
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, SessionConfig,
};
use rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionId, SessionManager,
};

use session_table::{Admission, SessionTable, SessionUse};

use crate::status;
use crate::who::Who;

/// Old clients that never come back lose their session after this long.
pub(crate) const IDLE: std::time::Duration = std::time::Duration::from_secs(30 * 60);

/// When to try again where there are too many sessions.
const RETRY_AFTER_SECONDS: u32 = 30;

pub(crate) struct Sessions {
    inner: LocalSessionManager,
    table: Arc<SessionTable>,
}

#[derive(Debug)]
pub(crate) enum SessionProblem {
    Full,
    Session(LocalSessionManagerError),
}

tokio::task_local! {
    /// Whether the request that this task serves was refused a session.
    static REFUSED: AtomicBool;
}

impl std::fmt::Display for SessionProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SessionProblem::Full => f.write_str("there are too many sessions"),
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
        Self { inner: sessions, table: Arc::default() }
    }

    /// Whether somebody else began the session of this name.
    pub(crate) fn is_of_another(&self, id: &str, who: &Who) -> bool {
        self.table.owner(id).is_some_and(|owner| !owner.is(who))
    }

    /// Serve a request. The SDK answers 500 when there is no session for it, which
    /// says nothing to a client.
    pub(crate) async fn serving(&self, answer: impl Future<Output = Response>) -> Response {
        let serving = async {
            let response = answer.await;
            (REFUSED.with(|refused| refused.load(Ordering::Relaxed)), response)
        };
        match REFUSED.scope(AtomicBool::new(false), serving).await {
            (true, _) => status::problem(&too_many()),
            (false, response) => response,
        }
    }

    /// Make room for one more session of this caller, with its own if it has many.
    async fn admit(&self, who: &Who) -> Result<(), SessionProblem> {
        let open: Vec<SessionId> = self.inner.sessions.read().await.keys().cloned().collect();
        match self.table.admit(who, &open) {
            Admission::Free => Ok(()),
            Admission::After(idle) => {
                self.table.remove(&idle);
                Ok(self.inner.close_session(&idle).await?)
            }
            Admission::Full => {
                let _ = REFUSED.try_with(|refused| refused.store(true, Ordering::Relaxed));
                Err(SessionProblem::Full)
            }
        }
    }
}

fn too_many() -> Problem {
    let message = "too many sessions are open and in use, of this caller or of all";
    let mut problem = Problem::new(Code::Unavailable, message)
        .hint("end sessions that are no longer needed with DELETE, or try again later");
    problem.retry_after = Some(RETRY_AFTER_SECONDS);
    problem
}

impl SessionManager for Sessions {
    type Error = SessionProblem;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let who = Who::now().unwrap_or_default();
        self.admit(&who).await?;
        let (id, transport) = self.inner.create_session().await?;
        self.table.insert(id.clone(), who);
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
        self.table.remove(id);
        Ok(self.inner.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let request = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let Some(used) = self.table.begin_request(id, request.clone()) else {
            return Ok(refuse_id(request).left_stream());
        };
        let answer = self.inner.create_stream(id, message).await?;
        Ok(without_ids(answer, used).right_stream())
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        self.table.touch(id);
        Ok(self.inner.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let used = self.table.begin_request(id, None);
        let stream = self.inner.create_standalone_stream(id).await?;
        Ok(stream.map(move |event| {
            let _ = &used;
            event
        }))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.inner.resume(id, last_event_id).await?)
    }
}

/// The events of an answer without their numbers; the request is in flight for as
/// long as somebody reads them.
fn without_ids(
    answer: impl Stream<Item = ServerSseMessage> + Send + Sync + 'static,
    used: SessionUse,
) -> impl Stream<Item = ServerSseMessage> + Send + Sync + 'static {
    answer.map(move |mut event| {
        let _ = &used;
        event.event_id = None;
        event
    })
}

/// The answer to a request whose id is that of another one in flight.
fn refuse_id(id: Option<RequestId>) -> impl Stream<Item = ServerSseMessage> + Send + Sync {
    let message = "a request of this session with the same id is still in progress";
    let error = ErrorData::new(ErrorCode::INVALID_REQUEST, message, None);
    let mut event = ServerSseMessage::new("", ServerJsonRpcMessage::error(error, id));
    event.event_id = None;
    futures::stream::iter([event])
}
