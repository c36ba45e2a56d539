//! Merged schemas: several alternatives as one.

use serde_json::{Map, Value as Json};

use super::SchemaDirection;
use super::flatten::{CollectMode, FlatSchema};
use super::rewrite::{RewrittenSchema, SchemaRewriter, SchemaTooLarge};
use super::simple_types::any_value;

/// Sets of parameters that are told in words.
const MAX_TOLD_SETS: usize = 8;

/// What fits one of `options`: one of them as it is, several as `anyOf`. No
/// alternative of it has alternatives of its own, which some frameworks do not read.
pub(super) fn merge_alternatives(
    options: Vec<RewrittenSchema>,
    direction: SchemaDirection,
) -> RewrittenSchema {
    let options = match <[RewrittenSchema; 1]>::try_from(options) {
        Ok([only]) => return only,
        Err(options) => options,
    };
    let mut schemas: Vec<Map<String, Json>> = Vec::new();
    for mut schema in options {
        match schema.remove("anyOf") {
            Some(Json::Array(inner)) => {
                for inner in inner {
                    if let Json::Object(inner) = inner {
                        add_option(&mut schemas, inner);
                    }
                }
            }
            _ => add_option(&mut schemas, schema),
        }
    }
    // One that takes anything takes all that the others do.
    if schemas.is_empty() || schemas.iter().any(Map::is_empty) {
        return any_value(direction);
    }
    match <[Map<String, Json>; 1]>::try_from(schemas) {
        Ok([only]) => only,
        Err(several) => {
            let several = several.into_iter().map(Json::Object).collect();
            Map::from_iter([("anyOf".to_owned(), Json::Array(several))])
        }
    }
}

/// Lists of texts that say nothing else are one list.
fn add_option(schemas: &mut Vec<Map<String, Json>>, option: Map<String, Json>) {
    if schemas.contains(&option) {
        return;
    }
    let is_text_list = |it: &Map<String, Json>| {
        it.len() == 2 && it.contains_key("enum") && it.get("type") == Some(&Json::from("string"))
    };
    if is_text_list(&option)
        && let Some(known) = schemas.iter_mut().find(|it| is_text_list(it))
        && let (Some(Json::Array(known)), Some(Json::Array(more))) =
            (known.get_mut("enum"), option.get("enum"))
    {
        for text in more {
            if !known.contains(text) {
                known.push(text.clone());
            }
        }
        return;
    }
    schemas.push(option);
}

/// Add what is said about a schema to it; what both describe is said one after the
/// other.
pub(super) fn describe_both(schema: &mut Map<String, Json>, said: Map<String, Json>) {
    for (keyword, json) in said {
        match (keyword.as_str(), schema.get(&keyword), &json) {
            ("description", Some(Json::String(own)), Json::String(outer)) => {
                let both = join_sentences(outer, own);
                schema.insert(keyword, both.into());
            }
            _ => drop(schema.insert(keyword, json)),
        }
    }
}

fn join_sentences(first: &str, second: &str) -> String {
    let first = first.trim_end();
    if first.contains(second.trim_end_matches('.')) {
        return first.to_owned();
    }
    let ended = first.is_empty() || first.ends_with(['.', '!', '?', ':', '\n']);
    format!("{first}{} {second}", if ended { "" } else { "." }).trim_start().to_owned()
}

impl<'a> SchemaRewriter<'a> {
    /// An object whose alternatives say more about its fields: one object with all
    /// fields, of which those are required that every alternative requires.
    pub(super) fn object_of_alternatives(
        &mut self,
        flat: &FlatSchema<'a>,
        level: usize,
    ) -> Result<RewrittenSchema, SchemaTooLarge> {
        let mut merged = MergedFields {
            properties: (flat.properties.iter())
                .map(|(name, schemas)| (*name, vec![schemas.clone()]))
                .collect(),
            required: flat.required.clone(),
            own: flat.properties.len(),
            told: Vec::new(),
            takes_others: false,
        };
        for group in &flat.alternatives {
            self.merge_group(group, &mut merged)?;
        }
        let MergedFields { properties, required, told, takes_others, .. } = merged;
        let mut made = self.rewrite_object_with(flat, &properties, &required, level)?;
        if !told.is_empty() {
            let said = Map::from_iter([("description".to_owned(), told.join(" ").into())]);
            describe_both(&mut made, said);
        }
        if takes_others {
            self.note_other_keys(&mut made);
        }
        Ok(made)
    }

    fn merge_group(
        &mut self,
        group: &'a [Json],
        merged: &mut MergedFields<'a>,
    ) -> Result<(), SchemaTooLarge> {
        let mut sets: Vec<Vec<&'a str>> = Vec::new();
        for option in group {
            self.spend_bytes(8)?;
            let entered = self.entered.len();
            let inner = self.flatten_schemas(&[option], CollectMode::Everything);
            self.entered.truncate(entered);
            let is_object = inner.types.as_ref().is_none_or(|types| types.contains(&"object"));
            if inner.is_never || !is_object {
                continue;
            }
            merged.takes_others |= inner.has_patterns
                || !inner.alternatives.is_empty()
                || inner.additional.iter().any(|it| **it != Json::Bool(false));
            for (name, schemas) in inner.properties {
                merged.add_property(name, schemas);
            }
            // What it leaves open in turn is not worth more words; its fields are.
            for option in inner.alternatives.iter().copied().flatten() {
                let entered = self.entered.len();
                let deeper = self.flatten_schemas(&[option], CollectMode::Conditions);
                self.entered.truncate(entered);
                for (name, schemas) in deeper.properties {
                    merged.add_property(name, schemas);
                }
            }
            sets.push(inner.required);
        }
        let Some(first) = sets.first() else { return Ok(()) };
        let everywhere: Vec<&str> = (first.iter().copied())
            .filter(|name| sets.iter().all(|set| set.contains(name)))
            .collect();
        for name in &everywhere {
            if !merged.required.contains(name) {
                merged.required.push(name);
            }
        }
        let own = |set: &Vec<&'a str>| -> Vec<&'a str> {
            set.iter().copied().filter(|name| !merged.required.contains(name)).collect()
        };
        let sets: Vec<Vec<&str>> = sets.iter().map(own).collect();
        let is_choice = sets.len() > 1 && sets.iter().all(|set| !set.is_empty());
        if is_choice && sets.len() <= MAX_TOLD_SETS {
            let sets: Vec<String> = sets.iter().map(|set| set.join(" and ")).collect();
            merged.told.push(format!("Give {}.", sets.join(", or ")));
        }
        Ok(())
    }
}

struct MergedFields<'a> {
    properties: Vec<(&'a str, Vec<Vec<&'a Json>>)>,
    required: Vec<&'a str>,
    /// How many of the properties are said for all alternatives: those stay as they are.
    own: usize,
    told: Vec<String>,
    /// Whether an alternative may have keys that are not among the properties.
    takes_others: bool,
}

impl<'a> MergedFields<'a> {
    fn add_property(&mut self, name: &'a str, schemas: Vec<&'a Json>) {
        match self.properties.iter().position(|(known, _)| *known == name) {
            Some(place) if place < self.own => {}
            Some(place) => self.properties[place].1.push(schemas),
            None => self.properties.push((name, vec![schemas])),
        }
    }
}
