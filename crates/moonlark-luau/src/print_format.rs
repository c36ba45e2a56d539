//! The format of `print` and `tostring`: tables as JSON, within bounds.
//!
//! Printing is for looking, so nothing is refused: what is no value is named in
//! place, a table inside itself too, and a large one is shown in part. A text that
//! the script goes on with is made of tables only that hold nothing but values.

use mlua::{Table, Value as Lv};
use moonlark_core::ProblemCode;
use moonlark_core::value::{Object, Value};
use moonlark_gateway::artifacts::preview_value;

use crate::luau_bridge::Bridge;

/// Bytes of one printed table.
const MAX_PRINTED_BYTES: usize = 4096;
/// Bytes of a table that are looked at to print it.
const MAX_PRINT_READ_BYTES: usize = 1 << 20;
/// Levels of a table that is not only values, and entries of all of them.
const MAX_PRINTED_DEPTH: usize = 16;
const MAX_PRINTED_ENTRIES: usize = 1000;

/// A table as JSON; none for what has words of its own.
pub(crate) fn format_printed_value(bridge: &Bridge, value: &Lv) -> Option<String> {
    match value {
        Lv::LightUserData(pointer) if pointer.0.is_null() => Some("null".to_owned()),
        Lv::Table(table) if !has_tostring(table) => {
            let read = bridge.read_value(value, "print", MAX_PRINT_READ_BYTES);
            Some(encode_or_preview(read.unwrap_or_else(|_| TableSketch::new().sketch_table(table))))
        }
        _ => None,
    }
}

/// The text of a table that is nothing but values, and of null; none for all else.
pub(crate) fn format_plain_value(bridge: &Bridge, value: &Lv) -> Option<String> {
    match value {
        Lv::LightUserData(pointer) if pointer.0.is_null() => Some("null".to_owned()),
        Lv::Table(table) if bridge.is_plain_table(table) => {
            match bridge.read_value(value, "tostring", MAX_PRINT_READ_BYTES) {
                Ok(read) => Some(encode_or_preview(read)),
                // Only too large.
                Err(problem) if problem.code == ProblemCode::Limit => {
                    Some(encode_or_preview(TableSketch::new().sketch_table(table)))
                }
                Err(_) => None,
            }
        }
        _ => None,
    }
}

fn encode_or_preview(value: Value) -> String {
    match value.encode_json("print") {
        Ok(text) if text.len() <= MAX_PRINTED_BYTES => text,
        _ => preview_value(&value, MAX_PRINTED_BYTES),
    }
}

fn has_tostring(table: &Table) -> bool {
    let words = |meta: Table| meta.raw_get::<Lv>("__tostring").is_ok_and(|it| !it.is_nil());
    table.metatable().is_some_and(words)
}

/// Draws tables that are not only values.
struct TableSketch {
    left: usize,
    /// The tables on the way down.
    parents: Vec<usize>,
}

impl TableSketch {
    fn new() -> TableSketch {
        TableSketch { left: MAX_PRINTED_ENTRIES, parents: Vec::new() }
    }

    fn sketch_value(&mut self, value: &Lv) -> Value {
        match value {
            Lv::Nil => Value::Null,
            Lv::Boolean(flag) => Value::Bool(*flag),
            Lv::Integer(int) => Value::Int(*int),
            Lv::Number(number) if number.is_finite() => Value::Float(*number),
            Lv::Number(number) => Value::Str(format!("<{number}>")),
            Lv::String(text) => Value::Str(truncate_text(text)),
            Lv::LightUserData(pointer) if pointer.0.is_null() => Value::Null,
            Lv::Table(table) if has_tostring(table) => {
                Value::Str(format!("<{}>", prelude_kind_name(table)))
            }
            Lv::Table(table) => self.sketch_table(table),
            other => Value::Str(format!("<{}>", other.type_name())),
        }
    }

    fn sketch_table(&mut self, table: &Table) -> Value {
        let pointer = table.to_pointer() as usize;
        if self.parents.contains(&pointer) {
            return "<this table again>".into();
        }
        if self.parents.len() == MAX_PRINTED_DEPTH {
            return "<table>".into();
        }
        self.parents.push(pointer);
        let mut entries: Vec<(Lv, Value)> = Vec::new();
        // Stopping early is no failure.
        let _ = table.for_each(|key: Lv, item: Lv| {
            self.left = self.left.checked_sub(1).ok_or_else(|| mlua::Error::runtime("enough"))?;
            let item = self.sketch_value(&item);
            entries.push((key, item));
            Ok(())
        });
        self.parents.pop();
        let cut = self.left == 0;
        let in_order =
            |at: usize, key: &Lv| matches!(key, Lv::Integer(index) if *index == at as i64 + 1);
        if !entries.is_empty() && entries.iter().enumerate().all(|(at, (key, _))| in_order(at, key))
        {
            let mut items: Vec<Value> = entries.into_iter().map(|(_, item)| item).collect();
            items.extend(cut.then(|| "<more>".into()));
            return Value::Array(items);
        }
        let mut fields: Vec<(String, Value)> =
            entries.into_iter().map(|(key, item)| (key_text(&key), item)).collect();
        fields.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        fields.extend(cut.then(|| ("…".to_owned(), "<more>".into())));
        Value::Object(fields.into_iter().collect::<Object>())
    }
}

/// As much of a text as can be shown: one text may stand in a thousand places.
fn truncate_text(text: &mlua::LuaString) -> String {
    let bytes = text.as_bytes();
    let shown = bytes.get(..MAX_PRINTED_BYTES).unwrap_or(&bytes);
    String::from_utf8_lossy(shown).into_owned()
}

/// What the prelude calls its own tables: `promise`, `source`.
fn prelude_kind_name(table: &Table) -> String {
    let named = |meta: Table| meta.raw_get::<Option<String>>("__metatable").ok().flatten();
    table.metatable().and_then(named).unwrap_or_else(|| "table".to_owned())
}

fn key_text(key: &Lv) -> String {
    match key {
        Lv::String(text) => truncate_text(text),
        Lv::Integer(int) => format!("[{int}]"),
        Lv::Number(number) => format!("[{number}]"),
        Lv::Boolean(flag) => format!("[{flag}]"),
        other => format!("[{}]", other.type_name()),
    }
}
