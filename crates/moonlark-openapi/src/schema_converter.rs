//! Schemas of OpenAPI as JSON Schemas that stand by themselves.
//!
//! What a schema refers to comes along as `$defs`, up to a size that a person
//! or a model would still read; beyond that anything is allowed. Dialects
//! (`nullable`, `exclusiveMinimum: true`, `readOnly` …) become plain JSON
//! Schema.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value as Json, json};

use crate::document_tree::TreeNode;
use crate::openapi_document::OpenApiDocument;
use moonlark_core::catalog::numbered_until_free;
use moonlark_core::foreign_text::clean_json_text;

/// About how many bytes of schema one tool may have.
const MAX_TOOL_SCHEMA_BYTES: usize = 128 * 1024;
/// How deep a schema may nest without a `$ref`.
const MAX_SCHEMA_DEPTH: usize = 48;

/// Which way the values go: some fields are for one way only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenApiSchemaDirection {
    In,
    Out,
}

pub(crate) struct OpenApiSchemaConverter<'a> {
    document: &'a OpenApiDocument,
    way: OpenApiSchemaDirection,
    left: usize,
    names: HashMap<(String, String), String>,
    taken: HashSet<String>,
    queue: VecDeque<(String, TreeNode<'a>)>,
    defs: Map<String, Json>,
}

impl<'a> OpenApiSchemaConverter<'a> {
    pub(crate) fn new(document: &'a OpenApiDocument, way: OpenApiSchemaDirection) -> Self {
        Self {
            document,
            way,
            left: MAX_TOOL_SCHEMA_BYTES,
            names: HashMap::new(),
            taken: HashSet::new(),
            queue: VecDeque::new(),
            defs: Map::new(),
        }
    }

    pub(crate) fn convert_schema(&mut self, node: TreeNode<'a>) -> Json {
        self.convert_node(node, 0)
    }

    /// Give a schema what the converted ones in it refer to.
    pub(crate) fn add_defs(mut self, schema: &mut Map<String, Json>) {
        while let Some((name, node)) = self.queue.pop_front() {
            let definition = if self.left == 0 { json!({}) } else { self.convert_node(node, 0) };
            self.defs.insert(name, definition);
        }
        if !self.defs.is_empty() {
            schema.insert("$defs".to_owned(), Json::Object(self.defs));
        }
    }

    fn convert_node(&mut self, node: TreeNode<'a>, depth: usize) -> Json {
        if let Some(flag) = node.as_bool() {
            return Json::Bool(flag);
        }
        if !node.is_object() || depth > MAX_SCHEMA_DEPTH || self.left == 0 {
            return json!({});
        }
        if node.has_field("$ref") {
            return self.convert_reference(node, depth);
        }
        self.left = self.left.saturating_sub(32);
        let schema = self.convert_keywords(node, depth);
        if node.is_field_true("nullable") {
            return allow_null(schema);
        }
        Json::Object(schema)
    }

    fn convert_keywords(&mut self, node: TreeNode<'a>, depth: usize) -> Map<String, Json> {
        let mut schema = Map::new();
        for (key, keyword) in node.fields() {
            if let Some(json) = self.convert_keyword(key, keyword, node, depth) {
                schema.insert(key.to_owned(), json);
            }
        }
        convert_bounds(node, &mut schema);
        self.remove_other_way_fields(node, &mut schema);
        schema
    }

    /// A `$ref` with what stands beside it, which counts since 3.1 and was meant
    /// to before.
    fn convert_reference(&mut self, node: TreeNode<'a>, depth: usize) -> Json {
        let mut target = self.register_reference(node);
        if let Some(text) = node.get("description").and_then(TreeNode::as_str) {
            self.spend_bytes(text.len());
            target["description"] = clean_json_text(text.trim());
        }
        if !has_sibling_keywords(node) {
            return target;
        }
        let mut rest = self.convert_keywords(node, depth);
        rest.remove("description");
        let both = if rest.is_empty() { target } else { json!({"allOf": [target, rest]}) };
        if node.is_field_true("nullable") {
            json!({"anyOf": [both, {"type": "null"}]})
        } else {
            both
        }
    }

    /// A keyword as JSON Schema has it; none if it has not.
    fn convert_keyword(
        &mut self,
        key: &str,
        json: TreeNode<'a>,
        beside: TreeNode<'a>,
        depth: usize,
    ) -> Option<Json> {
        match key {
            "type" => convert_type(json),
            "items" | "additionalProperties" | "not" | "contains" | "propertyNames" => {
                let is_schema = json.is_object() || json.as_bool().is_some();
                is_schema.then(|| self.convert_node(json, depth + 1))
            }
            "properties" | "patternProperties" => {
                let each = json.fields().map(|(name, json)| {
                    self.spend_bytes(name.len());
                    (name.to_owned(), self.convert_node(json, depth + 1))
                });
                json.is_object().then(|| Json::Object(each.collect()))
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                let each: Vec<Json> =
                    json.items().map(|it| self.convert_node(it, depth + 1)).collect();
                (!each.is_empty()).then_some(Json::Array(each))
            }
            "required" => {
                let names: Vec<Json> =
                    json.items().filter_map(TreeNode::as_str).map(|it| json!(it)).collect();
                (!names.is_empty()).then_some(Json::Array(names))
            }
            "enum" => {
                self.spend_bytes(json.items().map(|it| it.as_str().map_or(8, str::len)).sum());
                (json.is_array() && !json.is_empty()).then(|| json.to_json())
            }
            "description" | "title" => {
                let text = json.as_str()?.trim();
                self.spend_bytes(text.len());
                (!text.is_empty()).then(|| clean_json_text(text))
            }
            "pattern" => json.as_str().filter(|it| is_supported_pattern(it)).map(|it| json!(it)),
            "const" | "format" | "contentMediaType" | "contentEncoding" => Some(json.to_json()),
            "default" => beside.has_field("type").then(|| json.to_json()),
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties"
            | "maxProperties" => json.as_number()?.as_u64().map(|it| json!(it)),
            "uniqueItems" | "deprecated" => json.as_bool().map(|it| json!(it)),
            "multipleOf" => {
                json.as_number()?.as_f64().filter(|it| *it > 0.0).map(|_| json.to_json())
            }
            _ => None,
        }
    }

    fn register_reference(&mut self, node: TreeNode<'a>) -> Json {
        let Some((reference, target)) = self.document.follow_reference(node) else {
            return json!({});
        };
        let key = (node.tree.address.clone(), reference.to_owned());
        let name = match self.names.get(&key) {
            Some(name) => name.clone(),
            None => {
                let name = self.take_free_name(reference);
                self.names.insert(key, name.clone());
                self.queue.push_back((name.clone(), target));
                name
            }
        };
        json!({"$ref": format!("#/$defs/{name}")})
    }

    /// The last part of a reference that could be somebody's name.
    fn take_free_name(&mut self, reference: &str) -> String {
        let plain = |part: &str| -> String {
            let part = part.replace("~1", "_").replace("~0", "_");
            part.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '_' }).collect()
        };
        let last = reference.trim_end_matches('/').rsplit(['/', '#']).find(|it| !it.is_empty());
        let name = plain(last.unwrap_or("Schema"));
        let free = numbered_until_free(&name, |name| self.taken.contains(name));
        self.taken.insert(free.clone());
        free
    }

    /// Leave out the fields that only go the other way.
    fn remove_other_way_fields(&self, node: TreeNode<'a>, schema: &mut Map<String, Json>) {
        let mark = if self.way == OpenApiSchemaDirection::In { "readOnly" } else { "writeOnly" };
        let others: Vec<&str> = node
            .object_fields("properties")
            .filter(|(_, field)| is_marked(self.document, *field, mark))
            .map(|(name, _)| name)
            .collect();
        if others.is_empty() {
            return;
        }
        if let Some(Json::Object(properties)) = schema.get_mut("properties") {
            properties.retain(|name, _| !others.contains(&name.as_str()));
        }
        if let Some(Json::Array(required)) = schema.get_mut("required") {
            required.retain(|name| !others.iter().any(|other| name == other));
        }
    }

    fn spend_bytes(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes + 8);
    }
}

/// Whether a `$ref` has something beside it that values are held to.
pub(crate) fn has_sibling_keywords(schema: TreeNode<'_>) -> bool {
    const SIBLING_KEYWORDS: [&str; 9] = [
        "properties",
        "required",
        "allOf",
        "anyOf",
        "oneOf",
        "enum",
        "const",
        "items",
        "additionalProperties",
    ];
    schema.is_field_true("nullable") || SIBLING_KEYWORDS.iter().any(|key| schema.has_field(key))
}

pub(crate) fn is_marked(document: &OpenApiDocument, node: TreeNode<'_>, mark: &str) -> bool {
    node.is_field_true(mark)
        || document.resolve_node(node).is_ok_and(|target| target.is_field_true(mark))
}

/// The types that JSON Schema knows.
fn convert_type(json: TreeNode<'_>) -> Option<Json> {
    const KNOWN_TYPES: [&str; 7] =
        ["string", "number", "integer", "boolean", "array", "object", "null"];
    let known = |it: TreeNode<'_>| -> Option<Json> {
        match it.as_str()? {
            "file" | "binary" => Some(json!("string")),
            word => {
                let word = word.to_ascii_lowercase();
                KNOWN_TYPES.contains(&word.as_str()).then(|| json!(word))
            }
        }
    };
    if !json.is_array() {
        return known(json);
    }
    let mut kept: Vec<Json> = Vec::new();
    for kind in json.items().filter_map(known) {
        if !kept.contains(&kind) {
            kept.push(kind);
        }
    }
    (!kept.is_empty()).then_some(Json::Array(kept))
}

/// `minimum` with `exclusiveMinimum: true`, as it was in 3.0, and its siblings.
fn convert_bounds(fields: TreeNode<'_>, schema: &mut Map<String, Json>) {
    for (plain, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        let number = |key: &str| fields.get(key).and_then(TreeNode::as_number).map(Json::Number);
        match number(plain) {
            Some(limit) if fields.is_field_true(exclusive) => {
                schema.insert(exclusive.to_owned(), limit);
                continue;
            }
            Some(limit) => drop(schema.insert(plain.to_owned(), limit)),
            None => {}
        }
        if let Some(limit) = number(exclusive) {
            schema.insert(exclusive.to_owned(), limit);
        }
    }
}

/// Allow null beside what is allowed already.
fn allow_null(mut schema: Map<String, Json>) -> Json {
    if let Some(Json::Array(options)) = schema.get_mut("enum")
        && !options.contains(&Json::Null)
    {
        options.push(Json::Null);
    }
    let composed = ["allOf", "anyOf", "oneOf"].iter().any(|it| schema.contains_key(*it));
    match schema.get_mut("type") {
        Some(Json::Array(kinds)) => {
            if !kinds.contains(&json!("null")) {
                kinds.push(json!("null"));
            }
            Json::Object(schema)
        }
        Some(kind) => {
            *kind = json!([kind.clone(), "null"]);
            Json::Object(schema)
        }
        None if composed => {
            json!({"anyOf": [schema, {"type": "null"}]})
        }
        None => Json::Object(schema),
    }
}

/// Patterns are of another language than ours; those we cannot read are not
/// checked.
fn is_supported_pattern(pattern: &str) -> bool {
    pattern.len() < 2000 && regex::Regex::new(pattern).is_ok()
}
