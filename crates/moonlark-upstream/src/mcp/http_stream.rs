//! Streams of events over HTTP: the one that answers a request, and the one on
//! which a legacy server says what belongs to no request. Both go on where
//! they broke off, if the server gave its events ids.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use moonlark_core::Problem;
use reqwest::Response;
use tokio::sync::oneshot;

use super::events::{Event, Events};
use super::http::Http;
use super::link::Era;
use super::pending::Answer;
use super::site::{Trouble, content_type};
use super::wire::{self, Failure};

/// How often a stream is asked for again without anything new on it.
const MOST_TRIES: usize = 10;
/// Before the first time, unless the server says otherwise.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Servers that open their stream only with its first event are not waited for.
const OPENING: Duration = Duration::from_secs(2);

impl Http {
    /// Read the stream that a request was answered with, up to its answer.
    pub(super) async fn follow(self: &Arc<Self>, id: u64, response: Response) -> Answer {
        let conversation = self.conversation();
        let mut events = Events::new(response, conversation.limits().message);
        let (mut place, mut tries) = (None, 0);
        loop {
            while let Some(event) = events.next().await {
                match event {
                    Event::Message { data, .. } => {
                        if let Some(answer) = conversation.hear(&data, Some(id), self) {
                            return answer;
                        }
                    }
                    Event::TooLong(head) => {
                        if conversation.skipped(&head, Some(id)) {
                            return Err(Failure::Lost(conversation.too_long()));
                        }
                    }
                }
            }
            if place.as_deref() != events.last_id() {
                (place, tries) = (events.last_id().map(str::to_owned), 0);
            }
            // There may be nobody left who knows of the request.
            let Some(place) = place.as_deref().filter(|_| self.era() == Era::Legacy) else {
                return Err(self.dropped());
            };
            let more = self.go_on(place, events.retry(), &mut tries).await?;
            events.go_on(more);
        }
    }

    /// The rest of a stream, after the event that is called `place`.
    async fn go_on(
        &self,
        place: &str,
        retry: Option<Duration>,
        tries: &mut usize,
    ) -> Result<Response, Failure> {
        while *tries < MOST_TRIES {
            *tries += 1;
            tokio::time::sleep(retry.unwrap_or(PAUSE).min(LONGEST_PAUSE)).await;
            match self.get(Some(place)).await {
                Ok(response) if content_type(&response) == "text/event-stream" => {
                    return Ok(response);
                }
                Ok(_) => break,
                Err(Trouble::Status(status, page)) if !status.is_server_error() => {
                    if self.session_ended(None, status, wire::error_in(&page).as_ref()) {
                        return Err(Failure::Lost(self.conversation().reason()));
                    }
                    break;
                }
                // It may be back in a moment.
                Err(_) => {}
            }
        }
        Err(self.dropped())
    }

    fn dropped(&self) -> Failure {
        let name = self.conversation().name();
        Failure::Lost(Problem::unavailable(format!(
            "upstream '{name}' ended its stream without an answer"
        )))
    }

    /// Open the stream for what belongs to no request, and keep it open for as
    /// long as the conversation lasts. Returns when it is open, or there is none.
    pub(super) async fn listen(self: &Arc<Self>) {
        let (opened, is_open) = oneshot::channel();
        let this = Arc::clone(self);
        tokio::spawn(async move {
            tokio::select! {
                () = this.stay_tuned(opened) => {}
                _ = this.conversation().closed() => {}
            }
        });
        let _ = tokio::time::timeout(OPENING, is_open).await;
    }

    async fn stay_tuned(self: &Arc<Self>, opened: oneshot::Sender<()>) {
        let mut opened = Some(opened);
        let mut stream: Option<Events> = None;
        let mut pause = PAUSE;
        loop {
            let place = stream.as_ref().and_then(Events::last_id);
            match self.get(place).await {
                Ok(response) if content_type(&response) == "text/event-stream" => {
                    drop(opened.take());
                    let most = self.conversation().limits().message;
                    let events = match &mut stream {
                        Some(events) => {
                            events.go_on(response);
                            events
                        }
                        none => none.insert(Events::new(response, most)),
                    };
                    if self.listen_to(events).await {
                        pause = PAUSE;
                    }
                }
                Ok(_) => return,
                Err(Trouble::Status(status, page)) if !status.is_server_error() => {
                    let error = wire::error_in(&page);
                    // Servers need not have such a stream, and many do not.
                    if status != StatusCode::METHOD_NOT_ALLOWED {
                        self.session_ended(None, status, error.as_ref());
                    }
                    return;
                }
                Err(Trouble::Failed(Failure::Unauthorized(_))) => return,
                // It may be back in a moment.
                Err(_) => {}
            }
            drop(opened.take());
            let wanted = stream.as_ref().and_then(Events::retry).unwrap_or_default();
            tokio::time::sleep(wanted.max(pause).min(LONGEST_PAUSE)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// True if there was anything.
    async fn listen_to(self: &Arc<Self>, events: &mut Events) -> bool {
        let mut any = false;
        while let Some(event) = events.next().await {
            any = true;
            match event {
                Event::Message { data, .. } => drop(self.conversation().hear(&data, None, self)),
                Event::TooLong(head) => drop(self.conversation().skipped(&head, None)),
            }
        }
        any
    }
}
