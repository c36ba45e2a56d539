//! One place in a shape: which kinds of values were there, and what was in them.
//!
//! Merging forms is commutative and associative: whatever is decided for good
//! (a name is data, there are too many names, it is too deep) depends on what
//! was seen and not on when. Whether names are keys of a map or fields of a
//! record is decided only when a form is drawn.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use crate::value::{Object, Value};

/// Levels that are looked at.
pub(super) const MAX_SHAPE_DEPTH: usize = 8;
/// Items of one list that are looked at.
pub(super) const MAX_OBSERVED_ITEMS: usize = 50;
/// Names that one object may have; with more, they are keys of a map.
const MAX_SHAPE_FIELDS: usize = 64;
/// Values that are looked at in one answer.
const MAX_OBSERVED_VALUES: usize = 5000;
/// The longest name of a field; a longer one is data.
const MAX_FIELD_NAME_BYTES: usize = 40;

/// Nothing set is nothing known; it changes nothing when merged.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ShapeNode {
    /// Too deep to tell. Nothing else is set then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    any: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    null: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    boolean: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    integer: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    number: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    text: bool,
    /// What is in texts that are JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    json: Option<Box<ShapeNode>>,
    /// What items of lists are.
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<Box<ShapeNode>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<Box<ShapeFields>>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShapeFields {
    /// Objects that were seen.
    seen: u32,
    /// In the order they first came.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    known: IndexMap<String, ShapeField>,
    /// What is under names that are data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    others: Option<ShapeNode>,
    /// There were so many names that all are data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    many: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShapeField {
    /// Objects that had it.
    seen: u32,
    form: ShapeNode,
}

/// Values that may still be looked at.
pub(super) struct ObservationBudget(usize);

impl Default for ObservationBudget {
    fn default() -> Self {
        ObservationBudget(MAX_OBSERVED_VALUES)
    }
}

impl ShapeNode {
    pub(super) fn from_value(
        value: &Value,
        depth: usize,
        look: &mut ObservationBudget,
    ) -> ShapeNode {
        let Some(left) = look.0.checked_sub(1) else { return ShapeNode::default() };
        look.0 = left;
        let deep = depth == MAX_SHAPE_DEPTH;
        match value {
            Value::Null => ShapeNode { null: true, ..ShapeNode::default() },
            Value::Bool(_) => ShapeNode { boolean: true, ..ShapeNode::default() },
            Value::Int(_) => ShapeNode { integer: true, ..ShapeNode::default() },
            Value::Float(_) => ShapeNode { number: true, ..ShapeNode::default() },
            Value::Str(_) | Value::Bytes(_) => ShapeNode::any_text(),
            Value::Array(_) | Value::Object(_) if deep => ShapeNode::any_value(),
            Value::Array(items) => {
                let looked = items.iter().take(MAX_OBSERVED_ITEMS);
                ShapeNode::list_of(looked.map(|item| ShapeNode::from_value(item, depth + 1, look)))
            }
            Value::Object(fields) => ShapeNode {
                object: Some(Box::new(ShapeFields::from_object(fields, depth, look))),
                ..ShapeNode::default()
            },
        }
    }

    pub(super) fn any_value() -> ShapeNode {
        ShapeNode { any: true, ..ShapeNode::default() }
    }

    pub(super) fn any_text() -> ShapeNode {
        ShapeNode { text: true, ..ShapeNode::default() }
    }

    pub(super) fn json_text(content: ShapeNode) -> ShapeNode {
        ShapeNode { json: Some(Box::new(content)), ..ShapeNode::default() }
    }

    pub(super) fn list_of(items: impl IntoIterator<Item = ShapeNode>) -> ShapeNode {
        let mut all = ShapeNode::default();
        items.into_iter().for_each(|item| all.merge(item));
        ShapeNode { list: Some(Box::new(all)), ..ShapeNode::default() }
    }

    /// Inside something else a text is a text: nobody decodes it there.
    pub(super) fn into_nested(mut self) -> ShapeNode {
        self.text |= self.json.take().is_some();
        self
    }

    pub(super) fn merge(&mut self, other: ShapeNode) {
        if self.any || other.any {
            *self = ShapeNode::any_value();
            return;
        }
        self.null |= other.null;
        self.boolean |= other.boolean;
        self.integer |= other.integer;
        self.number |= other.number;
        self.text |= other.text;
        merge_options(&mut self.json, other.json, ShapeNode::merge);
        merge_options(&mut self.list, other.list, ShapeNode::merge);
        merge_options(&mut self.object, other.object, ShapeFields::merge);
    }

    /// Hold only `levels` of it.
    pub(super) fn prune_to_depth(&mut self, levels: usize) {
        if levels == 0 && (self.json.is_some() || self.list.is_some() || self.object.is_some()) {
            *self = ShapeNode::any_value();
        }
        self.for_each_child_mut(&mut |form| form.prune_to_depth(levels.saturating_sub(1)));
    }

    /// Sort names that came from elsewhere as our own are.
    pub(super) fn normalize_shape(&mut self) {
        self.prune_to_depth(MAX_SHAPE_DEPTH);
        self.normalize_names();
    }

    fn normalize_names(&mut self) {
        self.for_each_child_mut(&mut ShapeNode::normalize_names);
        if let Some(fields) = &mut self.object {
            fields.fold_data_names();
        }
    }

    fn for_each_child_mut(&mut self, change: &mut dyn FnMut(&mut ShapeNode)) {
        self.json.as_deref_mut().map(&mut *change);
        self.list.as_deref_mut().map(&mut *change);
        if let Some(fields) = &mut self.object {
            fields.known.values_mut().for_each(|field| change(&mut field.form));
            fields.others.as_mut().map(&mut *change);
        }
    }

    fn children(&self) -> impl Iterator<Item = &ShapeNode> {
        let fields = self.object.iter();
        let fields = fields.flat_map(|fields| {
            fields.known.values().map(|field| &field.form).chain(&fields.others)
        });
        self.json.as_deref().into_iter().chain(self.list.as_deref()).chain(fields)
    }

    /// How many places it has.
    pub(super) fn count_nodes(&self) -> usize {
        1 + self.children().map(ShapeNode::count_nodes).sum::<usize>()
    }

    pub(super) fn approx_bytes(&self) -> usize {
        let names = self.object.iter().flat_map(|fields| fields.known.keys()).map(String::len);
        40 + names.sum::<usize>() + self.children().map(ShapeNode::approx_bytes).sum::<usize>()
    }

    /// Which kinds there are, but for null.
    fn kind_names(&self) -> Vec<&'static str> {
        [
            (self.any, "any"),
            (self.boolean, "boolean"),
            (self.number, "number"),
            (self.integer && !self.number, "integer"),
            (self.text || self.json.is_some(), "string"),
            (self.list.is_some(), "array"),
            (self.object.is_some(), "object"),
        ]
        .into_iter()
        .filter_map(|(there, kind)| there.then_some(kind))
        .collect()
    }

    /// Each keyword of a schema is about one kind of value only, so one schema
    /// says it all.
    pub(super) fn to_schema(&self) -> Json {
        let mut kinds = self.kind_names();
        kinds.extend(self.null.then_some("null"));
        let mut schema = Map::new();
        match kinds.as_slice() {
            [] | ["any"] => return Json::Object(schema),
            [one] => schema.insert("type".into(), json!(one)),
            many => schema.insert("type".into(), json!(many)),
        };
        if let Some(items) = self.list.as_ref().filter(|items| ***items != ShapeNode::default()) {
            schema.insert("items".into(), items.to_schema());
        }
        if let Some(fields) = &self.object {
            fields.write_schema(&mut schema);
        }
        if let Some(content) = self.json.as_ref().filter(|_| !self.text) {
            schema.insert("contentMediaType".into(), json!("application/json"));
            schema.insert("contentSchema".into(), content.to_schema());
        }
        Json::Object(schema)
    }
}

fn merge_options<T>(
    mine: &mut Option<Box<T>>,
    theirs: Option<Box<T>>,
    merge: impl FnOnce(&mut T, T),
) {
    match (mine, theirs) {
        (Some(mine), Some(theirs)) => merge(mine, *theirs),
        (mine @ None, theirs) => *mine = theirs,
        (Some(_), None) => {}
    }
}

impl ShapeFields {
    fn from_object(object: &Object, depth: usize, look: &mut ObservationBudget) -> ShapeFields {
        let mut fields = ShapeFields { seen: 1, ..ShapeFields::default() };
        let names = object
            .keys()
            .take(MAX_OBSERVED_ITEMS + MAX_SHAPE_FIELDS)
            .filter(|name| !is_data_name(name))
            .count();
        fields.many = names > MAX_SHAPE_FIELDS;
        let mut others = 0;
        for (name, value) in object.iter().take(MAX_OBSERVED_ITEMS + MAX_SHAPE_FIELDS) {
            if !fields.many && !is_data_name(name) {
                let form = ShapeNode::from_value(value, depth + 1, look);
                fields.known.insert(name.clone(), ShapeField { seen: 1, form });
            } else if others < MAX_OBSERVED_ITEMS {
                others += 1;
                let form = ShapeNode::from_value(value, depth + 1, look);
                fields.others.get_or_insert_default().merge(form);
            }
        }
        fields
    }

    fn merge(&mut self, other: ShapeFields) {
        self.seen = self.seen.saturating_add(other.seen);
        self.many |= other.many;
        for (name, theirs) in other.known {
            match self.known.get_mut(&name) {
                Some(mine) => {
                    mine.seen = mine.seen.saturating_add(theirs.seen);
                    mine.form.merge(theirs.form);
                }
                None => drop(self.known.insert(name, theirs)),
            }
        }
        if let Some(others) = other.others {
            self.others.get_or_insert_default().merge(others);
        }
        self.fold_data_names();
    }

    /// Names that are data, one by one or because there are so many, go.
    fn fold_data_names(&mut self) {
        self.many |= self.known.len() > MAX_SHAPE_FIELDS;
        let many = self.many;
        let others = &mut self.others;
        self.known.retain(|name, field| {
            let stays = !many && !is_data_name(name);
            if !stays {
                others.get_or_insert_default().merge(std::mem::take(&mut field.form));
            }
            stays
        });
    }

    fn write_schema(&self, schema: &mut Map<String, Json>) {
        let mut others = self.others.clone();
        if self.is_map() {
            let all = others.get_or_insert_default();
            self.known.values().for_each(|field| all.merge(field.form.clone()));
        } else if !self.known.is_empty() {
            let each = self.known.iter().map(|(name, it)| (name.clone(), it.form.to_schema()));
            schema.insert("properties".into(), each.collect());
            let sure = self.known.iter().filter(|(_, field)| field.seen >= self.seen);
            let sure: Vec<&String> = sure.map(|(name, _)| name).collect();
            if !sure.is_empty() {
                schema.insert("required".into(), json!(sure));
            }
        }
        if let Some(others) = others {
            schema.insert("additionalProperties".into(), others.to_schema());
        }
    }

    /// Whether the names are rather keys than fields: many of them, most of
    /// them rare, and the same kind of value under all.
    fn is_map(&self) -> bool {
        const MIN_MAP_KEYS: usize = 12;
        let mut kinds = self.known.values().map(|field| field.form.kind_names());
        let count = self.known.len();
        let Some(first) = kinds.next().filter(|_| count > MIN_MAP_KEYS) else { return false };
        let had: u64 = self.known.values().map(|field| u64::from(field.seen)).sum();
        let rare = had * 3 < u64::from(self.seen) * count as u64;
        // A record of so many records is rarer than a map of them.
        let records = first == ["object"] && count > MIN_MAP_KEYS + 4;
        (rare || records) && kinds.all(|kinds| kinds == first)
    }
}

/// Whether a name is one that data made: an address, a number, a date, a path.
fn is_data_name(name: &str) -> bool {
    let digits = name.bytes().filter(u8::is_ascii_digit).count();
    let odd = |letter: char| !letter.is_alphanumeric() && !"_-. :$@#".contains(letter);
    name.is_empty()
        || name.len() > MAX_FIELD_NAME_BYTES
        || digits >= 4
        || name.starts_with(|first: char| first.is_ascii_digit())
        || name.contains(odd)
        || name.rfind('@').is_some_and(|at| at > 0)
        || name.matches([' ', '.']).count() > 3
}
