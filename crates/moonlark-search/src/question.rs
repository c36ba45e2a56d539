//! A question as an index is asked it: its terms, and what each is worth.

use crate::bm25::rarity;
use crate::words::{self, Role};

/// How much a term gains by being there more than once in the question: hardly
/// anything, or long questions are about whatever they repeat.
const REPEATED: f32 = 0.3;
/// What two words count that some document writes as one.
const JOINED: f32 = 0.5;
/// What another form of a word counts.
const OTHER_FORM: f32 = 0.8;
/// What a word counts that asks rather than says what for, such as "may".
const WEAK_SHARE: f32 = 0.25;
/// Bytes that are read, and terms that are looked up: the rarest of them. The
/// rest is no question.
const MOST_BYTES: usize = 128 * 1024;
const MOST_TERMS: usize = 64;
/// Forms of words that are looked for.
const MOST_FORMS: usize = 256;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Question {
    /// In the order in which they first appear.
    pub terms: Vec<Asked>,
    /// Terms that stand side by side, by their numbers.
    pub pairs: Vec<(usize, usize)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub term: String,
    pub times: f32,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Word,
    /// Another way to say what a word of the question says: good if it is
    /// found, no loss otherwise.
    Also,
    /// Two words as one.
    Joined,
    /// Another form of a word, in a language that has many.
    Form,
}

impl Question {
    pub fn read(text: &str) -> Question {
        let text = beginning(text, MOST_BYTES);
        let mut reader = Reader::default();
        words::terms(text, |term| reader.take(term.text, term.role));
        if reader.question.terms.is_empty() {
            // A letter alone is a question where letters are words.
            words::terms(text, |term| {
                if term.role == Role::Letter {
                    reader.take(term.text, Role::Word);
                }
            });
        }
        let mut count = 0;
        words::joined(text, |word| {
            count += 1;
            if count < MOST_FORMS {
                reader.add(word, Kind::Joined);
            }
        });
        if words::is_german(text) {
            reader.add_forms(text);
        }
        reader.question
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether a term is one of the question's.
    pub fn asks(&self, term: &str) -> bool {
        self.terms.iter().any(|asked| asked.term == term)
    }

    /// What each term is worth among `all` documents, of which so many are
    /// `with` it. Terms that none has are left out, and counted in what could
    /// be reached.
    pub fn weigh(&self, all: u64, mut with: impl FnMut(&str) -> u64) -> Weights {
        let mut weights = Weights::default();
        for (number, asked) in self.terms.iter().enumerate() {
            let with = with(&asked.term);
            if with == 0 && asked.kind != Kind::Word {
                continue;
            }
            let part = match asked.kind {
                Kind::Word | Kind::Also => 1.0,
                Kind::Joined => JOINED,
                Kind::Form => OTHER_FORM,
            };
            let in_title = worth(rarity(all, with), part * asked.times);
            let weak = words::is_weak_term(&asked.term);
            let weight = if weak { WEAK_SHARE * in_title } else { in_title };
            if asked.kind == Kind::Word {
                weights.asked += weight;
                weights.asked_in_title += in_title;
            }
            if with > 0 {
                let word = asked.kind == Kind::Word;
                let term = asked.term.clone();
                weights.terms.push(Weighed { term, weight, in_title, word, number });
            }
        }
        if weights.terms.len() > MOST_TERMS {
            // Of equals the first, so that the same question has the same answer.
            weights.terms.sort_by(|a, b| b.weight.total_cmp(&a.weight));
            weights.terms.truncate(MOST_TERMS);
            let words = || weights.terms.iter().filter(|it| it.word);
            let (asked, in_title) =
                (words().map(|it| it.weight).sum(), words().map(|it| it.in_title).sum());
            (weights.asked, weights.asked_in_title) = (asked, in_title);
        }
        weights
    }
}

/// The terms of a question that some document has, and what they are worth.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Weights {
    pub terms: Vec<Weighed>,
    /// What all words of the question are worth together, found or not.
    pub asked: f32,
    /// The same by [`Weighed::in_title`].
    pub asked_in_title: f32,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Weighed {
    pub term: String,
    /// What it adds to the score of a document, times [`crate::Bm25::weight`].
    pub weight: f32,
    /// What it is worth in a title or a heading. There, a word that asks is worth as
    /// much as any other: "What a script may do" is what was asked.
    pub in_title: f32,
    /// Whether it is a word of the question itself.
    pub word: bool,
    /// Which of [`Question::terms`].
    pub number: usize,
}

/// What a term is worth that is in a question so many times, or only as good as
/// a part of once.
pub fn worth(rarity: f32, times: f32) -> f32 {
    rarity * times * (REPEATED + 1.0) / (times + REPEATED)
}

/// As much of a text as fits, in whole letters.
pub(crate) fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=text.len().min(most)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

#[derive(Default)]
struct Reader {
    question: Question,
    numbers: rustc_hash::FxHashMap<String, usize>,
    pairs: rustc_hash::FxHashSet<(usize, usize)>,
    before: Option<usize>,
}

impl Reader {
    fn take(&mut self, term: &str, role: Role) {
        match role {
            Role::Letter => {}
            Role::Also => {
                self.add(term, Kind::Also);
            }
            Role::Word => {
                let number = self.add(term, Kind::Word);
                if let Some(before) = self.before.replace(number)
                    && before != number
                    && self.pairs.insert((before, number))
                {
                    self.question.pairs.push((before, number));
                }
            }
        }
    }

    fn add(&mut self, term: &str, kind: Kind) -> usize {
        let terms = &mut self.question.terms;
        if let Some(number) = self.numbers.get(term) {
            let asked = &mut terms[*number];
            match (asked.kind, kind) {
                (_, Kind::Joined | Kind::Form) => {}
                (Kind::Word, Kind::Word) | (Kind::Also, Kind::Also) => asked.times += 1.0,
                (_, Kind::Word) => asked.kind = Kind::Word,
                _ => {}
            }
            return *number;
        }
        let number = terms.len();
        terms.push(Asked { term: term.to_owned(), times: 1.0, kind });
        self.numbers.insert(term.to_owned(), number);
        number
    }

    fn add_forms(&mut self, text: &str) {
        let mut forms = Vec::new();
        for run in text.split(|letter: char| !letter.is_alphanumeric()).take(MOST_FORMS) {
            let word = words::bare(run);
            if !words::is_stop_word(&word) && forms.len() < MOST_FORMS {
                forms.extend(words::other_forms(&word));
            }
        }
        for form in forms {
            self.add(&form, Kind::Form);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let question = Question::read(text);
        let words = question.terms.into_iter().filter(|it| it.kind == Kind::Word);
        words.map(|it| it.term).collect()
    }

    #[test]
    fn nothing_in_a_question_is_syntax() {
        assert_eq!(words("this AND"), [] as [&str; 0]);
        assert_eq!(
            words("\"read NEAR/3 file*\" OR -x:y^2"),
            ["read", "near", "3", "file", "x", "y", "2"]
        );
        assert_eq!(words("a\0b\u{7f}"), ["b"]);
        assert_eq!(words(""), [] as [&str; 0]);
    }

    #[test]
    fn a_letter_alone_is_asked_for_only_where_it_is_all_there_is() {
        assert_eq!(words("犬"), ["犬"]);
        assert_eq!(words("子犬"), ["子犬"]);
    }

    #[test]
    fn a_german_word_asks_for_its_other_forms() {
        let question = Question::read("Rechnung");
        assert!(question.terms.iter().any(|it| it.kind == Kind::Form && it.term == "rechnungen"));
        let question = Question::read("folders");
        assert!(question.terms.iter().all(|it| it.kind != Kind::Form));
    }

    #[test]
    fn of_ten_thousand_words_the_rarest_count() {
        let text: String = (0..10_000).map(|number| format!("word{number} ")).collect();
        let weights = Question::read(&text).weigh(1_000, |term| match term {
            "word17" => 1,
            _ => 900,
        });
        assert_eq!(weights.terms.len(), MOST_TERMS);
        assert_eq!(weights.terms[0].term, "word17");
    }

    #[test]
    fn a_word_that_asks_counts_less_than_one_that_says_what_for() {
        let weights = Question::read("what may a script do").weigh(10, |_| 1);
        let weight = |term: &str| weights.terms.iter().find(|it| it.term == term).unwrap().weight;
        assert!(weight("mai") < weight("script") / 2.0);
    }

    #[test]
    fn words_that_nothing_has_are_part_of_what_was_asked() {
        let weights = Question::read("read xylophones").weigh(10, |term| u64::from(term == "read"));
        assert_eq!(weights.terms.len(), 1);
        assert!(weights.asked > 2.0 * weights.terms[0].weight);
    }
}
