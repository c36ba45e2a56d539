//! One approval request as a row, and as it is shown.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use moonlark_core::approval_ticket::{ARGUMENTS_LEFT_OUT_NOTICE, ShownArguments};
use moonlark_core::record_id::RecordId;
use moonlark_core::tool::{CallEffects, EffectKind};
use moonlark_gateway::approval::{ApprovalRequest, ApprovalState};
use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use crate::journal_reader::{CallerView, as_text, as_text_if_any, read_id, read_id_if_any};
use crate::journal_rows::{duration_from_micros, effects_from_bits, unix_micros};
use crate::sealing::{JournalSeal, SealedField};

pub(super) const APPROVAL_COLUMNS: &str = "id, at, expires, state, tool, source, effects, surface, caller, \
    client, args, sealed, digest, run, place, decided_at, decided_by, left_out, shown";

pub(super) struct ApprovalRow {
    pub(super) id: RecordId,
    at: i64,
    expires: i64,
    pub(super) state: ApprovalState,
    pub(super) tool: String,
    source: String,
    pub(super) effects: CallEffects,
    pub(super) surface: String,
    caller: String,
    client: Option<String>,
    args: String,
    pub(super) sealed: Vec<u8>,
    pub(super) digest: Vec<u8>,
    pub(super) run: Option<RecordId>,
    place: Option<String>,
    decided_at: Option<i64>,
    pub(super) decided_by: Option<String>,
    /// Whether what is shown is less than there is.
    pub(super) left_out: bool,
    /// The arguments as whoever decides is shown them, sealed: they may hold what is
    /// secret by its name.
    shown: Option<Vec<u8>>,
}

impl ApprovalRow {
    pub(super) fn from_sql_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<ApprovalRow> {
        let word: String = row.get(3)?;
        let state = ApprovalState::ALL_STATES.into_iter().find(|state| state.as_str() == word);
        Ok(ApprovalRow {
            id: read_id(row, 0)?,
            at: row.get(1)?,
            expires: row.get(2)?,
            // What is not known was not approved.
            state: state.unwrap_or(ApprovalState::Denied),
            tool: row.get(4)?,
            source: row.get(5)?,
            effects: effects_from_bits(row.get(6)?),
            surface: row.get(7)?,
            caller: row.get(8)?,
            client: row.get(9)?,
            args: row.get(10)?,
            sealed: row.get(11)?,
            digest: row.get(12)?,
            run: read_id_if_any(row, 13)?,
            place: row.get(14)?,
            decided_at: row.get(15)?,
            decided_by: row.get(16)?,
            left_out: row.get(17)?,
            shown: row.get(18)?,
        })
    }

    pub(super) fn expires_at(&self) -> SystemTime {
        UNIX_EPOCH + duration_from_micros(self.expires)
    }

    /// The arguments as whoever decides is shown them. What cannot be opened is not
    /// all there is.
    pub(super) fn shown_arguments(&self, seal: &JournalSeal) -> ShownArguments {
        let opened = self.shown.clone().and_then(|shown| {
            let text = seal.open_value(SealedField::ApprovalShown, self.id, shown).ok()?;
            String::from_utf8(text).ok()
        });
        match opened {
            Some(text) => ShownArguments { text, left_out: self.left_out },
            None => ShownArguments { text: self.args.clone(), left_out: true },
        }
    }

    pub(super) fn is_expired(&self) -> bool {
        unix_micros(SystemTime::now()) >= self.expires
    }

    /// Whether it is about this very call. A run that is resumed by somebody
    /// else is the same run.
    pub(super) fn is_for_call(&self, request: &ApprovalRequest, digest: &[u8]) -> bool {
        let caller = &request.caller;
        let same_caller = self.caller == caller.name() && self.surface == caller.surface;
        self.digest == digest
            && self.run == request.run
            && self.place == request.place
            && (same_caller || self.run.is_some())
    }
}

/// A request, for people.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApprovalView {
    #[serde(serialize_with = "as_text")]
    pub id: RecordId,
    pub at: Timestamp,
    pub expires_at: Timestamp,
    /// `waiting`, `approved`, `denied`, `used` or `expired`.
    pub state: &'static str,
    pub tool: String,
    pub source: String,
    pub effects: Vec<&'static str>,
    pub caller: CallerView,
    /// What is said if the arguments below are not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<&'static str>,
    /// Without secrets; shortened where they are long.
    #[serde(serialize_with = "as_json")]
    pub arguments: String,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text_if_any")]
    pub run: Option<RecordId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
}

impl ApprovalView {
    pub(super) fn new(row: ApprovalRow, seal: &JournalSeal) -> Self {
        let arguments = row.shown_arguments(seal);
        let expired = row.is_expired()
            && matches!(row.state, ApprovalState::Waiting | ApprovalState::Approved);
        let time = |micros| Timestamp::from_microsecond(micros).unwrap_or_default();
        ApprovalView {
            id: row.id,
            at: time(row.at),
            expires_at: time(row.expires),
            state: if expired { "expired" } else { row.state.as_str() },
            effects: EffectKind::all_for_effects(row.effects).map(EffectKind::as_str).collect(),
            caller: CallerView { surface: row.surface, name: Some(row.caller), client: row.client },
            tool: row.tool,
            source: row.source,
            left_out: arguments.left_out.then_some(ARGUMENTS_LEFT_OUT_NOTICE),
            arguments: arguments.text,
            run: row.run,
            place: row.place,
            decided_at: row.decided_at.map(time),
            decided_by: row.decided_by,
        }
    }
}

fn as_json<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    match serde_json::from_str::<Json>(text) {
        Ok(json) => json.serialize(serializer),
        Err(_) => serializer.serialize_str(text),
    }
}
