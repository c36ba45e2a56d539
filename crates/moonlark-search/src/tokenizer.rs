//! The tokenizer: text to terms, for indexes and questions.
//!
//! A term is a stem in plain letters. An identifier gives its parts and
//! itself, so that both `readFile` and `read file` find `read_file`. `ü` is
//! found as `u` and as `ue`. Scripts that are written without spaces give pairs
//! of letters, and each letter alone for those who ask for just one. An emoji
//! is a word. Stems and stop words are those of the text's language.

mod fold;
mod german;
mod stem;
mod stop_words;

use std::ops::Range;

use crate::language::TextLanguage;

pub(crate) use fold::fold_letters;
use fold::is_combining_mark;
pub(crate) use german::{is_german_text, other_word_forms};
pub use stem::stem_word;
pub use stop_words::is_stop_word;
pub(crate) use stop_words::{ENGLISH_STOP_WORDS, is_weak_term};

/// Longer runs of letters are data, not words.
const MAX_WORD_BYTES: usize = 64;

/// A word of a text, as it is looked up.
pub struct TextTerm<'a> {
    pub text: &'a str,
    /// Where it stands, in bytes.
    pub at: Range<usize>,
    pub role: TermRole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TermRole {
    /// A word in its place: it has neighbours and adds to the text's length.
    Word,
    /// Another way to find what stands there already: an identifier as a whole,
    /// another spelling, another form.
    Also,
    /// A letter that is part of a pair as well. Questions leave it out unless
    /// it is all there is.
    Letter,
}

/// The terms of a text, in order, those that say nothing left out.
pub fn for_each_term(text: &str, each: impl FnMut(TextTerm<'_>)) {
    for_each_term_in(TextLanguage::English, text, each);
}

/// The same for a text in this language.
pub fn for_each_term_in(language: TextLanguage, text: &str, mut each: impl FnMut(TextTerm<'_>)) {
    let (word, whole) = (String::new(), String::new());
    let mut reader = TermExtractor { language, each: &mut each, word, whole };
    let mut start = None;
    for (at, letter) in text.char_indices() {
        if is_word_char(letter) {
            start.get_or_insert(at);
            continue;
        }
        if let Some(start) = start.take() {
            reader.extract_run(text, start..at);
        }
        if is_pictogram(letter) {
            reader.emit_span(text, at..at + letter.len_utf8(), TermRole::Word);
        }
    }
    if let Some(start) = start {
        reader.extract_run(text, start..text.len());
    }
}

/// Neighbouring words as one, since names often are: `air quality` as
/// `airquality`.
pub(crate) fn for_each_joined_pair(text: &str, mut each: impl FnMut(&str)) {
    let (mut before, mut word) = (String::new(), String::new());
    for run in text.split(|letter: char| !(letter.is_alphanumeric() || is_combining_mark(letter))) {
        if run.is_empty() || run.len() > MAX_WORD_BYTES {
            continue;
        }
        fold_letters(run, &mut word);
        if !before.is_empty() {
            before.push_str(&word);
            stem_word(&mut before);
            each(&before);
        }
        std::mem::swap(&mut before, &mut word);
    }
}

/// All letters and digits of a name, so that spellings of it are one.
pub fn normalize_name(name: &str) -> String {
    let mut bare = String::new();
    let letters: String =
        name.chars().filter(|it| it.is_alphanumeric() || is_combining_mark(*it)).collect();
    fold_letters(&letters, &mut bare);
    bare
}

/// A name as words: `readHTTPFile_v2` as `read HTTP File v2`.
pub fn split_name(name: &str) -> String {
    let parts: Vec<&str> = identifier_parts(name).map(|part| &name[part]).collect();
    parts.join(" ")
}

/// The runs of letters and digits of a text. Ideographs are a run each.
pub(crate) fn for_each_run(text: &str, mut each: impl FnMut(&str)) {
    let is_gap = |letter| !is_ideograph(letter) && (letter == '_' || !is_word_char(letter));
    let runs = text.split(is_gap);
    for part in runs.flat_map(|run| run.split_inclusive(is_ideograph)) {
        let (word, ideograph) = part.split_at(part.trim_end_matches(is_ideograph).len());
        [word, ideograph].into_iter().filter(|run| !run.is_empty()).for_each(&mut each);
    }
}

/// Turns runs of letters into terms, in buffers that are used again.
struct TermExtractor<'a, F> {
    language: TextLanguage,
    each: &'a mut F,
    word: String,
    whole: String,
}

impl<F: FnMut(TextTerm<'_>)> TermExtractor<'_, F> {
    /// A run of letters, digits and underscores.
    fn extract_run(&mut self, text: &str, at: Range<usize>) {
        let run = &text[at.clone()];
        if !run.is_ascii() && run.chars().any(is_unspaced_script) {
            return self.extract_unspaced_run(text, at);
        }
        if is_encoded_data(run) {
            return;
        }
        let (mut parts, mut fits) = (0, true);
        self.whole.clear();
        for part in identifier_parts(run) {
            let start = at.start + part.start;
            let end = at.start + part.end;
            parts += 1;
            if !self.fold_part(&text[start..end]) {
                fits = false;
                continue;
            }
            fits &= self.whole.len() + self.word.len() <= MAX_WORD_BYTES;
            if fits {
                self.whole.push_str(&self.word);
            }
            if !self.language.is_stop_word(&self.word) {
                self.emit_umlaut_spelling(&text[start..end], start..end);
                self.language.stem_word(&text[start..end], &mut self.word);
                (self.each)(TextTerm { text: &self.word, at: start..end, role: TermRole::Word });
            }
        }
        if parts > 1 && fits {
            (self.each)(TextTerm { text: &self.whole, at, role: TermRole::Also });
        }
    }

    /// A part of a run in plain small letters; whether there is anything to find.
    fn fold_part(&mut self, part: &str) -> bool {
        if part.len() > 2 * MAX_WORD_BYTES {
            return false;
        }
        fold_letters(part, &mut self.word);
        (1..=MAX_WORD_BYTES).contains(&self.word.len())
    }

    /// `ü` as `ue`, as those write it whose keyboard does not have it.
    fn emit_umlaut_spelling(&mut self, part: &str, at: Range<usize>) {
        if part.is_ascii() {
            return;
        }
        if let Some(spelled) = german::spell_out_umlauts(part) {
            let mut term = spelled.clone();
            self.language.stem_word(&spelled, &mut term);
            let spelled = term;
            (self.each)(TextTerm { text: &spelled, at, role: TermRole::Also });
        }
    }

    /// What stands in the text just as it is looked up.
    fn emit_span(&mut self, text: &str, at: Range<usize>, role: TermRole) {
        (self.each)(TextTerm { text: &text[at.clone()], at, role });
    }

    fn extract_unspaced_run(&mut self, text: &str, at: Range<usize>) {
        let mut before: Option<Range<usize>> = None;
        let mut spaced: Option<usize> = None;
        for (offset, letter) in text[at.clone()].char_indices() {
            let place = at.start + offset..at.start + offset + letter.len_utf8();
            if is_unspaced_script(letter) {
                if let Some(start) = spaced.take() {
                    self.extract_run(text, start..place.start);
                }
                if let Some(before) = before {
                    self.emit_span(text, before.start..place.end, TermRole::Word);
                }
                self.emit_span(text, place.clone(), TermRole::Letter);
                before = Some(place);
            } else {
                before = None;
                spaced.get_or_insert(place.start);
            }
        }
        if let Some(start) = spaced {
            self.extract_run(text, start..at.end);
        }
    }
}

/// Whether a run is bytes in letters, such as Base64: its parts are too short
/// for a name.
fn is_encoded_data(run: &str) -> bool {
    const MIN_ENCODED_DATA_BYTES: usize = 16;
    run.len() >= MIN_ENCODED_DATA_BYTES && identifier_parts(run).count() * 3 > run.len()
}

/// `readHTTPFile_v2` as `read`, `HTTP`, `File`, `v2`.
fn identifier_parts(run: &str) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    run.split('_').flat_map(move |part| {
        let at = start;
        start += part.len() + 1;
        CamelCaseParts { run: part, at: 0 }.map(move |part| at + part.start..at + part.end)
    })
}

struct CamelCaseParts<'a> {
    run: &'a str,
    at: usize,
}

impl Iterator for CamelCaseParts<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        let mut letters = self.run[start..].char_indices().peekable();
        let (_, mut before) = letters.next()?;
        while let Some((offset, letter)) = letters.next() {
            let after = letters.peek().map(|(_, letter)| *letter);
            let begins = letter.is_uppercase()
                && (before.is_lowercase() || after.is_some_and(char::is_lowercase));
            if begins {
                self.at = start + offset;
                return Some(start..self.at);
            }
            if !is_combining_mark(letter) {
                before = letter;
            }
        }
        self.at = self.run.len();
        Some(start..self.at)
    }
}

fn is_word_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric()
        || letter == '_'
        || (!letter.is_ascii() && (letter.is_alphanumeric() || is_combining_mark(letter)))
}

/// Letters of scripts that do not put spaces between words.
fn is_unspaced_script(letter: char) -> bool {
    matches!(letter, '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3005}'..='\u{3007}' | '\u{3040}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{323af}')
}

fn is_ideograph(letter: char) -> bool {
    matches!(letter, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}')
}

/// Pictures that stand for a word. Their modifiers, such as skin tones, do not.
fn is_pictogram(letter: char) -> bool {
    matches!(letter, '\u{2190}'..='\u{21ff}' | '\u{2300}'..='\u{23ff}' | '\u{2600}'..='\u{27bf}'
        | '\u{2b00}'..='\u{2bff}' | '\u{1f000}'..='\u{1f3fa}' | '\u{1f400}'..='\u{1faff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let mut found = Vec::new();
        for_each_term(text, |term| {
            assert!(text.get(term.at.clone()).is_some(), "{text}: {:?}", term.at);
            found.push(match term.role {
                TermRole::Word => term.text.to_owned(),
                TermRole::Also => format!("+{}", term.text),
                TermRole::Letter => format!("-{}", term.text),
            });
        });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn identifiers_give_their_parts_and_themselves() {
        check("read_file", &["read", "file", "+readfile"]);
        check("readHTTPFiles", &["read", "http", "file", "+readhttpfiles"]);
        check("list-pull-requests", &["list", "pull", "request"]);
        check("sha256 of S3Object", &["sha256", "s3", "object", "+s3object"]);
        check("__init__", &["init"]);
        check("_ __", &[]);
    }

    #[test]
    fn names_are_read_as_words() {
        assert_eq!(split_name("readHTTPFile_v2"), "read HTTP File v2");
        assert_eq!(split_name("list-pull requests"), "list-pull requests");
        assert_eq!(split_name(""), "");
    }

    #[test]
    fn text_without_spaces_gives_pairs_and_letters() {
        check("必应search搜", &["-必", "必应", "-应", "search", "-搜"]);
        check("검색", &["-검", "검색", "-색"]);
        check("カ ひらo", &["-カ", "-ひ", "ひら", "-ら", "o"]);
    }

    #[test]
    fn words_that_say_nothing_are_left_out() {
        check("How do I list the files in a folder?", &["list", "file", "folder"]);
        check("Wie und für wen ist sie nicht?", &["wen"]);
    }

    #[test]
    fn marks_on_letters_do_not_matter() {
        check("Café Straße", &["cafe", "strass"]);
        check("MÜNCHEN", &["+muenchen", "munchen"]);
        check("Mu\u{308}nchen", &["+muenchen", "munchen"]);
        check("Việt Nam", &["viet", "nam"]);
        check("ＡＢＣ", &["abc"]);
        check("İstanbul", &["istanbul"]);
    }

    #[test]
    fn an_emoji_is_a_word() {
        check("deploy 🚀 now👍🏽", &["deploi", "🚀", "👍"]);
    }

    #[test]
    fn what_is_too_long_for_a_word_is_none() {
        check(&"x".repeat(65), &[]);
        check("iVBORw0KGgoAAAANSUhEUgAA", &[]);
        check(
            "getHTTPSUrlForAWSBucket",
            &["get", "http", "url", "aw", "bucket", "+gethttpsurlforawsbucket"],
        );
        check(&format!("b_{}", "c".repeat(70)), &["b"]);
    }
}
