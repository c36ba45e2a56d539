//! Search queries and results.

use jiff::Timestamp;
use moonlark_core::Value;
use moonlark_core::value::Object;

/// How documents are compared with the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SearchMode {
    /// By the words they share.
    Keyword,
    /// By meaning, as the embedder sees it.
    Semantic,
    /// By both.
    #[default]
    Hybrid,
}

impl SearchMode {
    pub const ALL_MODES: [SearchMode; 3] =
        [SearchMode::Keyword, SearchMode::Semantic, SearchMode::Hybrid];

    pub fn as_str(self) -> &'static str {
        match self {
            SearchMode::Keyword => "keyword",
            SearchMode::Semantic => "semantic",
            SearchMode::Hybrid => "hybrid",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct SearchQuery {
    /// As somebody typed it: nothing in it is syntax.
    pub text: String,
    pub mode: SearchMode,
    /// Most documents to answer with.
    pub limit: usize,
    pub filter: SearchFilter,
    /// Whether hits say how their score came about.
    pub explain: bool,
}

impl SearchQuery {
    /// What is asked for when only words are given.
    pub const DEFAULT_LIMIT: usize = 12;
    /// More documents than this are no answer.
    pub const MAX_LIMIT: usize = 200;

    pub fn new(text: impl Into<String>) -> SearchQuery {
        SearchQuery {
            text: text.into(),
            mode: SearchMode::default(),
            limit: SearchQuery::DEFAULT_LIMIT,
            filter: SearchFilter::default(),
            explain: false,
        }
    }
}

/// Which documents count at all.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SearchFilter {
    /// Names of sources, or kinds where no source has that name. Empty: all.
    pub sources: Vec<String>,
    /// Names of sources that may have no documents yet: one that is misspelt is among them.
    pub configured: Vec<String>,
    /// Updated then or later.
    pub since: Option<Timestamp>,
    /// Updated then or earlier.
    pub until: Option<Timestamp>,
    /// Fields that must be equal; a list means any of its values.
    pub metadata: Object,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct SearchResults {
    /// Best first, each document once.
    pub hits: Vec<DocumentHit>,
    /// What the reader should know about how this was found: a source that is
    /// not there, an embedder that did not answer.
    pub notes: Vec<String>,
}

/// A document that was found, by its best chunk.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DocumentHit {
    /// Of the document; stable across syncs.
    pub id: String,
    /// From 0 to 1.
    pub score: f32,
    pub title: String,
    /// Around the match, its words in `**`.
    pub snippet: String,
    pub source: String,
    pub source_id: String,
    pub source_url: Option<String>,
    pub updated_at: Option<Timestamp>,
    /// The headings above the chunk, outermost first, joined by ` > `.
    pub heading: Option<String>,
    /// Which chunk of the document.
    pub chunk: usize,
    /// Other chunks of it among the best, in the order of the document.
    pub also: Vec<usize>,
    /// An object, or null.
    pub metadata: Value,
    pub explain: Option<ScoreExplanation>,
}

/// How a score came about.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreExplanation {
    /// The words' part, from 0 to 1; nothing where words were not asked.
    pub keyword: Option<f32>,
    /// The meaning's part, a cosine; nothing where it was not asked or is missing.
    pub semantic: Option<f32>,
    /// How much the meaning counted, from 0 to 1.
    pub weight: f32,
    /// The words of the question, as the index knows them, that the chunk has.
    pub terms: Vec<String>,
}

impl SearchResults {
    /// `{results, notes?}`, as every way in shows it.
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        let hits: Vec<Value> = self.hits.iter().map(DocumentHit::to_value).collect();
        object.insert("results".to_owned(), hits.into());
        if !self.notes.is_empty() {
            object.insert("notes".to_owned(), self.notes.clone().into());
        }
        Value::Object(object)
    }
}

impl DocumentHit {
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        let mut set = |key: &str, value: Value| {
            if value != Value::Null {
                object.insert(key.to_owned(), value);
            }
        };
        set("id", Value::Str(self.id.clone()));
        set("score", rounded_score(self.score));
        set("title", Value::Str(self.title.clone()));
        set("snippet", Value::Str(self.snippet.clone()));
        set("source", Value::Str(self.source.clone()));
        set("source_id", Value::Str(self.source_id.clone()));
        set("source_url", self.source_url.clone().into());
        set("updated_at", time_value(self.updated_at));
        set("heading", self.heading.clone().into());
        set("chunk", count_value(self.chunk));
        if !self.also.is_empty() {
            set("also", Value::Array(self.also.iter().copied().map(count_value).collect()));
        }
        set("metadata", self.metadata.clone());
        set("explain", self.explain.as_ref().map_or(Value::Null, ScoreExplanation::to_value));
        Value::Object(object)
    }
}

impl ScoreExplanation {
    fn to_value(&self) -> Value {
        Value::from_fields([
            ("keyword", self.keyword.map_or(Value::Null, rounded_score)),
            ("semantic", self.semantic.map_or(Value::Null, rounded_score)),
            ("weight", rounded_score(self.weight)),
            ("terms", self.terms.clone().into()),
        ])
    }
}

/// Four digits: more would be noise that readers pay for.
fn rounded_score(score: f32) -> Value {
    Value::Float((f64::from(score) * 10_000.0).round() / 10_000.0)
}

pub(crate) fn time_value(time: Option<Timestamp>) -> Value {
    time.map(|time| time.to_string()).into()
}

pub(crate) fn count_value(number: usize) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}
