//! What is sent, written straight into bytes.

use std::io::Write;

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
    let mut out = Vec::with_capacity(512);
    let _ = write!(out, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":");
    write_string(&mut out, method);
    out.extend_from_slice(b",\"params\":{");
    write_fields(&mut out, params.iter().filter(|(key, _)| *key != "_meta"))?;

    let given = params.get("_meta").and_then(Value::as_object);
    let start = out.len();
    out.extend_from_slice(if params.len() > usize::from(params.contains_key("_meta")) {
        b",\"_meta\":{"
    } else {
        b"\"_meta\":{"
    });
    let inside = out.len();
    if progress {
        let _ = write!(out, "\"progressToken\":{id}");
    }
    for (key, json) in ours {
        if !meta.contains_key(*key) && !given.is_some_and(|given| given.contains_key(*key)) {
            write_comma(&mut out);
            write_string(&mut out, key);
            out.push(b':');
            out.extend_from_slice(json.as_bytes());
        }
    }
    let given = given.into_iter().flatten().filter(|(key, _)| !meta.contains_key(*key));
    write_fields(&mut out, given.chain(meta).filter(|(key, _)| *key != "progressToken"))?;
    if out.len() == inside {
        out.truncate(start)
    } else {
        out.push(b'}')
    }
    out.extend_from_slice(b"}}");
    Ok(out)
}

pub(crate) fn encode_notification(method: &str, params: &Object) -> Result<Vec<u8>, Problem> {
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
    write_string(&mut out, method);
    if !params.is_empty() {
        out.extend_from_slice(b",\"params\":{");
        write_fields(&mut out, params.iter())?;
        out.push(b'}');
    }
    out.push(b'}');
    Ok(out)
}

pub(crate) fn encode_cancellation(id: u64) -> Vec<u8> {
    let method = "notifications/cancelled";
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{{\"requestId\":{id}}}}}")
        .into_bytes()
}

/// The answer to a request of the server's, whose id is given back as it came.
pub(crate) fn encode_answer(id: &str, outcome: Result<&Object, &RpcError>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let _ = write!(out, "{{\"jsonrpc\":\"2.0\",\"id\":{id},");
    let start = out.len();
    let encoded = match outcome {
        Ok(result) => {
            out.extend_from_slice(b"\"result\":{");
            write_fields(&mut out, result.iter())
        }
        Err(rpc) => write_error(&mut out, rpc),
    };
    if encoded.is_err() {
        out.truncate(start);
        let rpc = RpcError::new(RpcError::INTERNAL_ERROR, "the answer has no JSON form");
        // It has no data, and so cannot fail.
        let _ = write_error(&mut out, &rpc);
    }
    out.extend_from_slice(b"}}");
    out
}

fn write_error(out: &mut Vec<u8>, rpc: &RpcError) -> Result<(), Problem> {
    let _ = write!(out, "\"error\":{{\"code\":{},\"message\":", rpc.code);
    write_string(out, &rpc.message);
    if let Some(data) = &rpc.data {
        out.extend_from_slice(b",\"data\":");
        write_value(out, data, "data")?;
    }
    Ok(())
}

fn write_fields<'a>(
    out: &mut Vec<u8>,
    fields: impl Iterator<Item = (&'a String, &'a Value)>,
) -> Result<(), Problem> {
    for (key, item) in fields {
        write_comma(out);
        write_string(out, key);
        out.push(b':');
        write_value(out, item, key)?;
    }
    Ok(())
}

/// Between fields, but not before the first.
fn write_comma(out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
}

fn write_value(out: &mut Vec<u8>, item: &Value, what: &str) -> Result<(), Problem> {
    match item {
        Value::Str(text) => write_string(out, text),
        // Looks for what JSON cannot hold first.
        other => out.extend_from_slice(other.encode_json(what)?.as_bytes()),
    }
    Ok(())
}

fn write_string(out: &mut Vec<u8>, text: &str) {
    // Text is always JSON, and a vector takes everything.
    let _ = serde_json::to_writer(out, text);
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
