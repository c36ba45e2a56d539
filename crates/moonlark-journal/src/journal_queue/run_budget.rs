//! The journal budget of one run, and of one call of it.
//!
//! Only what is kept exactly counts, for replay: arguments and answers of calls that the
//! script makes. A call beyond the limit is refused before it is made.

use std::collections::HashMap;
use std::sync::Arc;

use moonlark_core::limits::format_size;
use moonlark_core::record_id::RecordId;
use moonlark_core::{Problem, Result};

/// The part of `journal.size` that one run may use, and the part of that for one call.
const RUN_SHARES: u64 = 8;
const CALL_SHARES: usize = 4;
/// What a call takes besides its arguments and answer.
const CALL_OVERHEAD_BYTES: usize = 512;

pub(super) struct RunBudgets {
    /// The runs in progress.
    runs: HashMap<RecordId, RunBudget>,
    max_run_bytes: usize,
    /// The caller whose runs fill the journal, none of which can be removed.
    pub(super) full_of: Option<Arc<str>>,
}

struct RunBudget {
    lane: Arc<str>,
    bytes: usize,
}

impl Default for RunBudgets {
    fn default() -> Self {
        RunBudgets { runs: HashMap::new(), max_run_bytes: usize::MAX, full_of: None }
    }
}

impl RunBudgets {
    pub(super) fn set_journal_size(&mut self, size: u64) {
        self.max_run_bytes = usize::try_from(size / RUN_SHARES).unwrap_or(usize::MAX);
    }

    pub(super) fn add(&mut self, run: RecordId, lane: Arc<str>, bytes: usize) {
        self.runs.insert(run, RunBudget { lane, bytes });
    }

    pub(super) fn remove(&mut self, run: RecordId) {
        self.runs.remove(&run);
    }

    pub(super) fn lane_of(&self, run: RecordId) -> Option<Arc<str>> {
        self.runs.get(&run).map(|known| known.lane.clone())
    }

    /// Count the arguments of a call that is about to be made.
    pub(super) fn count_call(
        &mut self,
        run: RecordId,
        caller: &str,
        tool: &str,
        bytes: usize,
    ) -> Result<()> {
        if self.full_of.as_deref().is_some_and(|full_of| full_of == caller) {
            return Err(journal_full_problem(caller, tool));
        }
        let (max_run, max_call) = (self.max_run_bytes, self.max_call_bytes());
        // One that has ended, and is written, has calls that come too late.
        let Some(budget) = self.runs.get_mut(&run) else { return Ok(()) };
        if bytes > max_call {
            let message = format!(
                "the journal keeps {} of one call, and the arguments of '{tool}' are {}: it was \
                 not called",
                format_size(max_call),
                format_size(bytes)
            );
            return Err(limit_problem(message));
        }
        let total = budget.bytes.saturating_add(bytes + CALL_OVERHEAD_BYTES);
        if total > max_run {
            let message = format!(
                "the journal keeps {} of one run, and this run is at that limit: '{tool}' was not \
                 called",
                format_size(max_run)
            );
            return Err(limit_problem(message));
        }
        budget.bytes = total;
        Ok(())
    }

    /// Count the answer of a call that was made.
    pub(super) fn count_answer(&mut self, run: RecordId, tool: &str, bytes: usize) -> Result<()> {
        let (max_run, max_call) = (self.max_run_bytes, self.max_call_bytes());
        let Some(budget) = self.runs.get_mut(&run) else { return Ok(()) };
        let total = budget.bytes.saturating_add(bytes);
        let (kept, of) = match () {
            () if bytes > max_call => (max_call, "one call"),
            () if total > max_run => (max_run, "one run"),
            () => {
                budget.bytes = total;
                return Ok(());
            }
        };
        let message = format!(
            "the journal keeps {} of {of}, which the answer of '{tool}' exceeds with {}: it was \
             called, and the answer is not kept",
            format_size(kept),
            format_size(bytes)
        );
        Err(limit_problem(message))
    }

    fn max_call_bytes(&self) -> usize {
        self.max_run_bytes / CALL_SHARES
    }
}

fn limit_problem(message: String) -> Problem {
    Problem::limit_exceeded(message).with_hint(
        "pass less data to and from tools in one script, or raise journal.size: one run may use an \
         eighth of it, one call a quarter of that",
    )
}

fn journal_full_problem(caller: &str, tool: &str) -> Problem {
    let message = format!(
        "the journal is full of runs of '{caller}' that have not ended: '{tool}' was not called"
    );
    Problem::limit_exceeded(message).with_hint(
        "wait until they end, resume or carry out what was interrupted or planned, or raise \
         journal.size",
    )
}
