//! What `sqlite` and `postgres` have in common: parameters, rows, columns.

use std::borrow::Cow;
use std::collections::HashSet;

use moonlark_core::limits::size;
use moonlark_core::value::{Object, shorten};
use moonlark_core::{Problem, Result, Value};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error};

/// Values for the places that a statement leaves open.
#[derive(Debug)]
pub(crate) enum Params {
    ByPlace(Vec<Value>),
    ByName(Object),
}

impl Default for Params {
    fn default() -> Self {
        Params::ByPlace(Vec::new())
    }
}

impl<'de> Deserialize<'de> for Params {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Array(items) => Ok(Params::ByPlace(items)),
            Value::Object(object) if object.is_empty() => Ok(Params::default()),
            Value::Object(object) => Ok(Params::ByName(object)),
            other => Err(D::Error::custom(format!("expected a list, got {}", other.kind()))),
        }
    }
}

impl JsonSchema for Params {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Params".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"type": "array"}, {"type": "object"}]})
    }
}

/// What a statement gives: rows as objects, counted against a limit as they
/// come in.
#[derive(Debug)]
pub(crate) struct Rows {
    columns: Vec<String>,
    rows: Vec<Value>,
    limit: usize,
    left: usize,
}

/// What an entry takes at least, wherever it is held.
const ENTRY: usize = 16;

impl Rows {
    pub(crate) fn new(columns: Vec<String>, limit: usize) -> Result<Rows> {
        let mut seen = HashSet::new();
        if let Some(twice) = columns.iter().find(|name| !seen.insert(name.as_str())) {
            return Err(Problem::bad_request(format!(
                "two columns of the result are named {:?}",
                shorten(twice)
            ))
            .hint("give each a name of its own with AS"));
        }
        Ok(Rows { columns, rows: Vec::new(), limit, left: limit })
    }

    /// Bytes that the rows may still take.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    pub(crate) fn into_objects(self) -> impl Iterator<Item = Value> {
        self.rows.into_iter()
    }

    /// Add a row; `values` are asked for in the order of the columns.
    pub(crate) fn push(&mut self, mut value: impl FnMut(usize) -> Result<Value>) -> Result<()> {
        let mut row = Object::new();
        row.reserve(self.columns.len());
        self.spend(ENTRY)?;
        for index in 0..self.columns.len() {
            let value = value(index)?;
            self.spend(weight(&value).saturating_add(self.columns[index].len()))?;
            row.insert(self.columns[index].clone(), value);
        }
        self.rows.push(Value::Object(row));
        Ok(())
    }

    fn spend(&mut self, bytes: usize) -> Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => return Err(too_large(self.limit)),
        }
        Ok(())
    }
}

pub(crate) fn too_large(limit: usize) -> Problem {
    Problem::limit(format!("the result is larger than {}", size(limit)))
        .hint("ask for fewer rows or columns, for example with LIMIT, or raise limits.value")
}

fn weight(value: &Value) -> usize {
    ENTRY
        + match value {
            Value::Str(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::Array(items) => items.iter().map(weight).sum(),
            Value::Object(object) => {
                object.iter().map(|(key, item)| key.len() + weight(item)).sum()
            }
            _ => 0,
        }
}

impl From<Rows> for Value {
    fn from(rows: Rows) -> Self {
        Value::Array(rows.rows)
    }
}

impl JsonSchema for Rows {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Rows".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "array", "items": {"type": "object"}})
    }
}

/// One column of a table.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// As the database writes it.
    #[schemars(rename = "type")]
    pub(crate) kind: String,
    pub(crate) nullable: bool,
    /// The expression that stands for a missing value.
    pub(crate) default: Option<String>,
    pub(crate) primary_key: bool,
}

impl From<Column> for Value {
    fn from(column: Column) -> Self {
        Value::object([
            ("name", column.name.into()),
            ("type", column.kind.into()),
            ("nullable", column.nullable.into()),
            ("default", column.default.into()),
            ("primary_key", column.primary_key.into()),
        ])
    }
}

/// What no database takes, and what would end a statement early in one of them.
pub(crate) fn check_text(sql: &str) -> Result<()> {
    if sql.contains('\0') {
        return Err(Problem::bad_request("the SQL contains a zero byte"));
    }
    Ok(())
}
