//! Listed argument keys and the original ones, each way.
//!
//! Anthropic takes keys of `[a-zA-Z0-9_.-]` up to 64 characters, Semantic Kernel
//! takes no dots, and what makes a class of a schema in Python takes nothing that
//! begins with `_`. `page[size]` and `$filter` are common in APIs, so they are
//! listed as `page_size` and `filter`. Whoever sends the original is understood too.
//!
//! Which alternative of a schema an argument fits is not known when its keys are put
//! back. So all alternatives of one place are named together: a key that is listed
//! means the same in each of them.
//!
//! The name of a key may say what it means, and other texts refer to it by that name, so the
//! description of a renamed key says the original.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use crate::original_name::with_original_name;
use crate::value::{Object, Value};

const MAX_KEY_CHARS: usize = 64;
/// Hexadecimal digits behind a key that is too long or not alone.
const KEY_HASH_CHARS: usize = 8;
/// Marks an object that also takes keys that it does not list, until its own keys are
/// listed. It is in no schema that anybody is told.
const OTHER_KEYS_MARK: &str = "x-moonlark-other-keys";
/// Marks a place that some references lead to, and an object that goes on with what one of
/// them leads to; the same is true of them.
const REFERENCES_MARK: &str = "x-moonlark-references";
const CONTINUED_MARK: &str = "x-moonlark-continued";

/// From the keys that are listed to those that the tool takes, for an object and
/// all that is in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ArgumentKeys {
    /// The exact key for each that is listed under another name.
    exact_names: BTreeMap<String, String>,
    /// By exact keys: what is inside.
    fields: BTreeMap<String, Arc<ArgumentKeys>>,
    /// For the items of a list.
    items: Option<Arc<ArgumentKeys>>,
    /// For the values of an object that has keys of any name.
    others: Option<Arc<ArgumentKeys>>,
    /// References that lead here.
    references: Vec<String>,
    /// It goes on with what this reference leads to, which is around it.
    continued: Option<String>,
}

/// The keys of the places around a value, the innermost last.
type SurroundingKeys<'a> = Vec<&'a ArgumentKeys>;

impl ArgumentKeys {
    /// Whether there is nothing to put back.
    pub fn is_empty(&self) -> bool {
        self.exact_names.is_empty()
            && self.fields.is_empty()
            && self.items.is_none()
            && self.others.is_none()
            && self.continued.is_none()
    }

    /// Whether some key, here or inside, is listed under another name.
    fn renames_keys(&self) -> bool {
        let inner = self.fields.values().chain(&self.items).chain(&self.others);
        !self.exact_names.is_empty() || inner.into_iter().any(|it| it.renames_keys())
    }

    /// Put the original keys back into arguments.
    pub fn restore_keys(&self, value: &mut Value) {
        self.restore_within(value, &mut Vec::new());
    }

    fn restore_within<'a>(&'a self, value: &mut Value, around: &mut SurroundingKeys<'a>) {
        let keys = self.continued_keys(around);
        around.push(keys);
        match value {
            Value::Object(fields) => keys.restore_object(fields, around),
            Value::Array(items) => {
                if let Some(inner) = &keys.items {
                    items.iter_mut().for_each(|item| inner.restore_within(item, around));
                }
            }
            _ => {}
        }
        around.pop();
    }

    /// These keys, or those around them that they go on with.
    fn continued_keys<'a>(&'a self, around: &SurroundingKeys<'a>) -> &'a ArgumentKeys {
        let Some(reference) = &self.continued else { return self };
        let mut outer = around.iter().rev();
        outer.find(|it| it.references.contains(reference)).copied().unwrap_or(self)
    }

    fn restore_object<'a>(&'a self, fields: &mut Object, around: &mut SurroundingKeys<'a>) {
        let is_renamed = |(listed, exact): (&String, &String)| {
            fields.contains_key(listed) && !fields.contains_key(exact)
        };
        if self.exact_names.iter().any(is_renamed) {
            let given = std::mem::take(fields);
            let all: HashSet<String> = given.keys().cloned().collect();
            for (key, value) in given {
                let exact = self.exact_names.get(&key).filter(|exact| !all.contains(*exact));
                fields.insert(exact.unwrap_or(&key).clone(), value);
            }
        }
        if self.fields.is_empty() && self.others.is_none() {
            return;
        }
        for (key, value) in fields.iter_mut() {
            if let Some(inner) = self.inside_field(key) {
                inner.restore_within(value, around);
            }
        }
    }

    /// What is inside the field that the tool calls `exact`.
    fn inside_field(&self, exact: &str) -> Option<&ArgumentKeys> {
        self.fields.get(exact).or(self.others.as_ref()).map(|it| &**it)
    }

    /// A path such as `page[size].items[0]` of the exact schema as a client knows it that
    /// has sent `sent`: by the keys that are listed, or by the exact ones where it used
    /// those.
    pub(super) fn path_as_sent(&self, path: &str, sent: Option<&Value>) -> String {
        self.path_within(path, sent, &mut Vec::new())
    }

    fn path_within<'a>(
        &'a self,
        path: &str,
        sent: Option<&Value>,
        around: &mut SurroundingKeys<'a>,
    ) -> String {
        if self.is_empty() || path.is_empty() {
            return path.to_owned();
        }
        let keys = self.continued_keys(around);
        around.push(keys);
        let said = keys.inner_path_as_sent(path, sent, around);
        around.pop();
        said
    }

    fn inner_path_as_sent<'a>(
        &'a self,
        path: &str,
        sent: Option<&Value>,
        around: &mut SurroundingKeys<'a>,
    ) -> String {
        if let Some(rest) = path.strip_prefix('[')
            && let Some((index, rest)) = rest.split_once(']')
            && let Ok(place) = index.parse::<usize>()
        {
            let item = sent.and_then(|sent| match sent {
                Value::Array(items) => items.get(place),
                _ => None,
            });
            let rest = match &self.items {
                Some(inner) => inner.rest_as_sent(rest, item, around),
                None => rest.to_owned(),
            };
            return format!("[{index}]{rest}");
        }
        // Keys may have dots and brackets in them: those that are known come first.
        let is_first = |name: &&String| {
            path.strip_prefix(name.as_str()).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('.') || rest.starts_with('[')
            })
        };
        let known = self.exact_names.values().chain(self.fields.keys()).filter(is_first);
        let end = match known.max_by_key(|name| name.len()) {
            Some(name) => name.len(),
            None => path.find(['.', '[']).unwrap_or(path.len()),
        };
        let (exact, rest) = path.split_at(end);
        let own = |key: &str| sent.and_then(|sent| sent.get(key));
        let key = if own(exact).is_some() { exact } else { self.listed_name(exact) };
        let rest = match self.inside_field(exact) {
            Some(inner) => inner.rest_as_sent(rest, own(key), around),
            None => rest.to_owned(),
        };
        format!("{key}{rest}")
    }

    fn rest_as_sent<'a>(
        &'a self,
        rest: &str,
        sent: Option<&Value>,
        around: &mut SurroundingKeys<'a>,
    ) -> String {
        match rest.strip_prefix('.') {
            Some(rest) => format!(".{}", self.path_within(rest, sent, around)),
            None => self.path_within(rest, sent, around),
        }
    }

    fn listed_name<'a>(&'a self, exact: &'a str) -> &'a str {
        let mut all = self.exact_names.iter();
        all.find(|(_, name)| *name == exact).map_or(exact, |(listed, _)| listed)
    }
}

/// Say of an object that it also takes keys that it does not list.
pub(super) fn mark_other_keys(schema: &mut Map<String, Json>) {
    schema.insert(OTHER_KEYS_MARK.to_owned(), Json::Bool(true));
}

/// Say of a place that this reference leads to it.
pub(super) fn mark_reference(schema: &mut Map<String, Json>, reference: &str) {
    let known = schema.entry(REFERENCES_MARK).or_insert_with(|| Json::Array(Vec::new()));
    if let Json::Array(known) = known {
        known.push(reference.into());
    }
}

/// Say of an object that it goes on with what this reference leads to.
pub(super) fn mark_continued_keys(schema: &mut Map<String, Json>, reference: &str) {
    schema.insert(CONTINUED_MARK.to_owned(), reference.into());
}

/// Write the keys of a rewritten schema as every model takes them.
pub(super) fn list_keys(schema: &mut Map<String, Json>) -> ArgumentKeys {
    let keys = list_place(vec![schema]);
    if keys.renames_keys() { keys } else { ArgumentKeys::default() }
}

/// The same for all schemas that one value may have to fit.
fn list_place(schemas: Vec<&mut Map<String, Json>>) -> ArgumentKeys {
    let mut options = Vec::new();
    let mut references = Vec::new();
    for schema in schemas {
        take_references(schema, &mut references);
        collect_options(schema, &mut options, &mut references);
    }
    let continued = options.iter_mut().filter_map(|it| match it.remove(CONTINUED_MARK) {
        Some(Json::String(reference)) => Some(reference),
        _ => None,
    });
    let continued = continued.last();
    let mut takes_others = false;
    let mut names: Vec<String> = Vec::new();
    let mut known: HashSet<String> = HashSet::new();
    for option in &mut options {
        takes_others |= takes_other_keys(option);
        option.remove(OTHER_KEYS_MARK);
        let properties = option.get("properties").and_then(Json::as_object);
        for name in properties.into_iter().flat_map(Map::keys) {
            if known.insert(name.clone()) {
                names.push(name.clone());
            }
        }
    }
    let keys = listed_keys(names.iter().map(String::as_str), takes_others);
    let listed: HashMap<&str, &str> =
        names.iter().map(String::as_str).zip(keys.iter().map(String::as_str)).collect();
    let exact: HashMap<&str, &str> = listed.iter().map(|(name, key)| (*key, *name)).collect();
    let (mut fields, mut others, mut items) = (BTreeMap::new(), Vec::new(), Vec::new());
    let objects = options.iter().filter(|it| is_object_schema(it)).count();
    for option in options {
        rename_properties(option, &listed);
        for (keyword, json) in option.iter_mut() {
            match (keyword.as_str(), json) {
                ("properties", Json::Object(properties)) => {
                    for (key, field) in properties.iter_mut() {
                        let name = exact.get(key.as_str()).copied().unwrap_or(key);
                        let all: &mut Vec<_> = fields.entry(name.to_owned()).or_default();
                        all.extend(field.as_object_mut());
                    }
                }
                ("additionalProperties", Json::Object(schema)) => others.push(schema),
                ("items", Json::Object(schema)) => items.push(schema),
                _ => {}
            }
        }
    }
    let mut made = ArgumentKeys {
        exact_names: (names.iter().zip(&keys))
            .filter(|(name, key)| name != key)
            .map(|(name, key)| (key.clone(), name.clone()))
            .collect(),
        items: of_use(list_place_if_any(items)),
        references,
        continued,
        ..ArgumentKeys::default()
    };
    if !others.is_empty() && objects > 1 {
        // What one alternative has as a field may be any key of another: all are one place.
        let names: Vec<String> = fields.keys().cloned().collect();
        let all = fields.into_values().flatten().chain(others).collect();
        let Some(inner) = of_use(list_place(all)) else { return made };
        made.fields = names.into_iter().map(|name| (name, inner.clone())).collect();
        made.others = Some(inner);
        return made;
    }
    made.others = of_use(list_place_if_any(others));
    for (name, schemas) in fields {
        let inner = list_place(schemas);
        // With nothing inside it is still none of the others.
        if !inner.is_empty() || made.others.is_some() {
            made.fields.insert(name, Arc::new(inner));
        }
    }
    made
}

fn list_place_if_any(schemas: Vec<&mut Map<String, Json>>) -> ArgumentKeys {
    if schemas.is_empty() { ArgumentKeys::default() } else { list_place(schemas) }
}

fn of_use(keys: ArgumentKeys) -> Option<Arc<ArgumentKeys>> {
    (!keys.is_empty()).then(|| Arc::new(keys))
}

fn take_references(schema: &mut Map<String, Json>, references: &mut Vec<String>) {
    if let Some(Json::Array(marked)) = schema.remove(REFERENCES_MARK) {
        references.extend(marked.iter().filter_map(Json::as_str).map(str::to_owned));
    }
}

fn collect_options<'a>(
    schema: &'a mut Map<String, Json>,
    options: &mut Vec<&'a mut Map<String, Json>>,
    references: &mut Vec<String>,
) {
    // Clients send such a parameter as a header too: it is as it was written.
    if schema.contains_key("x-mcp-header") {
        return;
    }
    if !schema.contains_key("anyOf") {
        options.push(schema);
        return;
    }
    if let Some(Json::Array(inner)) = schema.get_mut("anyOf") {
        for option in inner.iter_mut().filter_map(Json::as_object_mut) {
            take_references(option, references);
            collect_options(option, options, references);
        }
    }
}

fn is_object_schema(schema: &Map<String, Json>) -> bool {
    schema.get("type").is_some_and(|kind| kind == "object")
}

/// Whether a key that the schema does not list may be meant as it is.
fn takes_other_keys(schema: &Map<String, Json>) -> bool {
    if !is_object_schema(schema) {
        return false;
    }
    match schema.get("additionalProperties") {
        Some(Json::Bool(false)) => false,
        Some(_) => true,
        // An object of which nothing is said has keys of any name.
        None => {
            let properties = schema.get("properties").and_then(Json::as_object);
            schema.contains_key(OTHER_KEYS_MARK) || properties.is_none_or(Map::is_empty)
        }
    }
}

fn rename_properties(schema: &mut Map<String, Json>, listed: &HashMap<&str, &str>) {
    if let Some(Json::Object(properties)) = schema.get_mut("properties") {
        let renamed = std::mem::take(properties).into_iter().map(|(name, mut field)| match listed
            .get(name.as_str())
        {
            Some(key) if *key != name => {
                describe_original(&mut field, &name);
                ((*key).to_owned(), field)
            }
            _ => (name, field),
        });
        *properties = renamed.collect();
    }
    if let Some(Json::Array(required)) = schema.get_mut("required") {
        for name in required.iter_mut() {
            if let Some(key) = name.as_str().and_then(|name| listed.get(name)) {
                *name = (*key).into();
            }
        }
    }
}

fn describe_original(field: &mut Json, name: &str) {
    if let Json::Object(field) = field {
        let own = field.get("description").and_then(Json::as_str).unwrap_or_default();
        let description = with_original_name(own, name);
        field.insert("description".to_owned(), description.into());
    }
}

/// A key that every model takes for each of `names`, all different. Where other keys
/// are taken too, one that is changed has a hash, so that a plain one stays itself.
fn listed_keys<'a>(
    names: impl Iterator<Item = &'a str> + Clone,
    takes_others: bool,
) -> Vec<String> {
    let mut taken: HashSet<String> =
        names.clone().filter(|name| is_portable_key(name)).map(str::to_owned).collect();
    names
        .map(|name| {
            if is_portable_key(name) {
                return name.to_owned();
            }
            let plain = plain_key(name);
            let is_good = !takes_others && is_portable_key(&plain);
            let hashed = (0..).map(|number| with_key_hash(&plain, name, number));
            let mut keys = is_good.then(|| plain.clone()).into_iter().chain(hashed);
            let key = keys.find(|key| !taken.contains(key)).unwrap_or_default();
            taken.insert(key.clone());
            key
        })
        .collect()
}

fn is_portable_key(key: &str) -> bool {
    key.len() <= MAX_KEY_CHARS
        && key.starts_with(|first: char| first.is_ascii_alphanumeric())
        && key.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'-'))
}

/// `page[size]` as `page_size`, `$filter` as `filter`.
fn plain_key(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => plain.push(letter),
            _ if plain.is_empty() || plain.ends_with('_') => {}
            _ => plain.push('_'),
        }
    }
    let begins = plain.find(|it: char| it.is_ascii_alphanumeric()).unwrap_or(plain.len());
    let plain = &plain[begins..];
    // An underscore that stands for something, at the end, says nothing.
    let ends = name.ends_with('_') || name.ends_with('-');
    if ends { plain.to_owned() } else { plain.trim_end_matches('_').to_owned() }
}

/// The first hash has no number in it; another is needed where a key is called like it.
fn with_key_hash(plain: &str, name: &str, number: u32) -> String {
    let digest = match number {
        0 => Sha256::digest(name.as_bytes()),
        number => Sha256::digest(format!("{name}\n{number}").as_bytes()),
    };
    let hash: String =
        digest.iter().take(KEY_HASH_CHARS / 2).map(|it| format!("{it:02x}")).collect();
    let kept = &plain[..plain.len().min(MAX_KEY_CHARS - KEY_HASH_CHARS - 1)];
    if kept.is_empty() { format!("key_{hash}") } else { format!("{kept}_{hash}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_made_of_what_every_model_takes_and_stay_apart() {
        let keys = |names: &[&str]| listed_keys(names.iter().copied(), false);
        assert_eq!(
            keys(&["page[size]", "$filter", "@type", "_id", "user.name", "X-Trace", "2fa", "a b"]),
            ["page_size", "filter", "type", "id", "user_name", "X-Trace", "2fa", "a_b"]
        );
        let apart = keys(&["$filter", "filter", "ü", "a[b]", "a.b"]);
        assert_eq!(apart[1], "filter");
        assert!(apart[0].starts_with("filter_") && apart[2].starts_with("key_"), "{apart:?}");
        assert!(apart[3] == "a_b" && apart[4].starts_with("a_b_"), "{apart:?}");
        let long = "x".repeat(100);
        assert_eq!(keys(&[long.as_str()])[0].len(), MAX_KEY_CHARS);
        // A key that is called as another would be listed.
        let hashed = with_key_hash("id", "$id", 0);
        let clash = keys(&["$id", "id", &hashed]);
        assert_eq!(clash[1..], ["id", hashed.as_str()]);
        assert!(clash[0].starts_with("id_") && clash[0] != hashed, "{clash:?}");
    }

    #[test]
    fn a_path_is_told_by_the_keys_that_were_sent() {
        let field = json!({"type": "string"});
        let tree = json!({"type": "object", "properties": {"_id": field, "a.b": field}});
        let Json::Object(mut schema) = json!({
            "type": "object",
            "properties": {"page[size]": field, "$list": {"type": "array", "items": tree}, "plain": field},
        }) else {
            unreachable!("an object literal")
        };
        let keys = list_keys(&mut schema);
        let listed = Value::from_json(json!({"page_size": 1, "list": [{"id": 1}]})).unwrap();
        let exact = Value::from_json(json!({"page[size]": 1, "$list": [{"id": 1}]})).unwrap();
        for (path, by_listed, by_exact) in [
            ("page[size]", "page_size", "page[size]"),
            ("$list[0]._id", "list[0].id", "$list[0].id"),
            ("$list[0].a.b", "list[0].a_b", "$list[0].a_b"),
            ("$list[7]", "list[7]", "$list[7]"),
            ("plain.else", "plain.else", "plain.else"),
            ("", "", ""),
        ] {
            assert_eq!(keys.path_as_sent(path, Some(&listed)), by_listed);
            assert_eq!(keys.path_as_sent(path, Some(&exact)), by_exact);
        }
    }
}
