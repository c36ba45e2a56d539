//! Pins: definitions as the operator approved them. A tool that changed since then, or is
//! new, is held back until it is approved: what an agent is told about a tool must not
//! change behind its operator's back.
//!
//! The first time there is nothing to compare with: what the server says then
//! is what is approved.

use std::collections::BTreeMap;
use std::path::PathBuf;

use moonlark_core::value::Object;
use moonlark_core::{Problem, Result, Value};
use moonlark_state::write_private_file;
use serde_json::Value as Json;

use crate::definition_text::text_field;
use crate::upstream_settings::UpstreamSettings;

/// What a tool is approved by: everything that an agent is told, or that
/// decides what a call may do.
const PINNED_FIELDS: [&str; 5] =
    ["title", "description", "inputSchema", "outputSchema", "annotations"];

/// A tool that is not as it was approved.
#[derive(Debug, Clone, PartialEq)]
pub struct PinDifference {
    pub tool: String,
    /// None for a tool that is new.
    pub approved: Option<Json>,
    pub now: Json,
}

/// The definitions that may be used, and what is held back.
pub(crate) fn partition_approved<'a>(
    settings: &UpstreamSettings,
    definitions: &'a [Object],
) -> (Vec<&'a Object>, Vec<Problem>) {
    let all = || definitions.iter().collect::<Vec<_>>();
    if !settings.pin {
        return (all(), Vec::new());
    }
    let pins = match read_pins(settings) {
        Ok(Some(pins)) => pins,
        Ok(None) => {
            return match approve_definitions(settings, definitions) {
                Ok(()) => (all(), Vec::new()),
                Err(problem) => (Vec::new(), vec![problem]),
            };
        }
        // Approved is what can be read to be.
        Err(problem) => return (Vec::new(), vec![problem]),
    };
    let (fine, changed): (Vec<_>, Vec<_>) = definitions.iter().partition(|it| {
        pins.get(text_field(it, "name")).is_some_and(|approved| *approved == pinned_fields(it))
    });
    let source = settings.name();
    let held = changed.into_iter().map(|it| {
        let what = if pins.contains_key(text_field(it, "name")) { "changed" } else { "is new" };
        Problem::unavailable(format!(
            "tool {} of '{source}' {what} since its tools were approved, and is held back",
            text_field(it, "name")
        ))
        .with_hint(format!("see `moonlark pin {source}`, then `moonlark pin {source} --approve`"))
        .with_retryable(false)
    });
    let held = held.collect();
    (fine, held)
}

/// What is held back, and how it differs.
pub(crate) fn find_differences(
    settings: &UpstreamSettings,
    definitions: &[Object],
) -> Result<Vec<PinDifference>> {
    let pins = read_pins(settings)?.unwrap_or_default();
    let different = |it: &Object| {
        let (approved, now) = (pins.get(text_field(it, "name")).cloned(), pinned_fields(it));
        let tool = text_field(it, "name").to_owned();
        (approved.as_ref() != Some(&now)).then_some(PinDifference { tool, approved, now })
    };
    Ok(definitions.iter().filter_map(different).collect())
}

/// From now on this is what the tools are.
pub(crate) fn approve_definitions(
    settings: &UpstreamSettings,
    definitions: &[Object],
) -> Result<()> {
    let pins: BTreeMap<&str, Json> =
        definitions.iter().map(|it| (text_field(it, "name"), pinned_fields(it))).collect();
    let text = serde_json::to_string_pretty(&pins).unwrap_or_default();
    let file = pin_file_path(settings);
    write_private_file(&file, text).map_err(|error| {
        Problem::unavailable(format!("{} cannot be written: {error}", file.display()))
    })
}

fn read_pins(settings: &UpstreamSettings) -> Result<Option<BTreeMap<String, Json>>> {
    let file = pin_file_path(settings);
    let unusable = |why: String| {
        Problem::unavailable(format!("{}: {why}", file.display()))
            .with_hint(format!(
                "approve the tools again: moonlark pin {} --approve",
                settings.name()
            ))
            .with_retryable(false)
    };
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(error.to_string())),
    };
    serde_json::from_str(&text).map(Some).map_err(|error| unusable(error.to_string()))
}

fn pin_file_path(settings: &UpstreamSettings) -> PathBuf {
    settings.state.join("pins").join(format!("{}.json", settings.name()))
}

fn pinned_fields(definition: &Object) -> Json {
    let part = |key: &&str| {
        let value = definition.get(*key).filter(|value| **value != Value::Null)?;
        Some(((*key).to_owned(), sort_fields(value.to_json_lossy())))
    };
    Json::Object(PINNED_FIELDS.iter().filter_map(part).collect())
}

/// The order of fields says nothing. Values are of bounded depth by now.
fn sort_fields(json: Json) -> Json {
    match json {
        Json::Object(fields) => {
            let fields: BTreeMap<String, Json> =
                fields.into_iter().map(|(key, value)| (key, sort_fields(value))).collect();
            Json::Object(fields.into_iter().collect())
        }
        Json::Array(items) => Json::Array(items.into_iter().map(sort_fields).collect()),
        other => other,
    }
}
