//! Schemas that are put together from several: `allOf`, and choices beside
//! properties, as one schema each.

use serde_json::{Map, Value as Json};

use crate::function_parts::properties_of;
use moonlark_core::schema::find_referenced_json;

/// How far references and nested `allOf` are followed.
const MAX_MERGE_DEPTH: usize = 12;

/// What says something about a value's type; the other keywords only narrow it.
const TYPE_KEYWORDS: [&str; 9] =
    ["type", "properties", "$ref", "enum", "const", "anyOf", "oneOf", "allOf", "items"];

/// The choices of `anyOf` or `oneOf`, each with what stands beside them. None
/// where they say nothing about types, such as which fields must be there.
pub(super) fn type_alternatives(schema: &Map<String, Json>) -> Option<Vec<Json>> {
    let key = ["anyOf", "oneOf"].into_iter().find(|key| schema.contains_key(*key))?;
    let choices = schema.get(key)?.as_array()?;
    let says = |choice: &Json| match choice {
        Json::Object(choice) => TYPE_KEYWORDS.iter().any(|keyword| choice.contains_key(*keyword)),
        _ => true,
    };
    let typed = schema.contains_key("properties") || schema.contains_key("type");
    if typed && !choices.iter().any(says) {
        return None;
    }
    if !schema.contains_key("properties") {
        return Some(choices.clone());
    }
    let mut base = schema.clone();
    base.shift_remove(key);
    let with = |choice: &Json| {
        let both = Json::Array(vec![Json::Object(base.clone()), choice.clone()]);
        Json::Object(Map::from_iter([("allOf".to_owned(), both)]))
    };
    Some(choices.iter().map(with).collect())
}

/// The parts of `allOf` and what stands beside it as one object schema; none if
/// some part is no object.
pub(super) fn merge_all_of(root: &Json, schema: &Map<String, Json>) -> Option<Json> {
    let mut merged = MergedObject::default();
    merged.add_schema(root, schema, 0)?;
    merged.is_object.then(|| merged.into_schema())
}

#[derive(Default)]
struct MergedObject {
    is_object: bool,
    properties: Map<String, Json>,
    required: Vec<Json>,
    others: Option<Json>,
}

impl MergedObject {
    fn add_schema(&mut self, root: &Json, schema: &Map<String, Json>, depth: usize) -> Option<()> {
        let kind = schema.get("type");
        let choices = ["anyOf", "oneOf"].iter().any(|key| schema.contains_key(*key));
        let kept = choices && type_alternatives(schema).is_some();
        if depth == MAX_MERGE_DEPTH || kept || kind.is_some_and(|kind| kind != "object") {
            return None;
        }
        if ["enum", "const"].iter().any(|key| schema.contains_key(*key)) {
            return None;
        }
        self.is_object |= kind.is_some() || schema.contains_key("properties");
        for (name, property) in properties_of(schema) {
            self.properties.insert(name.clone(), property.clone());
        }
        let required = schema.get("required").and_then(Json::as_array);
        self.required.extend(required.into_iter().flatten().cloned());
        if let Some(others) = schema.get("additionalProperties") {
            self.others.get_or_insert_with(|| others.clone());
        }
        if let Some(Json::String(reference)) = schema.get("$ref") {
            let target = find_referenced_json(root, reference)?;
            self.add_schema(root, target.as_object()?, depth + 1)?;
        }
        for part in schema.get("allOf").and_then(Json::as_array).into_iter().flatten() {
            match part {
                Json::Object(part) => self.add_schema(root, part, depth + 1)?,
                Json::Bool(true) => {}
                _ => return None,
            }
        }
        Some(())
    }

    fn into_schema(self) -> Json {
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "object".into());
        if !self.properties.is_empty() {
            schema.insert("properties".to_owned(), self.properties.into());
        }
        schema.insert("required".to_owned(), self.required.into());
        if let Some(others) = self.others {
            schema.insert("additionalProperties".to_owned(), others);
        }
        schema.into()
    }
}
