//! Calls that wait for their modern client to come back with what they need.
//!
//! A client is told where its call is by a state that nobody can guess, and
//! must repeat the request it made. What it never comes back for is dropped,
//! which ends the call.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use moonlark_child::spawn_owned;
use moonlark_core::problem::ProtocolError;
use moonlark_core::{Problem, Result, Value};
use moonlark_gateway::call::ANONYMOUS_CALLER;
use parking_lot::Mutex;
use rmcp::model::ErrorCode;
use tokio_util::task::AbortOnDropHandle;

use super::resumable_call::{CallFingerprint, ResumableCall};

/// How long a client may take to come back.
const SUSPENDED_CALL_TIMEOUT: Duration = Duration::from_secs(600);
/// Calls that wait at once, and those of one caller. The one of its own that has
/// waited longest makes room; of whoever has most, where all are too many.
const MAX_SUSPENDED_CALLS: usize = 1000;
const MAX_SUSPENDED_CALLS_PER_CALLER: usize = 100;
/// What our states begin with; those of upstreams are passed on as they are.
const STATE_PREFIX: &str = "moonlark:";

pub(crate) struct SuspendedCall {
    pub(crate) conversation: ResumableCall,
    pub(crate) request: CallFingerprint,
}

/// With the number of their coming, and what drops them when their time is over.
type SuspendedCallTable = HashMap<String, (u64, SuspendedCall, AbortOnDropHandle<()>)>;

static SUSPENDED_CALLS: LazyLock<Mutex<(u64, SuspendedCallTable)>> = LazyLock::new(Mutex::default);

/// The id in a state of ours.
pub(crate) fn suspended_call_id(state: &str) -> Option<&str> {
    state.strip_prefix(STATE_PREFIX)
}

/// Keep the call, and return the state that leads to it.
pub(crate) fn suspend_call(parked: SuspendedCall) -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    let expiring = id.clone();
    let expiry = spawn_owned(async move {
        tokio::time::sleep(SUSPENDED_CALL_TIMEOUT).await;
        let expired = SUSPENDED_CALLS.lock().1.remove(&expiring);
        drop(expired);
    });
    let evicted;
    {
        let (count, table) = &mut *SUSPENDED_CALLS.lock();
        *count += 1;
        let waiting =
            table.iter().map(|(id, (age, it, _))| (id.as_str(), *age, it.request.caller()));
        let waiting: Vec<_> = waiting.collect();
        let oldest = find_call_to_evict(&waiting, parked.request.caller()).map(str::to_owned);
        evicted = oldest.and_then(|oldest| table.remove(&oldest));
        table.insert(id.clone(), (*count, parked, expiry));
    }
    // Ending a call may take locks of its own.
    drop(evicted);
    format!("{STATE_PREFIX}{id}")
}

/// The call that makes room for another of this caller, if one has to: of those that
/// wait by id, the number of their coming, and caller.
fn find_call_to_evict<'a>(waiting: &[(&'a str, u64, &str)], caller: &str) -> Option<&'a str> {
    let mut shares: HashMap<&str, usize> = HashMap::new();
    for (_, _, owner) in waiting {
        *shares.entry(owner).or_default() += 1;
    }
    let own = shares.get(caller).copied().unwrap_or_default();
    // Where nobody says who they are, all calls are of one caller.
    let share = if caller == ANONYMOUS_CALLER {
        MAX_SUSPENDED_CALLS
    } else {
        MAX_SUSPENDED_CALLS_PER_CALLER
    };
    let from = if own >= share {
        caller
    } else if waiting.len() >= MAX_SUSPENDED_CALLS {
        shares.into_iter().max_by_key(|(_, count)| *count)?.0
    } else {
        return None;
    };
    let theirs = waiting.iter().filter(|(_, _, owner)| *owner == from);
    theirs.min_by_key(|(_, number, _)| *number).map(|(id, _, _)| *id)
}

/// The call, for whoever repeats its request.
pub(crate) fn resume_call(id: &str, request: &CallFingerprint) -> Result<ResumableCall> {
    let mut parked = SUSPENDED_CALLS.lock();
    let same = parked.1.get(id).is_some_and(|(_, parked, _)| parked.request == *request);
    match parked.1.remove(id).filter(|_| same) {
        Some((_, parked, _)) => Ok(parked.conversation),
        None => Err(unknown_state_problem()),
    }
}

/// A mistake in the request, not in the tool: an error of the protocol.
fn unknown_state_problem() -> Problem {
    let words = "requestState belongs to no call that waits, or to another request";
    let mut problem =
        Problem::bad_request(words).with_hint("make the call again, without requestState");
    problem.refusal = Some(Box::new(ProtocolError {
        code: ErrorCode::INVALID_PARAMS.0.into(),
        message: problem.to_line(),
        data: Value::from_json(problem.to_json()).ok(),
    }));
    problem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_call_makes_room_only_for_its_own_caller_or_where_its_caller_has_most() {
        let ids: Vec<String> = (0..MAX_SUSPENDED_CALLS).map(|n| format!("call {n}")).collect();
        let waiting_of = |owners: &[(&'static str, usize)]| {
            let owners =
                owners.iter().flat_map(|(owner, count)| std::iter::repeat_n(*owner, *count));
            let numbered = ids.iter().enumerate().zip(owners);
            numbered.map(|((n, id), owner)| (id.as_str(), n as u64, owner)).collect::<Vec<_>>()
        };
        let some = waiting_of(&[("ann", 1), ("bob", MAX_SUSPENDED_CALLS_PER_CALLER)]);
        assert_eq!(find_call_to_evict(&some, "bob"), Some("call 1"));
        assert_eq!(find_call_to_evict(&some, "ann"), None);
        assert_eq!(find_call_to_evict(&some, ANONYMOUS_CALLER), None);
        let full =
            waiting_of(&[("ann", 1), ("bob", 2), (ANONYMOUS_CALLER, MAX_SUSPENDED_CALLS - 3)]);
        assert_eq!(find_call_to_evict(&full, "ann"), Some("call 3"));
        assert_eq!(find_call_to_evict(&full, ANONYMOUS_CALLER), Some("call 3"));
    }
}
