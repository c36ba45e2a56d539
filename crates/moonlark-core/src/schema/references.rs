//! References within a schema, rewritten as JSON pointers from its root and resolved.
//!
//! The target of a `$ref` depends on the `$id` of the schema around it, the reference may be
//! percent-encoded, and it may name an anchor. [`place_references`] works that out once, when a
//! schema is loaded. All code that reads a schema then follows pointers with
//! [`resolve_reference`].

use std::collections::HashMap;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value as Json};
use url::Url;

use super::complexity::NAMED_SCHEMAS_KEYWORDS;
use super::step_budget::DATA_KEYWORDS;

/// The base address of a schema without an `$id`.
const DEFAULT_BASE_ADDRESS: &str = "json-schema:///";
const REFERENCE_KEYWORDS: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Characters that are percent-encoded in the fragment of an address.
const ESCAPED_IN_FRAGMENT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A schema, or a part of one.
#[derive(Clone, Copy)]
pub enum SchemaNode<'a> {
    Fields(&'a Map<String, Json>),
    /// `true`: any value fits; `false`: no value does.
    Flag(bool),
}

impl<'a> SchemaNode<'a> {
    pub fn from_json(json: &'a Json) -> SchemaNode<'a> {
        match json {
            Json::Object(fields) => SchemaNode::Fields(fields),
            json => SchemaNode::Flag(*json != Json::Bool(false)),
        }
    }

    pub fn fields(self) -> Option<&'a Map<String, Json>> {
        match self {
            SchemaNode::Fields(fields) => Some(fields),
            SchemaNode::Flag(_) => None,
        }
    }
}

/// The target of a reference such as `#/$defs/item` in the schema `root`, whose references are
/// pointers from it.
pub fn resolve_reference<'a>(
    root: &'a Map<String, Json>,
    reference: &str,
) -> Option<SchemaNode<'a>> {
    match reference.strip_prefix('#')? {
        "" => Some(SchemaNode::Fields(root)),
        pointer => pointer_spellings(pointer)
            .iter()
            .find_map(|pointer| find_part(root, pointer))
            .map(SchemaNode::from_json),
    }
}

/// The same for a root that is a JSON value.
pub fn find_referenced_json<'a>(root: &'a Json, reference: &str) -> Option<&'a Json> {
    let pointer = reference.strip_prefix('#')?;
    pointer_spellings(pointer).iter().find_map(|pointer| root.pointer(pointer))
}

/// The last key of a reference: `item` in `#/$defs/item`.
pub fn referenced_name(reference: &str) -> String {
    let [pointer, _] = pointer_spellings(reference);
    unescape_key(pointer.rsplit(['/', '#']).next().unwrap_or_default())
}

/// A pointer decoded, and as it is written, for schemas that do not encode it.
fn pointer_spellings(pointer: &str) -> [String; 2] {
    [percent_decode_str(pointer).decode_utf8_lossy().into_owned(), pointer.to_owned()]
}

fn find_part<'a>(root: &'a Map<String, Json>, pointer: &str) -> Option<&'a Json> {
    let (first, rest) = split_pointer(pointer)?;
    root.get(&first)?.pointer(rest)
}

/// The first key of a pointer, and the pointer from there on.
fn split_pointer(pointer: &str) -> Option<(String, &str)> {
    let pointer = pointer.strip_prefix('/')?;
    let (first, rest) = pointer.split_at(pointer.find('/').unwrap_or(pointer.len()));
    Some((unescape_key(first), rest))
}

/// A key of a JSON pointer as it stands in one.
pub(super) fn escape_key(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

pub(super) fn unescape_key(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// The same schema with each reference to a part of it as a pointer from the root. None where
/// all references are such pointers already.
pub(crate) fn place_references(schema: &Map<String, Json>) -> Option<Map<String, Json>> {
    let is_draft_4 =
        schema.get("$schema").and_then(Json::as_str).is_some_and(|it| it.contains("draft-04"));
    let id_keyword = if is_draft_4 { "id" } else { "$id" };
    if !schema
        .iter()
        .any(|(keyword, json)| is_address(keyword, json, "") || has_address(json, id_keyword))
    {
        return None;
    }
    let mut index = ReferenceIndex { id_keyword, ..ReferenceIndex::default() };
    index.visit_schema(schema, String::new(), &Url::parse(DEFAULT_BASE_ADDRESS).ok()?);
    let placed: Vec<(&FoundReference<'_>, String)> = index
        .references
        .iter()
        .filter_map(|found| Some((found, index.find_target(found, schema)?)))
        .filter(|(found, target)| found.keyword != "$ref" || found.reference != target)
        .collect();
    if placed.is_empty() {
        return None;
    }
    let mut made = schema.clone();
    for (found, target) in placed {
        if let Some(holder) = part_mut(&mut made, &found.holder) {
            if found.keyword != "$ref" {
                holder.shift_remove(found.keyword);
            }
            holder.insert("$ref".to_owned(), target.into());
        }
    }
    // The pointers would be relative to it.
    for place in index.identified.iter().filter(|place| !place.is_empty()) {
        if let Some(holder) = part_mut(&mut made, place) {
            holder.shift_remove(id_keyword);
        }
    }
    Some(made)
}

/// Whether there is a reference below `json` that is no plain pointer, or an `$id` that pointers
/// are relative to.
fn has_address(json: &Json, id_keyword: &str) -> bool {
    match json {
        Json::Object(fields) => fields.iter().any(|(keyword, json)| {
            is_address(keyword, json, id_keyword) || has_address(json, id_keyword)
        }),
        Json::Array(items) => items.iter().any(|item| has_address(item, id_keyword)),
        _ => false,
    }
}

fn is_address(keyword: &str, json: &Json, id_keyword: &str) -> bool {
    let Json::String(text) = json else { return false };
    let is_plain = text == "#" || (text.starts_with("#/") && !text.contains('%'));
    match keyword {
        "$ref" => !is_plain,
        keyword => keyword == id_keyword || REFERENCE_KEYWORDS.contains(&keyword),
    }
}

fn part_mut<'a>(
    root: &'a mut Map<String, Json>,
    pointer: &str,
) -> Option<&'a mut Map<String, Json>> {
    match split_pointer(pointer) {
        None => Some(root),
        Some((first, rest)) => root.get_mut(&first)?.pointer_mut(rest)?.as_object_mut(),
    }
}

/// The references of a schema and all that they can refer to. Places are pointers from the root.
#[derive(Default)]
struct ReferenceIndex<'a> {
    id_keyword: &'static str,
    /// The place of each address.
    resources: HashMap<String, String>,
    /// The place of each anchor, by address and name.
    anchors: HashMap<(String, String), String>,
    /// How many places have each dynamic anchor.
    dynamic_anchors: HashMap<&'a str, usize>,
    references: Vec<FoundReference<'a>>,
    /// The parts that have an address of their own.
    identified: Vec<String>,
}

struct FoundReference<'a> {
    holder: String,
    keyword: &'static str,
    reference: &'a str,
    base: Url,
}

impl<'a> ReferenceIndex<'a> {
    fn visit_schema(&mut self, fields: &'a Map<String, Json>, at: String, base: &Url) {
        let text = |keyword: &str| fields.get(keyword).and_then(Json::as_str);
        let mut base = base.clone();
        let id = text(self.id_keyword);
        // Drafts up to 7 write an anchor as `"$id": "#name"`.
        let old_anchor = id.and_then(|id| id.strip_prefix('#'));
        if let Some(mut own) = id.filter(|_| old_anchor.is_none()).and_then(|id| base.join(id).ok())
        {
            own.set_fragment(None);
            base = own;
            self.identified.push(at.clone());
        }
        if at.is_empty() || self.identified.last() == Some(&at) {
            self.resources.entry(base.to_string()).or_insert_with(|| at.clone());
        }
        for name in [old_anchor, text("$anchor"), text("$dynamicAnchor")].into_iter().flatten() {
            self.anchors.entry((base.to_string(), name.to_owned())).or_insert_with(|| at.clone());
        }
        if let Some(name) = text("$dynamicAnchor") {
            *self.dynamic_anchors.entry(name).or_default() += 1;
        }
        if let Some((keyword, reference)) =
            REFERENCE_KEYWORDS.into_iter().find_map(|keyword| Some((keyword, text(keyword)?)))
            // The validator takes an empty one for none.
            && !reference.is_empty()
        {
            let (holder, base) = (at.clone(), base.clone());
            self.references.push(FoundReference { holder, keyword, reference, base });
        }
        for (keyword, json) in fields {
            let at = format!("{at}/{}", escape_key(keyword));
            match json {
                Json::Object(named) if NAMED_SCHEMAS_KEYWORDS.contains(&keyword.as_str()) => {
                    for (name, json) in named {
                        self.visit_json(json, format!("{at}/{}", escape_key(name)), &base);
                    }
                }
                _ if DATA_KEYWORDS.contains(&keyword.as_str()) => {}
                json => self.visit_json(json, at, &base),
            }
        }
    }

    fn visit_json(&mut self, json: &'a Json, at: String, base: &Url) {
        match json {
            Json::Object(fields) => self.visit_schema(fields, at, base),
            Json::Array(items) => {
                for (place, item) in items.iter().enumerate() {
                    self.visit_json(item, format!("{at}/{place}"), base);
                }
            }
            _ => {}
        }
    }

    /// The same reference as a pointer; none where it leads out of the schema, or where the
    /// target depends on the value that is checked.
    fn find_target(&self, found: &FoundReference<'_>, root: &Map<String, Json>) -> Option<String> {
        let mut address = found.base.join(found.reference).ok()?;
        let fragment = address.fragment().unwrap_or_default().to_owned();
        address.set_fragment(None);
        let is_known = match found.keyword {
            "$ref" => true,
            "$dynamicRef" => self.dynamic_anchors.get(fragment.as_str()).is_none_or(|it| *it < 2),
            _ => self.identified.iter().all(String::is_empty),
        };
        if !is_known {
            return None;
        }
        let place = if fragment.is_empty() || fragment.starts_with('/') {
            let resource = self.resources.get(address.as_str())?;
            let spellings = pointer_spellings(&fragment).map(|it| format!("{resource}{it}"));
            let is_there = |it: &String| it.is_empty() || find_part(root, it).is_some();
            spellings.into_iter().find(is_there)?
        } else {
            let [name, _] = pointer_spellings(&fragment);
            self.anchors.get(&(address.to_string(), name))?.clone()
        };
        Some(format!("#{}", utf8_percent_encode(&place, ESCAPED_IN_FRAGMENT)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::into_fields;

    fn placed(schema: Json) -> Option<Json> {
        place_references(&into_fields(schema)).map(Json::Object)
    }

    #[test]
    fn a_reference_becomes_a_pointer_to_what_it_means() {
        let item = json!({"type": "string"});
        let anchored = json!({"$anchor": "item", "type": "string"});
        for (id, reference, definitions, expected) in [
            (None, "#/$defs/a%20b", json!({"a b": item}), "#/$defs/a%20b"),
            (None, "#/$defs/%D0%B0", json!({"а": item}), "#/$defs/%D0%B0"),
            (None, "#/$defs/a%2Fb", json!({"a": {"b": item}}), "#/$defs/a/b"),
            (None, "#/$defs/a~1b", json!({"a/b": item}), "#/$defs/a~1b"),
            (None, "#/$defs/a%20b", json!({"a%20b": item}), "#/$defs/a%2520b"),
            (None, "#item", json!({"a": anchored}), "#/$defs/a"),
            (None, "item", json!({"a": {"$id": "item", "type": "string"}}), "#/$defs/a"),
            (
                Some("https://example.com/tools/find.json"),
                "https://example.com/tools/find.json#/$defs/a",
                json!({"a": item}),
                "#/$defs/a",
            ),
            (
                Some("https://example.com/tools/find.json"),
                "../parts/item.json",
                json!({"a": {"$id": "/parts/item.json", "type": "string"}}),
                "#/$defs/a",
            ),
            (
                Some("urn:example:find"),
                "urn:example:item#item",
                json!({"a": {"$id": "urn:example:item", "$defs": {"b": anchored}}}),
                "#/$defs/a/$defs/b",
            ),
        ] {
            let mut schema = json!({
                "type": "object",
                "properties": {"p": {"$ref": reference}},
                "$defs": definitions,
            });
            if let Some(id) = id {
                schema["$id"] = id.into();
            }
            let made = placed(schema.clone()).unwrap_or_else(|| schema.clone());
            assert_eq!(made["properties"]["p"], json!({"$ref": expected}), "{schema}");
            let root = into_fields(made.clone());
            assert!(resolve_reference(&root, expected).is_some(), "{made}");
            // The library understands both, and takes them for the same.
            let [written, made] = [&schema, &made].map(jsonschema::validator_for);
            let Ok(written) = written else { continue };
            for value in [json!({}), json!({"p": "a"}), json!({"p": {}}), json!({"p": 1})] {
                let fits = made.as_ref().unwrap().is_valid(&value);
                assert_eq!(fits, written.is_valid(&value), "{schema}: {value}");
            }
        }
    }

    #[test]
    fn a_reference_in_a_part_with_an_address_is_about_that_part() {
        let schema = json!({
            "$defs": {
                "text": {"type": "integer"},
                "page": {
                    "$id": "page.json",
                    "properties": {"title": {"$ref": "#/$defs/text"}, "next": {"$ref": "#"}},
                    "$defs": {"text": {"type": "string"}},
                },
            },
            "properties": {
                "size": {"$ref": "#/$defs/text"},
                "page": {"$ref": "page.json"},
                "example": {"default": {"$ref": "page.json"}},
            },
        });
        let mut expected = schema.clone();
        expected["$defs"]["page"] = json!({
            "properties": {
                "title": {"$ref": "#/$defs/page/$defs/text"}, "next": {"$ref": "#/$defs/page"},
            },
            "$defs": {"text": {"type": "string"}},
        });
        expected["properties"]["page"] = json!({"$ref": "#/$defs/page"});
        assert_eq!(placed(schema), Some(expected));
    }

    #[test]
    fn older_and_newer_ways_to_name_a_part_are_known() {
        for (schema, expected) in [
            (
                json!({"properties": {"p": {"$ref": "#item"}}, "definitions": {"a": {"$id": "#item"}}}),
                "#/definitions/a",
            ),
            (
                json!({
                    "$schema": "http://json-schema.org/draft-04/schema#",
                    "properties": {"p": {"$ref": "item.json"}}, "definitions": {"a": {"id": "item.json"}},
                }),
                "#/definitions/a",
            ),
            (
                json!({"properties": {"p": {"$dynamicRef": "#node"}}, "$defs": {"a": {"$dynamicAnchor": "node"}}}),
                "#/$defs/a",
            ),
            (json!({"properties": {"p": {"$recursiveRef": "#"}}}), "#"),
        ] {
            let made = placed(schema.clone()).unwrap();
            assert_eq!(made["properties"]["p"], json!({"$ref": expected}), "{schema}");
        }
    }

    #[test]
    fn what_leads_nowhere_or_is_a_pointer_already_stays_as_it_is() {
        for schema in [
            json!({"properties": {"p": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}}),
            json!({"properties": {"p": {"$ref": "#nobody"}, "q": {"$ref": "https://example.com/a"}}}),
            json!({"properties": {"p": {"$dynamicRef": "#node"}},
                "$defs": {"a": {"$dynamicAnchor": "node"}, "b": {"$id": "b", "$dynamicAnchor": "node"}}}),
            json!({"default": {"$ref": "#a", "$anchor": "a"}}),
            json!({"properties": {"p": {"$ref": ""}}}),
            json!({"$id": "https://example.com/a", "properties": {"$id": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}}),
        ] {
            assert_eq!(placed(schema.clone()), None, "{schema}");
        }
    }
}
