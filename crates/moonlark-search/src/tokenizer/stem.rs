//! Stemming: `repositories` and `repository` are one.
//!
//! Porter's algorithm of 1980, the one that search engines have by default. It
//! knows English only; words with other letters than a to z are left alone.

/// Longer words are no English.
const MAX_STEMMED_WORD_BYTES: usize = 32;

/// Cut a word in small letters to its stem.
pub fn stem_word(word: &mut String) {
    if word.len() <= 2
        || word.len() > MAX_STEMMED_WORD_BYTES
        || !word.bytes().all(|it| it.is_ascii_lowercase())
    {
        return;
    }
    let mut stemmer = PorterStemmer { word };
    stemmer.strip_plural();
    stemmer.strip_past_tense();
    stemmer.replace_final_y();
    stemmer.replace_longest_suffix(&LONG_SUFFIXES, 0);
    stemmer.replace_longest_suffix(&MIDDLE_SUFFIXES, 0);
    stemmer.strip_longest_suffix();
    stemmer.strip_final_e();
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

struct PorterStemmer<'a> {
    word: &'a mut String,
}

impl PorterStemmer<'_> {
    fn strip_plural(&mut self) {
        if self.ends_with("sses") || self.ends_with("ies") {
            self.cut_letters(2);
        } else if self.ends_with("s") && !self.ends_with("ss") {
            self.cut_letters(1);
        }
    }

    fn strip_past_tense(&mut self) {
        if self.ends_with("eed") {
            if self.measure(self.length_before("eed")) > 0 {
                self.cut_letters(1);
            }
            return;
        }
        let Some(suffix) = ["ed", "ing"].into_iter().find(|suffix| self.ends_with(suffix)) else {
            return;
        };
        if !self.has_vowel(self.length_before(suffix)) {
            return;
        }
        self.cut_letters(suffix.len());
        if self.ends_with("at") || self.ends_with("bl") || self.ends_with("iz") {
            self.word.push('e');
        } else if self.ends_in_double_consonant()
            && !matches!(self.last_byte(), Some(b'l' | b's' | b'z'))
        {
            self.cut_letters(1);
        } else if self.measure(self.word.len()) == 1 && self.ends_in_short_syllable(self.word.len())
        {
            self.word.push('e');
        }
    }

    fn replace_final_y(&mut self) {
        if self.ends_with("y") && self.has_vowel(self.length_before("y")) {
            self.cut_letters(1);
            self.word.push('i');
        }
    }

    /// Replace the longest of the suffixes that the word ends in.
    fn replace_longest_suffix(&mut self, suffixes: &[(&str, &str)], more_than: usize) {
        let matching = suffixes.iter().filter(|(suffix, _)| self.ends_with(suffix));
        let Some((suffix, with)) = matching.max_by_key(|(suffix, _)| suffix.len()) else { return };
        if self.measure(self.length_before(suffix)) > more_than {
            self.cut_letters(suffix.len());
            self.word.push_str(with);
        }
    }

    fn strip_longest_suffix(&mut self) {
        let matching = BARE_SUFFIXES.iter().filter(|suffix| self.ends_with(suffix));
        let Some(suffix) = matching.max_by_key(|suffix| suffix.len()) else { return };
        let stem = self.length_before(suffix);
        let fits =
            *suffix != "ion" || matches!(self.word.as_bytes()[..stem].last(), Some(b's' | b't'));
        if fits && self.measure(stem) > 1 {
            self.word.truncate(stem);
        }
    }

    fn strip_final_e(&mut self) {
        if self.ends_with("e") {
            let stem = self.length_before("e");
            let measure = self.measure(stem);
            if measure > 1 || (measure == 1 && !self.ends_in_short_syllable(stem)) {
                self.word.truncate(stem);
            }
        }
        if self.ends_with("ll") && self.measure(self.word.len()) > 1 {
            self.cut_letters(1);
        }
    }

    fn ends_with(&self, suffix: &str) -> bool {
        // Almost none does, and almost always the last letter tells.
        self.last_byte() == suffix.bytes().next_back() && self.word.ends_with(suffix)
    }

    fn last_byte(&self) -> Option<u8> {
        self.word.bytes().next_back()
    }

    fn cut_letters(&mut self, letters: usize) {
        self.word.truncate(self.word.len().saturating_sub(letters));
    }

    fn length_before(&self, suffix: &str) -> usize {
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

    fn ends_in_double_consonant(&self) -> bool {
        let (word, end) = (self.word.as_bytes(), self.word.len());
        end >= 2 && word[end - 1] == word[end - 2] && self.is_consonant(end - 1)
    }

    /// Consonant, vowel, consonant, and the last is none of w, x and y.
    fn ends_in_short_syllable(&self, end: usize) -> bool {
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
            stem_word(&mut stemmed);
            assert_eq!(stemmed, expected, "{word}");
        }
    }

    #[test]
    fn no_word_makes_the_stemmer_panic() {
        for word in ["", "y", "yyyy", "eed", "ing", "ion", "sses", "ational", &"a".repeat(10_000)] {
            stem_word(&mut word.to_owned());
        }
    }
}
