//! Keyword scores of all chunks.

use std::collections::{BTreeSet, HashMap};

use moonlark_search::bm25::inverse_document_frequency;
use moonlark_search::parsed_query::{QueryTermKind, query_term_weight};
use moonlark_search::{
    Bm25Weights, FieldWeight, ParsedQuery, QueryWeights, WeightedTerm, title_gain,
};
use rusqlite::Connection;

use super::ChunkPosition;
use super::search_filter::SegmentMasks;
use crate::index::{
    ChunkPosting, FIELD_COUNT, IndexSnapshot, TermCounts, TermList, decode_postings,
    find_term_list, find_terms_with_prefix,
};
use crate::store::{StoreResult, damaged_error};

/// Title, headings, body, as the index counts them.
const FIELD_WEIGHTS: [FieldWeight; FIELD_COUNT] =
    [FieldWeight::NAME_FIELD, FieldWeight::HEADING_FIELD, FieldWeight::BODY_FIELD];
const HEADINGS_FIELD: usize = 1;
/// Words that no chunk has: how many of them are looked for as the beginning of
/// others, how long one has to be for that, how many others it may stand for, and
/// what it counts for them all.
const MAX_UNKNOWN_WORDS: usize = 16;
const SHORTEST_BEGINNING_BYTES: usize = 4;
const MAX_LONGER_WORDS: usize = 8;
const BEGINNING_SHARE: f32 = 0.5;
/// Bytes of lists that are kept from weighing to scoring; others are read twice.
const MAX_CACHED_LIST_BYTES: usize = 32 << 20;

#[derive(Default)]
pub(super) struct KeywordScores {
    scores: Vec<f32>,
    /// What the question's words are worth that stand in the headings of each chunk.
    in_headings: Vec<f32>,
    weights: QueryWeights,
}

impl KeywordScores {
    pub(super) fn score_chunks(
        connection: &Connection,
        snapshot: &IndexSnapshot,
        masks: &SegmentMasks,
        question: &ParsedQuery,
    ) -> StoreResult<KeywordScores> {
        let (kept, room) = (HashMap::new(), MAX_CACHED_LIST_BYTES);
        let mut lists = TermListCache { connection, snapshot, kept, room };
        let mut fault = None;
        let weights = question.weigh_terms(snapshot.alive as u64, |term| {
            lists.count_chunks_with(term).unwrap_or_else(|error| {
                fault = Some(error);
                0
            })
        });
        if let Some(fault) = fault {
            return Err(fault);
        }
        let bm25 = TermScorer::new(snapshot.average);
        let mut scores = vec![0.0_f32; snapshot.places];
        let mut in_headings = vec![0.0_f32; snapshot.places];
        let in_heading = |it: &WeightedTerm| if it.of.is_some() { it.in_title } else { 0.0 };
        let asked = weights.terms.iter().map(|it| (it.term.clone(), it.weight, in_heading(it)));
        let longer = lists.find_longer_words(question, &weights)?;
        let longer = longer.into_iter().map(|(term, weight)| (term, weight, 0.0));
        let terms: Vec<(String, f32, f32)> = asked.chain(longer).collect();
        for (term, weight, in_heading) in terms {
            for (number, list) in lists.take_lists(&term)?.iter().enumerate() {
                let segment = &snapshot.segments[number];
                let lengths = &segment.members().lengths;
                let scores = &mut scores[segment.base..segment.base + lengths.len()];
                let in_headings = &mut in_headings[segment.base..segment.base + lengths.len()];
                let mask = masks[number].as_ref();
                let mut outside = false;
                decode_postings(&list.postings, |ChunkPosting { ordinal, counts }| {
                    let at = ordinal as usize;
                    let (Some(score), Some(lengths)) = (scores.get_mut(at), lengths.get(at)) else {
                        outside = true;
                        return;
                    };
                    if mask.is_none_or(|mask| mask.get(at)) {
                        *score += weight * bm25.score_term(counts, *lengths);
                        if counts[HEADINGS_FIELD] > 0 {
                            in_headings[at] += in_heading;
                        }
                    }
                })?;
                if outside {
                    return Err(damaged_error("a term stands in a chunk that is not there"));
                }
            }
        }
        Ok(KeywordScores { scores, in_headings, weights })
    }

    /// What the words of the question are worth.
    pub(super) fn weights(&self) -> &QueryWeights {
        &self.weights
    }

    pub(super) fn score_at(&self, place: ChunkPosition) -> f32 {
        self.scores.get(place as usize).copied().unwrap_or(0.0)
    }

    /// What a chunk gains by its headings, as far as the index knows: how much of the
    /// question they have, and how much else.
    pub(super) fn heading_gain(&self, snapshot: &IndexSnapshot, place: ChunkPosition) -> f32 {
        let common = self.in_headings.get(place as usize).copied().unwrap_or(0.0);
        let Some((segment, at)) = snapshot.locate_chunk(place as usize) else { return 0.0 };
        let asked = self.weights.asked_in_title;
        let words = self.weights.distinct_words().max(1);
        let all = f32::from(segment.members().lengths[at][HEADINGS_FIELD]) * asked / words as f32;
        title_gain(common, asked, (all - common).max(0.0))
    }

    /// The chunks whose headings are nearest to the question.
    pub(super) fn best_by_heading(
        &self,
        snapshot: &IndexSnapshot,
        most: usize,
    ) -> Vec<ChunkPosition> {
        let headed = (0..).zip(&self.in_headings).filter(|(_, common)| **common > 0.0);
        let ranked = headed.map(|(place, _)| (place, self.heading_gain(snapshot, place)));
        take_best(ranked.collect(), most)
    }

    /// The best chunk of each of the best documents.
    pub(super) fn best_by_document(
        &self,
        snapshot: &IndexSnapshot,
        most: usize,
    ) -> Vec<ChunkPosition> {
        let mut best: Vec<(ChunkPosition, f32)> = Vec::new();
        for segment in &snapshot.segments {
            let mut of = None;
            // Without scores there are none to look at.
            let scores = self.scores.get(segment.base..).unwrap_or_default();
            let places = (segment.base as ChunkPosition..).zip(scores);
            for (document, (place, score)) in segment.members().documents.iter().zip(places) {
                match best.last_mut() {
                    _ if *score <= 0.0 => {}
                    Some(last) if of == Some(document) => {
                        if *score > last.1 {
                            *last = (place, *score);
                        }
                    }
                    _ => {
                        best.push((place, *score));
                        of = Some(document);
                    }
                }
            }
        }
        take_best(best, most)
    }
}

/// Those with the highest scores; of equals the first are the better ones.
fn take_best(mut ranked: Vec<(ChunkPosition, f32)>, most: usize) -> Vec<ChunkPosition> {
    if ranked.len() > most {
        ranked.select_nth_unstable_by(most, |a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked.truncate(most);
    }
    ranked.into_iter().map(|(place, _)| place).collect()
}

/// What a term says about a chunk. Most stand once in a body of some hundred
/// words, so that is computed once for every length.
struct TermScorer {
    bm25: Bm25Weights<FIELD_COUNT>,
    once: Vec<f32>,
}

impl TermScorer {
    fn new(average: [f32; FIELD_COUNT]) -> TermScorer {
        let bm25 = Bm25Weights::new(FIELD_WEIGHTS, average);
        TermScorer {
            bm25,
            once: (0..1024).map(|length| bm25.term_weight([0, 0, 1], [0, 0, length])).collect(),
        }
    }

    #[inline]
    fn score_term(&self, counts: TermCounts, lengths: TermCounts) -> f32 {
        match self.once.get(usize::from(lengths[2])) {
            Some(worth) if counts == [0, 0, 1] => *worth,
            _ => self.bm25.term_weight(counts.map(u32::from), lengths.map(u32::from)),
        }
    }
}

/// The lists of terms, one for each segment.
struct TermListCache<'a> {
    connection: &'a Connection,
    snapshot: &'a IndexSnapshot,
    kept: HashMap<String, Vec<TermList>>,
    room: usize,
}

impl TermListCache<'_> {
    /// How many chunks that are alive have a term.
    fn count_chunks_with(&mut self, term: &str) -> StoreResult<u64> {
        let lists = self.read_lists(term)?;
        let mut chunks = 0;
        for (list, segment) in lists.iter().zip(&self.snapshot.segments) {
            if segment.living == segment.alive.len() {
                chunks += u64::from(list.chunks);
                continue;
            }
            decode_postings(&list.postings, |posting| {
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
    fn find_longer_words(
        &mut self,
        question: &ParsedQuery,
        weights: &QueryWeights,
    ) -> StoreResult<Vec<(String, f32)>> {
        let all = self.snapshot.alive as u64;
        let mut found = Vec::new();
        let is_found = |number: usize| weights.terms.iter().any(|it| it.of == Some(number));
        let words = question.terms.iter().enumerate().filter(|(number, it)| {
            it.kind == QueryTermKind::Word
                && it.term.len() >= SHORTEST_BEGINNING_BYTES
                && !is_found(*number)
        });
        for (_, asked) in words.take(MAX_UNKNOWN_WORDS) {
            let mut longer = BTreeSet::new();
            for segment in &self.snapshot.segments {
                let terms = find_terms_with_prefix(self.connection, segment.segment, &asked.term)?;
                longer.extend(terms.into_iter().filter(|term| !question.has_term(term)));
            }
            let share = BEGINNING_SHARE / (longer.len().clamp(1, MAX_LONGER_WORDS) as f32).sqrt();
            for term in longer.into_iter().take(MAX_LONGER_WORDS) {
                let chunks = self.count_chunks_with(&term)?;
                if chunks > 0 {
                    let rarity = inverse_document_frequency(all, chunks);
                    found.push((term, query_term_weight(rarity, asked.times * share)));
                }
            }
        }
        Ok(found)
    }

    fn take_lists(&mut self, term: &str) -> StoreResult<Vec<TermList>> {
        match self.kept.remove(term) {
            Some(lists) => Ok(lists),
            None => self.read_lists(term),
        }
    }

    fn read_lists(&self, term: &str) -> StoreResult<Vec<TermList>> {
        let segments = self.snapshot.segments.iter();
        segments.map(|it| find_term_list(self.connection, it.segment, term)).collect()
    }
}
