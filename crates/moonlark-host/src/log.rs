//! `log`: messages to the operator's log and to whoever made the call.

use moonlark_core::{Call, Level, Module, Result, Value};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::args::Table;

pub(crate) fn module() -> Module {
    let message = || json!({"message": "created", "fields": {"id": 7}});
    Module::new("log", "Write to the log; the caller sees it too.")
        .function("debug", "Log what only helps to find a mistake.", debug)
        .positional(&["fields"])
        .example(message(), json!(null))
        .fails(json!({}), "message")
        .function("info", "Log what happened.", info)
        .positional(&["fields"])
        .example(message(), json!(null))
        .example(json!({"message": {"id": 7}}), json!(null))
        .fails(json!({"message": "a", "fields": "b"}), "expected a table")
        .function("warn", "Log what looks wrong but did not stop the work.", warn)
        .positional(&["fields"])
        .example(message(), json!(null))
        .fails(json!({}), "message")
        .function("error", "Log what failed.", error)
        .positional(&["fields"])
        .example(message(), json!(null))
        .fails(json!({}), "message")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// Text as it is; any other value is written as JSON.
    message: Value,
    /// Further values to log beside the message.
    #[serde(default)]
    fields: Option<Table>,
}

fn debug(call: &Call, entry: Entry) -> Result<()> {
    write(call, Level::Debug, entry)
}

fn info(call: &Call, entry: Entry) -> Result<()> {
    write(call, Level::Info, entry)
}

fn warn(call: &Call, entry: Entry) -> Result<()> {
    write(call, Level::Warn, entry)
}

fn error(call: &Call, entry: Entry) -> Result<()> {
    write(call, Level::Error, entry)
}

fn write(call: &Call, level: Level, entry: Entry) -> Result<()> {
    let message = match entry.message {
        Value::Str(text) => text,
        other => other.to_json_lossy().to_string(),
    };
    call.log(level, &message, entry.fields.map(|fields| fields.0))
}
