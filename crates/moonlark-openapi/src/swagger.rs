//! What Swagger 2.0 says differently: bodies and forms among the parameters,
//! types beside names, one address for everything.

use serde_json::{Map, Value as Json, json};

use crate::document_tree::TreeNode;
use crate::openapi_document::OpenApiDocument;
use crate::param_style::{ParamEncoding, ParamStyle};
use crate::parameter::{self, DocumentPart, OperationParam, ParamLocation};
use crate::request_body::{BodyKind, BodyPlan, body_kind, file_fields};

/// The parameters, and the body that is made of some of them.
pub(crate) fn read_swagger_parameters(
    document: &OpenApiDocument,
    operation: TreeNode<'_>,
    listed: Vec<TreeNode<'_>>,
) -> Result<(Vec<OperationParam>, Option<BodyPlan>), String> {
    let mut params = Vec::new();
    let mut body = None;
    let mut form: Vec<TreeNode<'_>> = Vec::new();
    for node in listed {
        match node.field_text("in") {
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

fn read_swagger_parameter(node: TreeNode<'_>) -> Result<OperationParam, String> {
    let place = parameter::parse_location(node)?;
    let (style, explode) = match (node.field_text("collectionFormat"), place) {
        ("ssv", ParamLocation::Query) => (ParamStyle::Delimited(' '), false),
        ("tsv", ParamLocation::Query) => (ParamStyle::Delimited('\t'), false),
        ("pipes", ParamLocation::Query) => (ParamStyle::Delimited('|'), false),
        ("multi", ParamLocation::Query) => (ParamStyle::Form, true),
        (_, ParamLocation::Path | ParamLocation::Header) => (ParamStyle::Simple, false),
        _ => (ParamStyle::Form, false),
    };
    let schema = if node.has_field("schema") {
        DocumentPart::schema_of(node)
    } else {
        DocumentPart::from_json(&param_schema(node), &node.tree.address)
    };
    let writing = ParamEncoding { style, explode, reserved: false };
    Ok(OperationParam::new(node, place, schema, writing))
}

fn read_whole_body(
    document: &OpenApiDocument,
    operation: TreeNode<'_>,
    node: TreeNode<'_>,
) -> BodyPlan {
    let media = choose_media_type(document, operation, "consumes");
    BodyPlan {
        kind: body_kind(media),
        media: media.to_owned(),
        required: node.is_field_true("required"),
        description: node.field_text("description").trim().to_owned(),
        schema: DocumentPart::schema_of(node),
        encoding: None,
        files: Vec::new(),
    }
}

fn read_form_body(
    document: &OpenApiDocument,
    operation: TreeNode<'_>,
    fields: &[TreeNode<'_>],
) -> BodyPlan {
    let has_file = fields.iter().any(|node| node.field_text("type") == "file");
    let mut consumed = media_types(document, operation, "consumes");
    let is_multipart = has_file || consumed.any(|it| body_kind(it) == BodyKind::Multipart);
    let mut properties = Map::new();
    let mut required = Vec::new();
    for node in fields {
        let name = node.field_text("name");
        if node.is_field_true("required") {
            required.push(json!(name));
        }
        properties.insert(name.to_owned(), param_schema(*node));
    }
    let (kind, media) = if is_multipart {
        (BodyKind::Multipart, "multipart/form-data")
    } else {
        (BodyKind::Form, "application/x-www-form-urlencoded")
    };
    let schema = DocumentPart::from_json(
        &json!({"type": "object", "properties": properties, "required": required}),
        fields.first().map_or("", |node| &node.tree.address),
    );
    BodyPlan {
        kind,
        media: media.to_owned(),
        required: !required.is_empty(),
        description: String::new(),
        files: match kind {
            BodyKind::Multipart => file_fields(document, schema.to_node(document)),
            _ => Vec::new(),
        },
        schema,
        encoding: None,
    }
}

/// What an operation says that it `consumes` or `produces`, or the document for all.
fn media_types<'a>(
    document: &'a OpenApiDocument,
    operation: TreeNode<'a>,
    key: &str,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let list = operation.get(key).or_else(|| document.root_node().get(key));
    list.into_iter().flat_map(TreeNode::items).filter_map(TreeNode::as_str)
}

/// The one of them to use.
pub(crate) fn choose_media_type<'a>(
    document: &'a OpenApiDocument,
    operation: TreeNode<'a>,
    key: &str,
) -> &'a str {
    let mut all = media_types(document, operation, key);
    let json = all.find(|it| body_kind(it) == BodyKind::Json);
    json.or_else(|| media_types(document, operation, key).next()).unwrap_or("application/json")
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
    let has = |name: &str| root.list_items("schemes").any(|scheme| scheme == name);
    let scheme = if has("http") && !has("https") { "http" } else { "https" };
    json!([{ "url": format!("{scheme}://{host}{base}") }])
}

/// A security definition as OpenAPI 3 would put it.
pub(crate) fn convert_security_definition(definition: TreeNode<'_>) -> Json {
    match definition.field_text("type") {
        "basic" => json!({"type": "http", "scheme": "basic"}),
        "oauth2" => {
            let flow = match definition.field_text("flow") {
                "application" => "clientCredentials",
                "accessCode" => "authorizationCode",
                flow => flow,
            };
            let field = |key: &str| definition.get(key).map(TreeNode::to_json);
            json!({"type": "oauth2", "flows": { flow: {
                "tokenUrl": field("tokenUrl"),
                "scopes": field("scopes"),
            }}})
        }
        _ => definition.to_json(),
    }
}
