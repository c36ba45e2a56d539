//! What Swagger 2.0 says differently: bodies and forms among the parameters,
//! types beside names, one address for everything.

use serde_json::{Map, Value as Json, json};

use super::body::{self, Kind};
use super::document::{Document, Node};
use super::parameter::{self, At, In, Param};
use super::style::{Style, Writing};
use super::tree::Branch;

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
        match node.json.text("in") {
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
    let name = node.json.text("name");
    let place = parameter::place(node.json.text("in"), name)?;
    let (style, explode) = match (node.json.text("collectionFormat"), place) {
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
        required: place == In::Path || node.json.says("required"),
        description: node.json.text("description").trim().to_owned(),
        schema: match node.json.get("schema") {
            Some(json) => At::of(Node { json, ..node }),
            None => At::made(&schema(node.json), node.file),
        },
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
        required: node.json.says("required"),
        description: node.json.text("description").trim().to_owned(),
        schema: match node.json.get("schema") {
            Some(json) => At::of(Node { json, ..node }),
            None => At::any(),
        },
        encoding: None,
        files: Vec::new(),
    }
}

fn form_body(document: &Document, operation: Node<'_>, fields: &[Node<'_>]) -> body::Plan {
    let has_file = fields.iter().any(|node| node.json.text("type") == "file");
    let multipart = |it: &String| body::kind(it) == Kind::Multipart;
    let kind = match has_file || consumes(document, operation).iter().any(multipart) {
        true => Kind::Multipart,
        false => Kind::Form,
    };
    let mut properties = Map::new();
    let mut required = Vec::new();
    for node in fields {
        let name = node.json.text("name");
        if node.json.says("required") {
            required.push(json!(name));
        }
        properties.insert(name.to_owned(), schema(node.json));
    }
    let media = match kind {
        Kind::Multipart => "multipart/form-data",
        _ => "application/x-www-form-urlencoded",
    };
    let schema = At::made(
        &json!({"type": "object", "properties": properties, "required": required}),
        fields.first().map_or("", |node| node.file),
    );
    body::Plan {
        kind,
        media: media.to_owned(),
        required: !required.is_empty(),
        description: String::new(),
        files: match kind {
            Kind::Multipart => body::files(document, schema.node(document)),
            _ => Vec::new(),
        },
        schema,
        encoding: None,
    }
}

fn consumes(document: &Document, operation: Node<'_>) -> Vec<String> {
    let list = operation.json.get("consumes").or_else(|| document.root().json.get("consumes"));
    let items = list.into_iter().flat_map(Branch::items);
    items.filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

/// The type that stands beside the name.
fn schema(param: Branch<'_>) -> Json {
    const BESIDE: [&str; 5] = ["name", "in", "required", "collectionFormat", "allowEmptyValue"];
    if let Some(schema) = param.get("schema") {
        return schema.to_json();
    }
    let kept = param.fields().filter(|(key, _)| !BESIDE.contains(key));
    Json::Object(kept.map(|(key, it)| (key.to_owned(), it.to_json())).collect())
}

/// `schemes`, `host` and `basePath` as servers of OpenAPI 3.
pub(crate) fn servers(root: Branch<'_>) -> Json {
    let base = root.text("basePath");
    let base = if base.is_empty() { "/" } else { base };
    let host = root.text("host");
    if host.is_empty() {
        return json!([{ "url": base }]);
    }
    let schemes = || root.get("schemes").into_iter().flat_map(Branch::items);
    let has = |name: &str| schemes().any(|scheme| scheme == name);
    let scheme = if has("http") && !has("https") { "http" } else { "https" };
    json!([{ "url": format!("{scheme}://{host}{base}") }])
}

/// The type of what an operation answers with.
pub(crate) fn produces<'a>(document: &'a Document, operation: Node<'a>) -> &'a str {
    let list = operation.json.get("produces").or_else(|| document.root().json.get("produces"));
    let items = list.into_iter().flat_map(Branch::items).filter_map(Branch::as_str);
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
