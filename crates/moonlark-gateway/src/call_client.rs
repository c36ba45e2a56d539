//! The client of a call: what can be asked of it, and sent to it.
//!
//! A surface that can carry questions back (and only MCP can) puts one of these
//! into the calls it opens. Tools ask through [`Call::ask_caller`](crate::Call::ask_caller)
//! and never learn how the question travels.

use moonlark_core::problem::{ProtocolError, Result};
use moonlark_core::tool::BoxFuture;
use moonlark_core::value::{Object, Value};

pub trait CallClient: Send + Sync {
    /// Whether it said that it can be asked this.
    fn can_answer(&self, question: &ClientQuestion) -> bool;

    /// How its protocol says that it lacks what it would be asked, if it has
    /// words for that.
    fn missing_capability(&self, question: &ClientQuestion) -> Option<ProtocolError>;

    /// Ask it. Waits for as long as a person needs.
    fn ask_question(&self, question: ClientQuestion) -> BoxFuture<Result<Value>>;

    /// What came with the request beside the arguments, for a source that
    /// speaks the caller's protocol; nobody else reads it.
    fn envelope(&self) -> &RequestEnvelope;

    /// Tells callers apart: two requests of one client have the same.
    fn owner_id(&self) -> u64;
}

/// What an MCP client says beside the arguments of its request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestEnvelope {
    /// Whether the request stands by itself, as under 2026-07-28.
    pub modern: bool,
    /// Its `_meta`, without what the protocol keeps for itself.
    pub meta: Object,
    /// What the client says it can do.
    pub capabilities: Object,
    /// What the client says it is.
    pub info: Option<Value>,
    /// The least severe log message it wants, in the words of the protocol.
    pub log_level: Option<Value>,
    /// What it sends to finish an earlier request.
    pub request_state: Option<Value>,
    pub input_responses: Option<Value>,
}

/// Something only the caller has: a decision of its user, a text of its model,
/// its folders. Named as the protocol names it, with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientQuestion {
    pub method: String,
    pub params: Object,
    /// What to call it, where questions have names; the surface finds one
    /// otherwise.
    pub name: Option<String>,
}
