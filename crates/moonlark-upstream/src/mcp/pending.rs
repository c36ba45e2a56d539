//! Requests in flight, and whom something that a server says belongs to.

use std::collections::BTreeMap;
use std::sync::Arc;

use moonlark_core::Value;
use moonlark_core::value::Object;
use tokio::sync::oneshot;

use super::link::{About, Listener};
use super::wire::Failure;

pub(super) type Answer = Result<Object, Failure>;

/// The request that lasts, and whose notifications name it.
pub(super) const LISTEN: &str = "subscriptions/listen";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// By id, and so by age.
#[derive(Default)]
pub(super) struct Pending(BTreeMap<u64, Waiting>);

struct Waiting {
    owner: u64,
    listener: Option<Arc<dyn Listener>>,
    answer: oneshot::Sender<Answer>,
    /// Not what a server means when it names no request.
    standing: bool,
}

pub(super) enum Whom {
    Listener(Arc<dyn Listener>),
    /// Nobody's in particular.
    Inbox,
    /// Somebody's, but there is no telling whose.
    Unclear,
}

impl Pending {
    pub(super) fn add(
        &mut self,
        id: u64,
        method: &str,
        about: &About,
    ) -> oneshot::Receiver<Answer> {
        let (answer, receiver) = oneshot::channel();
        let standing = method == LISTEN;
        let listener = about.listener.clone();
        self.0.insert(id, Waiting { owner: about.owner, listener, answer, standing });
        receiver
    }

    /// True if it was there.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        self.0.remove(&id).is_some()
    }

    /// For handing the answer over; whoever asked waits at the other end.
    pub(super) fn take(&mut self, id: u64) -> Option<oneshot::Sender<Answer>> {
        Some(self.0.remove(&id)?.answer)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whose a notification is. `stream` is the request on whose own stream it
    /// came, where there are such.
    pub(super) fn notified(&self, method: &str, params: &Object, stream: Option<u64>) -> Whom {
        let meta = params.get("_meta");
        let subscription = meta.and_then(|meta| meta.get(SUBSCRIPTION)).and_then(id_of);
        if let Some(id) = subscription
            && let Some(listener) = self.listener(id)
        {
            return Whom::Listener(listener);
        }
        if method == "notifications/progress" {
            // A token that we did not give out, or whose request is over.
            let token = params.get("progressToken").and_then(id_of);
            return token.and_then(|id| self.listener(id)).map_or(Whom::Inbox, Whom::Listener);
        }
        if let Some(waiting) = stream.and_then(|id| self.0.get(&id))
            && (waiting.standing || !is_for_all(method))
        {
            return waiting.listener.clone().map_or(Whom::Inbox, Whom::Listener);
        }
        match is_for_all(method) {
            true => Whom::Inbox,
            false => self.somebody(),
        }
    }

    /// Whose a request of the server's is.
    pub(super) fn asked(&self, stream: Option<u64>) -> Whom {
        match stream.and_then(|id| self.0.get(&id)) {
            Some(waiting) => waiting.listener.clone().map_or(Whom::Inbox, Whom::Listener),
            None => self.somebody(),
        }
    }

    /// The oldest request with a listener, if all of them are for one owner.
    fn somebody(&self) -> Whom {
        let mut candidates = self
            .0
            .values()
            .filter(|waiting| !waiting.standing)
            .filter_map(|waiting| Some((waiting.owner, waiting.listener.as_ref()?)));
        let Some((owner, listener)) = candidates.next() else { return Whom::Inbox };
        match candidates.all(|(other, _)| other == owner) {
            true => Whom::Listener(listener.clone()),
            false => Whom::Unclear,
        }
    }

    fn listener(&self, id: u64) -> Option<Arc<dyn Listener>> {
        self.0.get(&id)?.listener.clone()
    }
}

/// What is said to everybody, even in the course of one request.
fn is_for_all(method: &str) -> bool {
    method.ends_with("/list_changed")
        || method.starts_with("notifications/tasks")
        || matches!(
            method,
            "notifications/resources/updated" | "notifications/elicitation/complete"
        )
}

/// Ids and tokens of ours are integers; some servers give them back as text.
pub(super) fn id_of(value: &Value) -> Option<u64> {
    match value {
        Value::Int(id) => u64::try_from(*id).ok(),
        Value::Str(text) => text.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;

    use super::super::wire::Rpc;
    use super::*;

    struct Ear;
    impl Listener for Ear {
        fn notification(&self, _: &str, _: Object) {}
        fn request(&self, _: &str, _: Object) -> BoxFuture<'_, Result<Object, Rpc>> {
            Box::pin(async { Ok(Object::new()) })
        }
    }

    /// Requests 1, 2, … as (owner, listens), and who they turn out to be for.
    struct Scene {
        pending: Pending,
        ears: Vec<Option<Arc<dyn Listener>>>,
    }

    fn scene(requests: &[(&str, u64, bool)]) -> Scene {
        let mut scene = Scene { pending: Pending::default(), ears: Vec::new() };
        for (index, (method, owner, listens)) in requests.iter().enumerate() {
            let listener = listens.then(|| Arc::new(Ear) as Arc<dyn Listener>);
            let about = About { listener: listener.clone(), owner: *owner, ..About::default() };
            scene.pending.add(index as u64 + 1, method, &about);
            scene.ears.push(listener);
        }
        scene
    }

    impl Scene {
        fn name(&self, whom: Whom) -> String {
            match whom {
                Whom::Inbox => "inbox".into(),
                Whom::Unclear => "unclear".into(),
                Whom::Listener(found) => {
                    let same = |ear: &Option<Arc<dyn Listener>>| {
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
            self.name(self.pending.notified(method, &params, stream))
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
        assert_eq!(one.name(one.pending.asked(None)), "2");
        let two = scene(&[(CALL, 1, true), (CALL, 2, true)]);
        assert_eq!(log(&two), "unclear");
        assert_eq!(two.name(two.pending.asked(None)), "unclear");
        let standing = scene(&[(LISTEN, 1, true), (CALL, 2, true)]);
        assert_eq!(log(&standing), "2");
    }

    #[test]
    fn what_comes_on_a_requests_own_stream_is_its() {
        let scene = scene(&[(CALL, 1, true), (CALL, 2, true), (LISTEN, 3, true), (CALL, 4, false)]);
        let on = |method, stream| scene.notified(method, "{}", Some(stream));
        assert_eq!(on("notifications/message", 2), "2");
        assert_eq!(scene.name(scene.pending.asked(Some(1))), "1");
        assert_eq!(scene.name(scene.pending.asked(Some(4))), "inbox");
        assert_eq!(on("notifications/tools/list_changed", 2), "inbox");
        assert_eq!(on("notifications/tools/list_changed", 3), "3");
    }

    #[test]
    fn what_is_for_all_is_nobodys_unless_it_names_a_subscription() {
        let scene = scene(&[(LISTEN, 1, true), (CALL, 1, true)]);
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
