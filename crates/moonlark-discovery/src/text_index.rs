//! Ranked search: which entries a question is about.
//!
//! Words are weighed by how rare they are and by the field they stand in
//! (BM25F), then the best entries are looked at again for words that stand
//! together as in the question. Where entries have vectors, those that mean
//! something like the question are found as well, and both judgements are put
//! together by `moonlark-search`. It knows nothing of tools;
//! [`crate::function_index`] makes entries of them.

mod index_builder;
mod summaries;
mod vocabulary;

use std::collections::HashMap;

pub use index_builder::{IndexEntry, TextIndexBuilder};
pub use summaries::split_first_sentence;

use moonlark_search::bm25::inverse_document_frequency;
use moonlark_search::parsed_query::{QueryTermKind, query_term_weight};
use moonlark_search::proximity::proximity_gain;
use moonlark_search::{
    CollectionStats, FusionCandidate, RowBitmap, StaticEmbeddingModel, cosine_similarity,
    fuse_scores, normalize_name, quantize_vector, title_gain, top_k,
};
use summaries::SummaryLines;
use vocabulary::IndexVocabulary;

/// What a word counts that is in no entry, but something like it is.
const SIMILAR_WORD_WEIGHT: f32 = 0.5;
/// How many of the best are looked at again.
const MAX_RERANKED_ENTRIES: usize = 100;
/// The least cosine of an entry that has no word of the question: what is
/// further away is there only because something has to be the nearest.
const MIN_SEMANTIC_COSINE: f32 = 0.3;
/// Words of a question that something like them is looked for, and neighbours
/// that are.
const MAX_UNKNOWN_WORDS: usize = 32;
const MAX_QUERY_PAIRS: usize = 64;

/// Between the fields of an entry in [`TextIndex::texts`].
const FIELD_SEPARATOR: u32 = u32::MAX;
/// An identifier that stands there in parts already.
const WHOLE_IDENTIFIER_BIT: u32 = 1 << 31;

pub struct TextIndex {
    vocabulary: IndexVocabulary,
    /// Where the entries of each term are.
    starts: Vec<u32>,
    places: Vec<TermPosting>,
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
struct TermPosting {
    entry: u32,
    weight: f32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IndexHit {
    /// The number of the entry, in the order in which they were added.
    pub entry: u32,
    pub score: f32,
    /// The question is its name or its summary.
    pub exact: bool,
}

impl TextIndex {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.text_starts.len().saturating_sub(1)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes it takes.
    pub fn memory_bytes(&self) -> usize {
        let names = self.names.iter().map(|(name, of)| name.len() + of.len() * 4 + 48);
        self.vocabulary.memory_bytes()
            + size_of_val(&*self.starts)
            + size_of_val(&*self.places)
            + size_of_val(&*self.texts)
            + size_of_val(&*self.text_starts)
            + size_of_val(&*self.rows)
            + self.summaries.memory_bytes()
            + names.sum::<usize>()
    }

    /// The best entries, best first; only those that `accept` takes.
    pub fn search(
        &self,
        question: &str,
        most: usize,
        accept: impl Fn(u32) -> bool,
    ) -> Vec<IndexHit> {
        let asked = self.resolve_query(question);
        let mut scores = self.keyword_scores(&asked);
        let by_words = best_hits(&scores, MAX_RERANKED_ENTRIES, &accept);
        for hit in &by_words {
            scores[hit.entry as usize] += self.entry_proximity_gain(&asked, hit.entry)
                + self.best_summary_gain(&asked, hit.entry);
        }
        if !self.rows.is_empty() {
            scores = self.fuse_with_vectors(question, &asked, &by_words, &scores, &accept);
        }
        let order = self.put_exact_first(question, &asked, &mut scores);
        let mut hits = best_hits(&order, most, &accept);
        for hit in &mut hits {
            let score = scores[hit.entry as usize];
            (hit.exact, hit.score) = (hit.score > score, score);
        }
        hits
    }

    /// What to order by: an entry of just this name comes before all others, and far
    /// before them; then those whose summary the question is, then those whose
    /// summary has just its words. These fit no better than they did before.
    fn put_exact_first(&self, text: &str, asked: &ResolvedQuery, scores: &mut [f32]) -> Vec<f32> {
        let step = scores.iter().copied().fold(0.0, f32::max) + 1.0;
        for entry in self.entries_named(asked) {
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
            put(step, self.summaries.entries_with_words(&words).collect());
        }
        put(2.0 * step, self.summaries.entries_with_letters(text).collect());
        put(4.0 * step, self.entries_named(asked).to_vec());
        order
    }

    /// The scores of those that words or vectors have found, by both.
    fn fuse_with_vectors(
        &self,
        text: &str,
        asked: &ResolvedQuery,
        by_words: &[IndexHit],
        scores: &[f32],
        accept: impl Fn(u32) -> bool,
    ) -> Vec<f32> {
        let mut accepted = RowBitmap::all_clear(self.len());
        for entry in (0..self.len()).filter(|entry| accept(*entry as u32)) {
            accepted.insert(entry);
        }
        let vector = quantize_vector(&StaticEmbeddingModel::builtin().embed(text));
        let found = top_k(&self.rows, &vector, MAX_RERANKED_ENTRIES, Some(&accepted));
        let near = found.best.iter().filter(|(_, cosine)| *cosine >= MIN_SEMANTIC_COSINE);
        let mut entries: Vec<u32> = near.map(|(entry, _)| *entry).collect();
        entries.extend(by_words.iter().map(|hit| hit.entry));
        entries.sort_unstable();
        entries.dedup();
        let candidate = |entry: u32| {
            let row = self.rows.chunks_exact(vector.len()).nth(entry as usize);
            let semantic = row.map(|row| cosine_similarity(row, &vector));
            FusionCandidate { id: entry, keyword: scores[entry as usize], semantic }
        };
        let candidates: Vec<_> = entries.into_iter().map(candidate).collect();
        let collection = CollectionStats {
            documents: self.len() as u64,
            asked: asked.asked,
            cosines: found.cosines,
        };
        let mut together = vec![0.0; scores.len()];
        for fused in fuse_scores(&collection, &candidates) {
            together[fused.id as usize] = fused.score;
        }
        together
    }

    /// How well each entry fits, by its words.
    fn keyword_scores(&self, question: &ResolvedQuery) -> Vec<f32> {
        let mut scores = vec![0.0; self.len()];
        for (term, weight) in &question.terms {
            for place in self.term_postings(*term) {
                scores[place.entry as usize] += weight * place.weight;
            }
        }
        scores
    }

    /// What an entry gains by having the question's words side by side.
    fn entry_proximity_gain(&self, question: &ResolvedQuery, entry: u32) -> f32 {
        let mut counts: Vec<f32> = vec![0.0; question.pairs.len()];
        let mut before = FIELD_SEPARATOR;
        let in_place = |term: &u32| term & WHOLE_IDENTIFIER_BIT == 0 || *term == FIELD_SEPARATOR;
        for term in self.entry_terms(entry).iter().copied().filter(in_place) {
            if before != FIELD_SEPARATOR
                && let Some(pair) = question.pairs.iter().position(|it| it.terms == (before, term))
            {
                counts[pair] += 1.0;
            }
            before = term;
        }
        let of = |(pair, count): (&QueryPair, &f32)| proximity_gain(pair.weight, *count);
        question.pairs.iter().zip(&counts).map(of).sum()
    }

    /// What an entry gains by how near the question is to the nearest of its
    /// summaries.
    fn best_summary_gain(&self, question: &ResolvedQuery, entry: u32) -> f32 {
        let gain = |line: &[u32]| {
            let (mut common, mut beside) = (0.0, 0.0);
            for word in line {
                match question.words.iter().find(|(asked, _)| asked == word) {
                    Some((_, weight)) => common += weight,
                    None => beside += self.inverse_document_frequency(*word),
                }
            }
            title_gain(common, question.asked_in_title, beside)
        };
        self.summaries.entry_lines(entry).map(gain).fold(0.0, f32::max)
    }

    /// Entries that the question is the name of.
    fn entries_named(&self, question: &ResolvedQuery) -> &[u32] {
        self.names.get(question.bare.as_str()).map_or(&[], Vec::as_slice)
    }

    fn resolve_query(&self, text: &str) -> ResolvedQuery {
        let question = moonlark_search::ParsedQuery::parse(text);
        let find = |term: &str| self.vocabulary.find_word(term);
        let with = |term: &str| find(term).map_or(0, |id| self.term_postings(id).len() as u64);
        let weights = question.weigh_terms(self.len() as u64, with);
        let mut terms: Vec<(u32, f32)> =
            weights.terms.iter().filter_map(|it| Some((find(&it.term)?, it.weight))).collect();
        let own = weights.terms.iter().filter(|it| it.word);
        let words: Vec<_> = own.filter_map(|it| Some((find(&it.term)?, it.in_title))).collect();
        let asked_words = || question.terms.iter().filter(|it| it.kind == QueryTermKind::Word);
        let complete = words.len() == asked_words().count();
        let unknown = asked_words().filter(|it| find(&it.term).is_none());
        for asked in unknown.take(MAX_UNKNOWN_WORDS) {
            for (id, likeness) in self.vocabulary.find_similar_words(&asked.term) {
                if !terms.iter().any(|it| it.0 == id) {
                    let times = asked.times * SIMILAR_WORD_WEIGHT * likeness;
                    terms.push((id, query_term_weight(self.inverse_document_frequency(id), times)));
                }
            }
        }
        let pair = |(a, b): &(usize, usize)| {
            let terms = (find(&question.terms[*a].term)?, find(&question.terms[*b].term)?);
            let weight = (self.inverse_document_frequency(terms.0)
                + self.inverse_document_frequency(terms.1))
                / 2.0;
            Some(QueryPair { terms, weight })
        };
        let pairs = question.pairs.iter().take(MAX_QUERY_PAIRS).filter_map(pair).collect();
        ResolvedQuery {
            terms,
            words,
            complete,
            asked: weights.asked,
            asked_in_title: weights.asked_in_title,
            pairs,
            bare: normalize_name(text),
        }
    }

    /// A word in few entries says more than one in many.
    fn inverse_document_frequency(&self, term: u32) -> f32 {
        inverse_document_frequency(self.len() as u64, self.term_postings(term).len() as u64)
    }

    fn term_postings(&self, term: u32) -> &[TermPosting] {
        let term = term as usize;
        &self.places[self.starts[term] as usize..self.starts[term + 1] as usize]
    }

    fn entry_terms(&self, entry: u32) -> &[u32] {
        let entry = entry as usize;
        &self.texts[self.text_starts[entry] as usize..self.text_starts[entry + 1] as usize]
    }
}

/// A question as the index understands it.
struct ResolvedQuery {
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
    pairs: Vec<QueryPair>,
    bare: String,
}

struct QueryPair {
    terms: (u32, u32),
    weight: f32,
}

/// The best of them, best first; of equals, the one that was added first.
fn best_hits(scores: &[f32], most: usize, accept: impl Fn(u32) -> bool) -> Vec<IndexHit> {
    let order =
        |a: &IndexHit, b: &IndexHit| b.score.total_cmp(&a.score).then(a.entry.cmp(&b.entry));
    let scored =
        (0..).zip(scores).map(|(entry, score)| IndexHit { entry, score: *score, exact: false });
    let mut hits: Vec<IndexHit> =
        scored.filter(|hit| hit.score > 0.0 && accept(hit.entry)).collect();
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
