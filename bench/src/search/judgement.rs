//! How well answers fit, question by question, and how sure that is.

use std::collections::HashMap;

use super::question_sets::{AskedQuestion, QuestionFamily, QuestionSet};
use crate::bootstrap::mean_interval;
use crate::retrieval::DEPTH;

/// How many an agent is shown if it says nothing.
const SHOWN: usize = 5;

/// What the answer to one question, or to one that stands for a function, is worth.
#[derive(Clone, Copy, Default)]
pub(super) struct AnswerWorth {
    pub(super) ndcg: f64,
    /// Of what was asked for, how much is among the first five.
    pub(super) in_five: f64,
    pub(super) first: f64,
}

/// The same for each question of a set.
pub(super) struct SetWorth(pub(super) Vec<AnswerWorth>);

impl QuestionSet {
    /// Asks all questions; `rank` is told how many answers it may give.
    pub(super) fn judge(&self, rank: impl FnMut(&str, usize) -> Vec<usize>) -> SetWorth {
        self.judge_some(1, rank)
    }

    /// The same by one question of so many.
    pub(super) fn judge_some(
        &self,
        stride: usize,
        mut rank: impl FnMut(&str, usize) -> Vec<usize>,
    ) -> SetWorth {
        let mut all = Vec::new();
        for question in self.questions.iter().step_by(stride) {
            match self.family {
                QuestionFamily::Retrieval => {
                    let ranked = rank(&question.text, DEPTH);
                    all.push(judge_graded(&question.parts[0], &ranked));
                }
                QuestionFamily::Summary | QuestionFamily::Path => {
                    let ranked = rank(&question.text, DEPTH + question.parts.len());
                    all.extend(judge_equals(question, &ranked));
                }
                QuestionFamily::Everyday | QuestionFamily::Bundle => {
                    all.push(judge_parts(question, &rank(&question.text, DEPTH)));
                }
            }
        }
        SetWorth(all)
    }
}

fn judge_graded(relevant: &HashMap<usize, f64>, ranked: &[usize]) -> AnswerWorth {
    let mut grades: Vec<f64> = relevant.values().copied().collect();
    grades.sort_by(|a, b| b.total_cmp(a));
    let found = |depth: usize| ranked.iter().take(depth).filter(|it| relevant.contains_key(it));
    let gained = ranked.iter().map(|it| relevant.get(it).copied().unwrap_or(0.0));
    AnswerWorth {
        ndcg: discounted_gain(gained) / discounted_gain(grades.into_iter()),
        in_five: found(SHOWN).count() as f64 / relevant.len() as f64,
        first: found(1).count() as f64,
    }
}

/// Each of several functions that are asked for in the same words: its place is that
/// among the others, since the question cannot tell them apart.
fn judge_equals(question: &AskedQuestion, ranked: &[usize]) -> Vec<AnswerWorth> {
    let group: Vec<usize> = question.parts.iter().flat_map(|it| it.keys().copied()).collect();
    let worth = |function: &usize| {
        let Some(at) = ranked.iter().position(|it| it == function) else {
            return AnswerWorth::default();
        };
        let place = ranked[..at].iter().filter(|it| !group.contains(it)).count();
        AnswerWorth {
            ndcg: if place < DEPTH { 1.0 / ((place + 2) as f64).log2() } else { 0.0 },
            in_five: f64::from(u8::from(place < SHOWN)),
            first: f64::from(u8::from(place == 0)),
        }
    };
    group.iter().map(worth).collect()
}

/// Each part counts once, whichever of its functions comes first.
fn judge_parts(question: &AskedQuestion, ranked: &[usize]) -> AnswerWorth {
    let mut answered = vec![false; question.parts.len()];
    let mut gained = Vec::new();
    let mut in_five = 0;
    for (at, function) in ranked.iter().enumerate() {
        let mut open = question.parts.iter().enumerate().filter(|(part, _)| !answered[*part]);
        let part = open.find(|(_, functions)| functions.contains_key(function));
        gained.push(f64::from(u8::from(part.is_some())));
        if let Some((part, _)) = part {
            answered[part] = true;
            in_five += usize::from(at < SHOWN);
        }
    }
    let parts = question.parts.len();
    AnswerWorth {
        ndcg: discounted_gain(gained.iter().copied())
            / discounted_gain(std::iter::repeat_n(1.0, parts)),
        in_five: in_five as f64 / parts as f64,
        first: gained.first().copied().unwrap_or(0.0),
    }
}

/// What is further down counts less.
fn discounted_gain(grades: impl Iterator<Item = f64>) -> f64 {
    let discounted = |(at, grade): (usize, f64)| grade / ((at + 2) as f64).log2();
    grades.take(DEPTH).enumerate().map(discounted).sum()
}

impl SetWorth {
    pub(super) fn mean(&self, of: fn(&AnswerWorth) -> f64) -> f64 {
        self.0.iter().map(of).sum::<f64>() / self.0.len().max(1) as f64
    }

    pub(super) fn ndcg(&self) -> f64 {
        self.mean(|it| it.ndcg)
    }
}

/// Every set counts the same, however many questions it has.
pub(super) fn mean_of_sets<'a>(
    sets: impl Iterator<Item = &'a SetWorth>,
    of: fn(&AnswerWorth) -> f64,
) -> f64 {
    let means: Vec<f64> = sets.map(|set| set.mean(of)).collect();
    means.iter().sum::<f64>() / means.len().max(1) as f64
}

/// Between what and what the mean of the sets lies in 95 of 100 draws of as many
/// questions from each set.
pub(super) fn confidence_interval(sets: &[&SetWorth], of: fn(&AnswerWorth) -> f64) -> [f64; 2] {
    let values: Vec<Vec<f64>> = sets.iter().map(|set| set.0.iter().map(of).collect()).collect();
    mean_interval(&values)
}
