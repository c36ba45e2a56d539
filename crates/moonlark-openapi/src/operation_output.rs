//! What an operation answers with, as far as its document says.

use serde_json::{Map, Value as Json, json};

use crate::document_tree::TreeNode;
use crate::openapi_document::OpenApiDocument;
use crate::request_body::{self, BodyKind};
use crate::schema_converter::{OpenApiSchemaConverter, OpenApiSchemaDirection};
use crate::swagger;

/// The schema of the result, if there is one to speak of.
pub(crate) fn build_output_schema(
    document: &OpenApiDocument,
    operation: TreeNode<'_>,
) -> Option<Map<String, Json>> {
    let responses = document.get_resolved(operation, "responses").ok()??;
    let response = find_success_response(document, responses)?;
    let (media, schema) = if document.swagger {
        let media = swagger::choose_media_type(document, operation, "produces");
        (media, Some(response.get("schema")?))
    } else {
        let content = response.get("content")?;
        let (media, node) =
            content.fields().min_by_key(|(media, _)| answer_media_preference(media))?;
        (media, document.resolve_node(node).ok()?.get("schema"))
    };
    match request_body::body_kind(media) {
        BodyKind::Json => {
            let mut converter = OpenApiSchemaConverter::new(document, OpenApiSchemaDirection::Out);
            let Json::Object(mut schema) = converter.convert_schema(schema?) else { return None };
            converter.add_defs(&mut schema);
            Some(schema)
        }
        BodyKind::Text | BodyKind::Form => json!({"type": "string"}).as_object().cloned(),
        BodyKind::Multipart | BodyKind::Binary => None,
    }
}

/// Whether anything is said about the result.
pub(crate) fn has_output(document: &OpenApiDocument, operation: TreeNode<'_>) -> bool {
    let said = || {
        let responses = document.get_resolved(operation, "responses").ok()??;
        let response = find_success_response(document, responses)?;
        let key = if document.swagger { "schema" } else { "content" };
        response.get(key).map(|it| it.is_object() && !it.is_empty())
    };
    said().unwrap_or(false)
}

/// The response of a call that went well.
fn find_success_response<'a>(
    document: &'a OpenApiDocument,
    responses: TreeNode<'a>,
) -> Option<TreeNode<'a>> {
    let rank = |status: &str| match status {
        "200" => Some(0),
        "201" => Some(1),
        status if status.starts_with('2') => Some(2),
        "default" => Some(3),
        _ => None,
    };
    let fields = responses.fields().filter_map(|(status, node)| Some((rank(status)?, node)));
    // A default beside a success is what errors look like, so it comes last.
    let (_, response) = fields.min_by_key(|(rank, _)| *rank)?;
    document.resolve_node(response).ok()
}

fn answer_media_preference(media: &str) -> usize {
    match request_body::body_kind(media) {
        BodyKind::Json => 0,
        BodyKind::Text => 1,
        _ => 2,
    }
}
