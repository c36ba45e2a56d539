//! How a call or a run ended.

use std::fmt;

use moonlark_core::problem::{ProblemCode, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallOutcome {
    /// It has not ended yet.
    #[default]
    Running,
    Ok,
    Failed(ProblemCode),
    /// Its caller stopped waiting.
    Cancelled,
    /// The same before it was made: it did not happen.
    Withdrawn,
    /// It was not made again: somebody said that it had happened.
    Assumed,
}

impl CallOutcome {
    /// Those that are no code of a Problem.
    const PLAIN_OUTCOMES: [CallOutcome; 4] =
        [CallOutcome::Running, CallOutcome::Ok, CallOutcome::Withdrawn, CallOutcome::Assumed];

    pub fn from_result<T>(result: &Result<T>) -> CallOutcome {
        result.as_ref().map_or_else(|problem| problem.code.into(), |_| CallOutcome::Ok)
    }

    /// The word that records, metrics and messages have for it; none while it runs.
    pub fn as_str(self) -> &'static str {
        match self {
            CallOutcome::Running => "",
            CallOutcome::Ok => "ok",
            CallOutcome::Failed(code) => code.as_str(),
            CallOutcome::Cancelled => ProblemCode::Cancelled.as_str(),
            CallOutcome::Withdrawn => "withdrawn",
            CallOutcome::Assumed => "assumed",
        }
    }

    /// What a word means, if it is one of those.
    pub fn from_word(word: &str) -> Option<CallOutcome> {
        let codes = ProblemCode::ALL_CODES.iter().map(|code| CallOutcome::from(*code));
        codes.chain(CallOutcome::PLAIN_OUTCOMES).find(|known| known.as_str() == word)
    }

    /// The code of its Problem, if it has one.
    pub fn problem_code(self) -> Option<ProblemCode> {
        match self {
            CallOutcome::Failed(code) => Some(code),
            CallOutcome::Cancelled => Some(ProblemCode::Cancelled),
            CallOutcome::Running
            | CallOutcome::Ok
            | CallOutcome::Withdrawn
            | CallOutcome::Assumed => None,
        }
    }
}

impl From<ProblemCode> for CallOutcome {
    fn from(code: ProblemCode) -> Self {
        match code {
            ProblemCode::Cancelled => CallOutcome::Cancelled,
            code => CallOutcome::Failed(code),
        }
    }
}

impl fmt::Display for CallOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_means_the_outcome_that_has_it() {
        let codes = ProblemCode::ALL_CODES.iter().map(|code| CallOutcome::from(*code));
        for outcome in codes.chain(CallOutcome::PLAIN_OUTCOMES) {
            assert_eq!(CallOutcome::from_word(outcome.as_str()), Some(outcome));
        }
        assert_eq!(CallOutcome::from_word("fine"), None);
    }
}
