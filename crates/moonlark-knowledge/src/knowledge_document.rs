//! A document as the knowledge base has it, and what it has of each source.

use jiff::Timestamp;
use moonlark_core::Value;
use moonlark_core::value::Object;
use moonlark_search::TextLanguage;
use sha2::{Digest, Sha256};

use crate::search_query::{count_value, time_value};

#[derive(Debug, Clone, PartialEq)]
pub struct KnowledgeDocument {
    pub id: String,
    pub title: String,
    /// The whole text, as it was extracted.
    pub body: String,
    pub chunks: Vec<DocumentChunk>,
    pub source: String,
    pub source_id: String,
    pub source_url: Option<String>,
    pub author: Option<String>,
    pub created_at: Option<Timestamp>,
    pub updated_at: Option<Timestamp>,
    pub content_type: Option<String>,
    /// Its code; nothing for English and for what cannot be told.
    pub language: Option<String>,
    /// An object, or null.
    pub metadata: Value,
}

/// A chunk of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentChunk {
    pub index: usize,
    pub heading: Option<String>,
    /// Which byte of the body it begins with.
    pub start: usize,
    pub text: String,
}

impl KnowledgeDocument {
    pub fn to_value(&self) -> Value {
        let chunk = |part: &DocumentChunk| {
            Value::from_fields([
                ("index", count_value(part.index)),
                ("heading", part.heading.clone().into()),
                ("text", Value::Str(part.text.clone())),
            ])
        };
        let mut value = Value::from_fields([
            ("id", Value::Str(self.id.clone())),
            ("title", Value::Str(self.title.clone())),
            ("body", Value::Str(self.body.clone())),
            ("chunks", Value::Array(self.chunks.iter().map(chunk).collect())),
            ("source", Value::Str(self.source.clone())),
            ("source_id", Value::Str(self.source_id.clone())),
            ("source_url", self.source_url.clone().into()),
            ("author", self.author.clone().into()),
            ("created_at", time_value(self.created_at)),
            ("updated_at", time_value(self.updated_at)),
            ("content_type", self.content_type.clone().into()),
            ("metadata", self.metadata.clone()),
        ]);
        if let (Value::Object(fields), Some(code)) = (&mut value, &self.language) {
            fields.insert("language".to_owned(), Value::Str(code.clone()));
        }
        value
    }
}

/// What is there of one source.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceStats {
    pub name: String,
    /// `filesystem`, `git`, `script`.
    pub kind: String,
    pub documents: u64,
    pub chunks: u64,
    /// Languages other than English, and how many documents are in each.
    pub languages: Vec<(TextLanguage, u64)>,
    /// When a sync last ended well.
    pub last_sync: Option<Timestamp>,
    /// Why the last sync did not.
    pub problem: Option<String>,
}

impl SourceStats {
    /// The fields of it that are the same everywhere; whoever knows the
    /// configuration adds the rest.
    pub fn to_object(&self) -> Object {
        let whole = |number: u64| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
        let fields = [
            ("name", Value::Str(self.name.clone())),
            ("kind", Value::Str(self.kind.clone())),
            ("documents", whole(self.documents)),
            ("chunks", whole(self.chunks)),
            ("last_sync", time_value(self.last_sync)),
            ("problem", self.problem.clone().into()),
        ];
        let mut object: Object =
            fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        if !self.languages.is_empty() {
            let of = |(language, count): &(TextLanguage, u64)| {
                (language.code().to_owned(), whole(*count))
            };
            let languages = self.languages.iter().map(of).collect();
            object.insert("languages".to_owned(), Value::Object(languages));
        }
        object
    }
}

/// The id of what a source calls `source_id`: the same at every sync, on every
/// machine.
pub(crate) fn document_id(source: &str, source_id: &str) -> String {
    let mut hash = Sha256::new();
    hash.update((source.len() as u64).to_le_bytes());
    hash.update(source.as_bytes());
    hash.update(source_id.as_bytes());
    let digest = hash.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_uuid_that_only_source_and_name_decide() {
        let id = document_id("docs", "a/b.md");
        assert_eq!(id, document_id("docs", "a/b.md"));
        assert_ne!(id, document_id("docsa", "/b.md"));
        assert_eq!(uuid::Uuid::parse_str(&id).unwrap().get_version_num(), 8);
    }
}
