//! A call of a function as an agent would write it: everything that must be
//! there, with values that show of which kind.

use moonlark_core::render::luau::luau_value;
use moonlark_core::sdk::{SdkFunction, SdkSource};
use serde_json::{Map, Value as Json, json};

use crate::short::path;

const DEEPEST: usize = 5;
/// Longer values show less.
const LONGEST: usize = 80;

pub(crate) fn example(source: &SdkSource, function: &SdkFunction) -> String {
    let input = function.tool.input.json();
    let given = match input.get("examples").and_then(Json::as_array).and_then(|it| it.first()) {
        Some(Json::Object(given)) => given.clone(),
        _ => Sampler { root: input }.required(input, 0),
    };
    match given.is_empty() {
        true => format!("{}()", path(source, function)),
        false => format!("{}({})", path(source, function), luau_value(&Json::Object(given))),
    }
}

struct Sampler<'a> {
    root: &'a Map<String, Json>,
}

impl Sampler<'_> {
    fn required(&self, schema: &Map<String, Json>, depth: usize) -> Map<String, Json> {
        let properties = schema.get("properties").and_then(Json::as_object);
        let names = schema.get("required").and_then(Json::as_array).into_iter().flatten();
        names
            .filter_map(Json::as_str)
            .map(|name| {
                let property = properties.and_then(|properties| properties.get(name));
                let value = property.map_or_else(|| json!("…"), |it| self.sample(it, depth + 1));
                (name.to_owned(), value)
            })
            .collect()
    }

    fn sample(&self, schema: &Json, depth: usize) -> Json {
        let Json::Object(schema) = schema else { return json!("…") };
        if depth > DEEPEST {
            return json!({});
        }
        let said = ["const", "default", "example"].iter().find_map(|key| schema.get(*key));
        let listed =
            ["examples", "enum"].iter().find_map(|key| schema.get(*key)?.as_array()?.first());
        let short = |value: &&Json| !value.is_null() && value.to_string().len() <= LONGEST;
        if let Some(value) = said.filter(short).or(listed.filter(short)) {
            return value.clone();
        }
        if let Some(Json::String(reference)) = schema.get("$ref") {
            return self
                .follow(reference)
                .map_or_else(|| json!({}), |it| self.sample(it, depth + 1));
        }
        let choices =
            ["anyOf", "oneOf", "allOf"].iter().find_map(|key| schema.get(*key)?.as_array());
        let is_null = |choice: &&Json| choice.get("type").and_then(Json::as_str) == Some("null");
        if let Some(choice) = choices.and_then(|it| it.iter().find(|choice| !is_null(choice))) {
            return self.sample(choice, depth + 1);
        }
        self.of_kind(kind(schema), schema, depth)
    }

    fn of_kind(&self, kind: &str, schema: &Map<String, Json>, depth: usize) -> Json {
        match kind {
            "integer" | "number" => schema.get("minimum").cloned().unwrap_or_else(|| json!(1)),
            "boolean" => json!(true),
            "array" => match schema.get("items") {
                Some(items) => json!([self.sample(items, depth + 1)]),
                None => json!([]),
            },
            "object" => Json::Object(self.required(schema, depth)),
            _ => match schema.get("format").and_then(Json::as_str) {
                Some("uri" | "url") => json!("https://example.com"),
                Some("date") => json!("2026-01-31"),
                Some("date-time") => json!("2026-01-31T12:00:00Z"),
                Some("email") => json!("ann@example.com"),
                _ => json!("…"),
            },
        }
    }

    fn follow(&self, reference: &str) -> Option<&Json> {
        let mut names = reference.strip_prefix("#/")?.split('/');
        let first = self.root.get(names.next()?)?;
        names.try_fold(first, |found, name| found.get(name))
    }
}

fn kind(schema: &Map<String, Json>) -> &str {
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
        let found = Json::Object(Sampler { root: schema }.required(schema, 0));
        assert_eq!(
            luau_value(&found),
            r#"{ path = "…", mode = "fast", count = 3, at = "2026-01-31", tags = { "…" }, node = { next = { next = {} } }, any = "…", unknown = "…" }"#
        );
    }
}
