//! Calls that wait for their modern client to come back with what they need.
//!
//! A client is told where its call is by a state that nobody can guess, and
//! must repeat the request it made. What it never comes back for is dropped,
//! which ends the call.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use moonlark_core::call::ANONYMOUS;
use moonlark_core::problem::Refusal;
use moonlark_core::{Problem, Result, Value};
use parking_lot::Mutex;
use rmcp::model::ErrorCode;

use super::call::{Conversation, Request};

/// How long a client may take to come back.
const PATIENCE: Duration = Duration::from_secs(600);
/// Calls that wait at once, and those of one caller. The one of its own that has
/// waited longest makes room; of whoever has most, where all are too many.
const MAX_PARKED: usize = 1000;
const MAX_PARKED_PER_CALLER: usize = 100;
/// What our states begin with; those of upstreams are passed on as they are.
const MARK: &str = "moonlark:";

pub(crate) struct Parked {
    pub(crate) conversation: Conversation,
    pub(crate) request: Request,
}

type Table = HashMap<String, (u64, Parked)>;

static PARKED: LazyLock<Mutex<(u64, Table)>> = LazyLock::new(Mutex::default);

/// The id in a state of ours.
pub(crate) fn id_of(state: &str) -> Option<&str> {
    state.strip_prefix(MARK)
}

/// Keep the call, and return the state that leads to it.
pub(crate) fn put(parked: Parked) -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    let evicted;
    {
        let (count, table) = &mut *PARKED.lock();
        *count += 1;
        let waiting = table.iter().map(|(id, (age, it))| (id.as_str(), *age, it.request.caller()));
        let waiting: Vec<_> = waiting.collect();
        let oldest = find_call_to_evict(&waiting, parked.request.caller()).map(str::to_owned);
        evicted = oldest.and_then(|oldest| table.remove(&oldest));
        table.insert(id.clone(), (*count, parked));
    }
    // Ending a call may take locks of its own.
    drop(evicted);
    let expiring = id.clone();
    tokio::spawn(async move {
        tokio::time::sleep(PATIENCE).await;
        let expired = PARKED.lock().1.remove(&expiring);
        drop(expired);
    });
    format!("{MARK}{id}")
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
    let share = if caller == ANONYMOUS { MAX_PARKED } else { MAX_PARKED_PER_CALLER };
    let from = if own >= share {
        caller
    } else if waiting.len() >= MAX_PARKED {
        shares.into_iter().max_by_key(|(_, count)| *count)?.0
    } else {
        return None;
    };
    let theirs = waiting.iter().filter(|(_, _, owner)| *owner == from);
    theirs.min_by_key(|(_, number, _)| *number).map(|(id, _, _)| *id)
}

/// The call, for whoever repeats its request.
pub(crate) fn take(id: &str, request: &Request) -> Result<Conversation> {
    let mut parked = PARKED.lock();
    let same = parked.1.get(id).is_some_and(|(_, parked)| parked.request == *request);
    match parked.1.remove(id).filter(|_| same) {
        Some((_, parked)) => Ok(parked.conversation),
        None => Err(unknown()),
    }
}

/// A mistake in the request, not in the tool: an error of the protocol.
fn unknown() -> Problem {
    let words = "requestState belongs to no call that waits, or to another request";
    let mut problem = Problem::bad_request(words).hint("make the call again, without requestState");
    problem.refusal = Some(Box::new(Refusal {
        code: ErrorCode::INVALID_PARAMS.0.into(),
        message: problem.line(),
        data: Value::from_json(problem.to_json()).ok(),
    }));
    problem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_call_makes_room_only_for_its_own_caller_or_where_its_caller_has_most() {
        let ids: Vec<String> = (0..MAX_PARKED).map(|n| format!("call {n}")).collect();
        let waiting_of = |owners: &[(&'static str, usize)]| {
            let owners =
                owners.iter().flat_map(|(owner, count)| std::iter::repeat_n(*owner, *count));
            let numbered = ids.iter().enumerate().zip(owners);
            numbered.map(|((n, id), owner)| (id.as_str(), n as u64, owner)).collect::<Vec<_>>()
        };
        let some = waiting_of(&[("ann", 1), ("bob", MAX_PARKED_PER_CALLER)]);
        assert_eq!(find_call_to_evict(&some, "bob"), Some("call 1"));
        assert_eq!(find_call_to_evict(&some, "ann"), None);
        assert_eq!(find_call_to_evict(&some, ANONYMOUS), None);
        let full = waiting_of(&[("ann", 1), ("bob", 2), (ANONYMOUS, MAX_PARKED - 3)]);
        assert_eq!(find_call_to_evict(&full, "ann"), Some("call 3"));
        assert_eq!(find_call_to_evict(&full, ANONYMOUS), Some("call 3"));
    }
}
