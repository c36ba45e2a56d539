//! Flattened schemas: all that must hold of one value, collected from a schema, what it
//! refers to and the parts of its `allOf`.

use serde_json::{Map, Value as Json};

use super::rewrite::SchemaRewriter;
use crate::schema::{SchemaNode, resolve_reference};

/// How often a definition may stand inside itself. Once more, and it is any object.
const MAX_SELF_NESTING: usize = 2;
/// References that lead from one to the next. Beyond that it is any object too.
const MAX_FOLLOWED_REFERENCES: usize = 64;

/// Where two say something about the same, the outer one counts.
#[derive(Default)]
pub(super) struct FlatSchema<'a> {
    /// All that has no field of its own.
    pub(super) keywords: Vec<(&'a str, &'a Json)>,
    pub(super) types: Option<Vec<&'a str>>,
    /// What must hold for each property.
    pub(super) properties: Vec<(&'a str, Vec<&'a Json>)>,
    pub(super) required: Vec<&'a str>,
    pub(super) items: Vec<&'a Json>,
    /// The items that have a place of their own.
    pub(super) tuple: Vec<&'a Json>,
    pub(super) additional: Vec<&'a Json>,
    pub(super) has_patterns: bool,
    /// Of each group, one must hold.
    pub(super) alternatives: Vec<&'a Vec<Json>>,
    pub(super) is_nullable: bool,
    /// Nothing fits.
    pub(super) is_never: bool,
    /// It goes on with what it is part of.
    pub(super) is_recursive: bool,
    /// The reference by which it does.
    pub(super) continued: Option<&'a str>,
}

/// What is collected from a schema.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum CollectMode {
    Everything,
    /// Without what describes it, and without its alternatives: what holds for each
    /// of these.
    Conditions,
}

impl<'a> FlatSchema<'a> {
    pub(super) fn get(&self, keyword: &str) -> Option<&'a Json> {
        self.keywords.iter().find(|(key, _)| *key == keyword).map(|(_, value)| *value)
    }

    /// Whether it says that a value is an object, or takes it for one.
    pub(super) fn is_object(&self) -> bool {
        match &self.types {
            Some(types) => types.as_slice() == ["object"],
            None => !self.properties.is_empty() || !self.required.is_empty(),
        }
    }

    /// Let everything hold that `outer` says, but its alternatives: they are what this
    /// is one of.
    pub(super) fn add_conditions(&mut self, outer: &FlatSchema<'a>) {
        for (keyword, json) in &outer.keywords {
            self.add_keyword(keyword, json, CollectMode::Conditions);
        }
        outer.types.iter().for_each(|types| self.narrow_types(types.clone()));
        for (name, schemas) in &outer.properties {
            schemas.iter().for_each(|schema| self.add_property(name, schema));
        }
        let missing: Vec<&str> =
            outer.required.iter().filter(|it| !self.required.contains(it)).copied().collect();
        self.required.extend(missing);
        self.items.extend(&outer.items);
        self.tuple.extend(&outer.tuple);
        self.additional.extend(&outer.additional);
        self.has_patterns |= outer.has_patterns;
        self.is_never |= outer.is_never;
    }

    fn add_types(&mut self, json: &'a Json) {
        let said: Vec<&str> = match json {
            Json::String(kind) => vec![kind],
            Json::Array(kinds) => kinds.iter().filter_map(Json::as_str).collect(),
            _ => return,
        };
        self.narrow_types(said.into_iter().filter(|kind| is_type_name(kind)).collect());
    }

    fn narrow_types(&mut self, said: Vec<&'a str>) {
        if said.is_empty() {
            return;
        }
        self.types = Some(match self.types.take() {
            None => said,
            Some(known) => {
                let both: Vec<&str> = (known.iter().copied())
                    .filter(|kind| {
                        said.contains(kind) || (*kind == "integer" && said.contains(&"number"))
                    })
                    .collect();
                if both.is_empty() { known } else { both }
            }
        });
    }

    fn add_property(&mut self, name: &'a str, schema: &'a Json) {
        match self.properties.iter_mut().find(|(known, _)| *known == name) {
            Some((_, schemas)) => schemas.push(schema),
            None => self.properties.push((name, vec![schema])),
        }
    }

    fn add_keyword(&mut self, keyword: &'a str, json: &'a Json, collect: CollectMode) {
        match (keyword, json) {
            ("type", json) => self.add_types(json),
            ("properties", Json::Object(properties)) => {
                properties.iter().for_each(|(name, schema)| self.add_property(name, schema));
            }
            ("required", Json::Array(names)) => {
                for name in names.iter().filter_map(Json::as_str) {
                    if !self.required.contains(&name) {
                        self.required.push(name);
                    }
                }
            }
            // A list of them is how older drafts write places of their own.
            ("items" | "prefixItems", Json::Array(items)) => self.tuple.extend(items),
            ("items", json) => self.items.push(json),
            ("additionalProperties", json) => self.additional.push(json),
            ("patternProperties", Json::Object(patterns)) => {
                self.has_patterns |= !patterns.is_empty();
            }
            ("anyOf" | "oneOf", Json::Array(some))
                if collect == CollectMode::Everything && !some.is_empty() =>
            {
                self.alternatives.push(some);
            }
            ("nullable", Json::Bool(true)) => self.is_nullable = true,
            ("$ref" | "allOf" | "properties" | "required" | "anyOf" | "oneOf", _) => {}
            (keyword, json)
                if (collect == CollectMode::Everything || !is_annotation(keyword))
                    && self.get(keyword).is_none() =>
            {
                self.keywords.push((keyword, json));
            }
            _ => {}
        }
    }
}

impl<'a> SchemaRewriter<'a> {
    /// The references that are followed on the way are noted in `self.entered`; the
    /// caller leaves them again when all that is inside is done.
    pub(super) fn flatten_schemas(
        &mut self,
        schemas: &[&'a Json],
        collect: CollectMode,
    ) -> FlatSchema<'a> {
        let mut flat = FlatSchema::default();
        for schema in schemas {
            self.collect_schema(schema, collect, &mut flat);
        }
        flat
    }

    pub(super) fn collect_schema(
        &mut self,
        schema: &'a Json,
        collect: CollectMode,
        flat: &mut FlatSchema<'a>,
    ) {
        self.collect_node(SchemaNode::from_json(schema), collect, flat);
    }

    fn collect_node(
        &mut self,
        schema: SchemaNode<'a>,
        collect: CollectMode,
        flat: &mut FlatSchema<'a>,
    ) {
        match schema {
            SchemaNode::Fields(fields) => self.collect_fields(fields, collect, flat),
            SchemaNode::Flag(anything) => flat.is_never |= !anything,
        }
    }

    pub(super) fn collect_fields(
        &mut self,
        fields: &'a Map<String, Json>,
        collect: CollectMode,
        flat: &mut FlatSchema<'a>,
    ) {
        for (keyword, json) in fields {
            flat.add_keyword(keyword, json, collect);
        }
        for part in fields.get("allOf").and_then(Json::as_array).into_iter().flatten() {
            self.collect_schema(part, collect, flat);
        }
        if let Some(Json::String(reference)) = fields.get("$ref") {
            self.follow_reference(reference, collect, flat);
        }
    }

    fn follow_reference(
        &mut self,
        reference: &'a str,
        collect: CollectMode,
        flat: &mut FlatSchema<'a>,
    ) {
        let Some(target) = resolve_reference(self.root, reference) else { return };
        let times = self.entered.iter().filter(|it| **it == reference).count();
        if times < MAX_SELF_NESTING && self.entered.len() < MAX_FOLLOWED_REFERENCES {
            self.entered.push(reference);
            self.collect_node(target, collect, flat);
            return;
        }
        flat.is_recursive = true;
        flat.continued = Some(reference);
        if let Some(fields) = target.fields() {
            let takes_object = fields.contains_key("properties");
            fields.get("type").into_iter().for_each(|it| flat.add_types(it));
            if flat.types.is_none() && takes_object {
                flat.types = Some(vec!["object"]);
            }
        }
    }
}

fn is_type_name(word: &str) -> bool {
    matches!(word, "string" | "number" | "integer" | "boolean" | "array" | "object" | "null")
}

/// What tells something about values and holds them to nothing.
pub(super) fn is_annotation(keyword: &str) -> bool {
    const ANNOTATION_KEYWORDS: [&str; 8] = [
        "title",
        "description",
        "default",
        "examples",
        "example",
        "deprecated",
        "readOnly",
        "writeOnly",
    ];
    ANNOTATION_KEYWORDS.contains(&keyword)
}
