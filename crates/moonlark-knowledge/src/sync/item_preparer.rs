//! One item, from what a connector found to what the writer writes.
//!
//! Computes and reads, on a thread of its own; writes nothing.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use moonlark_core::{Problem, Result, Value};
use moonlark_search::{TermRole, TextLanguage, for_each_term_in};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::chunk::split_into_chunks;
use crate::embedder::{self, embedding_text};
use crate::extract::{ExtractedDocument, ExtractionOutcome, extract_document};
use crate::index::{FIELD_COUNT, TermCounts, find_chunk_vector, find_model};
use crate::knowledge_database::KnowledgeDatabaseInner;
use crate::source_connector::{ItemContent, KnownStamps, ScanFinding, SourceItem};
use crate::store::{self, DocumentRow, KnownDocument};
use crate::sync_summary::ItemReadingCallback;

/// What is the same for all items of a sync.
pub(super) struct ItemPreparer {
    pub(super) knowledge: Arc<KnowledgeDatabaseInner>,
    pub(super) source: i64,
    pub(super) full: bool,
    /// The model that makes vectors, unless none is to be made.
    pub(super) model: Option<String>,
    /// Told which item is read.
    pub(super) reading: ItemReadingCallback,
}

/// What the writer does about one item.
pub(super) enum SyncStep {
    Write(Box<PreparedDocument>),
    /// There with the content it had; perhaps with another row.
    Keep(String, Box<DocumentRow>),
    /// There with the stamp it had.
    Same(String),
    Gone(String),
    /// There and no text: the stamp by which to know it again, and why.
    Skip(String, Option<String>, String),
    Failed(String, Problem),
}

/// A document as it will be.
pub(super) struct PreparedDocument {
    pub(super) source_id: String,
    pub(super) row: DocumentRow,
    pub(super) hash: Vec<u8>,
    pub(super) metadata: Value,
    pub(super) body: String,
    pub(super) chunks: Vec<PreparedChunk>,
    pub(super) terms: ChunksByTerm,
}

/// For every term the chunks that have it, in order.
type ChunksByTerm = HashMap<String, Vec<(u32, TermCounts)>>;

pub(super) struct PreparedChunk {
    pub(super) heading: Option<String>,
    pub(super) range: Range<usize>,
    pub(super) lengths: TermCounts,
    pub(super) vector: Option<embedder::QuantizedVector>,
}

/// The title of a document no longer than this: it is part of every chunk.
const MAX_TITLE_BYTES: usize = 300;
/// How headings are put together.
pub(crate) const HEADING_SEPARATOR: &str = " > ";

/// Bytes that an item holds while it is on its way.
pub(super) fn content_bytes(found: &ScanFinding) -> usize {
    match found {
        ScanFinding::Item(item) => item.content.as_bytes().len(),
        _ => 0,
    }
}

impl ItemPreparer {
    /// What a scan asks whether it knows an item's stamp.
    pub(super) fn stamp_lookup(&self) -> Result<Arc<KnownStamps>> {
        if self.full {
            return Ok(Arc::new(|_| None));
        }
        let (source, reader) = (self.source, Mutex::new(self.knowledge.store.open_reader()?));
        Ok(Arc::new(move |source_id| {
            let reader = reader.lock();
            // What cannot be looked up is read again.
            store::find_stamp(reader.as_ref()?, source, source_id).ok().flatten()
        }))
    }

    pub(super) fn prepare_step(&self, found: ScanFinding) -> SyncStep {
        match found {
            ScanFinding::Same(source_id) => SyncStep::Same(source_id),
            ScanFinding::Gone(source_id) => SyncStep::Gone(source_id),
            ScanFinding::Skipped(source_id, reason) => SyncStep::Skip(source_id, None, reason),
            ScanFinding::Failed(source_id, problem) => SyncStep::Failed(source_id, problem),
            ScanFinding::Item(item) => {
                let source_id = item.source_id.clone();
                self.prepare_item(*item)
                    .unwrap_or_else(|problem| SyncStep::Failed(source_id, problem))
            }
        }
    }

    fn prepare_item(&self, mut item: SourceItem) -> Result<SyncStep> {
        if item.source_id.is_empty() {
            return Err(Problem::bad_request("the item has no source_id"));
        }
        if !matches!(item.metadata, Value::Null | Value::Object(_)) {
            return Err(Problem::bad_request(format!(
                "metadata is {} and has to be an object",
                item.metadata.kind()
            )));
        }
        let hash = content_hash(&item)?;
        let store = &self.knowledge.store;
        let look = |connection: &_| {
            Ok(store::find_known_document(connection, self.source, &item.source_id)?)
        };
        let known = store.in_read_transaction(look)?.flatten();
        if let Some(known) = known.as_ref().filter(|known| !self.full && known.hash == hash) {
            return Ok(SyncStep::Keep(item.source_id.clone(), Box::new(refresh_row(known, &item))));
        }
        (self.reading)(&item.source_id);
        let read = extract_document(&item, &self.knowledge.settings.extract)?;
        let extracted = match read {
            ExtractionOutcome::Text(extracted) => *extracted,
            ExtractionOutcome::Skipped(reason) => {
                return Ok(SyncStep::Skip(item.source_id, item.stamp, reason));
            }
        };
        item.content = ItemContent::default();
        self.prepare_document(item, extracted, hash, known.as_ref()).map(SyncStep::Write)
    }

    fn prepare_document(
        &self,
        item: SourceItem,
        mut extracted: ExtractedDocument,
        hash: Vec<u8>,
        known: Option<&KnownDocument>,
    ) -> Result<Box<PreparedDocument>> {
        let title = item.title.or(extracted.title.take()).unwrap_or_default();
        let title = title[..title.floor_char_boundary(MAX_TITLE_BYTES)].trim();
        let title = if title.is_empty() { &item.source_id } else { title }.to_owned();
        let metadata = merge_metadata(std::mem::take(&mut extracted.metadata), item.metadata);
        let json = match &metadata {
            Value::Null => None,
            metadata => Some(metadata.encode_json("metadata")?),
        };
        let named_as = if title == item.source_id { "" } else { path_end(&item.source_id) };
        let language = TextLanguage::detect(&extracted.text);
        let mut terms = ChunksByTerm::new();
        let mut chunks = Vec::new();
        for (number, made) in
            split_into_chunks(&extracted, &self.knowledge.settings.chunks).into_iter().enumerate()
        {
            let heading = (!made.heading.is_empty()).then(|| made.heading.join(HEADING_SEPARATOR));
            // What its source calls a document stands above all of it, as headings do.
            let above = format!("{}\n{}", heading.as_deref().unwrap_or_default(), named_as);
            let fields = [title.as_str(), &above, &made.text];
            let lengths = count_terms(language, &mut terms, number as u32, fields);
            let model = self.model.as_ref().map(|_| &self.knowledge.settings.embedder);
            let vector = model.and_then(|embedder| {
                embedder.embed_now(&embedding_text(&title, heading.as_deref(), &made.text))
            });
            chunks.push(PreparedChunk { heading, range: made.range, lengths, vector });
        }
        let mut prepared = Box::new(PreparedDocument {
            source_id: item.source_id,
            row: DocumentRow {
                title,
                source_url: item.source_url,
                author: item.author.or(extracted.author),
                created_at: item.created_at.map(|at| at.as_microsecond()),
                updated_at: item.updated_at.map(|at| at.as_microsecond()),
                content_type: item.content_type.or(Some(extracted.content_type)),
                metadata: json,
                stamp: item.stamp,
                language: (language != TextLanguage::English).then(|| language.code().to_owned()),
            },
            hash,
            metadata,
            body: extracted.text,
            chunks,
            terms,
        });
        self.reuse_vectors(&mut prepared, known)?;
        Ok(prepared)
    }

    /// Vectors of chunks that say what they said, in the last version of the
    /// document or in one of the same content and another name. Only where making
    /// them anew costs more than looking for them.
    fn reuse_vectors(
        &self,
        prepared: &mut PreparedDocument,
        known: Option<&KnownDocument>,
    ) -> Result<()> {
        let Some(name) = &self.model else { return Ok(()) };
        if prepared.chunks.iter().all(|chunk| chunk.vector.is_some()) {
            return Ok(());
        }
        let store = &self.knowledge.store;
        let found = store.in_read_transaction(|connection| {
            let mut rows: HashMap<String, embedder::QuantizedVector> = HashMap::new();
            let Some(model) = find_model(connection, name)? else { return Ok(rows) };
            let alike = store::find_same_content(connection, &prepared.hash)?;
            let old = known.map(|known| (known.first_chunk, known.chunks));
            for (first, count) in old.into_iter().chain(alike) {
                for chunk in first..first.saturating_add(count) {
                    let Some(old) = store::read_chunk_text(connection, chunk)? else { continue };
                    let text = embedding_text(&old.title, old.heading.as_deref(), &old.text);
                    if let Some(row) = find_chunk_vector(connection, &model, chunk)? {
                        rows.insert(text, row);
                    }
                }
            }
            Ok(rows)
        })?;
        let Some(mut rows) = found else { return Ok(()) };
        for number in 0..prepared.chunks.len() {
            let text = prepared.chunk_embedding_text(number);
            prepared.chunks[number].vector = rows.remove(&text);
        }
        Ok(())
    }
}

impl PreparedDocument {
    /// What is embedded of a chunk.
    pub(super) fn chunk_embedding_text(&self, number: usize) -> String {
        let chunk = &self.chunks[number];
        let text = self.body.get(chunk.range.clone()).unwrap_or_default();
        embedding_text(&self.row.title, chunk.heading.as_deref(), text)
    }
}

/// Add the terms of a chunk to those of its document. Gives how many words each field has.
fn count_terms(
    language: TextLanguage,
    terms: &mut ChunksByTerm,
    chunk: u32,
    fields: [&str; FIELD_COUNT],
) -> TermCounts {
    let mut lengths = [0_u16; FIELD_COUNT];
    for (field, text) in fields.into_iter().enumerate() {
        for_each_term_in(language, text, |term| {
            if term.role == TermRole::Word {
                lengths[field] = lengths[field].saturating_add(1);
            }
            let places = match terms.get_mut(term.text) {
                Some(places) => places,
                None => terms.entry(term.text.to_owned()).or_default(),
            };
            match places.last_mut() {
                Some((last, counts)) if *last == chunk => {
                    counts[field] = counts[field].saturating_add(1);
                }
                _ => {
                    let mut counts = [0; FIELD_COUNT];
                    counts[field] = 1;
                    places.push((chunk, counts));
                }
            }
        });
    }
    lengths
}

/// What a path or another name of a document says: without the ending, which says
/// what kind of file it is.
pub(crate) fn path_words(source_id: &str) -> &str {
    const MAX_ENDING_BYTES: usize = 5;
    let path = path_end(source_id);
    match path.rsplit_once('.') {
        Some((path, ending)) if ending.len() <= MAX_ENDING_BYTES && !ending.contains('/') => path,
        _ => path,
    }
}

/// The same with the ending: whoever asks for `config.toml` does not mean `config.yaml`.
pub(crate) fn path_end(source_id: &str) -> &str {
    const MAX_PATH_BYTES: usize = 300;
    let from = source_id.len().saturating_sub(MAX_PATH_BYTES);
    &source_id[source_id.ceil_char_boundary(from)..]
}

/// Of all that decides what becomes of an item's text.
fn content_hash(item: &SourceItem) -> Result<Vec<u8>> {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    // The name says what it is.
    let name = item.source_id.rsplit('/').next().unwrap_or_default();
    add(name.rsplit_once('.').map_or("", |(_, extension)| extension).as_bytes());
    add(item.title.as_deref().unwrap_or_default().as_bytes());
    add(item.content_type.as_deref().unwrap_or_default().as_bytes());
    add(item.metadata.encode_json("metadata")?.as_bytes());
    add(item.content.as_bytes());
    Ok(hash.finalize().to_vec())
}

/// The row of a document whose content is as it was.
fn refresh_row(known: &KnownDocument, item: &SourceItem) -> DocumentRow {
    let old = known.row.clone();
    DocumentRow {
        source_url: item.source_url.clone(),
        author: item.author.clone().or(old.author),
        created_at: item.created_at.map(|at| at.as_microsecond()),
        updated_at: item.updated_at.map(|at| at.as_microsecond()),
        stamp: item.stamp.clone(),
        ..old
    }
}

/// What a document says about itself, and what its source says, which knows better.
fn merge_metadata(own: Value, source: Value) -> Value {
    match (own, source) {
        (Value::Object(mut own), Value::Object(source)) => {
            own.extend(source);
            Value::Object(own)
        }
        (own, Value::Null) => own,
        (_, source) => source,
    }
}
