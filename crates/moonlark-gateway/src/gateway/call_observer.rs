//! The metrics and trace step of the gateway: a call is counted and traced, however it
//! ends.

use std::time::Duration;

use crate::call::Call;
use crate::call_outcome::CallOutcome;
use moonlark_core::content::ToolAnswer;
use moonlark_core::problem::Result;
use moonlark_core::tool::Tool;

/// A call that is made; one that is dropped was cancelled. It is no future around
/// the others: calls are nested, and each would take its part of the stack.
pub(super) struct CallObserver<'a> {
    call: &'a Call,
    tool: &'a Tool,
    ended: bool,
}

impl<'a> CallObserver<'a> {
    pub(super) fn start(call: &'a Call, tool: &'a Tool) -> Self {
        call.gateway().metrics().count_begun_call(tool);
        Self { call, tool, ended: false }
    }

    pub(super) fn finish(mut self, result: Result<ToolAnswer>) -> Result<ToolAnswer> {
        self.record_end(CallOutcome::from_result(&result));
        result
    }

    fn record_end(&mut self, outcome: CallOutcome) {
        self.ended = true;
        let took = self.call.started_at().elapsed();
        self.call.gateway().metrics().count_ended_call(self.tool, outcome, took);
        self.call.trace_ended_call(self.tool, took, outcome);
        self.log_access(took, outcome);
    }

    /// A line in the log for every call from outside.
    fn log_access(&self, took: Duration, outcome: CallOutcome) {
        let caller = self.call.caller();
        if self.call.depth() != 1 || !matches!(caller.surface, "mcp" | "rest" | "cli") {
            return;
        }
        tracing::info!(
            target: "access",
            trace_id = self.call.trace().map(|trace| tracing::field::display(trace.id_hex())),
            "{} called by {} over {}{}: {outcome}, {:.1} ms",
            self.tool.name,
            caller.name(),
            caller.surface,
            caller.client.as_deref().map(|it| format!(" ({it})")).unwrap_or_default(),
            took.as_secs_f64() * 1000.0,
        );
    }
}

impl Drop for CallObserver<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.record_end(CallOutcome::Cancelled);
        }
    }
}
