//! How Context Harness ranks, rebuilt to compare with: its words, its way to
//! put them together with vectors, on our vectors.
//!
//! Words are what FTS5 makes of a question as it is: every word has to be
//! there. Both judgements are stretched from 0 for the worst candidate to 1 for
//! the best, and added, vectors with 0.6.

use std::collections::HashMap;

use moonlark_search::{StaticEmbeddingModel, quantize_vector, top_k};

use crate::plain_bm25::PlainBm25;
use crate::retrieval::{DEPTH, Document};

/// Candidates of each kind, and the part of the vectors: its defaults.
const CANDIDATES: usize = 80;
const ALPHA: f64 = 0.6;

pub(super) struct Harness {
    words: PlainBm25,
    rows: Vec<i8>,
}

impl Harness {
    pub(super) fn new(documents: &[Document]) -> Self {
        let row = |it: &Document| row(&format!("{}\n{}", it.title, it.text));
        Self { words: PlainBm25::new(documents), rows: documents.iter().flat_map(row).collect() }
    }

    pub(super) fn keyword(&self, question: &str) -> Vec<usize> {
        let ranked = self.words.ranked(question, true).into_iter();
        ranked.take(DEPTH).map(|(number, _)| number).collect()
    }

    pub(super) fn hybrid(&self, question: &str) -> Vec<usize> {
        let mut words = self.words.ranked(question, true);
        words.truncate(CANDIDATES);
        let near = top_k(&self.rows, &row(question), CANDIDATES, None).best;
        let near = near.into_iter().map(|(number, cosine)| (number as usize, f64::from(cosine)));
        let mut scores: HashMap<usize, f64> = HashMap::new();
        for (part, found) in [(1.0 - ALPHA, words), (ALPHA, near.collect())] {
            for (number, score) in stretched(found) {
                *scores.entry(number).or_default() += part * score;
            }
        }
        let mut ranked: Vec<(usize, f64)> = scores.into_iter().collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked.into_iter().take(DEPTH).map(|(number, _)| number).collect()
    }
}

fn row(text: &str) -> Vec<i8> {
    quantize_vector(&StaticEmbeddingModel::builtin().embed(text))
}

/// Best first, from 1 to 0; all the same is all 1.
fn stretched(found: Vec<(usize, f64)>) -> Vec<(usize, f64)> {
    let (Some(best), Some(worst)) = (found.first().copied(), found.last().copied()) else {
        return found;
    };
    let range = best.1 - worst.1;
    let stretch = |score: f64| if range > 0.0 { (score - worst.1) / range } else { 1.0 };
    found.into_iter().map(|(number, score)| (number, stretch(score))).collect()
}
