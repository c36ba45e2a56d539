//! The fuzzy score of one text for a query: how well its letters, in order, are those of
//! the query.

use moonlark_core::{Problem, Result};

/// A query is what somebody types.
const MAX_FUZZY_QUERY_CHARS: usize = 256;
/// Characters of a text whose best match is looked for; in a longer one, the
/// first match counts.
const MAX_ALIGNED_CHARS: usize = 1024;

const MATCH_SCORE: i64 = 16;
/// For a letter that begins a word, and for one that begins an inner word.
const WORD_BONUS: i64 = 8;
const CAMEL_BONUS: i64 = 7;
/// For a letter right behind the one before.
const ADJACENT_BONUS: i64 = 10;
/// For the first letter of the text.
const START_BONUS: i64 = 8;
const GAP_PENALTY: i64 = 3;
const LONGER_GAP_PENALTY: i64 = 1;

const UNMATCHED_SCORE: i64 = i64::MIN / 4;

/// The words of a query, without case.
pub(super) struct FuzzyQuery {
    words: Vec<Vec<char>>,
}

impl FuzzyQuery {
    pub(super) fn new(query: &str) -> Result<FuzzyQuery> {
        if query.chars().count() > MAX_FUZZY_QUERY_CHARS {
            return Err(Problem::bad_request(format!(
                "the query is longer than {MAX_FUZZY_QUERY_CHARS} characters"
            )));
        }
        let words = query.split_whitespace().map(|word| word.chars().map(fold_case).collect());
        Ok(FuzzyQuery { words: words.collect() })
    }

    pub(super) fn new_matcher(&self) -> FuzzyMatcher<'_> {
        FuzzyMatcher {
            query: self,
            text: Vec::new(),
            bonus: Vec::new(),
            ending: Vec::new(),
            best: Vec::new(),
        }
    }
}

/// A query with the memory that its matches take, used again for every text.
pub(super) struct FuzzyMatcher<'a> {
    query: &'a FuzzyQuery,
    text: Vec<char>,
    bonus: Vec<i64>,
    /// The best score of the letters so far with the last of them right here,
    /// and with it here or before.
    ending: Vec<i64>,
    best: Vec<i64>,
}

impl FuzzyMatcher<'_> {
    /// None if a word of the query is not in the text at all.
    pub(super) fn score_text(&mut self, text: &str) -> Option<i64> {
        self.text.clear();
        self.bonus.clear();
        let mut before = ' ';
        for letter in text.chars() {
            self.bonus.push(position_bonus(before, letter));
            self.text.push(fold_case(letter));
            before = letter;
        }
        if let Some(first) = self.bonus.first_mut() {
            *first += START_BONUS;
        }
        let query = self.query;
        query.words.iter().try_fold(0, |sum, word| Some(sum + self.score_word(word)?))
    }

    fn score_word(&mut self, word: &[char]) -> Option<i64> {
        let first = find_first_match(&self.text, word)?;
        if self.text.len() > MAX_ALIGNED_CHARS {
            return Some(self.score_first_match(&first));
        }
        Some(self.score_best_alignment(word))
    }

    /// The score of the first places where the letters are.
    fn score_first_match(&self, places: &[usize]) -> i64 {
        let mut score = 0;
        for (index, at) in places.iter().enumerate() {
            score += MATCH_SCORE + self.bonus[*at];
            if let Some(before) = index.checked_sub(1).map(|before| places[before]) {
                score += gap_score(at - before - 1);
            }
        }
        score
    }

    /// The best score of all ways to find the letters in order.
    fn score_best_alignment(&mut self, word: &[char]) -> i64 {
        let length = self.text.len();
        self.ending.clear();
        self.ending.resize(length, UNMATCHED_SCORE);
        self.best.clear();
        self.best.resize(length, UNMATCHED_SCORE);
        for (row, wanted) in word.iter().enumerate() {
            // What the row before left at the place before this one.
            let (mut ended_before, mut best_before) = (UNMATCHED_SCORE, UNMATCHED_SCORE);
            let mut best = UNMATCHED_SCORE;
            for at in 0..length {
                let (ended_here, best_here) = (self.ending[at], self.best[at]);
                let mut score = UNMATCHED_SCORE;
                if self.text[at] == *wanted {
                    let own = MATCH_SCORE + self.bonus[at];
                    score = match row {
                        0 => own,
                        _ => {
                            let adjacent = ended_before + ADJACENT_BONUS;
                            own + adjacent.max(best_before)
                        }
                    };
                    if score < UNMATCHED_SCORE / 2 {
                        score = UNMATCHED_SCORE;
                    }
                }
                self.ending[at] = score;
                // A gap begins behind a match, and grows.
                best = (best - LONGER_GAP_PENALTY).max(score - GAP_PENALTY).max(UNMATCHED_SCORE);
                self.best[at] = best;
                (ended_before, best_before) = (ended_here, best_here);
            }
        }
        self.ending.iter().copied().max().unwrap_or(0)
    }
}

/// Where the letters are, each as early as can be.
fn find_first_match(text: &[char], word: &[char]) -> Option<Vec<usize>> {
    let mut places = Vec::with_capacity(word.len());
    let mut at = 0;
    for wanted in word {
        let found = at + text[at..].iter().position(|letter| letter == wanted)?;
        places.push(found);
        at = found + 1;
    }
    Some(places)
}

fn gap_score(letters: usize) -> i64 {
    match letters {
        0 => ADJACENT_BONUS,
        letters => -GAP_PENALTY - LONGER_GAP_PENALTY * letters as i64,
    }
}

fn position_bonus(before: char, letter: char) -> i64 {
    if !before.is_alphanumeric() && letter.is_alphanumeric() {
        return WORD_BONUS;
    }
    let begins = before.is_lowercase() && letter.is_uppercase();
    let counts = !before.is_numeric() && letter.is_numeric();
    if begins || counts { CAMEL_BONUS } else { 0 }
}

/// Without case; what has several letters in lower case stays as it is.
fn fold_case(letter: char) -> char {
    let mut lower = letter.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(one), None) => one,
        _ => letter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(query: &str, text: &str) -> Option<i64> {
        FuzzyQuery::new(query).unwrap().new_matcher().score_text(text)
    }

    #[test]
    fn better_matches_score_higher() {
        for (query, better, worse) in [
            ("fb", "foo bar", "fob"),
            ("fb", "FooBar", "foobar"),
            ("foo", "foo", "f-o-o"),
            ("foo", "foo bar", "a foo bar"),
            ("foo", "f foo", "f xxxx oxo"),
            ("read", "read_file", "r_e_a_d"),
        ] {
            let (high, low) = (score(query, better), score(query, worse));
            assert!(high > low, "{query}: {better} {high:?}, {worse} {low:?}");
        }
        assert_eq!(score("abc", "acb"), None);
        assert_eq!(score("", "x"), Some(0));
        assert_eq!(score("x", ""), None);
    }

    /// The best of all ways, held against every way there is.
    #[test]
    fn the_best_alignment_is_found() {
        fn every(
            text: &[char],
            bonus: &[i64],
            word: &[char],
            from: usize,
            last: Option<usize>,
        ) -> i64 {
            let Some(wanted) = word.first() else { return 0 };
            let mut best = UNMATCHED_SCORE;
            for at in from..text.len() {
                if text[at] == *wanted {
                    let step = last.map_or(0, |last| gap_score(at - last - 1));
                    let rest = every(text, bonus, &word[1..], at + 1, Some(at));
                    best = best.max(MATCH_SCORE + bonus[at] + step + rest);
                }
            }
            best
        }
        for (query, text) in
            [("aba", "a abXaba ba"), ("ab", "aXb aab"), ("aaa", "aXaXaaXa"), ("abc", "aabbcc abc")]
        {
            let made = FuzzyQuery::new(query).unwrap();
            let mut matcher = made.new_matcher();
            let score = matcher.score_text(text).unwrap();
            let expected = every(&matcher.text, &matcher.bonus, &made.words[0], 0, None);
            assert_eq!(score, expected, "{query} in {text}");
        }
    }
}
