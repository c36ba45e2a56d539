//! The approval store: requests, decisions, and that each is used once.
//!
//! Every change is one transaction on the same file as the journal's, so that
//! processes agree: the server that asks, the command line that decides, and
//! whoever comes after a restart.

mod approval_problems;
mod approval_requests;
mod approval_row;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use moonlark_core::approval_ticket::ApprovalTicket;
use moonlark_core::record_id::RecordId;
use moonlark_core::tool::BoxFuture;
use moonlark_core::{Problem, Result, Value};
use moonlark_gateway::approval::{
    ApprovalDecider, ApprovalDecision, ApprovalLedger, ApprovalRecord, ApprovalRefusal,
    ApprovalRequest, ApprovalState, ApprovalStatus, ApprovalVerdict, decide_next_step,
};
use parking_lot::Mutex;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use serde_json::{Value as Json, json};
use tokio::sync::Notify;

use approval_problems::{refused_problem, unknown_approval_problem};
use approval_requests::{
    find_approval, find_matching_request, insert_request, require_approval, set_approval_state,
    sort_object_keys,
};
pub use approval_row::ApprovalView;
use approval_row::{APPROVAL_COLUMNS, ApprovalRow};

use crate::id_search::{ID_HAS_PART, MAX_CANDIDATES, ambiguous_id_problem, hex_digits};
use crate::journal::run_blocking;
use crate::journal_rows::{SqlId, unix_micros};
use crate::journal_schema::{JOURNAL_DATABASE, JournalError};
use crate::sealing::{JournalSeal, SealedField};
use crate::value_packing::{pack_value, unpack_value};

/// How often somebody who waits looks what other processes decided.
const APPROVAL_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Requests that are listed.
const MAX_LISTED_APPROVALS: i64 = 500;

/// Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct ApprovalStore(Arc<ApprovalStoreInner>);

struct ApprovalStoreInner {
    file: PathBuf,
    settings: Mutex<ApprovalSettings>,
    open: Mutex<Option<ApprovalDatabase>>,
    /// Something was decided in this process.
    decided: Notify,
}

struct ApprovalDatabase {
    connection: Connection,
    seal: JournalSeal,
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
        ApprovalStore(Arc::new(ApprovalStoreInner {
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
    pub fn list_approvals(&self, all: bool) -> Result<Vec<ApprovalView>> {
        self.0.list_approvals(all, None)
    }

    /// One, with all that is known of it.
    pub fn show_approval(&self, id: RecordId) -> Result<ApprovalView> {
        self.0.show_approval(id)
    }

    /// The arguments exactly as the tool would get them.
    pub fn exact_arguments(&self, id: RecordId) -> Result<Value> {
        self.0.with_database(|open| {
            let row = require_approval(&open.connection, id)?;
            Ok(unpack_value(&open.seal.open_value(SealedField::Approval, id, row.sealed)?)?)
        })
    }

    /// The request that `text` names: its id, or the beginning or end of one. Where several
    /// fit, the only one that waits for a decision is meant.
    pub fn find_id(&self, text: &str) -> Result<RecordId> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        let digits = hex_digits(text).filter(|_| self.0.file.exists());
        let digits = digits.ok_or_else(|| unknown_approval_problem(text))?;
        let found: Vec<(RecordId, bool)> = self.0.with_database(|open| {
            // Those that wait come first.
            let mut statement = open.connection.prepare(&format!(
                "SELECT id, state = 'waiting' AND expires > ?2 AS waits FROM approval_requests \
                 WHERE {ID_HAS_PART} ORDER BY waits DESC, id DESC LIMIT {MAX_CANDIDATES}"
            ))?;
            let params = params![digits, unix_micros(SystemTime::now())];
            let found = statement.query_map(params, |row| {
                Ok((RecordId::from_bytes(row.get::<_, [u8; 16]>(0)?), row.get(1)?))
            })?;
            Ok(found.collect::<rusqlite::Result<_>>()?)
        })?;
        match found.as_slice() {
            [] => Err(unknown_approval_problem(text)),
            [(one, _)] | [(one, true), (_, false), ..] => Ok(*one),
            several => {
                let ids: Vec<RecordId> = several.iter().map(|(id, _)| *id).collect();
                Err(ambiguous_id_problem("approvals", text, &ids))
            }
        }
    }

    /// Decide, at once.
    pub fn decide_now(
        &self,
        id: RecordId,
        decision: ApprovalDecision,
        by: ApprovalDecider,
    ) -> Result<()> {
        let decided = self.0.record_decision(id, decision, &by);
        self.0.decided.notify_waiters();
        decided
    }

    fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ApprovalStoreInner) -> Result<T> + Send + 'static,
    ) -> BoxFuture<Result<T>> {
        let inner = self.0.clone();
        Box::pin(async move {
            run_blocking("an approval could not be looked up", move || work(&inner)).await
        })
    }
}

impl ApprovalLedger for ApprovalStore {
    fn claim_approval(&self, request: ApprovalRequest) -> BoxFuture<Result<ApprovalStatus>> {
        self.run_blocking(move |inner| inner.check_request(&request))
    }

    fn record_decision(
        &self,
        id: RecordId,
        decision: ApprovalDecision,
        by: ApprovalDecider,
    ) -> BoxFuture<Result<()>> {
        let store = self.clone();
        self.run_blocking(move |_| store.decide_now(id, decision, by))
    }

    fn wait_for_decision(&self, id: RecordId) -> BoxFuture<Result<Option<ApprovalDecision>>> {
        let store = self.clone();
        Box::pin(async move {
            loop {
                let here = store.0.decided.notified();
                let find =
                    move |open: &mut ApprovalDatabase| Ok(find_approval(&open.connection, id)?);
                let row = store.run_blocking(move |inner| inner.with_database(find)).await?;
                let Some(row) = row else { return Ok(None) };
                match (row.state, row.is_expired()) {
                    (ApprovalState::Denied, _) => return Ok(Some(ApprovalDecision::Deny)),
                    (ApprovalState::Approved | ApprovalState::Used, false) => {
                        return Ok(Some(ApprovalDecision::Approve));
                    }
                    (_, true) => return Ok(None),
                    (ApprovalState::Waiting, false) => {}
                }
                let _ = tokio::time::timeout(APPROVAL_POLL_INTERVAL, here).await;
            }
        })
    }

    fn count_pending(&self) -> BoxFuture<Result<u64>> {
        self.run_blocking(ApprovalStoreInner::count_waiting)
    }

    fn describe_requests(
        &self,
        id: Option<RecordId>,
        of: Option<String>,
    ) -> BoxFuture<Result<Json>> {
        self.run_blocking(move |inner| match id {
            None => Ok(json!({ "approvals": inner.list_approvals(false, of.as_deref())? })),
            Some(id) => {
                let shown = inner.show_approval(id)?;
                // What is another's does not exist.
                if of.is_some_and(|of| shown.caller.name.as_deref() != Some(&of)) {
                    Err(unknown_approval_problem(&id.to_string()))
                } else {
                    Ok(json!({ "approval": shown }))
                }
            }
        })
    }
}

impl ApprovalStoreInner {
    fn check_request(&self, request: &ApprovalRequest) -> Result<ApprovalStatus> {
        let settings = *self.settings.lock();
        self.with_database(|open| {
            let packed = pack_value(&sort_object_keys(&request.args))?;
            let digest = open.seal.call_digest(&request.tool, &packed);
            let (transaction, seal) = open.begin_durable()?;
            let (known, token) = find_matching_request(&transaction, seal, request, &digest)?;
            let standing = known
                .as_ref()
                .map(|row| ApprovalRecord { state: row.state, expired: row.is_expired() });
            let all_shown = |row: &ApprovalRow| !row.shown_arguments(seal).left_out;
            let by_caller = settings.by_caller && known.as_ref().is_none_or(all_shown);
            let standing = match (decide_next_step(standing, token.is_some(), by_caller), known) {
                (ApprovalVerdict::Make, Some(row)) => {
                    set_approval_state(&transaction, row.id, ApprovalState::Used)?;
                    ApprovalStatus::Granted { token }
                }
                (ApprovalVerdict::Wait, Some(row)) => {
                    ApprovalStatus::Waiting(build_ticket(&row, seal, &settings))
                }
                (ApprovalVerdict::Refuse(why), Some(row)) => {
                    return Err(refused_problem(why, &row).into());
                }
                _ => {
                    let row = insert_request(&transaction, seal, request, &digest, &settings)?;
                    ApprovalStatus::Waiting(build_ticket(&row, seal, &settings))
                }
            };
            transaction.commit()?;
            Ok(standing)
        })
    }

    fn record_decision(
        &self,
        id: RecordId,
        decision: ApprovalDecision,
        by: &ApprovalDecider,
    ) -> Result<()> {
        let by_caller = self.settings.lock().by_caller;
        self.with_database(|open| {
            let (transaction, seal) = open.begin_durable()?;
            let row = require_approval(&transaction, id)?;
            let (word, name) = match by {
                ApprovalDecider::Operator(name) => ("operator", name),
                ApprovalDecider::Caller(name) => ("caller", name),
                ApprovalDecider::Holder { token, name } if seal.approval_from_token(token.expose_secret()) == Some(id) => {
                    ("caller", name)
                }
                ApprovalDecider::Holder { .. } => {
                    let message = format!("the token is not that of approval {id}");
                    return Err(Problem::forbidden(message).into());
                }
            };
            if word == "caller" && !by_caller {
                let message = "only the operator decides on calls here";
                let hint = format!("ask the operator of this server to decide on approval {id}");
                return Err(Problem::forbidden(message).with_hint(hint).into());
            }
            if word == "caller" && row.shown_arguments(seal).left_out {
                let message = "the arguments were not shown whole, so they are not decided on here";
                return Err(Problem::forbidden(message).with_hint(format!(
                    "ask the operator of this server to look at approval {id} with `moonlark approvals show`"
                )).into());
            }
            if row.is_expired() {
                return Err(refused_problem(ApprovalRefusal::Expired, &row).into());
            }
            let state = match decision {
                ApprovalDecision::Approve => ApprovalState::Approved,
                ApprovalDecision::Deny => ApprovalState::Denied,
            };
            // The same again changes nothing.
            if row.state == state {
                return Ok(());
            }
            if row.state != ApprovalState::Waiting {
                let state = row.state.as_str();
                let message = format!("approval {id} is decided already: {state}");
                return Err(Problem::bad_request(message).into());
            }
            transaction.execute(
                "UPDATE approval_requests SET state = ?2, decided_at = ?3, decided_by = ?4 \
                 WHERE id = ?1",
                params![
                    SqlId(id),
                    state.as_str(),
                    unix_micros(SystemTime::now()),
                    format!("{name} ({word})")
                ],
            )?;
            transaction.commit()?;
            Ok(())
        })
    }

    fn list_approvals(&self, all: bool, of: Option<&str>) -> Result<Vec<ApprovalView>> {
        if !self.file.exists() {
            return Ok(Vec::new());
        }
        self.with_database(|open| {
            let mut statement = open.connection.prepare(&format!(
                "SELECT {APPROVAL_COLUMNS} FROM approval_requests WHERE (?1 OR (state = 'waiting' AND \
                 expires > ?2)) AND (?3 IS NULL OR caller = ?3) ORDER BY id DESC LIMIT ?4"
            ))?;
            let params = params![all, unix_micros(SystemTime::now()), of, MAX_LISTED_APPROVALS];
            let rows = statement.query_map(params, ApprovalRow::from_sql_row)?;
            let mut listed: Vec<ApprovalView> = rows
                .map(|row| Ok(ApprovalView::new(row?, &open.seal)))
                .collect::<rusqlite::Result<_>>()?;
            listed.reverse();
            Ok(listed)
        })
    }

    fn count_waiting(&self) -> Result<u64> {
        if !self.file.exists() {
            return Ok(0);
        }
        self.with_database(|open| {
            let count: i64 = open.connection.query_row(
                "SELECT count(*) FROM approval_requests WHERE state = 'waiting' AND expires > ?1",
                [unix_micros(SystemTime::now())],
                |row| row.get(0),
            )?;
            Ok(u64::try_from(count).unwrap_or(0))
        })
    }

    fn show_approval(&self, id: RecordId) -> Result<ApprovalView> {
        if !self.file.exists() {
            return Err(unknown_approval_problem(&id.to_string()));
        }
        self.with_database(|open| {
            Ok(ApprovalView::new(require_approval(&open.connection, id)?, &open.seal))
        })
    }

    /// With the file open; it is opened anew after it could not be used.
    fn with_database<T>(
        &self,
        work: impl FnOnce(&mut ApprovalDatabase) -> Result<T, JournalError>,
    ) -> Result<T> {
        let mut held = self.open.lock();
        let open = match &mut *held {
            Some(open) => open,
            none => none.insert(ApprovalDatabase {
                connection: JOURNAL_DATABASE.open_to_write(&self.file)?,
                seal: JournalSeal::load_beside(&self.file)?,
            }),
        };
        work(open).map_err(|fault| {
            if matches!(fault, JournalError::Sqlite(_)) {
                *held = None;
            }
            fault.into_problem(&self.file)
        })
    }
}

impl ApprovalDatabase {
    fn begin_durable(&mut self) -> rusqlite::Result<(Transaction<'_>, &JournalSeal)> {
        // A decision must not be forgotten, whatever happens next.
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        let behavior = TransactionBehavior::Immediate;
        Ok((self.connection.transaction_with_behavior(behavior)?, &self.seal))
    }
}

fn build_ticket(
    row: &ApprovalRow,
    seal: &JournalSeal,
    settings: &ApprovalSettings,
) -> ApprovalTicket {
    ApprovalTicket {
        id: row.id,
        token: seal.approval_token(row.id).into(),
        expires: row.expires_at(),
        tool: row.tool.clone(),
        effects: row.effects,
        arguments: row.shown_arguments(seal),
        run: row.run,
        at_command_line: row.surface == "cli",
        by_caller: settings.by_caller,
    }
}
