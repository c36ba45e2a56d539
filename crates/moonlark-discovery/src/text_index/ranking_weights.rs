//! Ranking weights: what each part of an entry and of a question counts.
//!
//! The usual ones were chosen on development sets, each judged by weights that were
//! chosen without it: `cargo x bench search` does that again, and says what it gains.

use moonlark_search::{FieldWeight, FusionWeights, LITERAL_WEIGHT, SAME_ACTION_WEIGHT};

pub(super) const FIELD_COUNT: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankingWeights {
    /// Names, summaries, path, body, inputs, outputs.
    pub fields: [FieldWeight; FIELD_COUNT],
    /// What another word for the action that a question begins with counts.
    pub same_action: f32,
    /// What a word counts that stands in a literal of the question, and in no name,
    /// summary or path.
    pub literal: f32,
    /// What a path gains that is nearly the question, where a summary gains 1.
    pub path_line: f32,
    /// How much of a score is due to the clause of the question that fits best.
    pub best_clause: f32,
    pub fusion: FusionWeights,
}

impl RankingWeights {
    /// How many of the first fields say what an entry is.
    pub(super) const SUBJECT_FIELDS: usize = 3;
}

impl Default for RankingWeights {
    fn default() -> RankingWeights {
        RankingWeights {
            fields: [
                FieldWeight::NAME_FIELD,
                FieldWeight::SUMMARY_FIELD,
                FieldWeight::OPERATION_FIELD,
                FieldWeight::BODY_FIELD,
                FieldWeight::INPUTS_FIELD,
                FieldWeight::OUTPUTS_FIELD,
            ],
            same_action: SAME_ACTION_WEIGHT,
            literal: LITERAL_WEIGHT,
            path_line: 1.0,
            best_clause: 0.2,
            fusion: FusionWeights::default(),
        }
    }
}
