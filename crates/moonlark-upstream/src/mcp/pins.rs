//! Definitions as the operator approved them. A tool that changed since then,
//! or is new, is held back until it is approved: what an agent is told about a
//! tool must not change behind its operator's back.
//!
//! The first time there is nothing to compare with: what the server says then
//! is what is approved.

use std::collections::BTreeMap;
use std::path::PathBuf;

use moonlark_core::value::Object;
use moonlark_core::{Problem, Result, Value};
use serde_json::Value as Json;

use super::kept::write;
use super::settings::Settings;

/// What a tool is approved by: everything that an agent is told, or that
/// decides what a call may do.
const PARTS: [&str; 5] = ["title", "description", "inputSchema", "outputSchema", "annotations"];

/// A tool that is not as it was approved.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub tool: String,
    /// None for a tool that is new.
    pub approved: Option<Json>,
    pub now: Json,
}

/// The definitions that may be used, and what is held back.
pub(crate) fn approved<'a>(
    settings: &Settings,
    definitions: &'a [Object],
) -> (Vec<&'a Object>, Vec<Problem>) {
    let all = || definitions.iter().collect::<Vec<_>>();
    if !settings.pin {
        return (all(), Vec::new());
    }
    let pins = match read(settings) {
        Ok(Some(pins)) => pins,
        Ok(None) => {
            return match approve(settings, definitions) {
                Ok(()) => (all(), Vec::new()),
                Err(problem) => (Vec::new(), vec![problem]),
            };
        }
        // Approved is what can be read to be.
        Err(problem) => return (Vec::new(), vec![problem]),
    };
    let (fine, changed): (Vec<_>, Vec<_>) = definitions
        .iter()
        .partition(|it| pins.get(name(it)).is_some_and(|approved| *approved == parts(it)));
    let source = settings.name();
    let held = changed.into_iter().map(|it| {
        let what = if pins.contains_key(name(it)) { "changed" } else { "is new" };
        Problem::unavailable(format!(
            "tool {} of '{source}' {what} since its tools were approved, and is held back",
            name(it)
        ))
        .hint(format!("see `moonlark pin {source}`, then `moonlark pin {source} --approve`"))
        .retryable_if(false)
    });
    let held = held.collect();
    (fine, held)
}

/// What is held back, and how it differs.
pub(crate) fn differences(settings: &Settings, definitions: &[Object]) -> Result<Vec<Difference>> {
    let pins = read(settings)?.unwrap_or_default();
    let different = |it: &Object| {
        let (approved, now) = (pins.get(name(it)).cloned(), parts(it));
        let tool = name(it).to_owned();
        (approved.as_ref() != Some(&now)).then_some(Difference { tool, approved, now })
    };
    Ok(definitions.iter().filter_map(different).collect())
}

/// From now on this is what the tools are.
pub(crate) fn approve(settings: &Settings, definitions: &[Object]) -> Result<()> {
    let pins: BTreeMap<&str, Json> = definitions.iter().map(|it| (name(it), parts(it))).collect();
    let text = serde_json::to_string_pretty(&pins).unwrap_or_default();
    let file = file(settings);
    write(&file, &text).map_err(|error| {
        Problem::unavailable(format!("{} cannot be written: {error}", file.display()))
    })
}

fn read(settings: &Settings) -> Result<Option<BTreeMap<String, Json>>> {
    let file = file(settings);
    let unusable = |why: String| {
        Problem::unavailable(format!("{}: {why}", file.display()))
            .hint(format!("approve the tools again: moonlark pin {} --approve", settings.name()))
            .retryable_if(false)
    };
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(error.to_string())),
    };
    serde_json::from_str(&text).map(Some).map_err(|error| unusable(error.to_string()))
}

fn file(settings: &Settings) -> PathBuf {
    settings.state.join("pins").join(format!("{}.json", settings.name()))
}

fn name(definition: &Object) -> &str {
    definition.get("name").and_then(Value::as_str).unwrap_or_default()
}

fn parts(definition: &Object) -> Json {
    let part = |key: &&str| {
        let value = definition.get(*key).filter(|value| **value != Value::Null)?;
        Some(((*key).to_owned(), sorted(value.to_json_lossy())))
    };
    Json::Object(PARTS.iter().filter_map(part).collect())
}

/// The order of fields says nothing. Values are of bounded depth by now.
fn sorted(json: Json) -> Json {
    match json {
        Json::Object(fields) => {
            let fields: BTreeMap<String, Json> =
                fields.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            Json::Object(fields.into_iter().collect())
        }
        Json::Array(items) => Json::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}
