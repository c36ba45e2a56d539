//! The arguments of an operation: one table for parameters and body.
//!
//! The fields of a body stand beside the parameters. Where a name would mean
//! two things, or the body is no table of known fields, it is given as `body`.

use moonlark_core::Value;
use moonlark_core::value::Object;
use serde_json::{Map, Value as Json, json};

use crate::document_tree::TreeNode;
use crate::openapi_document::{OpenApiDocument, reference_of};
use crate::operation::OperationPlan;
use crate::schema_converter::{
    OpenApiSchemaConverter, OpenApiSchemaDirection, has_sibling_keywords, is_marked,
};
use moonlark_core::foreign_text::clean_json_text;

/// Fields of a body that may stand beside the parameters.
const MAX_BODY_FIELDS: usize = 400;

/// How the body is given.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum BodyArguments {
    /// By these names among the arguments.
    Fields(Vec<String>),
    /// As `body`.
    #[default]
    Whole,
}

/// Decide how callers give the body of an operation.
pub(crate) fn choose_body_arguments(
    document: &OpenApiDocument,
    plan: &OperationPlan,
) -> BodyArguments {
    let Some(body) = &plan.body else { return BodyArguments::Whole };
    let (mut fields, mut must) = (Vec::new(), Vec::new());
    let known =
        collect_body_fields(document, body.schema.to_node(document), 0, &mut fields, &mut must)
            .is_some();
    // What is required without being described can only be given in a whole.
    let known = known && must.iter().all(|name| fields.iter().any(|it| it.name == *name));
    fields.retain(|it: &BodyField<'_>| !is_marked(document, it.node, "readOnly"));
    let clash = |field: &BodyField<'_>| {
        field.name == "body" || plan.params.iter().any(|param| param.arg == field.name)
    };
    if !known || fields.is_empty() || fields.len() > MAX_BODY_FIELDS || fields.iter().any(clash) {
        return BodyArguments::Whole;
    }
    BodyArguments::Fields(fields.into_iter().map(|field| field.name.to_owned()).collect())
}

struct BodyField<'a> {
    name: &'a str,
    node: TreeNode<'a>,
    required: bool,
}

/// The fields of an object schema, and the names of those that must be there;
/// none if there could be others.
fn collect_body_fields<'a>(
    document: &'a OpenApiDocument,
    node: TreeNode<'a>,
    depth: usize,
    found: &mut Vec<BodyField<'a>>,
    must: &mut Vec<&'a str>,
) -> Option<()> {
    let mut fields = node;
    if reference_of(node).is_some() {
        let target = document.resolve_node(node).ok()?;
        if has_sibling_keywords(node) {
            collect_body_fields(document, target, depth + 1, found, must)?
        } else {
            fields = target
        }
    }
    let open = match fields.get("additionalProperties") {
        None => false,
        Some(it) if it.is_object() => !it.is_empty() || !fields.has_field("properties"),
        Some(it) => it.as_bool() != Some(false),
    };
    let choice = ["oneOf", "anyOf", "not", "if"].iter().any(|it| fields.has_field(it));
    let object = fields.is_object() && fields.get("type").is_none_or(|it| it == "object");
    if open || choice || !object || depth > 16 || fields.is_field_true("nullable") {
        return None;
    }
    let is_required = |name: &str| fields.list_items("required").any(|it| it == name);
    must.extend(fields.list_items("required").filter_map(TreeNode::as_str));
    for part in fields.list_items("allOf") {
        collect_body_fields(document, part, depth + 1, found, must)?;
    }
    for (name, node) in fields.object_fields("properties") {
        let field = BodyField { name, node, required: is_required(name) };
        match found.iter_mut().find(|it| it.name == name) {
            Some(known) => *known = field,
            None => found.push(field),
        }
    }
    // A part may say that a field of another part is required.
    for field in found.iter_mut() {
        field.required |= is_required(field.name);
    }
    Some(())
}

/// The schema of all arguments but the frozen ones.
pub(crate) fn build_input_schema(
    document: &OpenApiDocument,
    plan: &OperationPlan,
    is_frozen: &dyn Fn(&str) -> bool,
) -> Map<String, Json> {
    let mut converter = OpenApiSchemaConverter::new(document, OpenApiSchemaDirection::In);
    let (mut properties, mut required, mut dependent) = (Map::new(), Vec::new(), Map::new());
    for param in plan.params.iter().filter(|param| !is_frozen(&param.arg)) {
        let schema = converter.convert_schema(param.schema.to_node(document));
        properties.insert(param.arg.clone(), with_description(schema, &param.description));
        if param.required {
            required.push(json!(param.arg));
        }
    }
    match (&plan.body, &plan.body_arguments) {
        (Some(body), BodyArguments::Fields(names)) => {
            let (mut fields, mut together) = (Vec::new(), Vec::new());
            let whole = body.schema.to_node(document);
            collect_body_fields(document, whole, 0, &mut fields, &mut Vec::new());
            fields.retain(|it| names.iter().any(|name| name == it.name) && !is_frozen(it.name));
            for field in fields {
                let mut schema = converter.convert_schema(field.node);
                if body.files.iter().any(|it| it == field.name) {
                    let resolved = document.resolve_node(field.node);
                    let many = resolved.is_ok_and(|it| it.has_field("items"));
                    schema = file_schema(many, schema);
                }
                properties.insert(field.name.to_owned(), schema);
                match (field.required, body.required) {
                    (true, true) => required.push(json!(field.name)),
                    (true, false) => together.push(json!(field.name)),
                    (false, _) => {}
                }
            }
            // A body that may be left out is left out as a whole.
            if !together.is_empty() {
                dependent.extend(names.iter().map(|name| (name.clone(), json!(together))));
            }
        }
        (Some(body), BodyArguments::Whole) if !is_frozen("body") => {
            let whole = body.schema.to_node(document);
            let mut schema = converter.convert_schema(if body.files.is_empty() {
                whole
            } else {
                // What has to be changed must not be behind a reference.
                document.resolve_node(whole).unwrap_or(whole)
            });
            for name in &body.files {
                let properties = schema.pointer_mut("/properties");
                if let Some(field) = properties.and_then(|it| it.get_mut(name)) {
                    let many = field["items"].is_object();
                    *field = file_schema(many, field.take());
                }
            }
            properties.insert("body".to_owned(), with_description(schema, &body.description));
            if body.required {
                required.push(json!("body"));
            }
        }
        _ => {}
    }
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Json::Object(properties));
    if !required.is_empty() {
        schema.insert("required".to_owned(), Json::Array(required));
    }
    if !dependent.is_empty() {
        schema.insert("dependentRequired".to_owned(), Json::Object(dependent));
    }
    schema.insert("additionalProperties".to_owned(), json!(false));
    converter.add_defs(&mut schema);
    schema
}

/// A file: its bytes, or those with a name and a type.
fn file_schema(many: bool, schema: Json) -> Json {
    let description = schema.get("description").cloned();
    let bytes = json!({"type": "string", "format": "binary"});
    let named = json!({
        "type": "object",
        "properties": {
            "content": bytes,
            "filename": {"type": "string"},
            "type": {"type": "string", "pattern": "^[!-~]+/[!-~ ]+$", "description": "The media type."},
        },
        "required": ["content"],
        "additionalProperties": false,
    });
    let one = json!({"anyOf": [bytes, named]});
    let mut file = if many { json!({"type": "array", "items": one}) } else { one };
    if let Some(description) = description {
        file["description"] = description;
    }
    file
}

/// A schema with the words of whatever has it.
fn with_description(schema: Json, description: &str) -> Json {
    match schema {
        Json::Object(mut fields) if !description.is_empty() => {
            fields.insert("description".to_owned(), clean_json_text(description));
            Json::Object(fields)
        }
        schema => schema,
    }
}

/// The body among the arguments, if there is one. One that must be there is
/// there also when nothing is in it.
pub(crate) fn take_body(args: &mut Object, given: &BodyArguments, required: bool) -> Option<Value> {
    match given {
        BodyArguments::Whole => args.shift_remove("body"),
        BodyArguments::Fields(names) => {
            let mut body = Object::new();
            for name in names {
                if let Some(value) = args.shift_remove(name) {
                    body.insert(name.clone(), value);
                }
            }
            (required || !body.is_empty()).then_some(Value::Object(body))
        }
    }
}
