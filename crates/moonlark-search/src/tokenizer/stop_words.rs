//! Stop words.

use std::sync::LazyLock;

use rustc_hash::FxHashSet;

/// As it is after folding.
pub fn is_stop_word(word: &str) -> bool {
    static ALL_STOP_WORDS: LazyLock<FxHashSet<&str>> =
        LazyLock::new(|| ENGLISH_STOP_WORDS.iter().chain(&GERMAN_STOP_WORDS).copied().collect());
    // None is longer: many words are not looked up.
    word.len() <= 10 && ALL_STOP_WORDS.contains(word)
}

pub(super) fn is_german_stop_word(word: &str) -> bool {
    word.len() <= 6 && GERMAN_STOP_WORDS.binary_search(&word).is_ok()
}

/// In order.
#[rustfmt::skip]
pub(crate) const ENGLISH_STOP_WORDS: [&str; 126] = [
    "a", "about", "above", "after", "again", "against", "all", "am", "an", "and", "any", "are",
    "as", "at", "be", "because", "been", "before", "being", "below", "between", "both", "but", "by",
    "can", "could", "did", "do", "does", "doing", "don", "down", "during", "each", "few", "for",
    "from", "further", "had", "has", "have", "having", "he", "her", "here", "hers", "herself",
    "him", "himself", "his", "how", "i", "if", "in", "into", "is", "it", "its", "itself", "just",
    "me", "more", "most", "my", "myself", "no", "nor", "not", "now", "of", "off", "on", "once",
    "only", "or", "other", "our", "ours", "ourselves", "out", "over", "own", "s", "same", "she",
    "should", "so", "some", "such", "t", "than", "that", "the", "their", "theirs", "them",
    "themselves", "then", "there", "these", "they", "this", "those", "through", "to", "too",
    "under", "until", "up", "very", "was", "we", "were", "what", "when", "where", "which", "while",
    "who", "whom", "why", "will", "with", "would", "you", "your",
];

/// Only those that mean nothing else elsewhere, so not `die`, `mit` and `der`:
/// one dies, a licence is MIT, a certificate is DER. In order.
#[rustfmt::skip]
const GERMAN_STOP_WORDS: [&str; 41] = [
    "aber", "auch", "auf", "bei", "dass", "ein", "eine", "einem", "einen", "einer", "eines", "fur",
    "haben", "ich", "ihr", "ist", "kann", "kein", "keine", "konnen", "mein", "meine", "nach",
    "nicht", "oder", "sein", "sich", "sie", "sind", "uber", "und", "vom", "von", "wann", "warum",
    "wenn", "werden", "wie", "wird", "zum", "zur",
];

/// Words that ask rather than say what for. Texts are read with them, since May is
/// a month and a need may be one; in a question they count little.
#[rustfmt::skip]
const WEAK_WORDS: [&str; 15] = [
    "able", "anybody", "anyone", "anything", "may", "might", "must", "need", "please", "shall",
    "somebody", "someone", "something", "want", "wants",
];

/// Whether a term says little in a question. Terms are stems.
pub(crate) fn is_weak_term(term: &str) -> bool {
    static WEAK_STEMS: LazyLock<FxHashSet<String>> = LazyLock::new(|| {
        let stemmed = |word: &&str| {
            let mut word = (*word).to_owned();
            super::stem_word(&mut word);
            word
        };
        WEAK_WORDS.iter().map(stemmed).collect()
    });
    WEAK_STEMS.contains(term)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_in_order() {
        assert!(ENGLISH_STOP_WORDS.is_sorted());
        assert!(GERMAN_STOP_WORDS.is_sorted());
        assert!(WEAK_WORDS.is_sorted());
    }

    #[test]
    fn a_word_that_asks_is_known_by_its_stem() {
        assert!(is_weak_term("mai") && is_weak_term("want") && !is_weak_term("script"));
        assert!(!is_stop_word("may"));
    }
}
