//! Pooled sessions, which are never left with work that nobody waits for.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use moonlark_child::try_spawn_to_finish;
use moonlark_core::grant::{AllowedServer, AllowedWrite};
use moonlark_core::{Problem, Result};
use moonlark_gateway::Call;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::{Client, NoTls};

use super::connection_target::{PostgresPoolKey, PostgresTarget, PostgresTlsMode};
use super::postgres_errors;
use super::postgres_socket::{self, MessageSizeLimit, SizeLimitedStream};
use crate::connection_pool::{ConnectionPool, ConnectionSlot, connection_wait_deadline};

/// Databases in use at once, and connections to each.
static POSTGRES_POOL: LazyLock<ConnectionPool<PostgresPoolKey, PostgresSession>> =
    LazyLock::new(|| ConnectionPool::new(32, 8));

struct PostgresSession {
    client: Client,
    bound: Arc<MessageSizeLimit>,
    /// Where it leads, for cancelling.
    server: AllowedServer,
    tls: PostgresTlsMode,
}

/// A connection in the middle of a transaction. Unless that is ended in order,
/// the server is told to stop and the connection is not used again.
pub(super) struct PostgresTransaction<'a> {
    session: Option<(PostgresSession, ConnectionSlot<PostgresPoolKey, PostgresSession>)>,
    target: &'a PostgresTarget,
}

/// The server's own messages, before any statement.
const MAX_SERVER_MESSAGE_BYTES: usize = 1 << 20;

/// How long an idle connection may take to show that it lives, and the server
/// to take note that nobody waits.
const SERVER_RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long after a call's deadline the server ends a statement by itself.
const SERVER_TIMEOUT_GRACE: Duration = Duration::from_millis(250);
/// The server takes no number that is much larger.
const MAX_STATEMENT_TIMEOUT: Duration = Duration::from_secs(86_400);

/// Leaves nothing of the call before. Statements stay prepared: the client
/// keeps some of its own.
const RESET_SESSION_SQL: &str = "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; \
    SELECT pg_advisory_unlock_all(); DISCARD PLANS; DISCARD TEMP; DISCARD SEQUENCES";

impl<'a> PostgresTransaction<'a> {
    pub(super) async fn begin(
        call: &Call,
        target: &'a PostgresTarget,
        write: Option<AllowedWrite>,
    ) -> Result<PostgresTransaction<'a>> {
        let until = connection_wait_deadline(call);
        let slot =
            POSTGRES_POOL.acquire_slot(until, &target.key, &target.display_servers()).await?;
        // Nothing of the call was sent yet, so a connection that died meanwhile
        // costs nothing but another one.
        while let Some(idle) = slot.take_idle() {
            if idle.client.is_closed() {
                continue;
            }
            let begin = begin_sql(call, write);
            let ready = async {
                tokio::try_join!(
                    idle.client.batch_execute(RESET_SESSION_SQL),
                    idle.client.batch_execute(&begin)
                )
            };
            if let Ok(Ok(_)) = timeout(SERVER_RESPONSE_TIMEOUT, ready).await {
                return Ok(PostgresTransaction::on_session(call, idle, slot, target));
            }
        }
        let session = match timeout_at(until, PostgresSession::open_first_available(target)).await {
            Ok(session) => session?,
            Err(_) => {
                let message = format!("no answer from {} in time", target.display_servers());
                return Err(Problem::unavailable(message));
            }
        };
        let begun = session.client.batch_execute(&begin_sql(call, write)).await;
        begun.map_err(|error| postgres_errors::explain_postgres_error(&error, target))?;
        Ok(PostgresTransaction::on_session(call, session, slot, target))
    }

    fn on_session(
        call: &Call,
        session: PostgresSession,
        slot: ConnectionSlot<PostgresPoolKey, PostgresSession>,
        target: &'a PostgresTarget,
    ) -> PostgresTransaction<'a> {
        // A row carries more than its values, and an error message is no value.
        session.bound.set_limit(
            call.limits()
                .value
                .max(MAX_SERVER_MESSAGE_BYTES)
                .saturating_add(MAX_SERVER_MESSAGE_BYTES),
        );
        PostgresTransaction { session: Some((session, slot)), target }
    }

    pub(super) fn client(&self) -> Result<&Client> {
        match &self.session {
            Some((session, _)) => Ok(&session.client),
            None => Err(Problem::internal("the transaction has ended")),
        }
    }

    /// The server sent something larger than the limit, and the connection is
    /// closed for that.
    pub(super) fn is_message_limit_exceeded(&self) -> bool {
        self.session.as_ref().is_some_and(|(session, _)| session.bound.is_exceeded())
    }

    /// Keep what was done.
    pub(super) async fn commit(self) -> Result<()> {
        self.end_with("COMMIT").await
    }

    /// Undo it; the connection is fine.
    pub(super) async fn roll_back(self) {
        // What went wrong before matters more.
        let _ = self.end_with("ROLLBACK").await;
    }

    async fn end_with(mut self, how: &str) -> Result<()> {
        let ended = self.client()?.batch_execute(how).await;
        let Some((session, slot)) = self.session.take() else { return Ok(()) };
        if !session.client.is_closed()
            && ended.as_ref().map_or_else(|e| e.as_db_error().is_some(), |()| true)
        {
            slot.return_connection(session);
        }
        ended.map_err(|error| postgres_errors::explain_postgres_error(&error, self.target))
    }
}

/// The first query fixes whether a transaction may write: after it, no statement
/// can change that. The server ends what runs too long also when we cannot: a moment after
/// the deadline, so that the caller is always told of that.
fn begin_sql(call: &Call, write: Option<AllowedWrite>) -> String {
    let mode = if write.is_some() { "" } else { " READ ONLY" };
    let left = call.deadline().saturating_duration_since(Instant::now()) + SERVER_TIMEOUT_GRACE;
    let left = left.as_millis().min(MAX_STATEMENT_TIMEOUT.as_millis());
    format!("BEGIN{mode}; SELECT set_config('statement_timeout', '{left}', true)")
}

impl PostgresSession {
    /// The first server that answers.
    async fn open_first_available(target: &PostgresTarget) -> Result<PostgresSession> {
        let mut failed = Problem::bad_request("the connection string names no host");
        for server in &target.servers {
            match PostgresSession::connect_to(server, target).await {
                Ok(session) => return Ok(session),
                Err(problem) => failed = problem,
            }
        }
        Err(failed)
    }

    async fn connect_to(
        server: &AllowedServer,
        target: &PostgresTarget,
    ) -> Result<PostgresSession> {
        let stream = postgres_socket::connect_to_server(server, target.tls).await?;
        let bound = MessageSizeLimit::new(MAX_SERVER_MESSAGE_BYTES);
        let stream = SizeLimitedStream::new(stream, bound.clone());
        let (client, connection) = target
            .config
            .connect_raw(stream, NoTls)
            .await
            .map_err(|error| postgres_errors::explain_postgres_error(&error, target))?;
        // What went wrong, the client hears too.
        #[expect(
            clippy::disallowed_methods,
            reason = "it ends with the client, once the server has heard that"
        )]
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(PostgresSession { client, bound, server: server.clone(), tls: target.tls })
    }
}

impl Drop for PostgresTransaction<'_> {
    fn drop(&mut self) {
        let Some((session, slot)) = self.session.take() else { return };
        // The place in the pool is free when the server has stopped.
        try_spawn_to_finish(async move {
            let cancel = async {
                let stream =
                    postgres_socket::connect_to_server(&session.server, session.tls).await.ok()?;
                session.client.cancel_token().cancel_query_raw(stream, NoTls).await.ok()
            };
            let _ = timeout(SERVER_RESPONSE_TIMEOUT, cancel).await;
            drop((session, slot));
        });
    }
}
