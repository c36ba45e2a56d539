//! The state of one upstream: the connection or why there is none, what it offers, who
//! needs it.
//!
//! Only the task in `supervision` changes the connection. Calls never connect:
//! they wait for the task, and wake it when it rests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use moonlark_core::source_resources::{SourceHealth, SourceState};
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_gateway::Gateway;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::connection::{ClosePace, McpConnection};
use crate::listing::UpstreamOffering;
use crate::listing_cache::UpstreamListingCache;
use crate::log_relay::LogThrottle;
use crate::name_mapping::NameMapping;
use crate::resource_subscriptions::ResourceSubscriptions;
use crate::supervision::MIN_RECONNECT_DELAY;
use crate::upstream_settings::UpstreamSettings;

/// What the task, the tools and the listeners share.
pub(crate) struct UpstreamState {
    pub(crate) settings: UpstreamSettings,
    pub(crate) names: NameMapping,
    pub(crate) gateway: Gateway,
    pub(crate) stale: StaleLists,
    pub(crate) watching: Arc<ResourceSubscriptions>,
    pub(crate) kept: UpstreamListingCache,
    pub(crate) pace: LogThrottle,
    pub(super) slot: watch::Sender<ConnectionState>,
    /// Somebody waits for a connection.
    pub(super) wanted: Notify,
    /// Attempts to connect that have ended, well or not.
    pub(super) attempts: AtomicU64,
    /// Clients did not wait for it when the server started: it took too long.
    pub(super) missed_start: AtomicBool,
    /// The whole process ends, and nobody waits for it.
    pub(super) is_leaving: AtomicBool,
    pub(super) offered: ArcSwap<UpstreamOffering>,
    pub(super) busy: AtomicUsize,
    pub(super) used: Mutex<Instant>,
    /// The catalog is to be made again.
    pub(super) tell: Arc<dyn Fn() + Send + Sync>,
}

/// The connection, or why there is none.
#[derive(Clone)]
pub(super) enum ConnectionState {
    /// Not needed at the moment.
    Resting,
    /// With what went wrong before, if anything did.
    Connecting(Option<Problem>),
    Up(McpConnection),
    Down {
        problem: Problem,
        since: Instant,
        end: DisconnectCause,
    },
}

/// What was before there was no connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DisconnectCause {
    /// An attempt to make one.
    Attempt,
    /// One that was good.
    Connection,
}

impl ConnectionState {
    pub(super) fn problem(&self) -> Option<&Problem> {
        match self {
            ConnectionState::Connecting(problem) => problem.as_ref(),
            ConnectionState::Down { problem, .. } => Some(problem),
            ConnectionState::Resting | ConnectionState::Up(_) => None,
        }
    }
}

impl UpstreamState {
    /// The connection, as soon as there is one.
    pub(crate) async fn wait_for_connection(&self, deadline: Instant) -> Result<McpConnection> {
        *self.used.lock() = Instant::now();
        let before = self.attempts.load(Ordering::Acquire);
        // The common case takes no subscription.
        if let ConnectionState::Up(link) = &*self.slot.borrow()
            && link.is_open()
        {
            return Ok(link.clone());
        }
        let mut slot = self.slot.subscribe();
        loop {
            let now = slot.borrow_and_update().clone();
            match now {
                ConnectionState::Up(link) if link.is_open() => return Ok(link),
                ConnectionState::Down { problem, since, end } => {
                    let tried = self.attempts.load(Ordering::Acquire) > before;
                    let just_now =
                        end == DisconnectCause::Attempt && since.elapsed() < MIN_RECONNECT_DELAY;
                    if tried || just_now {
                        return Err(problem);
                    }
                    self.wanted.notify_one();
                }
                ConnectionState::Connecting(_) => {}
                ConnectionState::Up(_) | ConnectionState::Resting => self.wanted.notify_one(),
            }
            if tokio::time::timeout_at(deadline, slot.changed()).await.is_err() {
                return Err(self.still_connecting_problem());
            }
        }
    }

    /// Held while a call is made: the server is needed.
    pub(crate) fn mark_busy(&self) -> UpstreamBusyGuard<'_> {
        self.busy.fetch_add(1, Ordering::Relaxed);
        UpstreamBusyGuard(self)
    }

    pub(crate) fn current_offering(&self) -> Arc<UpstreamOffering> {
        self.offered.load_full()
    }

    /// How its connection is closed now.
    pub(super) fn close_pace(&self) -> ClosePace {
        if self.is_leaving.load(Ordering::Acquire) { ClosePace::Quick } else { ClosePace::Gentle }
    }

    pub(super) fn still_connecting_problem(&self) -> Problem {
        let name = self.settings.name();
        Problem::new(ProblemCode::Timeout, format!("upstream '{name}' is still connecting"))
            .with_hint("try again in a moment; `moonlark doctor` says what it waits for")
    }

    pub(super) fn set_connection_state(&self, slot: ConnectionState) {
        self.slot.send_replace(slot);
        (self.tell)();
    }

    pub(super) fn health(&self) -> SourceHealth {
        let offered = self.offered.load();
        let offers = offered.offers.as_ref();
        let mut health = SourceHealth {
            source: self.settings.name().to_owned(),
            tools: offered.tools.len(),
            resources: offers.map_or(0, |it| it.resources.len()),
            prompts: offers.map_or(0, |it| it.prompts.len()),
            flaws: offered.problems.clone(),
            is_remembered: offered.is_remembered,
            ..SourceHealth::default()
        };
        let slot = self.slot.borrow();
        health.problem = slot.problem().cloned();
        health.state = match &*slot {
            ConnectionState::Resting => SourceState::Stopped,
            ConnectionState::Connecting(_) => SourceState::Connecting,
            ConnectionState::Up(link) => {
                let peer = link.peer();
                let text = |key: &str| peer.info.get(key).and_then(Value::as_str);
                health.protocol = Some(peer.version.clone());
                health.server = text("name").map(|name| match text("version") {
                    Some(version) => format!("{name} {version}"),
                    None => name.to_owned(),
                });
                SourceState::Ready
            }
            ConnectionState::Down { .. } => SourceState::Failed,
        };
        drop(slot);
        health
    }
}

pub(crate) struct UpstreamBusyGuard<'a>(&'a UpstreamState);

impl Drop for UpstreamBusyGuard<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
        *self.0.used.lock() = Instant::now();
    }
}

/// What the server said has changed since it was read.
#[derive(Default)]
pub(crate) struct StaleLists {
    pub(super) lists: AtomicU8,
    pub(super) noticed: Notify,
}

impl StaleLists {
    pub(crate) fn mark_stale(&self, lists: u8) {
        self.lists.fetch_or(lists, Ordering::AcqRel);
        self.noticed.notify_one();
    }
}
