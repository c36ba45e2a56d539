//! The requests in the file: found for a call, asked anew, changed.

use std::time::SystemTime;

use moonlark_core::record_id::RecordId;
use moonlark_core::secret::SecretText;
use moonlark_core::value::Object;
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_gateway::approval::{ApprovalRequest, ApprovalState, show_arguments};
use moonlark_gateway::journal::redaction;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::ApprovalSettings;
use super::approval_problems::{unknown_approval_problem, wrong_token_problem};
use super::approval_row::{APPROVAL_COLUMNS, ApprovalRow};
use crate::journal_rows::{SqlId, duration_micros, effect_bits, unix_micros};
use crate::journal_schema::JournalError;
use crate::sealing::{JournalSeal, SealedField};
use crate::value_packing::pack_value;

/// Requests of one caller that may wait at once: nobody decides on more.
const MAX_WAITING_PER_CALLER: i64 = 100;
/// Those of all callers.
const MAX_WAITING: i64 = 10_000;

/// What is on record of this very call, and the token that led to it.
pub(super) fn find_matching_request(
    connection: &Connection,
    seal: &JournalSeal,
    request: &ApprovalRequest,
    digest: &[u8],
) -> Result<(Option<ApprovalRow>, Option<SecretText>), JournalError> {
    let mut other = None;
    for token in &request.tokens {
        let row = match seal.approval_from_token(token.expose_secret()) {
            Some(id) => find_approval(connection, id)?,
            None => None,
        };
        match row {
            Some(row) if row.is_for_call(request, digest) => {
                return Ok((Some(row), Some(token.clone())));
            }
            row => other = Some(row),
        }
    }
    if let Some(other) = other.filter(|_| request.strict) {
        return Err(wrong_token_problem(other.as_ref(), request, digest).into());
    }
    let mut statement = connection.prepare(&format!(
        "SELECT {APPROVAL_COLUMNS} FROM approval_requests WHERE digest = ?1 ORDER BY id DESC"
    ))?;
    let rows = statement.query_map(params![digest], ApprovalRow::from_sql_row)?;
    for row in rows {
        let row = row?;
        if row.is_for_call(request, digest) {
            return Ok((Some(row), None));
        }
    }
    Ok((None, None))
}

pub(super) fn find_approval(
    connection: &Connection,
    id: RecordId,
) -> rusqlite::Result<Option<ApprovalRow>> {
    let sql = format!("SELECT {APPROVAL_COLUMNS} FROM approval_requests WHERE id = ?1");
    connection.query_row(&sql, params![SqlId(id)], ApprovalRow::from_sql_row).optional()
}

/// The same for one that must be there.
pub(super) fn require_approval(
    connection: &Connection,
    id: RecordId,
) -> Result<ApprovalRow, JournalError> {
    let found = find_approval(connection, id)?;
    Ok(found.ok_or_else(|| unknown_approval_problem(&id.to_string()))?)
}

pub(super) fn insert_request(
    transaction: &Transaction<'_>,
    seal: &JournalSeal,
    request: &ApprovalRequest,
    digest: &[u8],
    settings: &ApprovalSettings,
) -> Result<ApprovalRow, JournalError> {
    let now = SystemTime::now();
    let (all, own): (i64, i64) = transaction.query_row(
        "SELECT count(*), count(*) FILTER (WHERE caller = ?2) FROM approval_requests \
         WHERE state = 'waiting' AND expires > ?1",
        params![unix_micros(now), request.caller.name()],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    if own >= MAX_WAITING_PER_CALLER {
        return Err(too_many_waiting(format!(
            "{MAX_WAITING_PER_CALLER} calls of this caller wait for a decision, which is the limit"
        )));
    }
    if all >= MAX_WAITING {
        return Err(too_many_waiting(format!(
            "{MAX_WAITING} calls wait for a decision, which is the limit"
        )));
    }
    let id = RecordId::new();
    let caller = &request.caller;
    let whole = show_arguments(&request.args, &request.secrets);
    transaction.execute(
        "INSERT INTO approval_requests (id, at, expires, state, tool, source, effects, surface, \
         caller, client, args, sealed, digest, run, place, left_out, shown) \
         VALUES (?1, ?2, ?3, 'waiting', ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        params![
            SqlId(id),
            unix_micros(now),
            unix_micros(now).saturating_add(duration_micros(settings.expiry)),
            request.tool,
            request.source,
            effect_bits(request.effects),
            caller.surface,
            caller.name(),
            caller.client,
            redaction::redact_arguments(&request.args, &request.secrets),
            seal.seal_value(SealedField::Approval, id, pack_value(&request.args)?)?,
            digest,
            request.run.map(SqlId),
            request.place,
            whole.left_out,
            seal.seal_value(SealedField::ApprovalShown, id, whole.text.into_bytes())?,
        ],
    )?;
    require_approval(transaction, id)
}

fn too_many_waiting(message: String) -> JournalError {
    Problem::new(ProblemCode::RateLimited, message)
        .with_hint("decide on pending approvals, or wait until they expire")
        .with_retry_after(60)
        .into()
}

pub(super) fn set_approval_state(
    transaction: &Transaction<'_>,
    id: RecordId,
    state: ApprovalState,
) -> rusqlite::Result<()> {
    transaction.execute(
        "UPDATE approval_requests SET state = ?2 WHERE id = ?1",
        params![SqlId(id), state.as_str()],
    )?;
    Ok(())
}

/// The same arguments in another order are the same.
pub(super) fn sort_object_keys(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(sort_object_keys).collect()),
        Value::Object(fields) => {
            let mut pairs: Vec<(&String, &Value)> = fields.iter().collect();
            pairs.sort_by_key(|(key, _)| *key);
            let sorted =
                pairs.into_iter().map(|(key, value)| (key.clone(), sort_object_keys(value)));
            Value::Object(sorted.collect::<Object>())
        }
        other => other.clone(),
    }
}
