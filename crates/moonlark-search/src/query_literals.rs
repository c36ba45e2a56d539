//! Literals: what a question passes on rather than asks for.
//!
//! "Post "deploy finished" in #general" is about posting. What is quoted, and what only
//! data looks like, is an argument of what is asked for: addresses, paths, numbers,
//! dates, identifiers with digits.

use std::ops::Range;

use rustc_hash::FxHashSet;

use crate::tokenizer::{self, TermRole};

/// What a word counts that stands in literals only, and in no name or summary.
pub const LITERAL_WEIGHT: f32 = 0.3;

/// Quoted texts are literals up to this length; longer ones are what is asked.
const MAX_QUOTED_BYTES: usize = 200;

/// The words of a question that stand in its literals only.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueryLiterals {
    /// Words of quoted texts: whatever else they name, here they are an argument.
    pub quoted: FxHashSet<String>,
    /// Words of what only data looks like. They may be part of a name all the same.
    pub data: FxHashSet<String>,
    /// The question without them, or nothing where they are all of it.
    pub rest: Option<String>,
}

impl QueryLiterals {
    pub fn find(question: &str) -> QueryLiterals {
        let quoted = quoted_texts(question);
        let in_quotes = |at: usize| quoted.iter().any(|range| range.contains(&at));
        let words = words_with_places(question).filter(|(at, _)| !in_quotes(*at));
        let data: Vec<Range<usize>> = words
            .filter(|(_, word)| looks_like_data(word))
            .map(|(at, word)| at..at + word.len())
            .collect();
        if quoted.is_empty() && data.is_empty() {
            return QueryLiterals::default();
        }
        let mut literals = QueryLiterals::default();
        let mut rest = String::with_capacity(question.len());
        let mut outside = FxHashSet::default();
        let mut ranges: Vec<&Range<usize>> = quoted.iter().chain(&data).collect();
        ranges.sort_by_key(|range| range.start);
        let mut ranges = ranges.into_iter().peekable();
        for (at, letter) in question.char_indices() {
            while ranges.next_if(|range| range.end <= at).is_some() {}
            let inside = ranges.peek().is_some_and(|range| range.start <= at);
            rest.push(if inside { ' ' } else { letter });
        }
        collect_words(&rest, &mut outside);
        for (ranges, words) in [(&quoted, &mut literals.quoted), (&data, &mut literals.data)] {
            ranges.iter().for_each(|range| collect_words(&question[range.clone()], words));
            words.retain(|word| !outside.contains(word));
        }
        literals.rest = (!outside.is_empty()).then_some(rest);
        literals
    }

    pub fn is_empty(&self) -> bool {
        self.quoted.is_empty() && self.data.is_empty()
    }
}

/// Quoted texts of two words or more. One quoted word is often a name.
fn quoted_texts(question: &str) -> Vec<Range<usize>> {
    const QUOTE_PAIRS: [(char, char); 3] = [('"', '"'), ('“', '”'), ('„', '“')];
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(letter) = question[at..].chars().next() {
        let after = at + letter.len_utf8();
        let end = QUOTE_PAIRS.iter().filter(|(open, _)| *open == letter).find_map(|(_, close)| {
            let length = question[after..].find(*close)?;
            let text = &question[after..after + length];
            let fits = length <= MAX_QUOTED_BYTES && text.trim().contains(char::is_whitespace);
            fits.then_some(after + length)
        });
        match end {
            Some(end) => {
                found.push(after..end);
                at = end + question[end..].chars().next().map_or(0, char::len_utf8);
            }
            None => at = after,
        }
    }
    found
}

/// What stands between spaces, without the punctuation around it.
fn words_with_places(question: &str) -> impl Iterator<Item = (usize, &str)> {
    let base = question.as_ptr() as usize;
    question.split_whitespace().filter_map(move |word| {
        let bare = word.trim_end_matches(|it: char| ".,;:!?)]}'\"".contains(it));
        let bare = bare.trim_start_matches(|it: char| "([{'\"".contains(it));
        (!bare.is_empty()).then(|| (bare.as_ptr() as usize - base, bare))
    })
}

fn looks_like_data(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let is_address =
        word.split_once('@').is_some_and(|(_, host)| host.contains('.')) || word.contains("://");
    let is_path = word.starts_with('/') && word[1..].contains('/');
    let is_handle = word.starts_with(['#', '@']) && word.len() > 1;
    let is_number = word.starts_with(|it: char| it.is_ascii_digit());
    let is_id = digits > 0 && word.contains('_');
    is_address || is_path || is_handle || is_number || is_id
}

fn collect_words(text: &str, words: &mut FxHashSet<String>) {
    tokenizer::for_each_term(text, |term| {
        if term.role == TermRole::Word && !words.contains(term.text) {
            words.insert(term.text.to_owned());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(question: &str, quoted: &[&str], data: &[&str]) {
        let found = QueryLiterals::find(question);
        let sorted = |words: &FxHashSet<String>| {
            let mut words: Vec<_> = words.iter().cloned().collect();
            words.sort();
            words
        };
        assert_eq!(sorted(&found.quoted), quoted, "{question}");
        assert_eq!(sorted(&found.data), data, "{question}");
    }

    #[test]
    fn what_is_quoted_or_looks_like_data_is_a_literal() {
        check("post \"deploy finished\" in #general", &["deploi", "finish"], &["gener"]);
        check("ask ann@example.com, please", &[], &["ann", "com", "exampl"]);
        check(
            "save it to /root/word/a.md (2026-01-01)",
            &[],
            &["01", "2026", "md", "root", "word"],
        );
        check("refund in_1042 of the order", &[], &["1042"]);
        check("delete the \"files\" of S3 and x", &[], &[]);
        check("“set up” and set “far away”", &["awai", "far"], &[]);
        check("", &[], &[]);
    }

    #[test]
    fn a_word_outside_of_literals_is_what_is_asked() {
        check("finish the \"deploy finished\" message", &["deploi"], &[]);
        assert_eq!(QueryLiterals::find("2026-01-01").rest, None);
        let rest = QueryLiterals::find("notes since 2026").rest;
        assert_eq!(rest.as_deref().map(str::trim_end), Some("notes since"));
    }
}
