//! The keys of arguments as they are listed, and back.
//!
//! Anthropic takes keys of `[a-zA-Z0-9_.-]` up to 64 characters, Semantic Kernel
//! takes no dots, and what makes a class of a schema in Python takes nothing that
//! begins with `_`. `page[size]` and `$filter` are common in APIs, so they are
//! listed as `page_size` and `filter`. Whoever sends the original is understood too.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use sha2::{Digest, Sha256};

use crate::value::{Object, Value};

const MAX_KEY_CHARS: usize = 64;
/// Hexadecimal digits behind a key that is too long or not alone.
const KEY_HASH_CHARS: usize = 8;

/// From the keys that are listed to those that the tool takes, for an object and
/// all that is in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ArgumentKeys {
    fields: BTreeMap<String, ExactArgument>,
    /// Keys that are as they were, while a schema is rewritten: another alternative
    /// must not give one of them to something else.
    kept: BTreeSet<String>,
    /// For the items of a list.
    items: Option<Box<ArgumentKeys>>,
    /// For the values of an object that has keys of any name.
    others: Option<Box<ArgumentKeys>>,
}

#[derive(Debug, Clone, PartialEq)]
struct ExactArgument {
    name: String,
    inner: ArgumentKeys,
}

impl ArgumentKeys {
    /// Whether there is nothing to put back.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.items.is_none() && self.others.is_none()
    }

    /// Put the original keys back into arguments.
    pub fn restore_keys(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => self.restore_object(fields),
            Value::Array(items) => {
                if let Some(inner) = &self.items {
                    items.iter_mut().for_each(|item| inner.restore_keys(item));
                }
            }
            _ => {}
        }
    }

    fn restore_object(&self, fields: &mut Object) {
        let is_renamed = |(listed, exact): (&String, &ExactArgument)| {
            *listed != exact.name
                && fields.contains_key(listed)
                && !fields.contains_key(&exact.name)
        };
        if self.fields.iter().any(is_renamed) {
            let given = std::mem::take(fields);
            let all: HashSet<String> = given.keys().cloned().collect();
            for (key, value) in given {
                let exact = self.fields.get(&key).map(|it| &it.name);
                let exact = exact.filter(|name| !all.contains(*name)).unwrap_or(&key).clone();
                fields.insert(exact, value);
            }
        }
        if self.fields.values().all(|it| it.inner.is_empty()) && self.others.is_none() {
            return;
        }
        for (key, value) in fields.iter_mut() {
            let inner = self.fields.values().find(|it| it.name == *key).map(|it| &it.inner);
            if let Some(inner) = inner.or(self.others.as_deref()) {
                inner.restore_keys(value);
            }
        }
    }

    pub(super) fn for_items(inner: ArgumentKeys) -> ArgumentKeys {
        ArgumentKeys { items: boxed_if_useful(inner), ..ArgumentKeys::default() }
    }

    pub(super) fn set_others(&mut self, inner: ArgumentKeys) {
        self.others = boxed_if_useful(inner);
    }

    pub(super) fn add_field(&mut self, listed: &str, exact: &str, inner: ArgumentKeys) {
        if listed == exact {
            self.kept.insert(listed.to_owned());
        }
        if listed != exact || !inner.is_empty() {
            let field = ExactArgument { name: exact.to_owned(), inner };
            self.fields.insert(listed.to_owned(), field);
        }
    }

    /// The keys of a value that fits one of several schemas.
    pub(super) fn merge(&mut self, other: ArgumentKeys) {
        for (listed, field) in other.fields {
            match self.fields.get_mut(&listed) {
                Some(known) if known.name == field.name => known.inner.merge(field.inner),
                Some(_) => {}
                None => drop(self.fields.insert(listed, field)),
            }
        }
        self.kept.extend(other.kept);
        let kept = &self.kept;
        self.fields.retain(|listed, field| *listed == field.name || !kept.contains(listed));
        for (mine, theirs) in [(&mut self.items, other.items), (&mut self.others, other.others)] {
            match (mine.as_mut(), theirs) {
                (Some(mine), Some(theirs)) => mine.merge(*theirs),
                (None, theirs) => *mine = theirs,
                (Some(_), None) => {}
            }
        }
    }

    /// Once all is rewritten, only what is different is of use.
    pub(super) fn without_kept_names(mut self) -> ArgumentKeys {
        self.kept = BTreeSet::new();
        for field in self.fields.values_mut() {
            field.inner = std::mem::take(&mut field.inner).without_kept_names();
        }
        self.fields.retain(|listed, field| *listed != field.name || !field.inner.is_empty());
        let prune =
            |inner: Option<Box<ArgumentKeys>>| boxed_if_useful((*inner?).without_kept_names());
        self.items = prune(self.items.take());
        self.others = prune(self.others.take());
        self
    }
}

fn boxed_if_useful(keys: ArgumentKeys) -> Option<Box<ArgumentKeys>> {
    let is_of_use = !keys.is_empty() || !keys.kept.is_empty();
    is_of_use.then(|| Box::new(keys))
}

/// A key that every model takes for each of `names`, all different.
pub(super) fn listed_keys<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let mut taken: HashSet<String> =
        names.clone().filter(|name| is_portable_key(name)).map(str::to_owned).collect();
    names
        .map(|name| {
            if is_portable_key(name) {
                return name.to_owned();
            }
            let plain = plain_key(name);
            let is_good = is_portable_key(&plain) && !taken.contains(&plain);
            let key = if is_good { plain } else { with_key_hash(&plain, name) };
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

fn with_key_hash(plain: &str, name: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    let hash: String =
        digest.iter().take(KEY_HASH_CHARS / 2).map(|it| format!("{it:02x}")).collect();
    let kept = &plain[..plain.len().min(MAX_KEY_CHARS - KEY_HASH_CHARS - 1)];
    if kept.is_empty() { format!("key_{hash}") } else { format!("{kept}_{hash}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_of_what_every_model_takes_and_stay_apart() {
        let keys = |names: &[&str]| listed_keys(names.iter().copied());
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
    }
}
