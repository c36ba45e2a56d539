//! `sqlite`: databases in files.
//!
//! Here stand the functions and their documentation. [`database_file`] decides which
//! file a path means and opens it, [`sqlite_authorizer`] what a statement may do, [`sqlite_statement`]
//! runs it off the async threads and stops it in time, [`bind_params`] fills in
//! parameters, [`sqlite_errors`] says what went wrong.

mod bind;
mod database_file;
mod sqlite_authorizer;
mod sqlite_errors;
mod sqlite_statement;
#[cfg(test)]
mod tests;

use moonlark_core::{Module, Result, Value};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::args::ScriptTable;
use crate::sql::{SqlColumn, SqlParams};
use sqlite_statement::run_statement;

pub(crate) fn module() -> Module {
    let missing = || json!({"path": "missing.db", "sql": "SELECT 1"});
    let outside = || json!({"path": "../other.db", "sql": "SELECT 1"});
    Module::new(
        "sqlite",
        "Read SQLite databases, and change them where this is allowed. Files in the script's own \
         directory are open; others need a grant. Text and bytes that are UTF-8 come as strings. \
         Each call is one statement and one transaction.",
    )
    .async_function("query", "Run one statement and give its rows as a list of objects.", query)
    .positional_params(&["params"])
    .needs("sqlite:PATH")
    .mocked_example(
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
    .async_function(
        "execute",
        "Run one statement that changes something. A database that is not there is made.",
        execute,
    )
    .positional_params(&["params"])
    .needs("sql:write")
    .with_side_effects()
    .mocked_example(
        json!({
            "path": "notes.db",
            "sql": "INSERT INTO notes (title) VALUES (:title)",
            "params": {"title": "Buy tea"},
        }),
        json!({"rows_affected": 1, "last_insert_id": 1}),
    )
    .fails(json!({"path": "a.db", "sql": "DELETE FROM t"}), "may not change databases")
    .async_function("list_tables", "The sorted names of the tables and views.", list_tables)
    .needs("sqlite:PATH")
    .mocked_example(json!({"path": "notes.db"}), json!(["notes", "tags"]))
    .fails(json!({"path": "missing.db"}), "no file missing.db")
    .async_function(
        "describe_table",
        "The columns of a table or view, in their order.",
        describe_table,
    )
    .needs("sqlite:PATH")
    .mocked_example(
        json!({"path": "notes.db", "table": "notes"}),
        json!([
            {"name": "id", "type": "INTEGER", "nullable": false, "default": null, "primary_key": true},
            {"name": "title", "type": "TEXT", "nullable": true, "default": null, "primary_key": false},
        ]),
    )
    .fails(json!({"path": "missing.db", "table": "t"}), "no file missing.db")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SqliteStatementArgs {
    /// The database file, relative to the script's directory.
    path: String,
    /// One SQL statement.
    sql: String,
    /// A list for `?` in order, or an object for `:name`. Use `json.null` for
    /// NULL. Strings are bound as text and booleans as 0 and 1.
    params: Option<SqlParams>,
}

async fn query(call: Call, args: SqliteStatementArgs) -> Result<Vec<ScriptTable>> {
    let write = call.grants().check_sql_write("sqlite.query").ok();
    Ok(run_statement(call, "sqlite.query", args, write, false).await?.rows.into_tables())
}

/// What a change did.
#[derive(JsonSchema)]
#[schemars(inline)]
struct SqliteChanged {
    /// How many rows were inserted, updated or deleted.
    rows_affected: i64,
    /// The row id of the last row inserted by this statement, if it inserted
    /// any.
    last_insert_id: Option<i64>,
}

impl From<SqliteChanged> for Value {
    fn from(changed: SqliteChanged) -> Self {
        Value::from_fields([
            ("rows_affected", changed.rows_affected.into()),
            ("last_insert_id", changed.last_insert_id.into()),
        ])
    }
}

async fn execute(call: Call, args: SqliteStatementArgs) -> Result<SqliteChanged> {
    let write = call.grants().check_sql_write("sqlite.execute")?;
    let done = run_statement(call, "sqlite.execute", args, Some(write), true).await?;
    Ok(SqliteChanged { rows_affected: done.changes, last_insert_id: done.last_insert_id })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SqliteListTablesArgs {
    /// The database file, relative to the script's directory.
    path: String,
}

const SQLITE_LIST_TABLES_SQL: &str = r"SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')
    AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name";

async fn list_tables(call: Call, args: SqliteListTablesArgs) -> Result<Vec<String>> {
    let sql = SQLITE_LIST_TABLES_SQL.into();
    let ask = SqliteStatementArgs { path: args.path, sql, params: None };
    Ok(run_statement(call, "sqlite.list_tables", ask, None, false).await?.rows.into_names())
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SqliteDescribeTableArgs {
    /// The database file, relative to the script's directory.
    path: String,
    /// The table's name.
    table: String,
}

/// A row id is never NULL, though its column does not say so.
const SQLITE_DESCRIBE_TABLE_SQL: &str = r#"SELECT name, type, dflt_value AS "default", pk > 0 AS primary_key,
    "notnull" = 0 AND NOT (upper(type) = 'INTEGER' AND pk = 1
        AND (SELECT max(pk) FROM pragma_table_info(?1)) = 1) AS nullable
    FROM pragma_table_info(?1) ORDER BY cid"#;

async fn describe_table(call: Call, args: SqliteDescribeTableArgs) -> Result<Vec<SqlColumn>> {
    let ask = SqliteStatementArgs {
        path: args.path,
        sql: SQLITE_DESCRIBE_TABLE_SQL.into(),
        params: Some(SqlParams::ByPlace(vec![args.table.as_str().into()])),
    };
    let done = run_statement(call, "sqlite.describe_table", ask, None, false).await?;
    done.rows.into_columns(&args.table, "sqlite.list_tables")
}
