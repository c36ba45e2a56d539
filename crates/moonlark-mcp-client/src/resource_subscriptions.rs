//! Resource subscriptions at a server, and renewing them.
//!
//! A modern server is asked once for all of them, and for its lists; when they
//! change, a new request takes over from the old one. An old server is asked for
//! each. Either way it happens again whenever the connection was made anew.
//!
//! URIs are kept for as long as they are watched: each is limited, and so are all that
//! one caller watches.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use moonlark_child::spawn_owned;
use moonlark_core::limits::format_size;
use moonlark_core::source_resources::ResourceWatcher;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Result, Value};
use moonlark_gateway::Call;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::connection::{McpConnection, McpRequestOptions, ProtocolEra, RequestListener};
use crate::json_rpc::{RequestFailure, RpcError};
use crate::server_messages::UpstreamInbox;
use crate::upstream_state::UpstreamState;

/// How long a server may take to agree.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait before a subscription that ended is begun again.
const RESUBSCRIBE_DELAY: Duration = Duration::from_secs(5);
/// The URI of a resource that is watched, as MCP clients may send it.
const MAX_RESOURCE_URI_BYTES: usize = 8 * 1024;
/// All URIs of this server that one caller watches, in all of its sessions.
const MAX_WATCHED_BYTES_PER_CALLER: usize = 4 << 20;

#[derive(Default)]
pub(crate) struct ResourceSubscriptions {
    /// What is watched under each lease.
    leases: Mutex<HashMap<u64, WatchedResource>>,
    /// Counts the changes of `leases`.
    wanted: watch::Sender<u64>,
    /// The change that the server knows of.
    agreed: watch::Sender<u64>,
}

struct WatchedResource {
    uri: String,
    /// The name of who watches it.
    caller: Arc<str>,
}

/// Have the server tell of changes of `uri` for as long as the lease lasts.
/// Ready when it has agreed.
pub(crate) async fn watch_resource(
    shared: &UpstreamState,
    call: &Call,
    lease: u64,
    uri: &str,
) -> Result<()> {
    if uri.len() > MAX_RESOURCE_URI_BYTES {
        let (bytes, limit) = (uri.len(), format_size(MAX_RESOURCE_URI_BYTES));
        let message = format!("the resource URI has {bytes} bytes; the limit is {limit}");
        return Err(Problem::bad_request(message));
    }
    let _busy = shared.mark_busy();
    // One that rests is woken; what is not there cannot agree.
    shared.wait_for_connection(call.deadline()).await?;
    let watching = &shared.watching;
    let version = watching.add_lease(lease, uri, call.caller().name())?;
    let mut agreed = watching.agreed.subscribe();
    let agreement = agreed.wait_for(|agreed| *agreed >= version);
    // If it takes longer, it is watched from then on.
    let _ = tokio::time::timeout(SUBSCRIBE_TIMEOUT, agreement).await;
    Ok(())
}

/// Keep the server to it for as long as what is returned lives.
pub(crate) fn keep_subscribed(
    shared: &Arc<UpstreamState>,
    link: &McpConnection,
) -> AbortOnDropHandle<()> {
    let (watching, link) = (shared.watching.clone(), link.clone());
    match link.peer().era {
        ProtocolEra::Modern => {
            spawn_owned(run_modern_subscription(Arc::downgrade(shared), watching, link))
        }
        ProtocolEra::Legacy => spawn_owned(run_legacy_subscriptions(watching, link)),
    }
}

/// For the catalog: how leases on resources of this server end.
impl ResourceWatcher for ResourceSubscriptions {
    fn release_lease(&self, lease: u64) {
        let mut leases = self.leases.lock();
        if leases.remove(&lease).is_some() {
            self.next_version();
        }
    }
}

impl ResourceSubscriptions {
    /// Whether anything is watched.
    pub(crate) fn has_leases(&self) -> bool {
        !self.leases.lock().is_empty()
    }

    /// Watch one more resource, if the caller may; which change that is.
    fn add_lease(&self, lease: u64, uri: &str, caller: &str) -> Result<u64> {
        let mut leases = self.leases.lock();
        let (mut bytes, mut known_caller) = (uri.len(), None);
        for watched in leases.values().filter(|it| *it.caller == *caller) {
            bytes += watched.uri.len();
            known_caller = Some(watched.caller.clone());
        }
        if bytes > MAX_WATCHED_BYTES_PER_CALLER {
            let limit = format_size(MAX_WATCHED_BYTES_PER_CALLER);
            let message = format!(
                "the URIs of all resources that {caller} watches are over the limit of {limit}"
            );
            return Err(Problem::limit_exceeded(message).with_hint("unsubscribe from some"));
        }
        let caller = known_caller.unwrap_or_else(|| caller.into());
        leases.insert(lease, WatchedResource { uri: uri.to_owned(), caller });
        Ok(self.next_version())
    }

    /// Count a change of the leases, while they are locked.
    fn next_version(&self) -> u64 {
        let mut version = 0;
        self.wanted.send_modify(|wanted| {
            *wanted += 1;
            version = *wanted;
        });
        version
    }

    /// What is watched now, and which change that is.
    fn current_uris(&self) -> (u64, HashSet<String>) {
        let leases = self.leases.lock();
        (*self.wanted.borrow(), leases.values().map(|it| it.uri.clone()).collect())
    }
}

/// An old server: each resource by itself.
async fn run_legacy_subscriptions(watching: Arc<ResourceSubscriptions>, link: McpConnection) {
    let mut wanted = watching.wanted.subscribe();
    let mut told: HashSet<String> = HashSet::new();
    loop {
        wanted.mark_unchanged();
        let (version, uris) = watching.current_uris();
        for (method, uri) in told
            .difference(&uris)
            .map(|uri| ("resources/unsubscribe", uri))
            .chain(uris.difference(&told).map(|uri| ("resources/subscribe", uri)))
        {
            let mut params = Object::new();
            params.insert("uri".to_owned(), Value::from(uri.as_str()));
            let asked = link.send_request(method, params, McpRequestOptions::default());
            if let Ok(Err(failure)) = tokio::time::timeout(SUBSCRIBE_TIMEOUT, asked).await {
                tracing::debug!(target: "upstream", "{method} of {uri}: {failure:?}");
            }
        }
        told = uris;
        watching.agreed.send_replace(version);
        if wanted.changed().await.is_err() {
            return;
        }
    }
}

/// A modern server: everything in one request that lasts.
async fn run_modern_subscription(
    shared: Weak<UpstreamState>,
    watching: Arc<ResourceSubscriptions>,
    link: McpConnection,
) {
    let mut wanted = watching.wanted.subscribe();
    let mut _current: Option<AbortOnDropHandle<()>> = None;
    loop {
        wanted.mark_unchanged();
        let (version, uris) = watching.current_uris();
        let acknowledged = Arc::new(Notify::new());
        let ended = Arc::new(Notify::new());
        let listener = Arc::new(SubscriptionListener {
            mailbox: UpstreamInbox(shared.clone()),
            acknowledged: acknowledged.clone(),
        });
        let (asking, over, unsupported) = (link.clone(), ended.clone(), watch::Sender::new(false));
        let refused = unsupported.subscribe();
        let next = spawn_owned(async move {
            let about = McpRequestOptions {
                listener: Some(listener),
                quiet: true,
                ..McpRequestOptions::default()
            };
            let answer =
                asking.send_request("subscriptions/listen", subscription_filter(uris), about).await;
            if let Err(RequestFailure::Refused(rpc)) = answer
                && rpc.code == RpcError::METHOD_NOT_FOUND
            {
                unsupported.send_replace(true);
            }
            over.notify_one();
        });
        tokio::select! {
            () = acknowledged.notified() => {}
            () = ended.notified() => ended.notify_one(),
            () = tokio::time::sleep(SUBSCRIBE_TIMEOUT) => {}
        }
        // The old one ends only now, so that nothing falls between them.
        _current = Some(next);
        watching.agreed.send_replace(version);
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            () = ended.notified() => {
                if *refused.borrow() || !link.is_open() {
                    return;
                }
                tokio::time::sleep(RESUBSCRIBE_DELAY).await;
            }
        }
    }
}

fn subscription_filter(uris: HashSet<String>) -> Object {
    let yes = Value::Bool(true);
    let uris = Value::Array(uris.into_iter().map(Value::from).collect());
    let notifications = Value::from_fields([
        ("toolsListChanged", yes.clone()),
        ("promptsListChanged", yes.clone()),
        ("resourcesListChanged", yes),
        ("resourceSubscriptions", uris),
    ]);
    let mut params = Object::new();
    params.insert("notifications".to_owned(), notifications);
    params
}

/// What comes on the lasting request.
struct SubscriptionListener {
    mailbox: UpstreamInbox,
    acknowledged: Arc<Notify>,
}

impl RequestListener for SubscriptionListener {
    fn on_notification(&self, method: &str, params: Object) {
        match method {
            "notifications/subscriptions/acknowledged" => self.acknowledged.notify_one(),
            _ => self.mailbox.on_notification(method, params),
        }
    }

    fn on_request(&self, method: &str, params: Object) -> BoxFuture<'_, Result<Object, RpcError>> {
        self.mailbox.on_request(method, params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_watches_is_limited_and_leaves_room_for_others() {
        let watching = ResourceSubscriptions::default();
        let uri = "x".repeat(MAX_RESOURCE_URI_BYTES);
        let most = (MAX_WATCHED_BYTES_PER_CALLER / MAX_RESOURCE_URI_BYTES) as u64;
        for lease in 0..most {
            assert_eq!(watching.add_lease(lease, &uri, "bob").unwrap(), lease + 1);
        }
        let refused = watching.add_lease(most, "a:b", "bob").unwrap_err();
        assert_eq!(
            refused.message,
            "the URIs of all resources that bob watches are over the limit of 4 MB"
        );
        assert_eq!(watching.add_lease(most, "a:b", "alice").unwrap(), most + 1);
        watching.release_lease(0);
        assert!(watching.add_lease(most + 1, "a:b", "bob").is_ok());
        assert_eq!(watching.current_uris().0, most + 3);
    }
}
