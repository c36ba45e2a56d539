//! Text to pieces of words, as BERT has them: words in small letters without
//! marks, cut into the longest pieces that the vocabulary has.
//!
//! Unlike there, what is no letter and no digit is passed over.

use rustc_hash::FxHashMap;

use crate::tokenizer;

/// Longer words are data. What is left of them says nothing.
const MAX_SPLIT_WORD_BYTES: usize = 64;

#[derive(Default)]
pub(super) struct WordPieceTokenizer {
    /// Pieces that words begin with, and pieces that go on.
    first: FxHashMap<&'static str, u32>,
    further: FxHashMap<&'static str, u32>,
    longest: usize,
}

impl WordPieceTokenizer {
    /// From a vocabulary of a piece per line; those that go on begin with `##`.
    pub(super) fn new(vocabulary: &'static str) -> WordPieceTokenizer {
        let mut pieces = WordPieceTokenizer::default();
        for (number, piece) in (0..).zip(vocabulary.lines()) {
            let (map, piece) = match piece.strip_prefix("##") {
                Some(piece) => (&mut pieces.further, piece),
                None => (&mut pieces.first, piece),
            };
            map.insert(piece, number);
            pieces.longest = pieces.longest.max(piece.len());
        }
        pieces
    }

    /// The pieces of a text, in order.
    pub(super) fn for_each_piece(&self, text: &str, mut each: impl FnMut(u32)) {
        let mut word = String::new();
        tokenizer::for_each_run(text, |run| {
            tokenizer::fold_letters(run, &mut word);
            self.split_word(&word, &mut each);
        });
    }

    /// The pieces of a word; none if some of it is in no piece.
    fn split_word(&self, word: &str, each: &mut impl FnMut(u32)) {
        if let Some(piece) = self.first.get(word) {
            return each(*piece);
        }
        if word.len() > MAX_SPLIT_WORD_BYTES {
            return;
        }
        let (mut found, mut count) = ([0; MAX_SPLIT_WORD_BYTES], 0);
        let mut rest = word;
        while !rest.is_empty() {
            let map = if count == 0 { &self.first } else { &self.further };
            let longest = (1..=rest.len().min(self.longest)).rev();
            let piece = longest
                .filter(|end| rest.is_char_boundary(*end))
                .find_map(|end| map.get(&rest[..end]).map(|piece| (end, *piece)));
            let Some((end, piece)) = piece else { return };
            found[count] = piece;
            count += 1;
            rest = &rest[end..];
        }
        found[..count].iter().copied().for_each(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[u32]) {
        let pieces = WordPieceTokenizer::new("read\nre\n##ad\n##ing\n犬\ncafe");
        let mut found = Vec::new();
        pieces.for_each_piece(text, |piece| found.push(piece));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn a_word_is_cut_into_the_longest_pieces() {
        check("Read, reading!", &[0, 0, 3]);
        check("read_re", &[0, 1]);
        check("Café 犬犬", &[5, 4, 4]);
    }

    #[test]
    fn a_word_with_a_part_that_no_piece_has_is_left_out() {
        check("readx read", &[0]);
        check(&"read".repeat(20), &[]);
    }
}
