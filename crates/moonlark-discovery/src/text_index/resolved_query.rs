//! A question as an index understands it: the terms that there are, and what each is
//! worth.

use moonlark_search::parsed_query::{QueryTermKind, query_term_weight};
use moonlark_search::{ParsedQuery, QueryLiterals, RowBitmap, leading_action, normalize_name};

use super::TextIndex;

/// What a word counts that is in no entry, but something like it is.
const SIMILAR_WORD_WEIGHT: f32 = 0.5;
/// Words of a question that something like them is looked for, and neighbours
/// that are.
const MAX_UNKNOWN_WORDS: usize = 32;
const MAX_QUERY_PAIRS: usize = 64;

pub(super) struct ResolvedQuery {
    /// The terms that there are, without the action that there are other words for.
    pub(super) terms: Vec<ResolvedTerm>,
    /// Words of the question itself, and what each is worth in a summary.
    words: Vec<(u32, f32)>,
    pub(super) action: Option<ActionWords>,
    /// Whether there is every word of the question.
    pub(super) complete: bool,
    /// What all its words are worth together, found or not.
    pub(super) asked: f32,
    pub(super) asked_in_title: f32,
    /// Neighbours in the question, in the order of their terms.
    pub(super) pairs: Vec<QueryPair>,
    /// The first of each two neighbours.
    pub(super) pair_starts: TermFilter,
    /// Words of the question and those for its action.
    titled: TermFilter,
    pub(super) bare: String,
}

pub(super) struct ResolvedTerm {
    pub(super) id: u32,
    pub(super) weight: f32,
}

/// The action that a question begins with, and other words for it.
pub(super) struct ActionWords {
    pub(super) own: Option<u32>,
    pub(super) others: Vec<u32>,
    pub(super) weight: f32,
    in_title: f32,
}

/// Whether a term may be among some: wrongly yes for few others, never wrongly no.
#[derive(Default)]
pub(super) struct TermFilter([u64; 16]);

impl TermFilter {
    #[inline]
    pub(super) fn may_have(&self, term: u32) -> bool {
        self.0[(term >> 6) as usize % 16] & (1 << (term % 64)) != 0
    }
}

impl FromIterator<u32> for TermFilter {
    fn from_iter<T: IntoIterator<Item = u32>>(terms: T) -> TermFilter {
        let mut filter = TermFilter::default();
        for term in terms {
            filter.0[(term >> 6) as usize % 16] |= 1 << (term % 64);
        }
        filter
    }
}

pub(super) struct QueryPair {
    pub(super) terms: (u32, u32),
    pub(super) weight: f32,
}

impl ResolvedQuery {
    /// Words of the question that there are.
    pub(super) fn own_words(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().map(|(word, _)| *word)
    }

    /// What a word of a title is worth, if it is one of the question's; and whether it
    /// is one of several for the same action.
    pub(super) fn worth_in_title(&self, word: u32, same_action: f32) -> Option<(bool, f32)> {
        if !self.titled.may_have(word) {
            return None;
        }
        if let Some(action) = &self.action {
            if action.own == Some(word) {
                return Some((true, action.in_title));
            }
            if action.others.contains(&word) {
                return Some((true, same_action * action.in_title));
            }
        }
        let (_, worth) = self.words.iter().find(|(asked, _)| *asked == word)?;
        Some((false, *worth))
    }
}

impl TextIndex {
    /// Words that no entry has stand for others that are like them, if it `may_guess`.
    pub(super) fn resolve_query(
        &self,
        text: &str,
        literals: &QueryLiterals,
        may_guess: bool,
    ) -> ResolvedQuery {
        let mut question = ParsedQuery::parse(text);
        if !literals.is_empty() {
            question.discount_terms(|term| self.literal_share(term, literals));
        }
        let find = |term: &str| self.vocabulary.find_word(term);
        let action = leading_action(&question);
        let action = action.map(|(number, same)| (number, self.known_terms(same)));
        let action = action.filter(|(_, others)| !others.is_empty());
        let acts = |number: usize| action.as_ref().filter(|(of, _)| *of == number);
        let with = |term: &str| match action.as_ref() {
            Some((number, others)) if question.terms[*number].term == term => {
                self.count_entries_with_any(find(term), others)
            }
            _ => find(term).map_or(0, |id| self.term_postings(id).len() as u64),
        };
        let weights = question.weigh_terms(self.len() as u64, with);
        let mut terms = Vec::with_capacity(weights.terms.len());
        let mut action_words = None;
        for it in &weights.terms {
            match (acts(it.number), find(&it.term)) {
                (Some((_, others)), own) => {
                    let (others, in_title) = (others.clone(), it.in_title);
                    action_words = Some(ActionWords { own, others, weight: it.weight, in_title });
                }
                (None, Some(id)) => terms.push(ResolvedTerm { id, weight: it.weight }),
                (None, None) => {}
            }
        }
        let own = weights.terms.iter().filter(|it| it.of.is_some());
        let words: Vec<_> = own.filter_map(|it| Some((find(&it.term)?, it.in_title))).collect();
        let asked_words = || question.terms.iter().filter(|it| it.kind == QueryTermKind::Word);
        let complete = words.len() == asked_words().count();
        let unknown = question.terms.iter().enumerate().filter(|(number, it)| {
            it.kind == QueryTermKind::Word && find(&it.term).is_none() && acts(*number).is_none()
        });
        for (_, asked) in unknown.take(if may_guess { MAX_UNKNOWN_WORDS } else { 0 }) {
            for (id, likeness) in self.vocabulary.find_similar_words(&asked.term) {
                if !terms.iter().any(|it| it.id == id) {
                    let times = asked.times * SIMILAR_WORD_WEIGHT * likeness;
                    let weight = asked.share * query_term_weight(self.rarity(id), times);
                    terms.push(ResolvedTerm { id, weight });
                }
            }
        }
        let pair = |(a, b): &(usize, usize)| {
            let (a, b) = (&question.terms[*a], &question.terms[*b]);
            let terms = (find(&a.term)?, find(&b.term)?);
            let weight = (a.share * self.rarity(terms.0) + b.share * self.rarity(terms.1)) / 2.0;
            Some(QueryPair { terms, weight })
        };
        let pairs = question.pairs.iter().take(MAX_QUERY_PAIRS);
        let mut pairs: Vec<QueryPair> = pairs.filter_map(pair).collect();
        pairs.sort_unstable_by_key(|it| it.terms);
        let pair_starts = pairs.iter().map(|it| it.terms.0).collect();
        let acting =
            action_words.iter().flat_map(|it: &ActionWords| it.own.iter().chain(&it.others));
        let titled = words.iter().map(|(word, _)| word).chain(acting).copied().collect();
        ResolvedQuery {
            terms,
            words,
            action: action_words,
            complete,
            asked: weights.asked,
            asked_in_title: weights.asked_in_title,
            pairs,
            pair_starts,
            titled,
            bare: if may_guess { normalize_name(text) } else { String::new() },
        }
    }

    /// How much of its weight a word keeps that may stand in a literal only.
    fn literal_share(&self, term: &str, literals: &QueryLiterals) -> f32 {
        let is_subject = || {
            let id = self.vocabulary.find_word(term);
            id.is_some_and(|id| self.subjects.get(id as usize))
        };
        if literals.quoted.contains(term) || (literals.data.contains(term) && !is_subject()) {
            self.weights.literal
        } else {
            1.0
        }
    }

    fn known_terms(&self, terms: &[String]) -> Vec<u32> {
        terms.iter().filter_map(|term| self.vocabulary.find_word(term)).collect()
    }

    fn count_entries_with_any(&self, own: Option<u32>, others: &[u32]) -> u64 {
        let mut with = RowBitmap::all_clear(self.len());
        for word in own.iter().chain(others) {
            for place in self.term_postings(*word) {
                with.insert(place.entry as usize);
            }
        }
        with.count_set() as u64
    }
}
