//! Resources of a server that somebody watches, and keeping the server to it.
//!
//! A modern server is asked once for all of them, and for its lists; when they
//! change, a new request takes over from the old one. An old server is asked for
//! each. Either way it happens again whenever the connection was made anew.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use moonlark_core::offers::Watcher;
use moonlark_core::value::Object;
use moonlark_core::{Call, Result, Value};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use super::link::{About, Era, Inbox, Link, Listener};
use super::listener::Mailbox;
use super::shared::Shared;
use super::wire::{Failure, Rpc};

/// How long a server may take to agree.
const AGREEING: Duration = Duration::from_secs(5);
/// How long to wait before a subscription that ended is begun again.
const AGAIN: Duration = Duration::from_secs(5);
const METHOD_NOT_FOUND: i64 = -32601;

pub(crate) struct Watching {
    shared: Weak<Shared>,
    /// What is watched under each lease.
    leases: Mutex<HashMap<u64, String>>,
    /// Counts the changes of `leases`.
    wanted: watch::Sender<u64>,
    /// The change that the server knows of.
    agreed: watch::Sender<u64>,
}

/// Have the server tell of changes of `uri` for as long as the lease lasts.
/// Ready when it has agreed.
pub(crate) async fn watch(shared: &Shared, call: &Call, lease: u64, uri: &str) -> Result<()> {
    let _busy = shared.busy();
    // One that rests is woken; what is not there cannot agree.
    shared.link(call.deadline()).await?;
    let watching = &shared.watching;
    let version = watching.change(|leases| drop(leases.insert(lease, uri.to_owned())));
    let mut agreed = watching.agreed.subscribe();
    let agreement = agreed.wait_for(|agreed| *agreed >= version);
    // If it takes longer, it is watched from then on.
    let _ = tokio::time::timeout(AGREEING, agreement).await;
    Ok(())
}

/// For the catalog: how leases on resources of this server end.
pub(crate) struct Leases(pub(crate) Weak<Shared>);

impl Watcher for Leases {
    fn release(&self, lease: u64) {
        let Some(shared) = self.0.upgrade() else { return };
        if shared.watching.leases.lock().contains_key(&lease) {
            shared.watching.change(|leases| drop(leases.remove(&lease)));
        }
    }
}

impl Watching {
    pub(crate) fn new(shared: Weak<Shared>) -> Self {
        Self {
            shared,
            leases: Mutex::default(),
            wanted: watch::Sender::new(0),
            agreed: watch::Sender::new(0),
        }
    }

    /// Whether anything is watched.
    pub(crate) fn any(&self) -> bool {
        !self.leases.lock().is_empty()
    }

    /// Keep the server to it for as long as what is returned lives.
    pub(crate) fn follow(&self, link: &Link) -> AbortOnDropHandle<()> {
        let (shared, link) = (self.shared.clone(), link.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            let Some(wanted) = shared.upgrade().map(|shared| shared.watching.wanted.subscribe())
            else {
                return;
            };
            match link.peer().era {
                Era::Modern => listen(shared, link, wanted).await,
                Era::Legacy => subscribe(shared, link, wanted).await,
            }
        }))
    }

    fn change(&self, edit: impl FnOnce(&mut HashMap<u64, String>)) -> u64 {
        let mut leases = self.leases.lock();
        edit(&mut leases);
        let mut version = 0;
        self.wanted.send_modify(|wanted| {
            *wanted += 1;
            version = *wanted;
        });
        version
    }

    /// What is watched now, and which change that is.
    fn now(&self) -> (u64, HashSet<String>) {
        let leases = self.leases.lock();
        (*self.wanted.borrow(), leases.values().cloned().collect())
    }
}

/// An old server: each resource by itself.
async fn subscribe(shared: Weak<Shared>, link: Link, mut wanted: watch::Receiver<u64>) {
    let mut told: HashSet<String> = HashSet::new();
    loop {
        wanted.mark_unchanged();
        let Some((version, uris)) = shared.upgrade().map(|shared| shared.watching.now()) else {
            return;
        };
        for (method, uri) in told
            .difference(&uris)
            .map(|uri| ("resources/unsubscribe", uri))
            .chain(uris.difference(&told).map(|uri| ("resources/subscribe", uri)))
        {
            let mut params = Object::new();
            params.insert("uri".to_owned(), Value::from(uri.as_str()));
            let asked = link.request(method, params, About::default());
            if let Ok(Err(failure)) = tokio::time::timeout(AGREEING, asked).await {
                tracing::debug!(target: "upstream", "{method} of {uri}: {failure:?}");
            }
        }
        told = uris;
        if let Some(shared) = shared.upgrade() {
            shared.watching.agreed.send_replace(version);
        }
        if wanted.changed().await.is_err() {
            return;
        }
    }
}

/// A modern server: everything in one request that lasts.
async fn listen(shared: Weak<Shared>, link: Link, mut wanted: watch::Receiver<u64>) {
    let mut _current: Option<AbortOnDropHandle<()>> = None;
    loop {
        wanted.mark_unchanged();
        let Some((version, uris)) = shared.upgrade().map(|shared| shared.watching.now()) else {
            return;
        };
        let acknowledged = Arc::new(Notify::new());
        let ended = Arc::new(Notify::new());
        let listener = Arc::new(Heard {
            mailbox: Mailbox(shared.clone()),
            acknowledged: acknowledged.clone(),
        });
        let (asking, over, unsupported) = (link.clone(), ended.clone(), watch::Sender::new(false));
        let refused = unsupported.subscribe();
        let next = AbortOnDropHandle::new(tokio::spawn(async move {
            let about = About { listener: Some(listener), quiet: true, ..About::default() };
            let answer = asking.request("subscriptions/listen", filter(uris), about).await;
            if matches!(answer, Err(Failure::Refused(Rpc { code: METHOD_NOT_FOUND, .. }))) {
                unsupported.send_replace(true);
            }
            over.notify_one();
        }));
        tokio::select! {
            () = acknowledged.notified() => {}
            () = ended.notified() => ended.notify_one(),
            () = tokio::time::sleep(AGREEING) => {}
        }
        // The old one ends only now, so that nothing falls between them.
        _current = Some(next);
        if let Some(shared) = shared.upgrade() {
            shared.watching.agreed.send_replace(version);
        }
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            () = ended.notified() => {
                if *refused.borrow() || !link.is_open() {
                    return;
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

fn filter(uris: HashSet<String>) -> Object {
    let yes = Value::Bool(true);
    let uris = Value::Array(uris.into_iter().map(Value::from).collect());
    let notifications = Value::object([
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
struct Heard {
    mailbox: Mailbox,
    acknowledged: Arc<Notify>,
}

impl Listener for Heard {
    fn notification(&self, method: &str, params: Object) {
        match method {
            "notifications/subscriptions/acknowledged" => self.acknowledged.notify_one(),
            _ => self.mailbox.notification(method, params),
        }
    }

    fn request(&self, method: &str, params: Object) -> BoxFuture<'_, Result<Object, Rpc>> {
        self.mailbox.request(method, params)
    }
}
