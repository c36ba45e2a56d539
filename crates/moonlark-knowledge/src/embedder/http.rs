//! Embeddings from a service: OpenAI's way, which most speak, or Ollama's.
//!
//! Requests are bounded in texts and in time, and made one after the other; what
//! a service answers is checked before any of it is kept.

use std::time::Duration;

use moonlark_core::{Problem, Result};
use reqwest::{Response, StatusCode};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::time::sleep;

use super::{HttpSettings, Patience, Row, Speaks, row};

/// How often a request is made again that may succeed later.
const ATTEMPTS: u32 = 5;
/// The longest pause before that, whatever the service asks for.
const PAUSE: Duration = Duration::from_secs(60);
/// Bytes of an answer for each text: a few thousand numbers as text.
const ANSWER: usize = 256 * 1024;
/// Bytes of a refusal that are read, and shown.
const REFUSAL: usize = 4 * 1024;

#[derive(Deserialize)]
struct OpenAi {
    data: Vec<OpenAiVector>,
}

#[derive(Deserialize)]
struct OpenAiVector {
    index: Option<usize>,
    embedding: Vec<f32>,
}

#[derive(Deserialize)]
struct Ollama {
    embeddings: Vec<Vec<f32>>,
}

/// Why there is no answer, and whether there may be one later.
struct Refused {
    problem: Problem,
    again: Option<Duration>,
}

impl HttpSettings {
    pub(super) fn name(&self) -> String {
        let kind = match self.speaks {
            Speaks::OpenAi => "openai",
            Speaks::Ollama => "ollama",
        };
        match self.dimensions {
            Some(dimensions) => format!("{kind}:{}@{dimensions}", self.model),
            None => format!("{kind}:{}", self.model),
        }
    }

    pub(super) async fn rows(&self, texts: Vec<String>, patience: Patience) -> Result<Vec<Row>> {
        let mut rows: Vec<Row> = Vec::with_capacity(texts.len());
        for batch in texts.chunks(self.batch.max(1)) {
            let vectors = self.with_patience(batch, patience).await?;
            self.check(&vectors, batch.len(), rows.first().map(Vec::len))?;
            rows.extend(vectors.iter().map(|vector| row(vector)));
        }
        Ok(rows)
    }

    async fn with_patience(&self, texts: &[String], patience: Patience) -> Result<Vec<Vec<f32>>> {
        let attempts = if patience == Patience::Sync { ATTEMPTS } else { 1 };
        let mut pause = Duration::from_millis(500);
        let mut attempt = 1;
        loop {
            match self.ask(texts).await {
                Ok(vectors) => return Ok(vectors),
                Err(Refused { problem, again: None }) => return Err(problem),
                Err(Refused { problem, .. }) if attempt >= attempts => return Err(problem),
                Err(Refused { again: Some(asked), .. }) => {
                    sleep(asked.max(pause).min(PAUSE)).await;
                    pause *= 2;
                    attempt += 1;
                }
            }
        }
    }

    async fn ask(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, Refused> {
        let (path, mut body) = match self.speaks {
            Speaks::OpenAi => (
                "embeddings",
                json!({"model": self.model, "input": texts, "encoding_format": "float"}),
            ),
            Speaks::Ollama => {
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
        let answer = request.send().await.map_err(|error| self.unreachable(&error))?;
        match answer.status() {
            StatusCode::OK => self.read(answer, texts.len()).await,
            status => Err(self.refused(status, answer).await),
        }
    }

    async fn read(&self, answer: Response, texts: usize) -> Result<Vec<Vec<f32>>, Refused> {
        let most = ANSWER.saturating_mul(texts.max(1));
        let bytes = read_within(answer, most).await.map_err(|error| match error {
            Some(error) => self.unreachable(&error),
            None => never(self.not_an_answer("it is too long")),
        })?;
        let unreadable = |error: serde_json::Error| never(self.not_an_answer(&error.to_string()));
        match self.speaks {
            Speaks::Ollama => {
                let answer: Ollama = serde_json::from_slice(&bytes).map_err(unreadable)?;
                Ok(answer.embeddings)
            }
            Speaks::OpenAi => {
                let answer: OpenAi = serde_json::from_slice(&bytes).map_err(unreadable)?;
                let mut vectors = answer.data;
                // The order is theirs to choose; without numbers it is ours.
                vectors.sort_by_key(|vector| vector.index);
                Ok(vectors.into_iter().map(|vector| vector.embedding).collect())
            }
        }
    }

    fn check(&self, vectors: &[Vec<f32>], texts: usize, width: Option<usize>) -> Result<()> {
        if vectors.len() != texts {
            return Err(
                self.not_an_answer(&format!("it has {} vectors for {texts} texts", vectors.len()))
            );
        }
        let width = width.or(self.dimensions).or(vectors.first().map(Vec::len)).unwrap_or(0);
        match vectors.iter().find(|vector| vector.len() != width || vector.is_empty()) {
            None => Ok(()),
            Some(other) => Err(Problem::unavailable(format!(
                "{} answers with vectors of {} dimensions instead of {width}",
                self.model,
                other.len()
            ))
            .retryable_if(false)
            .hint("set knowledge.embedder.dimensions to what the model has, or leave it out")),
        }
    }

    fn not_an_answer(&self, why: &str) -> Problem {
        Problem::unavailable(format!("{} answered no embeddings: {why}", self.url))
            .retryable_if(false)
            .hint("knowledge.embedder.url has to name the base of an API for embeddings, such as http://localhost:11434 for Ollama")
    }

    /// Nothing of the error but its kind: its text may have the whole URL.
    fn unreachable(&self, error: &reqwest::Error) -> Refused {
        let why = match () {
            () if error.is_timeout() => "it took too long",
            () if error.is_connect() => "no connection",
            () if error.is_builder() => {
                return never(
                    Problem::bad_config(format!("{} is no URL to send requests to", self.url))
                        .hint("correct knowledge.embedder.url"),
                );
            }
            () => "the connection broke",
        };
        let problem =
            Problem::unavailable(format!("the embedder {} does not answer: {why}", self.url))
                .hint("search goes on by words; the next sync makes up for missing vectors");
        Refused { problem, again: Some(Duration::ZERO) }
    }

    async fn refused(&self, status: StatusCode, answer: Response) -> Refused {
        let pause = retry_after(&answer);
        let said = match read_within(answer, REFUSAL).await {
            Ok(bytes) => said(&bytes),
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
        let mut problem = Problem::unavailable(message).retryable_if(later).hint(hint);
        problem.status = Some(status.as_u16());
        Refused { problem, again: later.then(|| pause.unwrap_or_default()) }
    }
}

fn never(problem: Problem) -> Refused {
    Refused { problem, again: None }
}

fn retry_after(answer: &Response) -> Option<Duration> {
    let seconds = answer.headers().get("retry-after")?.to_str().ok()?;
    seconds.trim().parse::<f64>().ok().and_then(|it| Duration::try_from_secs_f64(it).ok())
}

/// What a refusal says, as text to add to a sentence.
fn said(bytes: &[u8]) -> String {
    let json: Json = serde_json::from_slice(bytes).unwrap_or_default();
    let error = &json["error"];
    let message = error["message"].as_str().or(error.as_str());
    match message {
        Some(message) => format!(": {}", moonlark_core::value::shorten(message)),
        None => String::new(),
    }
}

/// The body, or nothing said when it is longer than that.
async fn read_within(mut answer: Response, most: usize) -> Result<Vec<u8>, Option<reqwest::Error>> {
    let mut bytes = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(Some)? {
        if bytes.len() + part.len() > most {
            return Err(None);
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}
