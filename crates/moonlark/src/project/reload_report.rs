//! What a reload did, and what it did not take over.

use moonlark_core::Problem;

/// What a reload did, in words for the log.
#[derive(Debug, Default)]
pub struct ReloadReport {
    pub changes: Vec<String>,
    pub problems: Vec<ReloadProblem>,
}

/// Something that was not taken over.
#[derive(Debug)]
pub struct ReloadProblem {
    pub problem: Problem,
    /// An earlier version works, and stays in use.
    pub last_good_stays: bool,
}

impl ReloadReport {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.problems.is_empty()
    }

    pub(super) fn merge_report(&mut self, other: ReloadReport) {
        self.changes.extend(other.changes);
        self.problems.extend(other.problems);
    }
}
