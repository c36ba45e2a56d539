//! The document against the schema: every mistake, and the document as JSON as far as
//! it is right.
//!
//! Only the keywords that the config structs produce are known here (a test
//! holds the two together). A mistake is pinned to the byte it stands at, and
//! no message quotes a value of a script's own configuration.

mod own_keys;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use moonlark_core::nearest::nearest;
use moonlark_core::problem::Problem;
use moonlark_core::value::MAX_DEPTH;
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeArray, DeFloat, DeInteger, DeTable, DeValue};

use super::expand::{Fault, expand};
use super::finding::Finding;
use super::key_path::KeyPath;
use super::secret::Variables;
use super::values::ValueSources;
use crate::config::{BadSize, Size, Span};

pub(super) use words::hint_at;

/// What became of a document.
#[derive(Default)]
pub(super) struct Checked {
    /// All of it that is right, with the variables filled in.
    pub(super) value: Value,
    /// The strings that had variables.
    pub(super) expanded: Variables,
    /// Where every key stands.
    pub(super) offsets: BTreeMap<KeyPath, usize>,
    /// What is not in `value` as it was written: it is wrong, or it has no value yet.
    pub(super) left_out: BTreeSet<KeyPath>,
    /// Strings whose variable or file is not there.
    pub(super) absent: Vec<AbsentValue>,
    pub(super) findings: Vec<Finding>,
    /// What is allowed and hardly meant.
    pub(super) warnings: Vec<Finding>,
}

/// A string that has no value on this machine.
pub(super) struct AbsentValue {
    pub(super) key: KeyPath,
    /// The whole string, as it is written.
    pub(super) text: String,
    pub(super) finding: Finding,
}

pub(super) fn check(
    schema: &Value,
    document: &DeTable<'_>,
    text: &str,
    values: &ValueSources<'_>,
) -> Checked {
    let mut walk = Walk { values, text, path: KeyPath::default(), checked: Checked::default() };
    let value = walk.table(schema, document, 0);
    Checked { value, ..walk.checked }
}

struct Walk<'a> {
    values: &'a ValueSources<'a>,
    text: &'a str,
    path: KeyPath,
    checked: Checked,
}

/// Each method gives the value as JSON; none where it is to be left out.
impl Walk<'_> {
    fn value(&mut self, schema: &Value, value: &Spanned<DeValue<'_>>) -> Option<Value> {
        let at = value.span().start;
        if self.path.depth() > MAX_DEPTH {
            return self.fault(
                at,
                format!("is nested deeper than {MAX_DEPTH} levels"),
                "use fewer levels".to_owned(),
            );
        }
        let value = value.get_ref();
        if !words::accepts(schema, value) {
            let message = format!("must be {}, got {}", words::expected(schema), value.type_str());
            return self.fault(at, message, words::hint(schema, &self.path));
        }
        match value {
            DeValue::String(text) => self.string(schema, text, at),
            DeValue::Integer(integer) => self.integer(schema, integer, at),
            DeValue::Float(float) => self.float(schema, float, at),
            DeValue::Boolean(boolean) => Some(Value::Bool(*boolean)),
            DeValue::Datetime(datetime) => Some(Value::String(datetime.to_string())),
            DeValue::Array(array) => Some(self.array(schema, array)),
            DeValue::Table(table) => Some(self.table(schema, table, at)),
        }
    }

    fn table(&mut self, schema: &Value, table: &DeTable<'_>, at: usize) -> Value {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);

        let mut object = Map::new();
        for (key, value) in entries {
            let at = key.span().start;
            let known = schema["properties"].get(key.get_ref().as_ref());
            if known.is_none() {
                self.warn_of_near_miss(schema, table, key, value);
            }
            let key = key.get_ref().as_ref();
            match known.or(schema.get("additionalProperties")) {
                Some(Value::Bool(false)) => self.unknown(schema, key, at),
                subschema => {
                    self.path.key(key);
                    self.checked.offsets.insert(self.path.clone(), at);
                    let value = self.value(subschema.unwrap_or(&Value::Null), value);
                    self.path.pop();
                    object.extend(value.map(|value| (key.to_owned(), value)));
                }
            }
        }
        self.missing(schema, table, &mut object, at);
        Value::Object(object)
    }

    fn unknown(&mut self, schema: &Value, key: &str, at: usize) {
        let valid: Vec<&str> = words::properties(schema).map(|(name, _)| name.as_str()).collect();
        let hint = match nearest(key, valid.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None if self.path.is_root() => format!("valid keys: {}", valid.join(", ")),
            None => format!("valid keys of {}: {}", self.path, valid.join(", ")),
        };
        let path = self.path.with(key);
        let message = format!("unknown key {path}");
        self.checked.findings.push(Finding::at(at, Problem::bad_config(message).hint(hint)));
        self.checked.left_out.insert(path);
    }

    fn missing(
        &mut self,
        schema: &Value,
        table: &DeTable<'_>,
        object: &mut Map<String, Value>,
        at: usize,
    ) {
        let required = schema["required"].as_array().into_iter().flatten();
        for key in required.filter_map(Value::as_str) {
            if object.contains_key(key) {
                continue;
            }
            let path = self.path.with(key);
            if !table.contains_key(key) {
                let hint = match words::example(&schema["properties"][key]) {
                    Some(example) => format!("add a line such as {key} = {example}"),
                    None => format!("add {key}"),
                };
                let problem = Problem::bad_config(format!("{path} is missing")).hint(hint);
                self.checked.findings.push(Finding::at(at, problem));
            }
            // So that the rest of the table can be looked at all the same.
            object.insert(key.to_owned(), words::stand_in(&schema["properties"][key]));
            self.checked.left_out.insert(path);
        }
    }

    fn array(&mut self, schema: &Value, array: &DeArray<'_>) -> Value {
        let items = array.iter().enumerate().filter_map(|(index, item)| {
            self.path.index(index);
            self.checked.offsets.insert(self.path.clone(), item.span().start);
            let value = self.value(&schema["items"], item);
            self.path.pop();
            value
        });
        Value::Array(items.collect())
    }

    fn string(&mut self, schema: &Value, text: &str, at: usize) -> Option<Value> {
        let expanded = match expand(text, self.values) {
            Ok(expanded) => expanded,
            Err(faults) => return self.not_expanded(schema, text, faults, at),
        };
        if schema["format"] == Size::FORMAT
            && let Err(bad) = expanded.text.parse::<Size>()
        {
            return self.bad_size(schema, bad, at);
        }
        if schema["format"] == Span::FORMAT
            && let Err(bad) = expanded.text.parse::<Span>()
        {
            return self.fault(at, bad.to_string(), words::hint(schema, &self.path));
        }
        if let Some(words) = schema["enum"].as_array()
            && !words.iter().any(|word| word.as_str() == Some(&expanded.text))
        {
            let known: Vec<String> = words.iter().map(Value::to_string).collect();
            let near = nearest(&expanded.text, words.iter().filter_map(Value::as_str));
            let hint = match near {
                Some(near) => format!("did you mean {near:?}?"),
                None => words::hint(schema, &self.path),
            };
            return self.fault(at, format!("must be one of {}", known.join(", ")), hint);
        }
        if schema["minLength"] == 1 && expanded.text.is_empty() {
            return self.fault(at, "must not be empty".to_owned(), words::hint(schema, &self.path));
        }
        if !expanded.variables.is_empty() {
            self.checked.expanded.insert(self.path.clone(), expanded.variables);
        }
        Some(Value::String(expanded.text))
    }

    /// A text that lacks nothing but a value stays as it is written, where any text will
    /// do: whoever uses it must look at `absent` first.
    fn not_expanded(
        &mut self,
        schema: &Value,
        text: &str,
        faults: Vec<Fault>,
        at: usize,
    ) -> Option<Value> {
        let only_absent = faults.iter().all(Fault::is_absence);
        for fault in faults {
            let is_absence = fault.is_absence();
            let (message, hint) = words::not_expanded(fault);
            let problem = Problem::bad_config(format!("{} {message}", self.path)).hint(hint);
            let finding = Finding::at(at, problem);
            if is_absence {
                let (key, text) = (self.path.clone(), text.to_owned());
                self.checked.absent.push(AbsentValue { key, text, finding });
            } else {
                self.checked.findings.push(finding);
            }
        }
        self.checked.left_out.insert(self.path.clone());
        let any_text = schema.get("format").is_none() && schema.get("enum").is_none();
        (only_absent && any_text).then(|| Value::String(text.to_owned()))
    }

    fn integer(&mut self, schema: &Value, integer: &DeInteger<'_>, at: usize) -> Option<Value> {
        let Ok(number) = i64::from_str_radix(integer.as_str(), integer.radix()) else {
            let message = "is not a 64-bit integer".to_owned();
            return self.fault(at, message, words::hint(schema, &self.path));
        };
        if schema["format"] == Size::FORMAT {
            if let Err(bad) = u64::try_from(number).map_err(|_| BadSize::Zero).and_then(Size::new) {
                return self.bad_size(schema, bad, at);
            }
        } else if let Some(range) = words::outside(schema, number as f64) {
            return self.fault(
                at,
                format!("{range}, got {number}"),
                words::hint(schema, &self.path),
            );
        }
        Some(number.into())
    }

    fn float(&mut self, schema: &Value, float: &DeFloat<'_>, at: usize) -> Option<Value> {
        let number = float.as_str().parse().unwrap_or(f64::NAN);
        if !number.is_finite() {
            let message = "must be a finite number".to_owned();
            return self.fault(at, message, words::hint(schema, &self.path));
        }
        if let Some(range) = words::outside(schema, number) {
            return self.fault(
                at,
                format!("{range}, got {number}"),
                words::hint(schema, &self.path),
            );
        }
        Some(number.into())
    }

    fn bad_size(&mut self, schema: &Value, bad: BadSize, at: usize) -> Option<Value> {
        self.fault(at, bad.to_string(), words::hint(schema, &self.path))
    }

    /// `message` reads on from the name of the key that is being looked at.
    fn fault(&mut self, at: usize, message: String, hint: String) -> Option<Value> {
        let problem = Problem::bad_config(format!("{} {message}", self.path)).hint(hint);
        self.checked.findings.push(Finding::at(at, problem));
        self.checked.left_out.insert(self.path.clone());
        None
    }
}
