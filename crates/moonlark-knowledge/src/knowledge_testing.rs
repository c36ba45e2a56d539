//! For tests: connectors made of a list, and a file's whole content in words.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use moonlark_core::tool::BoxFuture;
use moonlark_core::{Problem, Result, Value};
use moonlark_search::RowBitmap;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::index::every_posting;
use crate::store::KnowledgeStore;
use crate::sync::BatchSize;
use crate::{
    ItemContent, KnowledgeDatabase, KnowledgeSettings, ScanFinding, ScanOutcome, SearchQuery,
    SourceConnector, SourceItem, SourceScan, SyncOptions, SyncSummary, TextEmbedder,
};

pub(crate) fn item(source_id: &str, text: &str) -> SourceItem {
    SourceItem {
        source_id: source_id.to_owned(),
        content: ItemContent::Text(text.to_owned()),
        ..SourceItem::default()
    }
}

/// A source that has what it was given.
pub(crate) struct Listed {
    pub(crate) items: Vec<SourceItem>,
    pub(crate) others: fn() -> Vec<ScanFinding>,
    pub(crate) incremental: bool,
    pub(crate) state: Value,
    /// Fails before the item of this number.
    pub(crate) fails_at: Option<usize>,
    /// Never ends.
    pub(crate) hangs: bool,
    /// Items that were handed over with their content.
    pub(crate) read: AtomicUsize,
    pub(crate) got_state: parking_lot::Mutex<Value>,
}

impl Listed {
    pub(crate) fn new(items: impl IntoIterator<Item = SourceItem>) -> Listed {
        Listed {
            items: items.into_iter().collect(),
            others: Vec::new,
            incremental: false,
            state: Value::Null,
            fails_at: None,
            hangs: false,
            read: AtomicUsize::new(0),
            got_state: parking_lot::Mutex::default(),
        }
    }

    pub(crate) fn of(items: &[(&str, &str)]) -> Listed {
        Listed::new(items.iter().map(|(name, text)| item(name, text)))
    }
}

impl SourceConnector for Listed {
    fn scan(self: Arc<Self>, scan: SourceScan) -> BoxFuture<Result<ScanOutcome>> {
        let it = self;
        Box::pin(async move {
            *it.got_state.lock() = scan.state.clone();
            let closed = |_| Problem::internal("nobody listens");
            for (number, item) in it.items.iter().enumerate() {
                if it.fails_at == Some(number) {
                    return Err(Problem::tool_error("the connector failed"));
                }
                let same = item.stamp.is_some() && (scan.known)(&item.source_id) == item.stamp;
                let found = if same {
                    ScanFinding::Same(item.source_id.clone())
                } else {
                    it.read.fetch_add(1, Ordering::Relaxed);
                    ScanFinding::Item(Box::new(item.clone()))
                };
                scan.out.send(found).await.map_err(closed)?;
            }
            for other in (it.others)() {
                scan.out.send(other).await.map_err(closed)?;
            }
            if it.hangs {
                std::future::pending::<()>().await;
            }
            Ok(ScanOutcome { complete: !it.incremental, state: it.state.clone() })
        })
    }
}

/// Where a test has a knowledge base to itself, for as long as it holds the folder.
pub(crate) fn fresh_file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.db");
    (folder, file)
}

/// A knowledge base that commits after few items, so that there is much to go wrong.
pub(crate) fn small(file: &Path) -> KnowledgeDatabase {
    with(file, TextEmbedder::Builtin)
}

pub(crate) fn with(file: &Path, embedder: TextEmbedder) -> KnowledgeDatabase {
    let batch = BatchSize { items: 3, chunks: 64, time: Duration::from_secs(60) };
    let settings = KnowledgeSettings { embedder, ..KnowledgeSettings::default() };
    KnowledgeDatabase::new(KnowledgeStore::new(file), settings, batch)
}

pub(crate) async fn sync(knowledge: &KnowledgeDatabase, listed: Listed) -> Result<SyncSummary> {
    sync_as(knowledge, "docs", Arc::new(listed)).await
}

pub(crate) async fn sync_as(
    knowledge: &KnowledgeDatabase,
    name: &str,
    listed: Arc<Listed>,
) -> Result<SyncSummary> {
    knowledge.sync_source(name, "script", listed, SyncOptions::default()).await
}

/// What a search finds, by the names that the source has for it.
pub(crate) async fn find(knowledge: &KnowledgeDatabase, text: &str) -> Vec<String> {
    found(knowledge, SearchQuery::new(text)).await
}

pub(crate) async fn found(knowledge: &KnowledgeDatabase, query: SearchQuery) -> Vec<String> {
    let answer = knowledge.search(query).await.unwrap();
    answer.hits.into_iter().map(|hit| hit.source_id).collect()
}

/// Everything a file says, without the numbers by which it says it, and in an
/// order that does not depend on how it came about. Fails where the tables
/// contradict each other.
pub(crate) fn content(file: &Path) -> String {
    let connection = Connection::open(file).unwrap();
    let sound: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    let mut names = BTreeMap::new();
    let mut text = String::new();
    let mut statement = connection
        .prepare(
            "SELECT document, name, source_id, id, title, source_url, author, created_at, updated_at,
                    content_type, metadata, stamp, hex(hash), first_chunk, chunks, kb_sources.state
             FROM kb_documents JOIN kb_sources USING (source) ORDER BY name, source_id",
        )
        .unwrap();
    let mut rows = statement.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let document: i64 = row.get(0).unwrap();
        let (first, count): (u32, u32) = (row.get(13).unwrap(), row.get(14).unwrap());
        let name: String = row.get(2).unwrap();
        for column in (1..13).chain(15..16) {
            write!(text, "{:?} ", row.get_ref(column).unwrap()).unwrap();
        }
        writeln!(text).unwrap();
        let read = crate::store::read_document(&connection, document).unwrap();
        assert_eq!(read.chunks.len(), count as usize);
        for part in &read.chunks {
            names.insert(first + part.index as u32, format!("{name}#{}", part.index));
            writeln!(text, "  {} {:?} {:?}", part.index, part.heading, part.text).unwrap();
        }
    }
    for (what, number) in [
        ("SELECT count(*) FROM kb_chunks", names.len()),
        (
            "SELECT count(*) FROM kb_bodies WHERE document NOT IN (SELECT document FROM kb_documents)",
            0,
        ),
        (
            "SELECT count(*) FROM kb_fields WHERE document NOT IN (SELECT document FROM kb_documents)",
            0,
        ),
    ] {
        let count: usize = connection.query_row(what, [], |row| row.get(0)).unwrap();
        assert_eq!(count, number, "{what}");
    }
    for line in index_lines(&connection, &names) {
        writeln!(text, "{line}").unwrap();
    }
    for sql in [
        "SELECT key || value || id FROM kb_fields JOIN kb_documents USING (document) ORDER BY 1",
        "SELECT name || source_id || stamp || reason FROM kb_skips JOIN kb_sources USING (source) ORDER BY 1",
        "SELECT name || kind || coalesce(state, '') || coalesce(problem, '') FROM kb_sources ORDER BY 1",
        "SELECT name || dimensions FROM kb_models ORDER BY 1",
    ] {
        let mut statement = connection.prepare(sql).unwrap();
        let lines = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        lines.for_each(|line| writeln!(text, "{}", line.unwrap()).unwrap());
    }
    text
}

/// Terms with the chunks they stand in, and the vector of each chunk.
fn index_lines(connection: &Connection, names: &BTreeMap<u32, String>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut alive = 0;
    every_posting(connection, |term, chunk, counts, is_alive| {
        match (names.get(&chunk), is_alive) {
            (Some(name), true) => lines.push(format!("{term} {name} {counts:?}")),
            (None, false) => (),
            other => panic!("chunk {chunk} of {term} is {other:?}"),
        }
    })
    .unwrap();
    let sql =
        "SELECT segment, name, dimensions, vectors FROM kb_vectors JOIN kb_models USING (model)";
    let mut statement =
        connection.prepare("SELECT segment, alive, chunks FROM kb_segments").unwrap();
    let mut segments = statement.query([]).unwrap();
    while let Some(row) = segments.next().unwrap() {
        let segment: i64 = row.get(0).unwrap();
        let bytes = row.get_ref(1).unwrap().as_blob().unwrap();
        let bits = RowBitmap::from_bytes(bytes, row.get(2).unwrap()).unwrap();
        alive += bits.count_set();
        let chunks = crate::index::chunks_in_segment(connection, segment).unwrap();
        let mut of = connection.prepare(&format!("{sql} WHERE segment = {segment}")).unwrap();
        let mut rows = of.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let (model, width): (String, usize) = (row.get(1).unwrap(), row.get(2).unwrap());
            let vectors: Vec<u8> = row.get(3).unwrap();
            assert_eq!(vectors.len(), chunks.len() * width);
            for (at, chunk) in chunks.iter().enumerate().filter(|(at, _)| bits.get(*at)) {
                let sum: u64 = vectors[at * width..(at + 1) * width]
                    .iter()
                    .fold(7, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
                lines.push(format!("vector {model} {} {sum:x}", names[chunk]));
            }
        }
    }
    assert_eq!(alive, names.len(), "every chunk is alive in one segment");
    lines.sort();
    lines
}
