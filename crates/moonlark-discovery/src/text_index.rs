//! Ranked search: which entries a question is about.
//!
//! Words are weighed by how rare they are and by the field they stand in
//! (BM25F), then the best entries are looked at again for words that stand
//! together as in the question. Where entries have vectors, those that mean
//! something like the question are found as well, and both judgements are put
//! together by `moonlark-search`. A question of several clauses is asked as a whole
//! and clause by clause. It knows nothing of tools;
//! [`crate::function_index`] makes entries of them.

mod index_builder;
mod ranking_weights;
mod resolved_query;
mod summaries;
mod vocabulary;

use std::collections::HashMap;

pub use index_builder::{IndexEntry, TextIndexBuilder};
pub use ranking_weights::RankingWeights;
pub use summaries::split_first_sentence;

use moonlark_search::bm25::MAX_TERM_WEIGHT;
use moonlark_search::proximity::proximity_gain;
use moonlark_search::{
    CollectionStats, CosineStats, FusionCandidate, QueryLiterals, RowBitmap, StaticEmbeddingModel,
    cosine_similarity, for_each_fused_score, quantize_vector, split_clauses, title_gain, top_k,
};
use resolved_query::{ActionWords, QueryPair, ResolvedQuery, ResolvedTerm};
use summaries::{LineKind, SummaryLines};
use vocabulary::IndexVocabulary;

/// How many of the best are looked at again, of a question and of a clause of it.
const MAX_RERANKED_ENTRIES: usize = 100;
const MAX_RERANKED_CLAUSE_ENTRIES: usize = 30;
/// The least cosine of an entry that has no word of the question: what is
/// further away is there only because something has to be the nearest.
const MIN_SEMANTIC_COSINE: f32 = 0.2;
/// Rows that say how near rows are to a clause in general.
const MAX_SAMPLED_ROWS: usize = 256;

/// Between the fields of an entry in [`TextIndex::texts`].
const FIELD_SEPARATOR: u32 = u32::MAX;
/// An identifier that stands there in parts already.
const WHOLE_IDENTIFIER_BIT: u32 = 1 << 31;

pub struct TextIndex {
    vocabulary: IndexVocabulary,
    /// Where the entries of each term are, and how much one in so few says.
    starts: Vec<u32>,
    rarities: Vec<f32>,
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
    /// Terms of names, summaries and paths.
    subjects: RowBitmap,
    weights: RankingWeights,
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
    /// How much of what the question's words could reach this one has, from 0 to 1.
    pub coverage: f32,
    /// How near its vector is; 0 where there are no vectors.
    pub cosine: f32,
}

/// Every entry's score for a question.
struct ScoredQuestion {
    asked: ResolvedQuery,
    /// Where there are none, no clause has any.
    has_literals: bool,
    scores: Vec<f32>,
    /// The same by words alone.
    by_words: Vec<f32>,
    vector: Vec<i8>,
    /// The entries that were judged by words and by vectors.
    judged: Vec<u32>,
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
            + size_of_val(&*self.rarities)
            + size_of_val(&*self.places)
            + size_of_val(&*self.texts)
            + size_of_val(&*self.text_starts)
            + size_of_val(&*self.rows)
            + self.subjects.len() / 8
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
        let accepted = self.accepted_entries(accept);
        let accept = |entry: u32| accepted.as_ref().is_none_or(|it| it.get(entry as usize));
        let whole = self.score_question(question, accepted.as_ref());
        let mut scores = whole.scores.clone();
        let clauses = split_clauses(question);
        if clauses.len() > 1 && self.weights.best_clause > 0.0 {
            let mut best = vec![0.0_f32; scores.len()];
            for clause in &clauses {
                self.score_clause(clause, &whole, accepted.as_ref(), &mut best);
            }
            let share = self.weights.best_clause;
            for (score, best) in scores.iter_mut().zip(best) {
                *score = (1.0 - share) * *score + share * best;
            }
        }
        let order = self.put_exact_first(question, &whole.asked, &mut scores);
        let mut hits = best_hits(&order, most, accept);
        for hit in &mut hits {
            let score = scores[hit.entry as usize];
            (hit.exact, hit.score) = (hit.score > score, score);
            (hit.coverage, hit.cosine) = self.measure_fit(&whole, hit.entry);
        }
        hits
    }

    /// How much of the question's words an entry has, and how near it is.
    fn measure_fit(&self, question: &ScoredQuestion, entry: u32) -> (f32, f32) {
        let most = MAX_TERM_WEIGHT * question.asked.asked;
        let words = question.by_words[entry as usize];
        let coverage = if most > 0.0 { (words / most).clamp(0.0, 1.0) } else { 0.0 };
        let row = self.row_of(entry, question.vector.len());
        let cosine = row.map_or(0.0, |row| cosine_similarity(row, &question.vector));
        (coverage, cosine.clamp(0.0, 1.0))
    }

    /// The vector of an entry, if there are any of this length.
    fn row_of(&self, entry: u32, length: usize) -> Option<&[i8]> {
        let start = entry as usize * length;
        self.rows.get(start..start + length).filter(|row| !row.is_empty())
    }

    /// The entries that count, or nothing where all do.
    fn accepted_entries(&self, accept: impl Fn(u32) -> bool) -> Option<RowBitmap> {
        let mut accepted = RowBitmap::all_set(self.len());
        let mut all = true;
        for entry in (0..self.len()).filter(|entry| !accept(*entry as u32)) {
            accepted.remove(entry);
            all = false;
        }
        (!all).then_some(accepted)
    }

    fn score_question(&self, text: &str, accepted: Option<&RowBitmap>) -> ScoredQuestion {
        let literals = QueryLiterals::find(text);
        let asked = self.resolve_query(text, &literals, true);
        let mut by_words = self.keyword_scores(&asked);
        let mut judged = self.add_line_gains(&asked, &mut by_words, MAX_RERANKED_ENTRIES, accepted);
        let mut vector = Vec::new();
        let mut scores = Vec::new();
        if !self.rows.is_empty() {
            vector = embed_question(text, &literals);
            let found = top_k(&self.rows, &vector, MAX_RERANKED_ENTRIES, accepted);
            let near = found.best.iter().filter(|it| it.1 >= MIN_SEMANTIC_COSINE);
            judged.extend(near.map(|(entry, _)| *entry));
            judged.sort_unstable();
            judged.dedup();
            scores.resize(by_words.len(), 0.0);
            self.fuse_with_vectors(
                &vector,
                found.cosines,
                &asked,
                &judged,
                &by_words,
                |entry, score| {
                    scores[entry as usize] = score;
                },
            );
        } else {
            scores.clone_from(&by_words);
        }
        let has_literals = literals != QueryLiterals::default();
        ScoredQuestion { asked, has_literals, scores, by_words, vector, judged }
    }

    /// Let the score of each entry that a clause of the question fits be at least what it
    /// is for that clause. A clause is judged where its words are, and where those entries
    /// are that the whole question was judged by.
    fn score_clause(
        &self,
        text: &str,
        whole: &ScoredQuestion,
        accepted: Option<&RowBitmap>,
        best: &mut [f32],
    ) {
        let literals =
            if whole.has_literals { QueryLiterals::find(text) } else { QueryLiterals::default() };
        // Looking for words like unknown ones takes time, and was done for the whole.
        let asked = self.resolve_query(text, &literals, false);
        let mut by_words = self.keyword_scores(&asked);
        let most = MAX_RERANKED_CLAUSE_ENTRIES;
        let mut judged = self.add_line_gains(&asked, &mut by_words, most, accepted);
        if self.rows.is_empty() {
            for (best, score) in best.iter_mut().zip(by_words) {
                *best = best.max(score);
            }
            return;
        }
        let vector = embed_question(text, &literals);
        let cosines = self.sample_cosines(&vector);
        judged.extend(&whole.judged);
        judged.sort_unstable();
        judged.dedup();
        self.fuse_with_vectors(&vector, cosines, &asked, &judged, &by_words, |entry, score| {
            let best = &mut best[entry as usize];
            *best = best.max(score);
        });
    }

    /// Words that stand together as in the question add to what the best by words have,
    /// and so does a summary that is nearly the question. Gives these entries.
    fn add_line_gains(
        &self,
        asked: &ResolvedQuery,
        scores: &mut [f32],
        most: usize,
        accepted: Option<&RowBitmap>,
    ) -> Vec<u32> {
        let accept = |entry: u32| accepted.is_none_or(|it| it.get(entry as usize));
        let best = best_entries(scores, most, accept);
        for entry in &best {
            scores[*entry as usize] +=
                self.entry_proximity_gain(asked, *entry) + self.best_summary_gain(asked, *entry);
        }
        best
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
        let mut words: Vec<u32> = asked.own_words().collect();
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

    /// How near rows are in general, by some that stand all over the index.
    fn sample_cosines(&self, vector: &[i8]) -> CosineStats {
        let step = self.len().div_ceil(MAX_SAMPLED_ROWS).max(1);
        let (mut rows, mut sum, mut squares) = (0, 0.0, 0.0);
        for row in self.rows.chunks_exact(vector.len().max(1)).step_by(step) {
            let cosine = cosine_similarity(row, vector);
            rows += 1;
            sum += cosine;
            squares += cosine * cosine;
        }
        let all = rows.max(1) as f32;
        let mean = sum / all;
        CosineStats { rows, mean, deviation: (squares / all - mean * mean).max(0.0).sqrt() }
    }

    /// The scores of those that words or vectors have found, by both.
    fn fuse_with_vectors(
        &self,
        vector: &[i8],
        cosines: CosineStats,
        asked: &ResolvedQuery,
        judged: &[u32],
        scores: &[f32],
        each: impl FnMut(u32, f32),
    ) {
        let candidate = |entry: &u32| {
            let row = self.row_of(*entry, vector.len());
            let semantic = row.map(|row| cosine_similarity(row, vector));
            FusionCandidate { id: *entry, keyword: scores[*entry as usize], semantic }
        };
        let candidates: Vec<_> = judged.iter().map(candidate).collect();
        let collection =
            CollectionStats { documents: self.len() as u64, asked: asked.asked, cosines };
        for_each_fused_score(&self.weights.fusion, &collection, &candidates, each);
    }

    /// How well each entry fits, by its words.
    fn keyword_scores(&self, question: &ResolvedQuery) -> Vec<f32> {
        let mut scores = vec![0.0; self.len()];
        for ResolvedTerm { id, weight } in &question.terms {
            for place in self.term_postings(*id) {
                scores[place.entry as usize] += weight * place.weight;
            }
        }
        if let Some(action) = &question.action {
            self.add_action_scores(action, &mut scores);
        }
        scores
    }

    /// Several words for one action count as the one that says most. Another word than
    /// the question's says nothing where nothing else of the question is.
    fn add_action_scores(&self, action: &ActionWords, scores: &mut [f32]) {
        let mut best = vec![0.0_f32; scores.len()];
        let others = action.others.iter().map(|other| (*other, self.weights.same_action));
        for (word, share) in action.own.map(|own| (own, 1.0)).into_iter().chain(others) {
            let is_own = action.own == Some(word);
            for place in self.term_postings(word) {
                let entry = place.entry as usize;
                if is_own || scores[entry] > 0.0 {
                    best[entry] = best[entry].max(share * place.weight);
                }
            }
        }
        for (score, best) in scores.iter_mut().zip(best) {
            *score += action.weight * best;
        }
    }

    /// What an entry gains by having the question's words side by side.
    fn entry_proximity_gain(&self, question: &ResolvedQuery, entry: u32) -> f32 {
        if question.pairs.is_empty() {
            return 0.0;
        }
        let mut counts: Vec<f32> = vec![0.0; question.pairs.len()];
        let mut before = FIELD_SEPARATOR;
        // Hardly any term of an entry is asked for, so few are looked up.
        let mut before_is_asked = false;
        let in_place = |term: &u32| term & WHOLE_IDENTIFIER_BIT == 0 || *term == FIELD_SEPARATOR;
        for term in self.entry_terms(entry).iter().copied().filter(in_place) {
            if before_is_asked
                && let Ok(pair) =
                    question.pairs.binary_search_by_key(&(before, term), |it| it.terms)
            {
                counts[pair] += 1.0;
            }
            before = term;
            before_is_asked = term != FIELD_SEPARATOR && question.pair_starts.may_have(term);
        }
        let of = |(pair, count): (&QueryPair, &f32)| proximity_gain(pair.weight, *count);
        question.pairs.iter().zip(&counts).map(of).sum()
    }

    /// What an entry gains by how near the question is to the nearest of its
    /// summaries, or to its path.
    fn best_summary_gain(&self, question: &ResolvedQuery, entry: u32) -> f32 {
        let gain = |(kind, line): (LineKind, &[u32])| {
            let (mut common, mut beside) = (0.0, 0.0);
            let mut action = 0.0_f32;
            for word in line {
                match question.worth_in_title(*word, self.weights.same_action) {
                    Some((true, worth)) => action = action.max(worth),
                    Some((false, worth)) => common += worth,
                    None => beside += self.rarity(*word),
                }
            }
            let gain = title_gain(common + action, question.asked_in_title, beside);
            if kind == LineKind::Path { self.weights.path_line * gain } else { gain }
        };
        self.summaries.entry_lines(entry).map(gain).fold(0.0, f32::max)
    }

    /// Entries that the question is the name of.
    fn entries_named(&self, question: &ResolvedQuery) -> &[u32] {
        self.names.get(question.bare.as_str()).map_or(&[], Vec::as_slice)
    }

    /// A word in few entries says more than one in many.
    fn rarity(&self, term: u32) -> f32 {
        self.rarities.get(term as usize).copied().unwrap_or(0.0)
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

/// What a question means, without the literals in it.
fn embed_question(text: &str, literals: &QueryLiterals) -> Vec<i8> {
    let text = literals.rest.as_deref().unwrap_or(text);
    quantize_vector(&StaticEmbeddingModel::builtin().embed(text))
}

/// The best of them, best first; of equals, the one that was added first.
fn best_hits(scores: &[f32], most: usize, accept: impl Fn(u32) -> bool) -> Vec<IndexHit> {
    let hit = |entry: u32| IndexHit {
        entry,
        score: scores[entry as usize],
        exact: false,
        coverage: 0.0,
        cosine: 0.0,
    };
    best_entries(scores, most, accept).into_iter().map(hit).collect()
}

fn best_entries(scores: &[f32], most: usize, accept: impl Fn(u32) -> bool) -> Vec<u32> {
    let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    let scored = (0..).zip(scores.iter().copied());
    let mut best: Vec<(u32, f32)> =
        scored.filter(|(entry, score)| *score > 0.0 && accept(*entry)).collect();
    if most == 0 {
        return Vec::new();
    }
    if best.len() > most {
        best.select_nth_unstable_by(most - 1, order);
        best.truncate(most);
    }
    best.sort_unstable_by(order);
    best.into_iter().map(|(entry, _)| entry).collect()
}

#[cfg(test)]
mod tests;
