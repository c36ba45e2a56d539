//! Streams of events over HTTP: the one that answers a request, and the one on
//! which a legacy server says what belongs to no request. Both go on where
//! they broke off, if the server gave its events ids.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use moonlark_core::Problem;
use moonlark_http::RetryBackoff;
use reqwest::Response;
use tokio::sync::oneshot;

use crate::connection::ProtocolEra;
use crate::http_endpoint::{HttpFailure, content_type};
use crate::json_rpc::{self, RequestFailure};
use crate::pending_requests::RpcAnswer;
use crate::sse_events::SseEventStream;
use crate::streamable_http::StreamableHttpTransport;

/// How often a stream is asked for again without anything new on it.
const MAX_RESUME_ATTEMPTS: usize = 10;
/// Before the first time, unless the server says otherwise.
const FIRST_RESUME_PAUSE: Duration = Duration::from_secs(1);
const MAX_RESUME_PAUSE: Duration = Duration::from_secs(60);
/// Servers that open their stream only with its first event are not waited for.
const LISTENING_STREAM_OPEN_TIMEOUT: Duration = Duration::from_secs(2);

impl StreamableHttpTransport {
    /// Read the stream that a request was answered with, up to its answer.
    pub(super) async fn read_answer_stream(
        self: &Arc<Self>,
        id: u64,
        response: Response,
    ) -> RpcAnswer {
        let conversation = self.rpc_session();
        let mut events = SseEventStream::new(response, conversation.limits().message);
        let (mut place, mut tries) = (None, 0);
        loop {
            while let Some(event) = events.next().await {
                if let Some(answer) = conversation.on_event(event, Some(id), self) {
                    return answer;
                }
            }
            if place.as_deref() != events.last_event_id() {
                (place, tries) = (events.last_event_id().map(str::to_owned), 0);
            }
            // There may be nobody left who knows of the request.
            let Some(place) = place.as_deref().filter(|_| self.era() == ProtocolEra::Legacy) else {
                return Err(self.stream_ended_failure());
            };
            let more = self.resume_stream(place, events.retry_delay(), &mut tries).await?;
            events.resume_with(more);
        }
    }

    /// The rest of a stream, after the event that is called `place`.
    async fn resume_stream(
        &self,
        place: &str,
        retry: Option<Duration>,
        tries: &mut usize,
    ) -> Result<Response, RequestFailure> {
        while *tries < MAX_RESUME_ATTEMPTS {
            *tries += 1;
            tokio::time::sleep(retry.unwrap_or(FIRST_RESUME_PAUSE).min(MAX_RESUME_PAUSE)).await;
            match self.open_event_stream(Some(place)).await {
                Ok(response) if content_type(&response) == "text/event-stream" => {
                    return Ok(response);
                }
                Ok(_) => break,
                Err(HttpFailure::Status(status, page)) if !status.is_server_error() => {
                    let error = json_rpc::find_rpc_error(&page);
                    if self.end_session_if_gone(None, status, error.as_ref()) {
                        return Err(RequestFailure::Lost(self.rpc_session().close_reason()));
                    }
                    break;
                }
                // It may be back in a moment.
                Err(_) => {}
            }
        }
        Err(self.stream_ended_failure())
    }

    fn stream_ended_failure(&self) -> RequestFailure {
        let name = self.rpc_session().name();
        RequestFailure::Lost(Problem::unavailable(format!(
            "upstream '{name}' ended its stream without an answer"
        )))
    }

    /// Open the stream for what belongs to no request, and keep it open for as
    /// long as the conversation lasts. Returns when it is open, or there is none.
    pub(super) async fn open_listening_stream(self: &Arc<Self>) {
        let (opened, is_open) = oneshot::channel();
        let this = Arc::clone(self);
        #[expect(clippy::disallowed_methods, reason = "it ends with the session")]
        tokio::spawn(async move {
            tokio::select! {
                () = this.keep_listening(opened) => {}
                _ = this.rpc_session().wait_closed() => {}
            }
        });
        let _ = tokio::time::timeout(LISTENING_STREAM_OPEN_TIMEOUT, is_open).await;
    }

    async fn keep_listening(self: &Arc<Self>, opened: oneshot::Sender<()>) {
        let mut opened = Some(opened);
        let mut stream: Option<SseEventStream> = None;
        let mut backoff = RetryBackoff::new(FIRST_RESUME_PAUSE, MAX_RESUME_PAUSE);
        loop {
            let place = stream.as_ref().and_then(SseEventStream::last_event_id);
            match self.open_event_stream(place).await {
                Ok(response) if content_type(&response) == "text/event-stream" => {
                    drop(opened.take());
                    let most = self.rpc_session().limits().message;
                    let events = match &mut stream {
                        Some(events) => {
                            events.resume_with(response);
                            events
                        }
                        none => none.insert(SseEventStream::new(response, most)),
                    };
                    if self.read_server_events(events).await {
                        backoff.reset();
                    }
                }
                Ok(_) => return,
                Err(HttpFailure::Status(status, page)) if !status.is_server_error() => {
                    let error = json_rpc::find_rpc_error(&page);
                    // Servers need not have such a stream, and many do not.
                    if status != StatusCode::METHOD_NOT_ALLOWED {
                        self.end_session_if_gone(None, status, error.as_ref());
                    }
                    return;
                }
                Err(HttpFailure::Failed(RequestFailure::Unauthorized(_))) => return,
                // It may be back in a moment.
                Err(_) => {}
            }
            drop(opened.take());
            let wanted = stream.as_ref().and_then(SseEventStream::retry_delay).unwrap_or_default();
            tokio::time::sleep(wanted.max(backoff.next_pause()).min(MAX_RESUME_PAUSE)).await;
        }
    }

    /// True if there was anything.
    async fn read_server_events(self: &Arc<Self>, events: &mut SseEventStream) -> bool {
        let mut any = false;
        while let Some(event) = events.next().await {
            any = true;
            _ = self.rpc_session().on_event(event, None, self);
        }
        any
    }
}
