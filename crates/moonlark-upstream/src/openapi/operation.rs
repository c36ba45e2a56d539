//! One operation of a document: what it is called, and what a call of it needs.
//!
//! Schemas are not read here, only found: see [`super::schema`].

use http::Method;
use moonlark_core::tool::Effects;
use serde_json::Value as Json;

use super::document::{Document, Node};
use super::input::{self, Given};
use super::parameter::{self, At, In, Param};
use super::tree::Branch;
use super::{body, swagger};

/// What stands under a path beside methods.
const METHODS: [&str; 9] =
    ["get", "put", "post", "delete", "options", "head", "patch", "trace", "query"];

/// An operation as it is found when a document is read. There may be thousands
/// of which a few are called: what a call needs is read again for it.
pub(crate) struct Operation {
    /// How the document names it, or the name made from method and path; with a
    /// number behind it where an earlier operation has that name.
    pub(crate) id: String,
    /// The same without a number.
    pub(crate) original_id: String,
    /// Whether it, or its path, says itself where it is.
    pub(crate) has_servers: bool,
    pub(crate) method: Method,
    /// With `{name}` where parameters go.
    pub(crate) path: String,
    /// Its name under the path.
    key: String,
    pub(crate) description: String,
    pub(crate) tags: Vec<String>,
}

/// What a call needs to know.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) params: Vec<Param>,
    pub(crate) body: Option<body::Plan>,
    /// The servers it names itself.
    pub(crate) servers: Option<Json>,
    pub(crate) security: Option<At>,
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
    let paths = root.json.get("paths");
    for (path, item) in paths.into_iter().flat_map(Branch::fields) {
        // Fields of the specification's own, and of vendors.
        if !path.starts_with('/') {
            continue;
        }
        let item = match document.resolve(Node { json: item, ..root }) {
            Ok(item) => item,
            Err(why) => {
                skipped.push(Skipped { operation: path.to_owned(), why });
                continue;
            }
        };
        let own = item.json.fields().filter_map(|(key, json)| {
            let method = METHODS.iter().find(|method| key.eq_ignore_ascii_case(method))?;
            Some(((*method).to_owned(), key, json))
        });
        let additional = item.json.get("additionalOperations");
        let additional = additional.into_iter().flat_map(Branch::fields);
        let more = additional.map(|(method, json)| (method.to_owned(), method, json));
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
    let text = |key: &str| node.json.text(key).trim();
    let token = Method::from_bytes(method.to_uppercase().as_bytes())
        .map_err(|_| "its method is no word".to_owned())?;
    // Whether it can be called.
    let plan = plan(document, path, item, node)?;
    let id = match text("operationId") {
        "" => made_up(method, path),
        id => id.to_owned(),
    };
    Ok(Operation {
        original_id: id.clone(),
        id,
        has_servers: plan.servers.is_some(),
        method: token,
        path: path.to_owned(),
        key: key.to_owned(),
        description: with_body(
            describe(text("summary"), text("description"), node.json),
            document,
            &plan,
        ),
        tags: strings(node.json.get("tags")),
    })
}

fn plan(document: &Document, path: &str, item: Node<'_>, node: Node<'_>) -> Result<Plan, String> {
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
    Ok(Plan {
        params,
        body,
        servers: own_or_items(node, item, "servers"),
        security: node.json.get("security").map(|json| At::of(Node { json, ..node })),
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

    /// What a call of it needs.
    pub(crate) fn plan(&self, document: &Document) -> Plan {
        let (item, node) = self.place(document).unwrap_or((document.root(), document.root()));
        // It was read before, and the document has not changed.
        plan(document, &self.path, item, node).unwrap_or_default()
    }

    /// Where it is in its document.
    pub(crate) fn node<'a>(&self, document: &'a Document) -> Option<Node<'a>> {
        self.place(document).map(|(_, node)| node)
    }

    /// The same, after the path that it is under.
    fn place<'a>(&self, document: &'a Document) -> Option<(Node<'a>, Node<'a>)> {
        let root = document.root();
        let item = root.json.get("paths")?.get(&self.path)?;
        let item = document.resolve(Node { json: item, ..root }).ok()?;
        let own = item.json.get(&self.key);
        let more = || item.json.get("additionalOperations")?.get(&self.key);
        Some((item, Node { json: own.or_else(more)?, ..item }))
    }
}

impl Plan {
    pub(crate) fn params_in(&self, place: In) -> impl Iterator<Item = &Param> {
        self.params.iter().filter(move |param| param.place == place)
    }
}

fn own_or_items(node: Node<'_>, item: Node<'_>, key: &str) -> Option<Json> {
    let listed = [node, item].into_iter().filter_map(|it| it.json.get(key));
    let mut listed = listed.filter(|it| it.is_array() && !it.is_empty());
    listed.next().map(Branch::to_json)
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
fn describe(summary: &str, description: &str, node: Branch<'_>) -> String {
    let same = description.starts_with(summary.trim_end_matches('.'));
    let mut text = match (summary, description) {
        ("", text) | (text, "") => text.to_owned(),
        (_, description) if same => description.to_owned(),
        (summary, description) => format!("{summary}\n\n{description}"),
    };
    if node.says("deprecated") {
        text = format!("Deprecated. {text}").trim_end().to_owned();
    }
    text
}

/// With what is said about a body whose fields stand among the parameters: nothing
/// else would say it.
fn with_body(description: String, document: &Document, plan: &Plan) -> String {
    let Some(body) = plan.body.as_ref().map(|body| body.description.as_str()) else {
        return description;
    };
    let says_it = description.contains(body.trim_end_matches('.'));
    if body.is_empty() || says_it || input::given(document, plan) == Given::Whole {
        return description;
    }
    format!("{description}\n\nBody: {body}").trim_start().to_owned()
}

fn strings(list: Option<Branch<'_>>) -> Vec<String> {
    let items = list.into_iter().flat_map(Branch::items);
    items.filter_map(|it| it.as_str().map(str::to_owned)).collect()
}
