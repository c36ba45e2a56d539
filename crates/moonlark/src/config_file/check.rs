//! The document against the schema: every mistake, or the document as JSON.
//!
//! Only the keywords that the config structs produce are known here (a test
//! holds the two together). A mistake is pinned to the byte it stands at, and
//! no message quotes a value of a script's own configuration.

mod words;

use moonlark_core::nearest::nearest;
use moonlark_core::problem::Problem;
use moonlark_core::value::MAX_DEPTH;
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeArray, DeFloat, DeInteger, DeTable, DeValue};

use super::Env;
use super::expand::{Fault, expand};
use super::finding::Finding;
use super::key_path::KeyPath;
use super::secret::Variables;
use crate::config::{BadSize, Size, Span};

/// A document that fits the schema.
pub(super) struct Checked {
    /// All of it, with the variables of the environment filled in.
    pub(super) value: Value,
    /// The strings that had such variables.
    pub(super) expanded: Variables,
}

pub(super) fn check(
    schema: &Value,
    document: &DeTable<'_>,
    env: Env<'_>,
) -> Result<Checked, Vec<Finding>> {
    let mut walk =
        Walk { env, path: KeyPath::default(), expanded: Variables::new(), findings: Vec::new() };
    let value = walk.table(schema, document, 0);
    if walk.findings.is_empty() {
        Ok(Checked { value, expanded: walk.expanded })
    } else {
        Err(walk.findings)
    }
}

struct Walk<'a> {
    env: Env<'a>,
    path: KeyPath,
    expanded: Variables,
    findings: Vec<Finding>,
}

/// Each method gives the value as JSON. After a finding that is null: the
/// document is refused as a whole, so nobody sees it.
impl Walk<'_> {
    fn value(&mut self, schema: &Value, value: &Spanned<DeValue<'_>>) -> Value {
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
            DeValue::Boolean(boolean) => Value::Bool(*boolean),
            DeValue::Datetime(datetime) => Value::String(datetime.to_string()),
            DeValue::Array(array) => self.array(schema, array),
            DeValue::Table(table) => self.table(schema, table, at),
        }
    }

    fn table(&mut self, schema: &Value, table: &DeTable<'_>, at: usize) -> Value {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);

        let mut object = Map::new();
        for (key, value) in entries {
            let at = key.span().start;
            let key = key.get_ref().as_ref();
            let known = schema["properties"].get(key);
            match known.or(schema.get("additionalProperties")) {
                Some(Value::Bool(false)) => self.unknown(schema, key, at),
                subschema => {
                    self.path.key(key);
                    let value = self.value(subschema.unwrap_or(&Value::Null), value);
                    self.path.pop();
                    object.insert(key.to_owned(), value);
                }
            }
        }
        self.missing(schema, table, at);
        Value::Object(object)
    }

    fn unknown(&mut self, schema: &Value, key: &str, at: usize) {
        let valid: Vec<&str> = words::properties(schema).map(|(name, _)| name.as_str()).collect();
        let hint = match nearest(key, valid.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None if self.path.is_root() => format!("valid keys: {}", valid.join(", ")),
            None => format!("valid keys of {}: {}", self.path, valid.join(", ")),
        };
        let message = format!("unknown key {}", self.path.with(key));
        self.findings.push(Finding::at(at, Problem::bad_config(message).hint(hint)));
    }

    fn missing(&mut self, schema: &Value, table: &DeTable<'_>, at: usize) {
        let required = schema["required"].as_array().into_iter().flatten();
        for key in required.filter_map(Value::as_str).filter(|key| !table.contains_key(*key)) {
            let path = self.path.with(key);
            let example = words::example(&schema["properties"][key]);
            let hint = match example {
                Some(example) => format!("add a line such as {key} = {example}"),
                None => format!("add {key}"),
            };
            let problem = Problem::bad_config(format!("{path} is missing")).hint(hint);
            self.findings.push(Finding::at(at, problem));
        }
    }

    fn array(&mut self, schema: &Value, array: &DeArray<'_>) -> Value {
        let items = array.iter().enumerate().map(|(index, item)| {
            self.path.index(index);
            let value = self.value(&schema["items"], item);
            self.path.pop();
            value
        });
        Value::Array(items.collect())
    }

    fn string(&mut self, schema: &Value, text: &str, at: usize) -> Value {
        let expanded = match expand(text, self.env) {
            Ok(expanded) => expanded,
            Err(faults) => return self.not_expanded(faults, at),
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
            self.expanded.insert(self.path.clone(), expanded.variables);
        }
        Value::String(expanded.text)
    }

    fn not_expanded(&mut self, faults: Vec<Fault>, at: usize) -> Value {
        let literal = "write \"${NAME}\" for a variable, or \"$${\" for a literal \"${\"";
        for fault in faults {
            let (message, hint) = match fault {
                Fault::Missing(name) => (
                    format!("needs the environment variable {name}, which is not set"),
                    format!("set {name}, or write a default: \"${{{name}:-default}}\""),
                ),
                Fault::Unterminated => {
                    ("has a \"${\" without a \"}\"".to_owned(), literal.to_owned())
                }
                Fault::NotAName => {
                    ("has a \"${…}\" that names no variable".to_owned(), literal.to_owned())
                }
                Fault::NestedDefault(name) => (
                    format!("has a \"${{\" inside the default of {name}"),
                    "a default is plain text; leave the inner variable out".to_owned(),
                ),
            };
            self.fault(at, message, hint);
        }
        Value::Null
    }

    fn integer(&mut self, schema: &Value, integer: &DeInteger<'_>, at: usize) -> Value {
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
        number.into()
    }

    fn float(&mut self, schema: &Value, float: &DeFloat<'_>, at: usize) -> Value {
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
        number.into()
    }

    fn bad_size(&mut self, schema: &Value, bad: BadSize, at: usize) -> Value {
        self.fault(at, bad.to_string(), words::hint(schema, &self.path))
    }

    /// `message` reads on from the name of the key that is being looked at.
    fn fault(&mut self, at: usize, message: String, hint: String) -> Value {
        let problem = Problem::bad_config(format!("{} {message}", self.path)).hint(hint);
        self.findings.push(Finding::at(at, problem));
        Value::Null
    }
}
