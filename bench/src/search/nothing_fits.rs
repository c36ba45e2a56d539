//! How often `search_docs` says that nothing fits: where nothing does, and where
//! something does.

use std::fmt::Write;

use anyhow::Result;
use moonlark_discovery::{FunctionIndex, MIN_FIT, best_fit};
use tokio::runtime::Runtime;

use super::product_search::ask_search_docs;
use super::question_sets::{QuestionFamily, QuestionSet, UnanswerableQuestions};

/// Of the questions whose answer is among the first five, how many may be said to have
/// none.
const WRONGLY_REFUSED_SHARE: f64 = 0.05;
const SHOWN: usize = 5;

const ABOUT: &str = "`search_docs` says \"Nothing fits\", with what comes nearest, where the best \
    function has too few of the question's words and is too far from its meaning: where both \
    shares together are below a threshold. How often it says so of questions that nothing \
    answers, and of such that something does. The last column is for thresholds that were chosen \
    without the API that is asked: on the other nine, so that 5 % of the answered questions fall \
    below.";

/// Questions of one kind.
const KINDS: [&str; 4] = [
    "of the same field that nothing answers",
    "of another API",
    "everyday, answered among the first five",
    "everyday, not answered there",
];
const ANSWERED_KIND: usize = 2;

/// One question: which API was asked, which kind it is, how well something fits by the
/// index, and whether the tool said that something does.
struct FitTrial {
    api: usize,
    kind: usize,
    fit: f32,
    said: bool,
}

pub(super) fn section(
    runtime: &Runtime,
    sets: &[QuestionSet],
    unanswerable: &[UnanswerableQuestions],
) -> Result<String> {
    let everyday: Vec<&QuestionSet> =
        sets.iter().filter(|it| it.family == QuestionFamily::Everyday).collect();
    let mut trials = Vec::new();
    for (api, (set, none)) in everyday.iter().zip(unanswerable).enumerate() {
        let searched = &*none.catalog;
        let index = FunctionIndex::new(&searched.catalog);
        let mut ask = |kind: Option<usize>, question: &str, right: &dyn Fn(usize) -> bool| {
            let found = index.search(&searched.catalog, question, None, SHOWN);
            let fit = best_fit(&found);
            let answer = ask_search_docs(runtime, searched, question, None)?;
            let answered = || searched.rank_by(&index, question, SHOWN).into_iter().any(right);
            let kind = kind.unwrap_or_else(|| ANSWERED_KIND + usize::from(!answered()));
            trials.push(FitTrial { api, kind, fit, said: answer.fits });
            anyhow::Ok(())
        };
        for question in &none.questions {
            ask(Some(0), question, &|_| false)?;
        }
        // The API after the next, so that no two of a kind meet.
        for question in &everyday[(api + 2) % everyday.len()].questions {
            ask(Some(1), &question.text, &|_| false)?;
        }
        for question in &set.questions {
            let right = |it: usize| question.parts.iter().any(|part| part.contains_key(&it));
            ask(None, &question.text, &right)?;
        }
    }
    let mut page = String::new();
    writeln!(page, "## Nothing fits\n\n{ABOUT} The threshold is {MIN_FIT}.\n")?;
    writeln!(
        page,
        "| questions | asked | said to fit | nothing fits | by nine APIs for the tenth |"
    )?;
    writeln!(page, "|---|---|---|---|---|")?;
    let thresholds: Vec<f32> =
        (0..everyday.len()).map(|left_out| choose_threshold(&trials, left_out)).collect();
    for (kind, title) in KINDS.iter().enumerate() {
        let of_kind: Vec<&FitTrial> = trials.iter().filter(|it| it.kind == kind).collect();
        let share = |refused: &dyn Fn(&FitTrial) -> bool| {
            let count = of_kind.iter().filter(|it| refused(it)).count();
            count as f64 * 100.0 / of_kind.len().max(1) as f64
        };
        writeln!(
            page,
            "| {title} | {} | {:.1} % | {:.1} % | {:.1} % |",
            of_kind.len(),
            share(&|it| it.said),
            share(&|it| !it.said),
            share(&|it| it.fit < thresholds[it.api])
        )?;
    }
    let [low, high] = [f32::min, f32::max]
        .map(|pick: fn(f32, f32) -> f32| thresholds.iter().copied().reduce(pick).unwrap_or(0.0));
    writeln!(page, "\nThe thresholds that were chosen so are from {low:.2} to {high:.2}.\n")?;
    Ok(page)
}

/// Below which so many of the answered questions of all other APIs are.
fn choose_threshold(trials: &[FitTrial], left_out: usize) -> f32 {
    let answered = trials.iter().filter(|it| it.kind == ANSWERED_KIND && it.api != left_out);
    let mut fits: Vec<f32> = answered.map(|it| it.fit).collect();
    fits.sort_by(f32::total_cmp);
    fits.get((fits.len() as f64 * WRONGLY_REFUSED_SHARE) as usize).copied().unwrap_or(0.0)
}
