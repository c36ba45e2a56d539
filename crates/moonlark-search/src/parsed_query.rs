//! Parsed queries: terms, and the weight of each.

use std::collections::BTreeMap;

use crate::bm25::inverse_document_frequency;
use crate::language::TextLanguage;
use crate::tokenizer::{self, TermRole};

/// How much a term gains by being there more than once in the question: hardly
/// anything, or long questions are about whatever they repeat.
const REPETITION_SATURATION: f32 = 0.3;
/// What two words count that some document writes as one.
const JOINED_WORDS_WEIGHT: f32 = 0.5;
/// What another form of a word counts.
const OTHER_FORM_WEIGHT: f32 = 0.8;
/// What a word counts that asks rather than says what for, such as "may".
const WEAK_TERM_WEIGHT: f32 = 0.25;
/// Bytes that are read, and terms that are looked up: the rarest of them. The
/// rest is no question.
const MAX_QUERY_BYTES: usize = 128 * 1024;
const MAX_QUERY_TERMS: usize = 64;
/// Forms of words that are looked for.
const MAX_WORD_FORMS: usize = 256;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ParsedQuery {
    /// In the order in which they first appear.
    pub terms: Vec<QueryTerm>,
    /// Terms that stand side by side, by their numbers.
    pub pairs: Vec<(usize, usize)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct QueryTerm {
    pub term: String,
    pub times: f32,
    pub kind: QueryTermKind,
    /// How much of its weight it keeps; less than 1 for what is only an argument of
    /// what is asked.
    pub share: f32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryTermKind {
    Word,
    /// Another way to say what a word of the question says: good if it is
    /// found, no loss otherwise.
    Also,
    /// Two words as one.
    Joined,
    /// Another form of a word, in a language that has many.
    Form,
    /// The stem of a word of the question, by its number, in another language that
    /// documents are in. No document is in two.
    Reading(usize),
}

impl ParsedQuery {
    pub fn parse(text: &str) -> ParsedQuery {
        ParsedQuery::parse_for(text, &[])
    }

    /// A question to documents in these languages, the most frequent first.
    pub fn parse_for(text: &str, languages: &[TextLanguage]) -> ParsedQuery {
        let text = &text[..text.floor_char_boundary(MAX_QUERY_BYTES)];
        let mut reader = QueryParser::default();
        let readings = TextLanguage::order_by_question(text, languages);
        let (first, others) = match readings.split_first() {
            Some((first, others)) => (*first, others),
            None => (TextLanguage::English, &[][..]),
        };
        let mut places: rustc_hash::FxHashMap<usize, usize> = rustc_hash::FxHashMap::default();
        tokenizer::for_each_term_in(first, text, |term| {
            let number = reader.accept_term(term.text, term.role);
            if term.role == TermRole::Word && !others.is_empty() {
                places.extend(number.map(|number| (term.at.start, number)));
            }
        });
        let most = reader.question.terms.len() + MAX_WORD_FORMS;
        for language in others {
            tokenizer::for_each_term_in(*language, text, |term| {
                if let Some(number) = places.get(&term.at.start)
                    && term.role == TermRole::Word
                    && reader.question.terms.len() < most
                {
                    reader.add_term(term.text, QueryTermKind::Reading(*number));
                }
            });
        }
        if reader.question.terms.is_empty() {
            // A letter alone is a question where letters are words.
            tokenizer::for_each_term(text, |term| {
                if term.role == TermRole::Letter {
                    reader.accept_term(term.text, TermRole::Word);
                }
            });
        }
        let mut count = 0;
        tokenizer::for_each_joined_pair(text, |word| {
            count += 1;
            if count < MAX_WORD_FORMS {
                reader.add_term(word, QueryTermKind::Joined);
            }
        });
        if tokenizer::is_german_text(text) {
            reader.add_word_forms(text);
        }
        reader.question
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether a term is one of the question's.
    pub fn has_term(&self, term: &str) -> bool {
        self.terms.iter().any(|asked| asked.term == term)
    }

    /// Let each term keep only this share of its weight.
    pub fn discount_terms(&mut self, share: impl Fn(&str) -> f32) {
        for asked in &mut self.terms {
            asked.share = share(&asked.term);
        }
    }

    /// What each term is worth among `all` documents, of which so many are
    /// `with` it. Terms that none has are left out, and counted in what could
    /// be reached.
    pub fn weigh_terms(&self, all: u64, mut with: impl FnMut(&str) -> u64) -> QueryWeights {
        let mut weights = QueryWeights::default();
        let counts: Vec<u64> = self.terms.iter().map(|asked| with(&asked.term)).collect();
        // A word that no document has may be there as another language reads it.
        let mut read_otherwise = vec![0; counts.len()];
        for (asked, with) in self.terms.iter().zip(&counts) {
            if let QueryTermKind::Reading(word) = asked.kind {
                read_otherwise[word] = u64::max(read_otherwise[word], *with);
            }
        }
        for (number, asked) in self.terms.iter().enumerate() {
            let with = counts[number];
            if with == 0 && asked.kind != QueryTermKind::Word {
                continue;
            }
            let part = match asked.kind {
                QueryTermKind::Word | QueryTermKind::Also | QueryTermKind::Reading(_) => 1.0,
                QueryTermKind::Joined => JOINED_WORDS_WEIGHT,
                QueryTermKind::Form => OTHER_FORM_WEIGHT,
            };
            let known = if with == 0 { read_otherwise[number] } else { with };
            let rarity = inverse_document_frequency(all, known);
            let in_title = asked.share * query_term_weight(rarity, part * asked.times);
            let weak = tokenizer::is_weak_term(&asked.term);
            let weight = if weak { WEAK_TERM_WEIGHT * in_title } else { in_title };
            if asked.kind == QueryTermKind::Word {
                weights.asked += weight;
                weights.asked_in_title += in_title;
            }
            if with > 0 {
                let of = match asked.kind {
                    QueryTermKind::Word => Some(number),
                    QueryTermKind::Reading(word) => Some(word),
                    _ => None,
                };
                let term = asked.term.clone();
                weights.terms.push(WeightedTerm { term, weight, in_title, of, number });
            }
        }
        if weights.terms.len() > MAX_QUERY_TERMS {
            // Of equals the first, so that the same question has the same answer.
            weights.terms.sort_by(|a, b| b.weight.total_cmp(&a.weight));
            weights.terms.truncate(MAX_QUERY_TERMS);
            // A word counts once, however many readings of it there are.
            let mut words: BTreeMap<usize, (f32, f32)> = BTreeMap::new();
            for (word, it) in weights.terms.iter().filter_map(|it| Some((it.of?, it))) {
                let most = words.entry(word).or_default();
                *most = (most.0.max(it.weight), most.1.max(it.in_title));
            }
            let asked = words.values().map(|it| it.0).sum();
            let in_title = words.values().map(|it| it.1).sum();
            (weights.asked, weights.asked_in_title) = (asked, in_title);
        }
        weights
    }
}

/// The terms of a question that some document has, and what they are worth.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueryWeights {
    pub terms: Vec<WeightedTerm>,
    /// What all words of the question are worth together, found or not.
    pub asked: f32,
    /// The same by [`WeightedTerm::in_title`].
    pub asked_in_title: f32,
}

impl QueryWeights {
    /// How many words of the question some document has.
    pub fn distinct_words(&self) -> usize {
        let words: rustc_hash::FxHashSet<usize> =
            self.terms.iter().filter_map(|it| it.of).collect();
        words.len()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct WeightedTerm {
    pub term: String,
    /// What it adds to the score of a document, times [`crate::Bm25::weight`].
    pub weight: f32,
    /// What it is worth in a title or a heading. There, a word that asks is worth as
    /// much as any other: "What a script may do" is what was asked.
    pub in_title: f32,
    /// The word of the question that it is, or that it is another reading of, as in
    /// [`ParsedQuery::terms`].
    pub of: Option<usize>,
    /// Which of [`ParsedQuery::terms`].
    pub number: usize,
}

/// What a term is worth that is in a question so many times, or only as good as
/// a part of once.
pub fn query_term_weight(rarity: f32, times: f32) -> f32 {
    rarity * times * (REPETITION_SATURATION + 1.0) / (times + REPETITION_SATURATION)
}

#[derive(Default)]
struct QueryParser {
    question: ParsedQuery,
    numbers: rustc_hash::FxHashMap<String, usize>,
    pairs: rustc_hash::FxHashSet<(usize, usize)>,
    before: Option<usize>,
}

impl QueryParser {
    /// Gives its number, if it was taken.
    fn accept_term(&mut self, term: &str, role: TermRole) -> Option<usize> {
        match role {
            TermRole::Letter => None,
            TermRole::Also => Some(self.add_term(term, QueryTermKind::Also)),
            TermRole::Word => {
                let number = self.add_term(term, QueryTermKind::Word);
                if let Some(before) = self.before.replace(number)
                    && before != number
                    && self.pairs.insert((before, number))
                {
                    self.question.pairs.push((before, number));
                }
                Some(number)
            }
        }
    }

    fn add_term(&mut self, term: &str, kind: QueryTermKind) -> usize {
        let terms = &mut self.question.terms;
        if let Some(number) = self.numbers.get(term) {
            let asked = &mut terms[*number];
            match (asked.kind, kind) {
                (QueryTermKind::Word, QueryTermKind::Word)
                | (QueryTermKind::Also, QueryTermKind::Also) => asked.times += 1.0,
                (_, QueryTermKind::Word) => asked.kind = QueryTermKind::Word,
                _ => {}
            }
            return *number;
        }
        let number = terms.len();
        terms.push(QueryTerm { term: term.to_owned(), times: 1.0, kind, share: 1.0 });
        self.numbers.insert(term.to_owned(), number);
        number
    }

    fn add_word_forms(&mut self, text: &str) {
        let mut forms = Vec::new();
        for run in text.split(|letter: char| !letter.is_alphanumeric()).take(MAX_WORD_FORMS) {
            let word = tokenizer::normalize_name(run);
            if !tokenizer::is_stop_word(&word) && forms.len() < MAX_WORD_FORMS {
                forms.extend(tokenizer::other_word_forms(&word));
            }
        }
        for form in forms {
            self.add_term(&form, QueryTermKind::Form);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let question = ParsedQuery::parse(text);
        let words = question.terms.into_iter().filter(|it| it.kind == QueryTermKind::Word);
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
        let question = ParsedQuery::parse("Rechnung");
        assert!(
            question
                .terms
                .iter()
                .any(|it| it.kind == QueryTermKind::Form && it.term == "rechnungen")
        );
        let question = ParsedQuery::parse("folders");
        assert!(question.terms.iter().all(|it| it.kind != QueryTermKind::Form));
    }

    #[test]
    fn a_word_is_asked_for_as_each_language_of_the_documents_reads_it() {
        let languages = [TextLanguage::English, TextLanguage::French, TextLanguage::German];
        let question = ParsedQuery::parse_for("annulations", &languages);
        let terms: Vec<_> = question.terms.iter().map(|it| (it.term.as_str(), it.kind)).collect();
        let read = QueryTermKind::Reading(0);
        let expected = [("annul", QueryTermKind::Word), ("annulation", read)];
        assert_eq!(terms, expected);
        // What only another reading finds is no less than what was asked for.
        let weights = question.weigh_terms(10, |term| u64::from(term == "annulation"));
        assert_eq!((weights.terms.len(), weights.distinct_words()), (1, 1));
        assert_eq!(weights.asked, weights.terms[0].weight);
        // However long it is.
        let text: String = (0..10_000).map(|number| format!("wort{number}en ")).collect();
        let question = ParsedQuery::parse_for(&text, &languages);
        let readings =
            question.terms.iter().filter(|it| matches!(it.kind, QueryTermKind::Reading(_)));
        assert!(readings.count() <= MAX_WORD_FORMS);
        let weights = question.weigh_terms(1_000, |_| 1);
        assert!(weights.asked > 0.0 && weights.terms.len() == MAX_QUERY_TERMS);
    }

    #[test]
    fn of_ten_thousand_words_the_rarest_count() {
        let text: String = (0..10_000).map(|number| format!("word{number} ")).collect();
        let weights = ParsedQuery::parse(&text).weigh_terms(1_000, |term| match term {
            "word17" => 1,
            _ => 900,
        });
        assert_eq!(weights.terms.len(), MAX_QUERY_TERMS);
        assert_eq!(weights.terms[0].term, "word17");
    }

    #[test]
    fn a_word_that_asks_counts_less_than_one_that_says_what_for() {
        let weights = ParsedQuery::parse("what may a script do").weigh_terms(10, |_| 1);
        let weight = |term: &str| weights.terms.iter().find(|it| it.term == term).unwrap().weight;
        assert!(weight("mai") < weight("script") / 2.0);
    }

    #[test]
    fn words_that_nothing_has_are_part_of_what_was_asked() {
        let weights =
            ParsedQuery::parse("read xylophones").weigh_terms(10, |term| u64::from(term == "read"));
        assert_eq!(weights.terms.len(), 1);
        assert!(weights.asked > 2.0 * weights.terms[0].weight);
    }
}
