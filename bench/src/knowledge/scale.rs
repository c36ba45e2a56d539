//! How fast and how large: a hundred thousand chunks of real text, and a million
//! made from it.

mod corpus;
mod searching;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use moonlark_knowledge::{KnowledgeDatabase, KnowledgeSettings, SourceConnector, SyncOptions};

use crate::process::own_cpu;
use crate::report::{bytes, micros, millis};
use corpus::{Mixed, UpTo};
use searching::{Searched, Times};

/// Chunks of the two sizes, and questions for each.
const REAL: u64 = 100_000;
const REAL_QUESTIONS: usize = 1_000;
const MIXED: u64 = 1_000_000;
const MIXED_QUESTIONS: usize = 300;
/// What a hybrid search of a hundred thousand chunks may take.
const GOAL: Duration = Duration::from_millis(20);

#[derive(Args)]
pub struct Scale {
    /// A folder of text to sync: at least 150 MB of sources and documentation, such as `~/.cargo/registry/src`.
    #[arg(long, value_name = "DIR")]
    text: Option<PathBuf>,
    /// Without the million chunks, which take some minutes and 3 GB of disk.
    #[arg(long)]
    small: bool,
    /// Search this knowledge base, in a process of its own.
    #[arg(long, hide = true, requires = "questions")]
    searching: Option<PathBuf>,
    /// The questions to ask, one on a line.
    #[arg(long, hide = true)]
    questions: Option<PathBuf>,
}

impl Scale {
    /// Whether this process is only there to search; then it has done so.
    pub(super) fn search_only(&self) -> Result<bool> {
        match (&self.searching, &self.questions) {
            (Some(base), Some(questions)) => searching::child(base, questions).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Nothing without a folder of text.
    pub(super) fn section(&self) -> Result<String> {
        let Some(text) = &self.text else { return Ok(String::new()) };
        let folder = tempfile::tempdir()?;
        let mut page = String::new();
        writeln!(page, "## How fast, how large\n")?;
        writeln!(
            page,
            "Real text: sources and documentation in a folder, by the filesystem connector, until \
             there are {REAL} chunks. The million is made from it: documents of paragraphs drawn from \
             all over the real ones, each with words of its own. Questions are three to ten words that \
             stand together somewhere in the text. Sync is from nothing, with vectors of the model in \
             the binary; search is in a fresh process, one question after the other, without a warm-up \
             but for the first one, which reads the vectors into memory.\n"
        )?;
        let real = Base::new(folder.path().join("real.db"));
        let synced = real.sync(|chunks| Ok(Arc::new(UpTo::new(text, chunks, REAL)?)))?;
        ensure!(
            synced.chunks >= REAL * 9 / 10,
            "{} has {} chunks of text; {REAL} are wanted",
            text.display(),
            synced.chunks
        );
        let questions = corpus::questions(&real.file, REAL_QUESTIONS)?;
        let searched = searching::measure(&real.file, &questions)?;
        let mut rows = vec![(synced, searched)];
        if !self.small {
            let mixed = Base::new(folder.path().join("mixed.db"));
            let paragraphs = corpus::paragraphs(&real.file)?;
            let synced =
                mixed.sync(|chunks| Ok(Arc::new(Mixed::new(paragraphs, chunks, MIXED))))?;
            let questions = corpus::questions(&mixed.file, MIXED_QUESTIONS)?;
            rows.push((synced, searching::measure(&mixed.file, &questions)?));
        }
        tables(&mut page, &rows)?;
        Ok(page)
    }
}

fn tables(page: &mut String, rows: &[(Synced, Searched)]) -> Result<()> {
    writeln!(
        page,
        "| chunks | documents | text | sync | chunks/s | MB/s | CPU | file | of the text |"
    )?;
    writeln!(page, "|---|---|---|---|---|---|---|---|---|")?;
    for (it, _) in rows {
        let seconds = it.took.as_secs_f64();
        writeln!(
            page,
            "| {} | {} | {} | {} | {:.0} | {:.1} | {} | {} | {:.2} × |",
            it.chunks,
            it.documents,
            bytes(it.text as f64),
            millis(seconds),
            it.chunks as f64 / seconds,
            it.text as f64 / 1e6 / seconds,
            millis(it.cpu.as_secs_f64()),
            bytes(it.file as f64),
            it.file as f64 / it.text as f64
        )?;
    }
    writeln!(
        page,
        "\n| chunks | keyword p50 | p99 | semantic p50 | p99 | hybrid p50 | p99 | first search | memory |"
    )?;
    writeln!(page, "|---|---|---|---|---|---|---|---|---|")?;
    for (it, searched) in rows {
        let of = |times: &Times| format!("{} | {}", micros(times.p50), micros(times.p99));
        let [keyword, semantic, hybrid] = &searched.modes;
        writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} |",
            it.chunks,
            of(keyword),
            of(semantic),
            of(hybrid),
            millis(searched.first),
            bytes(searched.resident)
        )?;
    }
    if let Some((_, searched)) = rows.first() {
        let met = searched.modes[2].p99 <= GOAL.as_secs_f64() * 1e6;
        let met = if met { "met" } else { "**not met**" };
        writeln!(
            page,
            "\nGoal: hybrid p99 of at most {} at {REAL} chunks: {met}.\n",
            millis(GOAL.as_secs_f64())
        )?;
    }
    Ok(())
}

/// A knowledge base in the making.
struct Base {
    file: PathBuf,
}

struct Synced {
    documents: u64,
    chunks: u64,
    /// Bytes.
    text: u64,
    file: u64,
    took: Duration,
    cpu: Duration,
}

impl Base {
    fn new(file: PathBuf) -> Base {
        Base { file }
    }

    /// `connector` is told how many chunks there are so far.
    fn sync(
        &self,
        connector: impl FnOnce(Arc<AtomicU64>) -> Result<Arc<dyn SourceConnector>>,
    ) -> Result<Synced> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let chunks = Arc::new(AtomicU64::new(0));
        let connector = connector(chunks.clone())?;
        let options = SyncOptions {
            progress: Arc::new(move |advance| chunks.store(advance.chunks, Ordering::Relaxed)),
            ..SyncOptions::default()
        };
        let (began, cpu) = (Instant::now(), own_cpu());
        let summary = runtime.block_on(async {
            let knowledge =
                KnowledgeDatabase::open(&self.file, KnowledgeSettings::default()).await?;
            knowledge.sync_source("text", "filesystem", connector, options).await
        })?;
        let synced = Synced {
            documents: summary.added,
            chunks: summary.chunks,
            text: summary.bytes,
            took: began.elapsed(),
            cpu: own_cpu() - cpu,
            file: size(&self.file)?,
        };
        eprintln!("synced {} chunks in {}", synced.chunks, millis(synced.took.as_secs_f64()));
        Ok(synced)
    }
}

fn size(file: &Path) -> Result<u64> {
    let size = std::fs::metadata(file).with_context(|| format!("no {}", file.display()))?;
    Ok(size.len())
}
