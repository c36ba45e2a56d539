//! Pending requests, and the call that a server's message belongs to.

use std::collections::BTreeMap;
use std::sync::Arc;

use moonlark_core::Value;
use moonlark_core::value::Object;
use tokio::sync::oneshot;

use crate::connection::{McpRequestOptions, RequestListener};
use crate::json_rpc::RequestFailure;

pub(super) type RpcAnswer = Result<Object, RequestFailure>;

/// The request that lasts, and whose notifications name it.
pub(super) const LISTEN_METHOD: &str = "subscriptions/listen";
const SUBSCRIPTION_ID_META_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// By id, and so by age.
#[derive(Default)]
pub(super) struct PendingRequests(BTreeMap<u64, PendingRequest>);

struct PendingRequest {
    owner: u64,
    listener: Option<Arc<dyn RequestListener>>,
    answer: oneshot::Sender<RpcAnswer>,
    /// Not what a server means when it names no request.
    standing: bool,
}

pub(super) enum MessageRecipient {
    Listener(Arc<dyn RequestListener>),
    /// Nobody's in particular.
    Inbox,
    /// Somebody's, but there is no telling whose.
    Unclear,
}

impl From<Option<Arc<dyn RequestListener>>> for MessageRecipient {
    fn from(listener: Option<Arc<dyn RequestListener>>) -> Self {
        listener.map_or(MessageRecipient::Inbox, MessageRecipient::Listener)
    }
}

impl PendingRequests {
    pub(super) fn add_request(
        &mut self,
        id: u64,
        method: &str,
        about: &McpRequestOptions,
    ) -> oneshot::Receiver<RpcAnswer> {
        let (answer, receiver) = oneshot::channel();
        let standing = method == LISTEN_METHOD;
        let listener = about.listener.clone();
        self.0.insert(id, PendingRequest { owner: about.owner, listener, answer, standing });
        receiver
    }

    /// True if it was there.
    pub(super) fn remove_request(&mut self, id: u64) -> bool {
        self.0.remove(&id).is_some()
    }

    /// For handing the answer over; whoever asked waits at the other end.
    pub(super) fn take_answer_sender(&mut self, id: u64) -> Option<oneshot::Sender<RpcAnswer>> {
        Some(self.0.remove(&id)?.answer)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whose a notification is. `stream` is the request on whose own stream it
    /// came, where there are such.
    pub(super) fn notification_recipient(
        &self,
        method: &str,
        params: &Object,
        stream: Option<u64>,
    ) -> MessageRecipient {
        let meta = params.get("_meta");
        let subscription =
            meta.and_then(|meta| meta.get(SUBSCRIPTION_ID_META_KEY)).and_then(own_id_from_value);
        if let Some(listener) = subscription.and_then(|id| self.find_listener(id)) {
            return MessageRecipient::Listener(listener);
        }
        if method == "notifications/progress" {
            // A token that we did not give out, or whose request is over.
            let token = params.get("progressToken").and_then(own_id_from_value);
            return token.and_then(|id| self.find_listener(id)).into();
        }
        match stream.and_then(|id| self.0.get(&id)) {
            Some(waiting) if waiting.standing || !is_broadcast_method(method) => {
                waiting.listener.clone().into()
            }
            _ if is_broadcast_method(method) => MessageRecipient::Inbox,
            _ => self.only_possible_recipient(),
        }
    }

    /// Whose a request of the server's is.
    pub(super) fn request_recipient(&self, stream: Option<u64>) -> MessageRecipient {
        match stream.and_then(|id| self.0.get(&id)) {
            Some(waiting) => waiting.listener.clone().into(),
            None => self.only_possible_recipient(),
        }
    }

    /// The oldest request with a listener, if all of them are for one owner.
    fn only_possible_recipient(&self) -> MessageRecipient {
        let mut candidates = self
            .0
            .values()
            .filter(|waiting| !waiting.standing)
            .filter_map(|waiting| Some((waiting.owner, waiting.listener.as_ref()?)));
        let Some((owner, listener)) = candidates.next() else { return MessageRecipient::Inbox };
        if candidates.all(|(other, _)| other == owner) {
            MessageRecipient::Listener(listener.clone())
        } else {
            MessageRecipient::Unclear
        }
    }

    fn find_listener(&self, id: u64) -> Option<Arc<dyn RequestListener>> {
        self.0.get(&id)?.listener.clone()
    }
}

/// What is said to everybody, even in the course of one request.
fn is_broadcast_method(method: &str) -> bool {
    method.ends_with("/list_changed")
        || method.starts_with("notifications/tasks")
        || matches!(
            method,
            "notifications/resources/updated" | "notifications/elicitation/complete"
        )
}

/// Ids and tokens of ours are integers; some servers give them back as text.
pub(super) fn own_id_from_value(value: &Value) -> Option<u64> {
    match value {
        Value::Int(id) => u64::try_from(*id).ok(),
        Value::Str(text) => text.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;

    use super::*;
    use crate::json_rpc::RpcError;

    struct Ear;
    impl RequestListener for Ear {
        fn on_notification(&self, _: &str, _: Object) {}
        fn on_request(&self, _: &str, _: Object) -> BoxFuture<'_, Result<Object, RpcError>> {
            Box::pin(async { Ok(Object::new()) })
        }
    }

    /// Requests 1, 2, … as (owner, listens), and who they turn out to be for.
    struct Scene {
        pending: PendingRequests,
        ears: Vec<Option<Arc<dyn RequestListener>>>,
    }

    fn scene(requests: &[(&str, u64, bool)]) -> Scene {
        let mut scene = Scene { pending: PendingRequests::default(), ears: Vec::new() };
        for (index, (method, owner, listens)) in requests.iter().enumerate() {
            let listener = listens.then(|| Arc::new(Ear) as Arc<dyn RequestListener>);
            let about = McpRequestOptions {
                listener: listener.clone(),
                owner: *owner,
                ..McpRequestOptions::default()
            };
            scene.pending.add_request(index as u64 + 1, method, &about);
            scene.ears.push(listener);
        }
        scene
    }

    impl Scene {
        fn name(&self, whom: MessageRecipient) -> String {
            match whom {
                MessageRecipient::Inbox => "inbox".into(),
                MessageRecipient::Unclear => "unclear".into(),
                MessageRecipient::Listener(found) => {
                    let same = |ear: &Option<Arc<dyn RequestListener>>| {
                        ear.as_ref().is_some_and(|ear| Arc::ptr_eq(ear, &found))
                    };
                    (self.ears.iter().position(same).unwrap() + 1).to_string()
                }
            }
        }

        fn notified(&self, method: &str, params: &str, stream: Option<u64>) -> String {
            let Value::Object(params) = Value::parse_json(params.as_bytes()).unwrap() else {
                panic!("{params}")
            };
            self.name(self.pending.notification_recipient(method, &params, stream))
        }
    }

    const CALL: &str = "tools/call";

    #[test]
    fn progress_goes_to_the_request_whose_token_it_has() {
        let scene = scene(&[(CALL, 1, true), (CALL, 2, true), (CALL, 3, false)]);
        let progress = |params| scene.notified("notifications/progress", params, None);
        assert_eq!(progress(r#"{"progressToken":2}"#), "2");
        assert_eq!(progress(r#"{"progressToken":"1"}"#), "1");
        assert_eq!(progress(r#"{"progressToken":3}"#), "inbox");
        assert_eq!(progress(r#"{"progressToken":4}"#), "inbox");
        assert_eq!(progress("{}"), "inbox");
    }

    #[test]
    fn what_names_no_request_is_the_oldests_of_a_single_owner() {
        let log = |scene: &Scene| scene.notified("notifications/message", "{}", None);
        let nobody = scene(&[(CALL, 1, false)]);
        assert_eq!(log(&nobody), "inbox");
        let one = scene(&[(CALL, 9, false), (CALL, 1, true), (CALL, 1, true)]);
        assert_eq!(log(&one), "2");
        assert_eq!(one.name(one.pending.request_recipient(None)), "2");
        let two = scene(&[(CALL, 1, true), (CALL, 2, true)]);
        assert_eq!(log(&two), "unclear");
        assert_eq!(two.name(two.pending.request_recipient(None)), "unclear");
        let standing = scene(&[(LISTEN_METHOD, 1, true), (CALL, 2, true)]);
        assert_eq!(log(&standing), "2");
    }

    #[test]
    fn what_comes_on_a_requests_own_stream_is_its() {
        let scene =
            scene(&[(CALL, 1, true), (CALL, 2, true), (LISTEN_METHOD, 3, true), (CALL, 4, false)]);
        let on = |method, stream| scene.notified(method, "{}", Some(stream));
        assert_eq!(on("notifications/message", 2), "2");
        assert_eq!(scene.name(scene.pending.request_recipient(Some(1))), "1");
        assert_eq!(scene.name(scene.pending.request_recipient(Some(4))), "inbox");
        assert_eq!(on("notifications/tools/list_changed", 2), "inbox");
        assert_eq!(on("notifications/tools/list_changed", 3), "3");
    }

    #[test]
    fn what_is_for_all_is_nobodys_unless_it_names_a_subscription() {
        let scene = scene(&[(LISTEN_METHOD, 1, true), (CALL, 1, true)]);
        for method in [
            "notifications/tools/list_changed",
            "notifications/resources/updated",
            "notifications/elicitation/complete",
            "notifications/tasks",
            "notifications/tasks/status",
        ] {
            assert_eq!(scene.notified(method, "{}", None), "inbox");
            let named = r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}"#;
            assert_eq!(scene.notified(method, named, None), "1");
        }
    }
}
