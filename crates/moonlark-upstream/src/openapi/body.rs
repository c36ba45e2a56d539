//! The body of a request: which kind is sent, and which arguments go into it.

use serde_json::Value as Json;

use super::document::{Document, Node};
use super::parameter::At;
use super::tree::Branch;

/// No type of its own, though it is found in documents.
const FORM_DATA: &str = "application/form-data";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Json,
    Form,
    Multipart,
    Text,
    Binary,
}

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    /// The `Content-Type` to send.
    pub(crate) media: String,
    pub(crate) required: bool,
    pub(crate) description: String,
    pub(crate) schema: At,
    /// How the parts of a form are encoded, where the document says so.
    pub(crate) encoding: Option<Json>,
    /// The parts that are files, or lists of them.
    pub(crate) files: Vec<String>,
}

/// What the operation takes as its body.
pub(crate) fn read(document: &Document, operation: Node<'_>) -> Result<Option<Plan>, String> {
    let Some(body) = document.get(operation, "requestBody")? else { return Ok(None) };
    let all = body.json.get("content").into_iter().flat_map(Branch::fields);
    let Some((media, node)) = all.min_by_key(|(media, _)| preference(media)) else {
        return Ok(None);
    };
    let node = document.resolve(Node { json: node, ..body })?;
    let schema = node.json.get("schema");
    let kind = kind(media);
    // A range of types is for the sender to choose from.
    let sent = match (media.contains('*'), kind) {
        (false, _) if essence(media) == FORM_DATA => "multipart/form-data".to_owned(),
        (false, _) => media.to_owned(),
        (true, Kind::Json) => "application/json".to_owned(),
        (true, _) => "application/octet-stream".to_owned(),
    };
    Ok(Some(Plan {
        kind,
        media: sent,
        required: body.json.says("required"),
        description: body.json.text("description").trim().to_owned(),
        schema: schema.map_or_else(At::any, |json| At::of(Node { json, ..node })),
        encoding: node.json.get("encoding").filter(|it| it.is_object()).map(Branch::to_json),
        files: match (kind, schema) {
            (Kind::Multipart, Some(json)) => files(document, Node { json, ..node }),
            _ => Vec::new(),
        },
    }))
}

/// The fields of a schema that hold bytes.
pub(crate) fn files(document: &Document, schema: Node<'_>) -> Vec<String> {
    let Ok(schema) = document.resolve(schema) else { return Vec::new() };
    let is_file = |json: Branch<'_>| {
        let field = document.resolve(Node { json, ..schema });
        field.is_ok_and(|field| match field.json.get("items") {
            Some(json) => {
                document.resolve(Node { json, ..field }).is_ok_and(|it| is_bytes(it.json))
            }
            None => is_bytes(field.json),
        })
    };
    let fields = schema.json.get("properties").into_iter().flat_map(Branch::fields);
    fields.filter(|(_, json)| is_file(*json)).map(|(name, _)| name.to_owned()).collect()
}

/// As 3.0, 3.1 and 2.0 say it.
fn is_bytes(schema: Branch<'_>) -> bool {
    let said = |key: &str| schema.text(key);
    let media = said("contentMediaType");
    said("format") == "binary"
        || said("type") == "file"
        || (said("contentEncoding").is_empty() && !media.is_empty() && kind(media) == Kind::Binary)
}

/// The lower, the better a table of arguments fits into it.
fn preference(media: &str) -> usize {
    let essence = essence(media);
    match kind(media) {
        Kind::Json if essence == "application/json" => 0,
        Kind::Json => 1,
        Kind::Form => 2,
        Kind::Multipart => 3,
        Kind::Text => 4,
        Kind::Binary => 5,
    }
}

pub(crate) fn kind(media: &str) -> Kind {
    let essence = essence(media);
    match essence.as_str() {
        "application/json" | "*/*" | "application/*" => Kind::Json,
        it if it.ends_with("+json") || it.ends_with("/json") => Kind::Json,
        "application/x-www-form-urlencoded" => Kind::Form,
        // Some documents mean the one and write the other.
        it if it.starts_with("multipart/") || it == FORM_DATA => Kind::Multipart,
        it if it.starts_with("text/") || it.ends_with("/xml") || it.ends_with("+xml") => Kind::Text,
        it if it.ends_with("/yaml") || it.ends_with("graphql") => Kind::Text,
        _ => Kind::Binary,
    }
}

/// The type without its parameters.
pub(crate) fn essence(media: &str) -> String {
    media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
