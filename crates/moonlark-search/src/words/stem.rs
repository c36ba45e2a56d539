//! Words to their stems: `repositories` and `repository` are one.
//!
//! Porter's algorithm of 1980, the one that search engines have by default. It
//! knows English only; words with other letters than a to z are left alone.

/// Longer words are no English.
const LONGEST: usize = 32;

/// Cut a word in small letters to its stem.
pub fn stem(word: &mut String) {
    if word.len() <= 2 || word.len() > LONGEST || !word.bytes().all(|it| it.is_ascii_lowercase()) {
        return;
    }
    let mut stemmer = Stemmer { word };
    stemmer.plural();
    stemmer.past();
    stemmer.final_y();
    stemmer.first_matching(&LONG_SUFFIXES, 0);
    stemmer.first_matching(&MIDDLE_SUFFIXES, 0);
    stemmer.bare_suffixes();
    stemmer.final_e();
}

const LONG_SUFFIXES: [(&str, &str); 20] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("abli", "able"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
];

const MIDDLE_SUFFIXES: [(&str, &str); 7] = [
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
];

const BARE_SUFFIXES: [&str; 19] = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou",
    "ism", "ate", "iti", "ous", "ive", "ize",
];

struct Stemmer<'a> {
    word: &'a mut String,
}

impl Stemmer<'_> {
    fn plural(&mut self) {
        if self.ends("sses") || self.ends("ies") {
            self.cut(2);
        } else if self.ends("s") && !self.ends("ss") {
            self.cut(1);
        }
    }

    fn past(&mut self) {
        if self.ends("eed") {
            if self.measure(self.before("eed")) > 0 {
                self.cut(1);
            }
            return;
        }
        let Some(suffix) = ["ed", "ing"].into_iter().find(|suffix| self.ends(suffix)) else {
            return;
        };
        if !self.has_vowel(self.before(suffix)) {
            return;
        }
        self.cut(suffix.len());
        if self.ends("at") || self.ends("bl") || self.ends("iz") {
            self.word.push('e');
        } else if self.ends_double() && !matches!(self.last(), Some(b'l' | b's' | b'z')) {
            self.cut(1);
        } else if self.measure(self.word.len()) == 1 && self.ends_short(self.word.len()) {
            self.word.push('e');
        }
    }

    fn final_y(&mut self) {
        if self.ends("y") && self.has_vowel(self.before("y")) {
            self.cut(1);
            self.word.push('i');
        }
    }

    /// Replace the longest of the suffixes that the word ends in.
    fn first_matching(&mut self, suffixes: &[(&str, &str)], more_than: usize) {
        let matching = suffixes.iter().filter(|(suffix, _)| self.ends(suffix));
        let Some((suffix, with)) = matching.max_by_key(|(suffix, _)| suffix.len()) else { return };
        if self.measure(self.before(suffix)) > more_than {
            self.cut(suffix.len());
            self.word.push_str(with);
        }
    }

    fn bare_suffixes(&mut self) {
        let matching = BARE_SUFFIXES.iter().filter(|suffix| self.ends(suffix));
        let Some(suffix) = matching.max_by_key(|suffix| suffix.len()) else { return };
        let stem = self.before(suffix);
        let fits =
            *suffix != "ion" || matches!(self.word.as_bytes()[..stem].last(), Some(b's' | b't'));
        if fits && self.measure(stem) > 1 {
            self.word.truncate(stem);
        }
    }

    fn final_e(&mut self) {
        if self.ends("e") {
            let stem = self.before("e");
            let measure = self.measure(stem);
            if measure > 1 || (measure == 1 && !self.ends_short(stem)) {
                self.word.truncate(stem);
            }
        }
        if self.ends("ll") && self.measure(self.word.len()) > 1 {
            self.cut(1);
        }
    }

    fn ends(&self, suffix: &str) -> bool {
        // Almost none does, and almost always the last letter tells.
        self.last() == suffix.bytes().next_back() && self.word.ends_with(suffix)
    }

    fn last(&self) -> Option<u8> {
        self.word.bytes().next_back()
    }

    fn cut(&mut self, letters: usize) {
        self.word.truncate(self.word.len().saturating_sub(letters));
    }

    fn before(&self, suffix: &str) -> usize {
        self.word.len().saturating_sub(suffix.len())
    }

    fn is_consonant(&self, at: usize) -> bool {
        match self.word.as_bytes()[at] {
            b'a' | b'e' | b'i' | b'o' | b'u' => false,
            b'y' => at == 0 || !self.is_consonant(at - 1),
            _ => true,
        }
    }

    fn has_vowel(&self, end: usize) -> bool {
        (0..end).any(|at| !self.is_consonant(at))
    }

    /// How often a consonant follows a vowel in the first letters.
    fn measure(&self, end: usize) -> usize {
        (1..end).filter(|at| self.is_consonant(*at) && !self.is_consonant(at - 1)).count()
    }

    fn ends_double(&self) -> bool {
        let (word, end) = (self.word.as_bytes(), self.word.len());
        end >= 2 && word[end - 1] == word[end - 2] && self.is_consonant(end - 1)
    }

    /// Consonant, vowel, consonant, and the last is none of w, x and y.
    fn ends_short(&self, end: usize) -> bool {
        end >= 3
            && self.is_consonant(end - 3)
            && !self.is_consonant(end - 2)
            && self.is_consonant(end - 1)
            && !matches!(self.word.as_bytes()[end - 1], b'w' | b'x' | b'y')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_have_one_stem() {
        for (word, expected) in [
            ("caresses", "caress"),
            ("repositories", "repositori"),
            ("repository", "repositori"),
            ("agreed", "agre"),
            ("plastered", "plaster"),
            ("hopping", "hop"),
            ("filing", "file"),
            ("sky", "sky"),
            ("relational", "relat"),
            ("generalizations", "gener"),
            ("oscillators", "oscil"),
            ("adjustable", "adjust"),
            ("controlling", "control"),
            ("issues", "issu"),
            ("größe", "größe"),
            ("s3", "s3"),
            ("ss", "ss"),
        ] {
            let mut stemmed = word.to_owned();
            stem(&mut stemmed);
            assert_eq!(stemmed, expected, "{word}");
        }
    }

    #[test]
    fn nothing_that_can_be_typed_stops_it() {
        for word in ["", "y", "yyyy", "eed", "ing", "ion", "sses", "ational", &"a".repeat(10_000)] {
            stem(&mut word.to_owned());
        }
    }
}
