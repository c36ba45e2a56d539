//! Calls that wait for their modern client to come back with what they need.
//!
//! A client is told where its call is by a state that nobody can guess, and
//! must repeat the request it made. What it never comes back for is dropped,
//! which ends the call.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use moonlark_core::problem::Refusal;
use moonlark_core::{Problem, Result, Value};
use parking_lot::Mutex;
use rmcp::model::ErrorCode;

use super::call::{Conversation, Request};

/// How long a client may take to come back.
const PATIENCE: Duration = Duration::from_secs(600);
/// Calls that wait at once. The one that has waited longest makes room.
const MOST: usize = 1000;
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
    let mut evicted = None;
    {
        let (count, table) = &mut *PARKED.lock();
        *count += 1;
        if table.len() >= MOST
            && let Some(oldest) = table.iter().min_by_key(|(_, (age, _))| *age)
        {
            let oldest = oldest.0.clone();
            evicted = table.remove(&oldest);
        }
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
