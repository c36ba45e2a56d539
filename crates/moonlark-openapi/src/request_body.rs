//! The body of a request: which kind is sent, and which arguments go into it.

use serde_json::Value as Json;

use crate::document_tree::TreeNode;
use crate::openapi_document::OpenApiDocument;
use crate::parameter::DocumentPart;

/// No type of its own, though it is found in documents.
const FORM_DATA_MEDIA_TYPE: &str = "application/form-data";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Json,
    Form,
    Multipart,
    Text,
    Binary,
}

#[derive(Debug, Clone)]
pub(crate) struct BodyPlan {
    pub(crate) kind: BodyKind,
    /// The `Content-Type` to send.
    pub(crate) media: String,
    pub(crate) required: bool,
    pub(crate) description: String,
    pub(crate) schema: DocumentPart,
    /// How the parts of a form are encoded, where the document says so.
    pub(crate) encoding: Option<Json>,
    /// The parts that are files, or lists of them.
    pub(crate) files: Vec<String>,
}

/// What the operation takes as its body.
pub(crate) fn read_body_plan(
    document: &OpenApiDocument,
    operation: TreeNode<'_>,
) -> Result<Option<BodyPlan>, String> {
    let Some(body) = document.get_resolved(operation, "requestBody")? else { return Ok(None) };
    let all = body.object_fields("content");
    let Some((media, node)) = all.min_by_key(|(media, _)| body_media_preference(media)) else {
        return Ok(None);
    };
    let node = document.resolve_node(node)?;
    let kind = body_kind(media);
    // A range of types is for the sender to choose from.
    let sent = match (media.contains('*'), kind) {
        (false, _) if media_essence(media) == FORM_DATA_MEDIA_TYPE => {
            "multipart/form-data".to_owned()
        }
        (false, _) => media.to_owned(),
        (true, BodyKind::Json) => "application/json".to_owned(),
        (true, _) => "application/octet-stream".to_owned(),
    };
    Ok(Some(BodyPlan {
        kind,
        media: sent,
        required: body.is_field_true("required"),
        description: body.field_text("description").trim().to_owned(),
        schema: DocumentPart::schema_of(node),
        encoding: node.get("encoding").filter(|it| it.is_object()).map(TreeNode::to_json),
        files: match (kind, node.get("schema")) {
            (BodyKind::Multipart, Some(schema)) => file_fields(document, schema),
            _ => Vec::new(),
        },
    }))
}

/// The fields of a schema that hold bytes.
pub(crate) fn file_fields(document: &OpenApiDocument, schema: TreeNode<'_>) -> Vec<String> {
    let Ok(schema) = document.resolve_node(schema) else { return Vec::new() };
    let is_file = |field: TreeNode<'_>| -> Result<bool, String> {
        let field = document.resolve_node(field)?;
        Ok(is_bytes(document.get_resolved(field, "items")?.unwrap_or(field)))
    };
    let fields = schema.object_fields("properties");
    fields.filter(|(_, it)| is_file(*it) == Ok(true)).map(|(name, _)| name.to_owned()).collect()
}

/// As 3.0, 3.1 and 2.0 say it.
fn is_bytes(schema: TreeNode<'_>) -> bool {
    let said = |key: &str| schema.field_text(key);
    let media = said("contentMediaType");
    said("format") == "binary"
        || said("type") == "file"
        || (said("contentEncoding").is_empty()
            && !media.is_empty()
            && body_kind(media) == BodyKind::Binary)
}

/// The lower, the better a table of arguments fits into it.
fn body_media_preference(media: &str) -> usize {
    let essence = media_essence(media);
    match body_kind(media) {
        BodyKind::Json if essence == "application/json" => 0,
        BodyKind::Json => 1,
        BodyKind::Form => 2,
        BodyKind::Multipart => 3,
        BodyKind::Text => 4,
        BodyKind::Binary => 5,
    }
}

pub(crate) fn body_kind(media: &str) -> BodyKind {
    let essence = media_essence(media);
    match essence.as_str() {
        "application/json" | "*/*" | "application/*" => BodyKind::Json,
        it if it.ends_with("+json") || it.ends_with("/json") => BodyKind::Json,
        "application/x-www-form-urlencoded" => BodyKind::Form,
        // Some documents mean the one and write the other.
        it if it.starts_with("multipart/") || it == FORM_DATA_MEDIA_TYPE => BodyKind::Multipart,
        it if it.starts_with("text/") || it.ends_with("/xml") || it.ends_with("+xml") => {
            BodyKind::Text
        }
        it if it.ends_with("/yaml") || it.ends_with("graphql") => BodyKind::Text,
        _ => BodyKind::Binary,
    }
}

/// The type without its parameters.
pub(crate) fn media_essence(media: &str) -> String {
    media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
