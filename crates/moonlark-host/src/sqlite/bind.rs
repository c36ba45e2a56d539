//! Bound parameters of statements.

use moonlark_core::value::{Object, shorten_text};
use moonlark_core::{Problem, Result, Value};
use rusqlite::Statement;
use rusqlite::types::{ToSqlOutput, ValueRef};

use super::sqlite_errors;
use crate::sql::{SqlParams, check_param_count};

pub(super) fn bind_params(
    statement: &mut Statement<'_>,
    params: Option<&SqlParams>,
    path: &str,
) -> Result<()> {
    match params {
        None => bind_by_position(statement, &[], path),
        Some(SqlParams::ByPlace(values)) => bind_by_position(statement, values, path),
        Some(SqlParams::ByName(values)) => bind_by_name(statement, values, path),
    }
}

fn bind_by_position(statement: &mut Statement<'_>, values: &[Value], path: &str) -> Result<()> {
    check_param_count(statement.parameter_count(), values.len())?;
    for (index, value) in values.iter().enumerate() {
        bind_value(statement, index + 1, value, &format!("parameter {}", index + 1), path)?;
    }
    Ok(())
}

fn bind_by_name(statement: &mut Statement<'_>, values: &Object, path: &str) -> Result<()> {
    let mut used = 0;
    for index in 1..=statement.parameter_count() {
        let name = statement.parameter_name(index).map(|name| name[1..].to_owned());
        let Some(name) = name.filter(|name| !name.starts_with(|c: char| c.is_ascii_digit())) else {
            return Err(Problem::bad_request(format!(
                "parameter {index} has no name, but params are given by name"
            ))
            .with_hint("write :name in the statement, or pass a list"));
        };
        let shown = format!("parameter {:?}", shorten_text(&name));
        let value = values.get(&name).ok_or_else(|| {
            Problem::bad_request(format!("the statement uses {shown}, which is not in params"))
        })?;
        bind_value(statement, index, value, &shown, path)?;
        used += 1;
    }
    // The same name with another mark in front (`:a` and `@a`) counts twice.
    if used < values.len() {
        let unknown = values.keys().find(|key| !uses_parameter(statement, key));
        if let Some(unknown) = unknown {
            return Err(Problem::bad_request(format!(
                "params has {:?}, which the statement does not use",
                shorten_text(unknown)
            )));
        }
    }
    Ok(())
}

fn uses_parameter(statement: &Statement<'_>, key: &str) -> bool {
    (1..=statement.parameter_count())
        .any(|index| statement.parameter_name(index).is_some_and(|name| &name[1..] == key))
}

fn bind_value(
    statement: &mut Statement<'_>,
    index: usize,
    value: &Value,
    shown: &str,
    path: &str,
) -> Result<()> {
    let value = match value {
        Value::Null => ValueRef::Null,
        Value::Bool(flag) => ValueRef::Integer(i64::from(*flag)),
        Value::Int(int) => ValueRef::Integer(*int),
        // SQLite would store NULL for the one and keep the other from JSON.
        Value::Float(float) if !float.is_finite() => {
            return Err(Problem::bad_request(format!(
                "{shown} is {float}, which is no number to store"
            )));
        }
        Value::Float(float) => ValueRef::Real(*float),
        Value::Str(text) => ValueRef::Text(text.as_bytes()),
        Value::Bytes(bytes) => ValueRef::Blob(bytes),
        Value::Array(_) | Value::Object(_) => {
            return Err(Problem::bad_request(format!(
                "{shown} is an {}, which SQLite has no type for",
                value.kind()
            ))
            .with_hint("pass it as text with json.encode"));
        }
    };
    statement
        .raw_bind_parameter(index, ToSqlOutput::Borrowed(value))
        .map_err(|error| sqlite_errors::explain_sqlite_error(error, path))
}
