//! The parameters of an operation: where each goes and how it is written.

use std::collections::HashSet;

use serde_json::{Value as Json, json};

use super::document::{Document, Node};
use super::style::{Style, Writing};

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

/// A schema: where it is, or what it says.
#[derive(Debug, Clone)]
pub(crate) struct At {
    pub(crate) json: Json,
    pub(crate) file: String,
}

impl At {
    pub(crate) fn of(node: Node<'_>) -> At {
        At { json: node.json.clone(), file: node.file.to_owned() }
    }

    pub(crate) fn node(&self) -> Node<'_> {
        Node { json: &self.json, file: &self.file }
    }

    fn any() -> At {
        At { json: json!({}), file: String::new() }
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
        let list = node.json.get("parameters").and_then(Json::as_array);
        for json in list.into_iter().flatten() {
            let param = document.resolve(Node { json, ..node })?;
            let text = |key: &str| param.json.get(key).and_then(Json::as_str).unwrap_or_default();
            // The same parameter twice is the nearer one.
            if known.insert((text("name").to_owned(), text("in").to_owned())) {
                found.push(param);
            }
        }
    }
    Ok(found)
}

pub(crate) fn read(document: &Document, node: Node<'_>) -> Result<Param, String> {
    let text = |key: &str| node.json.get(key).and_then(Json::as_str).unwrap_or_default();
    let name = text("name");
    let place = place(text("in"), name)?;
    let content =
        node.json.get("content").and_then(Json::as_object).and_then(|it| it.iter().next());
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
        required: place == In::Path || node.json.get("required") == Some(&Json::Bool(true)),
        description: text("description").trim().to_owned(),
        schema,
        writing: Writing {
            style,
            explode: node.json.get("explode").and_then(Json::as_bool).unwrap_or(exploded),
            reserved: node.json.get("allowReserved") == Some(&Json::Bool(true)),
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

/// Headers that the request itself decides, whatever the document says.
const OURS: [&str; 3] = ["accept", "content-type", "authorization"];

/// See to it that every `{name}` of the path has a parameter, and that there
/// are no others.
pub(crate) fn complete(path: &str, params: &mut Vec<Param>) {
    let names: Vec<&str> = placeholders(path).collect();
    params.retain(|param| match param.place {
        In::Path => names.contains(&param.name.as_str()),
        In::Header => !OURS.contains(&param.name.to_ascii_lowercase().as_str()),
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
                schema: At { json: json!({"type": "string"}), file: String::new() },
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
