//! What an old client asked to be told for as long as it is connected: changes
//! of resources, and what sources log outside of calls.

#![expect(
    deprecated,
    reason = "old clients still get log messages; the SDK marks them for removal"
)]

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use moonlark_core::offers::{Lease, News, Said, of_uri};
use moonlark_core::{Call, Caller, Event, Gateway};
use parking_lot::Mutex;
use rmcp::model::{ErrorData, LoggingLevel, ResourceUpdatedNotificationParam};
use rmcp::{Peer, RoleServer};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::task::AbortOnDropHandle;

use super::changes::{MOST, watch};
use super::notify::{Wants, notify};

/// Ends with the client: whatever it watched is let go then.
#[derive(Default)]
pub(super) struct Wishes {
    wanted: Arc<Wanted>,
    /// From the first wish on.
    telling: OnceLock<AbortOnDropHandle<()>>,
}

#[derive(Default)]
struct Wanted {
    resources: Mutex<HashMap<String, Lease>>,
    /// The least severe message.
    level: Mutex<Option<LoggingLevel>>,
}

impl Wishes {
    /// Messages of this level and above from now on.
    pub(super) fn hear(
        &self,
        gateway: &Gateway,
        caller: &Caller,
        level: LoggingLevel,
        peer: &Peer<RoleServer>,
    ) {
        *self.wanted.level.lock() = Some(level);
        self.tell(gateway, caller, peer);
    }

    pub(super) fn level(&self) -> Option<LoggingLevel> {
        *self.wanted.level.lock()
    }

    pub(super) async fn watch(
        &self,
        call: &Call,
        uri: String,
        peer: &Peer<RoleServer>,
    ) -> Result<(), ErrorData> {
        if self.wanted.resources.lock().len() >= MOST {
            let message = format!("{MOST} resources are watched, which is the limit");
            return Err(ErrorData::invalid_params(message, None));
        }
        // The first change may come before the source has answered.
        self.tell(call.gateway(), call.caller(), peer);
        let lease = watch(call, &uri).await?;
        let before = self.wanted.resources.lock().insert(uri, lease);
        drop(before);
        Ok(())
    }

    pub(super) fn unwatch(&self, uri: &str) {
        let lease = self.wanted.resources.lock().remove(uri);
        drop(lease);
    }

    fn tell(&self, gateway: &Gateway, caller: &Caller, peer: &Peer<RoleServer>) {
        self.telling.get_or_init(|| {
            // What is said from now on, not from when the task gets to it.
            let news = gateway.news();
            let wanted = self.wanted.clone();
            let told = tell(wanted, news, gateway.clone(), caller.clone(), peer.clone());
            AbortOnDropHandle::new(tokio::spawn(told))
        });
    }
}

async fn tell(
    wanted: Arc<Wanted>,
    mut news: broadcast::Receiver<News>,
    gateway: Gateway,
    caller: Caller,
    peer: Peer<RoleServer>,
) {
    while !peer.is_transport_closed() {
        match news.recv().await {
            Ok(News::Updated(uri)) => {
                let watched = wanted.resources.lock().contains_key(&*uri);
                // What was there when it was asked for may no longer be.
                let there = || of_uri(gateway.catalog_for(&caller).offers(), &uri).is_some();
                if watched && there() {
                    let update = ResourceUpdatedNotificationParam::new(uri.to_string());
                    let _ = peer.notify_resource_updated(update).await;
                }
            }
            Ok(News::Said(said)) => {
                let level = *wanted.level.lock();
                if level.is_some() && gateway.catalog_for(&caller).knows(&said.source) {
                    let Said { level: severity, logger, data, .. } = (*said).clone();
                    let event = Event::Relayed { level: severity, logger, data };
                    notify(&peer, event, &Wants { progress: None, level }).await;
                }
            }
            // What is not read in time is missed.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}
