//! The gateway's step: a call is counted, and told to whoever keeps traces,
//! however it ends.

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
        result
    }
}

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.call.tell(&self.tool.source, self.call.began().elapsed(), "cancelled");
        }
    }
}
