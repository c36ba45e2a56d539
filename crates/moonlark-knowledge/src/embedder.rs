//! Embedders: the model in the binary, or a service.

mod embedding_service;
mod local_model;

use std::time::Duration;

pub use local_model::{LocalEmbedder, LocalModelFolder, LocalModelInfo};
use moonlark_core::{Problem, Result};
use moonlark_search::{StaticEmbeddingModel, quantize_vector};
use secrecy::SecretString;

#[derive(Clone, Default)]
pub enum TextEmbedder {
    /// The model that is part of the binary: no network, no service.
    #[default]
    Builtin,
    /// A service that speaks one of two ways.
    Http(Box<EmbeddingServiceSettings>),
    /// A model on disk.
    Local(LocalEmbedder),
    /// One that is configured and cannot be had, such as a model that is not there, and
    /// why: search is by words, and a sync says so.
    Unusable(Box<Problem>),
    /// No vectors: search is by words.
    Off,
}

#[derive(Clone)]
pub struct EmbeddingServiceSettings {
    pub speaks: EmbeddingApi,
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
pub enum EmbeddingApi {
    /// `POST {url}/embeddings`.
    OpenAi,
    /// `POST {url}/api/embed`.
    Ollama,
}

/// A vector as it is kept: a byte for each number.
pub(crate) type QuantizedVector = Vec<u8>;

/// How patient to be with a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmbeddingPurpose {
    /// Somebody waits for the answer to a question.
    Question,
    /// A sync, which may wait until a service has recovered.
    Sync,
}

impl TextEmbedder {
    /// What tells its vectors from others'. Nothing where there are none.
    pub(crate) fn model_name(&self) -> Option<String> {
        match self {
            TextEmbedder::Builtin => Some(builtin_model_name().to_owned()),
            TextEmbedder::Http(settings) => Some(settings.model_name()),
            TextEmbedder::Local(model) => Some(model.id().to_owned()),
            TextEmbedder::Unusable(_) | TextEmbedder::Off => None,
        }
    }

    /// At once, if it can do that.
    pub(crate) fn embed_now(&self, text: &str) -> Option<QuantizedVector> {
        matches!(self, TextEmbedder::Builtin).then(|| embed_builtin(text))
    }

    /// Rows for these texts, in their order and all of one width.
    pub(crate) async fn embed_texts(
        &self,
        texts: Vec<String>,
        patience: EmbeddingPurpose,
    ) -> Result<Vec<QuantizedVector>> {
        match self {
            TextEmbedder::Off => Ok(Vec::new()),
            TextEmbedder::Unusable(problem) => Err((**problem).clone()),
            TextEmbedder::Http(settings) => settings.embed_texts(texts, patience).await,
            TextEmbedder::Local(model) => model.embed_texts(texts).await,
            TextEmbedder::Builtin => {
                let embed = move || texts.iter().map(|text| embed_builtin(text)).collect();
                Ok(crate::run_blocking(move || Ok(embed())).await?)
            }
        }
    }
}

pub(crate) fn builtin_model_name() -> &'static str {
    StaticEmbeddingModel::builtin().id()
}

pub(crate) fn embed_builtin(text: &str) -> QuantizedVector {
    quantize_to_bytes(&StaticEmbeddingModel::builtin().embed(text))
}

fn quantize_to_bytes(vector: &[f32]) -> QuantizedVector {
    quantize_vector(vector).into_iter().map(|number| number as u8).collect()
}

/// What is embedded of a chunk: where it stands belongs to what it says.
pub(crate) fn embedding_text(title: &str, heading: Option<&str>, text: &str) -> String {
    let above = [title, heading.unwrap_or_default()].into_iter().filter(|it| !it.is_empty());
    above.chain([text]).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
