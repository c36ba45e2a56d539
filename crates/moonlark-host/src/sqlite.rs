//! `sqlite`: databases in files.
//!
//! Here stand the functions and their documentation. [`file`] decides which
//! file a path means and opens it, [`guard`] what a statement may do, [`run`]
//! runs it off the async threads and stops it in time, [`bind`] fills in
//! parameters, [`failure`] says what went wrong.

mod bind;
mod failure;
mod file;
mod guard;
mod run;
#[cfg(test)]
mod tests;

use moonlark_core::value::shorten;
use moonlark_core::{Call, Code, Module, Problem, Result, Value};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::sql::{Column, Params, Rows};
use run::{Ask, run};

pub(crate) fn module() -> Module {
    let missing = || json!({"path": "missing.db", "sql": "SELECT 1"});
    let outside = || json!({"path": "../other.db", "sql": "SELECT 1"});
    Module::new(
        "sqlite",
        "Read SQLite databases, and change them where this is allowed. Files in the script's own \
         directory are open; others need a grant. Text and bytes that are UTF-8 come as strings. \
         Each call is one statement and one transaction.",
    )
    .waiting("query", "Run one statement and give its rows as a list of objects.", query)
    .positional(&["params"])
    .needs("sqlite:PATH")
    .mocked(
        json!({
            "path": "notes.db",
            "sql": "SELECT id, title FROM notes WHERE done = ?",
            "params": [false],
        }),
        json!([{"id": 1, "title": "Buy tea"}]),
    )
    .fails(missing(), "no file missing.db")
    .fails(outside(), "may not open ../other.db")
    .fails(json!({"path": "a.db", "sql": "SELECT ?", "params": 1}), "expected a list")
    .waiting(
        "execute",
        "Run one statement that changes something. A database that is not there is made.",
        execute,
    )
    .positional(&["params"])
    .needs("sql:write")
    .changes()
    .mocked(
        json!({
            "path": "notes.db",
            "sql": "INSERT INTO notes (title) VALUES (:title)",
            "params": {"title": "Buy tea"},
        }),
        json!({"rows_affected": 1, "last_insert_id": 1}),
    )
    .fails(json!({"path": "a.db", "sql": "DELETE FROM t"}), "may not change databases")
    .waiting("list_tables", "The sorted names of the tables and views.", list_tables)
    .needs("sqlite:PATH")
    .fails(json!({"path": "missing.db"}), "no file missing.db")
    .waiting("describe_table", "The columns of a table or view, in their order.", describe_table)
    .needs("sqlite:PATH")
    .fails(json!({"path": "missing.db", "table": "t"}), "no file missing.db")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Statement {
    /// The database file, relative to the script's directory.
    path: String,
    /// One SQL statement.
    sql: String,
    /// A list for `?` in order, or an object for `:name`. Use `json.null` for
    /// NULL. Strings are bound as text and booleans as 0 and 1.
    #[serde(default)]
    params: Option<Params>,
}

impl From<Statement> for Ask {
    fn from(args: Statement) -> Ask {
        Ask { path: args.path, sql: args.sql, params: args.params.unwrap_or_default() }
    }
}

async fn query(call: Call, args: Statement) -> Result<Rows> {
    let write = call.grants().sql_write("sqlite.query").ok();
    Ok(run(call, "sqlite.query", args.into(), write, false).await?.rows)
}

/// What a change did.
#[derive(JsonSchema)]
#[schemars(inline)]
struct Changed {
    /// How many rows were inserted, updated or deleted.
    rows_affected: i64,
    /// The row id of the last row inserted by this statement, if it inserted
    /// any.
    last_insert_id: Option<i64>,
}

impl From<Changed> for Value {
    fn from(changed: Changed) -> Self {
        Value::object([
            ("rows_affected", changed.rows_affected.into()),
            ("last_insert_id", changed.last_insert_id.into()),
        ])
    }
}

async fn execute(call: Call, args: Statement) -> Result<Changed> {
    let write = call.grants().sql_write("sqlite.execute")?;
    let done = run(call, "sqlite.execute", args.into(), Some(write), true).await?;
    Ok(Changed { rows_affected: done.changes, last_insert_id: done.last_insert_id })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Database {
    /// The database file, relative to the script's directory.
    path: String,
}

const TABLES: &str = r"SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')
    AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name";

async fn list_tables(call: Call, args: Database) -> Result<Vec<String>> {
    let ask = Ask { path: args.path, sql: TABLES.into(), params: Params::default() };
    let done = run(call, "sqlite.list_tables", ask, None, false).await?;
    Ok(done.rows.into_objects().map(|row| text(&row, "name")).collect())
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Table {
    /// The database file, relative to the script's directory.
    path: String,
    /// The table's name.
    table: String,
}

/// A row id is never NULL, though its column does not say so.
const COLUMNS: &str = r#"SELECT name, type, dflt_value AS "default", pk > 0 AS primary_key,
    "notnull" = 0 AND NOT (upper(type) = 'INTEGER' AND pk = 1
        AND (SELECT max(pk) FROM pragma_table_info(?1)) = 1) AS nullable
    FROM pragma_table_info(?1) ORDER BY cid"#;

async fn describe_table(call: Call, args: Table) -> Result<Vec<Column>> {
    let params = Params::ByPlace(vec![args.table.as_str().into()]);
    let ask = Ask { path: args.path, sql: COLUMNS.into(), params };
    let done = run(call, "sqlite.describe_table", ask, None, false).await?;
    let columns: Vec<Column> = done
        .rows
        .into_objects()
        .map(|row| Column {
            name: text(&row, "name"),
            kind: text(&row, "type"),
            nullable: row.get("nullable") == Some(&Value::Int(1)),
            default: row.get("default").and_then(Value::as_str).map(str::to_owned),
            primary_key: row.get("primary_key") == Some(&Value::Int(1)),
        })
        .collect();
    if columns.is_empty() {
        let message = format!("there is no table {}", shorten(&args.table));
        return Err(Problem::new(Code::NotFound, message)
            .hint("sqlite.list_tables gives the tables that there are"));
    }
    Ok(columns)
}

fn text(row: &Value, column: &str) -> String {
    row.get(column).and_then(Value::as_str).unwrap_or_default().to_owned()
}
