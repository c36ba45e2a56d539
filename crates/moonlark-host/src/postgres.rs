//! `postgres`: PostgreSQL servers.
//!
//! Here stand the functions and their documentation. [`target`] reads a
//! connection string and asks whether its server may be reached, [`socket`]
//! connects, [`session`] keeps connections and cancels what nobody waits for,
//! [`statement`] decides what a statement may do and runs it, [`encode`] and
//! [`decode`] know the types, [`failure`] says what went wrong.

mod decode;
mod encode;
mod failure;
mod session;
mod socket;
mod statement;
mod target;
#[cfg(test)]
mod tests;

use moonlark_core::grant::AllowedWrite;
use moonlark_core::value::shorten;
use moonlark_core::{Call, Code, Module, Problem, Result, Value};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::args::List;
use crate::sql::{Column, Rows};
use statement::{Ask, Done, run};
use target::Target;

pub(crate) fn module() -> Module {
    let denied = |sql: &str| json!({"conn": "postgres://me@127.0.0.1/app", "sql": sql});
    Module::new(
        "postgres",
        "Read PostgreSQL databases, and change them where this is allowed. The server has to be \
         named by a grant. Each call is one statement and one transaction, on a connection from a \
         pool. Times and dates come as ISO 8601 text, json as values, numeric as a number where \
         that keeps every digit and as a string otherwise; other types need a cast to text.",
    )
    .waiting("query", "Run one statement and give its rows as a list of objects.", query)
    .positional(&["params"])
    .needs("net:HOST")
    .fails(denied("SELECT 1"), "may not reach 127.0.0.1:5432")
    .fails(json!({"conn": "nonsense", "sql": "SELECT 1"}), "not a valid connection string")
    .fails(json!({"conn": "postgres:///app", "sql": "SELECT 1"}), "names no host")
    .waiting("execute", "Run one statement that changes something.", execute)
    .positional(&["params"])
    .needs("sql:write")
    .changes()
    .fails(denied("DELETE FROM t"), "may not change databases")
    .waiting(
        "list_tables",
        "The sorted names of the tables and views, with the schema in front where it is needed.",
        list_tables,
    )
    .needs("net:HOST")
    .fails(json!({"conn": "postgres://me@127.0.0.1/app"}), "may not reach 127.0.0.1:5432")
    .waiting("describe_table", "The columns of a table or view, in their order.", describe_table)
    .needs("net:HOST")
    .fails(
        json!({"conn": "postgres://me@127.0.0.1/app", "table": "t"}),
        "may not reach 127.0.0.1:5432",
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Statement {
    /// The database: postgres://user:password@host:5432/name, or
    /// host=… user=… password=… dbname=….
    conn: String,
    /// One SQL statement.
    sql: String,
    /// Values for $1, $2 and so on. Use `json.null` for NULL. Strings are read
    /// as whatever type the statement needs; lists fill arrays, and objects
    /// json.
    #[serde(default)]
    params: Option<List>,
}

async fn query(call: Call, args: Statement) -> Result<Rows> {
    let write = call.grants().sql_write("postgres.query").ok();
    Ok(ask(call, "postgres.query", args, write).await?.rows)
}

/// What a change did.
#[derive(JsonSchema)]
#[schemars(inline)]
struct Changed {
    /// How many rows were inserted, updated or deleted.
    rows_affected: i64,
}

impl From<Changed> for Value {
    fn from(changed: Changed) -> Self {
        Value::object([("rows_affected", changed.rows_affected.into())])
    }
}

async fn execute(call: Call, args: Statement) -> Result<Changed> {
    let write = call.grants().sql_write("postgres.execute")?;
    let done = ask(call, "postgres.execute", args, Some(write)).await?;
    Ok(Changed { rows_affected: done.affected })
}

async fn ask(
    call: Call,
    what: &'static str,
    args: Statement,
    write: Option<AllowedWrite>,
) -> Result<Done> {
    let target = Target::read(&call, what, &args.conn)?;
    let params = args.params.unwrap_or_default().0;
    run(&call, target, Ask { what, sql: &args.sql, params, write }).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Database {
    /// The database: postgres://user:password@host:5432/name, or
    /// host=… user=… password=… dbname=….
    conn: String,
}

/// A table is named as `describe_table` finds it again.
const TABLES: &str = "SELECT CASE WHEN pg_table_is_visible(c.oid) THEN c.relname::text
        ELSE n.nspname || '.' || c.relname END AS name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
        AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
    ORDER BY 1";

async fn list_tables(call: Call, args: Database) -> Result<Vec<String>> {
    let what = "postgres.list_tables";
    let target = Target::read(&call, what, &args.conn)?;
    let ask = Ask { what, sql: TABLES, params: Vec::new(), write: None };
    let rows = run(&call, target, ask).await?.rows;
    Ok(rows.into_objects().map(|row| text(&row, "name")).collect())
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Table {
    /// The database: postgres://user:password@host:5432/name, or
    /// host=… user=… password=… dbname=….
    conn: String,
    /// The table's name as it is, with its schema if that is not searched.
    table: String,
}

const COLUMNS: &str = "SELECT a.attname::text AS name,
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

async fn describe_table(call: Call, args: Table) -> Result<Vec<Column>> {
    let what = "postgres.describe_table";
    let target = Target::read(&call, what, &args.conn)?;
    let params = vec![args.table.as_str().into()];
    let ask = Ask { what, sql: COLUMNS, params, write: None };
    let rows = run(&call, target, ask).await?.rows;
    let columns: Vec<Column> = rows
        .into_objects()
        .map(|row| Column {
            name: text(&row, "name"),
            kind: text(&row, "type"),
            nullable: row.get("nullable") == Some(&Value::Bool(true)),
            default: row.get("default").and_then(Value::as_str).map(str::to_owned),
            primary_key: row.get("primary_key") == Some(&Value::Bool(true)),
        })
        .collect();
    if columns.is_empty() {
        let message = format!("there is no table {}", shorten(&args.table));
        return Err(Problem::new(Code::NotFound, message)
            .hint("postgres.list_tables gives the tables that there are"));
    }
    Ok(columns)
}

fn text(row: &Value, column: &str) -> String {
    row.get(column).and_then(Value::as_str).unwrap_or_default().to_owned()
}
