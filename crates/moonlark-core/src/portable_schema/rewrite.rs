//! One schema after the other, from the whole to its parts.

use std::collections::HashSet;

use serde_json::{Map, Value as Json, json};

use super::SchemaDirection;
use super::argument_keys::{mark_continued_keys, mark_other_keys, mark_reference};
use super::flatten::{CollectMode, FlatSchema, is_annotation};
use super::merge::{describe_both, merge_alternatives};
use super::simple_types::{
    any_value, as_map, infer_types, is_any_value, listed_values, number_schema, schema_of_type,
    schemas_by_value_type, string_schema,
};
use crate::schema::required_names;

/// About what a schema takes beside its words.
const SCHEMA_OVERHEAD_BYTES: usize = 24;
/// What says something about keys that are not among the properties, and is not listed.
const OTHER_KEYS_KEYWORDS: [&str; 8] = [
    "if",
    "then",
    "else",
    "not",
    "dependencies",
    "dependentSchemas",
    "propertyNames",
    "unevaluatedProperties",
];

/// The schema would have more bytes than it may.
#[derive(Debug)]
pub(super) struct SchemaTooLarge;

pub(super) struct SchemaRewriter<'a> {
    pub(super) root: &'a Map<String, Json>,
    pub(super) direction: SchemaDirection,
    max_levels: usize,
    bytes_left: usize,
    /// The references that lead to where we are.
    pub(super) entered: Vec<&'a str>,
    /// References that are followed no further somewhere below.
    pub(super) cut: HashSet<&'a str>,
}

/// A schema that is done, but for the keys of objects: those are still the exact ones.
pub(super) type RewrittenSchema = Map<String, Json>;

impl<'a> SchemaRewriter<'a> {
    pub(super) fn new(
        root: &'a Map<String, Json>,
        direction: SchemaDirection,
        max_levels: usize,
        max_bytes: usize,
    ) -> Self {
        Self {
            root,
            direction,
            max_levels,
            bytes_left: max_bytes,
            entered: Vec::new(),
            cut: HashSet::new(),
        }
    }

    /// The schema of an object that is a tool's arguments or its result: no other
    /// type, and no alternatives beside its fields.
    pub(super) fn rewrite_whole(mut self) -> Result<RewrittenSchema, SchemaTooLarge> {
        let root = self.root;
        let mut flat = FlatSchema::default();
        self.collect_fields(root, CollectMode::Everything, &mut flat);
        let mut schema = match self.direction {
            SchemaDirection::Input => self.object_of_alternatives(&flat, 0)?,
            SchemaDirection::Output => self.rewrite_object(&flat, 0)?,
        };
        let said = self.collect_annotations(&flat)?;
        describe_both(&mut schema, said);
        Ok(schema)
    }

    /// What all of `schemas` say together; none if nothing fits them.
    pub(super) fn rewrite_part(
        &mut self,
        schemas: &[&'a Json],
        level: usize,
    ) -> Result<Option<RewrittenSchema>, SchemaTooLarge> {
        self.spend_bytes(SCHEMA_OVERHEAD_BYTES)?;
        let entered = self.entered.len();
        let flat = self.flatten_schemas(schemas, CollectMode::Everything);
        let rewritten = self.rewrite_flat(schemas, &flat, level);
        let mut rewritten = rewritten?;
        if self.direction == SchemaDirection::Input
            && let Some(schema) = &mut rewritten
        {
            // What goes on below as it does here has the keys that are here.
            let here = self.entered[entered..].iter().filter(|it| self.cut.contains(*it));
            here.for_each(|reference| mark_reference(schema, reference));
        }
        self.entered.truncate(entered);
        Ok(rewritten)
    }

    fn rewrite_flat(
        &mut self,
        schemas: &[&'a Json],
        flat: &FlatSchema<'a>,
        level: usize,
    ) -> Result<Option<RewrittenSchema>, SchemaTooLarge> {
        if flat.is_never {
            return Ok(None);
        }
        // Clients send such a parameter as a header too, by what its schema says.
        if flat.get("x-mcp-header").is_some()
            && let [Json::Object(exact)] = schemas
        {
            return Ok(Some(exact.clone()));
        }
        let said = self.collect_annotations(flat)?;
        let mut options = Vec::new();
        if flat.alternatives.is_empty() || flat.is_recursive {
            self.rewrite_by_type(flat, level, &mut options)?;
        } else if flat.is_object() && !flat.properties.is_empty() {
            options.push(match self.direction {
                SchemaDirection::Input => self.object_of_alternatives(flat, level)?,
                SchemaDirection::Output => self.rewrite_object(flat, level)?,
            });
        } else {
            // More than one group is more than is worth saying: the first counts.
            for option in flat.alternatives.first().into_iter().copied().flatten() {
                let entered = self.entered.len();
                self.spend_bytes(SCHEMA_OVERHEAD_BYTES)?;
                let mut both = FlatSchema::default();
                self.collect_schema(option, CollectMode::Everything, &mut both);
                both.add_conditions(flat);
                let rewritten = self.rewrite_flat(&[option], &both, level);
                self.entered.truncate(entered);
                options.extend(rewritten?);
            }
            if flat.alternatives.len() > 1 {
                options.iter_mut().for_each(|option| self.note_other_keys(option));
            }
        }
        if flat.is_nullable {
            options.push(schema_of_type("null"));
        }
        let mut rewritten = merge_alternatives(options, self.direction);
        describe_both(&mut rewritten, said);
        Ok(Some(rewritten))
    }

    fn rewrite_by_type(
        &mut self,
        flat: &FlatSchema<'a>,
        level: usize,
        options: &mut Vec<RewrittenSchema>,
    ) -> Result<(), SchemaTooLarge> {
        if let Some(values) = listed_values(flat) {
            self.spend_bytes(values.iter().map(|it| it.as_str().map_or(8, str::len) + 3).sum())?;
            let by_values = schemas_by_value_type(&values, flat.types.as_deref(), self.direction);
            if !by_values.is_empty() {
                options.extend(by_values);
                return Ok(());
            }
        }
        let types = match &flat.types {
            Some(types) => types.clone(),
            None => infer_types(flat, self.direction),
        };
        let has_number = types.contains(&"number");
        for kind in types.into_iter().filter(|kind| !(has_number && *kind == "integer")) {
            options.push(match kind {
                "object" => self.rewrite_object(flat, level)?,
                "array" => self.rewrite_array(flat, level)?,
                "string" => string_schema(flat, self.direction),
                "number" | "integer" => number_schema(kind, flat),
                other => schema_of_type(other),
            });
        }
        Ok(())
    }

    fn rewrite_object(
        &mut self,
        flat: &FlatSchema<'a>,
        level: usize,
    ) -> Result<RewrittenSchema, SchemaTooLarge> {
        let properties: Vec<(&'a str, Vec<Vec<&'a Json>>)> = (flat.properties.iter())
            .map(|(name, schemas)| (*name, vec![schemas.clone()]))
            .collect();
        self.rewrite_object_with(flat, &properties, &flat.required, level)
    }

    /// An object with these properties, each of which fits one of several schemas.
    pub(super) fn rewrite_object_with(
        &mut self,
        flat: &FlatSchema<'a>,
        properties: &[(&'a str, Vec<Vec<&'a Json>>)],
        required: &[&'a str],
        level: usize,
    ) -> Result<RewrittenSchema, SchemaTooLarge> {
        let mut made = schema_of_type("object");
        if let Some(reference) = flat.continued
            && self.direction == SchemaDirection::Input
        {
            self.cut.insert(reference);
            mark_continued_keys(&mut made, reference);
        }
        if flat.is_recursive || level >= self.max_levels {
            return Ok(made);
        }
        // A field that must be there and is not described may be anything.
        let unknown = required.iter().filter(|name| properties.iter().all(|it| it.0 != **name));
        let names = properties.iter().map(|it| it.0).chain(unknown.copied());
        let mut fields = Map::new();
        let mut must = Vec::new();
        for (place, name) in names.enumerate() {
            self.spend_bytes(name.len())?;
            let mut options = Vec::new();
            for schemas in properties.get(place).into_iter().flat_map(|it| &it.1) {
                options.extend(self.rewrite_part(schemas, level + 1)?);
            }
            // Nothing fits: it cannot be given.
            if options.is_empty() && place < properties.len() {
                continue;
            }
            let field = merge_alternatives(options, self.direction);
            fields.insert(name.to_owned(), Json::Object(field));
            if required.contains(&name) {
                must.push(json!(name));
            }
        }
        if !fields.is_empty() || level == 0 {
            made.insert("properties".to_owned(), Json::Object(fields));
        }
        if !must.is_empty() {
            made.insert("required".to_owned(), Json::Array(must));
        }
        self.rewrite_additional_properties(flat, level, &mut made)?;
        for keyword in ["minProperties", "maxProperties"] {
            if let Some(count) = flat.get(keyword).filter(|it| it.is_u64()) {
                made.insert(keyword.to_owned(), count.clone());
            }
        }
        if flat.has_patterns || OTHER_KEYS_KEYWORDS.iter().any(|it| flat.get(it).is_some()) {
            self.note_other_keys(&mut made);
        }
        Ok(made)
    }

    fn rewrite_additional_properties(
        &mut self,
        flat: &FlatSchema<'a>,
        level: usize,
        made: &mut RewrittenSchema,
    ) -> Result<(), SchemaTooLarge> {
        let (closing, open): (Vec<&Json>, Vec<&Json>) =
            flat.additional.iter().partition(|it| **it == &Json::Bool(false));
        let said = if flat.has_patterns || (closing.is_empty() && open.is_empty()) {
            return Ok(());
        } else if !closing.is_empty() {
            Json::Bool(false)
        } else {
            match self.rewrite_part(&open, level + 1)? {
                Some(others) if !is_any_value(&others, self.direction) => Json::Object(others),
                _ => Json::Bool(true),
            }
        };
        made.insert("additionalProperties".to_owned(), said);
        Ok(())
    }

    fn rewrite_array(
        &mut self,
        flat: &FlatSchema<'a>,
        level: usize,
    ) -> Result<RewrittenSchema, SchemaTooLarge> {
        let mut made = schema_of_type("array");
        let mut options = Vec::new();
        // In a list with places, anything may follow after those; only what is given to
        // a tool is checked again.
        let is_said = flat.tuple.is_empty() || self.direction == SchemaDirection::Input;
        if !flat.is_recursive && is_said {
            for place in &flat.tuple {
                options.extend(self.rewrite_part(&[*place], level + 1)?);
            }
            if !flat.items.is_empty() {
                options.extend(self.rewrite_part(&flat.items, level + 1)?);
            }
        }
        let items = merge_alternatives(options, self.direction);
        if self.direction == SchemaDirection::Input || !items.is_empty() {
            made.insert("items".to_owned(), Json::Object(items));
        }
        for keyword in ["minItems", "maxItems", "uniqueItems"] {
            if let Some(said) = flat.get(keyword).filter(|it| it.is_u64() || it.is_boolean()) {
                made.insert(keyword.to_owned(), said.clone());
            }
        }
        Ok(made)
    }

    /// What is told about a value: words, and marks of one word.
    fn collect_annotations(
        &mut self,
        flat: &FlatSchema<'a>,
    ) -> Result<Map<String, Json>, SchemaTooLarge> {
        let mut said = Map::new();
        for (keyword, json) in &flat.keywords {
            let is_mark = keyword.starts_with("x-") && !json.is_object() && !json.is_array();
            // Python servers write `"description": null`.
            let is_text = !matches!(*keyword, "title" | "description") || json.is_string();
            if (is_annotation(keyword) || is_mark) && is_text {
                self.spend_bytes(keyword.len() + json.as_str().map_or(8, str::len))?;
                said.insert((*keyword).to_owned(), (*json).clone());
            }
        }
        Ok(said)
    }

    /// Arguments may have keys in this object that it does not list.
    pub(super) fn note_other_keys(&self, schema: &mut RewrittenSchema) {
        let is_object = schema.get("type").is_some_and(|kind| kind == "object");
        if self.direction == SchemaDirection::Input && is_object {
            mark_other_keys(schema);
        }
    }

    pub(super) fn spend_bytes(&mut self, bytes: usize) -> Result<(), SchemaTooLarge> {
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or(SchemaTooLarge)?;
        Ok(())
    }
}

/// The parameters by name and type alone, of a schema that is too large in every
/// other form.
pub(super) fn outline_schema(exact: &Map<String, Json>) -> RewrittenSchema {
    let properties = exact.get("properties").and_then(Json::as_object);
    let mut fields = Map::new();
    for (name, schema) in properties.into_iter().flatten() {
        let kind = schema.get("type").and_then(Json::as_str);
        let mut field = match kind {
            Some("array") => {
                as_map(json!({"type": "array", "items": any_value(SchemaDirection::Input)}))
            }
            Some(kind @ ("string" | "number" | "integer" | "boolean" | "object")) => {
                schema_of_type(kind)
            }
            _ => any_value(SchemaDirection::Input),
        };
        if let Some(description) = schema.get("description").filter(|it| it.is_string()) {
            field.insert("description".to_owned(), description.clone());
        }
        fields.insert(name.clone(), Json::Object(field));
    }
    let must: Vec<&str> = required_names(exact).filter(|name| fields.contains_key(*name)).collect();
    let mut outline = as_map(json!({"type": "object", "properties": fields, "required": must}));
    // It may have more parameters than are found here.
    if exact.get("additionalProperties") != Some(&Json::Bool(false)) {
        mark_other_keys(&mut outline);
    }
    outline
}
