//! The parameters of an operation: where each goes and how it is written.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::document_tree::{DocumentTree, TreeNode, TreeValue};
use crate::openapi_document::OpenApiDocument;
use crate::param_style::{ParamEncoding, ParamStyle};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ParamLocation {
    Path,
    Query,
    /// The whole query is one value.
    Querystring,
    Header,
    Cookie,
}

impl ParamLocation {
    pub(crate) fn location_name(self) -> &'static str {
        match self {
            ParamLocation::Path => "path",
            ParamLocation::Query => "query",
            ParamLocation::Querystring => "querystring",
            ParamLocation::Header => "header",
            ParamLocation::Cookie => "cookie",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct OperationParam {
    /// What callers give it as.
    pub(crate) arg: String,
    /// What the API calls it.
    pub(crate) name: String,
    pub(crate) place: ParamLocation,
    pub(crate) required: bool,
    pub(crate) description: String,
    pub(crate) schema: DocumentPart,
    pub(crate) writing: ParamEncoding,
}

/// A part of a document, or what would be one.
#[derive(Debug, Clone)]
pub(crate) enum DocumentPart {
    /// In the file at this address.
    There(String, TreeValue),
    Made(Arc<DocumentTree>),
}

impl DocumentPart {
    pub(crate) fn from_node(node: TreeNode<'_>) -> DocumentPart {
        DocumentPart::There(node.tree.address.clone(), node.value)
    }

    /// What the document only says in other words; its `$ref`s mean `file`.
    pub(crate) fn from_json(json: &Json, file: &str) -> DocumentPart {
        let mut tree = DocumentTree::from_json(json);
        tree.address = file.to_owned();
        DocumentPart::Made(Arc::new(tree))
    }

    /// The schema in a field of `node`; any value will do if there is none.
    pub(crate) fn schema_of(node: TreeNode<'_>) -> DocumentPart {
        let any = || DocumentPart::from_json(&json!({}), "");
        node.get("schema").map_or_else(any, DocumentPart::from_node)
    }

    pub(crate) fn to_node<'a>(&'a self, document: &'a OpenApiDocument) -> TreeNode<'a> {
        match self {
            DocumentPart::There(address, value) => document.node_in_file(address, *value),
            DocumentPart::Made(tree) => tree.root_node(),
        }
    }
}

/// The operation's own parameters and those of its path, its own first.
pub(crate) fn list_parameters<'a>(
    document: &'a OpenApiDocument,
    item: TreeNode<'a>,
    operation: TreeNode<'a>,
) -> Result<Vec<TreeNode<'a>>, String> {
    let mut found: Vec<TreeNode<'a>> = Vec::new();
    let mut known = HashSet::new();
    for node in [operation, item] {
        for param in node.list_items("parameters") {
            let param = document.resolve_node(param)?;
            // The same parameter twice is the nearer one.
            if known.insert((param.field_text("name"), param.field_text("in"))) {
                found.push(param);
            }
        }
    }
    Ok(found)
}

pub(crate) fn read_parameter(
    document: &OpenApiDocument,
    node: TreeNode<'_>,
) -> Result<OperationParam, String> {
    let place = parse_location(node)?;
    let content = node.get("content").and_then(|it| it.fields().next());
    let (holder, style) = match content.filter(|_| !node.has_field("schema")) {
        Some((kind, media)) => {
            let form = place == ParamLocation::Querystring && kind.contains("urlencoded");
            let style = if form { ParamStyle::Form } else { ParamStyle::Json };
            (document.resolve_node(media)?, style)
        }
        None => (node, parse_style(node.field_text("style"), place)),
    };
    let exploded = matches!(style, ParamStyle::Form | ParamStyle::DeepObject);
    let writing = ParamEncoding {
        style,
        explode: node.get("explode").and_then(TreeNode::as_bool).unwrap_or(exploded),
        reserved: node.is_field_true("allowReserved"),
    };
    Ok(OperationParam::new(node, place, DocumentPart::schema_of(holder), writing))
}

impl OperationParam {
    pub(crate) fn new(
        node: TreeNode<'_>,
        place: ParamLocation,
        schema: DocumentPart,
        writing: ParamEncoding,
    ) -> OperationParam {
        let name = node.field_text("name");
        OperationParam {
            arg: name.to_owned(),
            name: name.to_owned(),
            place,
            required: place == ParamLocation::Path || node.is_field_true("required"),
            description: node.field_text("description").trim().to_owned(),
            schema,
            writing,
        }
    }
}

/// Where a parameter goes, if it has a name.
pub(crate) fn parse_location(node: TreeNode<'_>) -> Result<ParamLocation, String> {
    let name = node.field_text("name");
    if name.is_empty() {
        return Err("a parameter has no name".to_owned());
    }
    Ok(match node.field_text("in") {
        "path" => ParamLocation::Path,
        "query" => ParamLocation::Query,
        "querystring" => ParamLocation::Querystring,
        "header" => ParamLocation::Header,
        "cookie" => ParamLocation::Cookie,
        "" => return Err(format!("parameter '{name}' does not say where it goes")),
        other => {
            return Err(format!(
                "parameter '{name}' goes into '{other}', which is not a parameter location"
            ));
        }
    })
}

/// A style that the place does not have is the place's usual one.
fn parse_style(word: &str, place: ParamLocation) -> ParamStyle {
    match (word, place) {
        ("label", ParamLocation::Path) => ParamStyle::Label,
        ("matrix", ParamLocation::Path) => ParamStyle::Matrix,
        ("spaceDelimited", ParamLocation::Query) => ParamStyle::Delimited(' '),
        ("pipeDelimited", ParamLocation::Query) => ParamStyle::Delimited('|'),
        ("deepObject", ParamLocation::Query) => ParamStyle::DeepObject,
        (_, ParamLocation::Path | ParamLocation::Header) => ParamStyle::Simple,
        _ => ParamStyle::Form,
    }
}

/// Headers that the request itself or its connection decides, whatever the
/// document says.
const RESERVED_HEADERS: [&str; 18] = [
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
    RESERVED_HEADERS.iter().any(|ours| name.eq_ignore_ascii_case(ours))
}

/// See to it that every `{name}` of the path has a parameter, and that there
/// are no others.
pub(crate) fn complete_path_params(path: &str, params: &mut Vec<OperationParam>) {
    let names: Vec<&str> = path_placeholders(path).collect();
    params.retain(|param| match param.place {
        ParamLocation::Path => names.contains(&param.name.as_str()),
        ParamLocation::Header => !is_reserved_header(&param.name),
        _ => true,
    });
    for name in names {
        if !params.iter().any(|param| param.place == ParamLocation::Path && param.name == name) {
            params.push(OperationParam {
                arg: name.to_owned(),
                name: name.to_owned(),
                place: ParamLocation::Path,
                required: true,
                description: String::new(),
                schema: DocumentPart::from_json(&json!({"type": "string"}), ""),
                writing: ParamEncoding {
                    style: ParamStyle::Simple,
                    explode: false,
                    reserved: false,
                },
            });
        }
    }
}

/// The names between braces.
pub(crate) fn path_placeholders(path: &str) -> impl Iterator<Item = &str> {
    path.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
}

/// One table has one place for each name: of two parameters with the same, the
/// later says in its name where it goes.
pub(crate) fn make_argument_names_unique(params: &mut [OperationParam]) {
    let mut taken: HashSet<String> = HashSet::new();
    for param in params {
        if taken.contains(&param.arg) {
            param.arg = format!("{}_{}", param.name, param.place.location_name());
        }
        taken.insert(param.arg.clone());
    }
}
