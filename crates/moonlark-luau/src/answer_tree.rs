//! Fields of one tool's answers, as a tree.
//!
//! Only names and kinds are held, and no values. All items of a list are one place.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use moonlark_core::value::Value;

use crate::result_flow::ResultStep;

/// Places that are held of one tool.
const MAX_ANSWER_PLACES: usize = 2000;
/// What a place takes in memory beside its name, about.
const PLACE_BYTES: usize = 128;
/// Bytes of all names of fields.
const MAX_NAME_BYTES: usize = 128 * 1024;
/// Values of one answer that are looked at.
pub(crate) const MAX_ANSWER_VALUES: usize = 200_000;

#[derive(Debug)]
pub(crate) struct AnswerTree {
    /// The first is the answer itself.
    places: Vec<AnswerPlace>,
    name_bytes: usize,
}

#[derive(Debug, Default)]
struct AnswerPlace {
    kinds: PlaceKinds,
    fields: BTreeMap<String, usize>,
    items: Option<usize>,
}

/// What was seen at a place, beside null.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PlaceKinds {
    pub(crate) objects: bool,
    pub(crate) lists: bool,
    pub(crate) texts: bool,
    pub(crate) others: bool,
}

impl PlaceKinds {
    pub(crate) const ONLY_OBJECTS: PlaceKinds =
        PlaceKinds { objects: true, lists: false, texts: false, others: false };
    pub(crate) const ONLY_LISTS: PlaceKinds =
        PlaceKinds { objects: false, lists: true, texts: false, others: false };

    fn add(&mut self, other: PlaceKinds) {
        self.objects |= other.objects;
        self.lists |= other.lists;
        self.texts |= other.texts;
        self.others |= other.others;
    }
}

/// There is more in the answers than is held.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TreeOverflow;

impl Default for AnswerTree {
    fn default() -> Self {
        AnswerTree { places: vec![AnswerPlace::default()], name_bytes: 0 }
    }
}

impl AnswerTree {
    pub(crate) fn add_answer(&mut self, answer: &Value) -> Result<(), TreeOverflow> {
        let mut left = MAX_ANSWER_VALUES;
        let mut open = vec![(answer, 0)];
        while let Some((value, at)) = open.pop() {
            left = left.checked_sub(1).ok_or(TreeOverflow)?;
            match value {
                Value::Null => {}
                Value::Array(items) => {
                    self.places[at].kinds.lists = true;
                    if items.is_empty() {
                        continue;
                    }
                    if items.len() > left {
                        return Err(TreeOverflow);
                    }
                    let below = match self.places[at].items {
                        Some(known) => known,
                        None => {
                            let new = self.add_place()?;
                            self.places[at].items = Some(new);
                            new
                        }
                    };
                    open.extend(items.iter().map(|item| (item, below)));
                }
                Value::Object(fields) => {
                    self.places[at].kinds.objects = true;
                    for (name, field) in fields {
                        let below = match self.places[at].fields.get(name) {
                            Some(known) => *known,
                            None => self.add_field(at, name)?,
                        };
                        open.push((field, below));
                    }
                }
                Value::Str(_) | Value::Bytes(_) => self.places[at].kinds.texts = true,
                _ => self.places[at].kinds.others = true,
            }
        }
        Ok(())
    }

    fn add_field(&mut self, at: usize, name: &str) -> Result<usize, TreeOverflow> {
        self.name_bytes += name.len();
        if self.name_bytes > MAX_NAME_BYTES {
            return Err(TreeOverflow);
        }
        let new = self.add_place()?;
        self.places[at].fields.insert(name.to_owned(), new);
        Ok(new)
    }

    fn add_place(&mut self) -> Result<usize, TreeOverflow> {
        if self.places.len() == MAX_ANSWER_PLACES {
            return Err(TreeOverflow);
        }
        self.places.push(AnswerPlace::default());
        Ok(self.places.len() - 1)
    }

    /// What it takes in memory, about.
    pub(crate) fn count_bytes(&self) -> usize {
        self.places.len() * PLACE_BYTES + self.name_bytes
    }

    pub(crate) fn count_places(&self) -> usize {
        self.places.len()
    }

    /// Everything that some answer had at a path. None where none had anything.
    pub(crate) fn find_part(&self, path: &[ResultStep]) -> Option<AnswerPart<'_>> {
        let mut places = vec![0];
        for step in path {
            let below: Vec<usize> = match step {
                ResultStep::Field(name) => {
                    let fields = places.iter().filter_map(|at| self.places[*at].fields.get(name));
                    fields.copied().collect()
                }
                // A loop over an object is given the values of its fields.
                ResultStep::Item => {
                    let items = |at: &usize| {
                        let place = &self.places[*at];
                        place.items.into_iter().chain(place.fields.values().copied())
                    };
                    places.iter().flat_map(items).collect()
                }
            };
            places = below;
        }
        let places: Vec<&AnswerPlace> = places.into_iter().map(|at| &self.places[at]).collect();
        let mut kinds = PlaceKinds::default();
        places.iter().for_each(|place| kinds.add(place.kinds));
        (kinds != PlaceKinds::default()).then_some(AnswerPart { kinds, places })
    }

    /// Whether a field of this name is anywhere.
    pub(crate) fn contains_name(&self, name: &str) -> bool {
        self.places.iter().any(|place| place.fields.contains_key(name))
    }

    /// The names of all fields, wherever they are.
    pub(crate) fn into_names(self) -> HashSet<String> {
        self.places.into_iter().flat_map(|place| place.fields.into_keys()).collect()
    }
}

/// What the answers had at a path.
pub(crate) struct AnswerPart<'t> {
    pub(crate) kinds: PlaceKinds,
    places: Vec<&'t AnswerPlace>,
}

impl<'t> AnswerPart<'t> {
    pub(crate) fn has_field(&self, name: &str) -> bool {
        self.places.iter().any(|place| place.fields.contains_key(name))
    }

    /// In the order of the alphabet, each once.
    pub(crate) fn field_names(&self) -> BTreeSet<&'t str> {
        self.places.iter().flat_map(|place| place.fields.keys().map(String::as_str)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(text: &str) -> Vec<ResultStep> {
        let steps = text.split('.').filter(|step| !step.is_empty());
        steps
            .map(|step| match step {
                "[]" => ResultStep::Item,
                name => ResultStep::Field(name.to_owned()),
            })
            .collect()
    }

    fn add(tree: &mut AnswerTree, answer: serde_json::Value) -> Result<(), TreeOverflow> {
        tree.add_answer(&Value::from_json(answer).unwrap())
    }

    #[test]
    fn fields_are_known_by_their_place() {
        let mut tree = AnswerTree::default();
        add(&mut tree, json!({"orders": [{"id": 1}, {"id": 2, "total": 5}], "next": null}))
            .unwrap();
        add(&mut tree, json!({"orders": [], "by_day": {"mon": {"n": 1}}})).unwrap();
        let names = |at: &str| {
            tree.find_part(&path(at)).map(|part| part.field_names().into_iter().collect::<Vec<_>>())
        };
        assert_eq!(names(""), Some(vec!["by_day", "next", "orders"]));
        assert_eq!(names("orders"), Some(vec![]));
        assert_eq!(names("orders.[]"), Some(vec!["id", "total"]));
        assert_eq!(names("by_day.[]"), Some(vec!["n"]));
        assert_eq!(names("next"), None);
        assert_eq!(names("orders.[].total.x"), None);
        assert_eq!(tree.find_part(&[]).unwrap().kinds, PlaceKinds::ONLY_OBJECTS);
        assert_eq!(tree.find_part(&path("orders")).unwrap().kinds, PlaceKinds::ONLY_LISTS);
    }

    #[test]
    fn large_answers_are_not_held() {
        let mut tree = AnswerTree::default();
        let wide: serde_json::Map<_, _> = (0..5000).map(|n| (format!("k{n}"), json!(n))).collect();
        assert_eq!(add(&mut tree, wide.into()), Err(TreeOverflow));
        let mut tree = AnswerTree::default();
        let long = json!({ "x".repeat(MAX_NAME_BYTES + 1): 1 });
        assert_eq!(add(&mut tree, long), Err(TreeOverflow));
        let mut tree = AnswerTree::default();
        let many = Value::Array(vec![Value::Null; MAX_ANSWER_VALUES + 1]);
        assert_eq!(tree.add_answer(&many), Err(TreeOverflow));
    }
}
