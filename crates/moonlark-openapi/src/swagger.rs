//! What Swagger 2.0 says differently: bodies and forms among the parameters,
//! types beside names, one address for everything.

use serde_json::{Map, Value as Json, json};

use crate::document_tree::TreeNode;
use crate::openapi_document::{DocumentNode, OpenApiDocument};
use crate::param_style::{ParamEncoding, ParamStyle};
use crate::parameter::{self, DocumentPart, OperationParam, ParamLocation};
use crate::request_body::{self, BodyKind};

/// The parameters, and the body that is made of some of them.
pub(crate) fn read_swagger_parameters(
    document: &OpenApiDocument,
    operation: DocumentNode<'_>,
    listed: Vec<DocumentNode<'_>>,
) -> Result<(Vec<OperationParam>, Option<request_body::BodyPlan>), String> {
    let mut params = Vec::new();
    let mut body = None;
    let mut form: Vec<DocumentNode<'_>> = Vec::new();
    for node in listed {
        match node.json.field_text("in") {
            "body" => body = Some(read_whole_body(document, operation, node)),
            "formData" => form.push(node),
            _ => params.push(read_swagger_parameter(node)?),
        }
    }
    if body.is_none() && !form.is_empty() {
        body = Some(read_form_body(document, operation, &form));
    }
    Ok((params, body))
}

fn read_swagger_parameter(node: DocumentNode<'_>) -> Result<OperationParam, String> {
    let name = node.json.field_text("name");
    let place = parameter::parse_location(node.json.field_text("in"), name)?;
    let (style, explode) = match (node.json.field_text("collectionFormat"), place) {
        ("ssv", ParamLocation::Query) => (ParamStyle::Delimited(' '), false),
        ("tsv", ParamLocation::Query) => (ParamStyle::Delimited('\t'), false),
        ("pipes", ParamLocation::Query) => (ParamStyle::Delimited('|'), false),
        ("multi", ParamLocation::Query) => (ParamStyle::Form, true),
        (_, ParamLocation::Query | ParamLocation::Querystring | ParamLocation::Cookie) => {
            (ParamStyle::Form, false)
        }
        (_, ParamLocation::Path | ParamLocation::Header) => (ParamStyle::Simple, false),
    };
    Ok(OperationParam {
        arg: name.to_owned(),
        name: name.to_owned(),
        place,
        required: place == ParamLocation::Path || node.json.is_field_true("required"),
        description: node.json.field_text("description").trim().to_owned(),
        schema: match node.json.get("schema") {
            Some(json) => DocumentPart::from_node(DocumentNode { json, ..node }),
            None => DocumentPart::from_json(&param_schema(node.json), node.file),
        },
        writing: ParamEncoding { style, explode, reserved: false },
    })
}

fn read_whole_body(
    document: &OpenApiDocument,
    operation: DocumentNode<'_>,
    node: DocumentNode<'_>,
) -> request_body::BodyPlan {
    let consumed = consumed_media_types(document, operation);
    let media = consumed
        .iter()
        .find(|it| request_body::body_kind(it) == BodyKind::Json)
        .or(consumed.first());
    let media = media.map_or("application/json", String::as_str);
    request_body::BodyPlan {
        kind: request_body::body_kind(media),
        media: media.to_owned(),
        required: node.json.is_field_true("required"),
        description: node.json.field_text("description").trim().to_owned(),
        schema: match node.json.get("schema") {
            Some(json) => DocumentPart::from_node(DocumentNode { json, ..node }),
            None => DocumentPart::any_schema(),
        },
        encoding: None,
        files: Vec::new(),
    }
}

fn read_form_body(
    document: &OpenApiDocument,
    operation: DocumentNode<'_>,
    fields: &[DocumentNode<'_>],
) -> request_body::BodyPlan {
    let has_file = fields.iter().any(|node| node.json.field_text("type") == "file");
    let multipart = |it: &String| request_body::body_kind(it) == BodyKind::Multipart;
    let kind = if has_file || consumed_media_types(document, operation).iter().any(multipart) {
        BodyKind::Multipart
    } else {
        BodyKind::Form
    };
    let mut properties = Map::new();
    let mut required = Vec::new();
    for node in fields {
        let name = node.json.field_text("name");
        if node.json.is_field_true("required") {
            required.push(json!(name));
        }
        properties.insert(name.to_owned(), param_schema(node.json));
    }
    let media = match kind {
        BodyKind::Multipart => "multipart/form-data",
        _ => "application/x-www-form-urlencoded",
    };
    let schema = DocumentPart::from_json(
        &json!({"type": "object", "properties": properties, "required": required}),
        fields.first().map_or("", |node| node.file),
    );
    request_body::BodyPlan {
        kind,
        media: media.to_owned(),
        required: !required.is_empty(),
        description: String::new(),
        files: match kind {
            BodyKind::Multipart => request_body::file_fields(document, schema.to_node(document)),
            _ => Vec::new(),
        },
        schema,
        encoding: None,
    }
}

fn consumed_media_types(document: &OpenApiDocument, operation: DocumentNode<'_>) -> Vec<String> {
    let list = operation.json.get("consumes").or_else(|| document.root_node().json.get("consumes"));
    let items = list.into_iter().flat_map(TreeNode::items);
    items.filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

/// The type that stands beside the name.
fn param_schema(param: TreeNode<'_>) -> Json {
    const NON_SCHEMA_KEYS: [&str; 5] =
        ["name", "in", "required", "collectionFormat", "allowEmptyValue"];
    if let Some(schema) = param.get("schema") {
        return schema.to_json();
    }
    let kept = param.fields().filter(|(key, _)| !NON_SCHEMA_KEYS.contains(key));
    Json::Object(kept.map(|(key, it)| (key.to_owned(), it.to_json())).collect())
}

/// `schemes`, `host` and `basePath` as servers of OpenAPI 3.
pub(crate) fn servers_from_host(root: TreeNode<'_>) -> Json {
    let base = root.field_text("basePath");
    let base = if base.is_empty() { "/" } else { base };
    let host = root.field_text("host");
    if host.is_empty() {
        return json!([{ "url": base }]);
    }
    let schemes = || root.get("schemes").into_iter().flat_map(TreeNode::items);
    let has = |name: &str| schemes().any(|scheme| scheme == name);
    let scheme = if has("http") && !has("https") { "http" } else { "https" };
    json!([{ "url": format!("{scheme}://{host}{base}") }])
}

/// The type of what an operation answers with.
pub(crate) fn produced_media_type<'a>(
    document: &'a OpenApiDocument,
    operation: DocumentNode<'a>,
) -> &'a str {
    let list = operation.json.get("produces").or_else(|| document.root_node().json.get("produces"));
    let items = list.into_iter().flat_map(TreeNode::items).filter_map(TreeNode::as_str);
    let mut items = items.peekable();
    let first = items.peek().copied();
    items
        .find(|it| request_body::body_kind(it) == BodyKind::Json)
        .or(first)
        .unwrap_or("application/json")
}

/// A security definition as OpenAPI 3 would put it.
pub(crate) fn convert_security_definition(definition: &Json) -> Json {
    match text_field(definition, "type") {
        "basic" => json!({"type": "http", "scheme": "basic"}),
        "oauth2" => {
            let flow = match text_field(definition, "flow") {
                "application" => "clientCredentials",
                "accessCode" => "authorizationCode",
                flow => flow,
            };
            json!({"type": "oauth2", "flows": { flow: {
                "tokenUrl": definition.get("tokenUrl"),
                "scopes": definition.get("scopes"),
            }}})
        }
        _ => definition.clone(),
    }
}

fn text_field<'a>(json: &'a Json, key: &str) -> &'a str {
    json.get(key).and_then(Json::as_str).unwrap_or_default()
}
