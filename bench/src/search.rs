//! `cargo x bench search`: how well `search_docs` ranks, and how fast.

use std::fmt::Write;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use moonlark_discovery::text_index::{
    IndexEntry, TextIndex, TextIndexBuilder, split_first_sentence,
};

use super::machine;
use super::plain_bm25::PlainBm25;
use super::process::own_cpu;
use super::report::{bytes, micros, millis};
use super::retrieval::{DEPTH, Document, Set, Worth, load};

/// How many tools there are when speed is measured.
const SIZES: [usize; 3] = [500, 5_000, 50_000];
/// Questions for one size, and how often each is asked: the best time counts,
/// so that what else the machine does does not.
const QUESTIONS: usize = 1_000;
const TIMES: usize = 5;

#[derive(Args)]
pub struct Search {
    /// A folder of retrieval sets: a folder each, with corpus.jsonl, queries.jsonl and qrels.tsv.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Write the report to this file as well.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Search {
    pub fn run(self) -> Result<()> {
        let sets = load(&self.data)?;
        let page = page(&sets)?;
        println!("{page}");
        if let Some(out) = &self.out {
            std::fs::write(out, &page)
                .with_context(|| format!("cannot write {}", out.display()))?;
        }
        Ok(())
    }
}

fn page(sets: &[Set]) -> Result<String> {
    let mut page = String::new();
    writeln!(page, "# Benchmarks: search\n")?;
    writeln!(page, "Written by `cargo x bench search`. {}\n", machine::describe()?)?;
    writeln!(page, "## Which function is meant\n")?;
    writeln!(
        page,
        "The ranking of `search_docs`, on sets of questions with known answers: titles as names, \
         texts as descriptions. Sets that begin with `tools` are tools, the others documents. \
         Beside it, the same by words alone, as artifacts are searched. \
         The floor is plain BM25 over the same text: lower case, no stemming, no stop words. \
         The weights of the ranking were chosen by trying some forty settings on the five public \
         sets, so figures on those are a little better than on others.\n"
    )?;
    writeln!(
        page,
        "| set | documents | questions | nDCG@10 | recall@5 | first is right | by words: nDCG@10 | recall@5 | first is right | floor: nDCG@10 | recall@5 | first is right |"
    )?;
    writeln!(page, "|---|---|---|---|---|---|---|---|---|---|---|---|")?;
    let (mut ours, mut words, mut floors) = (Vec::new(), Vec::new(), Vec::new());
    for set in sets {
        let (whole, by_words) = (
            index(TextIndexBuilder::with_vectors(), &set.documents),
            index(TextIndexBuilder::default(), &set.documents),
        );
        let floor = PlainBm25::new(&set.documents);
        ours.push(set.judge(|question| rank(&whole, question)));
        words.push(set.judge(|question| rank(&by_words, question)));
        floors.push(set.judge(|question| floor.rank(question)));
        let at = ours.len() - 1;
        let figures = figures([ours[at], words[at], floors[at]]);
        let sizes = format!("{} | {}", set.documents.len(), set.questions.len());
        writeln!(page, "| {} | {sizes} | {figures} |", set.name)?;
    }
    let means = figures([&ours, &words, &floors].map(|all| Worth::mean(all)));
    writeln!(page, "| **mean of the sets** | | | {means} |\n")?;
    writeln!(page, "## How fast\n")?;
    writeln!(
        page,
        "The questions of the tool sets, asked of so many tools: those of the sets, repeated \
         under other names. A question's time is the best of five. Memory is what the index holds.\n"
    )?;
    writeln!(page, "| tools | p50 | p99 | CPU to make the index | memory |")?;
    writeln!(page, "|---|---|---|---|---|")?;
    for size in SIZES {
        writeln!(page, "{}", speed(sets, size)?)?;
    }
    Ok(page)
}

fn figures([our, words, floor]: [Worth; 3]) -> String {
    let of = |it: Worth| format!("{:.3} | {:.3}", it.recall, it.first);
    format!(
        "**{:.3}** | {} | {:.3} | {} | {:.3} | {}",
        our.ndcg,
        of(our),
        words.ndcg,
        of(words),
        floor.ndcg,
        of(floor)
    )
}

fn speed(sets: &[Set], size: usize) -> Result<String> {
    let of_tools = || sets.iter().filter(|set| set.is_of_tools());
    let documents: Vec<&Document> = of_tools().flat_map(|set| &set.documents).collect();
    let questions: Vec<&str> =
        of_tools().flat_map(|set| &set.questions).map(|(text, _)| text.as_str()).collect();
    ensure!(!documents.is_empty() && !questions.is_empty(), "there is no set of tools");
    let varied: Vec<(String, String)> = (0..size)
        .map(|number| {
            let (it, copy) = (documents[number % documents.len()], number / documents.len());
            match copy {
                0 => (it.title.clone(), it.text.clone()),
                copy => (format!("{}_v{copy}", it.title), format!("{} Variant v{copy}.", it.text)),
            }
        })
        .collect();
    let began = own_cpu();
    let mut builder = TextIndexBuilder::with_vectors();
    for (title, text) in &varied {
        builder.add_entry(&entry(title, text));
    }
    let index = builder.build_index();
    let made = own_cpu() - began;
    let mut times: Vec<Duration> = questions
        .iter()
        .cycle()
        .take(QUESTIONS)
        .map(|question| (0..TIMES).map(|_| ask(&index, question)).min().unwrap_or_default())
        .collect();
    times.sort_unstable();
    let at = |share: f64| micros(times[(times.len() as f64 * share) as usize].as_secs_f64() * 1e6);
    Ok(format!(
        "| {size} | {} | {} | {} | {} |",
        at(0.5),
        at(0.99),
        millis(made.as_secs_f64()),
        bytes(index.memory_bytes() as f64)
    ))
}

fn ask(index: &TextIndex, question: &str) -> Duration {
    let began = Instant::now();
    black_box(index.search(black_box(question), 5, |_| true));
    began.elapsed()
}

fn index(mut builder: TextIndexBuilder, documents: &[Document]) -> TextIndex {
    for it in documents {
        builder.add_entry(&entry(&it.title, &it.text));
    }
    builder.build_index()
}

/// As a tool of this name and description is indexed.
fn entry<'a>(title: &'a str, text: &'a str) -> IndexEntry<'a> {
    let (summary, rest) = split_first_sentence(text);
    let summaries = [summary].into_iter().filter(|it| !it.is_empty()).collect();
    IndexEntry { names: vec![title], summaries, body: vec![rest], ..IndexEntry::default() }
}

fn rank(index: &TextIndex, question: &str) -> Vec<usize> {
    let hits = index.search(question, DEPTH, |_| true);
    hits.into_iter().map(|hit| hit.entry as usize).collect()
}
