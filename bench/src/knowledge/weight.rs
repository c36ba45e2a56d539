//! How much vectors should count beside words, and whether that was chosen for
//! these very sets.
//!
//! `explain` says how much of a score is due to vectors. So one search tells the
//! rankings for all other weights, as far as its hits go.

use std::fmt::Write;

use anyhow::Result;
use moonlark_core::Problem;
use moonlark_knowledge::{DocumentHit, KnowledgeDatabase, SearchQuery};

use crate::retrieval::{DEPTH, Set};

/// Times the weight that is used.
const FACTORS: [f32; 10] = [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0];
const USED: usize = 4;

/// nDCG@10 for each of the factors.
pub(super) type Curve = [f64; FACTORS.len()];

/// A document with what words and vectors add to its score.
struct Parts {
    document: usize,
    words: f32,
    vectors: f32,
}

pub(super) async fn curve(knowledge: &KnowledgeDatabase, set: &Set) -> Result<Curve, Problem> {
    let mut found: Vec<Vec<Parts>> = Vec::new();
    for (question, _) in &set.questions {
        let query = SearchQuery {
            limit: SearchQuery::MAX_LIMIT,
            explain: true,
            ..SearchQuery::new(question)
        };
        let hits = knowledge.search(query).await?.hits;
        found.push(hits.iter().filter_map(parts).collect());
    }
    Ok(FACTORS.map(|factor| {
        let mut found = found.iter();
        set.judge(|_| found.next().map_or(Vec::new(), |it| ranked(it, factor))).ndcg
    }))
}

/// A score is `tanh` of the sum of both.
fn parts(hit: &DocumentHit) -> Option<Parts> {
    let weight = hit.explain.as_ref()?.weight;
    let sum = hit.score.min(0.999_999).atanh();
    let (words, vectors) = ((1.0 - weight) * sum, weight * sum);
    Some(Parts { document: hit.source_id.parse().ok()?, words, vectors })
}

fn ranked(parts: &[Parts], factor: f32) -> Vec<usize> {
    let mut ranked: Vec<(f32, usize)> =
        parts.iter().map(|it| (it.words + factor * it.vectors, it.document)).collect();
    // Stable: of equals, the one that was first stays so.
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    ranked.into_iter().take(DEPTH).map(|(_, document)| document).collect()
}

pub(super) fn section(sets: &[Set], curves: &[Curve], better: &[f64]) -> Result<String> {
    let mut page = String::new();
    writeln!(page, "### How much vectors count\n")?;
    writeln!(
        page,
        "nDCG@10 where vectors count so many times what they do, among the first {} documents of \
         each search. The last rows leave a set out: the factor that is best for the mean of the \
         others, and what the set gains by it over the better of keyword and semantic.\n",
        SearchQuery::MAX_LIMIT
    )?;
    let names: Vec<&str> = sets.iter().map(|set| set.name.as_str()).collect();
    writeln!(page, "| times | {} | mean |", names.join(" | "))?;
    writeln!(page, "|---|{}", "---|".repeat(sets.len() + 1))?;
    for (at, factor) in FACTORS.iter().enumerate() {
        let cells = curves.iter().map(|curve| format!("{:.3}", curve[at]));
        let cells = cells.collect::<Vec<_>>().join(" | ");
        let mean = mean(curves.iter().map(|curve| curve[at]));
        let times = if at == USED { format!("**{factor}**") } else { factor.to_string() };
        writeln!(page, "| {times} | {cells} | {mean:.3} |")?;
    }
    let chosen: Vec<usize> = (0..sets.len()).map(|left_out| without(curves, left_out)).collect();
    let cells = chosen.iter().map(|at| FACTORS[*at].to_string()).collect::<Vec<_>>();
    writeln!(page, "| chosen on the others | {} | |", cells.join(" | "))?;
    let gains: Vec<f64> = (0..sets.len()).map(|at| curves[at][chosen[at]] - better[at]).collect();
    let cells = gains.iter().map(|gain| format!("{gain:+.3}")).collect::<Vec<_>>();
    writeln!(page, "| gain | {} | {:+.3} |\n", cells.join(" | "), mean(gains.into_iter()))?;
    Ok(page)
}

/// The factor that is best for all sets but one.
fn without(curves: &[Curve], left_out: usize) -> usize {
    let of = |at: usize| {
        let others = curves.iter().enumerate().filter(|(set, _)| *set != left_out);
        mean(others.map(|(_, curve)| curve[at]))
    };
    (0..FACTORS.len()).max_by(|a, b| of(*a).total_cmp(&of(*b))).unwrap_or(USED)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), it| (sum + it, count + 1));
    sum / f64::from(count.max(1))
}
