//! The index builder: entries to an index.
//!
//! Texts are read once, into numbers; what each word weighs is known when all
//! of them are there, since that depends on how long they are on average.

use std::collections::HashMap;
use std::sync::Arc;

use moonlark_search::bm25::{inverse_document_frequency, saturate_count};
use moonlark_search::tokenizer::split_name;
use moonlark_search::{
    Bm25Weights, RowBitmap, StaticEmbeddingModel, TermRole, for_each_term, normalize_name,
    quantize_vector,
};

use super::ranking_weights::{FIELD_COUNT, RankingWeights};
use super::summaries::{LineKind, SummaryLines};
use super::vocabulary::IndexVocabulary;
use super::{FIELD_SEPARATOR, TermPosting, TextIndex, WHOLE_IDENTIFIER_BIT};

/// Terms of one entry that are looked at: nobody describes a tool with more.
const MAX_ENTRY_TERMS: usize = 8192;
/// Bytes of an entry's body that its vector is made of: what it is about is
/// said first.
const MAX_EMBEDDED_BODY_BYTES: usize = 2048;
/// How much what something is in one line counts in its vector, beside the whole.
const SUMMARY_VECTOR_SHARE: f32 = 0.25;
/// Something to find.
#[derive(Default)]
pub struct IndexEntry<'a> {
    /// What it is called: any of these alone finds exactly it.
    pub names: Vec<&'a str>,
    /// Longer names that find it as well, and say nothing new about it.
    pub aliases: Vec<String>,
    /// What it is in one line each: its title, its summary. A question that says
    /// just that finds it first.
    pub summaries: Vec<&'a str>,
    /// What else is said about it.
    pub body: Vec<&'a str>,
    /// What it takes: parameters, with what is said about them, and their values.
    pub inputs: Vec<&'a str>,
    /// What it gives: the same of its result.
    pub outputs: Vec<&'a str>,
    /// Where it is, such as `/pets/{id}`.
    pub path: Option<&'a str>,
}

#[derive(Default)]
pub struct TextIndexBuilder {
    ids: HashMap<Arc<str>, u32>,
    words: Vec<Arc<str>>,
    texts: Vec<u32>,
    text_starts: Vec<u32>,
    names: HashMap<Box<str>, Vec<u32>>,
    summaries: SummaryLines,
    /// Where entries shall have vectors.
    rows: Option<Vec<i8>>,
    /// Terms of names, summaries and paths.
    subjects: RowBitmap,
    weights: RankingWeights,
}

impl TextIndexBuilder {
    /// For an index that knows what entries mean as well.
    pub fn with_vectors() -> Self {
        Self { rows: Some(Vec::new()), ..Self::default() }
    }

    /// For an index that ranks by other weights than usual.
    #[must_use]
    pub fn ranked_by(self, weights: RankingWeights) -> Self {
        Self { weights, ..self }
    }

    pub fn add_entry(&mut self, entry: &IndexEntry<'_>) {
        let number = self.text_starts.len() as u32;
        let start = self.texts.len();
        self.text_starts.push(start as u32);
        let aliases = entry.aliases.iter().map(String::as_str);
        for name in entry.names.iter().copied().chain(aliases) {
            let same = self.names.entry(normalize_name(name).into_boxed_str()).or_default();
            if same.last() != Some(&number) {
                same.push(number);
            }
        }
        if let Some(rows) = &mut self.rows {
            rows.extend(embed_entry(entry));
        }
        let summaries = entry.summaries.iter().map(|line| (*line, LineKind::Summary));
        for (line, kind) in summaries.chain(entry.path.map(|path| (path, LineKind::Path))) {
            let mut words = Vec::new();
            for_each_term(line, |term| {
                if term.role == TermRole::Word {
                    words.push(self.term_id(term.text));
                }
            });
            self.summaries.push(number, line, words, kind);
        }
        let path: Vec<&str> = entry.path.into_iter().collect();
        // The order of RankingWeights::fields.
        let fields: [&[&str]; FIELD_COUNT] =
            [&entry.names, &entry.summaries, &path, &entry.body, &entry.inputs, &entry.outputs];
        for (field, texts) in fields.into_iter().enumerate() {
            if field > 0 {
                self.texts.push(FIELD_SEPARATOR);
            }
            for text in texts {
                for_each_term(text, |term| {
                    if self.texts.len() - start < MAX_ENTRY_TERMS {
                        let id = self.term_id(term.text);
                        let whole =
                            if term.role == TermRole::Word { 0 } else { WHOLE_IDENTIFIER_BIT };
                        self.texts.push(id | whole);
                        if field < RankingWeights::SUBJECT_FIELDS {
                            self.subjects.insert(id as usize);
                        }
                    }
                });
            }
        }
    }

    fn term_id(&mut self, term: &str) -> u32 {
        if let Some(id) = self.ids.get(term) {
            return *id;
        }
        let (id, word) = (self.words.len() as u32, Arc::<str>::from(term));
        self.words.push(word.clone());
        self.ids.insert(word, id);
        id
    }

    pub fn build_index(mut self) -> TextIndex {
        self.text_starts.push(self.texts.len() as u32);
        let bm25 = Bm25Weights::new(self.weights.fields, self.average_field_lengths());
        let mut found: Vec<(u32, TermPosting)> = Vec::with_capacity(self.texts.len());
        let mut weighed: Vec<(u32, f32)> = Vec::new();
        for entry in 0..self.text_starts.len() - 1 {
            weighed.clear();
            for (field, terms) in self.entry_fields(entry).enumerate() {
                let each = bm25.occurrence_weight(field, field_length(terms));
                weighed.extend(terms.iter().map(|term| (term & !WHOLE_IDENTIFIER_BIT, each)));
            }
            weighed.sort_unstable_by_key(|(term, _)| *term);
            for same in weighed.chunk_by(|a, b| a.0 == b.0) {
                let times: f32 = same.iter().map(|(_, each)| each).sum();
                let place = TermPosting { entry: entry as u32, weight: saturate_count(times) };
                found.push((same[0].0, place));
            }
        }
        // Those of each term together, in the order of their entries.
        found.sort_by_key(|(term, _)| *term);
        let start = |term: usize| found.partition_point(|(of, _)| (*of as usize) < term) as u32;
        let starts: Vec<u32> = (0..=self.words.len()).map(start).collect();
        let entries = (self.text_starts.len() - 1) as u64;
        let rarity = |span: &[u32]| inverse_document_frequency(entries, (span[1] - span[0]).into());
        let rarities = starts.windows(2).map(rarity).collect();
        let places = found.into_iter().map(|(_, place)| place).collect();
        self.texts.shrink_to_fit();
        TextIndex {
            vocabulary: IndexVocabulary::new(self.ids, self.words),
            starts,
            rarities,
            places,
            texts: self.texts,
            text_starts: self.text_starts,
            names: self.names,
            summaries: self.summaries,
            rows: self.rows.unwrap_or_default(),
            subjects: self.subjects,
            weights: self.weights,
        }
    }

    /// The average length of each field.
    fn average_field_lengths(&self) -> [f32; FIELD_COUNT] {
        let mut lengths = [0.0; FIELD_COUNT];
        let entries = self.text_starts.len() - 1;
        for entry in 0..entries {
            for (all, terms) in lengths.iter_mut().zip(self.entry_fields(entry)) {
                *all += field_length(terms);
            }
        }
        lengths.map(|all| all / entries.max(1) as f32)
    }

    fn entry_fields(&self, entry: usize) -> impl Iterator<Item = &[u32]> {
        let (start, end) = (self.text_starts[entry], self.text_starts[entry + 1]);
        self.texts[start as usize..end as usize].split(|term| *term == FIELD_SEPARATOR)
    }
}

/// The vector of an entry. A long description would drown what it is in one line,
/// so that counts by itself.
fn embed_entry(entry: &IndexEntry<'_>) -> Vec<i8> {
    let mut text = String::new();
    for name in &entry.names {
        text.push_str(&split_name(name));
        text.push('\n');
    }
    for summary in &entry.summaries {
        text.push_str(&summary[..summary.floor_char_boundary(MAX_EMBEDDED_BODY_BYTES)]);
        text.push('\n');
    }
    let brief = StaticEmbeddingModel::builtin().embed(&text);
    let most = text.len() + MAX_EMBEDDED_BODY_BYTES;
    for body in &entry.body {
        text.push_str(&body[..body.floor_char_boundary(most.saturating_sub(text.len()))]);
        text.push('\n');
    }
    let whole = StaticEmbeddingModel::builtin().embed(&text);
    let both = brief.iter().zip(&whole);
    let mixed: Vec<f32> = both
        .map(|(brief, whole)| SUMMARY_VECTOR_SHARE * brief + (1.0 - SUMMARY_VECTOR_SHARE) * whole)
        .collect();
    quantize_vector(&mixed)
}

fn field_length(terms: &[u32]) -> f32 {
    terms.iter().filter(|term| *term & WHOLE_IDENTIFIER_BIT == 0).count() as f32
}
