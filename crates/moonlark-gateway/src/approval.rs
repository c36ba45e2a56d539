//! Approvals: calls that a person decides on.
//!
//! A rule says so ([`RuleAction::Approve`](crate::policy::RuleAction)); [`ApprovalLedger`]
//! keeps what was asked and decided, here or elsewhere; [`rules`] says what
//! becomes of a call because of that, and [`gate`] is the gateway's step. A
//! decision is good for one call: of that tool, with those arguments, by that
//! caller. Nothing here knows how a person is reached.

mod gate;
mod rules;
mod shown_arguments;

use serde_json::Value as Json;

use crate::call::Caller;
use crate::journal::RedactionScopes;
use moonlark_core::approval_ticket::ApprovalTicket;
use moonlark_core::problem::Result;
use moonlark_core::record_id::RecordId;
use moonlark_core::secret::SecretText;
use moonlark_core::tool::{BoxFuture, CallEffects};
use moonlark_core::value::Value;

pub(crate) use gate::{attach_ticket, ensure_approved};
pub use rules::{
    ApprovalRecord, ApprovalRefusal, ApprovalState, ApprovalVerdict, decide_next_step,
};
pub use shown_arguments::show_arguments;

/// Keeps what was asked and decided.
pub trait ApprovalLedger: Send + Sync {
    /// Whether this call may be made, which uses the approval up. A call that is
    /// not known is asked about from now on. A Problem if it must not be made.
    fn claim_approval(&self, request: ApprovalRequest) -> BoxFuture<Result<ApprovalStatus>>;

    /// Decide; once, and in time.
    fn record_decision(
        &self,
        id: RecordId,
        decision: ApprovalDecision,
        by: ApprovalDecider,
    ) -> BoxFuture<Result<()>>;

    /// Wait until it is decided, by whomever; none if nobody did in time.
    fn wait_for_decision(&self, id: RecordId) -> BoxFuture<Result<Option<ApprovalDecision>>>;

    /// How many wait for a decision.
    fn count_pending(&self) -> BoxFuture<Result<u64>>;

    /// What waits for a decision, or one request with what became of it, as JSON
    /// for people: of this caller only, if one is given.
    fn describe_requests(
        &self,
        id: Option<RecordId>,
        of: Option<String>,
    ) -> BoxFuture<Result<Json>>;
}

/// A call that a rule wants to be decided on.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalRequest {
    pub tool: String,
    pub source: String,
    pub effects: CallEffects,
    pub args: Value,
    pub caller: Caller,
    /// The run it is part of, and where in its script.
    pub run: Option<RecordId>,
    pub place: Option<String>,
    /// What came with the call.
    pub tokens: Vec<SecretText>,
    /// Whether a token must be for this very call; else others are ignored.
    pub strict: bool,
    pub secrets: RedactionScopes,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ApprovalStatus {
    /// It may be made, now, and once; by which of its tokens, if by one.
    Granted { token: Option<SecretText> },
    /// Somebody has to decide first.
    Waiting(ApprovalTicket),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalDecision {
    Approve,
    Deny,
}

/// Who decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalDecider {
    /// The user of the client that made the call, which was asked.
    Caller(String),
    /// Whoever was told of the request, with the token as proof.
    Holder { token: SecretText, name: String },
    /// Somebody who may use the operator's tools.
    Operator(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_an_approval_has_no_token_in_it() {
        let token = SecretText::new("apr_words");
        let request = ApprovalRequest {
            tool: "remove".to_owned(),
            source: "files".to_owned(),
            effects: CallEffects::default(),
            args: Value::Null,
            caller: Caller::new("rest"),
            run: None,
            place: None,
            tokens: vec![token.clone()],
            strict: true,
            secrets: RedactionScopes::default(),
        };
        let granted = ApprovalStatus::Granted { token: Some(token.clone()) };
        let holder = ApprovalDecider::Holder { token, name: "ci".to_owned() };
        let printed = format!("{request:?} {granted:?} {holder:?}");
        assert!(printed.contains("remove") && !printed.contains("apr_words"), "{printed}");
    }
}
