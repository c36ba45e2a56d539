//! The one writer of a sync: batches become commits.

use std::sync::atomic::{AtomicBool, Ordering};

use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_search::RowBitmap;
use rusqlite::{Connection, InterruptHandle, params};
use tokio::sync::mpsc;

use super::item_preparer::{PreparedDocument, SyncStep};
use crate::index::{
    ChunkPosting, SegmentBuilder, SegmentTombstones, find_or_create_model, merge_after_sync,
    merge_during_sync,
};
use crate::knowledge_database::{KnowledgeDatabaseInner, index_recipe};
use crate::source_connector::ScanOutcome;
use crate::store::{
    self, DocumentRow, KnownDocument, MapStoreError, SourceLock, SourceRow, StoreResult,
};
use crate::sync_summary::{
    SkippedItem, SyncOptions, SyncProgressCallback, SyncProgressCounts, SyncSummary,
};

/// Documents removed in one commit, so that others can write in between.
const REMOVAL_BATCH_DOCUMENTS: usize = 2_000;
/// Fields of metadata that filters can ask for, and bytes of one.
const MAX_METADATA_FIELDS: usize = 100;
const MAX_FIELD_VALUE_BYTES: usize = 500;

pub(super) enum SyncWriterMessage {
    /// With why its chunks have no vectors.
    Batch(Vec<SyncStep>, Option<Problem>),
    /// The scan ended well.
    End(ScanOutcome),
}

pub(super) struct SyncWriter {
    connection: Connection,
    file: std::path::PathBuf,
    /// The model that makes vectors.
    model: Option<String>,
    source: SourceRow,
    _lock: SourceLock,
    segments: SegmentTombstones,
    /// Documents and skips that this scan has named, by their numbers.
    seen: SeenRows,
    seen_skips: SeenRows,
    summary: SyncSummary,
    advance: SyncProgressCounts,
    progress: SyncProgressCallback,
}

impl SyncWriter {
    /// Take the source for this sync; gives what its last scan left as well.
    pub(super) fn begin_sync(
        knowledge: &KnowledgeDatabaseInner,
        name: &str,
        kind: &str,
        options: &SyncOptions,
    ) -> Result<(SyncWriter, Value)> {
        let store = &knowledge.store;
        let file = store.file().to_owned();
        let mut connection = store.open_writer()?;
        let lock = SourceLock::try_acquire(&file, name)?;
        let recipe = index_recipe(&knowledge.settings);
        let begun = |connection: &mut Connection| -> StoreResult<_> {
            let transaction = connection.transaction()?;
            if store::read_recipe(&transaction)? != recipe {
                store::set_recipe(&transaction, &recipe)?;
            }
            let begun = store::upsert_source(&transaction, name, kind)?;
            let known = store::count_documents(&transaction, begun.0.source)?;
            transaction.commit()?;
            Ok((begun, known))
        };
        let ((source, state), known) = begun(&mut connection).map_store_error(&file)?;
        let state = match state.filter(|_| !options.full) {
            Some(state) => Value::parse_json(state.as_bytes())?,
            None => Value::Null,
        };
        let advance = SyncProgressCounts {
            expected: (known > 0).then_some(known),
            ..SyncProgressCounts::default()
        };
        let writer = SyncWriter {
            connection,
            file,
            model: knowledge.settings.embedder.model_name(),
            source,
            _lock: lock,
            segments: SegmentTombstones::default(),
            seen: SeenRows::default(),
            seen_skips: SeenRows::default(),
            summary: SyncSummary::default(),
            advance,
            progress: options.progress.clone(),
        };
        Ok((writer, state))
    }

    pub(super) fn source_number(&self) -> i64 {
        self.source.source
    }

    pub(super) fn interrupt_handle(&self) -> InterruptHandle {
        self.connection.get_interrupt_handle()
    }

    pub(super) fn note_embedding_problem(&mut self, problem: Option<Problem>) {
        self.summary.embedding = self.summary.embedding.take().or(problem);
    }

    /// Commit what comes in until the scan ends. Without an end what was
    /// committed stays, and that is all.
    pub(super) fn commit_until_end(
        mut self,
        mut inbox: mpsc::Receiver<SyncWriterMessage>,
        stopped: &AtomicBool,
    ) -> Result<SyncSummary> {
        let file = self.file.clone();
        while let Some(message) = inbox.blocking_recv() {
            if stopped.load(Ordering::Relaxed) {
                break;
            }
            match message {
                SyncWriterMessage::Batch(steps, problem) => {
                    self.note_embedding_problem(problem);
                    self.commit_batch(steps).map_store_error(&file)?;
                }
                SyncWriterMessage::End(scanned) => {
                    self.finish_sync(&scanned).map_store_error(&file)?;
                    return Ok(self.summary);
                }
            }
        }
        Err(Problem::new(ProblemCode::Cancelled, "the sync was given up"))
    }

    fn commit_batch(&mut self, steps: Vec<SyncStep>) -> StoreResult<()> {
        let transaction = self.connection.unchecked_transaction()?;
        let mut batch = CommitBatch {
            connection: &transaction,
            source: &self.source,
            segments: &mut self.segments,
            seen: &mut self.seen,
            seen_skips: &mut self.seen_skips,
            summary: &mut self.summary,
            next: store::read_next_chunk(&transaction)?,
            draft: SegmentBuilder::new(),
            width: None,
            found_anew: false,
        };
        for step in steps {
            self.advance.done += 1;
            batch.apply_step(step)?;
            self.advance.chunks = batch.summary.chunks;
            self.advance.bytes = batch.summary.bytes;
            self.advance.failed = batch.summary.failed.count;
            (self.progress)(self.advance);
        }
        batch.finish_batch(self.model.as_deref())?;
        transaction.commit()?;
        self.advance.committed = self.advance.done;
        (self.progress)(self.advance);
        self.merge_segments(merge_during_sync)
    }

    /// Merge until nothing is left to merge, each time in a commit of its own.
    fn merge_segments(&mut self, once: fn(&Connection) -> StoreResult<bool>) -> StoreResult<()> {
        loop {
            let transaction = self.connection.unchecked_transaction()?;
            if !once(&transaction)? {
                return Ok(());
            }
            store::advance_generation(&transaction)?;
            transaction.commit()?;
            self.segments.clear();
        }
    }

    fn finish_sync(&mut self, scanned: &ScanOutcome) -> StoreResult<()> {
        if scanned.complete {
            self.remove_unseen()?;
        }
        self.merge_segments(merge_after_sync)?;
        // A cursor does not go past what is to be tried again.
        let state = (self.summary.failed.count == 0).then_some(&scanned.state);
        let transaction = self.connection.unchecked_transaction()?;
        store::record_sync_success(&transaction, &self.source, state)?;
        transaction.commit()?;
        store::release_free_pages(&self.connection)?;
        Ok(())
    }

    fn remove_unseen(&mut self) -> StoreResult<()> {
        let source = self.source.source;
        let mut gone = store::documents_of_source(&self.connection, source)?;
        gone.retain(|document| !self.seen.contains(*document));
        remove_documents(&self.connection, &mut self.segments, &gone)?;
        self.summary.removed += gone.len() as u64;
        let skips = store::skips_of_source(&self.connection, source)?;
        let transaction = self.connection.unchecked_transaction()?;
        for skip in skips.into_iter().filter(|skip| !self.seen_skips.contains(*skip)) {
            transaction.execute("DELETE FROM kb_skips WHERE skip = ?1", [skip])?;
        }
        transaction.commit()?;
        Ok(())
    }
}

/// Rows that a scan has named: a bit for each, by its number.
#[derive(Default)]
struct SeenRows(RowBitmap);

impl SeenRows {
    /// Says whether it was there before.
    fn insert(&mut self, row: i64) -> bool {
        usize::try_from(row).is_ok_and(|row| self.0.insert(row))
    }

    fn contains(&self, row: i64) -> bool {
        usize::try_from(row).is_ok_and(|row| self.0.get(row))
    }
}

/// One commit in the making.
struct CommitBatch<'a> {
    connection: &'a Connection,
    source: &'a SourceRow,
    segments: &'a mut SegmentTombstones,
    seen: &'a mut SeenRows,
    seen_skips: &'a mut SeenRows,
    summary: &'a mut SyncSummary,
    /// The number of the next chunk.
    next: u32,
    draft: SegmentBuilder,
    /// Bytes of a vector, where there are some.
    width: Option<usize>,
    /// Whether anything changed that searches see.
    found_anew: bool,
}

impl CommitBatch<'_> {
    fn apply_step(&mut self, step: SyncStep) -> StoreResult<()> {
        match step {
            SyncStep::Write(prepared) => self.write_document(*prepared),
            SyncStep::Keep(source_id, row) => self.keep_document(source_id, &row),
            SyncStep::Same(source_id) => self.confirm_unchanged(source_id),
            SyncStep::Gone(source_id) => self.remove_gone(&source_id),
            SyncStep::Skip(source_id, stamp, reason) => {
                self.record_skip(source_id, stamp.as_deref(), reason)
            }
            SyncStep::Failed(source_id, problem) => {
                if let Some(known) = self.find_known(&source_id)? {
                    self.mark_seen(&known);
                }
                self.summary.failed.push(source_id, problem);
                Ok(())
            }
        }
    }

    fn find_known(&self, source_id: &str) -> StoreResult<Option<KnownDocument>> {
        Ok(store::find_known_document(self.connection, self.source.source, source_id)?)
    }

    /// Says whether this scan named it before.
    fn mark_seen(&mut self, known: &KnownDocument) -> bool {
        self.seen.insert(known.document)
    }

    fn write_document(&mut self, prepared: PreparedDocument) -> StoreResult<()> {
        let known = self.find_known(&prepared.source_id)?;
        if let Some(known) = &known
            && self.mark_seen(known)
        {
            let twice = Problem::bad_request("the connector names it twice; the first counts");
            self.summary.failed.push(prepared.source_id, twice);
            return Ok(());
        }
        let first = self.next;
        let count = prepared.chunks.len() as u32;
        let Some(next) = first.checked_add(count).filter(|next| *next < u32::MAX) else {
            return Err(Problem::limit_exceeded("the knowledge base has had too many chunks")
                .with_hint("move its file away and sync again")
                .into());
        };
        self.next = next;
        if let Some(known) = known {
            self.segments.mark_dead(self.connection, known.first_chunk, known.chunks)?;
            store::delete_chunks(self.connection, known.first_chunk, known.chunks)?;
            self.summary.changed += 1;
        } else {
            self.summary.added += 1;
        }
        let content = (prepared.hash.as_slice(), first, count);
        let (source_id, row) = (&prepared.source_id, &prepared.row);
        let document =
            store::write_document(self.connection, self.source, source_id, row, content)?;
        self.seen.insert(document);
        store::write_body(self.connection, document, &prepared.body)?;
        write_metadata_fields(self.connection, document, &prepared.metadata)?;
        store::forget_skip(self.connection, self.source.source, &prepared.source_id)?;
        self.summary.bytes += prepared.body.len() as u64;
        self.summary.chunks += u64::from(count);
        self.index_chunks(document, first, &prepared)
    }

    fn index_chunks(
        &mut self,
        document: i64,
        first: u32,
        prepared: &PreparedDocument,
    ) -> StoreResult<()> {
        self.found_anew = true;
        let number = u32::try_from(document).map_err(|_| {
            Problem::limit_exceeded("the knowledge base has had too many documents")
        })?;
        let base = self.draft.len() as u32;
        for (at, chunk) in prepared.chunks.iter().enumerate() {
            let it = first + at as u32;
            let heading = chunk.heading.as_deref();
            store::insert_chunk(self.connection, it, document, heading, &chunk.range)?;
            self.draft.add_chunk(it, number, chunk.lengths, chunk.vector.as_deref());
            self.width = self.width.or(chunk.vector.as_ref().map(Vec::len));
        }
        for (term, places) in &prepared.terms {
            for (at, counts) in places {
                self.draft.add_posting(term, ChunkPosting { ordinal: base + at, counts: *counts });
            }
        }
        Ok(())
    }

    fn keep_document(&mut self, source_id: String, row: &DocumentRow) -> StoreResult<()> {
        let Some(known) = self.find_known(&source_id)? else {
            let lost = Problem::internal("it was there and is no longer");
            self.summary.failed.push(source_id, lost);
            return Ok(());
        };
        if self.mark_seen(&known) {
            return Ok(());
        }
        self.summary.unchanged += 1;
        if known.row != *row {
            // Filters look at times.
            self.found_anew |= known.row.updated_at != row.updated_at;
            let content = (known.hash.as_slice(), known.first_chunk, known.chunks);
            store::write_document(self.connection, self.source, &source_id, row, content)?;
        }
        Ok(())
    }

    fn confirm_unchanged(&mut self, source_id: String) -> StoreResult<()> {
        if let Some(known) = self.find_known(&source_id)? {
            self.mark_seen(&known);
            self.summary.unchanged += 1;
            return Ok(());
        }
        match store::find_skip(self.connection, self.source.source, &source_id)? {
            Some((skip, reason)) => {
                self.seen_skips.insert(skip);
                self.summary.skipped.push(source_id, SkippedItem { reason, is_new: false });
            }
            None => {
                let unknown = "the connector reported it as unchanged, but it was never indexed";
                self.summary.failed.push(source_id, Problem::bad_request(unknown));
            }
        }
        Ok(())
    }

    fn remove_gone(&mut self, source_id: &str) -> StoreResult<()> {
        store::forget_skip(self.connection, self.source.source, source_id)?;
        let Some(known) = self.find_known(source_id)? else { return Ok(()) };
        remove_document(self.connection, self.segments, known.document)?;
        self.summary.removed += 1;
        self.found_anew = true;
        Ok(())
    }

    /// What it was before is no longer what is there.
    fn record_skip(
        &mut self,
        source_id: String,
        stamp: Option<&str>,
        reason: String,
    ) -> StoreResult<()> {
        let source = self.source.source;
        let before = store::find_skip(self.connection, source, &source_id)?;
        let before = before.filter(|(_, why)| *why == reason).map(|(skip, _)| skip);
        let skip = match before.filter(|_| stamp.is_none()) {
            Some(skip) => skip,
            None => {
                self.remove_gone(&source_id)?;
                store::remember_skip(self.connection, source, &source_id, stamp, &reason)?
            }
        };
        self.seen_skips.insert(skip);
        self.summary.skipped.push(source_id, SkippedItem { reason, is_new: before.is_none() });
        Ok(())
    }

    fn finish_batch(self, model: Option<&str>) -> StoreResult<()> {
        self.segments.flush(self.connection)?;
        let made = model.zip(self.width);
        let made = made.map(|(name, width)| find_or_create_model(self.connection, name, width));
        let model = made.transpose()?.map(|it| it.model);
        self.draft.write_segment(self.connection, model)?;
        store::set_next_chunk(self.connection, self.next)?;
        if self.found_anew {
            store::advance_generation(self.connection)?;
        }
        Ok(())
    }
}

/// Documents with all that belongs to them, some in each commit.
pub(super) fn remove_documents(
    connection: &Connection,
    segments: &mut SegmentTombstones,
    documents: &[i64],
) -> StoreResult<()> {
    for some in documents.chunks(REMOVAL_BATCH_DOCUMENTS) {
        let transaction = connection.unchecked_transaction()?;
        for document in some {
            remove_document(&transaction, segments, *document)?;
        }
        segments.flush(&transaction)?;
        store::advance_generation(&transaction)?;
        transaction.commit()?;
    }
    Ok(())
}

fn remove_document(
    connection: &Connection,
    segments: &mut SegmentTombstones,
    document: i64,
) -> StoreResult<()> {
    let (first, count) = store::chunk_range(connection, document)?;
    segments.mark_dead(connection, first, count)?;
    store::delete_chunks(connection, first, count)?;
    store::delete_document(connection, document)
}

/// What filters can ask for: the values of a field, each as JSON.
fn write_metadata_fields(
    connection: &Connection,
    document: i64,
    metadata: &Value,
) -> StoreResult<()> {
    store::execute_cached(connection, "DELETE FROM kb_fields WHERE document = ?1", [document])?;
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
    for (key, value) in values.take(MAX_METADATA_FIELDS) {
        if let Some(value) = field_value(&value) {
            insert.execute(params![key, value, document])?;
        }
    }
    Ok(())
}

/// A value as filters compare it; long ones cannot be asked for.
pub(crate) fn field_value(value: &Value) -> Option<String> {
    let number = match value {
        // 2 and 2.0 are one number.
        Value::Float(float) if float.fract() == 0.0 && float.abs() < 9e15 => {
            Value::Int(*float as i64)
        }
        value => value.clone(),
    };
    number.encode_json("metadata").ok().filter(|text| text.len() <= MAX_FIELD_VALUE_BYTES)
}
