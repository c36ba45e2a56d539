//! A connection over two pipes, and the process at their other end, if it is
//! ours: read, written, watched and ended.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use moonlark_child::{Ending, Status};
use moonlark_core::Problem;
use moonlark_core::value::Object;
use tokio::io::AsyncRead;
#[cfg(test)]
use tokio::io::AsyncWrite;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::child::{self, Child};
use super::conversation::{Conversation, Reply};
use super::lines::{self, Line};
use super::link::{About, ClosePace};
use super::outgoing::{Closed, Outgoing};
use super::wire::{self, Failure, Odd};

/// How long each step of ending a process gently may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same where Moonlark itself is to be gone in a moment: its client may kill it
/// within two seconds, and waits for as long as it takes.
const QUICK_EXIT_TIMEOUT: Duration = Duration::from_millis(200);

pub(super) struct Stdio {
    conversation: Arc<Conversation>,
    outgoing: Arc<Outgoing>,
    /// Asks whoever keeps the process to end it.
    farewell: Farewell,
    /// Closed when nothing is left of it.
    gone: watch::Receiver<()>,
}

impl Stdio {
    /// Over a process that was just started.
    pub(super) fn over_child(conversation: Arc<Conversation>, child: Child) -> Stdio {
        let Child { stdin, stdout, stderr, status, shown } = child;
        let outgoing = Outgoing::new(stdin);
        let reading = read(Arc::clone(&conversation), Arc::clone(&outgoing), stdout);
        let writing = write(Arc::clone(&outgoing));
        let said = child::Said::default();
        let name = conversation.name().to_owned();
        let listening = said.clone().keep(name, conversation.secrets(), stderr);
        let keeper = Keeper {
            conversation: Arc::clone(&conversation),
            outgoing: Arc::clone(&outgoing),
            farewell: Farewell::default(),
            said,
            shown,
        };
        let farewell = keeper.farewell.clone();
        let gone = background(async move {
            // Read to its end, whatever becomes of the rest.
            let listening = tokio::spawn(listening);
            keeper.keep(status, reading, writing, listening).await;
        });
        Stdio { conversation, outgoing, farewell, gone }
    }

    #[cfg(test)]
    /// Over any two pipes.
    pub(super) fn over_pipes(
        conversation: Arc<Conversation>,
        from: impl AsyncRead + Send + Unpin + 'static,
        to: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Stdio {
        let outgoing = Outgoing::new(to);
        let reading = read(Arc::clone(&conversation), Arc::clone(&outgoing), from);
        let writing = write(Arc::clone(&outgoing));
        let farewell = Farewell::default();
        let gone = background({
            let (conversation, outgoing) = (Arc::clone(&conversation), Arc::clone(&outgoing));
            let farewell = farewell.clone();
            async move {
                tokio::select! {
                    () = hung_up(reading, writing) => {}
                    _ = farewell.wait() => {}
                    _ = conversation.closed() => {}
                }
                outgoing.close();
                let name = conversation.name();
                conversation
                    .end(Problem::unavailable(format!("upstream '{name}' closed the connection")));
            }
        });
        Stdio { conversation, outgoing, farewell, gone }
    }

    pub(super) fn conversation(&self) -> &Arc<Conversation> {
        &self.conversation
    }

    pub(super) async fn request(
        &self,
        method: &str,
        params: Object,
        about: About,
    ) -> Result<Object, Failure> {
        let (mut flight, message) = self.conversation.begin(method, &params, &about)?;
        let sent = match self.outgoing.send(message).await {
            Ok(sent) => sent,
            Err(Closed) => return Err(Failure::NotSent(self.why_closed().await)),
        };
        // An opening cannot be called off; a process that fails it is ended.
        let revocable = !matches!(method, "initialize" | "server/discover");
        let mut given_up = GivenUp { stdio: self, id: flight.id, revocable, answered: false };
        let answer = (&mut flight.answer).await;
        given_up.answered = true;
        answer.unwrap_or_else(|_| {
            let why = self.conversation.reason();
            Err(match self.outgoing.took(sent) {
                true => Failure::Lost(why),
                false => Failure::NotSent(why),
            })
        })
    }

    pub(super) async fn notify(&self, method: &str, params: Object) -> Result<(), Failure> {
        let message = wire::notification(method, &params).map_err(Failure::NotSent)?;
        match self.outgoing.send(message).await {
            Ok(_) => Ok(()),
            Err(Closed) => Err(Failure::NotSent(self.why_closed().await)),
        }
    }

    /// Close its input, wait, ask it to end, wait, end it.
    pub(super) async fn close(&self, pace: ClosePace) {
        self.farewell.0.send_replace(Some(pace));
        // An error is what it waits for: the other side is gone.
        while self.gone.clone().changed().await.is_ok() {}
    }

    /// End it now, and return when nothing is left of it.
    pub(super) async fn kill(&self) {
        self.conversation.end(closed(&self.conversation));
        while self.gone.clone().changed().await.is_ok() {}
    }

    /// A pipe closes a moment before it is known why: at most as long as the
    /// keeper waits for last words and for the end, one after the other.
    async fn why_closed(&self) -> Problem {
        match timeout(3 * PATIENCE, self.conversation.closed()).await {
            Ok(why) => why,
            Err(_) => self.conversation.reason(),
        }
    }
}

/// That the process is to be ended, once somebody has asked for it.
#[derive(Clone, Default)]
struct Farewell(Arc<watch::Sender<Option<ClosePace>>>);

impl Farewell {
    /// How long each step of ending it may take, as soon as it is to be ended.
    async fn wait(&self) -> Duration {
        let mut asked = self.0.subscribe();
        // The sender is here, so it is not closed.
        let pace = asked.wait_for(Option::is_some).await.ok().and_then(|pace| *pace);
        match pace {
            Some(ClosePace::Quick) => QUICK_EXIT_TIMEOUT,
            Some(ClosePace::Gentle) | None => PATIENCE,
        }
    }
}

/// Tells the server when nobody waits for a request any more.
struct GivenUp<'a> {
    stdio: &'a Stdio,
    id: u64,
    revocable: bool,
    answered: bool,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if self.revocable && !self.answered {
            self.stdio.outgoing.send_now(wire::cancelled(self.id));
        }
    }
}

impl Reply for Outgoing {
    fn reply(self: Arc<Self>, message: Vec<u8>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _ = self.send(message).await;
        })
    }
}

/// Run it, and tell by closing the channel when it is done or dropped.
fn background(task: impl Future<Output = ()> + Send + 'static) -> watch::Receiver<()> {
    let (alive, gone) = watch::channel(());
    tokio::spawn(async move {
        task.await;
        drop(alive);
    });
    gone
}

async fn read(
    conversation: Arc<Conversation>,
    back: Arc<Outgoing>,
    from: impl AsyncRead + Send + Unpin,
) {
    let most = conversation.limits().message;
    // An error is an end like any other: nothing more will come.
    let _ = lines::read(from, most, |line| match line {
        Line::Whole(text) => drop(conversation.hear(text, None, &back)),
        Line::TooLong(head) => drop(conversation.skipped(head, None)),
        // Some servers leave out the end of their last line.
        Line::Half(text) => match wire::is_whole(text) {
            true => drop(conversation.hear(text, None, &back)),
            false => conversation.odd(Odd::HalfLine),
        },
    })
    .await;
}

async fn write(outgoing: Arc<Outgoing>) {
    outgoing.write().await;
}

/// Either end of the conversation is closed. What was written before is heard.
async fn hung_up(reading: impl Future<Output = ()>, writing: impl Future<Output = ()>) {
    let mut reading = pin!(reading);
    tokio::select! {
        () = &mut reading => {}
        // It may have more to say, but not for long.
        () = writing => drop(timeout(PATIENCE, reading).await),
    }
}

/// Who holds the process: with this, it ends.
struct Keeper {
    conversation: Arc<Conversation>,
    outgoing: Arc<Outgoing>,
    farewell: Farewell,
    said: child::Said,
    shown: String,
}

impl Keeper {
    async fn keep(
        self,
        mut status: Status,
        reading: impl Future<Output = ()>,
        writing: impl Future<Output = ()>,
        mut listening: JoinHandle<()>,
    ) {
        let ending = self.watch(&mut status, reading, writing).await;
        self.outgoing.close();
        if self.conversation.is_open() {
            // Its error output ends with it, but for what it gave away.
            let _ = timeout(PATIENCE / 4, &mut listening).await;
        }
        listening.abort();
        let name = self.conversation.name();
        self.conversation.end(child::epitaph(name, &self.shown, ending, &self.said));
        status.kill().await;
    }

    /// Until it is over, for whatever reason; how the process ended, if it did.
    async fn watch(
        &self,
        status: &mut Status,
        reading: impl Future<Output = ()>,
        writing: impl Future<Output = ()>,
    ) -> Option<io::Result<Ending>> {
        let mut reading = pin!(reading);
        // Asked once only: half a report that was read is not read again.
        let mut ended = Box::pin(status.ended());
        tokio::select! {
            () = hung_up(reading.as_mut(), writing) => timeout(PATIENCE, ended).await.ok(),
            ending = &mut ended => {
                // What it said before is heard.
                let _ = timeout(PATIENCE, reading).await;
                Some(ending)
            }
            patience = self.farewell.wait() => {
                self.outgoing.close();
                // Its answers are still read, so that it is not stuck in one.
                let reading = pin!(async {
                    reading.await;
                    std::future::pending::<()>().await;
                });
                let gently = futures::future::select(reading, ended);
                if timeout(patience, gently).await.is_err() {
                    status.terminate();
                    let _ = timeout(patience, status.ended()).await;
                }
                self.conversation.end(closed(&self.conversation));
                None
            }
            _ = self.conversation.closed() => None,
        }
    }
}

fn closed(conversation: &Conversation) -> Problem {
    Problem::unavailable(format!("the connection to upstream '{}' was closed", conversation.name()))
}

#[cfg(test)]
mod tests;
