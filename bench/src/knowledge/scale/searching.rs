//! Searching, in a process that does nothing else.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use moonlark_knowledge::{KnowledgeDatabase, KnowledgeSettings, SearchMode, SearchQuery};
use serde::{Deserialize, Serialize};

use crate::process::status;

#[derive(Serialize, Deserialize)]
pub(super) struct Searched {
    /// Keyword, semantic, hybrid.
    pub(super) modes: [Times; 3],
    /// Seconds of the first search, by both.
    pub(super) first: f64,
    /// Bytes of memory in the end.
    pub(super) resident: f64,
}

/// Microseconds.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Times {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

pub(super) fn measure(base: &Path, questions: &[String]) -> Result<Searched> {
    let asked = tempfile::NamedTempFile::new()?;
    std::fs::write(asked.path(), questions.join("\n"))?;
    let output = Command::new(std::env::current_exe()?)
        .args(["knowledge", "--searching"])
        .arg(base)
        .arg("--questions")
        .arg(asked.path())
        .output()
        .context("cannot start the search")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the search failed: {said}");
    eprintln!("{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).context("the search says no figures")
}

/// The other side of [`measure`].
pub(super) fn child(base: &Path, questions: &Path) -> Result<()> {
    let questions = std::fs::read_to_string(questions)?;
    let questions: Vec<&str> = questions.lines().collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let knowledge = KnowledgeDatabase::open(base, KnowledgeSettings::default()).await?;
        let first = ask(&knowledge, "how to read a file", SearchMode::Hybrid).await?.as_secs_f64();
        let mut modes = [Times::default(); 3];
        for (times, mode) in
            modes.iter_mut().zip([SearchMode::Keyword, SearchMode::Semantic, SearchMode::Hybrid])
        {
            let mut took = Vec::with_capacity(questions.len());
            for question in &questions {
                took.push(ask(&knowledge, question, mode).await?);
            }
            took.sort_unstable();
            let at = |share: f64| took[(took.len() as f64 * share) as usize].as_secs_f64() * 1e6;
            *times = Times { p50: at(0.5), p99: at(0.99) };
        }
        let resident = status(std::process::id())?.resident as f64;
        println!("{}", serde_json::to_string(&Searched { modes, first, resident })?);
        Ok(())
    })
}

async fn ask(knowledge: &KnowledgeDatabase, question: &str, mode: SearchMode) -> Result<Duration> {
    let began = Instant::now();
    let answer = knowledge.search(SearchQuery { mode, ..SearchQuery::new(question) }).await?;
    let took = began.elapsed();
    ensure!(!answer.hits.is_empty() || mode != SearchMode::Hybrid, "nothing answers {question}");
    Ok(took)
}
