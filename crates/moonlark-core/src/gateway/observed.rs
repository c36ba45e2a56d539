//! The gateway's step: a call is counted, and told to whoever keeps traces,
//! however it ends.

use std::time::Duration;

use crate::call::Call;
use crate::content::Answer;
use crate::metrics::Calling;
use crate::problem::Result;
use crate::tool::Tool;

/// A call that is made; one that is dropped was cancelled. It is no future around
/// the others: calls are nested, and each would take its part of the stack.
pub(super) struct Seen<'a> {
    call: &'a Call,
    tool: &'a Tool,
    calling: Calling<'a>,
    ended: bool,
}

impl<'a> Seen<'a> {
    pub(super) fn begin(call: &'a Call, tool: &'a Tool) -> Self {
        let calling = Calling::begin(call.gateway().metrics(), tool, call.began());
        Self { call, tool, calling, ended: false }
    }

    pub(super) fn end(mut self, result: Result<Answer>) -> Result<Answer> {
        self.ended = true;
        let problem = result.as_ref().err();
        let took = self.calling.end(problem);
        let outcome = problem.map_or("ok", |problem| problem.code.as_str());
        self.call.tell(&self.tool.source, took, outcome);
        self.note_access(took, outcome);
        result
    }

    /// A line in the log for every call from outside.
    fn note_access(&self, took: Duration, outcome: &str) {
        let caller = self.call.caller();
        if self.call.depth() != 1 || !matches!(caller.surface, "mcp" | "rest" | "cli") {
            return;
        }
        tracing::info!(
            target: "access",
            trace_id = self.call.trace().map(|trace| tracing::field::display(trace.id_text())),
            "{} called by {} over {}{}: {outcome}, {:.1} ms",
            self.tool.name,
            caller.name(),
            caller.surface,
            caller.client.as_deref().map(|it| format!(" ({it})")).unwrap_or_default(),
            took.as_secs_f64() * 1000.0,
        );
    }
}

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let took = self.call.began().elapsed();
            self.call.tell(&self.tool.source, took, "cancelled");
            self.note_access(took, "cancelled");
        }
    }
}
