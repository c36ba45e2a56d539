//! The one writer of a sync: batches become commits.

use std::sync::atomic::{AtomicBool, Ordering};

use moonlark_core::{Code, Problem, Result, Value};
use rusqlite::{Connection, InterruptHandle, params};
use tokio::sync::mpsc;

use super::prepare::{Prepared, Step};
use crate::document::id_of;
use crate::index::{Bits, Draft, Posting, Segments, model_named, settle, tidy_up};
use crate::item::Scanned;
use crate::knowledge::{Inner, recipe};
use crate::store::{self, Attempt, Explain, Known, Row, Source, SourceLock};
use crate::summary::{Advance, Progress, SkippedItem, Summary, SyncOptions};

/// Documents removed in one commit.
const REMOVED_AT_ONCE: usize = 2_000;
/// Fields of metadata that filters can ask for, and bytes of one.
const FIELDS: usize = 100;
const FIELD: usize = 500;

pub(super) enum Message {
    /// With why its chunks have no vectors.
    Batch(Vec<Step>, Option<Problem>),
    /// The scan ended well.
    End(Scanned),
}

pub(super) struct Writer {
    connection: Connection,
    file: std::path::PathBuf,
    /// The model that makes vectors.
    model: Option<String>,
    source: Source,
    _lock: SourceLock,
    segments: Segments,
    /// Documents and skips that this scan has named, by their numbers.
    seen: Seen,
    seen_skips: Seen,
    summary: Summary,
    advance: Advance,
    progress: Progress,
}

impl Writer {
    /// Take the source for this sync; gives what its last scan left as well.
    pub(super) fn begin(
        knowledge: &Inner,
        name: &str,
        kind: &str,
        options: &SyncOptions,
    ) -> Result<(Writer, Value)> {
        let store = &knowledge.store;
        let file = store.file().to_owned();
        let mut connection = store.writer()?;
        let lock = SourceLock::take(&file, name)?;
        let recipe = recipe(&knowledge.settings);
        let begun = |connection: &mut Connection| -> Attempt<_> {
            let transaction = connection.transaction()?;
            if store::made_by(&transaction)? != recipe {
                store::set_made_by(&transaction, &recipe)?;
            }
            let begun = store::source_named(&transaction, name, kind)?;
            let known = store::count_documents(&transaction, begun.0.source)?;
            transaction.commit()?;
            Ok((begun, known))
        };
        let ((source, state), known) = begun(&mut connection).explain(&file)?;
        let state = match state.filter(|_| !options.full) {
            Some(state) => Value::parse_json(state.as_bytes())?,
            None => Value::Null,
        };
        let advance = Advance { expected: (known > 0).then_some(known), ..Advance::default() };
        let writer = Writer {
            connection,
            file,
            model: knowledge.settings.embedder.name(),
            source,
            _lock: lock,
            segments: Segments::default(),
            seen: Seen::default(),
            seen_skips: Seen::default(),
            summary: Summary::default(),
            advance,
            progress: options.progress.clone(),
        };
        Ok((writer, state))
    }

    pub(super) fn source(&self) -> i64 {
        self.source.source
    }

    pub(super) fn interrupt(&self) -> InterruptHandle {
        self.connection.get_interrupt_handle()
    }

    pub(super) fn embedding(&mut self, problem: Option<Problem>) {
        self.summary.embedding = self.summary.embedding.take().or(problem);
    }

    /// Commit what comes in until the scan ends. Without an end what was
    /// committed stays, and that is all.
    pub(super) fn run(
        mut self,
        mut inbox: mpsc::Receiver<Message>,
        stopped: &AtomicBool,
    ) -> Result<Summary> {
        let file = self.file.clone();
        while let Some(message) = inbox.blocking_recv() {
            if stopped.load(Ordering::Relaxed) {
                break;
            }
            match message {
                Message::Batch(steps, problem) => {
                    self.embedding(problem);
                    self.batch(steps).explain(&file)?;
                }
                Message::End(scanned) => {
                    self.end(&scanned).explain(&file)?;
                    return Ok(self.summary);
                }
            }
        }
        Err(Problem::new(Code::Cancelled, "the sync was given up"))
    }

    fn batch(&mut self, steps: Vec<Step>) -> Attempt<()> {
        let transaction = self.connection.unchecked_transaction()?;
        let mut batch = Batch {
            connection: &transaction,
            source: &self.source,
            segments: &mut self.segments,
            seen: &mut self.seen,
            seen_skips: &mut self.seen_skips,
            summary: &mut self.summary,
            next: store::next_chunk(&transaction)?,
            draft: Draft::new(),
            width: None,
            found_anew: false,
        };
        for step in steps {
            self.advance.done += 1;
            batch.step(step)?;
            self.advance.chunks = batch.summary.chunks;
            self.advance.bytes = batch.summary.bytes;
            self.advance.failed = batch.summary.failed.count;
            (self.progress)(self.advance);
        }
        batch.finish(self.model.as_deref())?;
        transaction.commit()?;
        self.advance.committed = self.advance.done;
        (self.progress)(self.advance);
        self.merge(tidy_up)
    }

    /// Merge until nothing is left to merge, each time in a commit of its own.
    fn merge(&mut self, once: fn(&Connection) -> Attempt<bool>) -> Attempt<()> {
        loop {
            let transaction = self.connection.unchecked_transaction()?;
            if !once(&transaction)? {
                return Ok(());
            }
            store::touch(&transaction)?;
            transaction.commit()?;
            self.segments.clear();
        }
    }

    fn end(&mut self, scanned: &Scanned) -> Attempt<()> {
        if scanned.complete {
            self.remove_unseen()?;
        }
        self.merge(settle)?;
        // A cursor does not go past what is to be tried again.
        let state = (self.summary.failed.count == 0).then_some(&scanned.state);
        let transaction = self.connection.unchecked_transaction()?;
        store::ended_well(&transaction, &self.source, state)?;
        transaction.commit()?;
        store::give_back(&self.connection)?;
        Ok(())
    }

    fn remove_unseen(&mut self) -> Attempt<()> {
        let source = self.source.source;
        let mut gone = store::documents_of(&self.connection, source)?;
        gone.retain(|document| !self.seen.has(*document));
        for some in gone.chunks(REMOVED_AT_ONCE) {
            let transaction = self.connection.unchecked_transaction()?;
            for document in some {
                remove(&transaction, &mut self.segments, *document)?;
                self.summary.removed += 1;
            }
            self.segments.flush(&transaction)?;
            store::touch(&transaction)?;
            transaction.commit()?;
        }
        let skips = store::skips_of(&self.connection, source)?;
        let transaction = self.connection.unchecked_transaction()?;
        for skip in skips.into_iter().filter(|skip| !self.seen_skips.has(*skip)) {
            transaction.execute("DELETE FROM kb_skips WHERE skip = ?1", [skip])?;
        }
        transaction.commit()?;
        Ok(())
    }
}

/// Rows that a scan has named: a bit for each, by its number.
#[derive(Default)]
struct Seen(Bits);

impl Seen {
    /// Says whether it was there before.
    fn add(&mut self, row: i64) -> bool {
        usize::try_from(row).is_ok_and(|row| self.0.insert(row))
    }

    fn has(&self, row: i64) -> bool {
        usize::try_from(row).is_ok_and(|row| self.0.get(row))
    }
}

/// One commit in the making.
struct Batch<'a> {
    connection: &'a Connection,
    source: &'a Source,
    segments: &'a mut Segments,
    seen: &'a mut Seen,
    seen_skips: &'a mut Seen,
    summary: &'a mut Summary,
    /// The number of the next chunk.
    next: u32,
    draft: Draft,
    /// Bytes of a vector, where there are some.
    width: Option<usize>,
    /// Whether anything changed that searches see.
    found_anew: bool,
}

impl Batch<'_> {
    fn step(&mut self, step: Step) -> Attempt<()> {
        match step {
            Step::Write(prepared) => self.write(*prepared),
            Step::Keep(source_id, row) => self.keep(source_id, &row),
            Step::Same(source_id) => self.same(source_id),
            Step::Gone(source_id) => self.gone(&source_id),
            Step::Skip(source_id, stamp, reason) => self.skip(source_id, stamp.as_deref(), reason),
            Step::Failed(source_id, problem) => {
                if let Some(known) = self.known(&source_id)? {
                    self.see(&known);
                }
                self.summary.failed.push(source_id, problem);
                Ok(())
            }
        }
    }

    fn known(&self, source_id: &str) -> Attempt<Option<Known>> {
        Ok(store::known(self.connection, self.source.source, source_id)?)
    }

    /// Says whether this scan named it before.
    fn see(&mut self, known: &Known) -> bool {
        self.seen.add(known.document)
    }

    fn write(&mut self, prepared: Prepared) -> Attempt<()> {
        let known = self.known(&prepared.source_id)?;
        if let Some(known) = &known
            && self.see(known)
        {
            let twice = Problem::bad_request("the connector names it twice; the first counts");
            self.summary.failed.push(prepared.source_id, twice);
            return Ok(());
        }
        let first = self.next;
        let count = prepared.chunks.len() as u32;
        let Some(next) = first.checked_add(count).filter(|next| *next < u32::MAX) else {
            return Err(Problem::limit("the knowledge base has had too many chunks")
                .hint("move its file away and sync again")
                .into());
        };
        self.next = next;
        let document = match known {
            Some(known) => {
                self.segments.kill(self.connection, known.first_chunk, known.chunks)?;
                store::delete_chunks(self.connection, known.first_chunk, known.chunks)?;
                store::update_row(self.connection, known.document, &prepared.row)?;
                self.summary.changed += 1;
                known.document
            }
            None => {
                let id = id_of(&self.source.name, &prepared.source_id);
                let source = self.source.source;
                self.summary.added += 1;
                store::insert_row(self.connection, &id, source, &prepared.source_id, &prepared.row)?
            }
        };
        self.seen.add(document);
        store::update_content(self.connection, document, &prepared.hash, first, count)?;
        store::write_body(self.connection, document, &prepared.body)?;
        write_fields(self.connection, document, &prepared.metadata)?;
        store::forget_skip(self.connection, self.source.source, &prepared.source_id)?;
        self.summary.bytes += prepared.body.len() as u64;
        self.summary.chunks += u64::from(count);
        self.index(document, first, &prepared)
    }

    fn index(&mut self, document: i64, first: u32, prepared: &Prepared) -> Attempt<()> {
        self.found_anew = true;
        let number = u32::try_from(document)
            .map_err(|_| Problem::limit("the knowledge base has had too many documents"))?;
        let base = self.draft.len() as u32;
        for (at, chunk) in prepared.chunks.iter().enumerate() {
            let it = first + at as u32;
            store::insert_chunk(
                self.connection,
                it,
                document,
                chunk.heading.as_deref(),
                &chunk.range,
            )?;
            self.draft.add(it, number, chunk.lengths, chunk.vector.as_deref());
            self.width = self.width.or(chunk.vector.as_ref().map(Vec::len));
        }
        for (term, places) in &prepared.terms {
            for (at, counts) in places {
                self.draft.count(term, Posting { ordinal: base + at, counts: *counts });
            }
        }
        Ok(())
    }

    fn keep(&mut self, source_id: String, row: &Row) -> Attempt<()> {
        let Some(known) = self.known(&source_id)? else {
            let lost = Problem::internal("it was there and is no longer");
            self.summary.failed.push(source_id, lost);
            return Ok(());
        };
        if self.see(&known) {
            return Ok(());
        }
        self.summary.unchanged += 1;
        if known.row != *row {
            // Filters look at times.
            self.found_anew |= known.row.updated_at != row.updated_at;
            store::update_row(self.connection, known.document, row)?;
        }
        Ok(())
    }

    fn same(&mut self, source_id: String) -> Attempt<()> {
        if let Some(known) = self.known(&source_id)? {
            self.see(&known);
            self.summary.unchanged += 1;
            return Ok(());
        }
        match store::known_skip(self.connection, self.source.source, &source_id)? {
            Some((skip, reason)) => {
                self.seen_skips.add(skip);
                self.summary.skipped.push(source_id, SkippedItem { reason, is_new: false });
            }
            None => {
                let unknown = Problem::bad_request(
                    "the connector says it is as it was, and it never was there",
                );
                self.summary.failed.push(source_id, unknown);
            }
        }
        Ok(())
    }

    fn gone(&mut self, source_id: &str) -> Attempt<()> {
        store::forget_skip(self.connection, self.source.source, source_id)?;
        let Some(known) = self.known(source_id)? else { return Ok(()) };
        remove(self.connection, self.segments, known.document)?;
        self.summary.removed += 1;
        self.found_anew = true;
        Ok(())
    }

    /// What it was before is no longer what is there.
    fn skip(&mut self, source_id: String, stamp: Option<&str>, reason: String) -> Attempt<()> {
        let source = self.source.source;
        let before = store::known_skip(self.connection, source, &source_id)?;
        let before = before.filter(|(_, why)| *why == reason).map(|(skip, _)| skip);
        let skip = match before.filter(|_| stamp.is_none()) {
            Some(skip) => skip,
            None => {
                self.gone(&source_id)?;
                store::remember_skip(self.connection, source, &source_id, stamp, &reason)?
            }
        };
        self.seen_skips.add(skip);
        self.summary.skipped.push(source_id, SkippedItem { reason, is_new: before.is_none() });
        Ok(())
    }

    fn finish(self, model: Option<&str>) -> Attempt<()> {
        self.segments.flush(self.connection)?;
        let model = match (model, self.width) {
            (Some(name), Some(width)) => Some(model_named(self.connection, name, width)?.model),
            _ => None,
        };
        self.draft.write(self.connection, model)?;
        store::set_next_chunk(self.connection, self.next)?;
        if self.found_anew {
            store::touch(self.connection)?;
        }
        Ok(())
    }
}

/// A document with all that belongs to it.
pub(super) fn remove(
    connection: &Connection,
    segments: &mut Segments,
    document: i64,
) -> Attempt<()> {
    let (first, count) = store::chunk_range(connection, document)?;
    segments.kill(connection, first, count)?;
    store::delete_chunks(connection, first, count)?;
    store::delete_document(connection, document)
}

/// What filters can ask for: the values of a field, each as JSON.
fn write_fields(connection: &Connection, document: i64, metadata: &Value) -> Attempt<()> {
    connection.prepare_cached("DELETE FROM kb_fields WHERE document = ?1")?.execute([document])?;
    let Some(fields) = metadata.as_object() else { return Ok(()) };
    let mut insert = connection.prepare_cached(
        "INSERT OR IGNORE INTO kb_fields (key, value, document) VALUES (?1, ?2, ?3)",
    )?;
    let each = |value: &Value| match value {
        Value::Array(values) => values.clone(),
        value => vec![value.clone()],
    };
    let values =
        fields.iter().flat_map(|(key, value)| each(value).into_iter().map(move |it| (key, it)));
    for (key, value) in values.take(FIELDS) {
        if let Some(value) = field(&value) {
            insert.execute(params![key, value, document])?;
        }
    }
    Ok(())
}

/// A value as filters compare it; long ones cannot be asked for.
pub(crate) fn field(value: &Value) -> Option<String> {
    let number = match value {
        // 2 and 2.0 are one number.
        Value::Float(float) if float.fract() == 0.0 && float.abs() < 9e15 => {
            Value::Int(*float as i64)
        }
        value => value.clone(),
    };
    number.encode_json("metadata").ok().filter(|text| text.len() <= FIELD)
}
