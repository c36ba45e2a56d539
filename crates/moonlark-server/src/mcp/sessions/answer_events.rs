//! The events of answers, kept for clients whose stream breaks off before they have read them.
//!
//! From 2025-11-25 on, the stream of an answer begins with a priming event: an id without data.
//! A client whose connection is lost sends the last id it got and reads on from there. The
//! request goes on meanwhile. Its events are kept while it is in progress, and then until other
//! answers need the room. An answer that ends without a result, such as that of a cancelled
//! request, is not kept: the client gets a 405 and stops to reconnect.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use moonlark_child::spawn_owned;
use parking_lot::Mutex;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::STREAM_RETRY;
use super::session_table::SessionUse;

/// Events of one answer that are kept; the oldest are dropped first.
const MAX_KEPT_EVENTS: usize = 64;
/// Events that wait for a slow reader before the request waits for it.
const MAX_WAITING_EVENTS: usize = 16;
/// Size of all answers together that are complete.
const MAX_COMPLETE_BYTES: usize = 4 << 20;

#[derive(Default)]
pub(super) struct AnswerEvents(Mutex<KeptAnswers>);

#[derive(Default)]
struct KeptAnswers {
    /// By the name of the stream, with which the ids of its events begin.
    answers: HashMap<String, KeptAnswer>,
    /// Names and sizes of those that are complete, in the order of their completion.
    complete: VecDeque<(String, usize)>,
    complete_bytes: usize,
}

struct KeptAnswer {
    session: SessionId,
    log: Arc<AnswerLog>,
    /// None once it is complete.
    _writer: Option<AbortOnDropHandle<()>>,
}

/// One answer.
#[derive(Default)]
struct AnswerLog(Mutex<AnswerLogState>);

#[derive(Default)]
struct AnswerLogState {
    events: VecDeque<ServerSseMessage>,
    /// The number of the last event; the priming event is number 0.
    last: u64,
    /// The stream that gets the events at the moment.
    reader: Option<AnswerReader>,
    is_complete: bool,
}

/// All events of an answer that is whole before its client has read anything.
pub(super) struct WholeAnswer {
    name: String,
    pub(super) first: ServerSseMessage,
    pub(super) answer: ServerSseMessage,
}

impl WholeAnswer {
    pub(super) fn new(mut answer: ServerSseMessage) -> Self {
        let name = uuid::Uuid::new_v4().simple().to_string();
        let first = ServerSseMessage::priming(event_id(&name, 0), STREAM_RETRY);
        answer.event_id = Some(event_id(&name, 1));
        Self { name, first, answer }
    }
}

#[derive(Clone)]
struct AnswerReader {
    events: mpsc::Sender<ServerSseMessage>,
    /// Another stream gets the events.
    replaced: CancellationToken,
}

impl AnswerEvents {
    /// The stream of an answer, for the client that made the request. The answer is read to its
    /// end even if the client is gone, and the request counts as in progress until then.
    pub(super) fn follow_answer<S: Stream<Item = ServerSseMessage> + Send + 'static>(
        self: &Arc<Self>,
        session: SessionId,
        answer: S,
        used: SessionUse,
    ) -> impl Stream<Item = ServerSseMessage> + Send + Sync + use<S> {
        let name = uuid::Uuid::new_v4().simple().to_string();
        let first = ServerSseMessage::priming(event_id(&name, 0), STREAM_RETRY);
        let log = Arc::new(AnswerLog::default());
        let reader = log.read_after(0);
        let mut kept = self.0.lock();
        let writer = spawn_owned({
            let (all, name, log) = (self.clone(), name.clone(), log.clone());
            async move {
                let mut used = Some(used);
                let mut answer = pin!(answer);
                while let Some(event) = answer.next().await {
                    // Whoever has the answer may use the id of the request again.
                    if is_answer(&event) {
                        used = None;
                    }
                    log.write_event(&name, event).await;
                }
                drop(used);
                all.note_completion(name, &log);
            }
        });
        kept.answers.insert(name, KeptAnswer { session, log, _writer: Some(writer) });
        drop(kept);
        futures::stream::iter([first]).chain(futures::stream::iter(reader).flatten())
    }

    /// Keep an answer whose message has so many bytes.
    pub(super) fn keep_whole_answer(&self, session: SessionId, whole: WholeAnswer, bytes: usize) {
        if bytes > MAX_COMPLETE_BYTES {
            return;
        }
        let state = AnswerLogState {
            events: VecDeque::from([whole.answer]),
            last: 1,
            reader: None,
            is_complete: true,
        };
        let log = Arc::new(AnswerLog(Mutex::new(state)));
        let mut kept = self.0.lock();
        kept.answers.insert(whole.name.clone(), KeptAnswer { session, log, _writer: None });
        kept.note_complete(whole.name, bytes);
    }

    /// The events after the one with this id; none if no more are kept and none will come.
    pub(super) fn read_again(
        &self,
        session: &SessionId,
        last_event_id: &str,
    ) -> Option<ReceiverStream<ServerSseMessage>> {
        let (name, number) = last_event_id.rsplit_once('-')?;
        let kept = self.0.lock();
        let answer = kept.answers.get(name).filter(|it| it.session == *session)?;
        answer.log.read_after(number.parse().ok()?)
    }

    /// Drop all answers of a session that was closed.
    pub(super) fn forget_session(&self, session: &SessionId) {
        let mut kept = self.0.lock();
        kept.answers.retain(|_, it| it.session != *session);
        kept.drop_forgotten();
    }

    fn note_completion(&self, name: String, log: &AnswerLog) {
        let has_result = log.complete();
        let bytes = if has_result { log.count_bytes() } else { 0 };
        let mut kept = self.0.lock();
        if !has_result || bytes > MAX_COMPLETE_BYTES {
            kept.answers.remove(&name);
        } else if kept.answers.contains_key(&name) {
            kept.note_complete(name, bytes);
        }
    }
}

impl KeptAnswers {
    /// Answers that were complete before make room.
    fn note_complete(&mut self, name: String, bytes: usize) {
        self.complete.push_back((name, bytes));
        self.complete_bytes += bytes;
        while self.complete_bytes > MAX_COMPLETE_BYTES
            && let Some((name, bytes)) = self.complete.pop_front()
        {
            self.answers.remove(&name);
            self.complete_bytes -= bytes;
        }
    }

    fn drop_forgotten(&mut self) {
        let KeptAnswers { answers, complete, complete_bytes } = self;
        complete.retain(|(name, _)| answers.contains_key(name));
        *complete_bytes = complete.iter().map(|(_, bytes)| bytes).sum();
    }
}

impl AnswerLog {
    async fn write_event(&self, name: &str, mut event: ServerSseMessage) {
        let reader = {
            let mut state = self.0.lock();
            state.last += 1;
            event.event_id = Some(event_id(name, state.last));
            if state.events.len() == MAX_KEPT_EVENTS {
                state.events.pop_front();
            }
            state.events.push_back(event.clone());
            state.reader.clone()
        };
        if let Some(reader) = reader {
            tokio::select! {
                // Where the client is gone, the event is kept for when it reconnects.
                _ = reader.events.send(event) => {}
                () = reader.replaced.cancelled() => {}
            }
        }
    }

    /// Close the log; whether its last event is the result.
    fn complete(&self) -> bool {
        let mut state = self.0.lock();
        state.is_complete = true;
        state.reader = None;
        state.events.back().is_some_and(is_answer)
    }

    /// The events after this number, and those that are still to come. The stream that got them
    /// until now ends.
    fn read_after(&self, number: u64) -> Option<ReceiverStream<ServerSseMessage>> {
        let mut state = self.0.lock();
        let missing = usize::try_from(state.last.saturating_sub(number)).unwrap_or(usize::MAX);
        if state.is_complete && missing == 0 {
            return None;
        }
        let (sender, receiver) = mpsc::channel(MAX_KEPT_EVENTS + MAX_WAITING_EVENTS);
        for event in state.events.iter().skip(state.events.len().saturating_sub(missing)) {
            // The channel has room for all kept events.
            let _ = sender.try_send(event.clone());
        }
        let reader = AnswerReader { events: sender, replaced: CancellationToken::new() };
        let before = if state.is_complete { None } else { state.reader.replace(reader) };
        if let Some(before) = before {
            before.replaced.cancel();
        }
        Some(ReceiverStream::new(receiver))
    }

    fn count_bytes(&self) -> usize {
        let state = self.0.lock();
        let messages = state.events.iter().filter_map(|it| it.message.as_deref());
        messages.map(|it| serde_json::to_vec(it).map_or(0, |json| json.len())).sum()
    }
}

/// Whether an event is the last of its request.
pub(super) fn is_answer(event: &ServerSseMessage) -> bool {
    let message = event.message.as_deref();
    matches!(message, Some(ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_)))
}

fn event_id(name: &str, number: u64) -> String {
    format!("{name}-{number}")
}

#[cfg(test)]
mod tests {
    use rmcp::model::{RequestId, ServerResult};
    use serde_json::json;

    use super::super::session_table::{SessionOpening, SessionTable};
    use super::*;
    use crate::principal::Principal;

    struct TestAnswers {
        all: Arc<AnswerEvents>,
        table: Arc<SessionTable>,
    }

    fn test_answers() -> TestAnswers {
        let table = Arc::new(SessionTable::default());
        table.insert("s".into(), Principal::default(), SessionOpening::New);
        TestAnswers { all: Arc::default(), table }
    }

    fn answer(text: &str) -> ServerSseMessage {
        let result = ServerResult::CustomResult(rmcp::model::CustomResult(json!(text)));
        ServerSseMessage::from_message(ServerJsonRpcMessage::response(result, RequestId::Number(1)))
    }

    fn progress() -> ServerSseMessage {
        let message = json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": 1, "progress": 1.0}});
        ServerSseMessage::from_message(serde_json::from_value(message).unwrap())
    }

    impl TestAnswers {
        /// The sender of an answer's events, and the stream that its client reads.
        fn begin(
            &self,
        ) -> (
            mpsc::Sender<ServerSseMessage>,
            std::pin::Pin<Box<impl Stream<Item = ServerSseMessage> + use<>>>,
        ) {
            let (sender, receiver) = mpsc::channel(1);
            let used = self.table.begin_request(&"s".into(), None).unwrap();
            let answer = ReceiverStream::new(receiver);
            (sender, Box::pin(self.all.follow_answer("s".into(), answer, used)))
        }

        /// The numbers of the events after this one.
        async fn again(&self, id: &str) -> Option<Vec<String>> {
            let events = self.all.read_again(&"s".into(), id)?;
            Some(events.map(|it| number(&it)).collect().await)
        }
    }

    fn number(event: &ServerSseMessage) -> String {
        event.event_id.as_deref().unwrap().rsplit_once('-').unwrap().1.to_owned()
    }

    #[tokio::test]
    async fn a_client_that_reconnects_reads_what_it_missed() {
        let answers = test_answers();
        let (events, mut stream) = answers.begin();
        let first = stream.next().await.unwrap();
        assert!(first.message.is_none() && first.retry == Some(STREAM_RETRY));
        let id = first.event_id.unwrap();
        events.send(progress()).await.unwrap();
        let second = stream.next().await.unwrap().event_id.unwrap();
        // It is gone, and reconnects while the request is in progress.
        drop(stream);
        events.send(progress()).await.unwrap();
        let mut stream = answers.all.read_again(&"s".into(), &second).unwrap();
        assert_eq!(number(&stream.next().await.unwrap()), "2");
        events.send(answer("done")).await.unwrap();
        assert_eq!(number(&stream.next().await.unwrap()), "3");
        drop(events);
        assert!(stream.next().await.is_none());
        // And again when the answer is complete, after either event.
        let all = ["1", "2", "3"].map(str::to_owned).to_vec();
        assert_eq!(answers.again(&id).await, Some(all.clone()));
        assert_eq!(answers.again(&second).await, Some(all[1..].to_vec()));
        let last = second.replace("-1", "-3");
        assert_eq!(answers.again(&last).await, None, "it has read everything");
        for unknown in ["", "0", "3/1", "x-1", &format!("{id}x")] {
            assert_eq!(answers.again(unknown).await, None, "{unknown}");
        }
        assert!(answers.all.read_again(&"other".into(), &id).is_none());
        answers.all.forget_session(&"s".into());
        assert_eq!(answers.again(&id).await, None);
        assert_eq!(answers.all.0.lock().complete_bytes, 0);
    }

    #[tokio::test]
    async fn a_stalled_reader_does_not_hold_up_the_one_that_replaces_it() {
        let answers = test_answers();
        let (events, mut stalled) = answers.begin();
        let id = stalled.next().await.unwrap().event_id.unwrap();
        let writing = tokio::spawn(async move {
            for _ in 0..1000 {
                events.send(progress()).await.unwrap();
            }
            events.send(answer("done")).await.unwrap();
        });
        // Until its channel is full.
        while answers.all.0.lock().answers.values().all(|it| it.log.0.lock().last <= 80) {
            tokio::task::yield_now().await;
        }
        let again: Vec<String> =
            answers.all.read_again(&"s".into(), &id).unwrap().map(|it| number(&it)).collect().await;
        assert_eq!(again.last().map(String::as_str), Some("1001"));
        writing.await.unwrap();
        // The stalled one gets what it had been sent, and ends.
        assert!(stalled.count().await < 1000);
    }

    #[tokio::test]
    async fn answers_without_a_result_and_beyond_the_limit_are_not_kept() {
        let answers = test_answers();
        let (events, mut stream) = answers.begin();
        let id = stream.next().await.unwrap().event_id.unwrap();
        events.send(progress()).await.unwrap();
        drop(events);
        assert_eq!(stream.count().await, 1);
        assert_eq!(answers.again(&id).await, None);
        assert!(answers.all.0.lock().answers.is_empty());

        let mut ids = Vec::new();
        for size in [MAX_COMPLETE_BYTES / 2, MAX_COMPLETE_BYTES / 2, 100, MAX_COMPLETE_BYTES + 1] {
            let (events, mut stream) = answers.begin();
            ids.push(stream.next().await.unwrap().event_id.unwrap());
            events.send(answer(&"x".repeat(size))).await.unwrap();
            drop(events);
            assert_eq!(stream.count().await, 1);
        }
        let mut kept = Vec::new();
        for id in &ids {
            kept.push(answers.again(id).await.is_some());
        }
        assert_eq!(kept, [false, true, true, false]);
    }
}
