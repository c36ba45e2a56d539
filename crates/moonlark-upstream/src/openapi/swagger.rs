//! What Swagger 2.0 says differently: bodies and forms among the parameters,
//! types beside names, one address for everything.

use serde_json::{Map, Value as Json, json};

use super::body::{self, Kind};
use super::document::{Document, Node};
use super::parameter::{self, At, In, Param};
use super::style::{Style, Writing};

/// The parameters, and the body that is made of some of them.
pub(crate) fn parameters(
    document: &Document,
    operation: Node<'_>,
    listed: Vec<Node<'_>>,
) -> Result<(Vec<Param>, Option<body::Plan>), String> {
    let mut params = Vec::new();
    let mut body = None;
    let mut form: Vec<Node<'_>> = Vec::new();
    for node in listed {
        match text(node.json, "in") {
            "body" => body = Some(whole_body(document, operation, node)),
            "formData" => form.push(node),
            _ => params.push(read(node)?),
        }
    }
    if body.is_none() && !form.is_empty() {
        body = Some(form_body(document, operation, &form));
    }
    Ok((params, body))
}

fn read(node: Node<'_>) -> Result<Param, String> {
    let name = text(node.json, "name");
    let place = parameter::place(text(node.json, "in"), name)?;
    let (style, explode) = match (text(node.json, "collectionFormat"), place) {
        ("ssv", In::Query) => (Style::Delimited(' '), false),
        ("tsv", In::Query) => (Style::Delimited('\t'), false),
        ("pipes", In::Query) => (Style::Delimited('|'), false),
        ("multi", In::Query) => (Style::Form, true),
        (_, In::Query | In::Querystring | In::Cookie) => (Style::Form, false),
        (_, In::Path | In::Header) => (Style::Simple, false),
    };
    Ok(Param {
        arg: name.to_owned(),
        name: name.to_owned(),
        place,
        required: place == In::Path || node.json.get("required") == Some(&Json::Bool(true)),
        description: text(node.json, "description").trim().to_owned(),
        schema: At { json: schema(node.json), file: node.file.to_owned() },
        writing: Writing { style, explode, reserved: false },
    })
}

fn whole_body(document: &Document, operation: Node<'_>, node: Node<'_>) -> body::Plan {
    let consumed = consumes(document, operation);
    let media = consumed.iter().find(|it| body::kind(it) == Kind::Json).or(consumed.first());
    let media = media.map_or("application/json", String::as_str);
    body::Plan {
        kind: body::kind(media),
        media: media.to_owned(),
        required: node.json.get("required") == Some(&Json::Bool(true)),
        description: text(node.json, "description").trim().to_owned(),
        schema: node.json.get("schema").map_or_else(
            || At { json: json!({}), file: String::new() },
            |json| At::of(Node { json, ..node }),
        ),
        encoding: None,
        files: Vec::new(),
    }
}

fn form_body(document: &Document, operation: Node<'_>, fields: &[Node<'_>]) -> body::Plan {
    let has_file = fields.iter().any(|node| text(node.json, "type") == "file");
    let multipart = |it: &String| body::kind(it) == Kind::Multipart;
    let kind = match has_file || consumes(document, operation).iter().any(multipart) {
        true => Kind::Multipart,
        false => Kind::Form,
    };
    let mut properties = Map::new();
    let mut required = Vec::new();
    for node in fields {
        let name = text(node.json, "name");
        if node.json.get("required") == Some(&Json::Bool(true)) {
            required.push(json!(name));
        }
        properties.insert(name.to_owned(), schema(node.json));
    }
    let media = match kind {
        Kind::Multipart => "multipart/form-data",
        _ => "application/x-www-form-urlencoded",
    };
    let schema = At {
        json: json!({"type": "object", "properties": properties, "required": required}),
        file: fields.first().map_or("", |node| node.file).to_owned(),
    };
    body::Plan {
        kind,
        media: media.to_owned(),
        required: !required.is_empty(),
        description: String::new(),
        files: match kind {
            Kind::Multipart => body::files(document, schema.node()),
            _ => Vec::new(),
        },
        schema,
        encoding: None,
    }
}

fn consumes(document: &Document, operation: Node<'_>) -> Vec<String> {
    let list = operation.json.get("consumes").or_else(|| document.root().json.get("consumes"));
    let items = list.and_then(Json::as_array).into_iter().flatten();
    items.filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

/// The type that stands beside the name.
fn schema(param: &Json) -> Json {
    const BESIDE: [&str; 5] = ["name", "in", "required", "collectionFormat", "allowEmptyValue"];
    let Some(fields) = param.as_object() else { return json!({}) };
    if let Some(schema) = fields.get("schema") {
        return schema.clone();
    }
    let kept = fields.iter().filter(|(key, _)| !BESIDE.contains(&key.as_str()));
    Json::Object(kept.map(|(key, it)| (key.clone(), it.clone())).collect())
}

/// `schemes`, `host` and `basePath` as servers of OpenAPI 3.
pub(crate) fn servers(root: &Json) -> Json {
    let base = text(root, "basePath");
    let base = if base.is_empty() { "/" } else { base };
    let host = text(root, "host");
    if host.is_empty() {
        return json!([{ "url": base }]);
    }
    let schemes = root.get("schemes").and_then(Json::as_array);
    let has = |name: &str| schemes.is_some_and(|it| it.iter().any(|scheme| scheme == name));
    let scheme = if has("http") && !has("https") { "http" } else { "https" };
    json!([{ "url": format!("{scheme}://{host}{base}") }])
}

/// The type of what an operation answers with.
pub(crate) fn produces<'a>(document: &'a Document, operation: Node<'a>) -> &'a str {
    let list = operation.json.get("produces").or_else(|| document.root().json.get("produces"));
    let items = list.and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    let mut items = items.peekable();
    let first = items.peek().copied();
    items.find(|it| body::kind(it) == Kind::Json).or(first).unwrap_or("application/json")
}

/// A security definition as OpenAPI 3 would put it.
pub(crate) fn security(definition: &Json) -> Json {
    match text(definition, "type") {
        "basic" => json!({"type": "http", "scheme": "basic"}),
        "oauth2" => {
            let flow = match text(definition, "flow") {
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

fn text<'a>(json: &'a Json, key: &str) -> &'a str {
    json.get(key).and_then(Json::as_str).unwrap_or_default()
}
