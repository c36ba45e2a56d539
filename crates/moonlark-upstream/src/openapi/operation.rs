//! One operation of a document: what it is called, and what a call of it needs.
//!
//! Schemas are not read here, only found: see [`super::schema`].

use http::Method;
use moonlark_core::tool::Effects;
use serde_json::Value as Json;

use super::document::{Document, Node};
use super::parameter::{self, In, Param};
use super::{body, swagger};

/// What stands under a path beside methods.
const METHODS: [&str; 9] =
    ["get", "put", "post", "delete", "options", "head", "patch", "trace", "query"];

/// An operation as it is found when a document is read.
pub(crate) struct Operation {
    /// How the document names it, or the name made from method and path.
    pub(crate) id: String,
    pub(crate) method: Method,
    /// With `{name}` where parameters go.
    pub(crate) path: String,
    pub(crate) description: String,
    pub(crate) tags: Vec<String>,
    pub(crate) plan: Plan,
}

/// What a call needs to know.
pub(crate) struct Plan {
    pub(crate) params: Vec<Param>,
    pub(crate) body: Option<body::Plan>,
    /// Where the responses are, for those that want to know the result's type.
    pub(crate) place: (String, String),
    /// The servers it names itself.
    pub(crate) servers: Option<Json>,
    pub(crate) security: Option<Json>,
}

/// An operation that cannot be called, and why.
#[derive(Debug, PartialEq)]
pub(crate) struct Skipped {
    pub(crate) operation: String,
    pub(crate) why: String,
}

/// All operations, in the order of the document.
pub(crate) fn all(document: &Document) -> (Vec<Operation>, Vec<Skipped>) {
    let (mut found, mut skipped) = (Vec::new(), Vec::new());
    let root = document.root();
    let paths = root.json.get("paths").and_then(Json::as_object);
    for (path, item) in paths.into_iter().flatten() {
        // Fields of the specification's own, and of vendors.
        if !path.starts_with('/') {
            continue;
        }
        let item = match document.resolve(Node { json: item, ..root }) {
            Ok(item) => item,
            Err(why) => {
                skipped.push(Skipped { operation: path.clone(), why });
                continue;
            }
        };
        let Some(fields) = item.json.as_object() else { continue };
        let own = fields.iter().filter_map(|(key, json)| {
            let method = METHODS.iter().find(|method| key.eq_ignore_ascii_case(method))?;
            Some(((*method).to_owned(), key.as_str(), json))
        });
        let additional = fields.get("additionalOperations").and_then(Json::as_object);
        let additional = additional.into_iter().flatten();
        let more = additional.map(|(method, json)| (method.clone(), method.as_str(), json));
        for (method, key, json) in own.chain(more) {
            let node = Node { json, ..item };
            match read(document, path, &method, key, item, node) {
                Ok(operation) => found.push(operation),
                Err(why) => {
                    let operation = format!("{} {path}", method.to_uppercase());
                    skipped.push(Skipped { operation, why });
                }
            }
        }
    }
    (found, skipped)
}

fn read(
    document: &Document,
    path: &str,
    method: &str,
    key: &str,
    item: Node<'_>,
    node: Node<'_>,
) -> Result<Operation, String> {
    if !node.json.is_object() {
        return Err("it is no object".to_owned());
    }
    let text = |key: &str| node.json.get(key).and_then(Json::as_str).unwrap_or_default().trim();
    let token = Method::from_bytes(method.to_uppercase().as_bytes())
        .map_err(|_| "its method is no word".to_owned())?;
    let listed = parameter::listed(document, item, node)?;
    let (mut params, body) = match document.swagger {
        true => swagger::parameters(document, node, listed)?,
        false => {
            let params: Result<Vec<Param>, String> =
                listed.into_iter().map(|it| parameter::read(document, it)).collect();
            (params?, body::read(document, node)?)
        }
    };
    parameter::complete(path, &mut params);
    parameter::name_apart(&mut params);
    let id = match text("operationId") {
        "" => made_up(method, path),
        id => id.to_owned(),
    };
    Ok(Operation {
        id,
        method: token,
        path: path.to_owned(),
        description: describe(text("summary"), text("description"), node.json),
        tags: strings(node.json.get("tags")),
        plan: Plan {
            params,
            body,
            place: (path.to_owned(), key.to_owned()),
            servers: own_or_items(node, item, "servers"),
            security: node.json.get("security").cloned(),
        },
    })
}

impl Operation {
    pub(crate) fn effects(&self) -> Effects {
        let method = self.method.as_str();
        let read_only = matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "QUERY");
        Effects {
            read_only,
            destructive: method == "DELETE",
            idempotent: read_only || matches!(method, "PUT" | "DELETE"),
            open_world: true,
        }
    }
}

impl Plan {
    pub(crate) fn params_in(&self, place: In) -> impl Iterator<Item = &Param> {
        self.params.iter().filter(move |param| param.place == place)
    }

    /// The operation in its document.
    pub(crate) fn node<'a>(&self, document: &'a Document) -> Option<Node<'a>> {
        let root = document.root();
        let item = root.json.get("paths")?.get(&self.place.0)?;
        let item = document.resolve(Node { json: item, ..root }).ok()?;
        let own = item.json.get(&self.place.1);
        let more = || item.json.get("additionalOperations")?.get(&self.place.1);
        Some(Node { json: own.or_else(more)?, ..item })
    }
}

fn own_or_items(node: Node<'_>, item: Node<'_>, key: &str) -> Option<Json> {
    let listed = |node: Node<'_>| node.json.get(key).filter(|it| !is_empty(it)).cloned();
    listed(node).or_else(|| listed(item))
}

fn is_empty(json: &Json) -> bool {
    json.as_array().is_none_or(Vec::is_empty)
}

/// `GET /pets/{id}/toys` as `get_pets_id_toys`.
fn made_up(method: &str, path: &str) -> String {
    let mut name = method.to_lowercase();
    for part in path.split(|it: char| !it.is_ascii_alphanumeric()).filter(|it| !it.is_empty()) {
        name.push('_');
        name.push_str(part);
    }
    name
}

/// The summary, then what the description says beyond it.
fn describe(summary: &str, description: &str, node: &Json) -> String {
    let same = description.starts_with(summary.trim_end_matches('.'));
    let mut text = match (summary, description) {
        ("", text) | (text, "") => text.to_owned(),
        (_, description) if same => description.to_owned(),
        (summary, description) => format!("{summary}\n\n{description}"),
    };
    if node.get("deprecated") == Some(&Json::Bool(true)) {
        text = format!("Deprecated. {text}").trim_end().to_owned();
    }
    text
}

fn strings(list: Option<&Json>) -> Vec<String> {
    let items = list.and_then(Json::as_array).into_iter().flatten();
    items.filter_map(|it| it.as_str().map(str::to_owned)).collect()
}
