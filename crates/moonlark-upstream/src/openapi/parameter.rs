//! The parameters of an operation: where each goes and how it is written.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::document::{Document, Node};
use super::style::{Style, Writing};
use super::tree::{Branch, Tree, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum In {
    Path,
    Query,
    /// The whole query is one value.
    Querystring,
    Header,
    Cookie,
}

impl In {
    pub(crate) fn word(self) -> &'static str {
        match self {
            In::Path => "path",
            In::Query => "query",
            In::Querystring => "querystring",
            In::Header => "header",
            In::Cookie => "cookie",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Param {
    /// What callers give it as.
    pub(crate) arg: String,
    /// What the API calls it.
    pub(crate) name: String,
    pub(crate) place: In,
    pub(crate) required: bool,
    pub(crate) description: String,
    pub(crate) schema: At,
    pub(crate) writing: Writing,
}

/// A part of a document, or what would be one; its `$ref`s mean `file`.
#[derive(Debug, Clone)]
pub(crate) struct At {
    what: What,
    file: String,
}

#[derive(Debug, Clone)]
enum What {
    There(Value),
    Made(Arc<Tree>),
}

impl At {
    pub(crate) fn of(node: Node<'_>) -> At {
        At { what: What::There(node.json.value), file: node.file.to_owned() }
    }

    /// What the document only says in other words.
    pub(crate) fn made(json: &Json, file: &str) -> At {
        At { what: What::Made(Arc::new(Tree::of(json))), file: file.to_owned() }
    }

    pub(crate) fn any() -> At {
        At::made(&json!({}), "")
    }

    pub(crate) fn node<'a>(&'a self, document: &'a Document) -> Node<'a> {
        match &self.what {
            What::There(value) => document.node(&self.file, *value),
            What::Made(tree) => Node { json: tree.root(), file: &self.file },
        }
    }
}

/// The operation's own parameters and those of its path, its own first.
pub(crate) fn listed<'a>(
    document: &'a Document,
    item: Node<'a>,
    operation: Node<'a>,
) -> Result<Vec<Node<'a>>, String> {
    let mut found: Vec<Node<'a>> = Vec::new();
    let mut known = HashSet::new();
    for node in [operation, item] {
        let list = node.json.get("parameters");
        for json in list.into_iter().flat_map(Branch::items) {
            let param = document.resolve(Node { json, ..node })?;
            // The same parameter twice is the nearer one.
            if known.insert((param.json.text("name"), param.json.text("in"))) {
                found.push(param);
            }
        }
    }
    Ok(found)
}

pub(crate) fn read(document: &Document, node: Node<'_>) -> Result<Param, String> {
    let text = |key: &str| node.json.text(key);
    let name = text("name");
    let place = place(text("in"), name)?;
    let content = node.json.get("content").and_then(|it| it.fields().next());
    let (schema, style) = match (node.json.get("schema"), content) {
        (Some(json), _) => (At::of(Node { json, ..node }), style(text("style"), place)),
        (None, Some((kind, media))) => {
            let media = document.resolve(Node { json: media, ..node })?;
            let schema = media.json.get("schema").map(|json| At::of(Node { json, ..media }));
            let form = place == In::Querystring && kind.contains("urlencoded");
            let style = if form { Style::Form } else { Style::Json };
            (schema.unwrap_or_else(At::any), style)
        }
        (None, None) => (At::any(), style(text("style"), place)),
    };
    let exploded = matches!(style, Style::Form | Style::DeepObject);
    Ok(Param {
        arg: name.to_owned(),
        name: name.to_owned(),
        place,
        required: place == In::Path || node.json.says("required"),
        description: text("description").trim().to_owned(),
        schema,
        writing: Writing {
            style,
            explode: node.json.get("explode").and_then(Branch::as_bool).unwrap_or(exploded),
            reserved: node.json.says("allowReserved"),
        },
    })
}

pub(crate) fn place(word: &str, name: &str) -> Result<In, String> {
    if name.is_empty() {
        return Err("a parameter has no name".to_owned());
    }
    Ok(match word {
        "path" => In::Path,
        "query" => In::Query,
        "querystring" => In::Querystring,
        "header" => In::Header,
        "cookie" => In::Cookie,
        "" => return Err(format!("parameter '{name}' does not say where it goes")),
        other => return Err(format!("parameter '{name}' goes into '{other}', which is no place")),
    })
}

/// A style that the place does not have is the place's usual one.
fn style(word: &str, place: In) -> Style {
    match (word, place) {
        ("label", In::Path) => Style::Label,
        ("matrix", In::Path) => Style::Matrix,
        ("spaceDelimited", In::Query) => Style::Delimited(' '),
        ("pipeDelimited", In::Query) => Style::Delimited('|'),
        ("deepObject", In::Query) => Style::DeepObject,
        (_, In::Path | In::Header) => Style::Simple,
        _ => Style::Form,
    }
}

/// Headers that the request itself or its connection decides, whatever the
/// document says.
const OURS: [&str; 18] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether a header is not for a document to name.
pub(crate) fn is_reserved_header(name: &str) -> bool {
    OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours))
}

/// See to it that every `{name}` of the path has a parameter, and that there
/// are no others.
pub(crate) fn complete(path: &str, params: &mut Vec<Param>) {
    let names: Vec<&str> = placeholders(path).collect();
    params.retain(|param| match param.place {
        In::Path => names.contains(&param.name.as_str()),
        In::Header => !is_reserved_header(&param.name),
        _ => true,
    });
    for name in names {
        if !params.iter().any(|param| param.place == In::Path && param.name == name) {
            params.push(Param {
                arg: name.to_owned(),
                name: name.to_owned(),
                place: In::Path,
                required: true,
                description: String::new(),
                schema: At::made(&json!({"type": "string"}), ""),
                writing: Writing { style: Style::Simple, explode: false, reserved: false },
            });
        }
    }
}

/// The names between braces.
pub(crate) fn placeholders(path: &str) -> impl Iterator<Item = &str> {
    path.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
}

/// One table has one place for each name: of two parameters with the same, the
/// later says in its name where it goes.
pub(crate) fn name_apart(params: &mut [Param]) {
    let mut taken: HashSet<String> = HashSet::new();
    for param in params {
        if taken.contains(&param.arg) {
            param.arg = format!("{}_{}", param.name, param.place.word());
        }
        taken.insert(param.arg.clone());
    }
}
