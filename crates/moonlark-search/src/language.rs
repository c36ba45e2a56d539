//! Languages: which one a text is in, and what its words are cut to.
//!
//! A text is told by the words that say nothing: every language has its own, and a page
//! has dozens of them. What cannot be told is read as English, as code is. A document is
//! read in its language; a question, which is short, in each that the documents are in.

mod language_stop_words;

use std::sync::LazyLock;

use frostem::{Algorithm, Stemmer};
use rustc_hash::{FxHashMap, FxHashSet};
use unicode_normalization::UnicodeNormalization;

use crate::tokenizer::{self, fold_letters};
use language_stop_words::LANGUAGE_STOP_WORDS;

/// A language that is told from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum TextLanguage {
    /// And everything that cannot be told.
    #[default]
    English,
    Danish,
    Dutch,
    Finnish,
    French,
    German,
    Hungarian,
    Italian,
    Norwegian,
    Polish,
    Portuguese,
    Romanian,
    Russian,
    Spanish,
    Swedish,
    Turkish,
    Chinese,
    Japanese,
    Korean,
    Thai,
}

/// Bytes of a document that tell its language.
const MAX_DETECTION_BYTES: usize = 16 * 1024;
/// So many different words of it have to say nothing, and such a share of all.
const MIN_STOP_WORDS: usize = 4;
const MIN_STOP_WORD_SHARE: f32 = 0.12;
/// How many times as many as in English: words such as `in` and `die` are in both.
const MIN_TIMES_ENGLISH: f32 = 1.3;
/// Which share of letters are of a script without spaces.
const MIN_UNSPACED_SHARE: f32 = 0.2;
/// Longer words are of no language.
const MAX_STEMMED_BYTES: usize = 64;

impl TextLanguage {
    pub const ALL_LANGUAGES: [TextLanguage; 20] = [
        TextLanguage::English,
        TextLanguage::Danish,
        TextLanguage::Dutch,
        TextLanguage::Finnish,
        TextLanguage::French,
        TextLanguage::German,
        TextLanguage::Hungarian,
        TextLanguage::Italian,
        TextLanguage::Norwegian,
        TextLanguage::Polish,
        TextLanguage::Portuguese,
        TextLanguage::Romanian,
        TextLanguage::Russian,
        TextLanguage::Spanish,
        TextLanguage::Swedish,
        TextLanguage::Turkish,
        TextLanguage::Chinese,
        TextLanguage::Japanese,
        TextLanguage::Korean,
        TextLanguage::Thai,
    ];

    /// Of ISO 639.
    pub fn code(self) -> &'static str {
        self.names().0
    }

    /// In English.
    pub fn name(self) -> &'static str {
        self.names().1
    }

    pub fn from_code(code: &str) -> Option<TextLanguage> {
        TextLanguage::ALL_LANGUAGES.into_iter().find(|it| it.code() == code)
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            TextLanguage::English => ("en", "English"),
            TextLanguage::Danish => ("da", "Danish"),
            TextLanguage::Dutch => ("nl", "Dutch"),
            TextLanguage::Finnish => ("fi", "Finnish"),
            TextLanguage::French => ("fr", "French"),
            TextLanguage::German => ("de", "German"),
            TextLanguage::Hungarian => ("hu", "Hungarian"),
            TextLanguage::Italian => ("it", "Italian"),
            TextLanguage::Norwegian => ("no", "Norwegian"),
            TextLanguage::Polish => ("pl", "Polish"),
            TextLanguage::Portuguese => ("pt", "Portuguese"),
            TextLanguage::Romanian => ("ro", "Romanian"),
            TextLanguage::Russian => ("ru", "Russian"),
            TextLanguage::Spanish => ("es", "Spanish"),
            TextLanguage::Swedish => ("sv", "Swedish"),
            TextLanguage::Turkish => ("tr", "Turkish"),
            TextLanguage::Chinese => ("zh", "Chinese"),
            TextLanguage::Japanese => ("ja", "Japanese"),
            TextLanguage::Korean => ("ko", "Korean"),
            TextLanguage::Thai => ("th", "Thai"),
        }
    }

    /// The language of a document.
    pub fn detect(text: &str) -> TextLanguage {
        let text = &text[..text.floor_char_boundary(MAX_DETECTION_BYTES)];
        if let Some(language) = detect_by_script(text) {
            return language;
        }
        let StopWordCounts { words, of, different } = StopWordCounts::count(text);
        let english = of[TextLanguage::English as usize];
        let best = TextLanguage::ALL_LANGUAGES.into_iter().skip(1);
        let best = best.max_by_key(|it| (of[*it as usize], std::cmp::Reverse(*it)));
        let Some(best) = best else { return TextLanguage::English };
        let count = of[best as usize];
        let is_told = different[best as usize] >= MIN_STOP_WORDS
            && count as f32 >= MIN_STOP_WORD_SHARE * words as f32
            && count as f32 >= MIN_TIMES_ENGLISH * english as f32;
        if is_told { best } else { TextLanguage::English }
    }

    /// The languages that a question is read in, the likeliest first: all that the
    /// documents are in, of which those with most documents come first in `known`.
    pub fn order_by_question(question: &str, known: &[TextLanguage]) -> Vec<TextLanguage> {
        let mut readings: Vec<TextLanguage> = Vec::new();
        for language in known.iter().map(|it| it.reading()) {
            if !readings.contains(&language) {
                readings.push(language);
            }
        }
        let StopWordCounts { mut of, .. } = StopWordCounts::count(question);
        if let Some(language) = detect_by_script(question) {
            of[language.reading() as usize] += 1;
        }
        // Stable: of equals, the one with more documents.
        readings.sort_by_key(|it| std::cmp::Reverse(of[*it as usize]));
        readings
    }

    /// The language whose stems and stop words are used: scripts without spaces have
    /// pairs of letters instead, and between them stands English.
    fn reading(self) -> TextLanguage {
        match self {
            TextLanguage::Chinese
            | TextLanguage::Japanese
            | TextLanguage::Korean
            | TextLanguage::Thai => TextLanguage::English,
            language => language,
        }
    }

    /// Whether a word in plain letters says nothing in this language.
    pub(crate) fn is_stop_word(self, word: &str) -> bool {
        match self.reading() {
            TextLanguage::English => tokenizer::is_stop_word(word),
            language => stop_word_languages(word) & (1 << language as u32) != 0,
        }
    }

    /// The stem of a word as it is written, in plain letters. `plain` has the word in plain
    /// letters.
    pub(crate) fn stem_word(self, word: &str, plain: &mut String) {
        let Some(algorithm) = self.algorithm() else { return tokenizer::stem_word(plain) };
        if plain.len() > MAX_STEMMED_BYTES || !word.chars().all(is_word_letter) {
            return;
        }
        let small: String = if word.is_ascii() {
            word.to_ascii_lowercase()
        } else {
            word.nfc().flat_map(char::to_lowercase).collect()
        };
        let stem = Stemmer::new(algorithm).stem(&small);
        if !stem.is_empty() {
            fold_letters(&stem, plain);
        }
    }

    fn algorithm(self) -> Option<Algorithm> {
        Some(match self {
            TextLanguage::Danish => Algorithm::Danish,
            TextLanguage::Dutch => Algorithm::Dutch,
            TextLanguage::Finnish => Algorithm::Finnish,
            TextLanguage::French => Algorithm::French,
            TextLanguage::German => Algorithm::German,
            TextLanguage::Hungarian => Algorithm::Hungarian,
            TextLanguage::Italian => Algorithm::Italian,
            TextLanguage::Norwegian => Algorithm::Norwegian,
            TextLanguage::Polish => Algorithm::Polish,
            TextLanguage::Portuguese => Algorithm::Portuguese,
            TextLanguage::Romanian => Algorithm::Romanian,
            TextLanguage::Russian => Algorithm::Russian,
            TextLanguage::Spanish => Algorithm::Spanish,
            TextLanguage::Swedish => Algorithm::Swedish,
            TextLanguage::Turkish => Algorithm::Turkish,
            TextLanguage::English
            | TextLanguage::Chinese
            | TextLanguage::Japanese
            | TextLanguage::Korean
            | TextLanguage::Thai => return None,
        })
    }
}

/// Letters of the scripts that there are stems for.
fn is_word_letter(letter: char) -> bool {
    letter.is_ascii_alphabetic()
        || matches!(letter, '\u{c0}'..='\u{24f}' | '\u{300}'..='\u{36f}' | '\u{400}'..='\u{52f}')
}

/// By the script, where that says it. Of the languages in Cyrillic, Russian has letters
/// that the others lack, and lacks some that they have.
fn detect_by_script(text: &str) -> Option<TextLanguage> {
    let (mut letters, mut kana, mut hangul, mut han, mut thai) = (0, 0, 0, 0, 0);
    let (mut cyrillic, mut is_russian, mut is_other) = (0, false, false);
    for letter in text.chars().filter(|it| it.is_alphabetic()) {
        letters += 1;
        match letter {
            '\u{3040}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' => kana += 1,
            '\u{ac00}'..='\u{d7af}' => hangul += 1,
            '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}' => {
                han += 1
            }
            '\u{0e00}'..='\u{0e7f}' => thai += 1,
            '\u{0400}'..='\u{052f}' => {
                cyrillic += 1;
                is_russian |= matches!(letter, 'ы' | 'э' | 'ё' | 'Ы' | 'Э' | 'Ё');
                is_other |= !matches!(letter, 'а'..='я' | 'А'..='Я' | 'ё' | 'Ё');
            }
            _ => {}
        }
    }
    if is_russian && !is_other && cyrillic * 2 > letters {
        return Some(TextLanguage::Russian);
    }
    let unspaced = kana + hangul + han + thai;
    if unspaced == 0 || (unspaced as f32) < MIN_UNSPACED_SHARE * letters as f32 {
        return None;
    }
    // Japanese has ideographs as well, and kana between them.
    Some(if hangul * 2 > unspaced {
        TextLanguage::Korean
    } else if thai * 2 > unspaced {
        TextLanguage::Thai
    } else if kana * 10 > unspaced {
        TextLanguage::Japanese
    } else {
        TextLanguage::Chinese
    })
}

/// How many words of a text say nothing in each language.
#[derive(Default)]
struct StopWordCounts {
    words: usize,
    of: [usize; TextLanguage::ALL_LANGUAGES.len()],
    /// Each word once.
    different: [usize; TextLanguage::ALL_LANGUAGES.len()],
}

impl StopWordCounts {
    fn count(text: &str) -> StopWordCounts {
        let mut counts = StopWordCounts::default();
        let mut seen: FxHashSet<String> = FxHashSet::default();
        let mut word = String::new();
        tokenizer::for_each_run(text, |run| {
            fold_letters(run, &mut word);
            counts.words += 1;
            let languages = stop_word_languages(&word);
            if languages != 0 {
                let is_new = !seen.contains(&word) && seen.insert(word.clone());
                let all = counts.of.iter_mut().zip(&mut counts.different).enumerate();
                for (_, (count, different)) in all.filter(|it| languages & (1 << it.0) != 0) {
                    *count += 1;
                    *different += usize::from(is_new);
                }
            }
        });
        counts
    }
}

/// A bit for each language in which a word in plain letters says nothing.
fn stop_word_languages(word: &str) -> u32 {
    static LANGUAGES_BY_WORD: LazyLock<FxHashMap<String, u32>> = LazyLock::new(|| {
        let mut languages: FxHashMap<String, u32> = FxHashMap::default();
        let mut plain = String::new();
        for (language, words) in LANGUAGE_STOP_WORDS {
            for word in words.split_whitespace() {
                fold_letters(word, &mut plain);
                *languages.entry(plain.clone()).or_default() |= 1 << language as u32;
            }
        }
        for word in tokenizer::ENGLISH_STOP_WORDS {
            *languages.entry(word.to_owned()).or_default() |= 1 << TextLanguage::English as u32;
        }
        languages
    });
    // None is longer.
    if word.len() > 24 { 0 } else { LANGUAGES_BY_WORD.get(word).copied().unwrap_or(0) }
}

#[cfg(test)]
mod tests;
