//! Schemas of tools as every model and every framework takes them.
//!
//! A tool is listed with a schema that says the same in fewer words of JSON Schema:
//! one type for each place, `anyOf` for alternatives, no references, keys and enums
//! that models take. One schema that a framework cannot read costs its user all
//! tools of the server, and one that a model refuses costs the whole request.
//!
//! Arguments are still checked by the schema as it was written. What is listed may
//! allow more than that; what it says about a result never allows less, since
//! clients check results by it. Which rules are behind each change is in
//! `tests/model_apis/`.

mod argument_keys;
mod flatten;
mod merge;
mod rewrite;
mod sent_arguments;
mod simple_types;

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use crate::schema::place_references;
pub use argument_keys::ArgumentKeys;
use rewrite::SchemaRewriter;
pub use sent_arguments::SentArguments;

/// What one schema may have, unless it was larger before. References are written
/// out, so that a small document can stand for an endless one.
const MAX_SCHEMA_BYTES: usize = 32 * 1024;
/// Levels of objects and lists, tried one after the other until the schema is small
/// enough. What is deeper is any object.
const NESTING_LEVELS: [usize; 6] = [10, 6, 4, 3, 2, 1];

/// Which way values go that a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SchemaDirection {
    /// What is said may allow more than the exact schema, which checks it.
    Input,
    /// What is said must allow everything that the exact schema allows.
    Output,
}

/// The parameters of a tool as they are listed.
#[derive(Debug, Clone)]
pub struct PortableInput {
    pub schema: Arc<Map<String, Json>>,
    /// From the names of parameters in it to those of the exact schema.
    pub keys: ArgumentKeys,
}

impl PortableInput {
    pub fn from_schema(exact: &Map<String, Json>) -> PortableInput {
        let made = rewrite_within_bounds(exact, SchemaDirection::Input);
        let mut schema = made.unwrap_or_else(|| rewrite::outline_schema(exact));
        let keys = argument_keys::list_keys(&mut schema);
        if !schema.contains_key("properties") {
            schema.insert("properties".to_owned(), json!({}));
        }
        PortableInput { schema: Arc::new(schema), keys }
    }
}

/// The result of a tool as it is listed, where that is said to be an object: other
/// results are not said at all.
pub fn portable_output(exact: &Map<String, Json>) -> Option<Map<String, Json>> {
    if exact.get("type") != Some(&json!("object")) {
        return None;
    }
    let made = rewrite_within_bounds(exact, SchemaDirection::Output);
    let any_object = || Map::from_iter([("type".to_owned(), json!("object"))]);
    Some(made.unwrap_or_else(any_object))
}

fn rewrite_within_bounds(
    exact: &Map<String, Json>,
    direction: SchemaDirection,
) -> Option<Map<String, Json>> {
    let placed = place_references(exact);
    let exact = placed.as_ref().unwrap_or(exact);
    let max_bytes = MAX_SCHEMA_BYTES.max(written_bytes(exact));
    NESTING_LEVELS.into_iter().find_map(|levels| {
        SchemaRewriter::new(exact, direction, levels, max_bytes).rewrite_whole().ok()
    })
}

fn written_bytes(schema: &Map<String, Json>) -> usize {
    serde_json::to_string(schema).map_or(0, |text| text.len())
}

#[cfg(test)]
mod tests;
