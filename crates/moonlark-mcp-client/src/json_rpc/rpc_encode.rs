//! JSON-RPC encoding.

use moonlark_core::value::Object;
use moonlark_core::{Problem, Value};

use super::RpcError;

/// The parts of `_meta` that every request has, as JSON already.
pub(crate) type ClientMetaFields = [(&'static str, String)];

/// A request. What `meta` says goes over what `params._meta` says, and that
/// over `ours`; a progress token is ours or there is none.
pub(crate) fn encode_request(
    id: u64,
    method: &str,
    params: &Object,
    meta: &Object,
    ours: &ClientMetaFields,
    progress: bool,
) -> Result<Vec<u8>, Problem> {
    let given = params.get("_meta").and_then(Value::as_object);
    let is_given =
        |key: &str| meta.contains_key(key) || given.is_some_and(|given| given.contains_key(key));
    let mut inner = Vec::new();
    if progress {
        inner.push(format!("\"progressToken\":{id}"));
    }
    let ours = ours.iter().filter(|(key, _)| !is_given(key));
    inner.extend(ours.map(|(key, json)| format!("{}:{json}", encode_text(key))));
    let given = given.into_iter().flatten().filter(|(key, _)| !meta.contains_key(*key));
    inner.extend(encode_fields(given.chain(meta).filter(|(key, _)| *key != "progressToken"))?);
    let mut fields = encode_fields(params.iter().filter(|(key, _)| *key != "_meta"))?;
    if !inner.is_empty() {
        fields.push(format!("\"_meta\":{{{}}}", inner.join(",")));
    }
    let (method, params) = (encode_text(method), fields.join(","));
    Ok(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{{{params}}}}}"#).into())
}

/// A notification without parameters.
pub(crate) fn encode_notification(method: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","method":{}}}"#, encode_text(method)).into()
}

pub(crate) fn encode_cancellation(id: u64) -> Vec<u8> {
    let method = "notifications/cancelled";
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"requestId":{id}}}}}"#).into()
}

/// The answer to a request of the server's, whose id is given back as it came.
pub(crate) fn encode_answer(id: &str, outcome: Result<&Object, &RpcError>) -> Vec<u8> {
    let encoded = match outcome {
        Ok(result) => {
            encode_fields(result).map(|fields| format!(r#""result":{{{}}}"#, fields.join(",")))
        }
        Err(rpc) => encode_error(rpc),
    };
    let encoded = encoded.or_else(|_| {
        // It has no data, and so cannot fail.
        encode_error(&RpcError::new(RpcError::INTERNAL_ERROR, "the answer has no JSON form"))
    });
    format!(r#"{{"jsonrpc":"2.0","id":{id},{}}}"#, encoded.unwrap_or_default()).into()
}

fn encode_error(rpc: &RpcError) -> Result<String, Problem> {
    let data = match &rpc.data {
        Some(data) => format!(r#","data":{}"#, data.encode_json("data")?),
        None => String::new(),
    };
    let message = encode_text(&rpc.message);
    Ok(format!(r#""error":{{"code":{},"message":{message}{data}}}"#, rpc.code))
}

/// Each field with its name. What JSON cannot hold is looked for first.
fn encode_fields<'a>(
    fields: impl IntoIterator<Item = (&'a String, &'a Value)>,
) -> Result<Vec<String>, Problem> {
    let encode = |(key, value): (&String, &Value)| {
        Ok(format!("{}:{}", encode_text(key), value.encode_json(key)?))
    };
    fields.into_iter().map(encode).collect()
}

fn encode_text(text: &str) -> String {
    // Text is always JSON.
    serde_json::to_string(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(json: &str) -> Object {
        match Value::parse_json(json.as_bytes()).unwrap() {
            Value::Object(fields) => fields,
            other => panic!("{other:?}"),
        }
    }

    fn sent(params: &str, meta: &str, ours: &ClientMetaFields, progress: bool) -> String {
        let bytes = encode_request(3, "m", &object(params), &object(meta), ours, progress).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_requests_meta_is_the_callers_over_ours_but_the_token_is_ours() {
        let head = r#"{"jsonrpc":"2.0","id":3,"method":"m","params":"#;
        assert_eq!(sent("{}", "{}", &[], false), format!("{head}{{}}}}"));
        assert_eq!(
            sent(r#"{"_meta":{"progressToken":9}}"#, r#"{"progressToken":8}"#, &[], false),
            format!("{head}{{}}}}")
        );
        assert_eq!(
            sent(r#"{"a":1.5,"_meta":{"x":1,"y":1}}"#, r#"{"y":2,"k2":"they"}"#, &[], true),
            format!(r#"{head}{{"a":1.5,"_meta":{{"progressToken":3,"x":1,"y":2,"k2":"they"}}}}}}"#)
        );
        let ours = [("k1", "{\"v\":1}".to_owned()), ("k2", "\"us\"".to_owned())];
        assert_eq!(
            sent(r#"{"n":"\"\n"}"#, r#"{"k2":"they"}"#, &ours, false),
            format!(r#"{head}{{"n":"\"\n","_meta":{{"k1":{{"v":1}},"k2":"they"}}}}}}"#)
        );
    }

    #[test]
    fn what_json_cannot_hold_is_not_sent() {
        let params = Object::from_iter([("x".to_owned(), Value::Bytes(vec![255]))]);
        assert!(encode_request(1, "m", &params, &Object::new(), &[], false).is_err());
        assert_eq!(
            String::from_utf8(encode_answer("\"a\"", Ok(&params))).unwrap(),
            r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32603,"message":"the answer has no JSON form"}}"#
        );
        assert_eq!(
            String::from_utf8(encode_answer("1", Ok(&object(r#"{"a":{}}"#)))).unwrap(),
            r#"{"jsonrpc":"2.0","id":1,"result":{"a":{}}}"#
        );
    }
}
