use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use moonlark_core::ProblemCode;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use super::{EmbeddingApi, EmbeddingPurpose, EmbeddingServiceSettings, TextEmbedder};
use crate::knowledge_testing::{Listed, content, found, item, small, sync, with};
use crate::{SearchMode, SearchQuery};

/// A service that speaks both ways. Its vectors say how often a few words are in
/// a text, so that what they find is known.
struct Service {
    url: String,
    state: Arc<Serving>,
}

#[derive(Default)]
struct Serving {
    texts: AtomicUsize,
    requests: AtomicUsize,
    /// Answers to give before proper ones, the last first.
    refusals: Mutex<Vec<(u16, &'static str)>>,
    dimensions: AtomicUsize,
    seen: Mutex<Vec<(Option<String>, Json)>>,
}

const WORDS: [&str; 4] = ["rhubarb", "celery", "carrot", "leek"];

impl Service {
    async fn start() -> Service {
        let state = Arc::new(Serving::default());
        state.dimensions.store(WORDS.len(), Ordering::Relaxed);
        let router = Router::new()
            .route("/v1/embeddings", post(openai))
            .route("/api/embed", post(ollama))
            .with_state(state.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Service { url, state }
    }

    fn settings(&self, speaks: EmbeddingApi) -> EmbeddingServiceSettings {
        let path = if speaks == EmbeddingApi::OpenAi { "/v1/" } else { "" };
        EmbeddingServiceSettings {
            speaks,
            url: format!("{}{path}", self.url),
            model: "words".to_owned(),
            api_key: Some("s3cret-key".to_owned().into()),
            dimensions: None,
            batch: 4,
            timeout: Duration::from_secs(20),
            client: moonlark_http::shared_http_client().unwrap().clone(),
        }
    }

    fn embedder(&self, speaks: EmbeddingApi) -> TextEmbedder {
        TextEmbedder::Http(Box::new(self.settings(speaks)))
    }
}

impl Serving {
    /// Vectors, or a refusal.
    fn answer(&self, headers: &HeaderMap, body: &str) -> Result<Vec<Vec<f32>>, Box<Response>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let body: Json = serde_json::from_str(body).unwrap();
        let key = headers.get(header::AUTHORIZATION).map(|it| it.to_str().unwrap().to_owned());
        self.seen.lock().push((key, body.clone()));
        if let Some((status, text)) = self.refusals.lock().pop() {
            let status = StatusCode::from_u16(status).unwrap();
            return Err(Box::new((status, [("retry-after", "0")], text).into_response()));
        }
        let texts = body["input"].as_array().unwrap();
        self.texts.fetch_add(texts.len(), Ordering::Relaxed);
        let vector = |text: &Json| {
            let text = text.as_str().unwrap();
            let mut vector: Vec<f32> =
                WORDS.iter().map(|word| text.matches(word).count() as f32 + 0.01).collect();
            vector.resize(self.dimensions.load(Ordering::Relaxed), 0.0);
            vector
        };
        Ok(texts.iter().map(vector).collect())
    }
}

async fn openai(State(state): State<Arc<Serving>>, headers: HeaderMap, body: String) -> Response {
    match state.answer(&headers, &body) {
        Err(refusal) => *refusal,
        Ok(vectors) => {
            // In another order than asked for, as the API may.
            let data: Vec<Json> = vectors
                .iter()
                .enumerate()
                .rev()
                .map(|(index, it)| json!({"object": "embedding", "index": index, "embedding": it}))
                .collect();
            json!({"object": "list", "data": data, "model": "words"}).to_string().into_response()
        }
    }
}

async fn ollama(State(state): State<Arc<Serving>>, headers: HeaderMap, body: String) -> Response {
    match state.answer(&headers, &body) {
        Err(refusal) => *refusal,
        Ok(vectors) => json!({"model": "words", "embeddings": vectors}).to_string().into_response(),
    }
}

fn semantic(text: &str) -> SearchQuery {
    SearchQuery { mode: SearchMode::Semantic, ..SearchQuery::new(text) }
}

const DISHES: [(&str, &str); 3] =
    [("a", "pie of rhubarb, rhubarb"), ("b", "soup of celery"), ("c", "stew of leek, carrot")];

#[tokio::test]
async fn a_service_makes_the_vectors_both_ways() {
    for speaks in [EmbeddingApi::OpenAi, EmbeddingApi::Ollama] {
        let service = Service::start().await;
        let folder = tempfile::tempdir().unwrap();
        let knowledge = with(&folder.path().join("k.db"), service.embedder(speaks));
        let summary = sync(&knowledge, Listed::of(&DISHES)).await.unwrap();
        assert_eq!(summary.embedding, None);
        assert_eq!(found(&knowledge, semantic("rhubarb")).await[0], "a");
        assert_eq!(found(&knowledge, semantic("leek and carrot")).await[0], "c");
        let seen = service.state.seen.lock();
        let (key, body) = &seen[0];
        assert_eq!(key.as_deref(), Some("Bearer s3cret-key"));
        assert_eq!(body["model"], "words");
    }
}

#[tokio::test]
async fn what_was_embedded_is_not_sent_again() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let knowledge = with(&folder.path().join("k.db"), service.embedder(EmbeddingApi::OpenAi));
    let part = |word: &str| {
        format!("## {word}\n\n{}\n\n", format!("All about {word} and more. ").repeat(40))
    };
    let text =
        |last: &str| format!("# Vegetables\n\n{}{}{}", part("rhubarb"), part("celery"), part(last));
    sync(&knowledge, Listed::of(&[("a.md", &text("leek"))])).await.unwrap();
    let sent = service.state.texts.swap(0, Ordering::Relaxed);
    assert_eq!(sent, 3);
    sync(&knowledge, Listed::of(&[("a.md", &text("carrot"))])).await.unwrap();
    assert_eq!(service.state.texts.swap(0, Ordering::Relaxed), 1, "only the part that changed");
    sync(&knowledge, Listed::of(&[("b.md", &text("carrot"))])).await.unwrap();
    assert_eq!(service.state.texts.swap(0, Ordering::Relaxed), 0, "another name is the same text");
    assert_eq!(found(&knowledge, semantic("carrot")).await, ["b.md"]);
}

#[tokio::test]
async fn a_busy_service_is_asked_again_and_one_that_refuses_is_not() {
    let service = Service::start().await;
    let settings = service.settings(EmbeddingApi::OpenAi);
    *service.state.refusals.lock() =
        vec![(503, ""), (429, r#"{"error": {"message": "slow down"}}"#)];
    let rows =
        settings.embed_texts(vec!["rhubarb".to_owned()], EmbeddingPurpose::Sync).await.unwrap();
    assert_eq!((rows.len(), rows[0].len()), (1, 4));
    assert_eq!(service.state.requests.swap(0, Ordering::Relaxed), 3);
    *service.state.refusals.lock() = vec![(401, r#"{"error": {"message": "no such key"}}"#)];
    let problem =
        settings.embed_texts(vec!["rhubarb".to_owned()], EmbeddingPurpose::Sync).await.unwrap_err();
    let url = &settings.url;
    assert_eq!(problem.message, format!("the embedder {url} refused with status 401: no such key"));
    assert_eq!(problem.hint.as_deref(), Some("check knowledge.embedder.api_key"));
    assert_eq!(service.state.requests.swap(0, Ordering::Relaxed), 1);
    *service.state.refusals.lock() = vec![(503, "")];
    let problem = settings
        .embed_texts(vec!["rhubarb".to_owned()], EmbeddingPurpose::Question)
        .await
        .unwrap_err();
    assert!(problem.is_retryable() && service.state.requests.load(Ordering::Relaxed) == 1);
}

#[tokio::test]
async fn answers_that_are_none_are_problems() {
    let service = Service::start().await;
    let settings = service.settings(EmbeddingApi::Ollama);
    for (said, expected) in [
        ("<html>", "invalid embeddings response: expected value"),
        ("{}", "invalid embeddings response: missing field"),
        (r#"{"embeddings": []}"#, "invalid embeddings response: it has 0 vectors for 1 texts"),
        (r#"{"embeddings": [[]]}"#, "answers with vectors of 0 dimensions"),
    ] {
        *service.state.refusals.lock() = vec![(200, said)];
        let problem =
            settings.embed_texts(vec!["x".to_owned()], EmbeddingPurpose::Sync).await.unwrap_err();
        assert!(problem.message.contains(expected), "{}", problem.message);
        assert_eq!(problem.code, ProblemCode::Unavailable);
    }
    let wrong = EmbeddingServiceSettings { dimensions: Some(3), ..settings.clone() };
    let problem =
        wrong.embed_texts(vec!["x".to_owned()], EmbeddingPurpose::Sync).await.unwrap_err();
    assert_eq!(problem.message, "words answers with vectors of 4 dimensions instead of 3");
    assert_eq!(service.state.seen.lock().last().unwrap().1["dimensions"], 3);
    let nowhere =
        EmbeddingServiceSettings { url: "http://127.0.0.1:1".to_owned(), ..settings.clone() };
    let problem =
        nowhere.embed_texts(vec!["x".to_owned()], EmbeddingPurpose::Question).await.unwrap_err();
    assert_eq!(problem.message, "the embedder http://127.0.0.1:1 does not answer: no connection");
    let no_url = EmbeddingServiceSettings { url: "not a url".to_owned(), ..settings };
    let problem =
        no_url.embed_texts(vec!["x".to_owned()], EmbeddingPurpose::Sync).await.unwrap_err();
    assert_eq!(problem.code, ProblemCode::BadConfig);
}

#[tokio::test]
async fn without_its_service_a_base_is_synced_and_searched_by_words_and_made_up_for_later() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.db");
    let knowledge = with(&file, service.embedder(EmbeddingApi::OpenAi));
    sync(&knowledge, Listed::of(&DISHES[..1])).await.unwrap();
    *service.state.refusals.lock() = vec![(403, "")];
    let summary = sync(&knowledge, Listed::of(&DISHES)).await.unwrap();
    assert_eq!(summary.added, 2);
    assert!(summary.embedding.unwrap().message.contains("refused with status 403"));
    *service.state.refusals.lock() = vec![(403, "")];
    let answer = knowledge.search(SearchQuery::new("celery")).await.unwrap();
    assert_eq!(answer.hits[0].source_id, "b");
    assert!(answer.notes[0].starts_with("found by words only: the embedder"), "{:?}", answer.notes);
    *service.state.refusals.lock() = vec![(403, "")];
    assert!(knowledge.search(semantic("celery")).await.is_err());
    let answer = knowledge.search(SearchQuery::new("celery")).await.unwrap();
    assert_eq!(answer.notes, ["2 of 3 chunks have no vector yet; they are found by words"]);
    let summary = sync(&knowledge, Listed::of(&DISHES)).await.unwrap();
    assert_eq!((summary.unchanged, summary.embedding), (3, None));
    assert_eq!(found(&knowledge, semantic("celery")).await[0], "b");
    let clean = folder.path().join("clean.db");
    sync(&with(&clean, service.embedder(EmbeddingApi::OpenAi)), Listed::of(&DISHES)).await.unwrap();
    assert_eq!(content(&file), content(&clean));
}

#[tokio::test]
async fn another_model_takes_over_once_all_its_vectors_are_made() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.db");
    let items =
        || Listed::new((0..30).map(|n| item(&n.to_string(), &format!("{} {n}", DISHES[n % 3].1))));
    sync(&small(&file), items()).await.unwrap();
    let knowledge = with(&file, service.embedder(EmbeddingApi::OpenAi));
    // Until then the model in the binary answers, and nobody asks the service.
    let answer = knowledge.search(semantic("rhubarb")).await.unwrap();
    assert_eq!((answer.hits.len(), answer.notes.len()), (12, 0));
    assert_eq!(service.state.requests.load(Ordering::Relaxed), 0);
    knowledge.backfill_vectors().await.unwrap();
    assert_eq!(service.state.texts.load(Ordering::Relaxed), 30);
    knowledge.backfill_vectors().await.unwrap();
    assert_eq!(service.state.texts.load(Ordering::Relaxed), 30);
    assert!(found(&knowledge, semantic("celery")).await[0].parse::<usize>().unwrap() % 3 == 1);
    let clean = folder.path().join("clean.db");
    sync(&with(&clean, service.embedder(EmbeddingApi::OpenAi)), items()).await.unwrap();
    assert_eq!(content(&file), content(&clean));
    // A model of the same name with another size is another one.
    service.state.dimensions.store(6, Ordering::Relaxed);
    let answer = knowledge.search(SearchQuery::new("celery")).await.unwrap();
    assert!(answer.notes[0].contains("another size"), "{:?}", answer.notes);
}
