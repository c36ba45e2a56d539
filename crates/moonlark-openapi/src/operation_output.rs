//! What an operation answers with, as far as its document says.

use serde_json::{Map, Value as Json, json};

use crate::document_tree::TreeNode;
use crate::openapi_document::{DocumentNode, OpenApiDocument};
use crate::request_body::{self, BodyKind};
use crate::schema_converter::{OpenApiSchemaConverter, OpenApiSchemaDirection};
use crate::swagger;

/// The schema of the result, if there is one to speak of.
pub(crate) fn build_output_schema(
    document: &OpenApiDocument,
    operation: DocumentNode<'_>,
) -> Option<Map<String, Json>> {
    let responses = document.get_resolved(operation, "responses").ok()??;
    let (_, response) = find_success_response(document, responses)?;
    let (media, schema) = if document.swagger {
        let schema = response.json.get("schema")?;
        (
            swagger::produced_media_type(document, operation),
            Some(DocumentNode { json: schema, ..response }),
        )
    } else {
        let content = response.json.get("content")?;
        let (media, json) =
            content.fields().min_by_key(|(media, _)| answer_media_preference(media))?;
        let node = document.resolve_node(DocumentNode { json, ..response }).ok()?;
        let schema = node.json.get("schema").map(|json| DocumentNode { json, ..node });
        (media, schema)
    };
    match request_body::body_kind(media) {
        BodyKind::Json => {
            let mut converter = OpenApiSchemaConverter::new(document, OpenApiSchemaDirection::Out);
            let schema = converter.convert_schema(schema?);
            let defs = converter.into_defs();
            let Json::Object(mut schema) = schema else { return None };
            if !defs.is_empty() {
                schema.insert("$defs".to_owned(), Json::Object(defs));
            }
            Some(schema)
        }
        BodyKind::Text | BodyKind::Form => json!({"type": "string"}).as_object().cloned(),
        BodyKind::Multipart | BodyKind::Binary => None,
    }
}

/// Whether anything is said about the result.
pub(crate) fn has_output(document: &OpenApiDocument, operation: DocumentNode<'_>) -> bool {
    let said = || {
        let responses = document.get_resolved(operation, "responses").ok()??;
        let (_, response) = find_success_response(document, responses)?;
        let key = if document.swagger { "schema" } else { "content" };
        response.json.get(key).map(|it| it.is_object() && !it.is_empty())
    };
    said().unwrap_or(false)
}

/// The response of a call that went well.
fn find_success_response<'a>(
    document: &'a OpenApiDocument,
    responses: DocumentNode<'a>,
) -> Option<(&'a str, DocumentNode<'a>)> {
    let rank = |status: &str| match status {
        "200" => Some(0),
        "201" => Some(1),
        status if status.starts_with('2') => Some(2),
        "default" => Some(3),
        _ => None,
    };
    let fields = responses.json.fields();
    let mut ranked: Vec<(usize, &str, TreeNode<'_>)> =
        fields.filter_map(|(status, json)| Some((rank(status)?, status, json))).collect();
    ranked.sort_by_key(|(rank, ..)| *rank);
    let has_success = ranked.iter().any(|(rank, ..)| *rank < 3);
    // A default beside a success is what errors look like.
    let (_, status, json) = ranked.into_iter().find(|(rank, ..)| *rank < 3 || !has_success)?;
    Some((status, document.resolve_node(DocumentNode { json, ..responses }).ok()?))
}

fn answer_media_preference(media: &str) -> usize {
    match request_body::body_kind(media) {
        BodyKind::Json => 0,
        BodyKind::Text => 1,
        _ => 2,
    }
}
