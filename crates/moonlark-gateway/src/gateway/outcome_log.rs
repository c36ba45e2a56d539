//! How a call ended: the line in the log, and the Problem of one that took too long.

use crate::call::Call;
use crate::call_outcome::CallOutcome;
use moonlark_core::limits::format_seconds;
use moonlark_core::problem::{Problem, ProblemCode};
use moonlark_core::tool::Tool;

/// The Problem of a call that ran past its deadline.
pub(super) fn timeout_problem(call: &Call, tool: &Tool) -> Problem {
    Problem::new(
        ProblemCode::Timeout,
        format!("tool '{}' timed out after {}", tool.name, format_seconds(call.limits().timeout)),
    )
}

pub(super) fn log_outcome(call: &Call, tool: &Tool, outcome: CallOutcome) {
    tracing::debug!(
        target: "call",
        tool = tool.name,
        surface = call.caller().surface,
        depth = call.depth(),
        code = outcome.as_str(),
        trace_id = call.trace().map(|trace| tracing::field::display(trace.id_hex())),
    );
}
