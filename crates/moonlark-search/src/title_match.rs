//! Title match: how much of a question a title is, and how much of the title the question
//! is.
//!
//! BM25 counts the words that a text has of a question, and does not mind what
//! else the text says. A title or a heading is so short that what else it says
//! decides: "Create an issue" is that operation, "Create an issue type" another.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::language::TextLanguage;
use crate::parsed_query::{ParsedQuery, QueryWeights};
use crate::tokenizer::{self, TermRole};

/// What a title gains that says all that was asked and nothing else, in units of
/// what all words of the question are worth.
const WHOLE_TITLE_GAIN: f32 = 2.5;

/// What a document gains by a title: of what was `asked`, so much is `common` to
/// both, and the title has so much `beside` it. All in what words are worth.
pub fn title_gain(common: f32, asked: f32, beside: f32) -> f32 {
    let all = asked + beside;
    if all <= 0.0 {
        return 0.0;
    }
    let likeness = (common / all).clamp(0.0, 1.0);
    WHOLE_TITLE_GAIN * asked * likeness * likeness
}

/// The same for titles as texts, where nothing is known of words that the question
/// does not have: each counts as much as a usual word of the question.
pub struct TitleGain<'a> {
    /// Words with their numbers, and what each is worth.
    worth: FxHashMap<&'a str, (usize, f32)>,
    asked: f32,
    usual: f32,
}

impl<'a> TitleGain<'a> {
    pub fn new(question: &'a ParsedQuery, weights: &QueryWeights) -> TitleGain<'a> {
        let words = weights.terms.iter().filter_map(|it| Some((it.of?, it)));
        let worth: FxHashMap<&str, (usize, f32)> = words
            .map(|(of, it)| (question.terms[it.number].term.as_str(), (of, it.in_title)))
            .collect();
        let asked = weights.asked_in_title;
        let different: FxHashSet<usize> = worth.values().map(|(word, _)| *word).collect();
        let usual = asked / different.len().max(1) as f32;
        TitleGain { worth, asked, usual }
    }

    /// What a document gains by this title.
    pub fn title_weight(&self, language: TextLanguage, title: &str) -> f32 {
        let (mut common, mut beside) = (0.0, 0.0);
        let mut seen: FxHashSet<usize> = FxHashSet::default();
        tokenizer::for_each_term_in(language, title, |term| {
            if term.role != TermRole::Word {
                return;
            }
            match self.worth.get(term.text) {
                Some((word, worth)) if seen.insert(*word) => common += worth,
                Some(_) => {}
                None => beside += self.usual,
            }
        });
        title_gain(common, self.asked, beside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_that_is_nearly_the_question_gains_more_than_a_longer_one() {
        let question = ParsedQuery::parse("what may an agent's script do");
        let weights = question.weigh_terms(100, |_| 3);
        let titles = TitleGain::new(&question, &weights);
        let weight = |title| titles.title_weight(TextLanguage::English, title);
        assert!(weight("What a script may do") > weight("Script"));
        assert!(weight("Script") > weight("Script tests and how they run"));
        assert_eq!(weight("Limits"), 0.0);
        assert_eq!(weight("Script script"), weight("Script"));
    }

    #[test]
    fn the_title_that_says_just_what_was_asked_gains_most() {
        let whole = title_gain(10.0, 10.0, 0.0);
        assert!(whole > title_gain(10.0, 10.0, 3.0));
        assert!(title_gain(10.0, 10.0, 3.0) > title_gain(5.0, 10.0, 3.0));
        assert_eq!(title_gain(0.0, 10.0, 0.0), 0.0);
        assert_eq!(title_gain(0.0, 0.0, 0.0), 0.0);
    }
}
