//! Ranked search: which entries a question is about.
//!
//! Words are weighed by how rare they are and by the field they stand in
//! (BM25F), then the best entries are looked at again for words that stand
//! together as in the question. It knows nothing of tools; [`crate::functions`]
//! makes entries of them. Another judgement, such as that of a language model,
//! can be added to [`Index::scores`] before the best are taken.

mod build;
mod near;

use std::cmp::Ordering;
use std::collections::HashMap;

pub use build::{Builder, Entry};

use crate::words::{bare, joined, terms};
use near::Vocabulary;

/// How much a word gains by being there more than once in the question: hardly
/// anything, or long questions are about whatever they repeat.
const REPEATED: f32 = 0.3;
/// What a word counts that is in no entry, but something like it is.
const ALIKE: f32 = 0.5;
/// What two words count that some entry writes as one.
const JOINED: f32 = 0.5;
/// What it counts that two words stand together in both, and how soon once is
/// as good as often.
const TOGETHER: f32 = 0.6;
const TOGETHER_ONCE: f32 = 0.5;
/// How many of the best are looked at again.
const LOOKED_AT_AGAIN: usize = 100;
/// Words of a question that are looked up, and bytes that are looked at; the
/// rest is no question.
const LONGEST_QUESTION: usize = 128;
const MOST_BYTES: usize = 16 * 1024;

/// Between the fields of an entry in [`Index::texts`].
const GAP: u32 = u32::MAX;
/// An identifier that stands there in parts already.
const WHOLE: u32 = 1 << 31;

pub struct Index {
    vocabulary: Vocabulary,
    /// Where the entries of each term are.
    starts: Vec<u32>,
    places: Vec<Place>,
    /// The terms of each entry, in order, and where each begins.
    texts: Vec<u32>,
    text_starts: Vec<u32>,
    /// Entries by the bare letters of their names.
    names: HashMap<Box<str>, Vec<u32>>,
}

/// A term in an entry: how much it says about that.
#[derive(Clone, Copy)]
struct Place {
    entry: u32,
    weight: f32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// The number of the entry, in the order in which they were added.
    pub entry: u32,
    pub score: f32,
}

impl Index {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.text_starts.len().saturating_sub(1)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        let names = self.names.iter().map(|(name, of)| name.len() + of.len() * 4 + 48);
        self.vocabulary.size()
            + size_of_val(&*self.starts)
            + size_of_val(&*self.places)
            + size_of_val(&*self.texts)
            + size_of_val(&*self.text_starts)
            + names.sum::<usize>()
    }

    /// The best entries, best first; only those that `accept` takes.
    pub fn search(&self, question: &str, most: usize, accept: impl Fn(u32) -> bool) -> Vec<Hit> {
        let question = self.read(question);
        let mut scores = self.scores(&question);
        for hit in best(&scores, LOOKED_AT_AGAIN, &accept) {
            scores[hit.entry as usize] += self.togetherness(&question, hit.entry);
        }
        let top = scores.iter().copied().fold(0.0, f32::max);
        for entry in self.named(&question) {
            scores[*entry as usize] += top + 1.0;
        }
        best(&scores, most, &accept)
    }

    /// How well each entry fits, by its words.
    fn scores(&self, question: &Question) -> Vec<f32> {
        let mut scores = vec![0.0; self.len()];
        for (term, weight) in &question.terms {
            for place in self.places_of(*term) {
                scores[place.entry as usize] += weight * place.weight;
            }
        }
        scores
    }

    /// What an entry gains by having the question's words side by side.
    fn togetherness(&self, question: &Question, entry: u32) -> f32 {
        let mut counts: Vec<f32> = vec![0.0; question.pairs.len()];
        let mut before = GAP;
        for term in
            self.text(entry).iter().copied().filter(|term| term & WHOLE == 0 || *term == GAP)
        {
            if before != GAP
                && let Some(pair) = question.pairs.iter().position(|it| it.terms == (before, term))
            {
                counts[pair] += 1.0;
            }
            before = term;
        }
        let of = |(pair, count): (&Pair, &f32)| {
            pair.weight * count * (TOGETHER_ONCE + 1.0) / (count + TOGETHER_ONCE)
        };
        TOGETHER * question.pairs.iter().zip(&counts).map(of).sum::<f32>()
    }

    /// Entries that the question is the name of.
    fn named(&self, question: &Question) -> &[u32] {
        self.names.get(question.bare.as_str()).map_or(&[], Vec::as_slice)
    }

    fn read(&self, text: &str) -> Question {
        let end = (0..=text.len().min(MOST_BYTES)).rev().find(|end| text.is_char_boundary(*end));
        let text = &text[..end.unwrap_or(0)];
        let mut given: Vec<(String, bool)> = Vec::new();
        terms(text, |term, whole| {
            if given.len() < LONGEST_QUESTION {
                given.push((term, whole));
            }
        });
        let mut counts: Vec<(u32, f32)> = Vec::new();
        let mut count = |term: u32, times: f32| match counts.iter_mut().find(|it| it.0 == term) {
            Some(counted) => counted.1 += times,
            None => counts.push((term, times)),
        };
        let mut pairs: Vec<Pair> = Vec::new();
        let mut before = None;
        for (term, whole) in &given {
            let id = self.vocabulary.find(term);
            match id {
                Some(id) => count(id, 1.0),
                None if *whole => {}
                None => {
                    for (id, likeness) in self.vocabulary.like(term) {
                        count(id, ALIKE * likeness);
                    }
                }
            }
            if *whole {
                continue;
            }
            if let (Some(before), Some(id)) = (before, id)
                && before != id
                && !pairs.iter().any(|it| it.terms == (before, id))
            {
                let weight = (self.rarity(before) + self.rarity(id)) / 2.0;
                pairs.push(Pair { terms: (before, id), weight });
            }
            before = id;
        }
        let mut words = 0;
        joined(text, |word| {
            words += 1;
            if words < LONGEST_QUESTION
                && let Some(id) = self.vocabulary.find(&word)
                && !counts.iter().any(|it| it.0 == id)
            {
                counts.push((id, JOINED));
            }
        });
        let weigh = |(term, times): (u32, f32)| {
            (term, self.rarity(term) * times * (REPEATED + 1.0) / (times + REPEATED))
        };
        Question { terms: counts.into_iter().map(weigh).collect(), pairs, bare: bare(text) }
    }

    /// A word in few entries says more than one in many.
    fn rarity(&self, term: u32) -> f32 {
        let (all, with) = (self.len() as f32, self.places_of(term).len() as f32);
        ((all - with + 0.5) / (with + 0.5) + 1.0).ln()
    }

    fn places_of(&self, term: u32) -> &[Place] {
        let term = term as usize;
        &self.places[self.starts[term] as usize..self.starts[term + 1] as usize]
    }

    fn text(&self, entry: u32) -> &[u32] {
        let entry = entry as usize;
        &self.texts[self.text_starts[entry] as usize..self.text_starts[entry + 1] as usize]
    }
}

/// A question as the index understands it.
struct Question {
    /// The terms that there are, and how much each is worth.
    terms: Vec<(u32, f32)>,
    /// Neighbours in the question.
    pairs: Vec<Pair>,
    bare: String,
}

struct Pair {
    terms: (u32, u32),
    weight: f32,
}

/// The best of them, best first; of equals, the one that was added first.
fn best(scores: &[f32], most: usize, accept: impl Fn(u32) -> bool) -> Vec<Hit> {
    let order =
        |a: &Hit, b: &Hit| -> Ordering { b.score.total_cmp(&a.score).then(a.entry.cmp(&b.entry)) };
    let mut hits: Vec<Hit> = Vec::new();
    for (entry, score) in scores.iter().enumerate() {
        if *score > 0.0 && accept(entry as u32) {
            hits.push(Hit { entry: entry as u32, score: *score });
        }
    }
    if most == 0 {
        return Vec::new();
    }
    if hits.len() > most {
        hits.select_nth_unstable_by(most - 1, order);
        hits.truncate(most);
    }
    hits.sort_unstable_by(order);
    hits
}

#[cfg(test)]
mod tests;
