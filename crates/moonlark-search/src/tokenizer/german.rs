//! What German needs that English does not.
//!
//! Texts are read in one way, whatever their language. So it is the question
//! that asks for the other forms of a word, if it is German.

use super::{fold_letters, stem_word, stop_words};

/// A word with `ä`, `ö` or `ü` as it is written without: `muenchen`. Nothing
/// for other words.
pub(super) fn spell_out_umlauts(word: &str) -> Option<String> {
    let mut spelled = String::with_capacity(word.len() + 2);
    let (mut changed, mut buffer) = (false, [0; 4]);
    for letter in word.chars().flat_map(char::to_lowercase) {
        let (letters, has_dots) = match (letter, spelled.chars().next_back()) {
            ('ä', _) => ("ae", true),
            ('ö', _) => ("oe", true),
            ('ü', _) => ("ue", true),
            // The two dots as a mark of their own.
            ('\u{0308}', Some('a' | 'o' | 'u')) => ("e", true),
            ('ß', _) => ("ss", false),
            _ => (&*letter.encode_utf8(&mut buffer), false),
        };
        spelled.push_str(letters);
        changed |= has_dots;
    }
    changed.then_some(spelled)
}

/// Whether a question is German: by a word that only German has, or by how its
/// words look.
pub(crate) fn is_german_text(text: &str) -> bool {
    const GERMAN_SUFFIXES: [&str; 7] = ["ungen", "nung", "rung", "heit", "keit", "schaft", "ieren"];
    let mut word = String::new();
    text.split(|letter: char| !letter.is_alphanumeric()).any(|run| {
        if run.len() < 3 || run.len() > super::MAX_WORD_BYTES {
            return false;
        }
        fold_letters(run, &mut word);
        let looks = word.len() > 6 && GERMAN_SUFFIXES.iter().any(|ending| word.ends_with(ending));
        stop_words::is_german_stop_word(&word)
            || looks
            || run.contains(['ä', 'ö', 'ü', 'ß', 'Ä', 'Ö', 'Ü'])
    })
}

/// What number and case add to a word. The longest that fits comes off.
const INFLECTION_ENDINGS: [&str; 9] = ["nen", "ern", "en", "er", "es", "em", "e", "n", "s"];
/// Less than this beside an ending is no word.
const MIN_BASE_WORD_BYTES: usize = 4;

/// The terms of the other forms of a word in plain letters: of `rechnungen`,
/// that of `rechnung`.
pub(crate) fn other_word_forms(word: &str) -> Vec<String> {
    if word.len() < MIN_BASE_WORD_BYTES || !word.bytes().all(|it| it.is_ascii_lowercase()) {
        return Vec::new();
    }
    let base = INFLECTION_ENDINGS.iter().filter_map(|ending| word.strip_suffix(ending));
    let base = base.into_iter().find(|base| base.len() >= MIN_BASE_WORD_BYTES).unwrap_or(word);
    let term = |mut form: String| {
        stem_word(&mut form);
        form
    };
    let own = term(word.to_owned());
    let mut forms: Vec<String> = Vec::new();
    for ending in ["", "e", "en", "n", "er", "ern", "es", "em", "s", "nen"] {
        let form = term(format!("{base}{ending}"));
        if form != own && !forms.contains(&form) {
            forms.push(form);
        }
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_one_word_ask_for_each_other() {
        for (one, other) in [
            ("rechnungen", "rechnung"),
            ("rechnung", "rechnungen"),
            ("kunde", "kunden"),
            ("kunden", "kunde"),
            ("hauser", "haus"),
            ("servern", "server"),
        ] {
            let mut wanted = other.to_owned();
            stem_word(&mut wanted);
            assert!(
                other_word_forms(one).contains(&wanted),
                "{one} {other}: {:?}",
                other_word_forms(one)
            );
        }
        assert!(other_word_forms("tag").is_empty());
    }

    #[test]
    fn a_question_is_german_by_its_words_or_their_looks() {
        for text in ["wie kündige ich?", "Rechnung", "Fehler und Server", "Größe"] {
            assert!(is_german_text(text), "{text}");
        }
        for text in [
            "create an issue",
            "list folders",
            "sung among young",
            "Samsung MIT der",
            "",
            "die hard",
        ] {
            assert!(!is_german_text(text), "{text}");
        }
    }
}
