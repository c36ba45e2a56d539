//! The requests in the file: found for a call, asked anew, changed.

use std::time::SystemTime;

use moonlark_core::approval::{Request, ShownArguments, State};
use moonlark_core::journal::{Id, shown};
use moonlark_core::value::Object;
use moonlark_core::{Code, Problem, Result, Value};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::ApprovalSettings;
use super::row::{COLUMNS, Row};
use super::words::{another, unknown};
use crate::packed::pack;
use crate::rows::{Key, bits, lasted, micros};
use crate::sealing::{Seal, Spot};

/// Requests of one caller that may wait at once: nobody decides on more.
const MAX_WAITING_PER_CALLER: i64 = 100;
/// Those of all callers.
const MAX_WAITING: i64 = 10_000;

/// Why something was not done: the file's fault, or what is in it.
pub(super) enum Fault {
    Sqlite(rusqlite::Error),
    Problem(Problem),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Fault::Sqlite(error)
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        Fault::Problem(problem)
    }
}

/// What is on record of this very call, and the token that led to it.
pub(super) fn look_up(
    connection: &Connection,
    seal: &Seal,
    request: &Request,
    digest: &[u8],
) -> Result<(Option<Row>, Option<String>), Fault> {
    let mut other = None;
    for token in &request.tokens {
        let row = match seal.approval_of(token) {
            Some(id) => find(connection, id)?,
            None => None,
        };
        match row {
            Some(row) if row.is_of(request, digest) => return Ok((Some(row), Some(token.clone()))),
            row => other = Some(row),
        }
    }
    if let Some(other) = other.filter(|_| request.strict) {
        return Err(Fault::Problem(another(other.as_ref(), request, digest)));
    }
    let mut statement = connection.prepare(&format!(
        "SELECT {COLUMNS} FROM approval_requests WHERE digest = ?1 ORDER BY id DESC"
    ))?;
    let rows = statement.query_map(params![digest], Row::read)?;
    for row in rows {
        let row = row?;
        if row.is_of(request, digest) {
            return Ok((Some(row), None));
        }
    }
    Ok((None, None))
}

pub(super) fn find(connection: &Connection, id: Id) -> rusqlite::Result<Option<Row>> {
    let sql = format!("SELECT {COLUMNS} FROM approval_requests WHERE id = ?1");
    connection.query_row(&sql, params![Key(id)], Row::read).optional()
}

pub(super) fn ask(
    transaction: &Transaction<'_>,
    seal: &Seal,
    request: &Request,
    digest: &[u8],
    settings: &ApprovalSettings,
) -> Result<Row, Fault> {
    let now = SystemTime::now();
    let (all, own): (i64, i64) = transaction.query_row(
        "SELECT count(*), count(*) FILTER (WHERE caller = ?2) FROM approval_requests \
         WHERE state = 'waiting' AND expires > ?1",
        params![micros(now), request.caller.name()],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    if own >= MAX_WAITING_PER_CALLER {
        return Err(too_many(format!(
            "{MAX_WAITING_PER_CALLER} calls of this caller wait for a decision, which is the limit"
        )));
    }
    if all >= MAX_WAITING {
        return Err(too_many(format!(
            "{MAX_WAITING} calls wait for a decision, which is the limit"
        )));
    }
    let id = Id::new();
    let caller = &request.caller;
    let whole = ShownArguments::new(&request.args, &request.secrets);
    transaction.execute(
        "INSERT INTO approval_requests (id, at, expires, state, tool, source, effects, surface, \
         caller, client, args, sealed, digest, run, place, left_out, shown) \
         VALUES (?1, ?2, ?3, 'waiting', ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        params![
            Key(id),
            micros(now),
            micros(now).saturating_add(lasted(settings.expiry)),
            request.tool,
            request.source,
            bits(request.effects),
            caller.surface,
            caller.name(),
            caller.client,
            shown::arguments(&request.args, &request.secrets),
            seal.seal(Spot::Approval, id, pack(&request.args)?)?,
            digest,
            request.run.map(Key),
            request.place,
            whole.left_out,
            seal.seal(Spot::ApprovalShown, id, whole.text.into_bytes())?,
        ],
    )?;
    find(transaction, id)?.ok_or_else(|| Fault::Problem(unknown(&id.to_string())))
}

fn too_many(message: String) -> Fault {
    let mut problem = Problem::new(Code::RateLimited, message)
        .hint("they make room when the operator has decided on some of them, or in time");
    problem.retry_after = Some(60);
    Fault::Problem(problem)
}

pub(super) fn set_state(
    transaction: &Transaction<'_>,
    id: Id,
    state: State,
) -> rusqlite::Result<()> {
    transaction.execute(
        "UPDATE approval_requests SET state = ?2 WHERE id = ?1",
        params![Key(id), state.as_str()],
    )?;
    Ok(())
}

/// The same arguments in another order are the same.
pub(super) fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        Value::Object(fields) => {
            let mut pairs: Vec<(&String, &Value)> = fields.iter().collect();
            pairs.sort_by_key(|(key, _)| *key);
            let sorted = pairs.into_iter().map(|(key, value)| (key.clone(), sorted(value)));
            Value::Object(sorted.collect::<Object>())
        }
        other => other.clone(),
    }
}
