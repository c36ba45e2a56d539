//! Sessions of old clients, each of one caller, whose answers come once.
//!
//! A client of 2025-11-25 or later whose stream broke off reads on after the last event that it
//! got: [`answer_events`] keeps the events. Clients of earlier versions get no ids: a priming
//! event is an error to them, and a client that saw an id would ask every three seconds for
//! the rest of an answer that ended without a result. The answer to `initialize` is the first
//! event of its stream, so there is nothing to read on after a priming event.
//!
//! What a session needs to go on is sealed in its id ([`session_id`]), so that it can be
//! taken up where it is not known: after a restart, or when it was idle for long. What
//! it watched, and what was in progress, ended with the process; a client that opens
//! its stream again is told once that lists may have changed.
//!
//! Every caller has a share of the sessions, and makes room with its own. Requests
//! of one session must differ in their ids while they are in flight: the SDK keeps
//! one place for each id, so that all but one would never be answered.
//!
//! Plain calls do not go through the SDK ([`session_fast_path`]). A session that has nothing but
//! those looks idle to it, so it is told from time to time ([`connected_session`]).
//!
//! What a client says of itself is kept for as long as its session: [`message_limits`]
//! refuses what is too large before the SDK reads it.

mod answer_events;
mod connected_session;
mod event_response;
mod message_limits;
mod sealed_session_store;
mod session_fast_path;
mod session_id;
mod session_record;
mod session_restore;
mod session_table;
mod session_vault;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use moonlark_core::{Problem, ProblemCode};
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, ErrorData,
    InitializeRequestParams, LoggingLevel, ProtocolVersion, RequestId, ServerJsonRpcMessage,
    ServerResult,
};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, SessionConfig,
};
use rmcp::transport::streamable_http_server::session::{
    RestoreOutcome, ServerSseMessage, SessionId, SessionManager, SessionStore,
};

use super::mcp_fast_path::MCP_METHOD_HEADER;
use answer_events::AnswerEvents;
use connected_session::WAKE_INTERVAL;
use message_limits::{MeasuredBody, MessageRefusal, measure_body};
use sealed_session_store::SealedSessionStore;
use session_id::SessionIdContent;
use session_record::RecordedSession;
use session_restore::{RestorePermit, SessionRestores};
use session_table::{SessionAdmission, SessionOpening, SessionTable, SessionUse};

pub(super) use connected_session::SessionEntrance;
pub(crate) use message_limits::check_read_message;
pub(super) use message_limits::{check_message, check_resource_uri};
pub use session_vault::SessionVault;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::principal::Principal;
use crate::{http_status, unix_time};

/// Old clients that never come back lose their session after this long.
pub(crate) const SESSION_IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// When to try again where there are too many sessions.
const RETRY_AFTER_SECONDS: u32 = 30;

/// When to open a stream again that broke off.
const STREAM_RETRY: Duration = Duration::from_secs(3);

const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID_HEADER: HeaderName = HeaderName::from_static("last-event-id");
const LISTEN_METHOD: &str = "subscriptions/listen";
/// A name that no session has.
const NO_SESSION: HeaderValue = HeaderValue::from_static("none");

pub(crate) struct McpSessions {
    inner: Arc<LocalSessionManager>,
    restores: SessionRestores,
    table: Arc<SessionTable>,
    vault: Arc<SessionVault>,
    answers: Arc<AnswerEvents>,
    /// The server stops: streams end, but for those of answers.
    stop: CancellationToken,
}

/// The session of a request, for whoever serves it.
#[derive(Clone)]
pub(crate) struct OpenedSession {
    content: Arc<SessionIdContent>,
    vault: Arc<SessionVault>,
    table: Arc<SessionTable>,
    /// It is not known here yet, and what it wanted to be told.
    taken_up: Option<RestoredSession>,
}

#[derive(Clone)]
struct RestoredSession {
    level: Option<String>,
}

impl OpenedSession {
    /// The least severe message that the session wanted before it was taken up.
    pub(crate) fn earlier_level(&self) -> Option<LoggingLevel> {
        let level = self.taken_up.as_ref()?.level.clone()?;
        serde_json::from_value(level.into()).ok()
    }

    /// Remember which messages it wants, beyond this process.
    pub(crate) async fn keep_level(&self, level: LoggingLevel) {
        let is_change = self.table.note_level(&self.content.name, level);
        if is_change && let Ok(serde_json::Value::String(level)) = serde_json::to_value(level) {
            self.vault.note_level(&self.content, &level).await;
        }
    }
}

#[derive(Debug)]
pub(crate) enum SessionError {
    Full,
    Session(LocalSessionManagerError),
}

/// What the SDK is to know, or has found out, about the request that a task serves.
#[derive(Default)]
struct ServedRequest {
    refused: OnceLock<RequestRefusal>,
    session: Option<OpenedSession>,
    /// Where this request restores the session.
    restore: Mutex<Option<RestorePermit>>,
}

/// Refusals that the SDK has no answer for.
#[derive(Clone, Copy)]
enum RequestRefusal {
    TooManySessions,
    /// No events are kept after the one that the client got last.
    NoSuchEvents,
}

tokio::task_local! {
    static SERVED_REQUEST: ServedRequest;
}

impl std::fmt::Display for SessionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SessionError::Full => f.write_str("there are too many sessions"),
            SessionError::Session(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SessionError {}

impl From<LocalSessionManagerError> for SessionError {
    fn from(error: LocalSessionManagerError) -> Self {
        SessionError::Session(error)
    }
}

impl McpSessions {
    pub(crate) fn new(vault: Arc<SessionVault>, stop: CancellationToken) -> Self {
        let mut config = SessionConfig::default();
        // Of some calls, the SDK does not hear at once.
        config.keep_alive = Some(SESSION_IDLE_TIMEOUT + WAKE_INTERVAL);
        config.sse_retry = None;
        let mut sessions = LocalSessionManager::default();
        sessions.session_config = config;
        Self {
            inner: Arc::new(sessions),
            restores: SessionRestores::default(),
            table: Arc::default(),
            vault,
            answers: Arc::default(),
            stop,
        }
    }

    /// Where the SDK asks for sessions that are not known here.
    pub(crate) fn session_store(&self) -> Arc<dyn SessionStore> {
        Arc::new(SealedSessionStore(self.vault.clone()))
    }

    /// Serve a request: the SDK knows sessions by names that clients never see.
    pub(crate) async fn serve_request<F: Future<Output = Response>>(
        &self,
        mut request: Request,
        answer: impl FnOnce(Request) -> F,
    ) -> Response {
        let who = Principal::from_extensions(request.extensions());
        let (session, restore) = match request.headers().get(SESSION_HEADER) {
            Some(id) => {
                let opened = self.open_session(id, &who).await;
                let (session, restore) = opened.unzip();
                let name = session.as_ref().map(|it: &OpenedSession| it.content.name.parse());
                let name = name.and_then(Result::ok).unwrap_or(NO_SESSION);
                request.headers_mut().insert(SESSION_HEADER, name);
                (session, restore.flatten())
            }
            None => (None, None),
        };
        match &session {
            Some(session) => drop(request.extensions_mut().insert(session.clone())),
            // The SDK would say that it has ended what is not there.
            None if request.method() == Method::DELETE
                && request.headers().contains_key(SESSION_HEADER) =>
            {
                return (StatusCode::NOT_FOUND, "Not Found: Session not found").into_response();
            }
            None => {}
        }
        let measured = MeasuredBody::default();
        let is_standing = is_standing_stream(&request);
        if request.method() == Method::POST {
            request = request.map(|body| measure_body(body, measured.clone()));
        }
        let answer = who.clone().scope_current(answer(request));
        let serving = async {
            let response = answer.await;
            if response.status().is_success() {
                finish_restore();
            }
            (SERVED_REQUEST.with(|served| served.refused.get().copied()), response)
        };
        let restore = Mutex::new(restore);
        let served = ServedRequest { session, restore, ..ServedRequest::default() };
        let (refused, mut response) = SERVED_REQUEST.scope(served, serving).await;
        if let Some(refusal) = measured.refusal.get() {
            return refusal.clone().into_response();
        }
        // The SDK has taken nothing from it, and says little of why.
        if matches!(response.status(), StatusCode::BAD_REQUEST | StatusCode::UNSUPPORTED_MEDIA_TYPE)
            && let Some(message) = measured.message.get()
            && let Some(refusal) = MessageRefusal::for_unread_body(message)
        {
            return refusal.into_response();
        }
        if let Some(refusal) = refused {
            return http_status::problem_response(&refusal.to_problem());
        }
        if let Some(name) = response.headers().get(SESSION_HEADER) {
            match self.seal_session_id(name, &who) {
                Some(id) => drop(response.headers_mut().insert(SESSION_HEADER, id)),
                None => {
                    let problem = Problem::internal("no session could be begun");
                    return http_status::problem_response(&problem);
                }
            }
        }
        if is_standing {
            // What is asked for is answered, and what may say something is not waited for.
            response = response.map(|body| {
                let stop = self.stop.clone().cancelled_owned();
                Body::from_stream(body.into_data_stream().take_until(stop))
            });
        }
        response
    }

    /// The session of this id, if it is the caller's and not over, and whether this request is
    /// to restore it.
    async fn open_session(
        &self,
        id: &HeaderValue,
        who: &Principal,
    ) -> Option<(OpenedSession, Option<RestorePermit>)> {
        let content = self.vault.open_id(id.to_str().ok()?)?;
        if content.caller.as_deref() != who.name() {
            return None;
        }
        let name = content.name.as_str().into();
        let restore = self.restores.wait_or_begin(&self.inner, &name).await;
        let taken_up = if restore.is_none() {
            self.table.note_sealed_id(id.to_str().ok()?, &content.name);
            None
        } else {
            match self.vault.find_recorded(&content).await {
                RecordedSession::Open(level) => Some(RestoredSession { level }),
                RecordedSession::Ended => return None,
            }
        };
        let (vault, table) = (self.vault.clone(), self.table.clone());
        Some((OpenedSession { content: Arc::new(content), vault, table, taken_up }, restore))
    }

    /// The id for a session that was just begun.
    fn seal_session_id(&self, name: &HeaderValue, who: &Principal) -> Option<HeaderValue> {
        let name = name.to_str().ok()?;
        let content = SessionIdContent {
            name: name.to_owned(),
            issued: unix_time().as_secs(),
            caller: who.name().map(str::to_owned),
            initialize: self.table.take_initialize(name),
        };
        let id = self.vault.seal_id(content)?;
        self.table.note_sealed_id(&id, name);
        id.parse().ok()
    }

    /// Make room for one more session of this caller, with its own if it has many.
    async fn admit_session(&self, who: &Principal) -> Result<(), SessionError> {
        let open: Vec<SessionId> = self.inner.sessions.read().await.keys().cloned().collect();
        match self.table.admit_session(who, &open) {
            SessionAdmission::Free => Ok(()),
            SessionAdmission::After(idle) => {
                self.table.remove(&idle);
                Ok(self.inner.close_session(&idle).await?)
            }
            SessionAdmission::Full => {
                refuse_request(RequestRefusal::TooManySessions);
                Err(SessionError::Full)
            }
        }
    }
}

/// Whether a request asks for a stream that lasts as long as its client does.
fn is_standing_stream(request: &Request) -> bool {
    let headers = request.headers();
    let listens = headers.get(MCP_METHOD_HEADER).is_some_and(|it| it == LISTEN_METHOD);
    listens || request.method() == Method::GET && !headers.contains_key(LAST_EVENT_ID_HEADER)
}

/// The session of the request that this task serves can be used by others.
fn finish_restore() {
    let _ =
        SERVED_REQUEST.try_with(|served| served.restore.lock().take().map(RestorePermit::finish));
}

fn refuse_request(refusal: RequestRefusal) {
    let _ = SERVED_REQUEST.try_with(|served| served.refused.set(refusal));
}

impl RequestRefusal {
    fn to_problem(self) -> Problem {
        match self {
            RequestRefusal::TooManySessions => {
                let message = "too many sessions are open and in use, of this caller or of all";
                Problem::unavailable(message)
                    .with_hint(
                        "end sessions that are no longer needed with DELETE, or try again later",
                    )
                    .with_retry_after(RETRY_AFTER_SECONDS)
            }
            // By 405, the protocol says that there is no such stream: clients do not ask again.
            RequestRefusal::NoSuchEvents => {
                let message = "nothing is kept of the stream that had this event";
                Problem::new(ProblemCode::MethodNotAllowed, message).with_hint(
                    "its request was cancelled, or its answer is no longer kept: before a call that changes \
                     something is made again, find out whether it took effect",
                )
            }
        }
    }
}

impl SessionManager for McpSessions {
    type Error = SessionError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let who = Principal::current().unwrap_or_default();
        self.admit_session(&who).await?;
        let (id, transport) = self.inner.create_session().await?;
        self.table.insert(id.clone(), who, SessionOpening::New);
        Ok((id, transport))
    }

    async fn restore_session(
        &self,
        id: SessionId,
    ) -> Result<RestoreOutcome<Self::Transport>, Self::Error> {
        let who = Principal::current().unwrap_or_default();
        self.admit_session(&who).await?;
        let outcome = self.inner.restore_session(id.clone()).await?;
        if let RestoreOutcome::Restored(_) = outcome {
            self.table.insert(id, who, SessionOpening::TakenUp);
        }
        Ok(outcome)
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        let params = initialize_params(&message);
        message.insert_extension(SessionEntrance { table: self.table.clone(), name: id.clone() });
        let answer = self.inner.initialize_session(id, message).await?;
        if let (Some(params), Some(version)) = (params, negotiated_version(&answer)) {
            self.table.note_initialized(id, params, version);
        }
        Ok(answer)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        Ok(self.inner.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.table.remove(id);
        self.answers.forget_session(id);
        Ok(self.inner.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        finish_restore();
        let request = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let Some(used) = self.table.begin_request(id, request.clone()) else {
            return Ok(refuse_duplicate_id(request).left_stream());
        };
        let answer = self.inner.create_stream(id, message).await?;
        Ok(if self.knows_priming(id) {
            self.answers.follow_answer(id.clone(), answer, used).left_stream().right_stream()
        } else {
            without_event_ids(answer, used).right_stream().right_stream()
        })
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        self.table.mark_used(id);
        if let Some(request) = cancelled_request(&message) {
            self.table.cancel_call(id, request);
        }
        Ok(self.inner.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        finish_restore();
        let used = self.table.begin_request(id, None);
        self.table.note_stream(id);
        let stream = self.inner.create_standalone_stream(id).await?;
        let first = self.knows_priming(id).then(|| ServerSseMessage::priming("0", STREAM_RETRY));
        Ok(futures::stream::iter(first).chain(stream).map(move |event| {
            let _ = &used;
            event
        }))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        finish_restore();
        let used = self.table.begin_request(id, None);
        // The ids of the stream that does not belong to a request are numbers.
        let stream = if last_event_id.parse::<u64>().is_err() {
            let events = self.answers.read_again(id, &last_event_id);
            if events.is_none() {
                refuse_request(RequestRefusal::NoSuchEvents);
            }
            futures::stream::iter(events).flatten().left_stream()
        } else {
            self.resume_own_stream(id, last_event_id).await?.right_stream()
        };
        Ok(stream.map(move |event| {
            let _ = &used;
            event
        }))
    }
}

impl McpSessions {
    /// Whether the version of this session has priming events.
    fn knows_priming(&self, id: &SessionId) -> bool {
        self.table.protocol_version(id) >= Some(ProtocolVersion::V_2025_11_25)
    }

    /// The stream that does not belong to a request. A session that was taken up numbers its
    /// events anew, so all of them are new to its client.
    async fn resume_own_stream(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        if self.table.note_stream(id) != SessionOpening::TakenUp
            && let Ok(stream) = self.inner.resume(id, last_event_id).await
        {
            return Ok(stream.left_stream());
        }
        Ok(self.inner.create_standalone_stream(id).await?.right_stream())
    }
}

/// What a client says of itself first.
fn initialize_params(message: &ClientJsonRpcMessage) -> Option<InitializeRequestParams> {
    let ClientJsonRpcMessage::Request(request) = message else { return None };
    match &request.request {
        ClientRequest::InitializeRequest(initialize) => Some(initialize.params.clone()),
        _ => None,
    }
}

/// The request that the client no longer wants.
fn cancelled_request(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    let ClientJsonRpcMessage::Notification(notification) = message else { return None };
    match &notification.notification {
        ClientNotification::CancelledNotification(cancelled) => {
            cancelled.params.request_id.as_ref()
        }
        _ => None,
    }
}

/// The version that a session speaks.
fn negotiated_version(answer: &ServerJsonRpcMessage) -> Option<ProtocolVersion> {
    let ServerJsonRpcMessage::Response(response) = answer else { return None };
    match &response.result {
        ServerResult::InitializeResult(result) => Some(result.protocol_version.clone()),
        _ => None,
    }
}

/// The events of an answer without their numbers; the request is in flight for as
/// long as somebody reads them.
fn without_event_ids(
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
fn refuse_duplicate_id(
    id: Option<RequestId>,
) -> impl Stream<Item = ServerSseMessage> + Send + Sync {
    let message = "a request of this session with the same id is still in progress";
    let error = ErrorData::new(ErrorCode::INVALID_REQUEST, message, None);
    let mut event = ServerSseMessage::new("", ServerJsonRpcMessage::error(error, id));
    event.event_id = None;
    futures::stream::iter([event])
}

#[cfg(test)]
mod tests;
