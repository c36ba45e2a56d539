//! What `sqlite` and `postgres` have in common: parameters, rows, columns.

use std::borrow::Cow;
use std::collections::HashSet;

use moonlark_core::limits::format_size;
use moonlark_core::value::{Object, shorten_text};
use moonlark_core::{Problem, Result, Value};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error};

/// Values for the places that a statement leaves open.
#[derive(Debug)]
pub(crate) enum SqlParams {
    ByPlace(Vec<Value>),
    ByName(Object),
}

impl Default for SqlParams {
    fn default() -> Self {
        SqlParams::ByPlace(Vec::new())
    }
}

impl<'de> Deserialize<'de> for SqlParams {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Array(items) => Ok(SqlParams::ByPlace(items)),
            Value::Object(object) if object.is_empty() => Ok(SqlParams::default()),
            Value::Object(object) => Ok(SqlParams::ByName(object)),
            other => Err(D::Error::custom(format!("expected a list, got {}", other.kind()))),
        }
    }
}

impl JsonSchema for SqlParams {
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
pub(crate) struct SqlRows {
    columns: Vec<String>,
    rows: Vec<Value>,
    limit: usize,
    left: usize,
}

/// What an entry takes at least, wherever it is held.
const SQL_ENTRY_OVERHEAD_BYTES: usize = 16;

impl SqlRows {
    pub(crate) fn new(columns: Vec<String>, limit: usize) -> Result<SqlRows> {
        let mut seen = HashSet::new();
        if let Some(twice) = columns.iter().find(|name| !seen.insert(name.as_str())) {
            return Err(Problem::bad_request(format!(
                "two columns of the result are named {:?}",
                shorten_text(twice)
            ))
            .with_hint("give each a name of its own with AS"));
        }
        Ok(SqlRows { columns, rows: Vec::new(), limit, left: limit })
    }

    /// Bytes that the rows may still take.
    pub(crate) fn bytes_left(&self) -> usize {
        self.left
    }

    pub(crate) fn into_objects(self) -> impl Iterator<Item = Value> {
        self.rows.into_iter()
    }

    /// Add a row; `values` are asked for in the order of the columns.
    pub(crate) fn push_row(&mut self, mut value: impl FnMut(usize) -> Result<Value>) -> Result<()> {
        let mut row = Object::new();
        row.reserve(self.columns.len());
        self.charge_bytes(SQL_ENTRY_OVERHEAD_BYTES)?;
        for index in 0..self.columns.len() {
            let value = value(index)?;
            self.charge_bytes(
                estimate_value_bytes(&value).saturating_add(self.columns[index].len()),
            )?;
            row.insert(self.columns[index].clone(), value);
        }
        self.rows.push(Value::Object(row));
        Ok(())
    }

    fn charge_bytes(&mut self, bytes: usize) -> Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => return Err(result_too_large_problem(self.limit)),
        }
        Ok(())
    }
}

pub(crate) fn result_too_large_problem(limit: usize) -> Problem {
    Problem::limit_exceeded(format!("the result is larger than {}", format_size(limit)))
        .with_hint("ask for fewer rows or columns, for example with LIMIT, or raise limits.value")
}

fn estimate_value_bytes(value: &Value) -> usize {
    SQL_ENTRY_OVERHEAD_BYTES
        + match value {
            Value::Str(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::Array(items) => items.iter().map(estimate_value_bytes).sum(),
            Value::Object(object) => {
                object.iter().map(|(key, item)| key.len() + estimate_value_bytes(item)).sum()
            }
            _ => 0,
        }
}

impl From<SqlRows> for Value {
    fn from(rows: SqlRows) -> Self {
        Value::Array(rows.rows)
    }
}

impl JsonSchema for SqlRows {
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
pub(crate) struct SqlColumn {
    pub(crate) name: String,
    /// As the database writes it.
    #[schemars(rename = "type")]
    pub(crate) kind: String,
    pub(crate) nullable: bool,
    /// The expression that stands for a missing value.
    pub(crate) default: Option<String>,
    pub(crate) primary_key: bool,
}

impl From<SqlColumn> for Value {
    fn from(column: SqlColumn) -> Self {
        Value::from_fields([
            ("name", column.name.into()),
            ("type", column.kind.into()),
            ("nullable", column.nullable.into()),
            ("default", column.default.into()),
            ("primary_key", column.primary_key.into()),
        ])
    }
}

/// What no database takes, and what would end a statement early in one of them.
pub(crate) fn check_sql_text(sql: &str) -> Result<()> {
    if sql.contains('\0') {
        return Err(Problem::bad_request("the SQL contains a zero byte"));
    }
    Ok(())
}
