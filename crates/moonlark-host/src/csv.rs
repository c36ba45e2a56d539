//! `csv`: rows to CSV and back.

mod csv_reader;
mod csv_writer;

use std::collections::HashSet;

use moonlark_core::value::shorten_text;
use moonlark_core::{Module, Problem, Result, Value};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::args::{ScriptList, kind_with_article};
use csv_reader::{CsvReader, CsvRow};
use csv_writer::CsvWriter;

pub(crate) fn module() -> Module {
    Module::new(
        "csv",
        "Encode and decode CSV: fields may be quoted and then hold quotes and line breaks. Empty \
         lines are skipped.",
    )
    .pure()
    .function(
        "decode",
        "Decode CSV to a list of objects named by the first line, or to a list of lists. All \
         fields are text.",
        decode,
    )
    .example(
        json!({"text": "id,name\n1,\"Ada, Countess\"\n"}),
        json!([{"id": "1", "name": "Ada, Countess"}]),
    )
    .example(
        json!({"text": "a;b\r\n1;\"x \"\"y\"\"\"", "header": false, "delimiter": ";"}),
        json!([["a", "b"], ["1", "x \"y\""]]),
    )
    .fails(json!({"text": "a,b\n1\n"}), "line 2 has 1 field, but the header has 2")
    .fails(json!({"text": "a\n\"x"}), "the quote at line 2, column 1 is not closed")
    .function(
        "encode",
        "Encode a list of objects, with a header line, or a list of lists. Nothing becomes an \
         empty field.",
        encode,
    )
    .example(
        json!({"rows": [{"id": 1, "name": "Ada, Countess"}, {"id": 2, "name": null}]}),
        json!("id,name\n1,\"Ada, Countess\"\n2,\n"),
    )
    .example(
        json!({"rows": [[1.5, true], ["a\tb", ""]], "delimiter": "\t"}),
        json!("1.5\ttrue\n\"a\tb\"\t\n"),
    )
    .example(json!({"rows": [{"a": 1, "b": 2}], "columns": ["b", "c"]}), json!("b,c\n2,\n"))
    .fails(json!({"rows": [{"a": 1}, {"a": [1]}]}), "row 2, column \"a\" is an array")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CsvDecodeArgs {
    /// CSV text.
    text: String,
    /// Whether the first line names the columns; then each row is an object.
    #[serde(default = "default_header")]
    header: bool,
    /// The character between fields.
    #[serde(default = "default_delimiter")]
    delimiter: String,
}

fn default_header() -> bool {
    true
}

fn default_delimiter() -> String {
    ",".to_owned()
}

/// What a field takes beside its text, in a row and under a name.
const CSV_FIELD_OVERHEAD_BYTES: usize = 56;
const CSV_NAME_OVERHEAD_BYTES: usize = 80;
/// What a row takes beside its fields.
const CSV_ROW_OVERHEAD_BYTES: usize = 64;

fn decode(call: &Call, args: CsvDecodeArgs) -> Result<Vec<Value>> {
    let mut reader =
        CsvReader::new(&args.text, parse_delimiter(&args.delimiter)?, call.limits().value);
    let mut rows = Vec::new();
    let header = if args.header {
        match reader.read_row()? {
            Some(row) => Some(distinct_column_names(row)?),
            None => return Ok(rows),
        }
    } else {
        None
    };
    let names = header.iter().flatten().map(|name| CSV_NAME_OVERHEAD_BYTES + name.len()).sum();
    while let Some(CsvRow { line, fields }) = reader.read_row()? {
        let Some(header) = &header else {
            rows.push(fields.into());
            continue;
        };
        if fields.len() != header.len() {
            let plural = if fields.len() == 1 { "" } else { "s" };
            return Err(Problem::bad_request(format!(
                "line {line} has {} field{plural}, but the header has {}",
                fields.len(),
                header.len()
            ))
            .with_hint("set header to false to take the rows as they are"));
        }
        reader.charge_bytes(names)?;
        let fields = fields.into_iter().map(Value::Str);
        rows.push(Value::Object(header.iter().cloned().zip(fields).collect()));
    }
    Ok(rows)
}

fn distinct_column_names(header: CsvRow) -> Result<Vec<String>> {
    let mut seen = HashSet::new();
    match header.fields.iter().find(|name| !seen.insert(name.as_str())) {
        None => Ok(header.fields),
        Some(name) => Err(Problem::bad_request(format!(
            "the header has two columns named {:?}",
            shorten_text(name)
        ))
        .with_hint("set header to false to take the rows as lists")),
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CsvEncodeArgs {
    /// Objects, or lists of fields.
    rows: ScriptList,
    /// The columns, in this order; of objects, all fields in the order they are
    /// met unless given. For lists, it becomes the header line.
    columns: Option<Vec<String>>,
    /// The character between fields.
    #[serde(default = "default_delimiter")]
    delimiter: String,
}

fn encode(call: &Call, args: CsvEncodeArgs) -> Result<String> {
    let rows = args.rows.0;
    let mut writer = CsvWriter::new(call, parse_delimiter(&args.delimiter)?);
    let objects = rows.iter().any(|row| matches!(row, Value::Object(row) if !row.is_empty()));
    let columns = match args.columns {
        None if objects => Some(collect_columns(&rows)),
        given => given,
    };
    if let Some(columns) = &columns {
        writer.write_header(columns)?;
    }
    for (index, row) in rows.iter().enumerate() {
        let columns = columns.as_deref().unwrap_or_default();
        match row {
            Value::Object(row) if objects => writer.write_object(index, columns, row)?,
            // Some languages write an empty object and an empty list alike.
            Value::Array(row) if objects && row.is_empty() => {
                writer.write_object(index, columns, &Default::default())?;
            }
            Value::Object(row) if row.is_empty() => writer.write_list(index, columns, &[])?,
            Value::Array(row) if !objects => writer.write_list(index, columns, row)?,
            other => {
                let wanted = if objects { "object, as others are" } else { "list" };
                return Err(Problem::bad_request(format!(
                    "row {} is no {wanted}, but {}",
                    index + 1,
                    kind_with_article(other)
                )));
            }
        }
    }
    Ok(writer.into_text())
}

fn collect_columns(rows: &[Value]) -> Vec<String> {
    let mut seen = HashSet::new();
    let names = rows.iter().filter_map(Value::as_object).flat_map(|row| row.keys());
    names.filter(|name| seen.insert(name.as_str())).cloned().collect()
}

fn parse_delimiter(text: &str) -> Result<char> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(one), None) if !matches!(one, '"' | '\r' | '\n') => Ok(one),
        _ => Err(Problem::bad_request(
            "delimiter: expected one character that is no quote and no line break",
        )),
    }
}

#[cfg(test)]
mod tests;
