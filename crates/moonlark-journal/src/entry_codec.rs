//! Entries as bytes, for the log (`entry_log.rs`), and back.
//!
//! Beside an entry goes what people are shown of it: the secrets that have to be taken
//! out are not known to whoever reads the log after a crash. Arguments are in it exactly
//! only where the database keeps them exactly.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use moonlark_core::content::ToolAnswer;
use moonlark_core::record_id::RecordId;
use moonlark_core::{Result, Value};
use moonlark_gateway::Caller;
use moonlark_gateway::journal::{
    CallBegan, CallEnded, JournalEntry, RedactionScopes, RunBegan, RunEnded, RunPaused,
};
use moonlark_gateway::run::{NewCallPolicy, RunFork};

use crate::journal_reader::run_records::{recorded_caller, recorded_outcome};
use crate::journal_rows::{
    duration_from_micros, duration_micros, effect_bits, effects_from_bits, unix_micros,
};
use crate::value_packing::{pack_answer, pack_value, unpack_answer, unpack_value};

const RUN_BEGAN: u8 = 1;
const CALL_BEGAN: u8 = 2;
const CALL_ENDED: u8 = 3;
const RUN_PAUSED: u8 = 4;
const RUN_WENT_ON: u8 = 5;
const RUN_ENDED: u8 = 6;
/// The beginning of a run that is a fork.
const FORK_BEGAN: u8 = 7;

/// Append `entry` and what people are `shown` of it to `bytes`.
pub(crate) fn encode_entry(
    entry: &JournalEntry,
    shown: Option<&str>,
    bytes: &mut Vec<u8>,
) -> Result<()> {
    let mut to = EntryEncoder(bytes);
    match entry {
        JournalEntry::RunBegan(began) => {
            to.put_kind(if began.fork.is_some() { FORK_BEGAN } else { RUN_BEGAN });
            to.put_id(began.run);
            to.put_some(began.call.as_ref(), |to, id| to.put_id(*id));
            to.put_caller(&began.caller);
            to.put_number(unix_micros(began.at));
            to.put_text(&began.script);
            to.put_some(began.timeout, |to, it| to.put_number(duration_micros(it)));
            to.put_bytes(&began.seed);
            to.put_number(i64::from(began.plan));
            to.put_some(began.follows.as_ref(), |to, id| to.put_id(*id));
            if let Some(fork) = &began.fork {
                to.put_id(fork.source);
                to.put_number(unix_micros(fork.clock));
                to.put_text(fork.new_calls.as_str());
            }
        }
        JournalEntry::CallBegan(began) => {
            to.put_kind(CALL_BEGAN);
            to.put_id(began.call);
            to.put_some(began.parent.as_ref(), |to, id| to.put_id(*id));
            to.put_some(began.run.as_ref(), |to, id| to.put_id(*id));
            to.put_some(began.place.as_deref(), EntryEncoder::put_text);
            to.put_number(unix_micros(began.at));
            to.put_text(&began.tool);
            to.put_text(&began.source);
            to.put_number(effect_bits(began.effects));
            to.put_caller(&began.caller);
            let exact = began.place.as_ref().map(|_| pack_value(&began.args)).transpose()?;
            to.put_some(exact.as_deref(), EntryEncoder::put_bytes);
        }
        JournalEntry::CallEnded(ended) => {
            to.put_kind(CALL_ENDED);
            to.put_id(ended.call);
            to.put_text(&ended.caller);
            to.put_number(duration_micros(ended.took));
            to.put_text(ended.outcome.as_str());
            to.put_some(ended.message.as_deref(), EntryEncoder::put_text);
            to.put_answer(ended.answer.as_ref())?;
            to.put_some(ended.order, |to, it| to.put_number(it.cast_signed()));
        }
        JournalEntry::RunPaused(paused) => {
            to.put_kind(RUN_PAUSED);
            to.put_id(paused.run);
            to.put_id(paused.approval);
            to.put_some(paused.place.as_deref(), EntryEncoder::put_text);
        }
        JournalEntry::RunWentOn(run) => {
            to.put_kind(RUN_WENT_ON);
            to.put_id(*run);
        }
        JournalEntry::RunEnded(ended) => {
            to.put_kind(RUN_ENDED);
            to.put_id(ended.run);
            to.put_number(duration_micros(ended.took));
            to.put_text(ended.outcome.as_str());
            to.put_some(ended.message.as_deref(), EntryEncoder::put_text);
            to.put_answer(ended.answer.as_ref())?;
        }
    }
    to.put_some(shown, EntryEncoder::put_text);
    Ok(())
}

/// The entry, and what people are shown of it; none if these are not the bytes of one.
pub(crate) fn decode_entry(bytes: &[u8]) -> Option<(JournalEntry, Option<String>)> {
    let mut from = EntryDecoder(bytes);
    let entry = match from.kind()? {
        kind @ (RUN_BEGAN | FORK_BEGAN) => JournalEntry::RunBegan(RunBegan {
            run: from.id()?,
            call: from.some(EntryDecoder::id)?,
            caller: from.caller()?,
            at: UNIX_EPOCH + duration_from_micros(from.number()?),
            script: from.text()?,
            timeout: from.some(EntryDecoder::number)?.map(duration_from_micros),
            seed: from.bytes()?.try_into().ok()?,
            plan: from.number()? != 0,
            follows: from.some(EntryDecoder::id)?,
            fork: if kind == FORK_BEGAN { Some(from.fork()?) } else { None },
            secrets: RedactionScopes::default(),
        }),
        CALL_BEGAN => JournalEntry::CallBegan(CallBegan {
            call: from.id()?,
            parent: from.some(EntryDecoder::id)?,
            run: from.some(EntryDecoder::id)?,
            place: from.some(EntryDecoder::text)?,
            at: UNIX_EPOCH + duration_from_micros(from.number()?),
            tool: from.text()?,
            source: from.text()?,
            effects: effects_from_bits(from.number()?),
            caller: from.caller()?,
            args: match from.some(EntryDecoder::bytes)? {
                Some(exact) => unpack_value(exact).ok()?,
                None => Value::Null,
            },
            secrets: RedactionScopes::default(),
        }),
        CALL_ENDED => JournalEntry::CallEnded(CallEnded {
            call: from.id()?,
            caller: Arc::from(from.text()?),
            took: duration_from_micros(from.number()?),
            outcome: recorded_outcome(&from.text()?),
            message: from.some(EntryDecoder::text)?,
            answer: from.answer()?,
            order: from.some(EntryDecoder::number)?.map(i64::cast_unsigned),
        }),
        RUN_PAUSED => JournalEntry::RunPaused(RunPaused {
            run: from.id()?,
            approval: from.id()?,
            place: from.some(EntryDecoder::text)?,
        }),
        RUN_WENT_ON => JournalEntry::RunWentOn(from.id()?),
        RUN_ENDED => JournalEntry::RunEnded(RunEnded {
            run: from.id()?,
            took: duration_from_micros(from.number()?),
            outcome: recorded_outcome(&from.text()?),
            message: from.some(EntryDecoder::text)?,
            answer: from.answer()?,
        }),
        _ => return None,
    };
    let shown = from.some(EntryDecoder::text)?;
    from.0.is_empty().then_some((entry, shown))
}

struct EntryEncoder<'a>(&'a mut Vec<u8>);

impl EntryEncoder<'_> {
    fn put_kind(&mut self, kind: u8) {
        self.0.push(kind);
    }

    fn put_id(&mut self, id: RecordId) {
        self.0.extend_from_slice(id.as_bytes());
    }

    fn put_number(&mut self, number: i64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_number(bytes.len() as i64);
        self.0.extend_from_slice(bytes);
    }

    fn put_text(&mut self, text: &str) {
        self.put_bytes(text.as_bytes());
    }

    fn put_some<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.0.push(u8::from(value.is_some()));
        if let Some(value) = value {
            put(self, value);
        }
    }

    fn put_caller(&mut self, caller: &Caller) {
        self.put_text(caller.surface);
        self.put_some(caller.name.as_deref(), Self::put_text);
        self.put_some(caller.client.as_deref(), Self::put_text);
    }

    fn put_answer(&mut self, answer: Option<&Result<ToolAnswer>>) -> Result<()> {
        let packed = answer.map(pack_answer).transpose()?;
        self.put_some(packed.as_deref(), Self::put_bytes);
        Ok(())
    }
}

struct EntryDecoder<'a>(&'a [u8]);

impl<'a> EntryDecoder<'a> {
    fn fork(&mut self) -> Option<RunFork> {
        let (source, clock) = (self.id()?, self.number()?);
        let clock = UNIX_EPOCH + duration_from_micros(clock);
        Some(RunFork { source, clock, new_calls: NewCallPolicy::from_word(&self.text()?)? })
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn kind(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn id(&mut self) -> Option<RecordId> {
        Some(RecordId::from_bytes(self.take(16)?.try_into().ok()?))
    }

    fn number(&mut self) -> Option<i64> {
        Some(i64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.take(length)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    /// What may be there; none if there is neither that nor nothing.
    fn some<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.kind()? {
            0 => Some(None),
            _ => Some(Some(read(self)?)),
        }
    }

    fn caller(&mut self) -> Option<Caller> {
        let surface = self.text()?;
        let name = self.some(Self::text)?;
        let client = self.some(Self::text)?;
        Some(Caller { client, ..recorded_caller(&surface, name.as_deref()) })
    }

    fn answer(&mut self) -> Option<Option<Result<ToolAnswer>>> {
        let packed = self.some(Self::bytes)?;
        packed.map(unpack_answer).transpose().ok()
    }
}
