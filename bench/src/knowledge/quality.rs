//! Which documents answer a question: the three modes of the real knowledge
//! base, from sync to search, beside what others do.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use moonlark_core::tool::BoxFuture;
use moonlark_core::{Problem, Value};
use moonlark_knowledge::{
    ItemContent, KnowledgeDatabase, KnowledgeSettings, LocalModelFolder, ScanFinding, ScanOutcome,
    SearchMode, SearchQuery, SourceConnector, SourceItem, SourceScan, SyncOptions, TextEmbedder,
};
use tokio::runtime::Runtime;

use super::harness::Harness;
use super::weight::{self, Curve};
use crate::bootstrap::mean_interval;
use crate::plain_bm25::PlainBm25;
use crate::porter_fts5::PorterFts5;
use crate::retrieval::{DEPTH, Document, Set, Worth};

/// The way that is the product's, and its two parts.
const WAYS: [&str; 7] = [
    "**hybrid**",
    "keyword",
    "semantic",
    "FTS5, Porter",
    "plain BM25",
    "Context Harness: keyword",
    "hybrid",
];
/// The same by a model on disk.
const MODEL_WAYS: [&str; 2] = ["model: hybrid", "model: semantic"];

/// One set by all of them, question by question.
type WorthByWay = Vec<Vec<Worth>>;

pub(super) fn section(title: &str, sets: &[Set], model: Option<&Path>) -> Result<String> {
    let mut page = String::new();
    writeln!(page, "## {title}\n")?;
    writeln!(
        page,
        "Questions with known answers, asked of a knowledge base that was synced from the set: \
         documents are cut into chunks, found by their best one, and compared as a whole. \
         `hybrid`, `keyword` and `semantic` are the modes of search; `semantic` is the embedding \
         in the binary alone. FTS5 is SQLite's, with Porter stemming, any word of the question and \
         its own `bm25`, over whole documents. Plain BM25 is the textbook: lower case, nothing stemmed, nothing left \
         out, whole documents. Context Harness is its ranking rebuilt on the same vectors: words as \
         FTS5 takes a question (every one has to be there), and both stretched from 0 to 1 and added \
         with α 0.6. Figures in brackets are 95 % confidence intervals, by drawing the questions of \
         each set again 1,000 times.\n"
    )?;
    let mut measured: Vec<WorthByWay> = Vec::new();
    let mut curves = Vec::new();
    for set in sets {
        let (mut worth, curve) = measure(set)?;
        if let Some(model) = model {
            worth.extend(measure_model(set, model)?);
        }
        measured.push(worth);
        curves.push(curve);
    }
    let ways: Vec<&str> =
        if model.is_some() { [&WAYS[..], &MODEL_WAYS].concat() } else { WAYS.into() };
    for (figure, of) in FIGURES {
        writeln!(page, "### {figure}\n")?;
        writeln!(page, "| set | documents | questions | {} |", ways.join(" | "))?;
        writeln!(page, "|---|---|---|{}", "---|".repeat(ways.len()))?;
        for (set, worth) in sets.iter().zip(&measured) {
            let sizes = format!("{} | {}", set.documents.len(), set.questions.len());
            writeln!(page, "| {} | {sizes} | {} |", set.name, row(&[worth], of))?;
        }
        let all: Vec<&WorthByWay> = measured.iter().collect();
        writeln!(page, "| **mean of the sets** | | | {} |\n", row(&all, of))?;
    }
    writeln!(page, "{}\n", compare_with_parts(sets, &measured))?;
    let better =
        measured.iter().map(|worth| Worth::mean(&worth[1]).ndcg.max(Worth::mean(&worth[2]).ndcg));
    page.push_str(&weight::section(sets, &curves, &better.collect::<Vec<_>>())?);
    Ok(page)
}

type Figure = fn(&Worth) -> f64;

const FIGURES: [(&str, Figure); 3] =
    [("nDCG@10", |it| it.ndcg), ("recall@10", |it| it.recall_all), ("MRR@10", |it| it.mrr)];

/// The mean of these sets by each way, with the interval of the first.
fn row(sets: &[&WorthByWay], of: Figure) -> String {
    let values = |way: usize| -> Vec<Vec<f64>> {
        sets.iter().map(|set| set[way].iter().map(of).collect()).collect()
    };
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
    let ways = sets.first().map_or(0, |set| set.len());
    let cells = (0..ways).map(|way| {
        let values = values(way);
        let means: Vec<f64> = values.iter().map(|set| mean(set)).collect();
        let cell = format!("{:.3}", mean(&means));
        if way > 0 {
            return cell;
        }
        let [low, high] = mean_interval(&values);
        format!("**{cell}** ({low:.3}–{high:.3})")
    });
    cells.collect::<Vec<_>>().join(" | ")
}

/// On how many sets hybrid is no worse than the better of its parts, and how sure it is
/// where it is worse.
fn compare_with_parts(sets: &[Set], measured: &[WorthByWay]) -> String {
    let ndcg = |worth: &[Worth]| worth.iter().map(|it| it.ndcg).collect::<Vec<f64>>();
    let mut worse = Vec::new();
    for (set, worth) in sets.iter().zip(measured) {
        let mean = |way: usize| Worth::mean(&worth[way]).ndcg;
        let better = if mean(1) >= mean(2) { 1 } else { 2 };
        if mean(0) + 0.0005 < mean(better) {
            let pairs = ndcg(&worth[0]).into_iter().zip(ndcg(&worth[better]));
            let [low, high] = mean_interval(&[pairs.map(|(a, b)| a - b).collect()]);
            let by = mean(0) - mean(better);
            worse.push(format!("{} by {by:+.3} ({low:+.3} to {high:+.3})", set.name));
        }
    }
    let no_worse = sets.len() - worse.len();
    let mut said = format!(
        "Hybrid is no worse than the better of keyword and semantic on {no_worse} of {} sets",
        sets.len()
    );
    if !worse.is_empty() {
        said += &format!("; worse on {}, with the interval of the difference", worse.join(", "));
    }
    said + "."
}

fn measure(set: &Set) -> Result<(WorthByWay, Curve)> {
    let runtime = Runtime::new()?;
    let folder = tempfile::tempdir()?;
    let knowledge = sync_set(&runtime, folder.path(), set, KnowledgeSettings::default())?;
    let mut worth = ask_modes(
        &runtime,
        &knowledge,
        set,
        &[SearchMode::Hybrid, SearchMode::Keyword, SearchMode::Semantic],
    )?;
    let curve = runtime.block_on(weight::curve(&knowledge, set))?;
    let (plain, harness) = (PlainBm25::new(&set.documents), Harness::new(&set.documents));
    let fts5 = PorterFts5::new(&set.documents)?;
    worth.extend([
        set.judge_each(|question| fts5.rank(question)),
        set.judge_each(|question| plain.rank(question)),
        set.judge_each(|question| harness.keyword(question)),
        set.judge_each(|question| harness.hybrid(question)),
    ]);
    Ok((worth, curve))
}

/// The order of [`MODEL_WAYS`]. What it takes is said on the way.
fn measure_model(set: &Set, model: &Path) -> Result<WorthByWay> {
    let runtime = Runtime::new()?;
    let folder = tempfile::tempdir()?;
    let models = LocalModelFolder::new(folder.path().join("models"));
    models.add_model(model, Some("model"))?;
    let embedder = TextEmbedder::Local(models.open_model("model")?);
    let settings = KnowledgeSettings { embedder, ..KnowledgeSettings::default() };
    let began = Instant::now();
    let knowledge = sync_set(&runtime, folder.path(), set, settings)?;
    let synced = began.elapsed();
    let began = Instant::now();
    let worth = ask_modes(&runtime, &knowledge, set, &[SearchMode::Hybrid, SearchMode::Semantic])?;
    let each = began.elapsed() / (2 * set.questions.len().max(1)) as u32;
    eprintln!("{}: synced with the model in {synced:.1?}, a search takes {each:.1?}", set.name);
    Ok(worth)
}

fn sync_set(
    runtime: &Runtime,
    folder: &Path,
    set: &Set,
    settings: KnowledgeSettings,
) -> Result<KnowledgeDatabase> {
    runtime.block_on(async {
        let knowledge = KnowledgeDatabase::open(&folder.join("knowledge.db"), settings).await?;
        let corpus = Arc::new(Corpus { documents: set.documents.clone().into() });
        let summary = knowledge.sync_source("set", "bench", corpus, SyncOptions::default()).await?;
        // A document without a word is none.
        let all = summary.added + summary.skipped.count;
        ensure!(all == set.documents.len() as u64, "{}: {summary:?}", set.name);
        Ok(knowledge)
    })
}

fn ask_modes(
    runtime: &Runtime,
    knowledge: &KnowledgeDatabase,
    set: &Set,
    modes: &[SearchMode],
) -> Result<WorthByWay> {
    let mut problem = None;
    let mut by = |mode: &SearchMode| {
        set.judge_each(|question| match runtime.block_on(ask(knowledge, question, *mode)) {
            Ok(found) => found,
            Err(met) => {
                problem = Some(met);
                Vec::new()
            }
        })
    };
    let worth = modes.iter().map(&mut by).collect();
    match problem {
        Some(problem) => Err(problem.into()),
        None => Ok(worth),
    }
}

async fn ask(
    knowledge: &KnowledgeDatabase,
    question: &str,
    mode: SearchMode,
) -> Result<Vec<usize>, Problem> {
    let answer =
        knowledge.search(SearchQuery { mode, limit: DEPTH, ..SearchQuery::new(question) }).await?;
    Ok(answer.hits.iter().filter_map(|hit| hit.source_id.parse().ok()).collect())
}

/// The documents of a set, by their numbers.
struct Corpus {
    documents: Arc<[Document]>,
}

impl SourceConnector for Corpus {
    fn scan(self: Arc<Self>, scan: SourceScan) -> BoxFuture<moonlark_core::Result<ScanOutcome>> {
        let documents = self.documents.clone();
        Box::pin(async move {
            for (number, document) in documents.iter().enumerate() {
                let item = ScanFinding::Item(Box::new(item(number, document)));
                if scan.out.send(item).await.is_err() {
                    return Err(Problem::internal("the sync ended before the scan"));
                }
            }
            Ok(ScanOutcome { complete: true, state: Value::Null })
        })
    }
}

fn item(number: usize, document: &Document) -> SourceItem {
    SourceItem {
        source_id: number.to_string(),
        title: (!document.title.is_empty()).then(|| document.title.clone()),
        content: ItemContent::Text(document.text.clone()),
        content_type: Some("text/plain".to_owned()),
        ..SourceItem::default()
    }
}
