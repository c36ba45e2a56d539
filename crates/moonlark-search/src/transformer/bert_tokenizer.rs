//! Text to the pieces that a model of the BERT family reads.
//!
//! As the original does it: control characters go, ideographs and punctuation are words of
//! their own, letters are made small and lose their marks, and a word becomes the longest
//! pieces that the vocabulary has, or is unknown as a whole.

use rustc_hash::FxHashMap;
use serde_json::Value;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::ModelFileFault;

/// Longer words are unknown.
const MAX_WORD_CHARS: usize = 100;
/// Bytes of a text for each piece that is read: what comes later is not looked at.
const MAX_BYTES_PER_PIECE: usize = 64;
const MAX_PIECE_BYTES: usize = 512;
/// How a piece begins that goes on with a word.
const CONTINUATION_PREFIX: &str = "##";

pub(super) struct BertTokenizer {
    /// Pieces that words begin with, and pieces that go on.
    first: FxHashMap<String, u32>,
    further: FxHashMap<String, u32>,
    unknown: u32,
    start: u32,
    end: u32,
    makes_small: bool,
    longest: usize,
}

impl BertTokenizer {
    /// From `tokenizer.json`, or from a list of pieces, one in a line. All of them have a
    /// row among `rows`.
    pub(super) fn parse(file: &[u8], rows: usize) -> Result<BertTokenizer, ModelFileFault> {
        let text = std::str::from_utf8(file)
            .map_err(|_| ModelFileFault("the vocabulary is no UTF-8".to_owned()))?;
        if text.trim_start().starts_with('{') {
            return BertTokenizer::parse_json(text, rows);
        }
        BertTokenizer::new((0..).zip(text.lines()), rows, true)
    }

    fn parse_json(text: &str, rows: usize) -> Result<BertTokenizer, ModelFileFault> {
        let fault = |said: &str| ModelFileFault(format!("tokenizer.json: {said}"));
        let json: Value =
            serde_json::from_str(text).map_err(|error| fault(&format!("no JSON: {error}")))?;
        let model = &json["model"];
        if model["type"].as_str().is_some_and(|it| it != "WordPiece") {
            return Err(fault("only WordPiece can be read"));
        }
        let pieces = model["vocab"].as_object().ok_or_else(|| fault("model.vocab is missing"))?;
        let numbered = pieces.iter().map(|(piece, number)| {
            (number.as_u64().and_then(|it| u32::try_from(it).ok()).unwrap_or(u32::MAX), &**piece)
        });
        let makes_small = json["normalizer"]["lowercase"].as_bool().unwrap_or(true);
        BertTokenizer::new(numbered, rows, makes_small)
    }

    fn new<'a>(
        pieces: impl Iterator<Item = (u32, &'a str)>,
        rows: usize,
        makes_small: bool,
    ) -> Result<BertTokenizer, ModelFileFault> {
        let (mut first, mut further) = (FxHashMap::default(), FxHashMap::default());
        let mut longest = 0;
        for (number, piece) in pieces {
            if number as usize >= rows {
                return Err(ModelFileFault(format!(
                    "the vocabulary has a piece numbered {number}, and the weights have {rows} rows"
                )));
            }
            if piece.len() > MAX_PIECE_BYTES {
                continue;
            }
            let (map, piece) = match piece.strip_prefix(CONTINUATION_PREFIX) {
                Some(piece) if !piece.is_empty() => (&mut further, piece),
                _ => (&mut first, piece),
            };
            longest = longest.max(piece.len());
            map.insert(piece.to_owned(), number);
        }
        let special = |name: &str| {
            let found = first.get(name).copied();
            found.ok_or_else(|| ModelFileFault(format!("the vocabulary has no piece {name}")))
        };
        let (unknown, start, end) = (special("[UNK]")?, special("[CLS]")?, special("[SEP]")?);
        Ok(BertTokenizer { first, further, unknown, start, end, makes_small, longest })
    }

    /// The pieces of a text with its two ends, `most` at the most.
    pub(super) fn pieces(&self, text: &str, most: usize) -> Vec<u32> {
        let text = &text[..text.floor_char_boundary(most * MAX_BYTES_PER_PIECE)];
        let mut pieces = vec![self.start];
        let room = most.saturating_sub(1);
        let mut word = String::new();
        for letter in text.chars() {
            if letter == '\0'
                || letter == '\u{fffd}'
                || (letter.is_control() && !letter.is_whitespace())
            {
                continue;
            }
            let stands_alone = is_bert_ideograph(letter) || is_punctuation(letter);
            if letter.is_whitespace() || stands_alone {
                self.push_word(&mut word, &mut pieces);
            }
            if stands_alone {
                word.push(letter);
                self.push_word(&mut word, &mut pieces);
            } else if !letter.is_whitespace() {
                word.push(letter);
            }
            if pieces.len() >= room {
                break;
            }
        }
        self.push_word(&mut word, &mut pieces);
        pieces.truncate(room);
        pieces.push(self.end);
        pieces
    }

    fn push_word(&self, word: &mut String, pieces: &mut Vec<u32>) {
        if word.is_empty() {
            return;
        }
        let plain = if !self.makes_small {
            std::mem::take(word)
        } else if word.is_ascii() {
            let mut plain = std::mem::take(word);
            plain.make_ascii_lowercase();
            plain
        } else {
            let small = word.chars().flat_map(char::to_lowercase);
            let plain = small.nfd().filter(|it| !is_combining_mark(*it)).collect();
            word.clear();
            plain
        };
        let before = pieces.len();
        if !self.split_word(&plain, pieces) {
            pieces.truncate(before);
            pieces.push(self.unknown);
        }
    }

    /// Whether every part of the word is in some piece.
    fn split_word(&self, word: &str, pieces: &mut Vec<u32>) -> bool {
        if word.is_empty() {
            return true;
        }
        if word.chars().count() > MAX_WORD_CHARS {
            return false;
        }
        let mut rest = word;
        let mut map = &self.first;
        while !rest.is_empty() {
            let ends = (1..=rest.len().min(self.longest)).rev();
            let found = ends
                .filter(|end| rest.is_char_boundary(*end))
                .find_map(|end| map.get(&rest[..end]).map(|piece| (end, *piece)));
            let Some((end, piece)) = found else { return false };
            pieces.push(piece);
            rest = &rest[end..];
            map = &self.further;
        }
        true
    }
}

/// What the original takes for Chinese.
fn is_bert_ideograph(letter: char) -> bool {
    matches!(letter, '\u{4e00}'..='\u{9fff}' | '\u{3400}'..='\u{4dbf}' | '\u{20000}'..='\u{2a6df}'
        | '\u{2a700}'..='\u{2ceaf}' | '\u{f900}'..='\u{faff}' | '\u{2f800}'..='\u{2fa1f}')
}

fn is_punctuation(letter: char) -> bool {
    letter.is_ascii_punctuation()
        || matches!(letter, '¡' | '§' | '«' | '¶' | '·' | '»' | '¿' | '\u{37e}' | '\u{387}'
            | '\u{589}' | '\u{5be}' | '\u{60c}' | '\u{61b}' | '\u{61f}' | '\u{964}'..='\u{965}'
            | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205e}' | '\u{2308}'..='\u{230b}'
            | '\u{3001}'..='\u{3003}' | '\u{3008}'..='\u{3011}' | '\u{3014}'..='\u{301f}'
            | '\u{30fb}' | '\u{fe10}'..='\u{fe19}' | '\u{fe30}'..='\u{fe63}'
            | '\u{ff01}'..='\u{ff03}' | '\u{ff05}'..='\u{ff0a}' | '\u{ff0c}'..='\u{ff0f}'
            | '\u{ff1a}'..='\u{ff1b}' | '\u{ff1f}'..='\u{ff20}' | '\u{ff3b}'..='\u{ff3d}'
            | '\u{ff3f}' | '\u{ff5b}' | '\u{ff5d}' | '\u{ff5f}'..='\u{ff65}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOCABULARY: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nread\n##ing\n##s\n!\ncafe\n犬\n猫";

    fn check(text: &str, expected: &[u32]) {
        let tokenizer = BertTokenizer::parse(VOCABULARY.as_bytes(), 11).unwrap();
        assert_eq!(tokenizer.pieces(text, 8), expected, "{text}");
    }

    #[test]
    fn a_text_becomes_pieces_between_its_ends() {
        check("Reading, reads!", &[2, 4, 5, 1, 4, 6, 7, 3]);
        check("Café\u{0}\t犬猫", &[2, 8, 9, 10, 3]);
        check("", &[2, 3]);
        check("reader", &[2, 1, 3]);
        check(&"read ".repeat(1_000), &[2, 4, 4, 4, 4, 4, 4, 3]);
        check(&"read".repeat(1_000), &[2, 1, 3]);
    }

    #[test]
    fn both_files_say_the_same() {
        let json = r#"{"normalizer":{"lowercase":false},"model":{"type":"WordPiece",
            "vocab":{"[UNK]":0,"[CLS]":1,"[SEP]":2,"Read":3,"read":4}}}"#;
        let tokenizer = BertTokenizer::parse(json.as_bytes(), 5).unwrap();
        assert_eq!(tokenizer.pieces("Read read READ", 9), [1, 3, 4, 0, 2]);
    }

    #[test]
    fn a_vocabulary_that_does_not_fit_is_refused() {
        for (file, rows, expected) in [
            ("[UNK]\n[CLS]", 5, "the vocabulary has no piece [SEP]"),
            (VOCABULARY, 5, "the vocabulary has a piece numbered 5, and the weights have 5 rows"),
            ("{\"model\":{\"type\":\"BPE\"}}", 5, "tokenizer.json: only WordPiece can be read"),
            ("{\"model\":{}}", 5, "tokenizer.json: model.vocab is missing"),
            (
                "{\"model\":{\"vocab\":{\"a\":-1}}}",
                5,
                "the vocabulary has a piece numbered 4294967295, and the weights have 5 rows",
            ),
        ] {
            let fault = BertTokenizer::parse(file.as_bytes(), rows).err();
            assert_eq!(fault.map(|it| it.0).as_deref(), Some(expected), "{file}");
        }
        assert!(BertTokenizer::parse(b"\xff", 5).is_err());
    }
}
