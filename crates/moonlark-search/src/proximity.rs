//! Proximity: words of a question that stand side by side in a text as they do there.
//!
//! An index of words alone does not know that, so the best that it has found
//! are looked at again.

use rustc_hash::FxHashMap;

use crate::language::TextLanguage;
use crate::parsed_query::{ParsedQuery, QueryWeights, WeightedTerm};
use crate::tokenizer::{self, TermRole};

/// What it counts that two words stand together in both, and how soon once is
/// as good as often.
const PROXIMITY_WEIGHT: f32 = 0.6;
const PROXIMITY_SATURATION: f32 = 0.5;
/// Neighbours that are looked for.
const MAX_PROXIMITY_PAIRS: usize = 64;

pub struct ProximityGain<'a> {
    numbers: FxHashMap<&'a str, usize>,
    /// Neighbours by their numbers, in the order of the question, and what they are worth.
    pairs: Vec<((usize, usize), f32)>,
}

impl<'a> ProximityGain<'a> {
    /// Those of a question that some document has, by what they are worth.
    pub fn new(question: &'a ParsedQuery, weights: &QueryWeights) -> ProximityGain<'a> {
        let word = |it: &WeightedTerm| it.of.unwrap_or(it.number);
        let worth: FxHashMap<usize, f32> =
            weights.terms.iter().map(|it| (word(it), it.weight)).collect();
        let weighed = question.pairs.iter().filter_map(|(first, second)| {
            let weight = (worth.get(first)? + worth.get(second)?) / 2.0;
            Some(((*first, *second), weight))
        });
        let pairs: Vec<_> = weighed.take(MAX_PROXIMITY_PAIRS).collect();
        let words = pairs.iter().flat_map(|((first, second), _)| [*first, *second]);
        let own = words.map(|number| (question.terms[number].term.as_str(), number));
        let mut numbers: FxHashMap<&str, usize> = own.collect();
        for it in weights.terms.iter().filter(|it| it.of.is_some_and(|of| of != it.number)) {
            numbers.entry(question.terms[it.number].term.as_str()).or_insert_with(|| word(it));
        }
        ProximityGain { numbers, pairs }
    }

    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// What a document gains by these texts of it. Nothing stands side by side
    /// across two of them.
    pub fn proximity_weight<'t>(
        &self,
        language: TextLanguage,
        texts: impl IntoIterator<Item = &'t str>,
    ) -> f32 {
        let mut counts = vec![0.0_f32; self.pairs.len()];
        if self.is_empty() {
            return 0.0;
        }
        for text in texts {
            let mut before = None;
            tokenizer::for_each_term_in(language, text, |term| {
                if term.role != TermRole::Word {
                    return;
                }
                let number = self.numbers.get(term.text).copied();
                if let (Some(before), Some(number)) = (before, number)
                    && let Some(pair) = self.pairs.iter().position(|it| it.0 == (before, number))
                {
                    counts[pair] += 1.0;
                }
                before = number;
            });
        }
        let counted = self.pairs.iter().zip(counts);
        counted.map(|((_, weight), times)| proximity_gain(*weight, times)).sum()
    }
}

/// What two words of this rarity count that stand together so often.
pub fn proximity_gain(rarity: f32, times: f32) -> f32 {
    PROXIMITY_WEIGHT * rarity * times * (PROXIMITY_SATURATION + 1.0)
        / (times + PROXIMITY_SATURATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_side_by_side_count_and_words_apart_do_not() {
        let question = ParsedQuery::parse("how do I make a pull request?");
        let weights = question.weigh_terms(10, |_| 2);
        let neighbours = ProximityGain::new(&question, &weights);
        let weight = |text| neighbours.proximity_weight(TextLanguage::English, [text]);
        assert_eq!(weight("Request a pull."), 0.0);
        assert!(weight("Pull requests are made.") > 0.0);
        assert!(weight("A pull request is a pull request.") > weight("A pull request."));
        let apart = ["a pull", "request"];
        assert_eq!(neighbours.proximity_weight(TextLanguage::English, apart), 0.0);
    }

    #[test]
    fn a_word_alone_has_no_neighbours() {
        let question = ParsedQuery::parse("pull");
        assert!(ProximityGain::new(&question, &question.weigh_terms(10, |_| 2)).is_empty());
        let question = ParsedQuery::parse("pull request");
        let nowhere = |term: &str| u64::from(term == "pull");
        assert!(ProximityGain::new(&question, &question.weigh_terms(10, nowhere)).is_empty());
    }
}
