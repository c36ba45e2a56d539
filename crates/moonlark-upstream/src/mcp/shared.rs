//! What is known of one server while it is kept: the connection or why there is
//! none, what it offers, who needs it.
//!
//! Only the task in `supervision` changes the connection. Calls never connect:
//! they wait for the task, and wake it when it rests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use moonlark_core::offers::Health;
use moonlark_core::{Code, Gateway, Problem, Result, Value};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::kept::Kept;
use super::link::{ClosePace, Link};
use super::listing::Offered;
use super::names::Names;
use super::saying::Pace;
use super::settings::Settings;
use super::supervision::SHORTEST_WAIT;
use super::watching::Watching;

/// What the task, the tools and the listeners share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) names: Names,
    pub(crate) gateway: Gateway,
    pub(crate) stale: Stale,
    pub(crate) watching: Watching,
    pub(crate) kept: Kept,
    pub(crate) pace: Pace,
    pub(super) slot: watch::Sender<Slot>,
    /// Somebody waits for a connection.
    pub(super) wanted: Notify,
    /// Attempts to connect that have ended, well or not.
    pub(super) attempts: AtomicU64,
    /// Clients did not wait for it when the server started: it took too long.
    pub(super) missed_start: AtomicBool,
    /// The whole process ends, and nobody waits for it.
    pub(super) is_leaving: AtomicBool,
    pub(super) offered: ArcSwap<Offered>,
    pub(super) busy: AtomicUsize,
    pub(super) used: Mutex<Instant>,
    /// The catalog is to be made again.
    pub(super) tell: Arc<dyn Fn() + Send + Sync>,
}

/// The connection, or why there is none.
#[derive(Clone)]
pub(super) enum Slot {
    /// Not needed at the moment.
    Resting,
    /// With what went wrong before, if anything did.
    Connecting(Option<Problem>),
    Up(Link),
    Down {
        problem: Problem,
        since: Instant,
        end: Ended,
    },
}

/// What was before there was no connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// An attempt to make one.
    Attempt,
    /// One that was good.
    Connection,
}

impl Slot {
    pub(super) fn problem(&self) -> Option<&Problem> {
        match self {
            Slot::Connecting(problem) => problem.as_ref(),
            Slot::Down { problem, .. } => Some(problem),
            Slot::Resting | Slot::Up(_) => None,
        }
    }
}

impl Shared {
    /// The connection, as soon as there is one.
    pub(crate) async fn link(&self, deadline: Instant) -> Result<Link> {
        *self.used.lock() = Instant::now();
        let before = self.attempts.load(Ordering::Acquire);
        // The common case takes no subscription.
        if let Slot::Up(link) = &*self.slot.borrow()
            && link.is_open()
        {
            return Ok(link.clone());
        }
        let mut slot = self.slot.subscribe();
        loop {
            let now = slot.borrow_and_update().clone();
            match now {
                Slot::Up(link) if link.is_open() => return Ok(link),
                Slot::Down { problem, since, end } => {
                    let tried = self.attempts.load(Ordering::Acquire) > before;
                    let just_now = end == Ended::Attempt && since.elapsed() < SHORTEST_WAIT;
                    if tried || just_now {
                        return Err(problem);
                    }
                    self.wanted.notify_one();
                }
                Slot::Connecting(_) => {}
                Slot::Up(_) | Slot::Resting => self.wanted.notify_one(),
            }
            if tokio::time::timeout_at(deadline, slot.changed()).await.is_err() {
                return Err(self.still_connecting());
            }
        }
    }

    /// The connection that follows one that is gone.
    pub(crate) async fn link_after(
        &self,
        old: &Link,
        problem: Problem,
        deadline: Instant,
    ) -> Result<Link> {
        // It is there, and refused the request for some other reason.
        if old.is_open() {
            return Err(problem);
        }
        self.link(deadline).await
    }

    /// Held while a call is made: the server is needed.
    pub(crate) fn busy(&self) -> Busy<'_> {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(self)
    }

    pub(crate) fn offered(&self) -> Arc<Offered> {
        self.offered.load_full()
    }

    /// How its connection is closed now.
    pub(super) fn close_pace(&self) -> ClosePace {
        if self.is_leaving.load(Ordering::Acquire) { ClosePace::Quick } else { ClosePace::Gentle }
    }

    pub(super) fn still_connecting(&self) -> Problem {
        let name = self.settings.name();
        Problem::new(Code::Timeout, format!("upstream '{name}' is still connecting"))
            .hint("try again in a moment; `moonlark doctor` says what it waits for")
    }

    pub(super) fn set(&self, slot: Slot) {
        self.slot.send_replace(slot);
        (self.tell)();
    }

    pub(super) fn health(&self) -> Health {
        let offered = self.offered.load();
        let count = |list: Option<usize>| list.unwrap_or(0);
        let offers = offered.offers.as_ref();
        let mut health = Health {
            source: self.settings.name().to_owned(),
            tools: offered.tools.len(),
            resources: count(offers.map(|it| it.resources.len())),
            prompts: count(offers.map(|it| it.prompts.len())),
            flaws: offered.problems.clone(),
            is_remembered: offered.is_remembered,
            ..Health::default()
        };
        let slot = self.slot.borrow();
        health.problem = slot.problem().cloned();
        health.state = match &*slot {
            Slot::Resting => "stopped",
            Slot::Connecting(_) => "connecting",
            Slot::Up(link) => {
                let peer = link.peer();
                let text = |key: &str| peer.info.get(key).and_then(Value::as_str);
                health.protocol = Some(peer.version.clone());
                health.server = text("name").map(|name| match text("version") {
                    Some(version) => format!("{name} {version}"),
                    None => name.to_owned(),
                });
                "ready"
            }
            Slot::Down { .. } => "failed",
        };
        drop(slot);
        health
    }
}

pub(crate) struct Busy<'a>(&'a Shared);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
        *self.0.used.lock() = Instant::now();
    }
}

/// What the server said has changed since it was read.
#[derive(Default)]
pub(crate) struct Stale {
    pub(super) lists: AtomicU8,
    pub(super) noticed: Notify,
}

/// One bit for each list.
pub(crate) mod list {
    pub(crate) const TOOLS: u8 = 1;
    pub(crate) const RESOURCES: u8 = 2;
    pub(crate) const PROMPTS: u8 = 4;
    pub(crate) const ALL: u8 = 7;
}

impl Stale {
    pub(crate) fn tools(&self) {
        self.note(list::TOOLS);
    }

    pub(crate) fn resources(&self) {
        self.note(list::RESOURCES);
    }

    pub(crate) fn prompts(&self) {
        self.note(list::PROMPTS);
    }

    fn note(&self, lists: u8) {
        self.lists.fetch_or(lists, Ordering::AcqRel);
        self.noticed.notify_one();
    }
}
