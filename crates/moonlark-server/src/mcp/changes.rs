//! What clients are told of by themselves: that a list has changed, that a
//! resource has.
//!
//! An old client is told everything about lists, and of the resources it
//! subscribed to. A modern one asks for what it wants with one long request.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use moonlark_core::offers::of_uri;
use moonlark_core::{Catalog, Gateway};
use parking_lot::Mutex;
use rmcp::model::{ErrorData, ResourceUpdatedNotificationParam, SubscriptionFilter};
use rmcp::service::SubscriptionContext;
use rmcp::{Peer, RoleServer};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::sessions::IDLE;

/// Resources that one client may watch.
const MOST: usize = 1000;
/// How long a source may take to agree to a subscription.
const AGREEING: Duration = Duration::from_secs(5);

/// Holds a subscription at its source for as long as it lives.
type Watching = Box<dyn Send + Sync>;

/// What an old client watches.
#[derive(Default)]
pub(super) struct Watched {
    uris: Mutex<HashMap<String, Watching>>,
}

impl Watched {
    pub(super) async fn add(
        self: &Arc<Self>,
        gateway: &Gateway,
        uri: String,
        peer: &Peer<RoleServer>,
    ) -> Result<(), ErrorData> {
        if self.uris.lock().len() >= MOST {
            let message = format!("{MOST} resources are watched, which is the limit");
            return Err(ErrorData::invalid_params(message, None));
        }
        let Some(watching) = watch(gateway, &uri).await else {
            let data = Some(json!({"uri": uri}));
            return Err(ErrorData::resource_not_found("no source has this resource", data));
        };
        let mut uris = self.uris.lock();
        let first = uris.is_empty();
        uris.insert(uri, watching);
        if first {
            tokio::spawn(self.clone().tell(gateway.clone(), peer.clone()));
        }
        Ok(())
    }

    pub(super) fn remove(&self, uri: &str) {
        let watching = self.uris.lock().remove(uri);
        drop(watching);
    }

    /// Until nothing is watched any more, or the client is gone.
    async fn tell(self: Arc<Self>, gateway: Gateway, peer: Peer<RoleServer>) {
        let mut updates = gateway.updates();
        while !peer.is_transport_closed() && !self.uris.lock().is_empty() {
            // Looks up from waiting now and then, so as not to outlive the client.
            let Ok(update) = tokio::time::timeout(IDLE, updates.recv()).await else { continue };
            let updated = match update {
                Ok(update) => update.uri,
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return,
            };
            if self.uris.lock().contains_key(&*updated) {
                let update = ResourceUpdatedNotificationParam::new(updated.to_string());
                if peer.notify_resource_updated(update).await.is_err() {
                    break;
                }
            }
        }
        self.uris.lock().clear();
    }
}

/// Tell an old client of every list that changes.
pub(super) async fn tell(gateway: Gateway, peer: Peer<RoleServer>) {
    let mut changes = gateway.subscribe();
    let mut known = gateway.catalog();
    while !peer.is_transport_closed() {
        match tokio::time::timeout(IDLE, changes.changed()).await {
            Ok(Ok(())) => {}
            Err(_elapsed) => continue,
            Ok(Err(_)) => return,
        }
        let current = gateway.catalog();
        let changed = Changed::between(&known, &current);
        known = current;
        let told = async {
            if changed.tools {
                peer.notify_tool_list_changed().await?;
            }
            if changed.resources {
                peer.notify_resource_list_changed().await?;
            }
            if changed.prompts {
                peer.notify_prompt_list_changed().await?;
            }
            Ok::<_, rmcp::ServiceError>(())
        };
        if told.await.is_err() {
            return;
        }
    }
}

/// Subscriptions that were begun before their request was acknowledged.
static BEGUN: LazyLock<Mutex<Vec<Begun>>> = LazyLock::new(Mutex::default);

/// What was asked for, and what holds it.
type Begun = (Vec<String>, Vec<Watching>);

/// The SDK acknowledges a request to listen before it hands it to us, and a
/// client may cause a change right after that. So sources are asked here, where
/// nothing can be awaited: this thread waits, another one works.
pub(super) fn prepare(gateway: &Gateway, requested: &SubscriptionFilter) {
    let uris = uris_of(requested);
    if uris.is_empty() {
        return;
    }
    let watching = tokio::task::block_in_place(|| {
        tokio::runtime::Handle::current().block_on(watch_all(gateway, &uris))
    });
    let mut begun = BEGUN.lock();
    // What was refused after all is never taken.
    let old = begun.len().saturating_sub(MOST);
    begun.drain(..old);
    begun.push((uris, watching));
}

/// Tell a modern client of what it asked for, for as long as it listens.
pub(super) async fn listen(
    gateway: &Gateway,
    gone: &CancellationToken,
    context: SubscriptionContext,
) {
    let mut changes = gateway.subscribe();
    let mut updates = gateway.updates();
    let mut known = gateway.catalog();
    let uris = uris_of(context.sink().accepted());
    let begun = {
        let mut begun = BEGUN.lock();
        begun.iter().position(|it| it.0 == uris).map(|index| begun.swap_remove(index).1)
    };
    let _watching = match begun {
        Some(watching) => watching,
        None => watch_all(gateway, &uris).await,
    };
    let sink = context.sink();
    loop {
        let told = tokio::select! {
            () = context.cancelled() => return,
            () = gone.cancelled() => return,
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
                let current = gateway.catalog();
                let changed = Changed::between(&known, &current);
                known = current;
                async {
                    let wanted = sink.accepted();
                    if changed.tools && wanted.tools_list_changed == Some(true) {
                        sink.notify_tool_list_changed().await?;
                    }
                    if changed.resources && wanted.resources_list_changed == Some(true) {
                        sink.notify_resource_list_changed().await?;
                    }
                    if changed.prompts && wanted.prompts_list_changed == Some(true) {
                        sink.notify_prompt_list_changed().await?;
                    }
                    Ok(())
                }.await
            }
            update = updates.recv() => match update {
                Ok(update) if uris.iter().any(|uri| **uri == *update.uri) => {
                    sink.notify_resource_updated(update.uri.to_string()).await
                }
                Ok(_) | Err(RecvError::Lagged(_)) => Ok(()),
                Err(RecvError::Closed) => return,
            },
        };
        if told.is_err() {
            return;
        }
    }
}

fn uris_of(filter: &SubscriptionFilter) -> Vec<String> {
    filter.resource_subscriptions.iter().flatten().take(MOST).cloned().collect()
}

async fn watch_all(gateway: &Gateway, uris: &[String]) -> Vec<Watching> {
    let all = futures::future::join_all(uris.iter().map(|uri| watch(gateway, uri))).await;
    all.into_iter().flatten().collect()
}

async fn watch(gateway: &Gateway, uri: &str) -> Option<Watching> {
    let catalog = gateway.catalog();
    let offers = of_uri(catalog.offers(), uri)?;
    // A source that does not answer is asked again when it can; see its watcher.
    tokio::time::timeout(AGREEING, offers.watcher.watch(uri)).await.ok()
}

/// Which lists differ. What a source listed anew counts, even if it is the same.
struct Changed {
    tools: bool,
    resources: bool,
    prompts: bool,
}

impl Changed {
    fn between(old: &Catalog, new: &Catalog) -> Changed {
        let tools = old.shown().len() != new.shown().len()
            || old.shown().iter().zip(new.shown()).any(|(a, b)| !Arc::ptr_eq(&a.1, &b.1));
        let (old, new) = (old.offers(), new.offers());
        let mut changed =
            Changed { tools, resources: old.len() != new.len(), prompts: old.len() != new.len() };
        for (a, b) in old.iter().zip(new) {
            changed.resources |= !Arc::ptr_eq(&a.resources, &b.resources)
                || !Arc::ptr_eq(&a.templates, &b.templates);
            changed.prompts |= !Arc::ptr_eq(&a.prompts, &b.prompts);
        }
        changed
    }
}
