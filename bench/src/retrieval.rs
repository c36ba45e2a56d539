//! Retrieval sets on disk, and how well a ranking does on one.
//!
//! A set is a folder: `corpus.jsonl` (`id` or `_id`, `title`, `text`),
//! `queries.jsonl` (`id`, `text`), `qrels.tsv` (query, document, relevance).

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// How far down a ranking counts.
pub(super) const DEPTH: usize = 10;

pub(super) struct Set {
    pub(super) name: String,
    pub(super) documents: Vec<Document>,
    /// A question, and which documents answer it how well.
    pub(super) questions: Vec<(String, HashMap<usize, f64>)>,
}

#[derive(Clone, Deserialize)]
pub(super) struct Document {
    #[serde(alias = "_id")]
    pub(super) id: String,
    #[serde(default)]
    pub(super) title: String,
    #[serde(default)]
    pub(super) text: String,
}

/// What a ranking is worth, as means over the questions.
#[derive(Clone, Copy, Default)]
pub(super) struct Worth {
    pub(super) ndcg: f64,
    /// Of what is relevant, how much is among the first five, and among all.
    pub(super) recall: f64,
    pub(super) recall_all: f64,
    pub(super) first: f64,
    /// One over the place of the first that is relevant.
    pub(super) mrr: f64,
}

/// All sets in a folder, by name.
pub(super) fn load(folder: &Path) -> Result<Vec<Set>> {
    let entries = folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))?;
    let mut sets = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.join("corpus.jsonl").exists() {
            sets.push(Set::load(&path)?);
        }
    }
    ensure!(!sets.is_empty(), "there is no folder with a corpus.jsonl in {}", folder.display());
    sets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(sets)
}

impl Set {
    fn load(folder: &Path) -> Result<Set> {
        let read = |file: &str| {
            let path = folder.join(file);
            std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))
        };
        let documents = lines(&read("corpus.jsonl")?)?;
        let queries: Vec<Document> = lines(&read("queries.jsonl")?)?;
        let numbers: HashMap<&str, usize> = documents
            .iter()
            .enumerate()
            .map(|(at, it): (_, &Document)| (it.id.as_str(), at))
            .collect();
        let mut relevant: HashMap<String, HashMap<usize, f64>> = HashMap::new();
        for line in read("qrels.tsv")?.lines() {
            let mut parts = line.split('\t');
            let (Some(query), Some(document), Some(grade)) =
                (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            // A heading has no number.
            if let (Some(document), Ok(grade)) = (numbers.get(document), grade.trim().parse())
                && grade > 0.0
            {
                relevant.entry(query.to_owned()).or_default().insert(*document, grade);
            }
        }
        let questions = queries
            .into_iter()
            .filter_map(|query| Some((query.text, relevant.remove(&query.id)?)))
            .collect();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Set { name, documents, questions })
    }

    /// What a way to rank documents is worth here.
    pub(super) fn judge(&self, rank: impl FnMut(&str) -> Vec<usize>) -> Worth {
        Worth::mean(&self.judge_each(rank))
    }

    /// The same, question by question.
    pub(super) fn judge_each(&self, mut rank: impl FnMut(&str) -> Vec<usize>) -> Vec<Worth> {
        let judge = |(question, relevant): &(String, HashMap<usize, f64>)| {
            let mut sum = Worth::default();
            let ranked = rank(question);
            let found =
                |depth: usize| ranked.iter().take(depth).filter(|it| relevant.contains_key(it));
            sum.ndcg += gain(ranked.iter().map(|it| relevant.get(it).copied().unwrap_or(0.0)))
                / best_gain(relevant);
            sum.recall += found(5).count() as f64 / relevant.len() as f64;
            sum.recall_all += found(DEPTH).count() as f64 / relevant.len() as f64;
            sum.first += found(1).count() as f64;
            let place = ranked.iter().take(DEPTH).position(|it| relevant.contains_key(it));
            sum.mrr += place.map_or(0.0, |place| 1.0 / (place + 1) as f64);
            sum
        };
        self.questions.iter().map(judge).collect()
    }
}

impl Worth {
    fn map(self, change: impl Fn(f64) -> f64) -> Worth {
        Worth {
            ndcg: change(self.ndcg),
            recall: change(self.recall),
            recall_all: change(self.recall_all),
            first: change(self.first),
            mrr: change(self.mrr),
        }
    }

    /// Of questions, or of sets, which count the same however many questions they have.
    pub(super) fn mean(all: &[Worth]) -> Worth {
        let sum = all.iter().fold(Worth::default(), |sum, it| Worth {
            ndcg: sum.ndcg + it.ndcg,
            recall: sum.recall + it.recall,
            recall_all: sum.recall_all + it.recall_all,
            first: sum.first + it.first,
            mrr: sum.mrr + it.mrr,
        });
        sum.map(|it| it / all.len().max(1) as f64)
    }
}

/// What is further down counts less.
fn gain(grades: impl Iterator<Item = f64>) -> f64 {
    let discounted = |(at, grade): (usize, f64)| grade / ((at + 2) as f64).log2();
    grades.take(DEPTH).enumerate().map(discounted).sum()
}

fn best_gain(relevant: &HashMap<usize, f64>) -> f64 {
    let mut grades: Vec<f64> = relevant.values().copied().collect();
    grades.sort_by(|a, b| b.total_cmp(a));
    gain(grades.into_iter())
}

/// Questions in several languages to documents in all of them: a set for each language.
pub(super) fn load_languages(file: &Path) -> Result<Vec<Set>> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let languages: BTreeMap<String, LanguageQuestions> = serde_json::from_str(&text)?;
    let mut documents = Vec::new();
    for of in languages.values() {
        for (id, text) in &of.documents {
            // What it is called would tell more than questions of users do.
            documents.push(Document { id: id.clone(), title: String::new(), text: text.clone() });
        }
    }
    let set = |(code, of): (&String, &LanguageQuestions)| {
        let question = |(text, id): &(String, String)| {
            let is_own = |it: &&(usize, &Document)| {
                it.1.id == *id && of.documents.get(id) == Some(&it.1.text)
            };
            let found = documents.iter().enumerate().collect::<Vec<_>>();
            let number = found.iter().find(is_own).map(|(number, _)| *number);
            let number = number.with_context(|| format!("{code}: there is no document {id}"))?;
            Ok((text.clone(), HashMap::from([(number, 1.0)])))
        };
        let questions = of.questions.iter().map(question).collect::<Result<_>>()?;
        Ok(Set { name: format!("language {code}"), documents: documents.clone(), questions })
    };
    languages.iter().map(set).collect()
}

#[derive(Deserialize)]
struct LanguageQuestions {
    documents: BTreeMap<String, String>,
    questions: Vec<(String, String)>,
}

fn lines<T: serde::de::DeserializeOwned>(text: &str) -> Result<Vec<T>> {
    let parse = |line: &str| serde_json::from_str(line).with_context(|| format!("in {line:.80}"));
    text.lines().filter(|line| !line.trim().is_empty()).map(parse).collect()
}
