//! `cargo x bench search`: how well `search_docs` answers, and how fast.

mod cross_validation;
mod judgement;
mod nothing_fits;
mod path_questions;
mod product_search;
mod question_sets;
mod speed;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use moonlark_discovery::FunctionIndex;
use moonlark_discovery::text_index::RankingWeights;
use tokio::runtime::Runtime;

use super::machine;
use super::plain_bm25::PlainBm25;
use super::porter_fts5::PorterFts5;
use super::retrieval::Set;
use cross_validation::cross_validate;
use judgement::{AnswerWorth, SetWorth, confidence_interval, mean_of_sets};
use product_search::ask_search_docs;
use question_sets::{
    QuestionFamily, QuestionSet, UnanswerableQuestions, load_apis, load_retrieval,
};

#[derive(Args)]
pub struct Search {
    /// A folder of retrieval sets: a folder each, with corpus.jsonl, queries.jsonl and qrels.tsv.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The questions about APIs.
    #[arg(long, value_name = "DIR", default_value = "bench/api_questions")]
    questions: PathBuf,
    /// Where tests/openapi/install.sh has put the documents of those APIs.
    #[arg(long, value_name = "DIR", default_value = "target/openapi")]
    documents: PathBuf,
    /// Without choosing weights anew, which takes longest.
    #[arg(long)]
    quick: bool,
    /// Say what each question found that has not what it asked for among the first five.
    #[arg(long)]
    missed: bool,
    /// Write the report to this file as well.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Search {
    pub fn run(self) -> Result<()> {
        let mut sets = load_retrieval(&self.data)?;
        let (of_apis, unanswerable) = load_apis(&self.questions, &self.documents)?;
        sets.extend(of_apis);
        if self.missed {
            return print_missed(&sets);
        }
        let page = write_page(&sets, &unanswerable, self.quick)?;
        println!("{page}");
        if let Some(out) = &self.out {
            std::fs::write(out, &page)
                .with_context(|| format!("cannot write {}", out.display()))?;
        }
        Ok(())
    }
}

/// The everyday questions about APIs, whose operations are taken for documents.
pub(super) fn everyday_documents(questions: &Path, documents: &Path) -> Result<Vec<Set>> {
    let (sets, _) = load_apis(questions, documents)?;
    let sets = sets.into_iter().filter(|set| set.family == QuestionFamily::Everyday);
    let set = |set: QuestionSet| {
        let questions = set.questions.into_iter().map(|asked| {
            let answers = asked.parts.into_iter().flatten().map(|(number, _)| (number, 1.0));
            (asked.text, answers.collect())
        });
        let name = format!("{}: everyday", set.catalog.name);
        Set { name, questions: questions.collect(), documents: set.catalog.documents.clone() }
    };
    Ok(sets.map(set).collect())
}

/// What ranks the functions of a catalog.
const WAYS: [&str; 5] =
    ["search_docs", "words alone", "vectors alone", "FTS5, Porter", "plain BM25"];

/// One set by all of [`WAYS`].
type WorthByWay = [SetWorth; WAYS.len()];

fn write_page(
    sets: &[QuestionSet],
    unanswerable: &[UnanswerableQuestions],
    quick: bool,
) -> Result<String> {
    let runtime = Runtime::new()?;
    let mut page = String::new();
    writeln!(page, "# Benchmarks: search\n")?;
    writeln!(page, "Written by `cargo x bench search`. {}\n", machine::describe()?)?;
    writeln!(page, "{ABOUT}\n")?;
    let judged =
        sets.iter().map(|set| judge_by_all_ways(&runtime, set)).collect::<Result<Vec<_>>>()?;
    let of_family = |family: QuestionFamily| {
        let sets = sets.iter().zip(&judged);
        sets.filter(move |(set, _)| set.family == family).collect::<Vec<_>>()
    };
    for (family, title, about) in FAMILIES {
        writeln!(page, "## {title}\n\n{about}\n")?;
        let sets = of_family(family);
        match family {
            QuestionFamily::Summary | QuestionFamily::Path => write_places(&mut page, &sets)?,
            _ => write_ndcg(&mut page, &sets)?,
        }
    }
    page.push_str(&nothing_fits::section(&runtime, sets, unanswerable)?);
    if !quick {
        writeln!(page, "## Weights\n\n{ABOUT_WEIGHTS}\n")?;
        let tuned: Vec<&QuestionSet> =
            sets.iter().filter(|set| set.family != QuestionFamily::Summary).collect();
        let validated = cross_validate(&tuned);
        page.push_str(&validated.section(&tuned)?);
    }
    writeln!(page, "## How fast\n\n{ABOUT_SPEED}\n")?;
    writeln!(
        page,
        "| tools | p50 | p99 | CPU to make the index | of one | bytes of one | memory |"
    )?;
    writeln!(page, "|---|---|---|---|---|---|---|")?;
    for size in speed::SIZES {
        writeln!(page, "{}", speed::measure_speed(sets, size)?)?;
    }
    Ok(page)
}

const ABOUT: &str = "Questions with known answers, asked of `search_docs` itself: a catalog, a \
    call of the tool, and the functions that its text names, in order. Names, summaries, \
    descriptions, paths and parameters are searched as they are in the product. Words alone and \
    vectors alone are the two parts of that ranking. The floors are SQLite's FTS5 with Porter \
    stemming (any word of the question, its own `bm25`) and textbook BM25 (lower case, no \
    stemming, no stop words), over name, description and path. Figures in brackets are 95 % \
    confidence intervals, by drawing the questions of each set again 1,000 times.";

const FAMILIES: [(QuestionFamily, &str, &str); 5] = [
    (
        QuestionFamily::Retrieval,
        "Public sets",
        "Titles are names, texts are descriptions. Sets that begin with `tools` are tools, the \
         others documents that stand in for functions.",
    ),
    (
        QuestionFamily::Summary,
        "The exact summary",
        "Every operation of ten large APIs is asked for by its summary, or by the first sentence \
         of its description where the document has no summaries. Operations with the same summary \
         cannot be told apart, so the place of one is that among the others. Goal: first 97 %, \
         among the first five 99.5 %.",
    ),
    (
        QuestionFamily::Path,
        "Verb and path",
        "Every operation is asked for by an everyday verb and the last nouns of its path, made by \
         rules: `PATCH /repos/{owner}/{repo}/issues/{number}` is \"change the issue of the repo\". \
         Goal: among the first five 90 %.",
    ),
    (
        QuestionFamily::Everyday,
        "Everyday questions",
        "Questions as people ask them, 25 for each API, written before any ranking was looked at \
         (`bench/api_questions`). Any of the operations that do what is asked is right.",
    ),
    (
        QuestionFamily::Bundle,
        "Bundles",
        "Questions that need two or three operations, five for each API. Each part counts once.",
    ),
];

const ABOUT_WEIGHTS: &str = "Each weight of the ranking was tried at other values. A set is left \
    out, with all others of its API; the value of each weight that is best for the mean of the \
    remaining ones is taken, and the set that was left out is judged by those. nDCG@10 of the \
    ranking alone, without what `search_docs` does about several requests; of the questions by \
    path every seventh.";

const ABOUT_SPEED: &str = "The questions of the tool sets, asked of so many tools: those of the \
    sets, repeated under other names. A question's time is the best of five. Memory is what the \
    index holds.";

fn judge_by_all_ways(runtime: &Runtime, set: &QuestionSet) -> Result<WorthByWay> {
    let searched = &*set.catalog;
    let mut problem = None;
    let product = set.judge(|question, limit| {
        match ask_search_docs(runtime, searched, question, Some(limit)) {
            Ok(answer) => answer.functions,
            Err(met) => {
                problem = Some(met);
                Vec::new()
            }
        }
    });
    if let Some(problem) = problem {
        return Err(problem);
    }
    let mut words = RankingWeights::default();
    words.fusion.deviation = 0.0;
    let mut vectors = RankingWeights::default();
    vectors.fields.iter_mut().for_each(|field| field.weight = 0.0);
    let by = |weights: RankingWeights| {
        let index = FunctionIndex::ranked_by(&searched.catalog, weights);
        set.judge(|question, limit| searched.rank_by(&index, question, limit))
    };
    let (words, vectors) = (by(words), by(vectors));
    let fts5 = PorterFts5::new(&searched.documents)?;
    let plain = PlainBm25::new(&searched.documents);
    Ok([
        product,
        words,
        vectors,
        set.judge(|question, _| fts5.rank(question)),
        set.judge(|question, _| plain.rank(question)),
    ])
}

fn write_ndcg(page: &mut String, sets: &[(&QuestionSet, &WorthByWay)]) -> Result<()> {
    writeln!(
        page,
        "| set | functions | questions | nDCG@10 | among the first five | first is right | {} |",
        WAYS[1..].iter().map(|way| format!("{way}: nDCG@10")).collect::<Vec<_>>().join(" | ")
    )?;
    writeln!(page, "|---|---|---|---|---|---|{}", "---|".repeat(WAYS.len() - 1))?;
    for (set, worth) in sets {
        let sizes = (set.catalog.documents.len(), worth[0].0.len());
        let others = worth[1..].iter().map(|it| format!("{:.3}", it.ndcg()));
        writeln!(
            page,
            "| {} | {} | {} | **{:.3}** {} | {:.3} | {:.3} | {} |",
            set.catalog.name,
            sizes.0,
            sizes.1,
            worth[0].ndcg(),
            interval(&[&worth[0]], |it| it.ndcg),
            worth[0].mean(|it| it.in_five),
            worth[0].mean(|it| it.first),
            others.collect::<Vec<_>>().join(" | ")
        )?;
    }
    let of_way = |way: usize| sets.iter().map(move |(_, worth)| &worth[way]);
    let mean = |way: usize, of: fn(&AnswerWorth) -> f64| mean_of_sets(of_way(way), of);
    let ours: Vec<&SetWorth> = of_way(0).collect();
    let others = (1..WAYS.len()).map(|way| format!("{:.3}", mean(way, |it| it.ndcg)));
    writeln!(
        page,
        "| **mean of the sets** | | | **{:.3}** {} | {:.3} | {:.3} | {} |\n",
        mean(0, |it| it.ndcg),
        interval(&ours, |it| it.ndcg),
        mean(0, |it| it.in_five),
        mean(0, |it| it.first),
        others.collect::<Vec<_>>().join(" | ")
    )?;
    Ok(())
}

fn write_places(page: &mut String, sets: &[(&QuestionSet, &WorthByWay)]) -> Result<()> {
    writeln!(
        page,
        "| API | operations asked for | first | among the first five | FTS5: first | five | BM25: first | five |"
    )?;
    writeln!(page, "|---|---|---|---|---|---|---|---|")?;
    let shares = |worth: &SetWorth| {
        let [first, five] = [worth.mean(|it| it.first), worth.mean(|it| it.in_five)];
        format!("{:.2} % | {:.2} %", first * 100.0, five * 100.0)
    };
    for (set, worth) in sets {
        writeln!(
            page,
            "| {} | {} | {} | {} | {} |",
            set.catalog.name,
            worth[0].0.len(),
            shares(&worth[0]),
            shares(&worth[3]),
            shares(&worth[4])
        )?;
    }
    let mean = |way: usize| {
        let of = |of: fn(&AnswerWorth) -> f64| {
            mean_of_sets(sets.iter().map(|(_, worth)| &worth[way]), of) * 100.0
        };
        format!("{:.2} % | {:.2} %", of(|it| it.first), of(|it| it.in_five))
    };
    writeln!(page, "| **mean** | | {} | {} | {} |\n", mean(0), mean(3), mean(4))?;
    Ok(())
}

fn interval(sets: &[&SetWorth], of: fn(&AnswerWorth) -> f64) -> String {
    let [low, high] = confidence_interval(sets, of);
    format!("({low:.3}–{high:.3})")
}

/// For those who work on the ranking.
fn print_missed(sets: &[QuestionSet]) -> Result<()> {
    let runtime = Runtime::new()?;
    let asked = [QuestionFamily::Everyday, QuestionFamily::Bundle, QuestionFamily::Path];
    for set in sets.iter().filter(|set| asked.contains(&set.family)) {
        for question in &set.questions {
            let answer = ask_search_docs(&runtime, &set.catalog, &question.text, Some(5))?;
            let name = |it: &usize| set.catalog.documents[*it].title.as_str();
            let lacks = |part: &&std::collections::HashMap<usize, f64>| {
                !answer.functions.iter().any(|it| part.contains_key(it))
            };
            for part in question.parts.iter().filter(lacks) {
                let wanted: Vec<&str> = part.keys().map(name).collect();
                let found: Vec<&str> = answer.functions.iter().map(name).collect();
                println!("{}: {:?}: {wanted:?} not in {found:?}", set.title(), question.text);
            }
        }
    }
    Ok(())
}
