//! What an operation answers with, as far as its document says.

use serde_json::{Map, Value as Json, json};

use super::body::{self, Kind};
use super::document::{Document, Node};
use super::schema::{Converter, Way};
use super::swagger;
use super::tree::Branch;

/// The schema of the result, if there is one to speak of.
pub(crate) fn schema(document: &Document, operation: Node<'_>) -> Option<Map<String, Json>> {
    let responses = document.get(operation, "responses").ok()??;
    let (_, response) = success(document, responses)?;
    let (media, schema) = match document.swagger {
        true => {
            let schema = response.json.get("schema")?;
            (swagger::produces(document, operation), Some(Node { json: schema, ..response }))
        }
        false => {
            let content = response.json.get("content")?;
            let (media, json) = content.fields().min_by_key(|(media, _)| preference(media))?;
            let node = document.resolve(Node { json, ..response }).ok()?;
            let schema = node.json.get("schema").map(|json| Node { json, ..node });
            (media, schema)
        }
    };
    match body::kind(media) {
        Kind::Json => {
            let mut converter = Converter::new(document, Way::Out);
            let schema = converter.convert(schema?);
            let defs = converter.defs();
            let Json::Object(mut schema) = schema else { return None };
            if !defs.is_empty() {
                schema.insert("$defs".to_owned(), Json::Object(defs));
            }
            Some(schema)
        }
        Kind::Text | Kind::Form => json!({"type": "string"}).as_object().cloned(),
        Kind::Multipart | Kind::Binary => None,
    }
}

/// Whether anything is said about the result.
pub(crate) fn exists(document: &Document, operation: Node<'_>) -> bool {
    let said = || {
        let responses = document.get(operation, "responses").ok()??;
        let (_, response) = success(document, responses)?;
        let key = if document.swagger { "schema" } else { "content" };
        response.json.get(key).map(|it| it.is_object() && !it.is_empty())
    };
    said().unwrap_or(false)
}

/// The response of a call that went well.
fn success<'a>(document: &'a Document, responses: Node<'a>) -> Option<(&'a str, Node<'a>)> {
    let rank = |status: &str| match status {
        "200" => Some(0),
        "201" => Some(1),
        status if status.starts_with('2') => Some(2),
        "default" => Some(3),
        _ => None,
    };
    let fields = responses.json.fields();
    let mut ranked: Vec<(usize, &str, Branch<'_>)> =
        fields.filter_map(|(status, json)| Some((rank(status)?, status, json))).collect();
    ranked.sort_by_key(|(rank, ..)| *rank);
    let has_success = ranked.iter().any(|(rank, ..)| *rank < 3);
    // A default beside a success is what errors look like.
    let (_, status, json) = ranked.into_iter().find(|(rank, ..)| *rank < 3 || !has_success)?;
    Some((status, document.resolve(Node { json, ..responses }).ok()?))
}

fn preference(media: &str) -> usize {
    match body::kind(media) {
        Kind::Json => 0,
        Kind::Text => 1,
        _ => 2,
    }
}
