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
use moonlark_core::{Module, Result, Value};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::args::{ScriptList, ScriptTable};
use crate::sql::SqlColumn;
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
    params: Option<ScriptList>,
}

impl PostgresStatementArgs {
    async fn execute_statement(
        self,
        call: &Call,
        what: &'static str,
        write: Option<AllowedWrite>,
    ) -> Result<PostgresStatementResult> {
        let params = self.params.unwrap_or_default().0;
        let ask = PostgresStatement { what, sql: &self.sql, params, write };
        run_statement(call, &self.conn, ask).await
    }
}

async fn query(call: Call, args: PostgresStatementArgs) -> Result<Vec<ScriptTable>> {
    let write = call.grants().check_sql_write("postgres.query").ok();
    Ok(args.execute_statement(&call, "postgres.query", write).await?.rows.into_tables())
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
    let done = args.execute_statement(&call, "postgres.execute", Some(write)).await?;
    Ok(PostgresChanged { rows_affected: done.affected })
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
    let (what, sql) = ("postgres.list_tables", POSTGRES_LIST_TABLES_SQL);
    let ask = PostgresStatement { what, sql, params: Vec::new(), write: None };
    Ok(run_statement(&call, &args.conn, ask).await?.rows.into_names())
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
    let (what, sql) = ("postgres.describe_table", POSTGRES_DESCRIBE_TABLE_SQL);
    let params = vec![args.table.as_str().into()];
    let ask = PostgresStatement { what, sql, params, write: None };
    let rows = run_statement(&call, &args.conn, ask).await?.rows;
    rows.into_columns(&args.table, "postgres.list_tables")
}
