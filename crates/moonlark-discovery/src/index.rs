//! Ranked search: which entries a question is about.
//!
//! Words are weighed by how rare they are and by the field they stand in
//! (BM25F), then the best entries are looked at again for words that stand
//! together as in the question. Where entries have vectors, those that mean
//! something like the question are found as well, and both judgements are put
//! together by `moonlark-search`. It knows nothing of tools;
//! [`crate::functions`] makes entries of them.

mod build;
mod near;
mod summaries;

use std::cmp::Ordering;
use std::collections::HashMap;

pub use build::{Builder, Entry};
pub use summaries::split_lead;

use moonlark_search::bm25::rarity;
use moonlark_search::neighbours::together;
use moonlark_search::question::{Asked, Kind, worth};
use moonlark_search::{
    Bits, Candidate, Collection, Cosines, Model, bare, cosine, fuse, quantise, title_gain, top_k,
};
use near::Vocabulary;
use summaries::SummaryLines;

/// What a word counts that is in no entry, but something like it is.
const ALIKE: f32 = 0.5;
/// How many of the best are looked at again.
const LOOKED_AT_AGAIN: usize = 100;
/// The least cosine of an entry that has no word of the question: what is
/// further away is there only because something has to be the nearest.
const LEAST_NEAR: f32 = 0.3;
/// Words of a question that something like them is looked for, and neighbours
/// that are.
const MOST_UNKNOWN: usize = 32;
const MOST_PAIRS: usize = 64;

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
    /// What entries are in one line.
    summaries: SummaryLines,
    /// A vector for each entry, or nothing at all.
    rows: Vec<i8>,
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
    /// The question is its name or its summary.
    pub exact: bool,
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
            + size_of_val(&*self.rows)
            + self.summaries.size()
            + names.sum::<usize>()
    }

    /// The best entries, best first; only those that `accept` takes.
    pub fn search(&self, question: &str, most: usize, accept: impl Fn(u32) -> bool) -> Vec<Hit> {
        let asked = self.read(question);
        let mut scores = self.scores(&asked);
        let by_words = best(&scores, LOOKED_AT_AGAIN, &accept);
        for hit in &by_words {
            scores[hit.entry as usize] +=
                self.togetherness(&asked, hit.entry) + self.summary_gain(&asked, hit.entry);
        }
        if !self.rows.is_empty() {
            scores = self.with_meaning(question, &asked, &by_words, &scores, &accept);
        }
        let order = self.put_exact_first(question, &asked, &mut scores);
        let mut hits = best(&order, most, &accept);
        for hit in &mut hits {
            let score = scores[hit.entry as usize];
            (hit.exact, hit.score) = (hit.score > score, score);
        }
        hits
    }

    /// What to order by: an entry of just this name comes before all others, and far
    /// before them; then those whose summary the question is, then those whose
    /// summary has just its words. These fit no better than they did before.
    fn put_exact_first(&self, text: &str, asked: &Question, scores: &mut [f32]) -> Vec<f32> {
        let step = scores.iter().copied().fold(0.0, f32::max) + 1.0;
        for entry in self.named(asked) {
            scores[*entry as usize] += step;
        }
        let mut order = scores.to_vec();
        let mut words: Vec<u32> = asked.words.iter().map(|(word, _)| *word).collect();
        words.sort_unstable();
        let mut put = |gain: f32, mut entries: Vec<u32>| {
            entries.dedup();
            entries.into_iter().for_each(|entry| order[entry as usize] += gain);
        };
        if asked.complete {
            put(step, self.summaries.with_words(&words).collect());
        }
        put(2.0 * step, self.summaries.with_letters(text).collect());
        put(4.0 * step, self.named(asked).to_vec());
        order
    }

    /// The scores of those that words or vectors have found, by both.
    fn with_meaning(
        &self,
        text: &str,
        asked: &Question,
        by_words: &[Hit],
        scores: &[f32],
        accept: impl Fn(u32) -> bool,
    ) -> Vec<f32> {
        let mut accepted = Bits::new(self.len());
        (0..self.len()).filter(|entry| accept(*entry as u32)).for_each(|it| accepted.set(it));
        let vector = quantise(&Model::builtin().embed(text));
        let found = top_k(&self.rows, &vector, LOOKED_AT_AGAIN, Some(&accepted));
        let near = found.best.iter().filter(|(_, cosine)| *cosine >= LEAST_NEAR);
        let mut entries: Vec<u32> = near.map(|(entry, _)| *entry).collect();
        entries.extend(by_words.iter().map(|hit| hit.entry));
        entries.sort_unstable();
        entries.dedup();
        let candidate = |entry: u32| {
            let row = self.rows.chunks_exact(vector.len()).nth(entry as usize);
            let semantic = row.map(|row| cosine(row, &vector));
            Candidate { id: entry, keyword: scores[entry as usize], semantic }
        };
        let candidates: Vec<_> = entries.into_iter().map(candidate).collect();
        let collection = Collection {
            documents: self.len() as u64,
            asked: asked.asked,
            cosines: Cosines::from(&found),
        };
        let mut together = vec![0.0; scores.len()];
        for fused in fuse(&collection, &candidates) {
            together[fused.id as usize] = fused.score;
        }
        together
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
        let of = |(pair, count): (&Pair, &f32)| together(pair.weight, *count);
        question.pairs.iter().zip(&counts).map(of).sum()
    }

    /// What an entry gains by how near the question is to the nearest of its
    /// summaries.
    fn summary_gain(&self, question: &Question, entry: u32) -> f32 {
        let gain = |line: &[u32]| {
            let (mut common, mut beside) = (0.0, 0.0);
            for word in line {
                match question.words.iter().find(|(asked, _)| asked == word) {
                    Some((_, weight)) => common += weight,
                    None => beside += self.rarity(*word),
                }
            }
            title_gain(common, question.asked_in_title, beside)
        };
        self.summaries.of(entry).map(gain).fold(0.0, f32::max)
    }

    /// Entries that the question is the name of.
    fn named(&self, question: &Question) -> &[u32] {
        self.names.get(question.bare.as_str()).map_or(&[], Vec::as_slice)
    }

    fn read(&self, text: &str) -> Question {
        let question = moonlark_search::Question::read(text);
        let with = |term: &str| self.vocabulary.find(term).map_or(0, |id| self.places_of(id).len());
        let weights = question.weigh(self.len() as u64, |term| with(term) as u64);
        let find = |term: &str| self.vocabulary.find(term);
        let mut terms: Vec<(u32, f32)> =
            weights.terms.iter().filter_map(|it| Some((find(&it.term)?, it.weight))).collect();
        let is_word = |number: usize| question.terms[number].kind == Kind::Word;
        let own = weights.terms.iter().filter(|it| is_word(it.number));
        let words: Vec<_> = own.filter_map(|it| Some((find(&it.term)?, it.in_title))).collect();
        let asked_words = question.terms.iter().filter(|it| it.kind == Kind::Word).count();
        let complete = words.len() == asked_words;
        let unknown = |it: &&Asked| it.kind == Kind::Word && find(&it.term).is_none();
        for asked in question.terms.iter().filter(unknown).take(MOST_UNKNOWN) {
            for (id, likeness) in self.vocabulary.like(&asked.term) {
                if !terms.iter().any(|it| it.0 == id) {
                    let times = asked.times * ALIKE * likeness;
                    terms.push((id, worth(self.rarity(id), times)));
                }
            }
        }
        let pair = |(a, b): &(usize, usize)| {
            let terms = (find(&question.terms[*a].term)?, find(&question.terms[*b].term)?);
            let weight = (self.rarity(terms.0) + self.rarity(terms.1)) / 2.0;
            Some(Pair { terms, weight })
        };
        let pairs = question.pairs.iter().take(MOST_PAIRS).filter_map(pair).collect();
        Question {
            terms,
            words,
            complete,
            asked: weights.asked,
            asked_in_title: weights.asked_in_title,
            pairs,
            bare: bare(text),
        }
    }

    /// A word in few entries says more than one in many.
    fn rarity(&self, term: u32) -> f32 {
        rarity(self.len() as u64, self.places_of(term).len() as u64)
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
    /// Those of them that are words of the question itself, and what each is worth
    /// in a summary.
    words: Vec<(u32, f32)>,
    /// Whether that is every word of the question.
    complete: bool,
    /// What all its words are worth together, found or not.
    asked: f32,
    asked_in_title: f32,
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
            hits.push(Hit { entry: entry as u32, score: *score, exact: false });
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
