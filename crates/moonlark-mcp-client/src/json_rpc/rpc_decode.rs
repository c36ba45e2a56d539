//! JSON-RPC decoding. Text is looked at once, without copying it; only the part that
//! somebody asked for becomes a value.

use std::borrow::Cow;
use std::collections::BTreeMap;

use moonlark_core::limits::format_size;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Value};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{RequestFailure, RpcError};

/// One message of a server's.
#[derive(Debug)]
pub(crate) enum RpcFrame<'a> {
    Answer { id: Option<u64>, outcome: RawRpcOutcome<'a> },
    Request { id: &'a RawValue, method: Cow<'a, str>, params: RawRpcParams<'a> },
    Notification { method: Cow<'a, str>, params: RawRpcParams<'a> },
}

/// Result or error, not read yet.
pub(crate) type RawRpcOutcome<'a> = Result<&'a RawValue, &'a RawValue>;

#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRpcParams<'a>(Option<&'a RawValue>);

/// What is wrong with a message. Each kind is told once per connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtocolViolation {
    NotJson,
    NotRpc,
    HalfLine,
    TooLong,
    NeverAsked,
    AnsweredBefore,
    SameId,
    TooMany,
}

impl ProtocolViolation {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            ProtocolViolation::NotJson => "wrote something that is not JSON where messages go",
            ProtocolViolation::NotRpc => "wrote JSON that is no message",
            ProtocolViolation::HalfLine => "ended in the middle of a message",
            ProtocolViolation::TooLong => "sent a message over the size limit",
            ProtocolViolation::NeverAsked => "answered a request that was never made",
            ProtocolViolation::AnsweredBefore => "answered a request twice, or one that was over",
            ProtocolViolation::SameId => "made two requests with the same id at once",
            ProtocolViolation::TooMany => "makes more requests than are handled at once",
        }
    }
}

#[derive(Deserialize)]
struct RawRpcMessage<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    /// `null` is a result, too.
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

fn deserialize_present<'de: 'a, 'a, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// Every message in `text`: one, or all of a batch.
pub(crate) fn read_frames<'a>(
    text: &'a [u8],
    mut each: impl FnMut(Result<RpcFrame<'a>, ProtocolViolation>),
) {
    if text.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'[') {
        return each(read_frame(text));
    }
    match serde_json::from_slice::<Vec<&RawValue>>(text) {
        Ok(items) => items.iter().for_each(|item| each(read_frame(item.get().as_bytes()))),
        Err(_) => each(Err(ProtocolViolation::NotJson)),
    }
}

/// Whether this is all of a message, as far as JSON goes.
pub(crate) fn is_complete_json(text: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

/// What an answer that says nothing is taken for.
const EMPTY_ANSWER_ERROR: &str =
    r#"{"code":-32603,"message":"it answered with neither a result nor an error"}"#;

fn read_frame(text: &[u8]) -> Result<RpcFrame<'_>, ProtocolViolation> {
    let raw: RawRpcMessage<'_> = serde_json::from_slice(text).map_err(|error| {
        if error.is_data() { ProtocolViolation::NotRpc } else { ProtocolViolation::NotJson }
    })?;
    let Some(method) = raw.method else {
        // Some servers write both, one of them null.
        let outcome = match (raw.error, raw.result) {
            (Some(error), _) => Err(error),
            (None, Some(result)) => Ok(result),
            // An answer all the same, and whoever waits for it is told.
            (None, None) if raw.jsonrpc.is_some() && raw.id.is_some() => {
                Err(serde_json::from_str(EMPTY_ANSWER_ERROR)
                    .map_err(|_| ProtocolViolation::NotRpc)?)
            }
            (None, None) => return Err(ProtocolViolation::NotRpc),
        };
        return Ok(RpcFrame::Answer { id: raw.id.and_then(own_id_from_raw), outcome });
    };
    // A line of a log may well have a method.
    if raw.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
        return Err(ProtocolViolation::NotRpc);
    }
    let method = decode_raw_string(method).ok_or(ProtocolViolation::NotRpc)?;
    let params = RawRpcParams(raw.params);
    match raw.id {
        Some(id) if is_valid_id(id) => Ok(RpcFrame::Request { id, method, params }),
        Some(_) => Err(ProtocolViolation::NotRpc),
        None => Ok(RpcFrame::Notification { method, params }),
    }
}

/// Our ids are integers; some servers give them back as text.
fn own_id_from_raw(raw: &RawValue) -> Option<u64> {
    raw.get().trim_matches('"').parse().ok()
}

/// Theirs are echoed as they are, so they are held to a length.
fn is_valid_id(raw: &RawValue) -> bool {
    const MAX_ID_BYTES: usize = 256;
    raw.get().len() <= MAX_ID_BYTES && raw.get().starts_with(|c: char| "\"-0123456789".contains(c))
}

fn decode_raw_string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(raw.get()).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

impl RawRpcParams<'_> {
    pub(crate) fn parse_object(self) -> Option<Object> {
        let Some(raw) = self.0 else { return Some(Object::new()) };
        match Value::parse_json(raw.get().as_bytes()) {
            Ok(Value::Object(fields)) => Some(fields),
            _ => None,
        }
    }
}

/// The result as a value, or why there is none. `name` is the server's.
pub(crate) fn parse_outcome(
    name: &str,
    outcome: RawRpcOutcome<'_>,
) -> Result<Object, RequestFailure> {
    let raw = outcome.map_err(|error| RequestFailure::Refused(RpcError::from_raw_json(error)))?;
    let unusable = |problem: Problem| RequestFailure::Lost(problem.with_retryable(false));
    match Value::parse_json(raw.get().as_bytes()) {
        Ok(Value::Object(fields)) => Ok(fields),
        // What some servers have instead of nothing.
        Ok(Value::Null) => Ok(Object::new()),
        Ok(other) => Err(unusable(Problem::tool_error(format!(
            "upstream '{name}' answered with {} where an object belongs",
            other.kind()
        )))),
        Err(problem) => salvage_list(raw).ok_or_else(|| {
            let message =
                format!("the answer of upstream '{name}' cannot be read: {}", problem.message);
            unusable(problem.with_message(message))
        }),
    }
}

/// Fields of answers that are lists.
const LIST_RESULT_FIELDS: [&str; 4] = ["tools", "resources", "resourceTemplates", "prompts"];

/// A list of which some entries cannot be read, with null in their places: one
/// entry must not cost the others.
fn salvage_list(raw: &RawValue) -> Option<Object> {
    if Value::exceeds_parse_limit(raw.get().as_bytes()) {
        return None;
    }
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(raw.get()).ok()?;
    let mut answer = Object::new();
    for (key, raw) in fields {
        let value = if LIST_RESULT_FIELDS.contains(&key.as_str()) {
            let entries: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
            let read = |raw: &RawValue| Value::parse_json(raw.get().as_bytes()).unwrap_or_default();
            Value::Array(entries.into_iter().map(read).collect())
        } else {
            Value::parse_json(raw.get().as_bytes()).ok()?
        };
        answer.insert(key, value);
    }
    LIST_RESULT_FIELDS.iter().any(|key| answer.contains_key(*key)).then_some(answer)
}

/// The error in a message that is one: whose it is, and what it says.
pub(crate) fn find_rpc_error(text: &[u8]) -> Option<(Option<u64>, RpcError)> {
    match read_frame(text) {
        Ok(RpcFrame::Answer { id, outcome: Err(error) }) => {
            Some((id, RpcError::from_raw_json(error)))
        }
        _ => None,
    }
}

pub(crate) fn answer_too_long_problem(name: &str, most: usize) -> Problem {
    Problem::limit_exceeded(format!(
        "upstream '{name}' answered with more than {}",
        format_size(most)
    ))
    .with_hint("ask it for less at once, or for one page at a time")
}

/// What the first bytes tell of a message that is too long to be read.
#[derive(Debug, PartialEq)]
pub(crate) enum OversizedMessageHead {
    Answer(u64),
    /// A request or a notification.
    NoAnswer,
    Unclear,
}

/// Looks for the `id` of the outermost object.
pub(crate) fn inspect_head(head: &[u8]) -> OversizedMessageHead {
    find_id(head).unwrap_or(OversizedMessageHead::Unclear)
}

fn find_id(head: &[u8]) -> Option<OversizedMessageHead> {
    let (mut depth, mut at) = (0usize, 0);
    loop {
        let byte = *head.get(at)?;
        at += 1;
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let start = at;
                while *head.get(at)? != b'"' {
                    at += if head[at] == b'\\' { 2 } else { 1 };
                }
                let key = &head[start..at];
                at += 1;
                let rest = head.get(at..)?.trim_ascii_start();
                if depth == 1 && rest.first() == Some(&b':') {
                    match key {
                        b"id" => {
                            return parse_leading_number(rest[1..].trim_ascii_start())
                                .map(OversizedMessageHead::Answer);
                        }
                        b"method" => return Some(OversizedMessageHead::NoAnswer),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

fn parse_leading_number(text: &[u8]) -> Option<u64> {
    let text = text.strip_prefix(b"\"").unwrap_or(text);
    let end = text.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(&text[..end]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let mut seen = Vec::new();
        read_frames(text.as_bytes(), |frame| {
            seen.push(match frame {
                Ok(RpcFrame::Answer { id, outcome: Ok(raw) }) => format!("{id:?} = {raw}"),
                Ok(RpcFrame::Answer { id, outcome: Err(raw) }) => {
                    let RpcError { code, message, .. } = RpcError::from_raw_json(raw);
                    format!("{id:?} ! {code} {message}")
                }
                Ok(RpcFrame::Request { id, method, params }) => {
                    format!("{id} ? {method} {:?}", params.parse_object().map(|it| it.len()))
                }
                Ok(RpcFrame::Notification { method, params }) => {
                    format!("- {method} {:?}", params.parse_object().map(|it| it.len()))
                }
                Err(odd) => format!("{odd:?}"),
            });
        });
        assert_eq!(seen.join(" | "), expected, "{text}");
    }

    #[test]
    fn messages_are_told_apart_by_their_fields() {
        check(r#"{"jsonrpc":"2.0","id":7,"result":{"a":[1]}}"#, r#"Some(7) = {"a":[1]}"#);
        check(r#"{"result":null,"id":"7"}"#, "Some(7) = null");
        check(r#"{"id":7,"result":null,"error":{"code":-1,"message":"no"}}"#, "Some(7) ! -1 no");
        check(r#"{"id":7,"result":{},"error":null}"#, "Some(7) = {}");
        check(r#"{"id":null,"error":"broken"}"#, "None ! -32603 \"broken\"");
        check(r#"{"jsonrpc":"2.0","id":"x","method":"ping"}"#, "\"x\" ? ping Some(0)");
        check(r#"{"jsonrpc":"2.0","method":"a\u0062","params":{"x":1}}"#, "- ab Some(1)");
        check(r#"{"jsonrpc":"2.0","method":"a","params":[1]}"#, "- a None");
        check(
            r#"[{"id":1,"result":{}},7,{"jsonrpc":"2.0","method":"a"}]"#,
            "Some(1) = {} | NotRpc | - a Some(0)",
        );
        check("[]", "");
    }

    #[test]
    fn a_list_with_far_too_many_entries_is_not_read_piece_by_piece_either() {
        let many = r#",{"a":1}"#.repeat((10 << 20) / 8);
        let text = format!(r#"{{"tools":[{{"a":1}}{many}]}}"#);
        let raw: &RawValue = serde_json::from_str(&text).unwrap();
        let Err(RequestFailure::Lost(problem)) = parse_outcome("far", Ok(raw)) else {
            panic!("it was read")
        };
        assert!(
            problem
                .message
                .starts_with("the answer of upstream 'far' cannot be read: the JSON has"),
            "{problem}"
        );
        assert!(problem.hint.is_some(), "{problem}");
    }

    #[test]
    fn anything_else_is_named_and_nothing_more() {
        for text in ["Listening on stdio", "{\"id\":1,\"result\":", "", "{]", "[1,", "\u{fffd}"] {
            check(text, "NotJson");
        }
        for text in [
            r#"{"level":"info","method":"GET","path":"/"}"#,
            r#"{"id":1}"#,
            r#"{"jsonrpc":"2.0","method":5}"#,
            r#"{"jsonrpc":"2.0","id":[1],"method":"a"}"#,
            r#"{"id":1,"id":2,"result":{}}"#,
            "\"text\"",
            "17",
        ] {
            check(text, "NotRpc");
        }
        check(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)), "NotRpc");
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        check(&format!(r#"{{"jsonrpc":"2.0","method":"a","params":{{"x":{deep}}}}}"#), "- a None");
    }

    #[test]
    fn a_result_that_cannot_be_read_fails_its_request_only() {
        let result = |text: &str| {
            let raw: &RawValue = serde_json::from_str(text).unwrap();
            match parse_outcome("git", Ok(raw)) {
                Ok(fields) => format!("{} fields", fields.len()),
                Err(RequestFailure::Lost(problem)) => problem.message,
                Err(other) => format!("{other:?}"),
            }
        };
        assert_eq!(result("{}"), "0 fields");
        assert_eq!(result("null"), "0 fields");
        assert_eq!(result("[]"), "upstream 'git' answered with array where an object belongs");
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(1000), "]".repeat(1000));
        assert_eq!(
            result(&deep),
            "the answer of upstream 'git' cannot be read: the JSON is nested deeper than 128 levels"
        );
    }

    #[test]
    fn the_id_of_a_message_too_long_is_the_outermost_one() {
        let check =
            |head: &str, expected| assert_eq!(inspect_head(head.as_bytes()), expected, "{head}");
        check(r#"{"jsonrpc":"2.0","id":17,"result":{"id":3,"#, OversizedMessageHead::Answer(17));
        check(r#"{ "id" : "17" , "result":"#, OversizedMessageHead::Answer(17));
        check(r#"{"result":{"id":3,"x":[{"id":4}]},"id":5,"#, OversizedMessageHead::Answer(5));
        check(r#"{"result":{"id":3,"x":"aaaa"#, OversizedMessageHead::Unclear);
        check(r#"{"result":"\"id\":3,\\","id":4}"#, OversizedMessageHead::Answer(4));
        check(r#"{"jsonrpc":"2.0","method":"x","id":4,"#, OversizedMessageHead::NoAnswer);
        check(r#"{"id":4"#, OversizedMessageHead::Unclear);
        check("\"", OversizedMessageHead::Unclear);
        check("{\"\\", OversizedMessageHead::Unclear);
    }
}
