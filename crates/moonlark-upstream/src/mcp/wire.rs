//! JSON-RPC as bytes: what comes in, what is sent, and why a request has no
//! result. Nothing here knows connections.

mod reading;
mod writing;

use moonlark_core::problem::cut;
use moonlark_core::{Problem, Value};
use serde_json::value::RawValue;

pub(super) use reading::{
    Frame, Head, Odd, Outcome, Params, error_in, is_whole, look_at, outcome, read, too_long,
};
pub(super) use writing::{answer, cancelled, notification, request};

/// An error as JSON-RPC has it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rpc {
    pub code: i64,
    pub message: String,
    pub data: Option<Value>,
}

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Failure {
    /// The server answered with an error.
    Refused(Rpc),
    /// It certainly never reached the server: it may be sent again.
    NotSent(Problem),
    /// It may have happened.
    Lost(Problem),
    /// The server wants to know who we are, or does not want us.
    Unauthorized(Problem),
}

impl Rpc {
    pub(crate) const INVALID_PARAMS: i64 = -32602;
    pub(crate) const INTERNAL: i64 = -32603;

    pub(crate) fn new(code: i64, message: impl Into<String>) -> Rpc {
        Rpc { code, message: message.into(), data: None }
    }

    /// Lenient: what matters is that it is an error.
    fn read(raw: &RawValue) -> Rpc {
        let unclear = || Rpc::new(Rpc::INTERNAL, cut(raw.get()));
        let Ok(value) = Value::parse_json(raw.get().as_bytes()) else { return unclear() };
        let Value::Object(mut fields) = value else { return unclear() };
        let code = match fields.get("code") {
            Some(Value::Int(code)) => *code,
            _ => Rpc::INTERNAL,
        };
        match fields.swap_remove("message") {
            Some(Value::Str(message)) => {
                Rpc { code, message: cut(&message), data: fields.swap_remove("data") }
            }
            _ => Rpc { code, ..unclear() },
        }
    }
}
