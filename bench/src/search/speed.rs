//! How fast functions are found, and what their index takes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use moonlark_discovery::text_index::{
    IndexEntry, TextIndex, TextIndexBuilder, split_first_sentence,
};

use super::question_sets::{QuestionFamily, QuestionSet};
use crate::process::own_cpu;
use crate::report::{bytes, micros, millis};

/// How many tools there are when speed is measured.
pub(super) const SIZES: [usize; 3] = [500, 5_000, 50_000];
/// Questions for one size, and how often each is asked: the best time counts,
/// so that what else the machine does does not.
const QUESTIONS: usize = 1_000;
const TIMES: usize = 5;
/// How the names of sets begin whose documents are tools.
const TOOLS_PREFIX: &str = "tools";

pub(super) fn measure_speed(sets: &[QuestionSet], size: usize) -> Result<String> {
    let of_tools = || {
        let of_family = sets.iter().filter(|set| set.family == QuestionFamily::Retrieval);
        of_family.filter(|set| set.catalog.name.starts_with(TOOLS_PREFIX))
    };
    let documents: Vec<_> = of_tools().flat_map(|set| &set.catalog.documents).collect();
    let questions: Vec<&str> =
        of_tools().flat_map(|set| &set.questions).map(|it| it.text.as_str()).collect();
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
    let memory = index.memory_bytes() as f64;
    Ok(format!(
        "| {size} | {} | {} | {} | {} | {:.0} | {} |",
        at(0.5),
        at(0.99),
        millis(made.as_secs_f64()),
        micros(made.as_secs_f64() * 1e6 / size as f64),
        memory / size as f64,
        bytes(memory)
    ))
}

fn ask(index: &TextIndex, question: &str) -> Duration {
    let began = Instant::now();
    black_box(index.search(black_box(question), 5, |_| true));
    began.elapsed()
}

/// As a tool of this name and description is indexed.
fn entry<'a>(title: &'a str, text: &'a str) -> IndexEntry<'a> {
    let (summary, rest) = split_first_sentence(text);
    let summaries = [summary].into_iter().filter(|it| !it.is_empty()).collect();
    IndexEntry { names: vec![title], summaries, body: vec![rest], ..IndexEntry::default() }
}
