//! The floor under search: BM25 as textbooks have it, over title and text in
//! lower case, nothing stemmed, nothing left out.

use std::collections::HashMap;

use super::retrieval::{DEPTH, Document};

const K1: f64 = 1.2;
const B: f64 = 0.75;

pub(super) struct PlainBm25 {
    places: HashMap<String, Vec<(usize, f64)>>,
    lengths: Vec<f64>,
    average: f64,
}

impl PlainBm25 {
    pub(super) fn new(documents: &[Document]) -> Self {
        let mut places: HashMap<String, Vec<(usize, f64)>> = HashMap::new();
        let mut lengths = Vec::new();
        for (number, document) in documents.iter().enumerate() {
            let mut counts: HashMap<String, f64> = HashMap::new();
            let mut length = 0.0;
            for word in words(&document.title).chain(words(&document.text)) {
                *counts.entry(word).or_default() += 1.0;
                length += 1.0;
            }
            lengths.push(length);
            for (word, count) in counts {
                places.entry(word).or_default().push((number, count));
            }
        }
        let average = lengths.iter().sum::<f64>() / lengths.len().max(1) as f64;
        Self { places, lengths, average }
    }

    pub(super) fn rank(&self, question: &str) -> Vec<usize> {
        let ranked = self.ranked(question, false).into_iter();
        ranked.take(DEPTH).map(|(number, _)| number).collect()
    }

    /// All documents with a word of the question, or with all of them, best first.
    pub(super) fn ranked(&self, question: &str, all_words: bool) -> Vec<(usize, f64)> {
        let mut scores: HashMap<usize, (f64, usize)> = HashMap::new();
        let all = self.lengths.len() as f64;
        let mut asked = 0;
        for word in words(question) {
            asked += 1;
            let Some(places) = self.places.get(&word) else { continue };
            let with = places.len() as f64;
            let rarity = ((all - with + 0.5) / (with + 0.5) + 1.0).ln();
            for (number, count) in places {
                let length = 1.0 - B + B * self.lengths[*number] / self.average;
                let score = scores.entry(*number).or_default();
                score.0 += rarity * count * (K1 + 1.0) / (count + K1 * length);
                score.1 += 1;
            }
        }
        let mut ranked: Vec<(usize, f64)> = scores
            .into_iter()
            .filter(|(_, (_, words))| !all_words || *words == asked)
            .map(|(number, (score, _))| (number, score))
            .collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked
    }
}

pub(super) fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}
