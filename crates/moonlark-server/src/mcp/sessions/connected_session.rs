//! A session with which the SDK has connected its client: what calls need that are served
//! without the SDK, and which of them are in progress.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use moonlark_child::spawn_owned;
use parking_lot::Mutex;
use rmcp::model::RequestId;
use rmcp::transport::streamable_http_server::session::SessionId;
use rmcp::{Peer, RoleServer};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::session_table::SessionTable;
use crate::mcp::McpServer;

/// How often the SDK is told that a session is in use of which it hears nothing.
pub(super) const WAKE_INTERVAL: Duration = Duration::from_secs(60);

pub(super) struct ConnectedSession {
    pub(super) name: SessionId,
    pub(super) server: McpServer,
    pub(super) peer: Peer<RoleServer>,
    calls: Mutex<SessionCalls>,
    /// When the SDK was told last, and the task that did.
    woken: Mutex<(Instant, Option<AbortOnDropHandle<()>>)>,
}

#[derive(Default)]
struct SessionCalls {
    in_progress: HashMap<RequestId, (u64, CancellationToken)>,
    started: u64,
    /// The session is over.
    ended: bool,
}

/// A call in progress, until it is dropped.
pub(super) struct SessionCallTicket {
    session: Arc<ConnectedSession>,
    id: RequestId,
    number: u64,
}

/// Tells the table of sessions who serves one, once the SDK has made somebody for it.
#[derive(Clone)]
pub(in crate::mcp) struct SessionEntrance {
    pub(super) table: Arc<SessionTable>,
    pub(super) name: SessionId,
}

impl SessionEntrance {
    pub(in crate::mcp) fn connect(&self, server: McpServer, peer: Peer<RoleServer>) {
        let calls = Mutex::default();
        let woken = Mutex::new((Instant::now(), None));
        let session = ConnectedSession { name: self.name.clone(), server, peer, calls, woken };
        self.table.note_connected(Arc::new(session));
    }
}

impl ConnectedSession {
    /// Begin a call that ends when `cancelled` is. It can be cancelled by its id from now on.
    pub(super) fn begin_call(
        self: &Arc<Self>,
        id: RequestId,
        cancelled: CancellationToken,
    ) -> SessionCallTicket {
        let mut calls = self.calls.lock();
        if calls.ended {
            cancelled.cancel();
        }
        calls.started += 1;
        let number = calls.started;
        calls.in_progress.insert(id.clone(), (number, cancelled));
        SessionCallTicket { session: self.clone(), id, number }
    }

    pub(super) fn cancel_call(&self, id: &RequestId) {
        let call = self.calls.lock().in_progress.remove(id);
        if let Some((_, cancelled)) = call {
            cancelled.cancel();
        }
    }

    /// The session is over, and so are its calls.
    pub(super) fn end_calls(&self) {
        let calls = {
            let mut calls = self.calls.lock();
            calls.ended = true;
            std::mem::take(&mut calls.in_progress)
        };
        calls.into_values().for_each(|(_, cancelled)| cancelled.cancel());
    }

    /// Have the SDK told that the session is in use, if that was not done for long.
    pub(super) fn keep_awake<F: Future<Output = ()> + Send + 'static>(
        &self,
        tell: impl FnOnce() -> F,
    ) {
        let mut woken = self.woken.lock();
        if woken.0.elapsed() >= WAKE_INTERVAL {
            *woken = (Instant::now(), Some(spawn_owned(tell())));
        }
    }
}

impl Drop for SessionCallTicket {
    fn drop(&mut self) {
        let mut calls = self.session.calls.lock();
        // Its id may be another's by now, after its client has gone.
        if calls.in_progress.get(&self.id).is_some_and(|(number, _)| *number == self.number) {
            calls.in_progress.remove(&self.id);
        }
    }
}
