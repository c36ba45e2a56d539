//! Search: from a question to documents.
//!
//! Words are looked up in the lists of every segment and summed for each chunk;
//! vectors are compared row by row; what either finds is judged by both, put
//! together by `moonlark-search`, and shown once for each document. Filters apply
//! before anything is ranked. All of it reads one commit, on a blocking thread.

mod hits;
mod keyword_scores;
mod search_filter;
mod semantic_scores;
mod snippet;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use moonlark_core::{Problem, Result};
use moonlark_search::{
    CollectionStats, FusedScore, FusionCandidate, ParsedQuery, ProximityGain, TitleGain,
    fuse_scores,
};
use rusqlite::Connection;

use crate::embedder::{self, EmbeddingPurpose, QuantizedVector, TextEmbedder};
use crate::index::{EmbeddingModel, IndexSnapshot};
use crate::knowledge_database::KnowledgeDatabaseInner;
use crate::run_blocking;
use crate::search_query::{SearchMode, SearchQuery, SearchResults};
use crate::store::{self, StoreResult};
use crate::sync::{HEADING_SEPARATOR, path_end, path_words};
use keyword_scores::KeywordScores;
use search_filter::build_segment_masks;
use semantic_scores::SemanticScores;

/// Documents that each part proposes, for every one that is asked for.
const CANDIDATES_PER_RESULT: usize = 8;
const MIN_CANDIDATES: usize = 100;
/// Of these, how many chunks are looked at for words that stand together and for
/// headings that are nearly the question.
const MAX_RERANKED_CHUNKS: usize = 100;
/// Chunks that are proposed for their headings: the section that answers may not be
/// the one that has the words most often.
const MAX_HEADING_CANDIDATES: usize = 40;

pub(crate) async fn search_documents(
    knowledge: Arc<KnowledgeDatabaseInner>,
    query: SearchQuery,
) -> Result<SearchResults> {
    if query.text.trim().is_empty() {
        return Err(Problem::bad_request("the query is empty").with_hint("say what to look for"));
    }
    if !(1..=SearchQuery::MAX_LIMIT).contains(&query.limit) {
        return Err(Problem::bad_request(format!(
            "limit is {} and has to be from 1 to {}",
            query.limit,
            SearchQuery::MAX_LIMIT
        )));
    }
    let mut notes = Vec::new();
    let meaning = match query.mode {
        SearchMode::Keyword => QuestionMeaning::Nothing,
        mode => match embed_question(&knowledge, &query.text, mode).await {
            Ok(meaning) => meaning,
            Err(problem) if mode == SearchMode::Semantic => return Err(problem),
            Err(problem) => {
                let hint = problem.hint.map_or_else(String::new, |hint| format!(" ({hint})"));
                notes.push(format!("found by words only: {}{hint}", problem.message));
                QuestionMeaning::Nothing
            }
        },
    };
    let _turn = knowledge.readers.acquire().await;
    let inner = knowledge.clone();
    run_blocking(move || {
        let vector = meaning.into_vector(&query.text);
        let answer = inner.store.in_read_transaction(|connection| {
            let snapshot = inner.current.snapshot_for(connection)?;
            DocumentSearch { connection, snapshot: &snapshot, query: &query, vector, notes }
                .find_documents()
        })?;
        Ok(answer.unwrap_or_default())
    })
    .await
}

/// The name of a model, and a question as it sees it.
type QuestionVector = (String, QuantizedVector);

/// What a question means, as far as a service had to be asked.
enum QuestionMeaning {
    Nothing,
    /// The model in the binary will say; that is computing.
    Builtin,
    Known(QuestionVector),
}

impl QuestionMeaning {
    fn into_vector(self, text: &str) -> Option<QuestionVector> {
        match self {
            QuestionMeaning::Nothing => None,
            QuestionMeaning::Builtin => {
                Some((embedder::builtin_model_name().to_owned(), embedder::embed_builtin(text)))
            }
            QuestionMeaning::Known(vector) => Some(vector),
        }
    }
}

/// By the model whose vectors answer: while those of a new one are still being
/// made, the old one.
async fn embed_question(
    knowledge: &Arc<KnowledgeDatabaseInner>,
    text: &str,
    mode: SearchMode,
) -> Result<QuestionMeaning> {
    let embedder = &knowledge.settings.embedder;
    match (embedder, embedder.model_name()) {
        (TextEmbedder::Builtin, _) => Ok(QuestionMeaning::Builtin),
        (TextEmbedder::Http(_) | TextEmbedder::Local(_), Some(name))
            if has_enough_vectors(knowledge, &name).await? =>
        {
            let mut rows =
                embedder.embed_texts(vec![text.to_owned()], EmbeddingPurpose::Question).await?;
            Ok(rows
                .pop()
                .map_or(QuestionMeaning::Nothing, |row| QuestionMeaning::Known((name, row))))
        }
        (TextEmbedder::Http(_) | TextEmbedder::Local(_), _) => Ok(QuestionMeaning::Builtin),
        (TextEmbedder::Unusable(problem), _) => Err((**problem).clone()),
        (TextEmbedder::Off, _) if mode == SearchMode::Hybrid => Ok(QuestionMeaning::Nothing),
        (TextEmbedder::Off, _) => {
            let none = "there is no embedder, so nothing can be found by meaning";
            Err(Problem::unavailable(none).with_retryable(false))
        }
    }
}

/// Whether a model has made all the vectors, or at least more than the one in
/// the binary has.
async fn has_enough_vectors(knowledge: &Arc<KnowledgeDatabaseInner>, name: &str) -> Result<bool> {
    let (knowledge, name) = (knowledge.clone(), name.to_owned());
    let has = move || {
        knowledge.store.in_read_transaction(|connection| {
            let snapshot = knowledge.current.snapshot_for(connection)?;
            let of = |name: &str| snapshot.find_model(name).map_or(0, |(_, chunks)| chunks);
            Ok(of(&name) >= snapshot.alive || of(&name) > of(embedder::builtin_model_name()))
        })
    };
    Ok(run_blocking(has).await?.unwrap_or(true))
}

struct DocumentSearch<'a> {
    connection: &'a Connection,
    snapshot: &'a IndexSnapshot,
    query: &'a SearchQuery,
    vector: Option<QuestionVector>,
    notes: Vec<String>,
}

/// A place among all chunks: which segment, and where in it.
type ChunkPosition = u32;

impl DocumentSearch<'_> {
    fn find_documents(mut self) -> StoreResult<SearchResults> {
        let (filter, notes) = (&self.query.filter, &mut self.notes);
        let masks = build_segment_masks(self.connection, self.snapshot, filter, notes)?;
        let Some(masks) = masks else {
            return Ok(SearchResults { hits: Vec::new(), notes: self.notes });
        };
        let most = (self.query.limit * CANDIDATES_PER_RESULT).max(MIN_CANDIDATES);
        let question = ParsedQuery::parse_for(&self.query.text, &self.snapshot.languages);
        let scores = match self.query.mode {
            SearchMode::Semantic => KeywordScores::default(),
            _ => KeywordScores::score_chunks(self.connection, self.snapshot, &masks, &question)?,
        };
        let model = self.answering_model();
        let nearness = match (&model, &self.vector) {
            (Some(model), Some((_, row))) => {
                let (connection, snapshot) = (self.connection, self.snapshot);
                SemanticScores::score_chunks(connection, snapshot, &masks, model, row, most)?
            }
            _ => SemanticScores::default(),
        };
        let mut places: BTreeSet<ChunkPosition> =
            scores.best_by_document(self.snapshot, most).into_iter().collect();
        places.extend(scores.best_by_heading(self.snapshot, MAX_HEADING_CANDIDATES));
        places.extend(nearness.best.iter().map(|(place, _)| *place));
        let judged = |place| FusionCandidate {
            id: place,
            keyword: scores.score_at(place),
            semantic: nearness.cosine_at(self.snapshot, place),
        };
        let mut candidates: Vec<FusionCandidate<ChunkPosition>> =
            places.into_iter().map(judged).collect();
        self.rerank_candidates(&question, &scores, &mut candidates)?;
        let collection = CollectionStats {
            documents: self.snapshot.alive as u64,
            asked: scores.weights().asked,
            cosines: nearness.cosines,
        };
        let ranked = self.rank_candidates(&collection, &candidates);
        let chosen = self.group_by_document(ranked);
        let hits = self.build_hits(&scores, &candidates, chosen)?;
        Ok(SearchResults { hits, notes: self.notes })
    }

    /// Words that stand together as in the question add to what the best have, and
    /// so does a title, a heading or a path that is nearly the question.
    fn rerank_candidates(
        &self,
        question: &ParsedQuery,
        scores: &KeywordScores,
        candidates: &mut [FusionCandidate<ChunkPosition>],
    ) -> StoreResult<()> {
        let neighbours = ProximityGain::new(question, scores.weights());
        let titles = TitleGain::new(question, scores.weights());
        let mut best: Vec<&mut FusionCandidate<ChunkPosition>> =
            candidates.iter_mut().filter(|it| it.keyword > 0.0).collect();
        let promise = |it: &FusionCandidate<ChunkPosition>| {
            it.keyword + scores.heading_gain(self.snapshot, it.id)
        };
        best.sort_by(|a, b| promise(b).total_cmp(&promise(a)).then(a.id.cmp(&b.id)));
        for candidate in best.into_iter().take(MAX_RERANKED_CHUNKS) {
            let Some((segment, at)) = self.snapshot.locate_chunk(candidate.id as usize) else {
                continue;
            };
            let chunk = segment.members().chunks[at];
            let Some(it) = store::read_chunk_text(self.connection, chunk)? else { continue };
            let heading = it.heading.as_deref().unwrap_or_default();
            let path = path_words(&it.source_id);
            candidate.keyword += neighbours
                .proximity_weight(it.language, [it.title.as_str(), path, heading, &it.text]);
            let own = heading.rsplit(HEADING_SEPARATOR).next().unwrap_or_default();
            let file = path_end(&it.source_id).rsplit('/').next().unwrap_or_default();
            let lines = [it.title.as_str(), path, file, heading, own];
            candidate.keyword += lines
                .map(|line| titles.title_weight(it.language, line))
                .into_iter()
                .fold(0.0, f32::max);
        }
        Ok(())
    }

    /// The model whose rows answer.
    fn answering_model(&mut self) -> Option<EmbeddingModel> {
        let (name, row) = self.vector.as_ref()?;
        let Some((model, chunks)) = self.snapshot.find_model(name) else {
            if self.snapshot.alive > 0 {
                self.notes.push(
                    "found by words only: no chunk has a vector yet, the next sync makes them"
                        .to_owned(),
                );
            }
            return None;
        };
        if chunks < self.snapshot.alive {
            let missing = self.snapshot.alive - chunks;
            self.notes.push(format!(
                "{missing} of {} chunks have no vector yet; they are found by words",
                self.snapshot.alive
            ));
        }
        if model.width != row.len() {
            self.notes.push("found by words only: the embedder's vectors have another size than those that are there".to_owned());
            return None;
        }
        Some(model.clone())
    }

    /// By what the mode asks for, best first.
    fn rank_candidates(
        &self,
        collection: &CollectionStats,
        candidates: &[FusionCandidate<ChunkPosition>],
    ) -> Vec<FusedScore<ChunkPosition>> {
        let mut ranked = fuse_scores(collection, candidates);
        for it in &mut ranked {
            (it.score, it.weight) = match self.query.mode {
                SearchMode::Hybrid => (it.score, it.weight),
                SearchMode::Keyword => (it.keyword, 0.0),
                SearchMode::Semantic => (it.semantic, 1.0),
            };
        }
        if self.query.mode != SearchMode::Hybrid {
            ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.id.cmp(&b.id)));
        }
        ranked.retain(|it| it.score > 0.0);
        ranked
    }

    /// The best chunk of each document, as many documents as asked for and all
    /// that are as good as the last of them.
    fn group_by_document(&self, ranked: Vec<FusedScore<ChunkPosition>>) -> Vec<ChosenDocument> {
        let mut chosen: Vec<ChosenDocument> = Vec::new();
        let mut numbers: HashMap<u32, usize> = HashMap::new();
        for fused in ranked {
            let Some((segment, at)) = self.snapshot.locate_chunk(fused.id as usize) else {
                continue;
            };
            let document = segment.members().documents[at];
            if let Some(number) = numbers.get(&document) {
                chosen[*number].also.push(fused.id);
                continue;
            }
            let full = chosen.len() >= self.query.limit;
            if full && chosen.last().is_some_and(|last| last.fused.score > fused.score) {
                continue;
            }
            numbers.insert(document, chosen.len());
            chosen.push(ChosenDocument { fused, document, also: Vec::new() });
        }
        chosen
    }
}

/// A document that is part of the answer.
struct ChosenDocument {
    fused: FusedScore<ChunkPosition>,
    document: u32,
    /// Other chunks of it that were proposed.
    also: Vec<ChunkPosition>,
}

#[cfg(test)]
mod tests;
