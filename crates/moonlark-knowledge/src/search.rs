//! From a question to documents.
//!
//! Words are looked up in the lists of every segment and summed for each chunk;
//! vectors are compared row by row; what either finds is judged by both, put
//! together by `moonlark-search`, and shown once for each document. Filters apply
//! before anything is ranked. All of it reads one commit, on a blocking thread.

mod filter;
mod hits;
mod keyword;
mod semantic;
mod snippet;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use moonlark_core::{Problem, Result};
use moonlark_search::{Candidate, Collection, Fused, Neighbours, Question, TitleGain, fuse};
use rusqlite::Connection;

use crate::blocking;
use crate::embedder::{self, Embedder, Patience, Row};
use crate::index::{Model, Snapshot};
use crate::knowledge::Inner;
use crate::query::{Answer, Mode, Query};
use crate::store::{self, Attempt};
use crate::sync::{UNDER, path_words};
use filter::Masks;
use keyword::Scores;
use semantic::Nearness;

/// Documents that each part proposes, for every one that is asked for.
const PROPOSED: usize = 8;
const AT_LEAST: usize = 100;
/// Of these, how many chunks are looked at for words that stand together and for
/// headings that are nearly the question.
const LOOKED_AT_AGAIN: usize = 100;
/// Chunks that are proposed for their headings: the section that answers may not be
/// the one that has the words most often.
const PROPOSED_BY_HEADING: usize = 40;

pub(crate) async fn search(knowledge: Arc<Inner>, query: Query) -> Result<Answer> {
    if query.text.trim().is_empty() {
        return Err(Problem::bad_request("the query is empty").hint("say what to look for"));
    }
    if !(1..=Query::MOST).contains(&query.limit) {
        return Err(Problem::bad_request(format!(
            "limit is {} and has to be from 1 to {}",
            query.limit,
            Query::MOST
        )));
    }
    let mut notes = Vec::new();
    let meaning = match query.mode {
        Mode::Keyword => Meaning::Nothing,
        mode => match meaning(&knowledge, &query.text, mode).await {
            Ok(meaning) => meaning,
            Err(problem) if mode == Mode::Semantic => return Err(problem),
            Err(problem) => {
                notes.push(format!("found by words only: {}", problem.message));
                Meaning::Nothing
            }
        },
    };
    let _turn = knowledge.readers.acquire().await;
    let inner = knowledge.clone();
    blocking(move || {
        let vector = meaning.vector(&query.text);
        let answer = inner.store.read(|connection| {
            let snapshot = inner.current.of(connection)?;
            Search { connection, snapshot: &snapshot, query: &query, vector, notes }.run()
        })?;
        Ok(answer.unwrap_or_default())
    })
    .await
}

/// The name of a model, and a question as it sees it.
type QuestionVector = (String, Row);

/// What a question means, as far as a service had to be asked.
enum Meaning {
    Nothing,
    /// The model in the binary will say; that is computing.
    Builtin,
    Known(QuestionVector),
}

impl Meaning {
    fn vector(self, text: &str) -> Option<QuestionVector> {
        match self {
            Meaning::Nothing => None,
            Meaning::Builtin => {
                Some((embedder::builtin_name().to_owned(), embedder::builtin(text)))
            }
            Meaning::Known(vector) => Some(vector),
        }
    }
}

/// By the model whose vectors answer: while those of a new one are still being
/// made, the old one.
async fn meaning(knowledge: &Arc<Inner>, text: &str, mode: Mode) -> Result<Meaning> {
    let embedder = &knowledge.settings.embedder;
    match (embedder, embedder.name()) {
        (Embedder::Builtin, _) => Ok(Meaning::Builtin),
        (Embedder::Http(_), Some(name)) if has_vectors(knowledge, &name).await? => {
            let rows = embedder.rows(vec![text.to_owned()], Patience::Question).await?;
            Ok(rows.into_iter().next().map_or(Meaning::Nothing, |row| Meaning::Known((name, row))))
        }
        (Embedder::Http(_), _) => Ok(Meaning::Builtin),
        (Embedder::Off, _) if mode == Mode::Hybrid => Ok(Meaning::Nothing),
        (Embedder::Off, _) => {
            let none = "there is no embedder, so nothing can be found by meaning";
            Err(Problem::unavailable(none).retryable_if(false))
        }
    }
}

/// Whether a model has made all the vectors, or at least more than the one in
/// the binary has.
async fn has_vectors(knowledge: &Arc<Inner>, name: &str) -> Result<bool> {
    let (knowledge, name) = (knowledge.clone(), name.to_owned());
    let has = move || {
        knowledge.store.read(|connection| {
            let snapshot = knowledge.current.of(connection)?;
            let of = |name: &str| snapshot.model(name).map_or(0, |(_, chunks)| chunks);
            Ok(of(&name) >= snapshot.alive || of(&name) > of(embedder::builtin_name()))
        })
    };
    Ok(blocking(has).await?.unwrap_or(true))
}

struct Search<'a> {
    connection: &'a Connection,
    snapshot: &'a Snapshot,
    query: &'a Query,
    vector: Option<QuestionVector>,
    notes: Vec<String>,
}

/// A place among all chunks: which segment, and where in it.
type Place = u32;

impl Search<'_> {
    fn run(mut self) -> Attempt<Answer> {
        let Some(masks) = self.masks()? else {
            return Ok(Answer { hits: Vec::new(), notes: self.notes });
        };
        let most = (self.query.limit * PROPOSED).max(AT_LEAST);
        let question = Question::read(&self.query.text);
        let scores = match self.query.mode {
            Mode::Semantic => Scores::none(),
            _ => Scores::of(self.connection, self.snapshot, &masks, &question)?,
        };
        let model = self.model();
        let nearness = match (&model, &self.vector) {
            (Some(model), Some((_, row))) => {
                Nearness::of(self.connection, self.snapshot, &masks, model, row, most)?
            }
            _ => Nearness::none(),
        };
        let mut places: BTreeSet<Place> = scores.best(self.snapshot, most).into_iter().collect();
        places.extend(scores.best_headed(self.snapshot, PROPOSED_BY_HEADING));
        places.extend(nearness.best.iter().map(|(place, _)| *place));
        let judged = |place| Candidate {
            id: place,
            keyword: scores.at(place),
            semantic: nearness.at(self.snapshot, place),
        };
        let mut candidates: Vec<Candidate<Place>> = places.into_iter().map(judged).collect();
        self.look_again(&question, &scores, &mut candidates)?;
        let collection = Collection {
            documents: self.snapshot.alive as u64,
            asked: scores.weights().asked,
            cosines: nearness.cosines,
        };
        let ranked = self.ranked(&collection, &candidates);
        let chosen = self.by_document(ranked);
        let hits =
            hits::hits(self.connection, self.snapshot, self.query, &scores, &candidates, chosen)?;
        Ok(Answer { hits, notes: self.notes })
    }

    /// Words that stand together as in the question add to what the best have, and
    /// so does a title, a heading or a path that is nearly the question.
    fn look_again(
        &self,
        question: &Question,
        scores: &Scores,
        candidates: &mut [Candidate<Place>],
    ) -> Attempt<()> {
        let neighbours = Neighbours::new(question, scores.weights());
        let titles = TitleGain::new(question, scores.weights());
        let mut best: Vec<&mut Candidate<Place>> =
            candidates.iter_mut().filter(|it| it.keyword > 0.0).collect();
        let promise =
            |it: &Candidate<Place>| it.keyword + scores.heading_gain(self.snapshot, it.id);
        best.sort_by(|a, b| promise(b).total_cmp(&promise(a)).then(a.id.cmp(&b.id)));
        for candidate in best.into_iter().take(LOOKED_AT_AGAIN) {
            let Some((segment, at)) = self.snapshot.locate(candidate.id as usize) else { continue };
            let chunk = segment.members().chunks[at];
            let Some(it) = store::chunk_text(self.connection, chunk)? else { continue };
            let heading = it.heading.as_deref().unwrap_or_default();
            let path = path_words(&it.source_id);
            candidate.keyword += neighbours.weight([it.title.as_str(), path, heading, &it.text]);
            let own = heading.rsplit(UNDER).next().unwrap_or_default();
            let lines = [it.title.as_str(), path, heading, own];
            candidate.keyword +=
                lines.map(|line| titles.weight(line)).into_iter().fold(0.0, f32::max);
        }
        Ok(())
    }

    fn masks(&mut self) -> Attempt<Option<Masks>> {
        filter::masks(self.connection, self.snapshot, &self.query.filter, &mut self.notes)
    }

    /// The model whose rows answer.
    fn model(&mut self) -> Option<Model> {
        let (name, row) = self.vector.as_ref()?;
        let Some((model, chunks)) = self.snapshot.model(name) else {
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
    fn ranked(
        &self,
        collection: &Collection,
        candidates: &[Candidate<Place>],
    ) -> Vec<Fused<Place>> {
        let mut ranked = fuse(collection, candidates);
        let by = match self.query.mode {
            Mode::Hybrid => None,
            Mode::Keyword => Some((0.0, (|it| it.keyword) as fn(&Fused<Place>) -> f32)),
            Mode::Semantic => Some((1.0, (|it| it.semantic) as fn(&Fused<Place>) -> f32)),
        };
        if let Some((weight, part)) = by {
            ranked.iter_mut().for_each(|it| (it.score, it.weight) = (part(it), weight));
            ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.id.cmp(&b.id)));
        }
        ranked.retain(|it| it.score > 0.0);
        ranked
    }

    /// The best chunk of each document, as many documents as asked for and all
    /// that are as good as the last of them.
    fn by_document(&self, ranked: Vec<Fused<Place>>) -> Vec<Chosen> {
        let mut chosen: Vec<Chosen> = Vec::new();
        let mut numbers: HashMap<u32, usize> = HashMap::new();
        for fused in ranked {
            let Some((segment, at)) = self.snapshot.locate(fused.id as usize) else { continue };
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
            chosen.push(Chosen { fused, document, also: Vec::new() });
        }
        chosen
    }
}

/// A document that is part of the answer.
struct Chosen {
    fused: Fused<Place>,
    document: u32,
    /// Other chunks of it that were proposed.
    also: Vec<Place>,
}

#[cfg(test)]
mod tests;
