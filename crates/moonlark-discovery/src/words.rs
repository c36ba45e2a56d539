//! Text to terms: what the index has and what queries ask for.
//!
//! A term is a stem. An identifier gives its parts and itself, so that both
//! `readFile` and `read file` find `read_file`. Scripts that are written
//! without spaces give pairs of letters.

use crate::stem::stem;

/// Longer runs of letters are data, not words.
const LONGEST: usize = 64;

/// The terms of a text, in order. `each` also gets whether the term is an
/// identifier that has been given in parts already.
pub(crate) fn terms(text: &str, mut each: impl FnMut(String, bool)) {
    for run in text.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')) {
        let run = run.trim_matches('_');
        if run.is_empty() {
            continue;
        }
        if run.chars().any(is_unspaced) {
            pairs(run, &mut each);
            continue;
        }
        let mut parts = 0;
        let mut whole = String::new();
        for part in parts_of(run) {
            let word = part.to_lowercase();
            parts += 1;
            if word.len() > LONGEST {
                continue;
            }
            if whole.len() <= LONGEST {
                whole.push_str(&word);
            }
            if !is_stop_word(&word) {
                each(stem(&word), false);
            }
        }
        if parts > 1 && whole.len() <= LONGEST {
            each(whole, true);
        }
    }
}

/// Neighbouring words as one, since names often are: `air quality` as
/// `airquality`.
pub(crate) fn joined(text: &str, mut each: impl FnMut(String)) {
    let mut before = String::new();
    for run in text.split(|letter: char| !letter.is_alphanumeric()) {
        if run.is_empty() || run.len() > LONGEST {
            continue;
        }
        let word = run.to_lowercase();
        if !before.is_empty() {
            each(stem(&(before + &word)));
        }
        before = word;
    }
}

/// All letters and digits of a name, so that spellings of it are one.
pub(crate) fn bare(name: &str) -> String {
    name.chars().filter(|it| it.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// `readHTTPFile_v2` as `read`, `HTTP`, `File`, `v2`.
fn parts_of(run: &str) -> impl Iterator<Item = &str> {
    run.split('_').filter(|part| !part.is_empty()).flat_map(Camel::new)
}

struct Camel<'a> {
    rest: &'a str,
}

impl<'a> Camel<'a> {
    fn new(rest: &'a str) -> Self {
        Self { rest }
    }
}

impl<'a> Iterator for Camel<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let mut letters = self.rest.char_indices().peekable();
        let (_, mut before) = letters.next()?;
        while let Some((at, letter)) = letters.next() {
            let after = letters.peek().map(|(_, letter)| *letter);
            let begins = letter.is_uppercase()
                && (before.is_lowercase() || after.is_some_and(char::is_lowercase));
            if begins {
                let (part, rest) = self.rest.split_at(at);
                self.rest = rest;
                return Some(part);
            }
            before = letter;
        }
        Some(std::mem::take(&mut self.rest))
    }
}

/// Letters of scripts that do not put spaces between words.
fn is_unspaced(letter: char) -> bool {
    matches!(letter, '\u{0e00}'..='\u{0eff}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}' | '\u{20000}'..='\u{323af}')
}

fn pairs(run: &str, each: &mut impl FnMut(String, bool)) {
    let mut before: Option<char> = None;
    let mut latin = String::new();
    for letter in run.chars().chain(std::iter::once('_')) {
        if is_unspaced(letter) {
            if let Some(before) = before {
                each([before, letter].iter().collect(), false);
            }
            before = Some(letter);
        } else {
            before = None;
        }
        if is_unspaced(letter) || letter == '_' {
            if !latin.is_empty() && latin.len() <= LONGEST {
                each(stem(&latin.to_lowercase()), false);
            }
            latin.clear();
        } else {
            latin.push(letter);
        }
    }
}

/// Words that say nothing about what is looked for.
pub(crate) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// In order.
#[rustfmt::skip]
const STOP_WORDS: [&str; 126] = [
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let mut found = Vec::new();
        terms(text, |term, _| found.push(term));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn stop_words_are_in_order() {
        assert!(STOP_WORDS.is_sorted());
    }

    #[test]
    fn identifiers_give_their_parts_and_themselves() {
        check("read_file", &["read", "file", "readfile"]);
        check("readHTTPFiles", &["read", "http", "file", "readhttpfiles"]);
        check("list-pull-requests", &["list", "pull", "request"]);
        check("sha256 of S3Object", &["sha256", "s3", "object", "s3object"]);
        check("__init__", &["init"]);
    }

    #[test]
    fn text_without_spaces_gives_pairs() {
        check("使用必应search搜索", &["使用", "用必", "必应", "search", "搜索"]);
    }

    #[test]
    fn words_that_say_nothing_are_left_out() {
        check("How do I list the files in a folder?", &["list", "file", "folder"]);
    }
}
