//! The task that keeps one server connected.
//!
//! It connects, reads what the server offers, follows its changes, and connects
//! again when the connection is lost, after a while that grows with every
//! failure.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_http::RetryBackoff;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection::{McpClientIdentity, McpConnection, ProtocolEra};
use crate::listing::{self, ALL_LIST_BITS};
use crate::resource_subscriptions::keep_subscribed;
use crate::server_messages::UpstreamInbox;
use crate::upstream_state::{ConnectionState, DisconnectCause, UpstreamState};

/// The first wait after a failure; each further one doubles it.
pub(super) const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(500);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(60);
/// A server that takes longer to start no longer keeps others from starting.
const MAX_START_PERMIT_HOLD: Duration = Duration::from_secs(5);
/// Flaws of what a server offers that are logged one by one.
const MAX_LOGGED_FLAWS: usize = 5;
/// A connection that lasted this long was a good one.
const STABLE_CONNECTION_AGE: Duration = Duration::from_secs(30);

pub(super) async fn supervise_upstream(shared: Arc<UpstreamState>, stop: CancellationToken) {
    let mut backoff = RetryBackoff::new(MIN_RECONNECT_DELAY, MAX_RECONNECT_DELAY);
    // Why it is down, as far as it was said.
    let mut said = None;
    // What the last opening learned.
    let mut era = None;
    loop {
        if matches!(*shared.slot.borrow(), ConnectionState::Resting) {
            tokio::select! {
                () = shared.wanted.notified() => {}
                () = stop.cancelled() => return,
            }
            shared.set_connection_state(ConnectionState::Connecting(None));
        }
        let begun = Instant::now();
        let opened = tokio::select! {
            opened = connect_with_permit(&shared, &mut era) => opened,
            () = stop.cancelled() => return,
        };
        if opened.is_ok() {
            said = None;
        }
        let (mut problem, end) = match opened {
            Ok(link) => match follow_connection(&shared, &link, &stop).await {
                ConnectionEnd::Stopped => return link.close_connection(shared.close_pace()).await,
                ConnectionEnd::Idle => {
                    shared.set_connection_state(ConnectionState::Resting);
                    link.close_connection(shared.close_pace()).await;
                    tracing::info!(target: "upstream", "{}: stopped, not needed", shared.settings.name());
                    continue;
                }
                ConnectionEnd::Lost(problem) => (problem, DisconnectCause::Connection),
            },
            Err(problem) => {
                shared.attempts.fetch_add(1, Ordering::AcqRel);
                (problem, DisconnectCause::Attempt)
            }
        };
        if begun.elapsed() >= STABLE_CONNECTION_AGE {
            backoff.reset();
        }
        shared.settings.scope.secrets.redact_problem(&mut problem);
        // However often it is tried, what is wrong is said once.
        if said.as_ref() == Some(&problem) {
            tracing::debug!(target: "upstream", "{}", problem.to_line());
        } else {
            tracing::warn!(target: "upstream", "{}", problem.to_line());
            said = Some(problem.clone());
        }
        shared.gateway.metrics().record_disconnection(shared.settings.name());
        shared.set_connection_state(ConnectionState::Down {
            problem: problem.clone(),
            since: Instant::now(),
            end,
        });
        // Whoever needs it need not wait, but one that dies at once is not
        // started at the pace of its callers.
        let needed = async {
            tokio::time::sleep(MIN_RECONNECT_DELAY.saturating_sub(begun.elapsed())).await;
            shared.wanted.notified().await;
        };
        tokio::select! {
            () = tokio::time::sleep(backoff.next_pause()) => {}
            () = needed => {}
            () = stop.cancelled() => return,
        }
        shared.set_connection_state(ConnectionState::Connecting(Some(problem)));
    }
}

/// Why a connection is not kept any longer.
enum ConnectionEnd {
    Lost(Problem),
    Idle,
    Stopped,
}

/// Connect when it is this server's turn to start.
async fn connect_with_permit(
    shared: &Arc<UpstreamState>,
    era: &mut Option<ProtocolEra>,
) -> Result<McpConnection> {
    let permit = shared.settings.start_permits.clone().acquire_owned().await;
    let connecting = connect_and_list(shared, era);
    tokio::pin!(connecting);
    if let Ok(opened) = tokio::time::timeout(MAX_START_PERMIT_HOLD, &mut connecting).await {
        return opened;
    }
    drop(permit);
    connecting.await
}

/// Connect, and read everything the server offers.
async fn connect_and_list(
    shared: &Arc<UpstreamState>,
    era: &mut Option<ProtocolEra>,
) -> Result<McpConnection> {
    let inbox = Arc::new(UpstreamInbox(Arc::downgrade(shared)));
    let (target, auth) = (&shared.settings.target, shared.settings.auth.clone());
    // After a failure, it may be another version by now.
    let known = era.take();
    let link =
        McpConnection::open_connection(target, known, auth, inbox, &client_identity()).await?;
    *era = Some(link.peer().era);
    let late = "it did not list its tools in time";
    read_and_offer_lists(shared, &link, ALL_LIST_BITS, false, late).await?;
    shared.attempts.fetch_add(1, Ordering::AcqRel);
    shared.gateway.metrics().record_connection(&target.name);
    shared.set_connection_state(ConnectionState::Up(link.clone()));
    tracing::info!(
        target: "upstream",
        "{}: connected, {} tools",
        target.name,
        shared.offered.load().tools.len(),
    );
    Ok(link)
}

/// Read these lists, and offer what is in them; `said`: the server said that they changed.
async fn read_and_offer_lists(
    shared: &Arc<UpstreamState>,
    link: &McpConnection,
    lists: u8,
    said: bool,
    late: &str,
) -> Result<()> {
    let reading = listing::read_lists(link, lists);
    let read = tokio::time::timeout(shared.settings.target.limits.connect, reading).await;
    let read = read.unwrap_or_else(|_| Err(Problem::new(ProblemCode::Timeout, late)));
    let read = read.map_err(|problem| {
        let message = format!("upstream '{}': {}", shared.settings.name(), problem.message);
        problem.with_message(message)
    })?;
    let offered = listing::build_offering(shared, read, Some(link.peer()), said);
    log_flaws(shared, &offered.problems);
    shared.kept.remember_lists(&offered, shared.missed_start.load(Ordering::Acquire));
    shared.offered.store(Arc::new(offered));
    Ok(())
}

/// Follow the server's changes until the connection is to end, or has ended.
async fn follow_connection(
    shared: &Arc<UpstreamState>,
    link: &McpConnection,
    stop: &CancellationToken,
) -> ConnectionEnd {
    let _following = keep_subscribed(shared, link);
    loop {
        tokio::select! {
            () = stop.cancelled() => return ConnectionEnd::Stopped,
            problem = link.wait_closed() => return ConnectionEnd::Lost(problem),
            () = wait_until_idle(shared) => return ConnectionEnd::Idle,
            () = shared.stale.noticed.notified() => {
                let lists = shared.stale.lists.swap(0, Ordering::AcqRel);
                tokio::select! {
                    () = stop.cancelled() => return ConnectionEnd::Stopped,
                    () = refresh_lists(shared, link, lists) => {}
                }
            }
        }
    }
}

async fn refresh_lists(shared: &Arc<UpstreamState>, link: &McpConnection, lists: u8) {
    let late = "it did not list what changed in time";
    match read_and_offer_lists(shared, link, lists, true, late).await {
        Ok(()) => (shared.tell)(),
        // The old lists stay; if the connection is gone, that is seen next.
        Err(problem) => log_problem(shared, problem),
    }
}

fn log_problem(shared: &UpstreamState, mut problem: Problem) {
    shared.settings.scope.secrets.redact_problem(&mut problem);
    tracing::warn!(target: "upstream", "{}", problem.to_line());
}

/// Say what cannot be used of what a server offers, once.
fn log_flaws(shared: &UpstreamState, flaws: &[Problem]) {
    let known = shared.current_offering();
    let new: Vec<&Problem> = flaws.iter().filter(|it| !known.problems.contains(it)).collect();
    for flaw in new.iter().take(MAX_LOGGED_FLAWS) {
        log_problem(shared, (*flaw).clone());
    }
    if new.len() > MAX_LOGGED_FLAWS {
        let (name, more) = (shared.settings.name(), new.len() - MAX_LOGGED_FLAWS);
        tracing::warn!(target: "upstream", "{name}: and {more} more: see `moonlark doctor`");
    }
}

/// Until nothing was needed for as long as the operator said.
async fn wait_until_idle(shared: &UpstreamState) {
    let Some(rest) = shared.settings.idle_stop else { return std::future::pending().await };
    loop {
        let busy = shared.busy.load(Ordering::Relaxed) > 0 || shared.watching.has_leases();
        let used = if busy { Instant::now() } else { *shared.used.lock() };
        if !busy && used.elapsed() >= rest {
            return;
        }
        tokio::time::sleep(rest.saturating_sub(used.elapsed())).await;
    }
}

fn client_identity() -> McpClientIdentity {
    let info = Value::from_fields([
        ("name", "moonlark".into()),
        ("version", env!("CARGO_PKG_VERSION").into()),
    ]);
    let nothing = || Value::from_fields([]);
    let capabilities = Value::from_fields([
        ("sampling", nothing()),
        ("elicitation", Value::from_fields([("form", nothing()), ("url", nothing())])),
        ("roots", nothing()),
    ]);
    let object = |value: Value| value.as_object().cloned().unwrap_or_default();
    McpClientIdentity { info: object(info), capabilities: object(capabilities) }
}
