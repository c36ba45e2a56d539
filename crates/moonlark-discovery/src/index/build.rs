//! Entries to an index.
//!
//! Texts are read once, into numbers; what each word weighs is known when all
//! of them are there, since that depends on how long they are on average.

use std::collections::HashMap;
use std::sync::Arc;

use moonlark_search::bm25::saturated;
use moonlark_search::words::spaced;
use moonlark_search::{Bm25, Field, Model, Role, bare, quantise, terms};

use super::near::Vocabulary;
use super::summaries::SummaryLines;
use super::{GAP, Index, Place, WHOLE};

/// Terms of one entry that are looked at: nobody describes a tool with more.
const LONGEST: usize = 8192;
/// Bytes of an entry's body that its vector is made of: what it is about is
/// said first.
const FIRST: usize = 2048;
/// How much what something is in one line counts in its vector, beside the whole.
const SUMMARY_SHARE: f32 = 0.25;
/// Names, summaries, body, details.
const FIELDS: [Field; 4] = [Field::NAME, Field::SUMMARY, Field::BODY, Field::DETAILS];

/// Something to find.
#[derive(Default)]
pub struct Entry<'a> {
    /// What it is called: any of these alone finds exactly it.
    pub names: Vec<&'a str>,
    /// Longer names that find it as well, and say nothing new about it.
    pub aliases: Vec<String>,
    /// What it is in one line each: its title, its summary. A question that says
    /// just that finds it first.
    pub summaries: Vec<&'a str>,
    /// What else is said about it.
    pub body: Vec<&'a str>,
    /// What belongs to it: parameters, values.
    pub details: Vec<&'a str>,
}

#[derive(Default)]
pub struct Builder {
    ids: HashMap<Arc<str>, u32>,
    words: Vec<Arc<str>>,
    texts: Vec<u32>,
    text_starts: Vec<u32>,
    names: HashMap<Box<str>, Vec<u32>>,
    summaries: SummaryLines,
    /// Where entries shall have vectors.
    rows: Option<Vec<i8>>,
}

impl Builder {
    /// For an index that knows what entries mean as well.
    pub fn with_meaning() -> Self {
        Self { rows: Some(Vec::new()), ..Self::default() }
    }

    pub fn add(&mut self, entry: &Entry<'_>) {
        let number = self.text_starts.len() as u32;
        let start = self.texts.len();
        self.text_starts.push(start as u32);
        let aliases = entry.aliases.iter().map(String::as_str);
        for name in entry.names.iter().copied().chain(aliases) {
            let same = self.names.entry(bare(name).into_boxed_str()).or_default();
            if same.last() != Some(&number) {
                same.push(number);
            }
        }
        if let Some(rows) = &mut self.rows {
            rows.extend(row(entry));
        }
        for summary in &entry.summaries {
            let mut words = Vec::new();
            terms(summary, |term| {
                if term.role == Role::Word {
                    words.push(self.id(term.text));
                }
            });
            self.summaries.push(number, summary, words);
        }
        let fields = [&entry.names, &entry.summaries, &entry.body, &entry.details];
        for (field, texts) in fields.into_iter().enumerate() {
            if field > 0 {
                self.texts.push(GAP);
            }
            for text in texts {
                terms(text, |term| {
                    if self.texts.len() - start < LONGEST {
                        let id = self.id(term.text);
                        let whole = if term.role == Role::Word { 0 } else { WHOLE };
                        self.texts.push(id | whole);
                    }
                });
            }
        }
    }

    fn id(&mut self, term: &str) -> u32 {
        if let Some(id) = self.ids.get(term) {
            return *id;
        }
        let (id, word) = (self.words.len() as u32, Arc::<str>::from(term));
        self.words.push(word.clone());
        self.ids.insert(word, id);
        id
    }

    pub fn finish(mut self) -> Index {
        self.text_starts.push(self.texts.len() as u32);
        let bm25 = Bm25::new(FIELDS, self.usual_lengths());
        let mut found: Vec<(u32, Place)> = Vec::with_capacity(self.texts.len());
        let mut weighed: Vec<(u32, f32)> = Vec::new();
        for entry in 0..self.text_starts.len() - 1 {
            weighed.clear();
            for (field, terms) in self.fields(entry).enumerate() {
                let each = bm25.each(field, length(terms));
                weighed.extend(terms.iter().map(|term| (term & !WHOLE, each)));
            }
            weighed.sort_unstable_by_key(|(term, _)| *term);
            for same in weighed.chunk_by(|a, b| a.0 == b.0) {
                let times: f32 = same.iter().map(|(_, each)| each).sum();
                let place = Place { entry: entry as u32, weight: saturated(times) };
                found.push((same[0].0, place));
            }
        }
        let (starts, places) = by_term(&found, self.words.len());
        self.texts.shrink_to_fit();
        Index {
            vocabulary: Vocabulary::new(self.ids, self.words),
            starts,
            places,
            texts: self.texts,
            text_starts: self.text_starts,
            names: self.names,
            summaries: self.summaries,
            rows: self.rows.unwrap_or_default(),
        }
    }

    /// The average length of each field.
    fn usual_lengths(&self) -> [f32; FIELDS.len()] {
        let mut lengths = [0.0; FIELDS.len()];
        let entries = self.text_starts.len() - 1;
        for entry in 0..entries {
            for (all, terms) in lengths.iter_mut().zip(self.fields(entry)) {
                *all += length(terms);
            }
        }
        lengths.map(|all| all / entries.max(1) as f32)
    }

    fn fields(&self, entry: usize) -> impl Iterator<Item = &[u32]> {
        let (start, end) = (self.text_starts[entry], self.text_starts[entry + 1]);
        self.texts[start as usize..end as usize].split(|term| *term == GAP)
    }
}

/// The vector of an entry. A long description would drown what it is in one line,
/// so that counts by itself.
fn row(entry: &Entry<'_>) -> Vec<i8> {
    let mut text = String::new();
    for name in &entry.names {
        text.push_str(&spaced(name));
        text.push('\n');
    }
    for summary in &entry.summaries {
        text.push_str(beginning(summary, FIRST));
        text.push('\n');
    }
    let brief = Model::builtin().embed(&text);
    let most = text.len() + FIRST;
    for body in &entry.body {
        text.push_str(beginning(body, most.saturating_sub(text.len())));
        text.push('\n');
    }
    let whole = Model::builtin().embed(&text);
    let both = brief.iter().zip(&whole);
    let mixed: Vec<f32> =
        both.map(|(brief, whole)| SUMMARY_SHARE * brief + (1.0 - SUMMARY_SHARE) * whole).collect();
    quantise(&mixed)
}

/// As much of a text as fits, in whole letters.
fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=text.len().min(most)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// The places of each term together, in order, and where each term's begin.
fn by_term(found: &[(u32, Place)], terms: usize) -> (Vec<u32>, Vec<Place>) {
    let mut starts = vec![0; terms + 1];
    for (term, _) in found {
        starts[*term as usize + 1] += 1;
    }
    for term in 0..terms {
        starts[term + 1] += starts[term];
    }
    let mut next = starts.clone();
    let mut places = vec![Place { entry: 0, weight: 0.0 }; found.len()];
    for (term, place) in found {
        let at = &mut next[*term as usize];
        places[*at as usize] = *place;
        *at += 1;
    }
    (starts, places)
}

fn length(terms: &[u32]) -> f32 {
    terms.iter().filter(|term| *term & WHOLE == 0).count() as f32
}
