//! The task that keeps one server connected.
//!
//! It connects, reads what the server offers, follows its changes, and connects
//! again when the connection is lost, after a while that grows with every
//! failure.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use moonlark_core::{Code, Problem, Result, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::link::{Link, Us};
use super::listener::Mailbox;
use super::listing;
use super::shared::{Ended, Shared, Slot, list};

/// The first wait after a failure; each further one doubles it.
pub(super) const SHORTEST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A server that takes longer to start no longer keeps others from starting.
const LONGEST_START_SHARE: Duration = Duration::from_secs(5);
/// Flaws of what a server offers that are logged one by one.
const MAX_LOGGED_FLAWS: usize = 5;
/// A connection that lasted this long was a good one.
const LASTING: Duration = Duration::from_secs(30);

pub(super) async fn supervise(shared: Arc<Shared>, stop: CancellationToken) {
    let mut wait = SHORTEST_WAIT;
    // Why it is down, as far as it was said.
    let mut said = None;
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
            opened = connect_in_turn(&shared) => opened,
            () = stop.cancelled() => return,
        };
        if opened.is_ok() {
            said = None;
        }
        let (mut problem, end) = match opened {
            Ok(link) => match keep(&shared, &link, &stop).await {
                End::Stopped => return link.close(shared.close_pace()).await,
                End::Idle => {
                    shared.set(Slot::Resting);
                    link.close(shared.close_pace()).await;
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
        shared.settings.scope.secrets.redact_problem(&mut problem);
        // However often it is tried, what is wrong is said once.
        if said.as_ref() == Some(&problem) {
            tracing::debug!(target: "upstream", "{}", problem.line());
        } else {
            tracing::warn!(target: "upstream", "{}", problem.line());
            said = Some(problem.clone());
        }
        shared.gateway.metrics().disconnected(shared.settings.name());
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

/// Why a connection is not kept any longer.
enum End {
    Lost(Problem),
    Idle,
    Stopped,
}

/// Connect when it is this server's turn to start.
async fn connect_in_turn(shared: &Arc<Shared>) -> Result<Link> {
    let permit = shared.settings.start_permits.clone().acquire_owned().await;
    let connecting = connect(shared);
    tokio::pin!(connecting);
    if let Ok(opened) = tokio::time::timeout(LONGEST_START_SHARE, &mut connecting).await {
        return opened;
    }
    drop(permit);
    connecting.await
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
    log_flaws(shared, &offered.problems);
    shared.kept.note_lists(&offered, shared.missed_start.load(Ordering::Acquire));
    shared.offered.store(Arc::new(offered));
    shared.attempts.fetch_add(1, Ordering::AcqRel);
    shared.gateway.metrics().connected(settings.name());
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
            log_flaws(shared, &offered.problems);
            shared.kept.note_lists(&offered, shared.missed_start.load(Ordering::Acquire));
            shared.offered.store(Arc::new(offered));
            (shared.tell)();
        }
        // The old lists stay; if the connection is gone, that is seen next.
        Err(problem) => {
            let mut problem = named(shared, problem);
            shared.settings.scope.secrets.redact_problem(&mut problem);
            tracing::warn!(target: "upstream", "{}", problem.line());
        }
    }
}

/// Say what cannot be used of what a server offers, once.
fn log_flaws(shared: &Shared, flaws: &[Problem]) {
    let known = shared.offered();
    let new: Vec<&Problem> = flaws.iter().filter(|it| !known.problems.contains(it)).collect();
    for flaw in new.iter().take(MAX_LOGGED_FLAWS) {
        let mut flaw = (*flaw).clone();
        shared.settings.scope.secrets.redact_problem(&mut flaw);
        tracing::warn!(target: "upstream", "{}", flaw.line());
    }
    if new.len() > MAX_LOGGED_FLAWS {
        let (name, more) = (shared.settings.name(), new.len() - MAX_LOGGED_FLAWS);
        tracing::warn!(target: "upstream", "{name}: and {more} more: see `moonlark doctor`");
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
