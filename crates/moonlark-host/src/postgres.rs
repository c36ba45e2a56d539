//! `postgres`: PostgreSQL servers.
//!
//! Here stand the functions and their documentation. [`connection_target`] reads a
//! connection string and asks whether its server may be reached, [`postgres_socket`]
//! connects, [`postgres_session`] keeps connections and cancels what nobody waits for,
//! [`postgres_statement`] decides what a statement may do and runs it, [`percent_encode`] and
//! [`decode`] know the types, [`postgres_errors`] says what went wrong.

mod connection_target;
mod decode;
mod encode;
mod postgres_errors;
mod postgres_session;
mod postgres_socket;
mod postgres_statement;
#[cfg(test)]
mod tests;

use moonlark_core::grant::AllowedWrite;
use moonlark_core::value::shorten_text;
use moonlark_core::{Module, Problem, ProblemCode, Result, Value};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::args::ScriptList;
use crate::sql::{SqlColumn, SqlRows};
use connection_target::PostgresTarget;
use postgres_statement::{PostgresStatement, PostgresStatementResult, run_statement};

pub(crate) fn module() -> Module {
    let denied = |sql: &str| json!({"conn": "postgres://me@127.0.0.1/app", "sql": sql});
    let conn = "postgres://me@db.example.com/app";
    Module::new(
        "postgres",
        "Read PostgreSQL databases, and change them where this is allowed. The server has to be \
         named by a grant. Each call is one statement and one transaction, on a connection from a \
         pool. Times and dates come as ISO 8601 text, json as values, numeric as a number where \
         that keeps every digit and as a string otherwise; other types need a cast to text.",
    )
    .async_function("query", "Run one statement and give its rows as a list of objects.", query)
    .positional_params(&["params"])
    .needs("net:HOST")
    .mocked_example(
        json!({
            "conn": conn,
            "sql": "SELECT id, title FROM tickets WHERE state = $1",
            "params": ["open"],
        }),
        json!([{"id": 7, "title": "It is broken"}]),
    )
    .fails(denied("SELECT 1"), "may not reach 127.0.0.1:5432")
    .fails(json!({"conn": "nonsense", "sql": "SELECT 1"}), "not a valid connection string")
    .fails(json!({"conn": "postgres:///app", "sql": "SELECT 1"}), "names no host")
    .async_function("execute", "Run one statement that changes something.", execute)
    .positional_params(&["params"])
    .needs("sql:write")
    .with_side_effects()
    .mocked_example(
        json!({
            "conn": conn,
            "sql": "UPDATE tickets SET state = 'closed' WHERE id = $1",
            "params": [7],
        }),
        json!({"rows_affected": 1}),
    )
    .fails(denied("DELETE FROM t"), "may not change databases")
    .async_function(
        "list_tables",
        "The sorted names of the tables and views, with the schema in front where it is needed.",
        list_tables,
    )
    .needs("net:HOST")
    .mocked_example(json!({"conn": conn}), json!(["archive.tickets", "tickets"]))
    .fails(json!({"conn": "postgres://me@127.0.0.1/app"}), "may not reach 127.0.0.1:5432")
    .async_function(
        "describe_table",
        "The columns of a table or view, in their order.",
        describe_table,
    )
    .needs("net:HOST")
    .mocked_example(
        json!({"conn": conn, "table": "tickets"}),
        json!([
            {"name": "id", "type": "bigint", "nullable": false, "default": "nextval('tickets_id_seq'::regclass)", "primary_key": true},
            {"name": "title", "type": "text", "nullable": true, "default": null, "primary_key": false},
        ]),
    )
    .fails(
        json!({"conn": "postgres://me@127.0.0.1/app", "table": "t"}),
        "may not reach 127.0.0.1:5432",
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PostgresStatementArgs {
    /// The database: postgres://user:password@host:5432/name, or
    /// host=… user=… password=… dbname=….
    conn: String,
    /// One SQL statement.
    sql: String,
    /// Values for $1, $2 and so on. Use `json.null` for NULL. Strings are read
    /// as whatever type the statement needs; lists fill arrays, and objects
    /// json.
    #[serde(default)]
    params: Option<ScriptList>,
}

async fn query(call: Call, args: PostgresStatementArgs) -> Result<SqlRows> {
    let write = call.grants().check_sql_write("postgres.query").ok();
    Ok(connect_and_run(call, "postgres.query", args, write).await?.rows)
}

/// What a change did.
#[derive(JsonSchema)]
#[schemars(inline)]
struct PostgresChanged {
    /// How many rows were inserted, updated or deleted.
    rows_affected: i64,
}

impl From<PostgresChanged> for Value {
    fn from(changed: PostgresChanged) -> Self {
        Value::from_fields([("rows_affected", changed.rows_affected.into())])
    }
}

async fn execute(call: Call, args: PostgresStatementArgs) -> Result<PostgresChanged> {
    let write = call.grants().check_sql_write("postgres.execute")?;
    let done = connect_and_run(call, "postgres.execute", args, Some(write)).await?;
    Ok(PostgresChanged { rows_affected: done.affected })
}

async fn connect_and_run(
    call: Call,
    what: &'static str,
    args: PostgresStatementArgs,
    write: Option<AllowedWrite>,
) -> Result<PostgresStatementResult> {
    let target = PostgresTarget::from_connection_string(&call, what, &args.conn)?;
    let params = args.params.unwrap_or_default().0;
    run_statement(&call, target, PostgresStatement { what, sql: &args.sql, params, write }).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PostgresListTablesArgs {
    /// The database: postgres://user:password@host:5432/name, or
    /// host=… user=… password=… dbname=….
    conn: String,
}

/// A table is named as `describe_table` finds it again.
const POSTGRES_LIST_TABLES_SQL: &str =
    "SELECT CASE WHEN pg_table_is_visible(c.oid) THEN c.relname::text
        ELSE n.nspname || '.' || c.relname END AS name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
        AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
    ORDER BY 1";

async fn list_tables(call: Call, args: PostgresListTablesArgs) -> Result<Vec<String>> {
    let what = "postgres.list_tables";
    let target = PostgresTarget::from_connection_string(&call, what, &args.conn)?;
    let ask =
        PostgresStatement { what, sql: POSTGRES_LIST_TABLES_SQL, params: Vec::new(), write: None };
    let rows = run_statement(&call, target, ask).await?.rows;
    Ok(rows.into_objects().map(|row| text_column(&row, "name")).collect())
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PostgresDescribeTableArgs {
    /// The database: postgres://user:password@host:5432/name, or
    /// host=… user=… password=… dbname=….
    conn: String,
    /// The table's name as it is, with its schema if that is not searched.
    table: String,
}

const POSTGRES_DESCRIBE_TABLE_SQL: &str = "SELECT a.attname::text AS name,
        format_type(a.atttypid, a.atttypmod) AS type, NOT a.attnotnull AS nullable,
        pg_get_expr(d.adbin, d.adrelid) AS default,
        coalesce(a.attnum = ANY(i.indkey), false) AS primary_key
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND (n.nspname || '.' || c.relname = $1::text
        OR c.relname::text = $1::text AND pg_table_is_visible(c.oid))
    ORDER BY c.oid, a.attnum";

async fn describe_table(call: Call, args: PostgresDescribeTableArgs) -> Result<Vec<SqlColumn>> {
    let what = "postgres.describe_table";
    let target = PostgresTarget::from_connection_string(&call, what, &args.conn)?;
    let params = vec![args.table.as_str().into()];
    let ask = PostgresStatement { what, sql: POSTGRES_DESCRIBE_TABLE_SQL, params, write: None };
    let rows = run_statement(&call, target, ask).await?.rows;
    let columns: Vec<SqlColumn> = rows
        .into_objects()
        .map(|row| SqlColumn {
            name: text_column(&row, "name"),
            kind: text_column(&row, "type"),
            nullable: row.get("nullable") == Some(&Value::Bool(true)),
            default: row.get("default").and_then(Value::as_str).map(str::to_owned),
            primary_key: row.get("primary_key") == Some(&Value::Bool(true)),
        })
        .collect();
    if columns.is_empty() {
        let message = format!("there is no table {}", shorten_text(&args.table));
        return Err(Problem::new(ProblemCode::NotFound, message)
            .with_hint("postgres.list_tables gives the tables that there are"));
    }
    Ok(columns)
}

fn text_column(row: &Value, column: &str) -> String {
    row.get(column).and_then(Value::as_str).unwrap_or_default().to_owned()
}
