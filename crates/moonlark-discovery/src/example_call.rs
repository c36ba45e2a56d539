//! A call of a function as an agent would write it: everything that must be
//! there, with values that show of which kind.

use moonlark_core::schema::required_names;
use moonlark_core::sdk::{SdkFunction, SdkSource};
use moonlark_render::luau::luau_value;
use serde_json::{Map, Value as Json, json};

use crate::function_summary::sdk_path;

const MAX_EXAMPLE_DEPTH: usize = 5;
/// Longer values show less.
const MAX_EXAMPLE_VALUE_BYTES: usize = 80;

pub(crate) fn render_example_call(source: &SdkSource, function: &SdkFunction) -> String {
    let input = function.tool.input.json();
    let given = match input.get("examples").and_then(Json::as_array).and_then(|it| it.first()) {
        Some(Json::Object(given)) => given.clone(),
        _ => SchemaSampler { root: input }.sample_required(input, 0),
    };
    if given.is_empty() {
        format!("{}()", sdk_path(source, function))
    } else {
        format!("{}({})", sdk_path(source, function), luau_value(&Json::Object(given)))
    }
}

struct SchemaSampler<'a> {
    root: &'a Map<String, Json>,
}

impl SchemaSampler<'_> {
    fn sample_required(&self, schema: &Map<String, Json>, depth: usize) -> Map<String, Json> {
        let properties = schema.get("properties").and_then(Json::as_object);
        required_names(schema)
            .map(|name| {
                let property = properties.and_then(|properties| properties.get(name));
                let value =
                    property.map_or_else(|| json!("…"), |it| self.sample_value(it, depth + 1));
                (name.to_owned(), value)
            })
            .collect()
    }

    fn sample_value(&self, schema: &Json, depth: usize) -> Json {
        let Json::Object(schema) = schema else { return json!("…") };
        if depth > MAX_EXAMPLE_DEPTH {
            return json!({});
        }
        let said = ["const", "default", "example"].iter().find_map(|key| schema.get(*key));
        let listed =
            ["examples", "enum"].iter().find_map(|key| schema.get(*key)?.as_array()?.first());
        let short =
            |value: &&Json| !value.is_null() && value.to_string().len() <= MAX_EXAMPLE_VALUE_BYTES;
        if let Some(value) = said.filter(short).or(listed.filter(short)) {
            return value.clone();
        }
        if let Some(Json::String(reference)) = schema.get("$ref") {
            return self
                .resolve_reference(reference)
                .map_or_else(|| json!({}), |it| self.sample_value(it, depth + 1));
        }
        let choices =
            ["anyOf", "oneOf", "allOf"].iter().find_map(|key| schema.get(*key)?.as_array());
        let is_null = |choice: &&Json| choice.get("type").and_then(Json::as_str) == Some("null");
        if let Some(choice) = choices.and_then(|it| it.iter().find(|choice| !is_null(choice))) {
            return self.sample_value(choice, depth + 1);
        }
        self.sample_of_type(schema_type(schema), schema, depth)
    }

    fn sample_of_type(&self, kind: &str, schema: &Map<String, Json>, depth: usize) -> Json {
        match kind {
            "integer" | "number" => schema.get("minimum").cloned().unwrap_or_else(|| json!(1)),
            "boolean" => json!(true),
            "array" => match schema.get("items") {
                Some(items) => json!([self.sample_value(items, depth + 1)]),
                None => json!([]),
            },
            "object" => Json::Object(self.sample_required(schema, depth)),
            _ => match schema.get("format").and_then(Json::as_str) {
                Some("uri" | "url") => json!("https://example.com"),
                Some("date") => json!("2026-01-31"),
                Some("date-time") => json!("2026-01-31T12:00:00Z"),
                Some("email") => json!("ann@example.com"),
                _ => json!("…"),
            },
        }
    }

    fn resolve_reference(&self, reference: &str) -> Option<&Json> {
        let mut names = reference.strip_prefix("#/")?.split('/');
        let first = self.root.get(names.next()?)?;
        names.try_fold(first, |found, name| found.get(name))
    }
}

fn schema_type(schema: &Map<String, Json>) -> &str {
    match schema.get("type") {
        Some(Json::String(kind)) => kind,
        Some(Json::Array(kinds)) => {
            kinds.iter().filter_map(Json::as_str).find(|kind| *kind != "null").unwrap_or_default()
        }
        _ if schema.contains_key("properties") => "object",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_has_what_must_be_there() {
        let schema = json!({
            "required": ["path", "mode", "count", "at", "tags", "node", "any", "unknown"],
            "properties": {
                "path": {"type": "string"},
                "mode": {"enum": ["fast", "slow"]},
                "count": {"type": "integer", "minimum": 3},
                "at": {"anyOf": [{"type": "null"}, {"type": "string", "format": "date"}]},
                "tags": {"type": "array", "items": {"type": "string"}},
                "node": {"$ref": "#/$defs/Node"},
                "any": {},
                "left_out": {"type": "string"},
            },
            "$defs": {"Node": {"required": ["next"], "properties": {"next": {"$ref": "#/$defs/Node"}}}},
        });
        let schema = schema.as_object().unwrap();
        let found = Json::Object(SchemaSampler { root: schema }.sample_required(schema, 0));
        assert_eq!(
            luau_value(&found),
            r#"{ path = "…", mode = "fast", count = 3, at = "2026-01-31", tags = { "…" }, node = { next = { next = {} } }, any = "…", unknown = "…" }"#
        );
    }
}
