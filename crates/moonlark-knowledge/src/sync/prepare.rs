//! One item, from what a connector found to what the writer writes.
//!
//! Computes and reads, on a thread of its own; writes nothing.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use moonlark_core::{Problem, Result, Value};
use moonlark_search::{Role, terms};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::chunk::chunk;
use crate::embedder::{self, text_of};
use crate::extract::{Extracted, Reading, extract};
use crate::floor;
use crate::index::{Counts, FIELDS, model_of, row_of};
use crate::item::{Content, Found, Item};
use crate::knowledge::Inner;
use crate::store::{self, Known, Row};
use crate::summary::ItemReading;

/// The stamp that a document had, by its name.
type Stamps = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What is the same for all items of a sync.
pub(super) struct Preparing {
    pub(super) knowledge: Arc<Inner>,
    pub(super) source: i64,
    pub(super) full: bool,
    /// The model that makes vectors, unless none is to be made.
    pub(super) model: Option<String>,
    /// Told which item is read.
    pub(super) reading: ItemReading,
}

/// What the writer does about one item.
pub(super) enum Step {
    Write(Box<Prepared>),
    /// There with the content it had; perhaps with another row.
    Keep(String, Box<Row>),
    /// There with the stamp it had.
    Same(String),
    Gone(String),
    /// There and no text: the stamp by which to know it again, and why.
    Skip(String, Option<String>, String),
    Failed(String, Problem),
}

/// A document as it will be.
pub(super) struct Prepared {
    pub(super) source_id: String,
    pub(super) row: Row,
    pub(super) hash: Vec<u8>,
    pub(super) metadata: Value,
    pub(super) body: String,
    pub(super) chunks: Vec<PreparedChunk>,
    /// For every term the chunks that have it, in order.
    pub(super) terms: HashMap<String, Vec<(u32, Counts)>>,
}

pub(super) struct PreparedChunk {
    pub(super) heading: Option<String>,
    pub(super) range: Range<usize>,
    pub(super) lengths: Counts,
    pub(super) vector: Option<embedder::Row>,
}

/// The title of a document no longer than this: it is part of every chunk.
const TITLE: usize = 300;
/// How headings are put together.
pub(crate) const UNDER: &str = " > ";

/// Bytes that an item holds while it is on its way.
pub(super) fn weight(found: &Found) -> usize {
    match found {
        Found::Item(item) => match &item.content {
            Content::Text(text) => text.len(),
            Content::Bytes(bytes) => bytes.len(),
        },
        _ => 0,
    }
}

impl Preparing {
    /// What a scan asks whether it knows an item's stamp.
    pub(super) fn known(&self) -> Result<Stamps> {
        if self.full {
            return Ok(Arc::new(|_| None));
        }
        let (source, reader) = (self.source, Mutex::new(self.knowledge.store.reader()?));
        Ok(Arc::new(move |source_id| {
            let reader = reader.lock();
            // What cannot be looked up is read again.
            store::known_stamp(reader.as_ref()?, source, source_id).ok().flatten()
        }))
    }

    pub(super) fn step(&self, found: Found) -> Step {
        match found {
            Found::Same(source_id) => Step::Same(source_id),
            Found::Gone(source_id) => Step::Gone(source_id),
            Found::Skipped(source_id, reason) => Step::Skip(source_id, None, reason),
            Found::Failed(source_id, problem) => Step::Failed(source_id, problem),
            Found::Item(item) => {
                let source_id = item.source_id.clone();
                self.item(*item).unwrap_or_else(|problem| Step::Failed(source_id, problem))
            }
        }
    }

    fn item(&self, mut item: Item) -> Result<Step> {
        if item.source_id.is_empty() {
            return Err(Problem::bad_request("the item has no source_id"));
        }
        if !matches!(item.metadata, Value::Null | Value::Object(_)) {
            return Err(Problem::bad_request(format!(
                "metadata is {} and has to be an object",
                item.metadata.kind()
            )));
        }
        let hash = hash_of(&item)?;
        let store = &self.knowledge.store;
        let look = |connection: &_| Ok(store::known(connection, self.source, &item.source_id)?);
        let known = store.read(look)?.flatten();
        if let Some(known) = known.as_ref().filter(|known| !self.full && known.hash == hash) {
            return Ok(Step::Keep(item.source_id.clone(), Box::new(refreshed(known, &item))));
        }
        (self.reading)(&item.source_id);
        let read = extract(&item, &self.knowledge.settings.extract)?;
        let extracted = match read {
            Reading::Text(extracted) => *extracted,
            Reading::Skipped(reason) => return Ok(Step::Skip(item.source_id, item.stamp, reason)),
        };
        item.content = Content::Text(String::new());
        self.write(item, extracted, hash, known.as_ref()).map(Step::Write)
    }

    fn write(
        &self,
        item: Item,
        mut extracted: Extracted,
        hash: Vec<u8>,
        known: Option<&Known>,
    ) -> Result<Box<Prepared>> {
        let title = item.title.or(extracted.title.take()).unwrap_or_default();
        let title = title[..floor(&title, TITLE)].trim();
        let title = if title.is_empty() { &item.source_id } else { title }.to_owned();
        let metadata = merged(std::mem::take(&mut extracted.metadata), item.metadata);
        let json = match &metadata {
            Value::Null => None,
            metadata => Some(metadata.encode_json("metadata")?),
        };
        let named_as = if title == item.source_id { "" } else { path_words(&item.source_id) };
        let mut counting = Counting::default();
        let mut chunks = Vec::new();
        for (number, made) in
            chunk(&extracted, &self.knowledge.settings.chunks).into_iter().enumerate()
        {
            let heading = (!made.heading.is_empty()).then(|| made.heading.join(UNDER));
            // What its source calls a document stands above all of it, as headings do.
            let above = format!("{}\n{}", heading.as_deref().unwrap_or_default(), named_as);
            let fields = [title.as_str(), &above, &made.text];
            let lengths = counting.count(number as u32, fields);
            let model = self.model.as_ref().map(|_| &self.knowledge.settings.embedder);
            let vector = model.and_then(|embedder| {
                embedder.now(&text_of(&title, heading.as_deref(), &made.text))
            });
            chunks.push(PreparedChunk { heading, range: made.range, lengths, vector });
        }
        let mut prepared = Box::new(Prepared {
            source_id: item.source_id,
            row: Row {
                title,
                source_url: item.source_url,
                author: item.author.or(extracted.author),
                created_at: item.created_at.map(|at| at.as_microsecond()),
                updated_at: item.updated_at.map(|at| at.as_microsecond()),
                content_type: item.content_type.or(Some(extracted.content_type)),
                metadata: json,
                stamp: item.stamp,
            },
            hash,
            metadata,
            body: extracted.text,
            chunks,
            terms: counting.terms,
        });
        self.reuse(&mut prepared, known)?;
        Ok(prepared)
    }

    /// Vectors of chunks that say what they said, in the last version of the
    /// document or in one of the same content and another name. Only where making
    /// them anew costs more than looking for them.
    fn reuse(&self, prepared: &mut Prepared, known: Option<&Known>) -> Result<()> {
        let Some(name) = &self.model else { return Ok(()) };
        if prepared.chunks.iter().all(|chunk| chunk.vector.is_some()) {
            return Ok(());
        }
        let store = &self.knowledge.store;
        let found = store.read(|connection| {
            let mut rows: HashMap<String, embedder::Row> = HashMap::new();
            let Some(model) = model_of(connection, name)? else { return Ok(rows) };
            let alike = store::alike(connection, &prepared.hash)?;
            let old = known.map(|known| (known.first_chunk, known.chunks));
            for (first, count) in old.into_iter().chain(alike) {
                for chunk in first..first.saturating_add(count) {
                    let Some(old) = store::chunk_text(connection, chunk)? else { continue };
                    let text = text_of(&old.title, old.heading.as_deref(), &old.text);
                    if let Some(row) = row_of(connection, &model, chunk)? {
                        rows.insert(text, row);
                    }
                }
            }
            Ok(rows)
        })?;
        let Some(mut rows) = found else { return Ok(()) };
        for number in 0..prepared.chunks.len() {
            let text = prepared.text(number);
            prepared.chunks[number].vector = rows.remove(&text);
        }
        Ok(())
    }
}

impl Prepared {
    /// What is embedded of a chunk.
    pub(super) fn text(&self, number: usize) -> String {
        let chunk = &self.chunks[number];
        let text = self.body.get(chunk.range.clone()).unwrap_or_default();
        text_of(&self.row.title, chunk.heading.as_deref(), text)
    }
}

/// Terms of the chunks of one document.
#[derive(Default)]
struct Counting {
    terms: HashMap<String, Vec<(u32, Counts)>>,
}

impl Counting {
    /// Gives how many words each field has.
    fn count(&mut self, chunk: u32, fields: [&str; FIELDS]) -> Counts {
        let mut lengths = [0_u16; FIELDS];
        for (field, text) in fields.into_iter().enumerate() {
            terms(text, |term| {
                if term.role == Role::Word {
                    lengths[field] = lengths[field].saturating_add(1);
                }
                let places = match self.terms.get_mut(term.text) {
                    Some(places) => places,
                    None => self.terms.entry(term.text.to_owned()).or_default(),
                };
                match places.last_mut() {
                    Some((last, counts)) if *last == chunk => {
                        counts[field] = counts[field].saturating_add(1);
                    }
                    _ => {
                        let mut counts = [0; FIELDS];
                        counts[field] = 1;
                        places.push((chunk, counts));
                    }
                }
            });
        }
        lengths
    }
}

/// What a path or another name of a document says: without the ending, which says
/// what kind of file it is.
pub(crate) fn path_words(source_id: &str) -> &str {
    const MAX_PATH_BYTES: usize = 300;
    const MAX_ENDING_BYTES: usize = 5;
    let from = source_id.len().saturating_sub(MAX_PATH_BYTES);
    let from = (from..=source_id.len()).find(|at| source_id.is_char_boundary(*at)).unwrap_or(0);
    let path = &source_id[from..];
    match path.rsplit_once('.') {
        Some((path, ending)) if ending.len() <= MAX_ENDING_BYTES && !ending.contains('/') => path,
        _ => path,
    }
}

/// Of all that decides what becomes of an item's text.
fn hash_of(item: &Item) -> Result<Vec<u8>> {
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
    match &item.content {
        Content::Text(text) => add(text.as_bytes()),
        Content::Bytes(bytes) => add(bytes),
    }
    Ok(hash.finalize().to_vec())
}

/// The row of a document whose content is as it was.
fn refreshed(known: &Known, item: &Item) -> Row {
    let old = known.row.clone();
    Row {
        source_url: item.source_url.clone(),
        author: item.author.clone().or(old.author),
        created_at: item.created_at.map(|at| at.as_microsecond()),
        updated_at: item.updated_at.map(|at| at.as_microsecond()),
        stamp: item.stamp.clone(),
        ..old
    }
}

/// What a document says about itself, and what its source says, which knows better.
fn merged(own: Value, source: Value) -> Value {
    match (own, source) {
        (Value::Object(mut own), Value::Object(source)) => {
            own.extend(source);
            Value::Object(own)
        }
        (own, Value::Null) => own,
        (_, source) => source,
    }
}
