//! HTTP+SSE, the transport of 2024-11-05: one stream for everything the server
//! says, whose first event names the address that messages are posted to. With
//! the stream, the connection ends.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use moonlark_core::Problem;
use moonlark_core::trace::Trace;
use moonlark_core::value::Object;
use url::Url;

use super::conversation::{Conversation, Reply};
use super::events::{Event, Events};
use super::http::GivenUp;
use super::link::About;
use super::pending::Answer;
use super::site::{Site, Trouble, content_type, origin};
use super::wire::{self, Failure};
use crate::trace_headers;

pub(super) struct Sse {
    conversation: Arc<Conversation>,
    /// Where messages are posted to.
    site: Site,
}

impl Sse {
    /// Open the stream and wait for the address.
    pub(super) async fn open(
        conversation: Arc<Conversation>,
        site: Site,
    ) -> Result<Arc<Sse>, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let response = site
            .ask(Method::GET, headers, Bytes::new())
            .await
            .map_err(|trouble| failure(&site, trouble))?;
        let name = conversation.name();
        if content_type(&response) != "text/event-stream" {
            let message = format!("upstream '{name}' answered with no stream of events");
            return Err(Failure::Lost(not_sse(name, message)));
        }
        let mut events = Events::new(response, conversation.limits().message);
        let address = loop {
            match events.next().await {
                Some(Event::Message { kind: Some(kind), data }) if kind == "endpoint" => {
                    break data;
                }
                Some(_) => {}
                None => {
                    let message = format!("upstream '{name}' does not say where to send messages");
                    return Err(Failure::Lost(not_sse(name, message)));
                }
            }
        };
        let url = endpoint(site.url(), &address).map_err(|why| {
            Failure::Lost(not_sse(name, format!("upstream '{name}' wants messages at {why}")))
        })?;
        let site = site.at(url);
        let sse = Arc::new(Sse { conversation, site });
        tokio::spawn(Arc::clone(&sse).listen(events));
        Ok(sse)
    }

    pub(super) fn conversation(&self) -> &Arc<Conversation> {
        &self.conversation
    }

    pub(super) async fn request(
        self: &Arc<Self>,
        method: &str,
        params: Object,
        about: About,
    ) -> Result<Object, Failure> {
        let (mut flight, message) = self.conversation.begin(method, &params, &about)?;
        let mut given_up = GivenUp::new(self, flight.id, method != "initialize");
        let lost = |_| Err(Failure::Lost(self.conversation.reason()));
        let answer: Answer = tokio::select! {
            biased;
            // It may well come before the server is done with the message.
            answer = &mut flight.answer => answer.unwrap_or_else(lost),
            posted = self.post(message, about.trace.as_ref()) => match posted {
                Ok(()) => (&mut flight.answer).await.unwrap_or_else(lost),
                Err(failure) => Err(failure),
            },
        };
        given_up.answered();
        answer
    }

    pub(super) async fn notify(&self, method: &str, params: Object) -> Result<(), Failure> {
        let message = wire::notification(method, &params).map_err(Failure::NotSent)?;
        self.post(message, None).await
    }

    /// Without its stream the server knows that we are gone.
    pub(super) fn close(&self) {
        let name = self.conversation.name();
        self.conversation
            .end(Problem::unavailable(format!("the connection to upstream '{name}' was closed")));
    }

    async fn listen(self: Arc<Self>, mut events: Events) {
        let conversation = &self.conversation;
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                _ = conversation.closed() => return,
            };
            match event {
                Some(Event::Message { data, .. }) => drop(conversation.hear(&data, None, &self)),
                Some(Event::TooLong(head)) => drop(conversation.skipped(&head, None)),
                None => break,
            }
        }
        let name = conversation.name();
        conversation.end(Problem::unavailable(format!("upstream '{name}' ended its stream")));
    }

    async fn post(&self, message: Vec<u8>, trace: Option<&Trace>) -> Result<(), Failure> {
        let mut headers = HeaderMap::new();
        trace_headers::add(&mut headers, trace);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let posted = self.site.ask(Method::POST, headers, message.into()).await;
        posted.map(drop).map_err(|trouble| failure(&self.site, trouble))
    }
}

impl Reply for Sse {
    fn reply(self: Arc<Self>, message: Vec<u8>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _ = self.post(message, None).await;
        })
    }
}

fn failure(site: &Site, trouble: Trouble) -> Failure {
    match trouble {
        Trouble::Failed(failure) => failure,
        Trouble::Status(status, page) => match wire::error_in(&page) {
            Some((_, rpc)) => Failure::Refused(rpc),
            None => Failure::Lost(site.refused(status, &page)),
        },
    }
}

fn not_sse(name: &str, message: String) -> Problem {
    Problem::unavailable(message)
        .retryable_if(false)
        .hint(format!("if it speaks Streamable HTTP, remove transport of mcp_servers.{name}"))
}

/// Messages, and the token that goes with them, are for that server only.
fn endpoint(base: &Url, address: &[u8]) -> Result<Url, String> {
    let text = std::str::from_utf8(address).map(str::trim).map_err(|_| "no address".to_owned())?;
    let url = base.join(text).map_err(|_| "no address".to_owned())?;
    match url.origin() == base.origin() && url.scheme().starts_with("http") {
        true => Ok(url),
        false => Err(format!("{}, which is another server", origin(&url))),
    }
}

#[cfg(test)]
mod tests;
