//! Words of a question that stand side by side in a text as they do there.
//!
//! An index of words alone does not know that, so the best that it has found
//! are looked at again.

use rustc_hash::FxHashMap;

use crate::parsed_query::{ParsedQuery, QueryWeights};
use crate::tokenizer::{self, TermRole};

/// What it counts that two words stand together in both, and how soon once is
/// as good as often.
const PROXIMITY_WEIGHT: f32 = 0.6;
const PROXIMITY_SATURATION: f32 = 0.5;
/// Neighbours that are looked for.
const MAX_PROXIMITY_PAIRS: usize = 64;

pub struct ProximityGain<'a> {
    numbers: FxHashMap<&'a str, usize>,
    pairs: FxHashMap<(usize, usize), ProximityPair>,
}

struct ProximityPair {
    number: usize,
    weight: f32,
}

impl<'a> ProximityGain<'a> {
    /// Those of a question that some document has, by what they are worth.
    pub fn new(question: &'a ParsedQuery, weights: &QueryWeights) -> ProximityGain<'a> {
        let worth: FxHashMap<usize, f32> =
            weights.terms.iter().map(|it| (it.number, it.weight)).collect();
        let mut of = ProximityGain { numbers: FxHashMap::default(), pairs: FxHashMap::default() };
        for (first, second) in &question.pairs {
            let (Some(one), Some(other)) = (worth.get(first), worth.get(second)) else { continue };
            let (number, weight) = (of.pairs.len(), (one + other) / 2.0);
            if number == MAX_PROXIMITY_PAIRS {
                break;
            }
            of.numbers.insert(&question.terms[*first].term, *first);
            of.numbers.insert(&question.terms[*second].term, *second);
            of.pairs.insert((*first, *second), ProximityPair { number, weight });
        }
        of
    }

    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// What a document gains by these texts of it. Nothing stands side by side
    /// across two of them.
    pub fn proximity_weight<'t>(&self, texts: impl IntoIterator<Item = &'t str>) -> f32 {
        let mut counts = vec![0.0_f32; self.pairs.len()];
        if self.is_empty() {
            return 0.0;
        }
        for text in texts {
            let mut before = None;
            tokenizer::for_each_term(text, |term| {
                if term.role != TermRole::Word {
                    return;
                }
                let number = self.numbers.get(term.text).copied();
                if let (Some(before), Some(number)) = (before, number)
                    && let Some(pair) = self.pairs.get(&(before, number))
                {
                    counts[pair.number] += 1.0;
                }
                before = number;
            });
        }
        let of = |pair: &ProximityPair| proximity_gain(pair.weight, counts[pair.number]);
        // In the order of the question, so that sums are the same every time.
        let mut pairs: Vec<&ProximityPair> = self.pairs.values().collect();
        pairs.sort_unstable_by_key(|pair| pair.number);
        pairs.into_iter().map(of).sum()
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
        let weight = |text| neighbours.proximity_weight([text]);
        assert_eq!(weight("Request a pull."), 0.0);
        assert!(weight("Pull requests are made.") > 0.0);
        assert!(weight("A pull request is a pull request.") > weight("A pull request."));
        assert_eq!(neighbours.proximity_weight(["a pull", "request"]), 0.0);
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
