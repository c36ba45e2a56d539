//! The text: real files up to a number of chunks, documents mixed from it, and
//! questions about it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use moonlark_core::Value;
use moonlark_core::tool::BoxFuture;
use moonlark_knowledge::{
    FilesystemConnector, FilesystemSettings, ItemContent, ScanFinding, ScanOutcome,
    SourceConnector, SourceItem, SourceScan,
};
use rusqlite::Connection;
use tokio::sync::mpsc;

/// What is text among the files of a folder of packages.
const TEXT: [&str; 8] =
    ["**/*.md", "**/*.txt", "**/*.rs", "**/*.html", "**/*.py", "**/*.js", "**/*.c", "**/*.h"];
/// Paragraphs of a mixed document.
const TOGETHER: u64 = 12;

/// The files of a folder, until there are enough chunks.
pub(super) struct UpTo {
    files: Arc<FilesystemConnector>,
    chunks: Arc<AtomicU64>,
    most: u64,
}

impl UpTo {
    pub(super) fn new(folder: &Path, chunks: Arc<AtomicU64>, most: u64) -> Result<UpTo> {
        let files = FilesystemConnector::new(FilesystemSettings {
            name: "text".to_owned(),
            root: folder.to_owned(),
            include: TEXT.map(str::to_owned).to_vec(),
            exclude: Vec::new(),
            hidden: false,
            max_file: 1 << 20,
            url: None,
        })?;
        Ok(UpTo { files: Arc::new(files), chunks, most })
    }
}

impl SourceConnector for UpTo {
    fn scan(self: Arc<Self>, scan: SourceScan) -> BoxFuture<moonlark_core::Result<ScanOutcome>> {
        let (files, chunks, most) = (self.files.clone(), self.chunks.clone(), self.most);
        Box::pin(async move {
            let (out, mut found) = mpsc::channel(4);
            let SourceScan { known, state, out: forward } = scan;
            let reading =
                tokio::spawn(async move { files.scan(SourceScan { known, state, out }).await });
            while let Some(found) = found.recv().await {
                if chunks.load(Ordering::Relaxed) >= most || forward.send(found).await.is_err() {
                    break;
                }
            }
            // It ends when nobody listens any more.
            drop(found);
            let _ = reading.await;
            Ok(ScanOutcome { complete: true, state: Value::Null })
        })
    }
}

/// Documents of real paragraphs from everywhere, until there are enough chunks.
pub(super) struct Mixed {
    paragraphs: Arc<Vec<String>>,
    chunks: Arc<AtomicU64>,
    most: u64,
}

impl Mixed {
    pub(super) fn new(paragraphs: Vec<String>, chunks: Arc<AtomicU64>, most: u64) -> Mixed {
        Mixed { paragraphs: Arc::new(paragraphs), chunks, most }
    }
}

impl SourceConnector for Mixed {
    fn scan(self: Arc<Self>, scan: SourceScan) -> BoxFuture<moonlark_core::Result<ScanOutcome>> {
        let (paragraphs, chunks, most) = (self.paragraphs.clone(), self.chunks.clone(), self.most);
        Box::pin(async move {
            let mut random = Random(7);
            let mut number = 0_u64;
            while chunks.load(Ordering::Relaxed) < most {
                let mut text = format!("# Document{number} about subject{}\n", number % 50_021);
                for _ in 0..TOGETHER {
                    text.push('\n');
                    text.push_str(&paragraphs[random.below(paragraphs.len())]);
                    text.push('\n');
                }
                let item = SourceItem {
                    source_id: format!("{number}.md"),
                    content: ItemContent::Text(text),
                    ..SourceItem::default()
                };
                if scan.out.send(ScanFinding::Item(Box::new(item))).await.is_err() {
                    break;
                }
                number += 1;
            }
            Ok(ScanOutcome { complete: true, state: Value::Null })
        })
    }
}

/// What the chunks of a knowledge base say: one in three of them.
pub(super) fn paragraphs(base: &Path) -> Result<Vec<String>> {
    let connection = Connection::open(base)?;
    let mut statement = connection.prepare(
        "SELECT substr(CAST(text AS BLOB), kb_chunks.start + 1, length)
         FROM kb_chunks JOIN kb_bodies USING (document) WHERE kb_bodies.start = 0 AND chunk % 3 = 0",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(String::from_utf8_lossy(row.get_ref(0)?.as_blob()?).into_owned())
    })?;
    let long = |text: &rusqlite::Result<String>| text.as_ref().map_or(true, |it| it.len() > 200);
    rows.filter(long).map(|text| text.context("cannot read a chunk")).collect()
}

/// Words that stand together somewhere in the text; the same every time.
pub(super) fn questions(base: &Path, most: usize) -> Result<Vec<String>> {
    let connection = Connection::open(base)?;
    let chunks: usize =
        connection.query_row("SELECT max(chunk) + 1 FROM kb_chunks", [], |row| row.get(0))?;
    let mut statement = connection.prepare(
        "SELECT substr(CAST(text AS BLOB), kb_chunks.start + 1, length)
         FROM kb_chunks JOIN kb_bodies USING (document) WHERE kb_bodies.start = 0 AND chunk = ?1",
    )?;
    let mut random = Random(11);
    let mut questions = Vec::new();
    while questions.len() < most {
        let text = statement.query_row([random.below(chunks)], |row| {
            Ok(String::from_utf8_lossy(row.get_ref(0)?.as_blob()?).into_owned())
        });
        // One in the later pieces of a long document.
        let Ok(text) = text else { continue };
        let words: Vec<&str> = text
            .split(|letter: char| !letter.is_alphanumeric())
            .filter(|word| word.chars().filter(|letter| letter.is_alphabetic()).count() > 1)
            .collect();
        let wanted = 3 + random.below(8);
        if words.len() > wanted {
            let start = random.below(words.len() - wanted);
            questions.push(words[start..start + wanted].join(" "));
        }
    }
    Ok(questions)
}

/// Numbers that look random and are always the same.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most.max(1)
    }
}
