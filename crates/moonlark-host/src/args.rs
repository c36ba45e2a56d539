//! What the modules' arguments and results have in common.

use moonlark_core::limits::format_size;
use moonlark_core::value::Object;
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;

/// No arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoArgs {}

/// A table with any keys. An empty list is an empty table, because some
/// languages write both as `{}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(try_from = "Value")]
#[schemars(inline, description = "", extend("type" = "object"))]
pub(crate) struct ScriptTable(#[schemars(with = "Value")] pub(crate) Object);

impl TryFrom<Value> for ScriptTable {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::Object(object) => Ok(ScriptTable(object)),
            Value::Array(items) if items.is_empty() => Ok(ScriptTable::default()),
            other => Err(format!("expected a table, got {}", other.kind())),
        }
    }
}

impl From<ScriptTable> for Value {
    fn from(table: ScriptTable) -> Self {
        Value::Object(table.0)
    }
}

/// A list of any values. An empty table is an empty list, as above.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(try_from = "Value")]
#[schemars(inline, description = "", extend("type" = "array"))]
pub(crate) struct ScriptList(#[schemars(with = "Value")] pub(crate) Vec<Value>);

impl TryFrom<Value> for ScriptList {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::Array(items) => Ok(ScriptList(items)),
            Value::Object(object) if object.is_empty() => Ok(ScriptList::default()),
            other => Err(format!("expected a list, got {}", other.kind())),
        }
    }
}

impl From<ScriptList> for Value {
    fn from(list: ScriptList) -> Self {
        Value::Array(list.0)
    }
}

/// A result of `bytes` bytes may leave the host.
pub(crate) fn check_result_size(call: &Call, bytes: usize) -> Result<()> {
    let limit = call.limits().value;
    if bytes > limit { Err(result_too_large_problem(limit)) } else { Ok(()) }
}

pub(crate) fn result_too_large_problem(limit: usize) -> Problem {
    Problem::limit_exceeded(format!("the result is larger than {}", format_size(limit)))
        .with_hint("work on less at a time, or raise limits.value")
}

/// That the call still has time: asked now and then by what computes for long.
pub(crate) fn check_time_left(call: &Call) -> Result<()> {
    if tokio::time::Instant::now() < call.deadline() {
        return Ok(());
    }
    Err(Problem::new(ProblemCode::Timeout, "the time of the call is over"))
}

/// `an array`, for messages.
pub(crate) fn kind_with_article(value: &Value) -> String {
    let kind = value.kind();
    let article = match kind {
        "null" | "bytes" => "",
        _ if kind.starts_with(['a', 'i', 'o']) => "an ",
        _ => "a ",
    };
    format!("{article}{kind}")
}

/// Where in a text, for messages: `line 2, column 5`. Both count from 1.
pub(crate) fn line_and_column(text: &str, at: usize) -> String {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
    format!("line {line}, column {column}")
}
