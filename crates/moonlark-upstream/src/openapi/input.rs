//! The arguments of an operation: one table for parameters and body.
//!
//! The fields of a body stand beside the parameters. Where a name would mean
//! two things, or the body is no table of known fields, it is given as `body`.

use moonlark_core::Value;
use moonlark_core::value::Object;
use serde_json::{Map, Value as Json, json};

use super::document::{Document, Node, reference};
use super::operation::Plan;
use super::schema::{Converter, Way, has_more, is_marked};
use super::tree::Branch;
use crate::foreign_text::clean_json_text;

/// Fields of a body that may stand beside the parameters.
const MOST_FIELDS: usize = 400;

/// How the body is given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Given {
    /// By these names among the arguments.
    Fields(Vec<String>),
    /// As `body`.
    Whole,
}

/// Decide how callers give the body of an operation.
pub(crate) fn given(document: &Document, plan: &Plan) -> Given {
    let Some(body) = &plan.body else { return Given::Whole };
    let (mut fields, mut must) = (Vec::new(), Vec::new());
    let known = collect(document, body.schema.node(document), 0, &mut fields, &mut must).is_some();
    // What is required without being described can only be given in a whole.
    let known = known && must.iter().all(|name| fields.iter().any(|it| it.name == *name));
    fields.retain(|it: &Field<'_>| !is_marked(document, it.node, "readOnly"));
    let clash = |field: &Field<'_>| {
        field.name == "body" || plan.params.iter().any(|param| param.arg == field.name)
    };
    if !known || fields.is_empty() || fields.len() > MOST_FIELDS || fields.iter().any(clash) {
        return Given::Whole;
    }
    Given::Fields(fields.into_iter().map(|field| field.name.to_owned()).collect())
}

struct Field<'a> {
    name: &'a str,
    node: Node<'a>,
    required: bool,
}

/// The fields of an object schema, and the names of those that must be there;
/// none if there could be others.
fn collect<'a>(
    document: &'a Document,
    node: Node<'a>,
    depth: usize,
    found: &mut Vec<Field<'a>>,
    must: &mut Vec<&'a str>,
) -> Option<()> {
    let mut node = node;
    if reference(node.json).is_some() {
        let target = document.resolve(node).ok()?;
        match has_more(node.json) {
            true => collect(document, target, depth + 1, found, must)?,
            false => node = target,
        }
    }
    let fields = node.json;
    let open = match fields.get("additionalProperties") {
        None => false,
        Some(it) if it.is_object() => !it.is_empty() || !fields.has("properties"),
        Some(it) => it.as_bool() != Some(false),
    };
    let choice = ["oneOf", "anyOf", "not", "if"].iter().any(|it| fields.has(it));
    let object = fields.is_object() && fields.get("type").is_none_or(|it| it == "object");
    if open || choice || !object || depth > 16 || fields.says("nullable") {
        return None;
    }
    let required = || fields.get("required").into_iter().flat_map(Branch::items);
    let is_required = |name: &str| required().any(|it| it == name);
    must.extend(required().filter_map(Branch::as_str));
    for json in fields.get("allOf").into_iter().flat_map(Branch::items) {
        collect(document, Node { json, ..node }, depth + 1, found, must)?;
    }
    for (name, json) in fields.get("properties").into_iter().flat_map(Branch::fields) {
        let field = Field { name, node: Node { json, ..node }, required: is_required(name) };
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
pub(crate) fn schema(
    document: &Document,
    plan: &Plan,
    given: &Given,
    is_frozen: &dyn Fn(&str) -> bool,
) -> Map<String, Json> {
    let mut converter = Converter::new(document, Way::In);
    let (mut properties, mut required) = (Map::new(), Vec::new());
    let mut together = Vec::new();
    for param in plan.params.iter().filter(|param| !is_frozen(&param.arg)) {
        let schema = converter.convert(param.schema.node(document));
        properties.insert(param.arg.clone(), described(schema, &param.description));
        if param.required {
            required.push(json!(param.arg));
        }
    }
    if let Some(body) = &plan.body {
        let mut fields = Vec::new();
        collect(document, body.schema.node(document), 0, &mut fields, &mut Vec::new());
        match given {
            Given::Fields(names) => {
                let named = |it: &&Field<'_>| names.iter().any(|name| name == it.name);
                for field in fields.iter().filter(named).filter(|it| !is_frozen(it.name)) {
                    let mut schema = converter.convert(field.node);
                    if body.files.iter().any(|it| it == field.name) {
                        let many =
                            document.resolve(field.node).is_ok_and(|it| it.json.has("items"));
                        schema = file(many, schema);
                    }
                    properties.insert(field.name.to_owned(), schema);
                    match (field.required, body.required) {
                        (true, true) => required.push(json!(field.name)),
                        (true, false) => together.push(json!(field.name)),
                        (false, _) => {}
                    }
                }
            }
            Given::Whole if !is_frozen("body") => {
                let whole = body.schema.node(document);
                let mut schema = converter.convert(match body.files.is_empty() {
                    true => whole,
                    // What has to be changed must not be behind a reference.
                    false => document.resolve(whole).unwrap_or(whole),
                });
                for name in &body.files {
                    if let Some(field) =
                        schema.pointer_mut("/properties").and_then(|it| it.get_mut(name))
                    {
                        let many = field["items"].is_object();
                        *field = file(many, field.take());
                    }
                }
                properties.insert("body".to_owned(), described(schema, &body.description));
                if body.required {
                    required.push(json!("body"));
                }
            }
            Given::Whole => {}
        }
        // A body that may be left out is left out as a whole.
        if !together.is_empty()
            && let Given::Fields(names) = given
        {
            let dependent: Map<String, Json> =
                names.iter().map(|name| (name.clone(), json!(together))).collect();
            return finish(converter, properties, required, Some(dependent));
        }
    }
    finish(converter, properties, required, None)
}

fn finish(
    converter: Converter<'_>,
    properties: Map<String, Json>,
    required: Vec<Json>,
    dependent: Option<Map<String, Json>>,
) -> Map<String, Json> {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Json::Object(properties));
    if !required.is_empty() {
        schema.insert("required".to_owned(), Json::Array(required));
    }
    if let Some(dependent) = dependent {
        schema.insert("dependentRequired".to_owned(), Json::Object(dependent));
    }
    schema.insert("additionalProperties".to_owned(), json!(false));
    let defs = converter.defs();
    if !defs.is_empty() {
        schema.insert("$defs".to_owned(), Json::Object(defs));
    }
    schema
}

/// A file: its bytes, or those with a name and a type.
fn file(many: bool, schema: Json) -> Json {
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
fn described(schema: Json, description: &str) -> Json {
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
pub(crate) fn body_of(args: &mut Object, given: &Given, required: bool) -> Option<Value> {
    match given {
        Given::Whole => args.shift_remove("body"),
        Given::Fields(names) => {
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
