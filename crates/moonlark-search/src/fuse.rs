//! Score fusion: keyword and semantic scores as one.
//!
//! Words and vectors are put on scales of their own that mean the same for
//! every question and every collection, and then added. Neither is held
//! against the best candidate: where nothing has the words, the best of them
//! says little, and should count little.
//!
//! - Words: the sum of BM25, in units of what a question of some rare words
//!   could reach. A longer question can reach more; by the root of that, since
//!   hardly anything has all words of a long one.
//! - Vectors: how many deviations nearer than a usual row of the collection.
//!   So every model has the same scale, whatever cosines it tends to. They count for
//!   more where even the best candidate lacks words of the question: then it was asked
//!   in other words than those of the texts.
//!
//! The few numbers were chosen on labelled collections, where anything near them
//! does as well. Chosen on all but one, they differ little, and the one that was
//! left out gains over the better of its two parts all the same.
//! `cargo x bench knowledge` measures what they are worth.

use crate::bm25::{MAX_TERM_WEIGHT, inverse_document_frequency};

/// How many rare words a usual question has.
const TYPICAL_QUERY_WORDS: f32 = 4.0;
/// What one deviation counts, where 1 is what a usual question's words reach.
const DEVIATION_WEIGHT: f32 = 1.0 / 25.0;
/// How much more that is where no candidate has a word of the question.
const UNCOVERED_WEIGHT: f32 = 0.5;
/// Rows that are nearer to each other than this are all the same row.
const MIN_COSINE_DEVIATION: f32 = 0.01;
/// What is known of cosines before any is seen, as if by so many rows: a
/// collection of three has no deviation to speak of.
const PRIOR_COSINES: CosineStats = CosineStats { rows: 20, mean: 0.1, deviation: 0.1 };

/// Something that words or vectors have found, judged by both.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FusionCandidate<I> {
    pub id: I,
    /// The sum of BM25, with what neighbours add; 0 if it has no word of the
    /// question.
    pub keyword: f32,
    /// The cosine with the question; nothing if it has no vector.
    pub semantic: Option<f32>,
}

/// What both judgements are held against.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CollectionStats {
    /// How many documents rarity was counted in.
    pub documents: u64,
    /// [`crate::QueryWeights::asked`].
    pub asked: f32,
    pub cosines: CosineStats,
}

/// The cosines of a question with the rows of a collection.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CosineStats {
    pub rows: usize,
    /// The cosine of a usual row, and how far the others are from that.
    pub mean: f32,
    pub deviation: f32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FusedScore<I> {
    pub id: I,
    /// From 0 to 1.
    pub score: f32,
    /// How much of what was asked the words have reached, from 0 to 1.
    pub keyword: f32,
    /// How near the vector is, from 0 to 1.
    pub semantic: f32,
    /// How much of the score is due to vectors, from 0 to 1.
    pub weight: f32,
}

/// What vectors count beside words.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FusionWeights {
    /// What one deviation counts, where 1 is what a usual question's words reach.
    pub deviation: f32,
    /// How much more that is where no candidate has a word of the question.
    pub uncovered: f32,
}

impl Default for FusionWeights {
    fn default() -> FusionWeights {
        FusionWeights { deviation: DEVIATION_WEIGHT, uncovered: UNCOVERED_WEIGHT }
    }
}

/// All candidates, best first; of equals, the one with the smaller id.
pub fn fuse_scores<I: Copy + Ord>(
    collection: &CollectionStats,
    candidates: &[FusionCandidate<I>],
) -> Vec<FusedScore<I>> {
    fuse_weighted_scores(&FusionWeights::default(), collection, candidates)
}

/// The score of each candidate alone, in the order in which they come.
pub fn for_each_fused_score<I: Copy>(
    weights: &FusionWeights,
    collection: &CollectionStats,
    candidates: &[FusionCandidate<I>],
    mut each: impl FnMut(I, f32),
) {
    let scale = FusionScale::new(weights, collection, candidates);
    for it in candidates {
        let (words, vectors) = scale.parts(it);
        each(it.id, (words + vectors).tanh());
    }
}

/// The same with other weights than usual.
pub fn fuse_weighted_scores<I: Copy + Ord>(
    weights: &FusionWeights,
    collection: &CollectionStats,
    candidates: &[FusionCandidate<I>],
) -> Vec<FusedScore<I>> {
    let scale = FusionScale::new(weights, collection, candidates);
    let mut fused: Vec<(f32, FusedScore<I>)> = candidates
        .iter()
        .map(|it| {
            let (words, vectors) = scale.parts(it);
            let sum = words + vectors;
            let weight = if sum > 0.0 { vectors / sum } else { 0.0 };
            let keyword = collection.keyword_share(it.keyword);
            let semantic = it.semantic.map_or(0.0, |cosine| cosine.clamp(0.0, 1.0));
            (sum, FusedScore { id: it.id, score: sum.tanh(), keyword, semantic, weight })
        })
        .collect();
    // By the sum: scores near 1 are all alike.
    fused.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.id.cmp(&b.1.id)));
    fused.into_iter().map(|(_, it)| it).collect()
}

/// On which scale words and vectors are put for one question.
struct FusionScale {
    /// What a sum of BM25 is divided by; 0 where nothing was asked.
    reach: f32,
    cosines: CosineStats,
    deviation: f32,
}

impl FusionScale {
    fn new<I>(
        weights: &FusionWeights,
        collection: &CollectionStats,
        candidates: &[FusionCandidate<I>],
    ) -> FusionScale {
        let best = candidates.iter().map(|it| it.keyword).fold(0.0, f32::max);
        let uncovered = 1.0 - collection.covered_share(best);
        FusionScale {
            reach: collection.usual_reach(),
            cosines: collection.cosines.with_prior(),
            deviation: weights.deviation * (1.0 + weights.uncovered * uncovered),
        }
    }

    /// What words and vectors add to the score of a candidate.
    fn parts<I>(&self, it: &FusionCandidate<I>) -> (f32, f32) {
        let words = if self.reach > 0.0 { it.keyword.max(0.0) / self.reach } else { 0.0 };
        let above = it.semantic.map_or(0.0, |cosine| self.cosines.deviations_above(cosine));
        (words, self.deviation * above)
    }
}

impl CollectionStats {
    /// What the words of a usual question could reach.
    fn usual_reach(&self) -> f32 {
        let usual = TYPICAL_QUERY_WORDS * inverse_document_frequency(self.documents, 1);
        MAX_TERM_WEIGHT * (self.asked * usual).sqrt()
    }

    /// How much of the question the candidate with the best words has, from 0 to 1.
    fn covered_share(&self, best: f32) -> f32 {
        let most = MAX_TERM_WEIGHT * self.asked;
        if most > 0.0 { (best / most).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// How much of what was asked a sum of BM25 is, from 0 to 1. Neighbours add
    /// to what was asked, so nothing is cut: of two, the better has more.
    fn keyword_share(&self, score: f32) -> f32 {
        let most = MAX_TERM_WEIGHT * self.asked;
        if most > 0.0 { (score.max(0.0) / most).tanh() } else { 0.0 }
    }
}

impl CosineStats {
    fn deviations_above(&self, cosine: f32) -> f32 {
        ((cosine - self.mean) / self.deviation).max(0.0)
    }

    /// With what is known before.
    fn with_prior(self) -> CosineStats {
        let (own, before) = (self.rows as f32, PRIOR_COSINES.rows as f32);
        let mean = |a: f32, b: f32| (own * a + before * b) / (own + before);
        let square = |it: f32| it * it;
        let deviation = mean(square(self.deviation), square(PRIOR_COSINES.deviation)).sqrt();
        let deviation = deviation.max(MIN_COSINE_DEVIATION);
        CosineStats { rows: self.rows, mean: mean(self.mean, PRIOR_COSINES.mean), deviation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collection(asked: f32) -> CollectionStats {
        let cosines = CosineStats { rows: 1_000, mean: 0.1, deviation: 0.1 };
        CollectionStats { documents: 1_000, asked, cosines }
    }

    fn ids(collection: &CollectionStats, candidates: &[(u32, f32, Option<f32>)]) -> Vec<u32> {
        let candidates: Vec<_> = candidates
            .iter()
            .map(|(id, keyword, semantic)| FusionCandidate {
                id: *id,
                keyword: *keyword,
                semantic: *semantic,
            })
            .collect();
        fuse_scores(collection, &candidates).iter().map(|it| it.id).collect()
    }

    #[test]
    fn what_both_find_comes_before_what_one_finds() {
        let found = [(1, 20.0, Some(0.1)), (2, 20.0, Some(0.6)), (3, 0.0, Some(0.6))];
        assert_eq!(ids(&collection(20.0), &found), [2, 1, 3]);
    }

    #[test]
    fn where_nothing_has_the_words_the_vectors_decide() {
        let found = [(1, 1.0, Some(0.1)), (2, 0.0, Some(0.7))];
        assert_eq!(ids(&collection(40.0), &found), [2, 1]);
    }

    #[test]
    fn equals_are_in_the_order_of_their_ids() {
        let found = [(3, 5.0, None), (1, 5.0, None), (2, 5.0, None)];
        assert_eq!(ids(&collection(10.0), &found), [1, 2, 3]);
        let found = [(3, 1e9, Some(0.1)), (1, 1e9, Some(0.1)), (2, 2e9, Some(0.1))];
        assert_eq!(ids(&collection(10.0), &found), [2, 1, 3]);
    }

    #[test]
    fn without_words_without_vectors_or_without_documents_there_are_still_numbers() {
        for collection in [CollectionStats::default(), collection(0.0), collection(10.0)] {
            for (keyword, semantic) in
                [(0.0, None), (5.0, None), (0.0, Some(1.0)), (1e30, Some(-1.0))]
            {
                let fused =
                    fuse_scores(&collection, &[FusionCandidate { id: 0, keyword, semantic }])[0];
                for number in [fused.score, fused.keyword, fused.semantic, fused.weight] {
                    assert!((0.0..=1.0).contains(&number), "{collection:?} {fused:?}");
                }
            }
        }
    }

    #[test]
    fn a_collection_of_one_does_not_make_its_row_near() {
        let cosines = CosineStats { rows: 1, mean: 0.15, deviation: 0.0 };
        let of = cosines.with_prior();
        assert!((0.15 - of.mean) / of.deviation < 1.0);
    }
}
