//! What an old client asked to be told for as long as it is connected: changes
//! of resources, and what sources log outside of calls.

#![expect(
    deprecated,
    reason = "old clients still get log messages; the SDK marks them for removal"
)]

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use moonlark_child::spawn_owned;
use moonlark_core::limits::format_size;
use moonlark_core::source_resources::{
    SourceEvent, SourceLogMessage, WatchLease, resources_for_uri,
};
use moonlark_gateway::{Call, CallEvent, Caller, Gateway};
use parking_lot::Mutex;
use rmcp::model::{ErrorData, LoggingLevel, ResourceUpdatedNotificationParam};
use rmcp::{Peer, RoleServer};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::task::AbortOnDropHandle;

use super::call_notifications::{RequestedNotifications, notify_event};
use super::change_notifications::{MAX_WATCHED_RESOURCES, watch_resource};
use super::sessions::check_resource_uri;

/// URIs of all resources that one client watches, together.
const MAX_WATCHED_URI_BYTES: usize = 512 * 1024;

/// Ends with the client: whatever it watched is let go then.
#[derive(Default)]
pub(super) struct LegacySubscriptions {
    wanted: Arc<LegacySubscriptionState>,
    /// From the first wish on.
    telling: OnceLock<AbortOnDropHandle<()>>,
    /// Tells the client that a list has changed.
    list_notifier: Mutex<Option<AbortOnDropHandle<()>>>,
}

#[derive(Default)]
struct LegacySubscriptionState {
    resources: Mutex<HashMap<String, WatchLease>>,
    /// The least severe message.
    level: Mutex<Option<LoggingLevel>>,
}

impl LegacySubscriptionState {
    /// Keep the lease, or say why not; with the one that is over.
    fn keep_lease(
        &self,
        uri: String,
        lease: WatchLease,
    ) -> (Option<WatchLease>, Result<(), ErrorData>) {
        let mut resources = self.resources.lock();
        match check_room(&resources, &uri) {
            Ok(()) => (resources.insert(uri, lease), Ok(())),
            Err(error) => (Some(lease), Err(error)),
        }
    }
}

/// Whether one more resource may be watched.
fn check_room<T>(watched: &HashMap<String, T>, uri: &str) -> Result<(), ErrorData> {
    if watched.contains_key(uri) {
        return Ok(());
    }
    let message = if watched.len() >= MAX_WATCHED_RESOURCES {
        format!("{MAX_WATCHED_RESOURCES} resources are watched, which is the limit")
    } else if watched.keys().map(String::len).sum::<usize>() + uri.len() > MAX_WATCHED_URI_BYTES {
        let limit = format_size(MAX_WATCHED_URI_BYTES);
        format!(
            "the URIs of the resources that are watched have more than {limit}, which is the limit"
        )
    } else {
        return Ok(());
    };
    Err(ErrorData::invalid_params(message, None))
}

impl LegacySubscriptions {
    /// Tell the client when a list changes, for as long as it is there.
    pub(super) fn keep_list_notifier(&self, task: AbortOnDropHandle<()>) {
        *self.list_notifier.lock() = Some(task);
    }

    /// Messages of this level and above from now on.
    pub(super) fn set_log_level(
        &self,
        gateway: &Gateway,
        caller: &Caller,
        level: LoggingLevel,
        peer: &Peer<RoleServer>,
    ) {
        *self.wanted.level.lock() = Some(level);
        self.ensure_relay(gateway, caller, peer);
    }

    pub(super) fn log_level(&self) -> Option<LoggingLevel> {
        *self.wanted.level.lock()
    }

    pub(super) async fn watch_resource(
        &self,
        call: &Call,
        uri: String,
        peer: &Peer<RoleServer>,
    ) -> Result<(), ErrorData> {
        check_resource_uri(&uri)?;
        check_room(&self.wanted.resources.lock(), &uri)?;
        // The first change may come before the source has answered.
        self.ensure_relay(call.gateway(), call.caller(), peer);
        let lease = watch_resource(call, &uri).await?;
        // Others may have come first while the source was asked. A lease that ends takes
        // locks of its own.
        let (_ended, kept) = self.wanted.keep_lease(uri, lease);
        kept
    }

    pub(super) fn unwatch_resource(&self, uri: &str) {
        let lease = self.wanted.resources.lock().remove(uri);
        drop(lease);
    }

    fn ensure_relay(&self, gateway: &Gateway, caller: &Caller, peer: &Peer<RoleServer>) {
        self.telling.get_or_init(|| {
            // What is said from now on, not from when the task gets to it.
            let news = gateway.subscribe_to_events();
            let wanted = self.wanted.clone();
            let told = relay_news(wanted, news, gateway.clone(), caller.clone(), peer.clone());
            spawn_owned(told)
        });
    }
}

async fn relay_news(
    wanted: Arc<LegacySubscriptionState>,
    mut news: broadcast::Receiver<SourceEvent>,
    gateway: Gateway,
    caller: Caller,
    peer: Peer<RoleServer>,
) {
    while !peer.is_transport_closed() {
        match news.recv().await {
            Ok(SourceEvent::Updated(uri)) => {
                let watched = wanted.resources.lock().contains_key(&*uri);
                // What was there when it was asked for may no longer be.
                let there = || {
                    resources_for_uri(gateway.catalog_for(&caller).source_resources(), &uri)
                        .is_some()
                };
                if watched && there() {
                    let update = ResourceUpdatedNotificationParam::new(uri.to_string());
                    let _ = peer.notify_resource_updated(update).await;
                }
            }
            Ok(SourceEvent::Said(said)) => {
                let level = *wanted.level.lock();
                if level.is_some() && gateway.catalog_for(&caller).knows_source(&said.source) {
                    let SourceLogMessage { level: severity, logger, data, .. } = (*said).clone();
                    let event = CallEvent::Relayed { level: severity, logger, data };
                    notify_event(&peer, event, &RequestedNotifications { progress: None, level })
                        .await;
                }
            }
            // What is not read in time is missed.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_watches_is_limited_in_number_and_in_bytes() {
        let watched = |count: usize, bytes: usize| -> HashMap<String, ()> {
            (0..count).map(|number| (format!("{number:0bytes$}"), ())).collect()
        };
        let check = |watched: &HashMap<String, ()>, uri: &str| {
            check_room(watched, uri).map_err(|error| error.message.into_owned())
        };
        assert_eq!(check(&watched(999, 200), "a:b"), Ok(()));
        assert_eq!(
            check(&watched(1000, 200), "a:b"),
            Err("1000 resources are watched, which is the limit".to_owned())
        );
        assert_eq!(check(&watched(64, 8000), "a:b"), Ok(()));
        let full = watched(66, 8000);
        assert_eq!(
            check(&full, "a:b"),
            Err("the URIs of the resources that are watched have more than 512 KB, \
                 which is the limit"
                .to_owned())
        );
        // What is watched already takes no more.
        assert_eq!(check(&full, full.keys().next().unwrap()), Ok(()));
    }
}
