//! What the words of a question say about every chunk.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use moonlark_search::bm25::rarity;
use moonlark_search::question::{Kind, worth};
use moonlark_search::{Bm25, Field, Question, Weighed, Weights, title_gain};
use rusqlite::Connection;

use super::Place;
use super::filter::Masks;
use crate::index::{
    Counts, FIELDS, Posting, Snapshot, TermList, decode, find_list, terms_beginning,
};
use crate::store::{Attempt, damaged};

/// Title, headings, body, as the index counts them.
const WEIGHTS: [Field; FIELDS] = [Field::NAME, Field::HEADING, Field::BODY];
const HEADINGS: usize = 1;
/// Words that no chunk has: how many of them are looked for as the beginning of
/// others, how long one has to be for that, how many others it may stand for, and
/// what it counts for them all.
const MAX_UNKNOWN_WORDS: usize = 16;
const SHORTEST_BEGINNING_BYTES: usize = 4;
const MAX_LONGER_WORDS: usize = 8;
const BEGINNING_SHARE: f32 = 0.5;
/// Bytes of lists that are kept from weighing to scoring; others are read twice.
const KEPT: usize = 32 << 20;

pub(super) struct Scores {
    scores: Vec<f32>,
    /// What the question's words are worth that stand in the headings of each chunk.
    in_headings: Vec<f32>,
    weights: Weights,
}

impl Scores {
    pub(super) fn none() -> Scores {
        let (scores, in_headings) = (Vec::new(), Vec::new());
        Scores { scores, in_headings, weights: Weights::default() }
    }

    pub(super) fn of(
        connection: &Connection,
        snapshot: &Snapshot,
        masks: &Masks,
        question: &Question,
    ) -> Attempt<Scores> {
        let mut lists = Lists { connection, snapshot, kept: HashMap::new(), room: KEPT };
        let mut fault = None;
        let weights = question.weigh(snapshot.alive as u64, |term| {
            lists.chunks_with(term).unwrap_or_else(|error| {
                fault = Some(error);
                0
            })
        });
        if let Some(fault) = fault {
            return Err(fault);
        }
        let bm25 = Worth::new(snapshot.average);
        let mut scores = vec![0.0_f32; snapshot.places];
        let mut in_headings = vec![0.0_f32; snapshot.places];
        let in_heading = |it: &Weighed| if it.word { it.in_title } else { 0.0 };
        let asked = weights.terms.iter().map(|it| (it.term.clone(), it.weight, in_heading(it)));
        let longer = lists.longer_words(question)?;
        let longer = longer.into_iter().map(|(term, weight)| (term, weight, 0.0));
        let terms: Vec<(String, f32, f32)> = asked.chain(longer).collect();
        for (term, weight, in_heading) in terms {
            for (number, list) in lists.take(&term)?.iter().enumerate() {
                let segment = &snapshot.segments[number];
                let lengths = &segment.members().lengths;
                let scores = &mut scores[segment.base..segment.base + lengths.len()];
                let in_headings = &mut in_headings[segment.base..segment.base + lengths.len()];
                let mask = masks[number].as_ref();
                let mut outside = false;
                decode(&list.postings, |Posting { ordinal, counts }| {
                    let at = ordinal as usize;
                    let (Some(score), Some(lengths)) = (scores.get_mut(at), lengths.get(at)) else {
                        outside = true;
                        return;
                    };
                    if mask.is_none_or(|mask| mask.get(at)) {
                        *score += weight * bm25.of(counts, *lengths);
                        if counts[HEADINGS] > 0 {
                            in_headings[at] += in_heading;
                        }
                    }
                })?;
                if outside {
                    return Err(damaged("a term stands in a chunk that is not there"));
                }
            }
        }
        Ok(Scores { scores, in_headings, weights })
    }

    /// What the words of the question are worth.
    pub(super) fn weights(&self) -> &Weights {
        &self.weights
    }

    pub(super) fn at(&self, place: Place) -> f32 {
        self.scores.get(place as usize).copied().unwrap_or(0.0)
    }

    /// What a chunk gains by its headings, as far as the index knows: how much of the
    /// question they have, and how much else.
    pub(super) fn heading_gain(&self, snapshot: &Snapshot, place: Place) -> f32 {
        let common = self.in_headings.get(place as usize).copied().unwrap_or(0.0);
        let Some((segment, at)) = snapshot.locate(place as usize) else { return 0.0 };
        let asked = self.weights.asked_in_title;
        let words = self.weights.terms.iter().filter(|it| it.word).count().max(1);
        let all = f32::from(segment.members().lengths[at][HEADINGS]) * asked / words as f32;
        title_gain(common, asked, (all - common).max(0.0))
    }

    /// The chunks whose headings are nearest to the question.
    pub(super) fn best_headed(&self, snapshot: &Snapshot, most: usize) -> Vec<Place> {
        let headed = self.in_headings.iter().enumerate().filter(|(_, common)| **common > 0.0);
        let ranked = headed.map(|(place, _)| {
            let place = place as Place;
            Ranked { score: self.heading_gain(snapshot, place), place }
        });
        let mut best: Vec<Ranked> = ranked.collect();
        if best.len() > most {
            best.select_nth_unstable_by(most, |a, b| b.cmp(a));
            best.truncate(most);
        }
        best.into_iter().map(|it| it.place).collect()
    }

    /// The best chunk of each of the best documents.
    pub(super) fn best(&self, snapshot: &Snapshot, most: usize) -> Vec<Place> {
        let mut heap = BinaryHeap::with_capacity(most + 1);
        let mut offer = |best: Option<Ranked>| {
            let Some(best) = best else { return };
            if heap.len() < most {
                heap.push(Reverse(best));
            } else if heap.peek().is_some_and(|Reverse(worst)| best > *worst) {
                heap.pop();
                heap.push(Reverse(best));
            }
        };
        if self.scores.is_empty() {
            return Vec::new();
        }
        for segment in &snapshot.segments {
            let documents = &segment.members().documents;
            let mut best: Option<Ranked> = None;
            let mut of = None;
            for (at, document) in documents.iter().enumerate() {
                let score = self.scores[segment.base + at];
                if score <= 0.0 {
                    continue;
                }
                if of != Some(*document) {
                    offer(best.take());
                    of = Some(*document);
                }
                if best.as_ref().is_none_or(|best| score > best.score) {
                    best = Some(Ranked { score, place: (segment.base + at) as Place });
                }
            }
            offer(best);
        }
        heap.into_iter().map(|Reverse(it)| it.place).collect()
    }
}

/// What a term says about a chunk. Most stand once in a body of some hundred
/// words, so that is computed once for every length.
struct Worth {
    bm25: Bm25<FIELDS>,
    once: Vec<f32>,
}

impl Worth {
    fn new(average: [f32; FIELDS]) -> Worth {
        let bm25 = Bm25::new(WEIGHTS, average);
        Worth {
            bm25,
            once: (0..1024).map(|length| bm25.weight([0, 0, 1], [0, 0, length])).collect(),
        }
    }

    #[inline]
    fn of(&self, counts: Counts, lengths: Counts) -> f32 {
        match self.once.get(usize::from(lengths[2])) {
            Some(worth) if counts == [0, 0, 1] => *worth,
            _ => self.bm25.weight(counts.map(u32::from), lengths.map(u32::from)),
        }
    }
}

#[derive(PartialEq)]
struct Ranked {
    score: f32,
    place: Place,
}

impl Eq for Ranked {}

impl Ord for Ranked {
    /// Of equals the first is the better one.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.score.total_cmp(&other.score).then(other.place.cmp(&self.place))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The lists of terms, one for each segment.
struct Lists<'a> {
    connection: &'a Connection,
    snapshot: &'a Snapshot,
    kept: HashMap<String, Vec<TermList>>,
    room: usize,
}

impl Lists<'_> {
    /// How many chunks that are alive have a term.
    fn chunks_with(&mut self, term: &str) -> Attempt<u64> {
        let lists = self.read(term)?;
        let mut chunks = 0;
        for (list, segment) in lists.iter().zip(&self.snapshot.segments) {
            if segment.living == segment.alive.len() {
                chunks += u64::from(list.chunks);
                continue;
            }
            decode(&list.postings, |posting| {
                chunks += u64::from(segment.alive.get(posting.ordinal as usize));
            })?;
        }
        let size: usize = lists.iter().map(|list| list.postings.len()).sum();
        if size <= self.room {
            self.room -= size;
            self.kept.insert(term.to_owned(), lists);
        }
        Ok(chunks)
    }

    /// Words that begin with one of the question that no chunk has, and what they
    /// are worth: most words of German are made of others.
    fn longer_words(&mut self, question: &Question) -> Attempt<Vec<(String, f32)>> {
        let all = self.snapshot.alive as u64;
        let mut found = Vec::new();
        let words = question
            .terms
            .iter()
            .filter(|it| it.kind == Kind::Word && it.term.len() >= SHORTEST_BEGINNING_BYTES);
        for asked in words.take(MAX_UNKNOWN_WORDS) {
            if self.chunks_with(&asked.term)? > 0 {
                continue;
            }
            let mut longer = BTreeSet::new();
            for segment in &self.snapshot.segments {
                let terms = terms_beginning(self.connection, segment.segment, &asked.term)?;
                longer.extend(terms.into_iter().filter(|term| !question.asks(term)));
            }
            let share = BEGINNING_SHARE / (longer.len().clamp(1, MAX_LONGER_WORDS) as f32).sqrt();
            for term in longer.into_iter().take(MAX_LONGER_WORDS) {
                let chunks = self.chunks_with(&term)?;
                if chunks > 0 {
                    found.push((term, worth(rarity(all, chunks), asked.times * share)));
                }
            }
        }
        Ok(found)
    }

    fn take(&mut self, term: &str) -> Attempt<Vec<TermList>> {
        match self.kept.remove(term) {
            Some(lists) => Ok(lists),
            None => self.read(term),
        }
    }

    fn read(&self, term: &str) -> Attempt<Vec<TermList>> {
        let segments = self.snapshot.segments.iter();
        segments.map(|it| find_list(self.connection, it.segment, term)).collect()
    }
}
