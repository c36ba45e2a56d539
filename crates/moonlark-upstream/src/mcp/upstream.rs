//! One upstream server, kept connected.
//!
//! A task of its own connects, reads what the server offers, follows its
//! changes, and connects again when the connection is lost, after a while that
//! grows with every failure. Calls never connect: they wait for the task, and
//! wake it when it rests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use moonlark_core::catalog::Connecting;
use moonlark_core::offers::{Health, Offers};
use moonlark_core::value::Object;
use moonlark_core::{Code, Gateway, Problem, Result, Tool, Value};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::kept::Kept;
use super::link::{Link, Us};
use super::listener::Mailbox;
use super::listing::{self, Offered};
use super::names::Names;
use super::pins::{self, Difference};
use super::settings::Settings;
use super::watching::Watching;

/// The first wait after a failure; each further one doubles it.
const SHORTEST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A connection that lasted this long was a good one.
const LASTING: Duration = Duration::from_secs(30);

/// A handle on the server: dropping it ends everything for certain.
pub struct Upstream {
    shared: Arc<Shared>,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

/// What the task, the tools and the listeners share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) names: Names,
    pub(crate) gateway: Gateway,
    pub(crate) stale: Stale,
    pub(crate) watching: Watching,
    pub(crate) kept: Kept,
    slot: watch::Sender<Slot>,
    /// Somebody waits for a connection.
    wanted: Notify,
    /// Attempts to connect that have ended, well or not.
    attempts: AtomicU64,
    offered: ArcSwap<Offered>,
    busy: AtomicUsize,
    used: Mutex<Instant>,
    /// The catalog is to be made again.
    tell: Arc<dyn Fn() + Send + Sync>,
}

/// The connection, or why there is none.
#[derive(Clone)]
enum Slot {
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
enum Ended {
    /// An attempt to make one.
    Attempt,
    /// One that was good.
    Connection,
}

impl Slot {
    fn problem(&self) -> Option<&Problem> {
        match self {
            Slot::Connecting(problem) => problem.as_ref(),
            Slot::Down { problem, .. } => Some(problem),
            Slot::Resting | Slot::Up(_) => None,
        }
    }
}

impl Upstream {
    /// Begin to connect, in the background. `tell` is called whenever something
    /// changed that the catalog shows.
    pub fn start(
        settings: Settings,
        gateway: Gateway,
        tell: Arc<dyn Fn() + Send + Sync>,
    ) -> Upstream {
        let kept = Kept::open(&settings);
        let shared = Arc::new_cyclic(|weak| Shared {
            names: settings.names(),
            gateway,
            stale: Stale::default(),
            watching: Watching::new(weak.clone()),
            slot: watch::Sender::new(Slot::Connecting(None)),
            wanted: Notify::new(),
            attempts: AtomicU64::new(0),
            offered: ArcSwap::from_pointee(Offered::default()),
            busy: AtomicUsize::new(0),
            used: Mutex::new(Instant::now()),
            tell,
            kept,
            settings,
        });
        // A server that waits to be needed is known from an earlier time.
        if shared.settings.lazy
            && let Some(lists) = shared.kept.lists()
        {
            shared.offered.store(Arc::new(listing::offer(&shared, lists, None, false)));
            shared.slot.send_replace(Slot::Resting);
        }
        let stop = CancellationToken::new();
        let task = tokio::spawn(supervise(shared.clone(), stop.clone()));
        Upstream { shared, stop, task: AbortOnDropHandle::new(task) }
    }

    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    pub fn tools(&self) -> Vec<Arc<Tool>> {
        self.shared.offered.load().tools.clone()
    }

    pub fn offers(&self) -> Option<Arc<Offers>> {
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
    pub fn connecting(&self) -> Option<Connecting> {
        let settings = &self.shared.settings;
        let unknown = self.shared.attempts.load(Ordering::Acquire) == 0;
        let resting = matches!(*self.shared.slot.borrow(), Slot::Resting);
        (unknown && !resting).then(|| Connecting {
            source: settings.name().to_owned(),
            prefix: settings.tool_prefix(),
        })
    }

    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// How its tools differ from what was approved.
    pub fn differences(&self) -> Result<Vec<Difference>> {
        pins::differences(&self.shared.settings, &self.listed()?)
    }

    /// Approve its tools as they are now.
    pub fn approve(&self) -> Result<()> {
        pins::approve(&self.shared.settings, &self.listed()?)
    }

    /// Its tools as it listed them.
    fn listed(&self) -> Result<Arc<Vec<Object>>> {
        let down = self.shared.slot.borrow().problem().cloned();
        let unknown = || down.unwrap_or_else(|| self.shared.still_connecting());
        self.shared.offered.load().lists.tools.clone().ok_or_else(unknown)
    }

    /// Wait until it has been tried once.
    pub fn settled(&self) -> impl Future<Output = ()> + use<> {
        let mut slot = self.shared.slot.subscribe();
        async move {
            let _ = slot.wait_for(|slot| !matches!(slot, Slot::Connecting(None))).await;
        }
    }

    /// End it as it likes to be ended, and then for certain.
    pub async fn stop(self) {
        self.stop.cancel();
        // It can only fail by a panic, and then there is nothing left either.
        let _ = self.task.await;
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

    fn still_connecting(&self) -> Problem {
        let name = self.settings.name();
        Problem::new(Code::Timeout, format!("upstream '{name}' is still connecting"))
            .hint("try again in a moment; `moonlark doctor` says what it waits for")
    }

    fn set(&self, slot: Slot) {
        self.slot.send_replace(slot);
        (self.tell)();
    }

    fn health(&self) -> Health {
        let offered = self.offered.load();
        let count = |list: Option<usize>| list.unwrap_or(0);
        let offers = offered.offers.as_ref();
        let mut health = Health {
            source: self.settings.name().to_owned(),
            tools: offered.tools.len(),
            resources: count(offers.map(|it| it.resources.len())),
            prompts: count(offers.map(|it| it.prompts.len())),
            flaws: offered.problems.clone(),
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
    lists: AtomicU8,
    noticed: Notify,
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

/// Why a connection is not kept any longer.
enum End {
    Lost(Problem),
    Idle,
    Stopped,
}

async fn supervise(shared: Arc<Shared>, stop: CancellationToken) {
    let mut wait = SHORTEST_WAIT;
    loop {
        if matches!(*shared.slot.borrow(), Slot::Resting) {
            tokio::select! {
                () = shared.wanted.notified() => {}
                () = stop.cancelled() => return,
            }
            shared.set(Slot::Connecting(None));
        }
        let begun = Instant::now();
        let opened = tokio::select! {
            opened = connect(&shared) => opened,
            () = stop.cancelled() => return,
        };
        let (problem, end) = match opened {
            Ok(link) => match keep(&shared, &link, &stop).await {
                End::Stopped => return link.close().await,
                End::Idle => {
                    shared.set(Slot::Resting);
                    link.close().await;
                    tracing::info!(target: "upstream", "{}: stopped, not needed", shared.settings.name());
                    continue;
                }
                End::Lost(problem) => (problem, Ended::Connection),
            },
            Err(problem) => {
                shared.attempts.fetch_add(1, Ordering::AcqRel);
                (problem, Ended::Attempt)
            }
        };
        if begun.elapsed() >= LASTING {
            wait = SHORTEST_WAIT;
        }
        tracing::warn!(target: "upstream", "{}", problem.line());
        shared.set(Slot::Down { problem: problem.clone(), since: Instant::now(), end });
        // Whoever needs it need not wait, but one that dies at once is not
        // started at the pace of its callers.
        let needed = async {
            tokio::time::sleep(SHORTEST_WAIT.saturating_sub(begun.elapsed())).await;
            shared.wanted.notified().await;
        };
        tokio::select! {
            () = tokio::time::sleep(jittered(wait)) => {}
            () = needed => {}
            () = stop.cancelled() => return,
        }
        wait = (wait * 2).min(LONGEST_WAIT);
        shared.set(Slot::Connecting(Some(problem)));
    }
}

/// Connect, and read everything the server offers.
async fn connect(shared: &Arc<Shared>) -> Result<Link> {
    let inbox = Arc::new(Mailbox(Arc::downgrade(shared)));
    let settings = &shared.settings;
    let auth = settings.auth.clone();
    let era = shared.kept.era();
    let link = match Link::open(&settings.target, era, auth, inbox, &us()).await {
        Ok(link) => link,
        Err(problem) => {
            // It may be another version by now.
            shared.kept.note_era(None);
            return Err(problem);
        }
    };
    shared.kept.note_era(Some(link.peer().era));
    let bound = settings.target.limits.connect;
    let lists = tokio::time::timeout(bound, listing::read(&link, list::ALL)).await;
    let lists = match lists {
        Ok(lists) => lists.map_err(|problem| named(shared, problem))?,
        Err(_) => {
            let problem = Problem::new(Code::Timeout, "it did not list its tools in time");
            return Err(named(shared, problem));
        }
    };
    let offered = listing::offer(shared, lists, Some(link.peer()), false);
    shared.kept.note_lists(&offered);
    shared.offered.store(Arc::new(offered));
    shared.attempts.fetch_add(1, Ordering::AcqRel);
    shared.set(Slot::Up(link.clone()));
    tracing::info!(
        target: "upstream",
        "{}: connected, {} tools",
        settings.name(),
        shared.offered.load().tools.len(),
    );
    Ok(link)
}

/// Follow the server's changes until the connection is to end, or has ended.
async fn keep(shared: &Arc<Shared>, link: &Link, stop: &CancellationToken) -> End {
    let _following = shared.watching.follow(link);
    loop {
        tokio::select! {
            () = stop.cancelled() => return End::Stopped,
            problem = link.closed() => return End::Lost(problem),
            () = idle(shared) => return End::Idle,
            () = shared.stale.noticed.notified() => {
                let lists = shared.stale.lists.swap(0, Ordering::AcqRel);
                tokio::select! {
                    () = stop.cancelled() => return End::Stopped,
                    () = refresh(shared, link, lists) => {}
                }
            }
        }
    }
}

async fn refresh(shared: &Arc<Shared>, link: &Link, lists: u8) {
    let bound = shared.settings.target.limits.connect;
    let slow = || Err(Problem::new(Code::Timeout, "it did not list what changed in time"));
    match tokio::time::timeout(bound, listing::read(link, lists)).await.unwrap_or_else(|_| slow()) {
        Ok(read) => {
            let offered = listing::offer(shared, read, Some(link.peer()), true);
            shared.kept.note_lists(&offered);
            shared.offered.store(Arc::new(offered));
            (shared.tell)();
        }
        // The old lists stay; if the connection is gone, that is seen next.
        Err(problem) => {
            let problem = named(shared, problem);
            tracing::warn!(target: "upstream", "{}", problem.line());
        }
    }
}

/// Until nothing was needed for as long as the operator said.
async fn idle(shared: &Shared) {
    let Some(rest) = shared.settings.idle_stop else { return std::future::pending().await };
    loop {
        let busy = shared.busy.load(Ordering::Relaxed) > 0 || shared.watching.any();
        let used = if busy { Instant::now() } else { *shared.used.lock() };
        if !busy && used.elapsed() >= rest {
            return;
        }
        tokio::time::sleep_until(used + rest).await;
    }
}

impl Shared {
    pub(crate) fn offered(&self) -> Arc<Offered> {
        self.offered.load_full()
    }
}

fn named(shared: &Shared, problem: Problem) -> Problem {
    let message = format!("upstream '{}': {}", shared.settings.name(), problem.message);
    problem.saying(message)
}

fn us() -> Us {
    let info =
        Value::object([("name", "moonlark".into()), ("version", env!("CARGO_PKG_VERSION").into())]);
    let nothing = || Value::object([]);
    let capabilities = Value::object([
        ("sampling", nothing()),
        ("elicitation", Value::object([("form", nothing()), ("url", nothing())])),
        ("roots", nothing()),
    ]);
    let object = |value: Value| value.as_object().cloned().unwrap_or_default();
    Us { info: object(info), capabilities: object(capabilities) }
}

/// Between a half and the whole, so that many do not come back at once.
fn jittered(wait: Duration) -> Duration {
    let mut byte = [128];
    // Without chance it is the middle.
    let _ = getrandom::fill(&mut byte);
    wait.mul_f64(0.5 + f64::from(byte[0]) / 510.0)
}
