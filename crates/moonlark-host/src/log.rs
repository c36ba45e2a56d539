//! `log`: messages to the operator's log and to the caller.

use moonlark_core::{Module, Result, Value};
use moonlark_gateway::{Call, LogLevel};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::args::ScriptTable;

pub(crate) fn module() -> Module {
    let message = || json!({"message": "created", "fields": {"id": 7}});
    Module::new("log", "Write to the log; the caller sees it too.")
        .function("debug", "Log what only helps to find a mistake.", |call: &Call, entry| {
            log_at_level(call, LogLevel::Debug, entry)
        })
        .positional_params(&["fields"])
        .example(message(), json!(null))
        .fails(json!({}), "message")
        .function("info", "Log what happened.", |call: &Call, entry| {
            log_at_level(call, LogLevel::Info, entry)
        })
        .positional_params(&["fields"])
        .example(message(), json!(null))
        .example(json!({"message": {"id": 7}}), json!(null))
        .fails(json!({"message": "a", "fields": "b"}), "expected a table")
        .function(
            "warn",
            "Log what looks wrong but did not stop the work.",
            |call: &Call, entry| log_at_level(call, LogLevel::Warn, entry),
        )
        .positional_params(&["fields"])
        .example(message(), json!(null))
        .fails(json!({}), "message")
        .function("error", "Log what failed.", |call: &Call, entry| {
            log_at_level(call, LogLevel::Error, entry)
        })
        .positional_params(&["fields"])
        .example(message(), json!(null))
        .fails(json!({}), "message")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogMessageArgs {
    /// Text as it is; any other value is written as JSON.
    message: Value,
    /// Further values to log beside the message.
    fields: Option<ScriptTable>,
}

fn log_at_level(call: &Call, level: LogLevel, entry: LogMessageArgs) -> Result<()> {
    let message = match entry.message {
        Value::Str(text) => text,
        other => other.to_json_lossy().to_string(),
    };
    call.log_message(level, &message, entry.fields.map(|fields| fields.0))
}
