//! The document against the schema: every mistake, and the document as JSON as far as
//! it is right.
//!
//! Only the keywords that the config structs produce are known here (a test
//! holds the two together). A mistake is pinned to the byte it stands at, and
//! no message quotes a value of a script's own configuration.

mod near_miss_keys;
mod schema_messages;

use std::collections::{BTreeMap, BTreeSet};

use moonlark_core::nearest::nearest_name;
use moonlark_core::problem::Problem;
use moonlark_core::value::MAX_VALUE_DEPTH;
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeArray, DeFloat, DeInteger, DeTable, DeValue};

use super::config_finding::ConfigFinding;
use super::config_secrets::ExpandedVariables;
use super::key_path::ConfigKeyPath;
use super::value_sources::ValueSources;
use super::variable_expansion::{ExpansionFault, expand_variables};
use crate::{ByteSize, HumanDuration};

pub(super) use schema_messages::hint_for_path;

/// What became of a document.
#[derive(Default)]
pub(super) struct CheckedDocument {
    /// All of it that is right, with the variables filled in.
    pub(super) value: Value,
    /// The strings that had variables.
    pub(super) expanded: ExpandedVariables,
    /// Where every key stands.
    pub(super) offsets: BTreeMap<ConfigKeyPath, usize>,
    /// What is not in `value` as it was written: it is wrong, or it has no value yet.
    pub(super) left_out: BTreeSet<ConfigKeyPath>,
    /// Strings whose variable or file is not there.
    pub(super) absent: Vec<AbsentConfigValue>,
    pub(super) findings: Vec<ConfigFinding>,
    /// What is allowed and hardly meant.
    pub(super) warnings: Vec<ConfigFinding>,
}

/// A string that has no value on this machine.
pub(super) struct AbsentConfigValue {
    pub(super) key: ConfigKeyPath,
    /// The whole string, as it is written.
    pub(super) text: String,
    pub(super) finding: ConfigFinding,
}

pub(super) fn check_document(
    schema: &Value,
    document: &DeTable<'_>,
    text: &str,
    values: &ValueSources<'_>,
) -> CheckedDocument {
    let mut walk = DocumentChecker {
        values,
        text,
        path: ConfigKeyPath::default(),
        checked: CheckedDocument::default(),
    };
    let value = walk.check_table(schema, document, 0);
    CheckedDocument { value, ..walk.checked }
}

struct DocumentChecker<'a> {
    values: &'a ValueSources<'a>,
    text: &'a str,
    path: ConfigKeyPath,
    checked: CheckedDocument,
}

/// Each method gives the value as JSON; none where it is to be left out.
impl DocumentChecker<'_> {
    fn check_value(&mut self, schema: &Value, value: &Spanned<DeValue<'_>>) -> Option<Value> {
        let at = value.span().start;
        if self.path.depth() > MAX_VALUE_DEPTH {
            return self.report_fault(
                at,
                format!("is nested deeper than {MAX_VALUE_DEPTH} levels"),
                "use fewer levels".to_owned(),
            );
        }
        let value = value.get_ref();
        if !schema_messages::accepts_toml_type(schema, value) {
            let message = format!(
                "must be {}, got {}",
                schema_messages::expected_type_phrase(schema),
                value.type_str()
            );
            return self.report_wrong_value(schema, at, message);
        }
        match value {
            DeValue::String(text) => self.check_string(schema, text, at),
            DeValue::Integer(integer) => self.check_integer(schema, integer, at),
            DeValue::Float(float) => self.check_float(schema, float, at),
            DeValue::Boolean(boolean) => Some(Value::Bool(*boolean)),
            DeValue::Datetime(datetime) => Some(Value::String(datetime.to_string())),
            DeValue::Array(array) => Some(self.check_array(schema, array)),
            DeValue::Table(table) => Some(self.check_table(schema, table, at)),
        }
    }

    fn check_table(&mut self, schema: &Value, table: &DeTable<'_>, at: usize) -> Value {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);

        let mut object = Map::new();
        for (key, value) in entries {
            let at = key.span().start;
            let known = schema["properties"].get(key.get_ref().as_ref());
            if known.is_none() {
                self.warn_about_near_miss(schema, table, key, value);
            }
            let key = key.get_ref().as_ref();
            match known.or(schema.get("additionalProperties")) {
                Some(Value::Bool(false)) => self.report_unknown_key(schema, key, at),
                subschema => {
                    self.path.push_key(key);
                    self.checked.offsets.insert(self.path.clone(), at);
                    let value = self.check_value(subschema.unwrap_or(&Value::Null), value);
                    self.path.pop();
                    object.extend(value.map(|value| (key.to_owned(), value)));
                }
            }
        }
        self.report_missing_keys(schema, table, &mut object, at);
        Value::Object(object)
    }

    fn report_unknown_key(&mut self, schema: &Value, key: &str, at: usize) {
        let valid: Vec<&str> =
            schema_messages::schema_properties(schema).map(|(name, _)| name.as_str()).collect();
        let hint = match nearest_name(key, valid.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None if self.path.is_root() => format!("valid keys: {}", valid.join(", ")),
            None => format!("valid keys of {}: {}", self.path, valid.join(", ")),
        };
        let path = self.path.with_key(key);
        let message = format!("unknown key {path}");
        self.checked
            .findings
            .push(ConfigFinding::at_offset(at, Problem::bad_config(message).with_hint(hint)));
        self.checked.left_out.insert(path);
    }

    fn report_missing_keys(
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
            let path = self.path.with_key(key);
            if !table.contains_key(key) {
                let hint = match schema_messages::example_value(&schema["properties"][key]) {
                    Some(example) => format!("add a line such as {key} = {example}"),
                    None => format!("add {key}"),
                };
                let problem = Problem::bad_config(format!("{path} is missing")).with_hint(hint);
                self.checked.findings.push(ConfigFinding::at_offset(at, problem));
            }
            // So that the rest of the table can be looked at all the same.
            object.insert(
                key.to_owned(),
                schema_messages::placeholder_value(&schema["properties"][key]),
            );
            self.checked.left_out.insert(path);
        }
    }

    fn check_array(&mut self, schema: &Value, array: &DeArray<'_>) -> Value {
        let items = array.iter().enumerate().filter_map(|(index, item)| {
            self.path.push_index(index);
            self.checked.offsets.insert(self.path.clone(), item.span().start);
            let value = self.check_value(&schema["items"], item);
            self.path.pop();
            value
        });
        Value::Array(items.collect())
    }

    fn check_string(&mut self, schema: &Value, text: &str, at: usize) -> Option<Value> {
        let expanded = match expand_variables(text, self.values) {
            Ok(expanded) => expanded,
            Err(faults) => return self.report_expansion_faults(schema, text, faults, at),
        };
        let wrong = match schema["format"].as_str() {
            Some(ByteSize::SCHEMA_FORMAT) => expanded.text.parse::<ByteSize>().err(),
            Some(HumanDuration::SCHEMA_FORMAT) => expanded.text.parse::<HumanDuration>().err(),
            _ => None,
        };
        if let Some(message) = wrong {
            return self.report_wrong_value(schema, at, message.to_owned());
        }
        if let Some(words) = schema["enum"].as_array()
            && !words.iter().any(|word| word.as_str() == Some(&expanded.text))
        {
            let known: Vec<String> = words.iter().map(Value::to_string).collect();
            let near = nearest_name(&expanded.text, words.iter().filter_map(Value::as_str));
            let hint = match near {
                Some(near) => format!("did you mean {near:?}?"),
                None => schema_messages::correction_hint(schema, &self.path),
            };
            return self.report_fault(at, format!("must be one of {}", known.join(", ")), hint);
        }
        if schema["minLength"] == 1 && expanded.text.is_empty() {
            return self.report_wrong_value(schema, at, "must not be empty".to_owned());
        }
        if !expanded.variables.is_empty() {
            self.checked.expanded.insert(self.path.clone(), expanded.variables);
        }
        Some(Value::String(expanded.text))
    }

    /// A text that lacks nothing but a value stays as it is written, where any text will
    /// do: whoever uses it must look at `absent` first.
    fn report_expansion_faults(
        &mut self,
        schema: &Value,
        text: &str,
        faults: Vec<ExpansionFault>,
        at: usize,
    ) -> Option<Value> {
        let only_absent = faults.iter().all(ExpansionFault::is_absence);
        for fault in faults {
            let is_absence = fault.is_absence();
            let (message, hint) = schema_messages::describe_expansion_fault(fault);
            let problem = Problem::bad_config(format!("{} {message}", self.path)).with_hint(hint);
            let finding = ConfigFinding::at_offset(at, problem);
            if is_absence {
                let (key, text) = (self.path.clone(), text.to_owned());
                self.checked.absent.push(AbsentConfigValue { key, text, finding });
            } else {
                self.checked.findings.push(finding);
            }
        }
        self.checked.left_out.insert(self.path.clone());
        let any_text = schema.get("format").is_none() && schema.get("enum").is_none();
        (only_absent && any_text).then(|| Value::String(text.to_owned()))
    }

    fn check_integer(
        &mut self,
        schema: &Value,
        integer: &DeInteger<'_>,
        at: usize,
    ) -> Option<Value> {
        let Ok(number) = i64::from_str_radix(integer.as_str(), integer.radix()) else {
            return self.report_wrong_value(schema, at, "is not a 64-bit integer".to_owned());
        };
        let wrong = if schema["format"] == ByteSize::SCHEMA_FORMAT {
            ByteSize::from_integer(number).err().map(str::to_owned)
        } else {
            let range = schema_messages::range_violation(schema, number as f64);
            range.map(|range| format!("{range}, got {number}"))
        };
        match wrong {
            Some(message) => self.report_wrong_value(schema, at, message),
            None => Some(number.into()),
        }
    }

    fn check_float(&mut self, schema: &Value, float: &DeFloat<'_>, at: usize) -> Option<Value> {
        let number = float.as_str().parse().unwrap_or(f64::NAN);
        if !number.is_finite() {
            return self.report_wrong_value(schema, at, "must be a finite number".to_owned());
        }
        match schema_messages::range_violation(schema, number) {
            Some(range) => self.report_wrong_value(schema, at, format!("{range}, got {number}")),
            None => Some(number.into()),
        }
    }

    /// `message` reads on from the name of the key that is being looked at.
    fn report_fault(&mut self, at: usize, message: String, hint: String) -> Option<Value> {
        let problem = Problem::bad_config(format!("{} {message}", self.path)).with_hint(hint);
        self.checked.findings.push(ConfigFinding::at_offset(at, problem));
        self.checked.left_out.insert(self.path.clone());
        None
    }

    /// The same, with how to write the value right.
    fn report_wrong_value(&mut self, schema: &Value, at: usize, message: String) -> Option<Value> {
        self.report_fault(at, message, schema_messages::correction_hint(schema, &self.path))
    }
}
