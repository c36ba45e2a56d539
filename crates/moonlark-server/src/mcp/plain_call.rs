//! A call of a tool with nothing unusual about it, read from its message in one pass.
//!
//! Whatever is unusual about a message, or wrong, is the SDK's to answer: here it is only
//! found that it is.

use std::borrow::Cow;

use moonlark_core::Value;
use moonlark_core::value::Object;
use rmcp::model::{
    InputResponses, JsonRpcVersion2_0, ProtocolVersion, RequestId, RequestMetaObject,
};
use serde::Deserialize;
use serde_json::Value as Json;

use super::mcp_caller::{self, CallContinuation};
use super::sessions::check_message;

pub(super) const CALL_TOOL_METHOD: &str = "tools/call";

pub(crate) struct PlainCall {
    pub(crate) id: RequestId,
    pub(crate) client: PlainCallClient,
    pub(super) name: String,
    pub(super) args: Value,
    pub(super) sequel: CallContinuation,
    pub(super) meta: RequestMetaObject,
}

/// Which kind of client makes a call, as the call says itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlainCallClient {
    /// One of 2026-07-28, whose requests stand by themselves.
    Modern { knows_tasks: bool },
    /// One with a session: everything else about it was said at the beginning.
    Session,
}

/// A message that may be one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainCallMessage<'a> {
    #[serde(rename = "jsonrpc")]
    _version: JsonRpcVersion2_0,
    id: RequestId,
    #[serde(borrow)]
    method: Cow<'a, str>,
    params: PlainCallParams,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlainCallParams {
    #[serde(rename = "_meta", default)]
    meta: RequestMetaObject,
    name: String,
    arguments: Option<Value>,
    input_responses: Option<InputResponses>,
    request_state: Option<String>,
}

/// The call in a message, if there is nothing unusual about it.
pub(crate) fn parse_plain_call(message: &[u8]) -> Option<PlainCall> {
    // What is over a limit is refused on the SDK's way.
    check_message(message).ok()?;
    let PlainCallMessage { id, method, params, .. } = serde_json::from_slice(message).ok()?;
    let PlainCallParams { meta, name, arguments, input_responses: responses, request_state: state } =
        params;
    if method != CALL_TOOL_METHOD {
        return None;
    }
    let args = match arguments {
        None => Value::Object(Object::new()),
        Some(args @ Value::Object(_)) => args,
        Some(_) => return None,
    };
    let client = match meta.get(mcp_caller::PROTOCOL_VERSION_META_KEY) {
        // Sessions go on with a call by answering questions, not by another request.
        None if state.is_some() || responses.is_some() => return None,
        None => PlainCallClient::Session,
        Some(version) => modern_client(version, &meta)?,
    };
    let sequel = CallContinuation { state, responses };
    Some(PlainCall { id, client, name, args, sequel, meta })
}

/// The client of a request that stands by itself and wants nothing but the answer.
fn modern_client(version: &Json, meta: &RequestMetaObject) -> Option<PlainCallClient> {
    let plain = version.as_str() == Some(ProtocolVersion::V_2026_07_28.as_str())
        && !meta.contains_key("progressToken")
        && !meta.contains_key(mcp_caller::LOG_LEVEL_META_KEY);
    let knows_tasks = match meta.get(mcp_caller::CAPABILITIES_META_KEY)? {
        Json::Object(none) if none.is_empty() => false,
        _ => meta.client_capabilities()?.supports_tasks(),
    };
    plain.then_some(PlainCallClient::Modern { knows_tasks })
}
