//! Embedding services: OpenAI's API, which most have, or Ollama's.
//!
//! Requests are bounded in texts and in time, and made one after the other; what
//! a service answers is checked before any of it is kept.

use std::time::Duration;

use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, Result};
use moonlark_http::{BodyReadError, RetryBackoff, read_body, retry_after};
use reqwest::{Response, StatusCode};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::time::sleep;

use super::{
    EmbeddingApi, EmbeddingPurpose, EmbeddingServiceSettings, QuantizedVector, quantize_to_bytes,
};

/// How often a request is made again that may succeed later.
const MAX_EMBEDDING_ATTEMPTS: u32 = 5;
const FIRST_EMBEDDING_RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause before that, whatever the service asks for.
const MAX_EMBEDDING_RETRY_PAUSE: Duration = Duration::from_secs(60);
/// Bytes of an answer for each text: a few thousand numbers as text.
const MAX_ANSWER_BYTES_PER_TEXT: usize = 256 * 1024;
/// Bytes of a refusal that are read, and shown.
const MAX_REFUSAL_BYTES: usize = 4 * 1024;

#[derive(Deserialize)]
struct OpenAiEmbeddings {
    data: Vec<OpenAiVector>,
}

#[derive(Deserialize)]
struct OpenAiVector {
    index: Option<usize>,
    embedding: Vec<f32>,
}

#[derive(Deserialize)]
struct OllamaEmbeddings {
    embeddings: Vec<Vec<f32>>,
}

/// Why there is no answer, and whether there may be one later.
struct EmbeddingFailure {
    problem: Problem,
    again: Option<Duration>,
}

impl EmbeddingServiceSettings {
    pub(super) fn model_name(&self) -> String {
        let kind = match self.speaks {
            EmbeddingApi::OpenAi => "openai",
            EmbeddingApi::Ollama => "ollama",
        };
        match self.dimensions {
            Some(dimensions) => format!("{kind}:{}@{dimensions}", self.model),
            None => format!("{kind}:{}", self.model),
        }
    }

    pub(super) async fn embed_texts(
        &self,
        texts: Vec<String>,
        patience: EmbeddingPurpose,
    ) -> Result<Vec<QuantizedVector>> {
        let mut rows: Vec<QuantizedVector> = Vec::with_capacity(texts.len());
        for batch in texts.chunks(self.batch.max(1)) {
            let vectors = self.embed_with_retries(batch, patience).await?;
            self.check_vectors(&vectors, batch.len(), rows.first().map(Vec::len))?;
            rows.extend(vectors.iter().map(|vector| quantize_to_bytes(vector)));
        }
        Ok(rows)
    }

    async fn embed_with_retries(
        &self,
        texts: &[String],
        patience: EmbeddingPurpose,
    ) -> Result<Vec<Vec<f32>>> {
        let attempts = if patience == EmbeddingPurpose::Sync { MAX_EMBEDDING_ATTEMPTS } else { 1 };
        let mut backoff = RetryBackoff::new(FIRST_EMBEDDING_RETRY_PAUSE, MAX_EMBEDDING_RETRY_PAUSE);
        let mut attempt = 1;
        loop {
            match self.request_embeddings(texts).await {
                Ok(vectors) => return Ok(vectors),
                Err(EmbeddingFailure { again: Some(asked), .. }) if attempt < attempts => {
                    sleep(asked.max(backoff.next_pause()).min(MAX_EMBEDDING_RETRY_PAUSE)).await;
                    attempt += 1;
                }
                Err(EmbeddingFailure { problem, .. }) => return Err(problem),
            }
        }
    }

    async fn request_embeddings(
        &self,
        texts: &[String],
    ) -> Result<Vec<Vec<f32>>, EmbeddingFailure> {
        let (path, mut body) = match self.speaks {
            EmbeddingApi::OpenAi => (
                "embeddings",
                json!({"model": self.model, "input": texts, "encoding_format": "float"}),
            ),
            EmbeddingApi::Ollama => {
                ("api/embed", json!({"model": self.model, "input": texts, "truncate": true}))
            }
        };
        if let (Some(dimensions), Json::Object(body)) = (self.dimensions, &mut body) {
            body.insert("dimensions".to_owned(), dimensions.into());
        }
        let url = format!("{}/{path}", self.url.trim_end_matches('/'));
        let mut request = self
            .client
            .post(&url)
            .timeout(self.timeout)
            .header("content-type", "application/json")
            .body(body.to_string());
        if let Some(key) = &self.api_key {
            request = request.bearer_auth(key.expose_secret());
        }
        let answer = request.send().await.map_err(|error| self.connection_failure(&error))?;
        match answer.status() {
            StatusCode::OK => self.read_vectors(answer, texts.len()).await,
            status => Err(self.refusal_failure(status, answer).await),
        }
    }

    async fn read_vectors(
        &self,
        answer: Response,
        texts: usize,
    ) -> Result<Vec<Vec<f32>>, EmbeddingFailure> {
        let most = MAX_ANSWER_BYTES_PER_TEXT.saturating_mul(texts.max(1));
        let bytes = read_body(answer, most).await.map_err(|error| match error {
            BodyReadError::Broken(error) => self.connection_failure(&error),
            BodyReadError::TooLong => {
                permanent_failure(self.invalid_answer_problem("it is too long"))
            }
        })?;
        let read = match self.speaks {
            EmbeddingApi::Ollama => {
                serde_json::from_slice(&bytes).map(|answer: OllamaEmbeddings| answer.embeddings)
            }
            EmbeddingApi::OpenAi => {
                serde_json::from_slice(&bytes).map(|answer: OpenAiEmbeddings| {
                    let mut vectors = answer.data;
                    // The order is theirs to choose; without numbers it is ours.
                    vectors.sort_by_key(|vector| vector.index);
                    vectors.into_iter().map(|vector| vector.embedding).collect()
                })
            }
        };
        read.map_err(|error| permanent_failure(self.invalid_answer_problem(&error.to_string())))
    }

    fn check_vectors(
        &self,
        vectors: &[Vec<f32>],
        texts: usize,
        width: Option<usize>,
    ) -> Result<()> {
        if vectors.len() != texts {
            let why = format!("it has {} vectors for {texts} texts", vectors.len());
            return Err(self.invalid_answer_problem(&why));
        }
        let width = width.or(self.dimensions).or(vectors.first().map(Vec::len)).unwrap_or(0);
        match vectors.iter().find(|vector| vector.len() != width || vector.is_empty()) {
            None => Ok(()),
            Some(other) => Err(Problem::unavailable(format!(
                "{} answers with vectors of {} dimensions instead of {width}",
                self.model,
                other.len()
            ))
            .with_retryable(false)
            .with_hint("set knowledge.embedder.dimensions to what the model has, or leave it out")),
        }
    }

    fn invalid_answer_problem(&self, why: &str) -> Problem {
        Problem::unavailable(format!("{}: invalid embeddings response: {why}", self.url))
            .with_retryable(false)
            .with_hint("knowledge.embedder.url has to name the base of an API for embeddings, such as http://localhost:11434 for Ollama")
    }

    /// Nothing of the error but its kind: its text may have the whole URL.
    fn connection_failure(&self, error: &reqwest::Error) -> EmbeddingFailure {
        let why = match () {
            () if error.is_timeout() => "it took too long",
            () if error.is_connect() => "no connection",
            () if error.is_builder() => {
                return permanent_failure(
                    Problem::bad_config(format!("{} is no URL to send requests to", self.url))
                        .with_hint("correct knowledge.embedder.url"),
                );
            }
            () => "the connection broke",
        };
        let problem =
            Problem::unavailable(format!("the embedder {} does not answer: {why}", self.url))
                .with_hint("search goes on by words; the next sync makes up for missing vectors");
        EmbeddingFailure { problem, again: Some(Duration::ZERO) }
    }

    async fn refusal_failure(&self, status: StatusCode, answer: Response) -> EmbeddingFailure {
        let pause = retry_after(answer.headers());
        let said = match read_body(answer, MAX_REFUSAL_BYTES).await {
            Ok(bytes) => refusal_message(&bytes),
            Err(_) => String::new(),
        };
        let hint = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "check knowledge.embedder.api_key",
            StatusCode::NOT_FOUND => {
                "check knowledge.embedder.url and model; Ollama has to pull a model first"
            }
            StatusCode::TOO_MANY_REQUESTS => {
                "a smaller knowledge.embedder.batch asks for less at once"
            }
            status if status.is_server_error() => "the next sync tries again",
            _ => "check knowledge.embedder",
        };
        let message =
            format!("the embedder {} refused with status {}{said}", self.url, status.as_u16());
        let later = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
        let mut problem = Problem::unavailable(message).with_retryable(later).with_hint(hint);
        problem.status = Some(status.as_u16());
        EmbeddingFailure { problem, again: later.then(|| pause.unwrap_or_default()) }
    }
}

fn permanent_failure(problem: Problem) -> EmbeddingFailure {
    EmbeddingFailure { problem, again: None }
}

/// What a refusal says, as text to add to a sentence.
fn refusal_message(bytes: &[u8]) -> String {
    let json: Json = serde_json::from_slice(bytes).unwrap_or_default();
    let error = &json["error"];
    let message = error["message"].as_str().or(error.as_str());
    message.map(|message| format!(": {}", shorten_text(message))).unwrap_or_default()
}
