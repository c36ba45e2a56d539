//! What is asked of the knowledge base, and what it answers.

use jiff::Timestamp;
use moonlark_core::Value;
use moonlark_core::value::Object;

/// How documents are compared with the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// By the words they share.
    Keyword,
    /// By meaning, as the embedder sees it.
    Semantic,
    /// By both.
    #[default]
    Hybrid,
}

impl Mode {
    pub const ALL: [Mode; 3] = [Mode::Keyword, Mode::Semantic, Mode::Hybrid];

    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Keyword => "keyword",
            Mode::Semantic => "semantic",
            Mode::Hybrid => "hybrid",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// As somebody typed it: nothing in it is syntax.
    pub text: String,
    pub mode: Mode,
    /// Most documents to answer with.
    pub limit: usize,
    pub filter: Filter,
    /// Whether hits say how their score came about.
    pub explain: bool,
}

impl Query {
    /// What is asked for when only words are given.
    pub const LIMIT: usize = 12;
    /// More documents than this are no answer.
    pub const MOST: usize = 200;

    pub fn new(text: impl Into<String>) -> Query {
        Query {
            text: text.into(),
            mode: Mode::default(),
            limit: Query::LIMIT,
            filter: Filter::default(),
            explain: false,
        }
    }
}

/// Which documents count at all.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Filter {
    /// Names of sources, or kinds where no source has that name. Empty: all.
    pub sources: Vec<String>,
    /// Updated then or later.
    pub since: Option<Timestamp>,
    /// Updated then or earlier.
    pub until: Option<Timestamp>,
    /// Fields that must be equal; a list means any of its values.
    pub metadata: Object,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// Best first, each document once.
    pub hits: Vec<Hit>,
    /// What the reader should know about how this was found: a source that is
    /// not there, an embedder that did not answer.
    pub notes: Vec<String>,
}

/// A document that was found, by its best chunk.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
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
    pub explain: Option<Explain>,
}

/// How a score came about.
#[derive(Debug, Clone, PartialEq)]
pub struct Explain {
    /// The words' part, from 0 to 1; nothing where words were not asked.
    pub keyword: Option<f32>,
    /// The meaning's part, a cosine; nothing where it was not asked or is missing.
    pub semantic: Option<f32>,
    /// How much the meaning counted, from 0 to 1.
    pub weight: f32,
    /// The words of the question, as the index knows them, that the chunk has.
    pub terms: Vec<String>,
}

impl Answer {
    /// `{results, notes?}`, as every way in shows it.
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        let hits = self.hits.iter().map(Hit::to_value).collect();
        object.insert("results".to_owned(), Value::Array(hits));
        if !self.notes.is_empty() {
            let notes = self.notes.iter().cloned().map(Value::Str).collect();
            object.insert("notes".to_owned(), Value::Array(notes));
        }
        Value::Object(object)
    }
}

impl Hit {
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        let mut set = |key: &str, value: Value| {
            if value != Value::Null {
                object.insert(key.to_owned(), value);
            }
        };
        set("id", Value::Str(self.id.clone()));
        set("score", rounded(self.score));
        set("title", Value::Str(self.title.clone()));
        set("snippet", Value::Str(self.snippet.clone()));
        set("source", Value::Str(self.source.clone()));
        set("source_id", Value::Str(self.source_id.clone()));
        set("source_url", text(self.source_url.as_deref()));
        set("updated_at", time(self.updated_at));
        set("heading", text(self.heading.as_deref()));
        set("chunk", count(self.chunk));
        if !self.also.is_empty() {
            set("also", Value::Array(self.also.iter().copied().map(count).collect()));
        }
        set("metadata", self.metadata.clone());
        set("explain", self.explain.as_ref().map_or(Value::Null, Explain::to_value));
        Value::Object(object)
    }
}

impl Explain {
    fn to_value(&self) -> Value {
        let terms = self.terms.iter().cloned().map(Value::Str).collect();
        Value::object([
            ("keyword", self.keyword.map_or(Value::Null, rounded)),
            ("semantic", self.semantic.map_or(Value::Null, rounded)),
            ("weight", rounded(self.weight)),
            ("terms", Value::Array(terms)),
        ])
    }
}

/// Four digits: more would be noise that readers pay for.
fn rounded(score: f32) -> Value {
    Value::Float((f64::from(score) * 10_000.0).round() / 10_000.0)
}

pub(crate) fn text(text: Option<&str>) -> Value {
    text.map_or(Value::Null, |text| Value::Str(text.to_owned()))
}

pub(crate) fn time(time: Option<Timestamp>) -> Value {
    time.map_or(Value::Null, |time| Value::Str(time.to_string()))
}

pub(crate) fn count(number: usize) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}
