//! Messages that the SDK could not read: they are no JSON-RPC, their method is none of ours, or
//! their parameters are not those of the method, which is said in words.

use rmcp::model::{CustomRequest, ErrorCode, ErrorData, RequestId};
use serde_json::Value as Json;

use super::plain_call::CALL_TOOL_METHOD;

const INITIALIZE_METHOD: &str = "initialize";
/// A message that is longer is not read once more to say what is wrong with it.
pub(super) const MAX_EXPLAINED_BYTES: usize = 64 * 1024;

/// What clients of every version may ask for. The SDK hands those methods on as unread, too,
/// that a client's version no longer has.
const KNOWN_METHODS: [&str; 8] = [
    CALL_TOOL_METHOD,
    "completion/complete",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "tools/list",
];

/// Requests about tasks. Earlier versions have others of these names, so that those whose
/// params are as they should be are unknown.
const TASK_METHODS: [&str; 3] = ["tasks/cancel", "tasks/get", UPDATE_TASK_METHOD];
const UPDATE_TASK_METHOD: &str = "tasks/update";

type FieldCheck = fn(&Json) -> bool;

/// The error that answers such a request.
pub(super) fn explain_unread_request(request: &CustomRequest) -> ErrorData {
    let method = request.method.as_str();
    if TASK_METHODS.contains(&method)
        && let Some(fault) = find_task_fault(method, request.params.as_ref())
    {
        return ErrorData::invalid_params(fault, None);
    }
    if !KNOWN_METHODS.contains(&method) {
        return ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None);
    }
    let fault = (method == CALL_TOOL_METHOD)
        .then(|| find_call_fault(request.params.as_ref()))
        .flatten()
        .unwrap_or_else(|| format!("the params do not fit the method {method}"));
    ErrorData::invalid_params(fault, None)
}

/// What is wrong with the body of a request that the SDK refused, and the id of the message;
/// nothing if the message can be read.
pub(crate) fn explain_unread_body(body: &[u8]) -> Option<(Option<RequestId>, ErrorData)> {
    let message: Json = match serde_json::from_slice(body) {
        Ok(message) => message,
        Err(error) => {
            let said = format!("the request body is not valid JSON: {error}");
            return Some((None, ErrorData::parse_error(said, None)));
        }
    };
    let id = message.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
    let invalid = |said: String| Some((id.clone(), ErrorData::invalid_request(said, None)));
    if message.is_array() {
        return invalid(
            "batches are not supported: send each message in a request of its own".into(),
        );
    }
    if !message.is_object() {
        return invalid(format!("a message must be an object, got {}", kind_name(&message)));
    }
    if message["jsonrpc"] != "2.0" {
        return invalid("jsonrpc must be \"2.0\"".into());
    }
    let is_answer = ["result", "error"].iter().any(|key| message.get(key).is_some());
    let Json::String(method) = &message["method"] else {
        let said = "method must be a string, where a message is no answer".into();
        return if is_answer { None } else { invalid(said) };
    };
    if matches!(message.get("id"), Some(id) if !id.is_string() && !id.is_i64() && !id.is_u64()) {
        return invalid("id must be a string or an integer".into());
    }
    if method != INITIALIZE_METHOD {
        return None;
    }
    let fault = find_initialize_fault(message.get("params"))?;
    Some((id, ErrorData::invalid_params(fault, None)))
}

/// The error that answers an `initialize` whose parameters could not be read.
pub(crate) fn explain_unread_initialize(request: &CustomRequest) -> Option<ErrorData> {
    if request.method != INITIALIZE_METHOD {
        return None;
    }
    let fault = find_initialize_fault(request.params.as_ref());
    let fault = fault.unwrap_or_else(|| "the params do not fit the method initialize".into());
    Some(ErrorData::invalid_params(fault, None))
}

fn find_initialize_fault(params: Option<&Json>) -> Option<String> {
    let Some(params) = params else {
        return Some(
            "params are missing: protocolVersion, capabilities and clientInfo are required".into(),
        );
    };
    let expectations: [(&str, FieldCheck, &str); 5] = [
        ("", Json::is_object, "an object"),
        ("/protocolVersion", Json::is_string, "a string"),
        ("/capabilities", Json::is_object, "an object"),
        ("/clientInfo/name", Json::is_string, "a string"),
        ("/clientInfo/version", Json::is_string, "a string"),
    ];
    find_field_fault(params, &expectations)
}

fn find_task_fault(method: &str, params: Option<&Json>) -> Option<String> {
    let Some(params) = params else {
        return Some("params are missing: taskId is the task".to_owned());
    };
    let expectations: [(&str, FieldCheck, &str); 3] = [
        ("", Json::is_object, "an object"),
        ("/taskId", Json::is_string, "a string"),
        ("/inputResponses", Json::is_object, "an object"),
    ];
    let count = if method == UPDATE_TASK_METHOD { 3 } else { 2 };
    find_field_fault(params, &expectations[..count])
}

/// The first field that is not as expected.
fn find_field_fault(params: &Json, expectations: &[(&str, FieldCheck, &str)]) -> Option<String> {
    expectations.iter().find_map(|(pointer, is_expected, expected)| {
        let path = format!("params{}", pointer.replace('/', "."));
        match params.pointer(pointer) {
            None => Some(format!("{path} is missing: it must be {expected}")),
            Some(found) if !is_expected(found) => {
                Some(format!("{path} must be {expected}, got {}", kind_name(found)))
            }
            Some(_) => None,
        }
    })
}

fn find_call_fault(params: Option<&Json>) -> Option<String> {
    let Some(params) = params else {
        return Some("params are missing: name is the tool to call".to_owned());
    };
    if !params.is_object() {
        return Some(format!("params must be an object, got {}", kind_name(params)));
    }
    match &params["name"] {
        Json::String(_) => {}
        Json::Null => return Some("params.name is missing: the tool to call".to_owned()),
        other => return Some(format!("params.name must be a string, got {}", kind_name(other))),
    }
    match params.get("arguments") {
        None | Some(Json::Null | Json::Object(_)) => None,
        Some(other) => {
            Some(format!("params.arguments must be an object, got {}", kind_name(other)))
        }
    }
}

fn kind_name(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "an array",
        Json::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn explain(method: &str, params: Option<Json>) -> (i32, String) {
        let error = explain_unread_request(&CustomRequest::new(method, params));
        (error.code.0, error.message.into_owned())
    }

    #[test]
    fn what_is_wrong_with_a_message_is_said() {
        for (body, id, code, expected) in [
            (
                "[{}",
                None,
                -32700,
                "the request body is not valid JSON: EOF while parsing a list at line 1 column 3",
            ),
            (
                r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
                None,
                -32600,
                "batches are not supported: send each message in a request of its own",
            ),
            ("5", None, -32600, "a message must be an object, got a number"),
            (r#"{"id":1,"method":"ping"}"#, Some(1), -32600, r#"jsonrpc must be "2.0""#),
            (
                r#"{"jsonrpc":"2.0","id":1}"#,
                Some(1),
                -32600,
                "method must be a string, where a message is no answer",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
                None,
                -32600,
                "id must be a string or an integer",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#,
                Some(1),
                -32602,
                "params are missing: protocolVersion, capabilities and clientInfo are required",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}"#,
                Some(1),
                -32602,
                "params.clientInfo.name is missing: it must be a string",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":5}}"#,
                Some(1),
                -32602,
                "params.protocolVersion must be a string, got a number",
            ),
        ] {
            let (found, error) = explain_unread_body(body.as_bytes()).unwrap();
            let said = (found, error.code.0, error.message.into_owned());
            assert_eq!(said, (id.map(RequestId::Number), code, expected.to_owned()), "{body}");
        }
        for body in [
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}"#,
        ] {
            assert_eq!(explain_unread_body(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn what_is_wrong_with_the_params_of_a_call_is_said() {
        for (params, expected) in [
            (None, "params are missing: name is the tool to call"),
            (Some(json!([1])), "params must be an object, got an array"),
            (Some(json!({})), "params.name is missing: the tool to call"),
            (Some(json!({"name": 5})), "params.name must be a string, got a number"),
            (
                Some(json!({"name": "a", "arguments": "{}"})),
                "params.arguments must be an object, got a string",
            ),
            (Some(json!({"name": "a", "_meta": 5})), "the params do not fit the method tools/call"),
        ] {
            assert_eq!(explain("tools/call", params), (-32602, expected.to_owned()));
        }
        for (method, params, expected) in [
            ("tasks/get", None, "params are missing: taskId is the task"),
            ("tasks/get", Some(json!({})), "params.taskId is missing: it must be a string"),
            (
                "tasks/cancel",
                Some(json!({"taskId": 5})),
                "params.taskId must be a string, got a number",
            ),
            (
                "tasks/update",
                Some(json!({"taskId": "a"})),
                "params.inputResponses is missing: it must be an object",
            ),
            (
                "tasks/update",
                Some(json!({"taskId": "a", "inputResponses": []})),
                "params.inputResponses must be an object, got an array",
            ),
            (
                "tasks/update",
                Some(json!({"taskId": "a", "inputResponses": "x"})),
                "params.inputResponses must be an object, got a string",
            ),
        ] {
            assert_eq!(explain(method, params), (-32602, expected.to_owned()), "{method}");
        }
        let of_another_version = explain("tasks/get", Some(json!({"taskId": "a"})));
        assert_eq!(of_another_version, (-32601, "tasks/get".to_owned()));
        let said = explain("prompts/get", Some(json!({"name": 5})));
        assert_eq!(said, (-32602, "the params do not fit the method prompts/get".to_owned()));
        assert_eq!(explain("tools/fly", None), (-32601, "tools/fly".to_owned()));
    }
}
