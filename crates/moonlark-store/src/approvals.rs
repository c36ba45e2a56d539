//! Approvals: what was asked, what was decided, and that each is used once.
//!
//! Every change is one transaction on the same file as the journal's, so that
//! processes agree: the server that asks, the command line that decides, and
//! whoever comes after a restart.

mod asked;
mod row;
#[cfg(test)]
mod tests;
mod words;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use moonlark_core::approval::{
    Approvals, Decider, Decision, Known, Next, Request, Standing, State, Ticket, Why, next,
};
use moonlark_core::journal::Id;
use moonlark_core::tool::BoxFuture;
use moonlark_core::{Code, Problem, Result, Value};
use parking_lot::Mutex;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use serde_json::{Value as Json, json};
use tokio::sync::Notify;

use asked::{Fault, ask, find, look_up, set_state, sorted};
pub use row::ApprovalShown;
use row::{COLUMNS, Row};
use words::{refused, unknown};

use crate::failure::problem;
use crate::id_search::{HAS_PART, MAX_CANDIDATES, ambiguous, hex_digits};
use crate::packed::{pack, unpack};
use crate::rows::{Key, micros};
use crate::schema;
use crate::sealing::{Seal, Spot};

/// How often somebody who waits looks what other processes decided.
const LOOK: Duration = Duration::from_secs(1);
/// Requests that are listed.
const LISTED: i64 = 500;

/// Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct ApprovalStore(Arc<Inner>);

struct Inner {
    file: PathBuf,
    settings: Mutex<ApprovalSettings>,
    open: Mutex<Option<Open>>,
    /// Something was decided in this process.
    decided: Notify,
}

struct Open {
    connection: Connection,
    seal: Seal,
}

/// What the operator decides about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApprovalSettings {
    /// How long there is to decide, and to make the call.
    pub expiry: Duration,
    /// Whether the user of the client that calls may decide.
    pub by_caller: bool,
}

impl ApprovalStore {
    /// Of the database at `file`, which is made when something is asked.
    pub fn new(file: PathBuf, settings: ApprovalSettings) -> ApprovalStore {
        ApprovalStore(Arc::new(Inner {
            file,
            settings: Mutex::new(settings),
            open: Mutex::default(),
            decided: Notify::new(),
        }))
    }

    pub fn configure(&self, settings: ApprovalSettings) {
        *self.0.settings.lock() = settings;
    }

    /// What waits for a decision, the newest last; or everything.
    pub fn list(&self, all: bool) -> Result<Vec<ApprovalShown>> {
        self.0.list(all, None)
    }

    /// One, with all that is known of it.
    pub fn show(&self, id: Id) -> Result<ApprovalShown> {
        self.0.show(id)
    }

    /// The arguments exactly as the tool would get them.
    pub fn exact_arguments(&self, id: Id) -> Result<Value> {
        self.0.with(|open| {
            let row =
                find(&open.connection, id)?.ok_or(Fault::Problem(unknown(&id.to_string())))?;
            Ok(unpack(&open.seal.open(Spot::Approval, id, row.sealed)?)?)
        })
    }

    /// The request that `text` names: its id, or the beginning or end of one. Where several
    /// fit, the only one that waits for a decision is meant.
    pub fn find(&self, text: &str) -> Result<Id> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        let digits = hex_digits(text).filter(|_| self.0.file.exists());
        let digits = digits.ok_or_else(|| unknown(text))?;
        let found: Vec<(Id, bool)> = self.0.with(|open| {
            // Those that wait come first.
            let mut statement = open.connection.prepare(&format!(
                "SELECT id, state = 'waiting' AND expires > ?2 AS waits FROM approval_requests \
                 WHERE {HAS_PART} ORDER BY waits DESC, id DESC LIMIT {MAX_CANDIDATES}"
            ))?;
            let params = params![digits, micros(SystemTime::now())];
            let found = statement.query_map(params, |row| {
                Ok((Id::from_bytes(row.get::<_, [u8; 16]>(0)?), row.get(1)?))
            })?;
            Ok(found.collect::<rusqlite::Result<_>>()?)
        })?;
        match found.as_slice() {
            [] => Err(unknown(text)),
            [(one, _)] | [(one, true), (_, false), ..] => Ok(*one),
            several => {
                let ids: Vec<Id> = several.iter().map(|(id, _)| *id).collect();
                Err(ambiguous("approvals", text, &ids))
            }
        }
    }

    /// Decide, at once.
    pub fn decide_now(&self, id: Id, decision: Decision, by: Decider) -> Result<()> {
        let decided = self.0.decide(id, decision, &by);
        self.0.decided.notify_waiters();
        decided
    }

    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T> + Send + 'static,
    ) -> BoxFuture<Result<T>> {
        let inner = self.0.clone();
        Box::pin(async move {
            let done = tokio::task::spawn_blocking(move || work(&inner)).await;
            done.unwrap_or_else(|_| Err(Problem::internal("an approval could not be looked up")))
        })
    }
}

impl Approvals for ApprovalStore {
    fn stand(&self, request: Request) -> BoxFuture<Result<Standing>> {
        self.blocking(move |inner| inner.stand(&request))
    }

    fn decide(&self, id: Id, decision: Decision, by: Decider) -> BoxFuture<Result<()>> {
        let store = self.clone();
        self.blocking(move |_| store.decide_now(id, decision, by))
    }

    fn decided(&self, id: Id) -> BoxFuture<Result<Option<Decision>>> {
        let store = self.clone();
        Box::pin(async move {
            loop {
                let here = store.0.decided.notified();
                let row = store.blocking(move |inner| inner.row(id)).await?;
                let Some(row) = row else { return Ok(None) };
                match (row.state, row.is_expired()) {
                    (State::Denied, _) => return Ok(Some(Decision::Deny)),
                    (State::Approved | State::Used, false) => return Ok(Some(Decision::Approve)),
                    (_, true) => return Ok(None),
                    (State::Waiting, false) => {}
                }
                let _ = tokio::time::timeout(LOOK, here).await;
            }
        })
    }

    fn waiting(&self) -> BoxFuture<Result<u64>> {
        self.blocking(Inner::waiting)
    }

    fn look(&self, id: Option<Id>, of: Option<String>) -> BoxFuture<Result<Json>> {
        self.blocking(move |inner| match id {
            None => Ok(json!({ "approvals": inner.list(false, of.as_deref())? })),
            Some(id) => {
                let shown = inner.show(id)?;
                // What is another's does not exist.
                match of.is_some_and(|of| shown.caller.name.as_deref() != Some(&of)) {
                    true => Err(unknown(&id.to_string())),
                    false => Ok(json!({ "approval": shown })),
                }
            }
        })
    }
}

impl Inner {
    fn stand(&self, request: &Request) -> Result<Standing> {
        let settings = *self.settings.lock();
        self.with(|open| {
            let packed = pack(&sorted(&request.args))?;
            let digest = open.seal.digest(&request.tool, &packed);
            let (transaction, seal) = open.begin()?;
            let (known, token) = look_up(&transaction, seal, request, &digest)?;
            let standing =
                known.as_ref().map(|row| Known { state: row.state, expired: row.is_expired() });
            let all_shown = |row: &Row| !row.arguments(seal).left_out;
            let by_caller = settings.by_caller && known.as_ref().is_none_or(all_shown);
            let standing = match (next(standing, token.is_some(), by_caller), known) {
                (Next::Make, Some(row)) => {
                    set_state(&transaction, row.id, State::Used)?;
                    Standing::Granted { token }
                }
                (Next::Wait, Some(row)) => Standing::Waiting(ticket(&row, seal, &settings)),
                (Next::Refuse(why), Some(row)) => {
                    return Err(Fault::Problem(refused(why, &row)));
                }
                _ => {
                    let row = ask(&transaction, seal, request, &digest, &settings)?;
                    Standing::Waiting(ticket(&row, seal, &settings))
                }
            };
            transaction.commit()?;
            Ok(standing)
        })
    }

    fn decide(&self, id: Id, decision: Decision, by: &Decider) -> Result<()> {
        let by_caller = self.settings.lock().by_caller;
        self.with(|open| {
            let (transaction, seal) = open.begin()?;
            let row = find(&transaction, id)?;
            let row = row.ok_or_else(|| Fault::Problem(unknown(&id.to_string())))?;
            let (word, name) = match by {
                Decider::Operator(name) => ("operator", name),
                Decider::Caller(name) => ("caller", name),
                Decider::Holder { token, name } if seal.approval_of(token) == Some(id) => {
                    ("caller", name)
                }
                Decider::Holder { .. } => {
                    let message = format!("the token is not that of approval {id}");
                    return Err(Fault::Problem(Problem::new(Code::Forbidden, message)));
                }
            };
            if word == "caller" && !by_caller {
                let message = "only the operator decides on calls here";
                return Err(Fault::Problem(Problem::new(Code::Forbidden, message).hint(format!(
                    "ask the operator of this server to decide on approval {id}"
                ))));
            }
            if word == "caller" && row.arguments(seal).left_out {
                let message = "the arguments were not shown whole, so they are not decided on here";
                return Err(Fault::Problem(Problem::new(Code::Forbidden, message).hint(format!(
                    "ask the operator of this server to look at approval {id} with `moonlark approvals show`"
                ))));
            }
            if row.is_expired() {
                return Err(Fault::Problem(refused(Why::Expired, &row)));
            }
            let state = match decision {
                Decision::Approve => State::Approved,
                Decision::Deny => State::Denied,
            };
            // The same again changes nothing.
            if row.state == state {
                return Ok(());
            }
            if row.state != State::Waiting {
                let state = row.state.as_str();
                let message = format!("approval {id} is decided already: {state}");
                return Err(Fault::Problem(Problem::bad_request(message)));
            }
            transaction.execute(
                "UPDATE approval_requests SET state = ?2, decided_at = ?3, decided_by = ?4 \
                 WHERE id = ?1",
                params![
                    Key(id),
                    state.as_str(),
                    micros(SystemTime::now()),
                    format!("{name} ({word})")
                ],
            )?;
            transaction.commit()?;
            Ok(())
        })
    }

    fn row(&self, id: Id) -> Result<Option<Row>> {
        self.with(|open| Ok(find(&open.connection, id)?))
    }

    fn list(&self, all: bool, of: Option<&str>) -> Result<Vec<ApprovalShown>> {
        if !self.file.exists() {
            return Ok(Vec::new());
        }
        self.with(|open| {
            let mut statement = open.connection.prepare(&format!(
                "SELECT {COLUMNS} FROM approval_requests WHERE (?1 OR (state = 'waiting' AND \
                 expires > ?2)) AND (?3 IS NULL OR caller = ?3) ORDER BY id DESC LIMIT ?4"
            ))?;
            let params = params![all, micros(SystemTime::now()), of, LISTED];
            let rows = statement.query_map(params, Row::read)?;
            let mut listed: Vec<ApprovalShown> = rows
                .map(|row| Ok(ApprovalShown::new(row?, &open.seal)))
                .collect::<rusqlite::Result<_>>()?;
            listed.reverse();
            Ok(listed)
        })
    }

    fn waiting(&self) -> Result<u64> {
        if !self.file.exists() {
            return Ok(0);
        }
        self.with(|open| {
            let count: i64 = open.connection.query_row(
                "SELECT count(*) FROM approval_requests WHERE state = 'waiting' AND expires > ?1",
                [micros(SystemTime::now())],
                |row| row.get(0),
            )?;
            Ok(u64::try_from(count).unwrap_or(0))
        })
    }

    fn show(&self, id: Id) -> Result<ApprovalShown> {
        if !self.file.exists() {
            return Err(unknown(&id.to_string()));
        }
        self.with(|open| {
            let row = find(&open.connection, id)?;
            let row = row.ok_or_else(|| Fault::Problem(unknown(&id.to_string())))?;
            Ok(ApprovalShown::new(row, &open.seal))
        })
    }

    /// With the file open; it is opened anew after it could not be used.
    fn with<T>(&self, work: impl FnOnce(&mut Open) -> Result<T, Fault>) -> Result<T> {
        let mut held = self.open.lock();
        let open = match &mut *held {
            Some(open) => open,
            none => none.insert(Open {
                connection: schema::open(&self.file)?,
                seal: Seal::beside(&self.file)?,
            }),
        };
        work(open).map_err(|fault| match fault {
            Fault::Problem(problem) => problem,
            Fault::Sqlite(error) => {
                *held = None;
                problem(&self.file, &error)
            }
        })
    }
}

impl Open {
    fn begin(&mut self) -> rusqlite::Result<(Transaction<'_>, &Seal)> {
        // A decision must not be forgotten, whatever happens next.
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        let behavior = TransactionBehavior::Immediate;
        Ok((self.connection.transaction_with_behavior(behavior)?, &self.seal))
    }
}

fn ticket(row: &Row, seal: &Seal, settings: &ApprovalSettings) -> Ticket {
    Ticket {
        id: row.id,
        token: seal.token(row.id),
        expires: row.expires(),
        tool: row.tool.clone(),
        effects: row.effects,
        arguments: row.arguments(seal),
        run: row.run,
        at_command_line: row.surface == "cli",
        by_caller: settings.by_caller,
    }
}
