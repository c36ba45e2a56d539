//! What `sqlite` and `postgres` have in common: parameters, rows, columns.

use std::collections::HashSet;

use moonlark_core::limits::format_size;
use moonlark_core::value::{Object, shorten_text};
use moonlark_core::{Problem, ProblemCode, Result, Value};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::args::ScriptTable;

/// Values for the places that a statement leaves open.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(try_from = "Value")]
#[schemars(inline, description = "", extend("anyOf" = [{"type": "array"}, {"type": "object"}]))]
pub(crate) enum SqlParams {
    ByPlace(#[schemars(with = "Value")] Vec<Value>),
    ByName(#[schemars(with = "Value")] Object),
}

impl TryFrom<Value> for SqlParams {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::Array(items) => Ok(SqlParams::ByPlace(items)),
            Value::Object(object) if object.is_empty() => Ok(SqlParams::ByPlace(Vec::new())),
            Value::Object(object) => Ok(SqlParams::ByName(object)),
            other => Err(format!("expected a list, got {}", other.kind())),
        }
    }
}

/// A statement with `places` parameters is given as many.
pub(crate) fn check_param_count(places: usize, given: usize) -> Result<()> {
    if places == given {
        return Ok(());
    }
    let plural = if places == 1 { "" } else { "s" };
    Err(Problem::bad_request(format!(
        "the statement has {places} parameter{plural}, but {given} were given"
    )))
}

/// What a statement gives: rows as objects, counted against a limit as they
/// come in.
#[derive(Debug)]
pub(crate) struct SqlRows {
    columns: Vec<String>,
    rows: Vec<ScriptTable>,
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

    pub(crate) fn into_tables(self) -> Vec<ScriptTable> {
        self.rows
    }

    /// What the column `name` holds.
    pub(crate) fn into_names(self) -> Vec<String> {
        self.rows.iter().map(|row| text_field(row, "name").unwrap_or_default()).collect()
    }

    /// The columns of `table`, each described by a row; `list_tables` is for the hint.
    pub(crate) fn into_columns(self, table: &str, list_tables: &str) -> Result<Vec<SqlColumn>> {
        if self.rows.is_empty() {
            let message = format!("there is no table {}", shorten_text(table));
            return Err(Problem::new(ProblemCode::NotFound, message)
                .with_hint(format!("{list_tables} gives the tables that there are")));
        }
        let column = |row: &ScriptTable| {
            let text = |field: &str| text_field(row, field);
            let flag =
                |field: &str| matches!(row.0.get(field), Some(Value::Int(1) | Value::Bool(true)));
            SqlColumn {
                name: text("name").unwrap_or_default(),
                kind: text("type").unwrap_or_default(),
                nullable: flag("nullable"),
                default: text("default"),
                primary_key: flag("primary_key"),
            }
        };
        Ok(self.rows.iter().map(column).collect())
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
        self.rows.push(ScriptTable(row));
        Ok(())
    }

    fn charge_bytes(&mut self, bytes: usize) -> Result<()> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| result_too_large_problem(self.limit))?;
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

fn text_field(row: &ScriptTable, field: &str) -> Option<String> {
    row.0.get(field).and_then(Value::as_str).map(str::to_owned)
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
