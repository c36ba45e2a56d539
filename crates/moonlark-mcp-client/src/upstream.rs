//! One upstream server, as the binary holds it: started, looked at, stopped.
//!
//! A task of its own keeps it connected; see [`supervision`](crate::supervision).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use moonlark_child::spawn_owned;
use moonlark_core::catalog::ConnectingSource;
use moonlark_core::source_resources::{SourceHealth, SourceResources};
use moonlark_core::tool::SourceKind;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Result, Tool};
use moonlark_gateway::Gateway;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::connection::ClosePace;
use crate::listing::{self, UpstreamOffering};
use crate::listing_cache::UpstreamListingCache;
use crate::log_relay::LogThrottle;
use crate::pins::{self, PinDifference};
use crate::supervision::supervise_upstream;
use crate::upstream_settings::UpstreamSettings;
use crate::upstream_state::{ConnectionState, StaleLists, UpstreamState};

/// A handle on the server: dropping it ends everything for certain.
pub struct Upstream {
    shared: Arc<UpstreamState>,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl Upstream {
    /// Begin to connect, in the background. `tell` is called whenever something
    /// changed that the catalog shows.
    pub fn start(
        settings: UpstreamSettings,
        gateway: Gateway,
        tell: Arc<dyn Fn() + Send + Sync>,
    ) -> Upstream {
        let kept = UpstreamListingCache::for_settings(&settings);
        let shared = Arc::new(UpstreamState {
            names: settings.name_mapping(),
            gateway,
            stale: StaleLists::default(),
            watching: Arc::default(),
            pace: LogThrottle::default(),
            slot: watch::Sender::new(ConnectionState::Connecting(None)),
            wanted: Notify::new(),
            attempts: AtomicU64::new(0),
            missed_start: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            offered: ArcSwap::from_pointee(UpstreamOffering::default()),
            busy: AtomicUsize::new(0),
            used: Mutex::new(Instant::now()),
            tell,
            kept,
            settings,
        });
        // A server that waits to be needed is known from an earlier time, and so is one
        // that clients would wait for in vain.
        if let Some(known) = shared.kept.load_lists()
            && (shared.settings.lazy || known.was_slow)
        {
            shared.offered.store(Arc::new(listing::build_offering(
                &shared,
                known.lists,
                None,
                false,
            )));
            if shared.settings.lazy {
                shared.slot.send_replace(ConnectionState::Resting);
            }
        }
        let stop = CancellationToken::new();
        let task = spawn_owned(supervise_upstream(shared.clone(), stop.clone()));
        Upstream { shared, stop, task }
    }

    pub fn settings(&self) -> &UpstreamSettings {
        &self.shared.settings
    }

    pub fn tools(&self) -> Vec<Arc<Tool>> {
        self.shared.offered.load().tools.clone()
    }

    pub fn offers(&self) -> Option<Arc<SourceResources>> {
        self.shared.offered.load().offers.clone()
    }

    /// What is wrong with it: that it does not connect, and what it offers that
    /// cannot be used.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = self.shared.offered.load().problems.clone();
        if let Some(problem) = self.shared.slot.borrow().problem() {
            problems.insert(0, problem.clone());
        }
        problems
    }

    /// Set while its tools are not known, but may soon be.
    pub fn connecting_status(&self) -> Option<ConnectingSource> {
        let settings = &self.shared.settings;
        let unknown = self.shared.attempts.load(Ordering::Acquire) == 0;
        let resting = matches!(*self.shared.slot.borrow(), ConnectionState::Resting);
        (unknown && !resting).then(|| ConnectingSource {
            source: settings.name().to_owned(),
            kind: SourceKind::Upstream,
            prefix: settings.tool_prefix(),
            expose: settings.expose,
            is_remembered: self.shared.offered.load().is_remembered,
        })
    }

    /// Clients wait for it no longer: until it has connected, it offers what it did an
    /// earlier time.
    pub fn stop_waiting_for_start(&self) {
        let shared = &self.shared;
        if self.connecting_status().is_none() {
            return;
        }
        shared.missed_start.store(true, Ordering::Release);
        shared.kept.remember_slow_start();
        if shared.offered.load().is_remembered {
            return;
        }
        let Some(known) = shared.kept.load_lists() else { return };
        let before = shared.offered.load_full();
        let offered = Arc::new(listing::build_offering(shared, known.lists, None, false));
        // It may have connected in this very moment.
        shared.offered.compare_and_swap(&before, offered);
    }

    pub fn health(&self) -> SourceHealth {
        self.shared.health()
    }

    /// How its tools differ from what was approved.
    pub fn pin_differences(&self) -> Result<Vec<PinDifference>> {
        pins::find_differences(&self.shared.settings, &self.listed_tools()?)
    }

    /// Approve its tools as they are now.
    pub fn approve_tools(&self) -> Result<()> {
        pins::approve_definitions(&self.shared.settings, &self.listed_tools()?)
    }

    /// Its tools as it listed them.
    fn listed_tools(&self) -> Result<Arc<Vec<Object>>> {
        let down = self.shared.slot.borrow().problem().cloned();
        let unknown = || down.unwrap_or_else(|| self.shared.still_connecting_problem());
        self.shared.offered.load().lists.tools.clone().ok_or_else(unknown)
    }

    /// Wait until it has been tried once.
    pub fn wait_first_attempt(&self) -> impl Future<Output = ()> + use<> {
        let mut slot = self.shared.slot.subscribe();
        async move {
            let _ = slot.wait_for(|slot| !matches!(slot, ConnectionState::Connecting(None))).await;
        }
    }

    /// End it as it likes to be ended, and then for certain; in little time if the whole
    /// process ends and nobody waits for it.
    pub async fn stop(self, pace: ClosePace) {
        self.shared.is_leaving.store(pace == ClosePace::Quick, Ordering::Release);
        self.stop.cancel();
        // It can only fail by a panic, and then there is nothing left either.
        let _ = self.task.await;
    }
}
