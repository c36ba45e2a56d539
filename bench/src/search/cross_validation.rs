//! Cross-validation: every weight chosen without the set that it is judged on.
//!
//! Each weight is tried at some values beside the usual one. A set is left out, the
//! best value of each weight for the others is taken, and the set is judged by those.
//! What it loses against the usual weights is what they owe to having seen it.

use std::fmt::Write;

use anyhow::Result;
use moonlark_discovery::FunctionIndex;
use moonlark_discovery::text_index::RankingWeights;

use super::judgement::SetWorth;
use super::question_sets::{QuestionFamily, QuestionSet, SearchedCatalog};

/// A weight, and where it is set.
struct TunedWeight {
    name: &'static str,
    values: &'static [f32],
    set: fn(&mut RankingWeights, f32),
}

/// Of questions that are made by rules there are thousands, much alike.
const RULE_MADE_STRIDE: usize = 7;

const TUNED_WEIGHTS: [TunedWeight; 11] = [
    TunedWeight { name: "name", values: &[2.0, 4.0], set: |it, to| it.fields[0].weight = to },
    TunedWeight { name: "summary", values: &[0.8, 2.0], set: |it, to| it.fields[1].weight = to },
    TunedWeight { name: "path", values: &[0.0, 0.75, 2.5], set: |it, to| it.fields[2].weight = to },
    TunedWeight {
        name: "inputs",
        values: &[0.0, 0.15, 0.6],
        set: |it, to| it.fields[4].weight = to,
    },
    TunedWeight { name: "outputs", values: &[0.0, 0.3], set: |it, to| it.fields[5].weight = to },
    TunedWeight { name: "path line", values: &[0.0, 0.5, 1.5], set: |it, to| it.path_line = to },
    TunedWeight {
        name: "same action",
        values: &[0.0, 0.5, 1.0],
        set: |it, to| it.same_action = to,
    },
    TunedWeight { name: "literal", values: &[0.0, 1.0], set: |it, to| it.literal = to },
    TunedWeight {
        name: "best clause",
        values: &[0.0, 0.1, 0.35],
        set: |it, to| it.best_clause = to,
    },
    TunedWeight {
        name: "vectors",
        values: &[0.02, 0.03, 0.055, 0.065, 0.075],
        set: |it, to| it.fusion.deviation = to,
    },
    TunedWeight {
        name: "vectors without words",
        values: &[0.0, 1.0],
        set: |it, to| it.fusion.uncovered = to,
    },
];

/// nDCG@10 of each set by usual weights, and by those that were chosen without it.
pub(super) struct CrossValidation {
    pub(super) usual: Vec<SetWorth>,
    pub(super) chosen: Vec<SetWorth>,
    /// What was chosen where it was not the usual value, for each set.
    pub(super) changed: Vec<String>,
    /// For each weight: its name, and the mean of the sets at each value.
    curves: Vec<(&'static str, Vec<(f32, f64)>)>,
    mean: f64,
}

pub(super) fn cross_validate(sets: &[&QuestionSet]) -> CrossValidation {
    let usual = judge_all(sets, RankingWeights::default());
    let usual_ndcg: Vec<f64> = usual.iter().map(SetWorth::ndcg).collect();
    let mut tried: Vec<Vec<Vec<f64>>> = Vec::new();
    for tuned in &TUNED_WEIGHTS {
        let at = |value: &f32| {
            let mut weights = RankingWeights::default();
            (tuned.set)(&mut weights, *value);
            judge_all(sets, weights).iter().map(SetWorth::ndcg).collect()
        };
        tried.push(tuned.values.iter().map(at).collect());
    }
    let (mut chosen, mut changed) = (Vec::new(), Vec::new());
    for (left_out, set) in sets.iter().enumerate() {
        let mut weights = RankingWeights::default();
        let mut names = Vec::new();
        for (tuned, curves) in TUNED_WEIGHTS.iter().zip(&tried) {
            let mut best = mean_without(&usual_ndcg, left_out, sets);
            let mut value = None;
            for (candidate, ndcg) in tuned.values.iter().zip(curves) {
                let mean = mean_without(ndcg, left_out, sets);
                if mean > best {
                    (best, value) = (mean, Some(*candidate));
                }
            }
            if let Some(value) = value {
                (tuned.set)(&mut weights, value);
                names.push(format!("{} {value}", tuned.name));
            }
        }
        chosen.extend(judge_all(&[*set], weights));
        changed.push(names.join(", "));
    }
    let mean = |ndcg: &[f64]| ndcg.iter().sum::<f64>() / ndcg.len().max(1) as f64;
    let curves = TUNED_WEIGHTS.iter().zip(&tried).map(|(tuned, curves)| {
        let values = tuned.values.iter().zip(curves).map(|(value, ndcg)| (*value, mean(ndcg)));
        (tuned.name, values.collect())
    });
    let curves = curves.collect();
    CrossValidation { mean: mean(&usual_ndcg), usual, chosen, changed, curves }
}

impl CrossValidation {
    pub(super) fn section(&self, sets: &[&QuestionSet]) -> Result<String> {
        let mut page = String::new();
        writeln!(page, "| set | usual weights | chosen without it | what was chosen otherwise |")?;
        writeln!(page, "|---|---|---|---|")?;
        for (at, set) in sets.iter().enumerate() {
            writeln!(
                page,
                "| {} | {:.3} | {:.3} | {} |",
                set.title(),
                self.usual[at].ndcg(),
                self.chosen[at].ndcg(),
                self.changed[at]
            )?;
        }
        let mean = |sets: &[SetWorth]| {
            sets.iter().map(SetWorth::ndcg).sum::<f64>() / sets.len().max(1) as f64
        };
        let (usual, chosen) = (mean(&self.usual), mean(&self.chosen));
        writeln!(page, "| **mean of the sets** | **{usual:.3}** | **{chosen:.3}** | |\n")?;
        writeln!(page, "The mean of these sets where one weight has another value:\n")?;
        writeln!(page, "| weight | usual {:.4}, and at |", self.mean)?;
        writeln!(page, "|---|---|")?;
        for (name, values) in &self.curves {
            let values = values.iter().map(|(value, mean)| format!("{value}: {mean:.4}"));
            writeln!(page, "| {name} | {} |", values.collect::<Vec<_>>().join(" · "))?;
        }
        writeln!(page)?;
        Ok(page)
    }
}

/// The mean of all sets but those of the catalog of one.
fn mean_without(ndcg: &[f64], left_out: usize, sets: &[&QuestionSet]) -> f64 {
    let of = |at: usize| &sets[at].catalog.name;
    let others = (0..ndcg.len()).filter(|at| of(*at) != of(left_out));
    let others: Vec<f64> = others.map(|at| ndcg[at]).collect();
    others.iter().sum::<f64>() / others.len().max(1) as f64
}

fn judge_all(sets: &[&QuestionSet], weights: RankingWeights) -> Vec<SetWorth> {
    let mut made: Option<(&SearchedCatalog, FunctionIndex)> = None;
    let mut all = Vec::new();
    for set in sets {
        let searched = &*set.catalog;
        let index = match made.take() {
            Some((of, index)) if std::ptr::eq(of, searched) => index,
            _ => FunctionIndex::ranked_by(&searched.catalog, weights),
        };
        all.push(set.judge_some(stride(set.family), |question, limit| {
            searched.rank_by(&index, question, limit)
        }));
        made = Some((searched, index));
    }
    all
}

fn stride(family: QuestionFamily) -> usize {
    match family {
        QuestionFamily::Summary | QuestionFamily::Path => RULE_MADE_STRIDE,
        _ => 1,
    }
}
