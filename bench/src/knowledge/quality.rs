//! Which documents answer a question: the three modes of the real knowledge
//! base, from sync to search, beside what others do.

use std::fmt::Write;
use std::sync::Arc;

use anyhow::{Result, ensure};
use moonlark_core::tool::BoxFuture;
use moonlark_core::{Problem, Value};
use moonlark_knowledge::{
    ItemContent, KnowledgeDatabase, KnowledgeSettings, ScanFinding, ScanOutcome, SearchMode,
    SearchQuery, SourceConnector, SourceItem, SourceScan, SyncOptions,
};
use tokio::runtime::Runtime;

use super::harness::Harness;
use super::weight::{self, Curve};
use crate::plain_bm25::PlainBm25;
use crate::porter_fts5::PorterFts5;
use crate::retrieval::{DEPTH, Document, Set, Worth};

const WAYS: [&str; 7] = [
    "**hybrid**",
    "keyword",
    "semantic",
    "FTS5, Porter",
    "plain BM25",
    "Context Harness: keyword",
    "hybrid",
];

/// One set by all of them.
type WorthByWay = [Worth; WAYS.len()];

pub(super) fn section(sets: &[Set]) -> Result<String> {
    let mut page = String::new();
    writeln!(page, "## Which document answers\n")?;
    writeln!(
        page,
        "Questions with known answers, asked of a knowledge base that was synced from the set: \
         documents are cut into chunks, found by their best one, and compared as a whole. \
         `hybrid`, `keyword` and `semantic` are the modes of search; `semantic` is the embedding \
         in the binary alone. FTS5 is SQLite's, with Porter stemming, any word of the question and \
         its own `bm25`, over whole documents. Plain BM25 is the textbook: lower case, nothing stemmed, nothing left \
         out, whole documents. Context Harness is its ranking rebuilt on the same vectors: words as \
         FTS5 takes a question (every one has to be there), and both stretched from 0 to 1 and added \
         with α 0.6.\n"
    )?;
    let mut measured: Vec<WorthByWay> = Vec::new();
    let mut curves = Vec::new();
    for set in sets {
        let (worth, curve) = measure(set)?;
        measured.push(worth);
        curves.push(curve);
    }
    for (figure, of) in FIGURES {
        writeln!(page, "### {figure}\n")?;
        writeln!(page, "| set | documents | questions | {} |", WAYS.join(" | "))?;
        writeln!(page, "|---|---|---|{}", "---|".repeat(WAYS.len()))?;
        for (set, worth) in sets.iter().zip(&measured) {
            let sizes = format!("{} | {}", set.documents.len(), set.questions.len());
            writeln!(page, "| {} | {sizes} | {} |", set.name, row(worth, of))?;
        }
        let mut means = [Worth::default(); WAYS.len()];
        for (way, mean) in means.iter_mut().enumerate() {
            *mean = Worth::mean(&measured.iter().map(|it| it[way]).collect::<Vec<_>>());
        }
        writeln!(page, "| **mean of the sets** | | | {} |\n", row(&means, of))?;
    }
    let better = measured.iter().map(|[_, keyword, semantic, ..]| keyword.ndcg.max(semantic.ndcg));
    page.push_str(&weight::section(sets, &curves, &better.collect::<Vec<_>>())?);
    Ok(page)
}

type Figure = fn(&Worth) -> f64;

const FIGURES: [(&str, Figure); 3] =
    [("nDCG@10", |it| it.ndcg), ("recall@10", |it| it.recall_all), ("MRR@10", |it| it.mrr)];

fn row(worth: &WorthByWay, of: Figure) -> String {
    let cells = worth.iter().map(|it| format!("{:.3}", of(it)));
    let mut cells: Vec<String> = cells.collect();
    cells[0] = format!("**{}**", cells[0]);
    cells.join(" | ")
}

fn measure(set: &Set) -> Result<(WorthByWay, Curve)> {
    let folder = tempfile::tempdir()?;
    let runtime = Runtime::new()?;
    let knowledge = runtime.block_on(async {
        let file = folder.path().join("knowledge.db");
        let knowledge = KnowledgeDatabase::open(&file, KnowledgeSettings::default()).await?;
        let corpus = Arc::new(Corpus { documents: set.documents.clone().into() });
        let summary = knowledge.sync_source("set", "bench", corpus, SyncOptions::default()).await?;
        // A document without a word is none.
        let all = summary.added + summary.skipped.count;
        ensure!(all == set.documents.len() as u64, "{}: {summary:?}", set.name);
        Ok(knowledge)
    })?;
    let mut problem = None;
    let mut by = |mode: SearchMode| {
        set.judge(|question| match runtime.block_on(ask(&knowledge, question, mode)) {
            Ok(found) => found,
            Err(met) => {
                problem = Some(met);
                Vec::new()
            }
        })
    };
    let modes = [SearchMode::Hybrid, SearchMode::Keyword, SearchMode::Semantic].map(&mut by);
    if let Some(problem) = problem {
        return Err(problem.into());
    }
    let curve = runtime.block_on(weight::curve(&knowledge, set))?;
    let (plain, harness) = (PlainBm25::new(&set.documents), Harness::new(&set.documents));
    let fts5 = PorterFts5::new(&set.documents)?;
    let [hybrid, keyword, semantic] = modes;
    let worth = [
        hybrid,
        keyword,
        semantic,
        set.judge(|question| fts5.rank(question)),
        set.judge(|question| plain.rank(question)),
        set.judge(|question| harness.keyword(question)),
        set.judge(|question| harness.hybrid(question)),
    ];
    Ok((worth, curve))
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
