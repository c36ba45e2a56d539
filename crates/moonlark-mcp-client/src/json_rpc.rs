//! JSON-RPC: decoding, encoding, and why a request has no result. Nothing here knows
//! connections.

mod rpc_decode;
mod rpc_encode;

use moonlark_core::problem::cut_message;
use moonlark_core::{Problem, Value};
use serde_json::value::RawValue;

pub(super) use rpc_decode::{
    OversizedMessageHead, ProtocolViolation, RawRpcOutcome, RawRpcParams, RpcFrame,
    answer_too_long_problem, find_rpc_error, inspect_head, is_complete_json, parse_outcome,
    read_frames,
};
pub(super) use rpc_encode::{
    encode_answer, encode_cancellation, encode_notification, encode_request,
};

/// An error as JSON-RPC has it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RpcError {
    pub code: i64,
    pub message: String,
    pub data: Option<Value>,
}

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RequestFailure {
    /// The server answered with an error.
    Refused(RpcError),
    /// It certainly never reached the server: it may be sent again.
    NotSent(Problem),
    /// It may have happened.
    Lost(Problem),
    /// The server wants to know who we are, or does not want us.
    Unauthorized(Problem),
}

impl RpcError {
    pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
    pub(crate) const INVALID_PARAMS: i64 = -32602;
    pub(crate) const INTERNAL_ERROR: i64 = -32603;

    pub(crate) fn new(code: i64, message: impl Into<String>) -> RpcError {
        RpcError { code, message: message.into(), data: None }
    }

    /// Lenient: what matters is that it is an error.
    fn from_raw_json(raw: &RawValue) -> RpcError {
        let unclear = || RpcError::new(RpcError::INTERNAL_ERROR, cut_message(raw.get()));
        let Ok(value) = Value::parse_json(raw.get().as_bytes()) else { return unclear() };
        let Value::Object(mut fields) = value else { return unclear() };
        let code = match fields.get("code") {
            Some(Value::Int(code)) => *code,
            _ => RpcError::INTERNAL_ERROR,
        };
        match fields.swap_remove("message") {
            Some(Value::Str(message)) => {
                RpcError { code, message: cut_message(&message), data: fields.swap_remove("data") }
            }
            _ => RpcError { code, ..unclear() },
        }
    }
}
