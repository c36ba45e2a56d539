//! Connections: kept for the next call, and never left with work that nobody
//! waits for.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use moonlark_core::grant::{AllowedServer, AllowedWrite};
use moonlark_core::{Call, Problem, Result};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::{Client, NoTls};

use super::failure;
use super::socket::{self, Bound, Bounded};
use super::target::{Key, Target, Tls};
use crate::pool::{Pool, Slot, patience};

/// Databases in use at once, and connections to each.
static POOL: LazyLock<Pool<Key, Session>> = LazyLock::new(|| Pool::new(32, 8));

struct Session {
    client: Client,
    bound: Arc<Bound>,
    /// Where it leads, for cancelling.
    server: AllowedServer,
    tls: Tls,
}

/// A connection in the middle of a transaction. Unless that is ended in order,
/// the server is told to stop and the connection is not used again.
pub(super) struct Transaction<'a> {
    session: Option<(Session, Slot<Key, Session>)>,
    target: &'a Target,
}

/// The server's own messages, before any statement.
const GREETING: usize = 1 << 20;

/// How long an idle connection may take to show that it lives, and the server
/// to take note that nobody waits.
const BRIEFLY: Duration = Duration::from_secs(3);

/// Leaves nothing of the call before. Statements stay prepared: the client
/// keeps some of its own.
const CLEAN: &str = "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; \
    SELECT pg_advisory_unlock_all(); DISCARD PLANS; DISCARD TEMP; DISCARD SEQUENCES";

impl<'a> Transaction<'a> {
    pub(super) async fn begin(
        call: &Call,
        target: &'a Target,
        write: Option<AllowedWrite>,
    ) -> Result<Transaction<'a>> {
        let until = patience(call);
        let slot = POOL.slot(until, &target.key, &target.shown()).await?;
        // Nothing of the call was sent yet, so a connection that died meanwhile
        // costs nothing but another one.
        while let Some(idle) = slot.idle() {
            if idle.client.is_closed() {
                continue;
            }
            let begin = begin(call, write);
            let ready = async {
                tokio::try_join!(
                    idle.client.batch_execute(CLEAN),
                    idle.client.batch_execute(&begin)
                )
            };
            if let Ok(Ok(_)) = timeout(BRIEFLY, ready).await {
                return Ok(Transaction::on(call, idle, slot, target));
            }
        }
        let session = match timeout_at(until, Session::open(target)).await {
            Ok(session) => session?,
            Err(_) => {
                let message = format!("no answer from {} in time", target.shown());
                return Err(Problem::unavailable(message));
            }
        };
        let begun = session.client.batch_execute(&begin(call, write)).await;
        begun.map_err(|error| failure::problem(&error, target))?;
        Ok(Transaction::on(call, session, slot, target))
    }

    fn on(
        call: &Call,
        session: Session,
        slot: Slot<Key, Session>,
        target: &'a Target,
    ) -> Transaction<'a> {
        // A row carries more than its values, and an error message is no value.
        session.bound.set(call.limits().value.max(GREETING).saturating_add(GREETING));
        Transaction { session: Some((session, slot)), target }
    }

    pub(super) fn client(&self) -> Result<&Client> {
        match &self.session {
            Some((session, _)) => Ok(&session.client),
            None => Err(Problem::internal("the transaction has ended")),
        }
    }

    /// The server sent something larger than the limit, and the connection is
    /// closed for that.
    pub(super) fn is_flooded(&self) -> bool {
        self.session.as_ref().is_some_and(|(session, _)| session.bound.is_exceeded())
    }

    /// Keep what was done.
    pub(super) async fn commit(self) -> Result<()> {
        self.end("COMMIT").await
    }

    /// Undo it; the connection is fine.
    pub(super) async fn roll_back(self) {
        // What went wrong before matters more.
        let _ = self.end("ROLLBACK").await;
    }

    async fn end(mut self, how: &str) -> Result<()> {
        let ended = self.client()?.batch_execute(how).await;
        let Some((session, slot)) = self.session.take() else { return Ok(()) };
        if !session.client.is_closed()
            && ended.as_ref().map_or_else(|e| e.as_db_error().is_some(), |()| true)
        {
            slot.keep(session);
        }
        ended.map_err(|error| failure::problem(&error, self.target))
    }
}

/// The first query fixes whether a transaction may write: after it, no statement
/// can change that. The server ends what runs too long also when we cannot.
fn begin(call: &Call, write: Option<AllowedWrite>) -> String {
    let mode = if write.is_some() { "" } else { " READ ONLY" };
    let left =
        call.deadline().saturating_duration_since(Instant::now()).as_millis().clamp(1, 86_400_000);
    format!("BEGIN{mode}; SELECT set_config('statement_timeout', '{left}', true)")
}

impl Session {
    /// The first server that answers.
    async fn open(target: &Target) -> Result<Session> {
        let mut failed = Problem::bad_request("the connection string names no host");
        for server in &target.servers {
            match Session::to(server, target).await {
                Ok(session) => return Ok(session),
                Err(problem) => failed = problem,
            }
        }
        Err(failed)
    }

    async fn to(server: &AllowedServer, target: &Target) -> Result<Session> {
        let stream = socket::connect(server, target.tls).await?;
        let bound = Bound::new(GREETING);
        let stream = Bounded::new(stream, bound.clone());
        let (client, connection) = target
            .config
            .connect_raw(stream, NoTls)
            .await
            .map_err(|error| failure::problem(&error, target))?;
        // It ends with the client; what went wrong, the client hears too.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Session { client, bound, server: server.clone(), tls: target.tls })
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        let Some((session, slot)) = self.session.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        // The place in the pool is free when the server has stopped.
        runtime.spawn(async move {
            let cancel = async {
                let stream = socket::connect(&session.server, session.tls).await.ok()?;
                session.client.cancel_token().cancel_query_raw(stream, NoTls).await.ok()
            };
            let _ = timeout(BRIEFLY, cancel).await;
            drop((session, slot));
        });
    }
}
