//! What makes vectors of text: the model in the binary, or a service.

mod http;

use std::time::Duration;

use moonlark_core::Result;
use moonlark_search::{Model, quantise};
use secrecy::SecretString;

#[derive(Clone, Default)]
pub enum Embedder {
    /// The model that is part of the binary: no network, no service.
    #[default]
    Builtin,
    /// A service that speaks one of two ways.
    Http(Box<HttpSettings>),
    /// No vectors: search is by words.
    Off,
}

#[derive(Clone)]
pub struct HttpSettings {
    pub speaks: Speaks,
    /// The service's base, such as `https://api.openai.com/v1` or `http://localhost:11434`.
    pub url: String,
    pub model: String,
    pub api_key: Option<SecretString>,
    /// Asked of the service where it can choose, and checked.
    pub dimensions: Option<usize>,
    /// Texts in one request.
    pub batch: usize,
    /// For one request.
    pub timeout: Duration,
    pub client: reqwest::Client,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// `POST {url}/embeddings`.
    OpenAi,
    /// `POST {url}/api/embed`.
    Ollama,
}

/// A vector as it is kept: a byte for each number.
pub(crate) type Row = Vec<u8>;

/// How patient to be with a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Somebody waits for the answer to a question.
    Question,
    /// A sync, which may wait until a service has recovered.
    Sync,
}

impl Embedder {
    /// What tells its vectors from others'. Nothing where there are none.
    pub(crate) fn name(&self) -> Option<String> {
        match self {
            Embedder::Builtin => Some(builtin_name().to_owned()),
            Embedder::Http(settings) => Some(settings.name()),
            Embedder::Off => None,
        }
    }

    /// At once, if it can do that.
    pub(crate) fn now(&self, text: &str) -> Option<Row> {
        matches!(self, Embedder::Builtin).then(|| builtin(text))
    }

    /// Rows for these texts, in their order and all of one width.
    pub(crate) async fn rows(&self, texts: Vec<String>, patience: Patience) -> Result<Vec<Row>> {
        match self {
            Embedder::Off => Ok(Vec::new()),
            Embedder::Http(settings) => settings.rows(texts, patience).await,
            Embedder::Builtin => {
                let embed = move || texts.iter().map(|text| builtin(text)).collect();
                Ok(crate::blocking(move || Ok(embed())).await?)
            }
        }
    }
}

pub(crate) fn builtin_name() -> &'static str {
    Model::builtin().id()
}

pub(crate) fn builtin(text: &str) -> Row {
    row(&Model::builtin().embed(text))
}

fn row(vector: &[f32]) -> Row {
    quantise(vector).into_iter().map(|number| number as u8).collect()
}

/// What is embedded of a chunk: where it stands belongs to what it says.
pub(crate) fn text_of(title: &str, heading: Option<&str>, text: &str) -> String {
    let heading = heading.unwrap_or_default();
    let mut all = String::with_capacity(title.len() + heading.len() + text.len() + 2);
    for part in [title, heading] {
        if !part.is_empty() {
            all.push_str(part);
            all.push('\n');
        }
    }
    all.push_str(text);
    all
}

#[cfg(test)]
mod tests;
