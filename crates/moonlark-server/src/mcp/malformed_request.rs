//! Requests that the SDK could not read: their method is none of ours, or their parameters are
//! not those of the method, which is said in words.

use rmcp::model::{CustomRequest, ErrorCode, ErrorData};
use serde_json::Value as Json;

use super::plain_call::CALL_TOOL_METHOD;

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

/// The error that answers such a request.
pub(super) fn explain_unread_request(request: &CustomRequest) -> ErrorData {
    let method = request.method.as_str();
    if !KNOWN_METHODS.contains(&method) {
        return ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None);
    }
    let fault = (method == CALL_TOOL_METHOD)
        .then(|| find_call_fault(request.params.as_ref()))
        .flatten()
        .unwrap_or_else(|| format!("the params do not fit the method {method}"));
    ErrorData::invalid_params(fault, None)
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
        let said = explain("prompts/get", Some(json!({"name": 5})));
        assert_eq!(said, (-32602, "the params do not fit the method prompts/get".to_owned()));
        assert_eq!(explain("tools/fly", None), (-32601, "tools/fly".to_owned()));
    }
}
