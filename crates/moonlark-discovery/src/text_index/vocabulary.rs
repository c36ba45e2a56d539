//! The words of an index, with prefix and fuzzy lookup for those that it does not have.

use std::collections::HashMap;
use std::sync::Arc;

/// Shorter words are like too many others.
const MIN_PREFIX_BYTES: usize = 3;
const MIN_TYPO_WORD_BYTES: usize = 5;
/// How much longer a word may be than its beginning.
const MAX_PREFIX_EXTENSION_BYTES: usize = 4;
/// How much shorter, and no shorter than what.
const MAX_ENDING_BYTES: usize = 3;
const MIN_STEM_BYTES: usize = 4;
/// How many words one may stand for.
const MAX_SIMILAR_WORDS: usize = 4;

pub(super) struct IndexVocabulary {
    ids: HashMap<Arc<str>, u32>,
    words: Vec<Arc<str>>,
    /// Which letters each word has, to pass over most of them quickly.
    letters: Vec<u64>,
    /// All words by their first byte, and where those of each byte begin: nothing is
    /// like a word that begins otherwise.
    by_first_byte: Vec<u32>,
    first_byte_starts: Vec<u32>,
}

impl IndexVocabulary {
    pub(super) fn new(ids: HashMap<Arc<str>, u32>, words: Vec<Arc<str>>) -> Self {
        let letters = words.iter().map(|word| letter_mask(word)).collect();
        let first = |id: u32| words[id as usize].bytes().next().unwrap_or_default();
        let mut by_first_byte: Vec<u32> = (0..words.len() as u32).collect();
        by_first_byte.sort_by_key(|id| first(*id));
        let before = |byte| by_first_byte.partition_point(|id| u16::from(first(*id)) < byte) as u32;
        let first_byte_starts = (0..=u16::from(u8::MAX) + 1).map(before).collect();
        Self { ids, words, letters, by_first_byte, first_byte_starts }
    }

    /// About how many bytes it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.words.iter().map(|word| word.len() + 84).sum()
    }

    pub(super) fn find_word(&self, word: &str) -> Option<u32> {
        self.ids.get(word).copied()
    }

    /// The words most like one that is not there, and how like it they are. It
    /// may stand for each of several, and so for none of them fully.
    pub(super) fn find_similar_words(&self, word: &str) -> Vec<(u32, f32)> {
        if word.len() < MIN_PREFIX_BYTES {
            return Vec::new();
        }
        let own = letter_mask(word);
        let mut found: Vec<(f32, &str, u32)> = Vec::new();
        for id in self.words_beginning_as(word) {
            // A slip changes two letters at most; a beginning has no other.
            let letters = self.letters[*id as usize];
            let (lacks, adds) = (own & !letters, letters & !own);
            if lacks != 0 && adds != 0 && (lacks | adds).count_ones() > 2 {
                continue;
            }
            let other = &*self.words[*id as usize];
            if let Some(likeness) = word_similarity(word, other) {
                found.push((likeness, other, *id));
            }
        }
        found.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        found.truncate(MAX_SIMILAR_WORDS);
        let shared = (found.len() as f32).sqrt();
        found.into_iter().map(|(likeness, _, id)| (id, likeness / shared)).collect()
    }

    /// The words that have the first byte of this one.
    fn words_beginning_as(&self, word: &str) -> &[u32] {
        let Some(first) = word.bytes().next().map(usize::from) else { return &[] };
        let of = self.first_byte_starts[first] as usize..self.first_byte_starts[first + 1] as usize;
        &self.by_first_byte[of]
    }
}

fn word_similarity(word: &str, other: &str) -> Option<f32> {
    let begins = if other.len() >= word.len() {
        other.len() - word.len() <= MAX_PREFIX_EXTENSION_BYTES && other.starts_with(word)
    } else {
        // A form of the word that the stemmer takes for another word.
        other.len() >= MIN_STEM_BYTES
            && word.len() - other.len() <= MAX_ENDING_BYTES
            && word.starts_with(other)
    };
    if begins {
        return Some(0.5);
    }
    let slip = word.len() >= MIN_TYPO_WORD_BYTES
        && word.chars().next() == other.chars().next()
        && word.len().abs_diff(other.len()) <= 4
        // One letter more, less or other, or two in the wrong order.
        && strsim::osa_distance(word, other) == 1;
    slip.then_some(0.7)
}

/// One bit for each letter and digit, one for all others.
fn letter_mask(word: &str) -> u64 {
    let bit = |byte: u8| match byte {
        b'a'..=b'z' => 1 << (byte - b'a'),
        b'0'..=b'9' => 1 << (26 + byte - b'0'),
        _ => 1 << 36,
    };
    word.bytes().fold(0, |bits, byte| bits | bit(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_one_letter_or_two_swapped() {
        for (word, other, expected) in [
            ("issue", "isue", true),
            ("issue", "isssue", true),
            ("issue", "issua", true),
            ("issue", "isseu", true),
            ("issue", "issue", false),
            ("issue", "issues2", false),
            ("branch", "brnach", true),
            ("branch", "bnarch", false),
        ] {
            assert_eq!(word_similarity(word, other) == Some(0.7), expected, "{word} {other}");
        }
    }

    #[test]
    fn a_beginning_stands_for_the_words_that_begin_so() {
        let words: Vec<Arc<str>> =
            ["kubernet", "kubectl", "cube", "repositori"].map(Arc::from).into();
        let ids = words.iter().cloned().zip(0..).collect();
        let vocabulary = IndexVocabulary::new(ids, words);
        let like = |word: &str| {
            vocabulary.find_similar_words(word).into_iter().map(|it| it.0).collect::<Vec<_>>()
        };
        assert_eq!(like("kube"), [1, 0]);
        assert_eq!(like("repositry"), [] as [u32; 0]);
        assert_eq!(like("repostori"), [3]);
        assert_eq!(like("xy"), [] as [u32; 0]);
    }
}
