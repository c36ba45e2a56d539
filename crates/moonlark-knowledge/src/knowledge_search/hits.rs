//! Chosen chunks as hits: their documents' rows, snippets, explanations.

use std::collections::{BTreeSet, HashMap};

use moonlark_search::{FusionCandidate, ParsedQuery, TextLanguage};
use rusqlite::Connection;

use super::keyword_scores::KeywordScores;
use super::{ChosenDocument, ChunkPosition, DocumentSearch, snippet};
use crate::index::LoadedSegment;
use crate::search_query::{DocumentHit, ScoreExplanation, SearchMode, SearchQuery};
use crate::store::{self, StoreResult, damaged_error};
use crate::sync::path_words;

/// Other chunks of a document that a hit names.
const MAX_OTHER_CHUNKS: usize = 5;

impl DocumentSearch<'_> {
    pub(super) fn build_hits(
        &self,
        scores: &KeywordScores,
        candidates: &[FusionCandidate<ChunkPosition>],
        chosen: Vec<ChosenDocument>,
    ) -> StoreResult<Vec<DocumentHit>> {
        let DocumentSearch { connection, snapshot, query, .. } = *self;
        let asked = question_terms(query, &snapshot.languages);
        let cosines: HashMap<ChunkPosition, Option<f32>> =
            candidates.iter().map(|it| (it.id, it.semantic)).collect();
        let mut hits = Vec::new();
        for it in chosen {
            let Some((segment, at)) = snapshot.locate_chunk(it.fused.id as usize) else { continue };
            let chunk = segment.members().chunks[at];
            let (hit, first_chunk) = read_hit(connection, it.document)?;
            let text = store::read_chunk_text(connection, chunk)?
                .ok_or_else(|| damaged_error("a chunk is indexed and not there"))?;
            let shown = snippet::build_snippet(text.language, &text.text, &asked);
            let explain = query.explain.then(|| {
                let heading = text.heading.as_deref().unwrap_or_default();
                let path = path_words(&text.source_id);
                let texts = [&*text.title, path, heading, &text.text];
                let terms = snippet::matched_terms(text.language, &texts, &asked);
                ScoreExplanation {
                    keyword: (query.mode != SearchMode::Semantic).then_some(it.fused.keyword),
                    semantic: cosines.get(&it.fused.id).copied().flatten(),
                    weight: it.fused.weight,
                    terms,
                }
            });
            let also = other_chunks(segment, scores, &it, at);
            let index = |chunk: u32| chunk.checked_sub(first_chunk).map(|index| index as usize);
            hits.push(DocumentHit {
                score: it.fused.score,
                title: text.title,
                snippet: shown,
                heading: text.heading,
                chunk: index(chunk).unwrap_or(0),
                also: also.into_iter().filter_map(index).collect(),
                explain,
                ..hit
            });
        }
        // Of equals the one with the smaller id, in whatever order they were synced.
        hits.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.id.cmp(&b.id)));
        hits.truncate(query.limit);
        Ok(hits)
    }
}

/// The terms of the question.
fn question_terms(query: &SearchQuery, languages: &[TextLanguage]) -> HashMap<String, usize> {
    let terms = ParsedQuery::parse_for(&query.text, languages).terms.into_iter();
    terms.enumerate().map(|(number, asked)| (asked.term, number)).collect()
}

/// Numbers of other chunks of the document: proposed ones, and those that have
/// at least half of its best words. They stand around the best one.
fn other_chunks(
    segment: &LoadedSegment,
    scores: &KeywordScores,
    it: &ChosenDocument,
    at: usize,
) -> BTreeSet<u32> {
    let members = segment.members();
    let same = |other: &usize| members.documents[*other] == it.document;
    let before = (0..at).rev().take_while(same);
    let after = (at + 1..members.len()).take_while(same);
    let score = |other: usize| scores.score_at((segment.base + other) as ChunkPosition);
    let enough = score(at) / 2.0;
    let mut others: Vec<usize> = before
        .chain(after)
        .filter(|other| {
            let place = (segment.base + other) as ChunkPosition;
            it.also.contains(&place) || (enough > 0.0 && score(*other) >= enough)
        })
        .collect();
    others.sort_by(|a, b| score(*b).total_cmp(&score(*a)).then(a.cmp(b)));
    others.into_iter().take(MAX_OTHER_CHUNKS).map(|other| members.chunks[other]).collect()
}

/// What a hit says of its document, and the number of that one's first chunk.
fn read_hit(connection: &Connection, document: u32) -> StoreResult<(DocumentHit, u32)> {
    let mut statement = connection.prepare_cached(
        "SELECT id, name, source_id, source_url, updated_at, metadata, first_chunk
         FROM kb_documents JOIN kb_sources USING (source) WHERE document = ?1",
    )?;
    let (hit, metadata, first_chunk) = statement.query_row([document], |row| {
        let hit = DocumentHit {
            id: row.get(0)?,
            source: row.get(1)?,
            source_id: row.get(2)?,
            source_url: row.get(3)?,
            updated_at: store::timestamp_from_micros(row.get(4)?),
            ..DocumentHit::default()
        };
        Ok((hit, row.get::<_, Option<String>>(5)?, row.get(6)?))
    })?;
    let metadata = store::parse_metadata(metadata.as_deref())?;
    Ok((DocumentHit { metadata, ..hit }, first_chunk))
}
