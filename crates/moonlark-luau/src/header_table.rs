//! The global table with which a script describes itself: `tool`, `agent`, `connector`.
//! Only raw access: nothing of the script runs here.

use mlua::{Table, Value as Lv};
use moonlark_core::nearest::nearest_name;
use moonlark_core::{Problem, Result, Value};

use crate::luau_bridge::Bridge;

pub(crate) struct HeaderTable<'x> {
    bridge: &'x Bridge,
    kind: &'x HeaderKind,
    table: Table,
}

/// What such a table is called, and what has to be in it.
pub(crate) struct HeaderKind {
    pub(crate) name: &'static str,
    /// How it begins, for a hint.
    pub(crate) example: &'static str,
    /// The function that does the work, with its parameters.
    pub(crate) function: &'static str,
    pub(crate) params: &'static str,
    /// What others call that function.
    pub(crate) aliases: &'static [&'static str],
    /// Bytes that are read of one field.
    pub(crate) max_field_bytes: usize,
}

impl<'x> HeaderTable<'x> {
    /// Find the table among a script's globals, with its function.
    pub(crate) fn find(
        bridge: &'x Bridge,
        globals: &Table,
        kind: &'x HeaderKind,
    ) -> Result<HeaderTable<'x>> {
        let HeaderKind { name, example, function, params, aliases, .. } = kind;
        let table = match globals.raw_get(*name) {
            Ok(Lv::Table(table)) => table,
            Ok(Lv::Nil) => {
                let is_tool = matches!(globals.raw_get("tool"), Ok(Lv::Table(_)));
                let message = format!("the script defines no global table named {name}");
                return Err(Problem::bad_script(message).with_hint(if is_tool {
                    "this is a tool: it belongs into the tools folder".to_owned()
                } else {
                    format!(
                        "start it with: {name} = {{ {example} }}; \
                         or begin the file's name with _ if others are to require it"
                    )
                }));
            }
            _ => return Err(Problem::bad_script(format!("{name} must be a table"))),
        };
        let is_function = |field: &str| matches!(table.raw_get(field), Ok(Lv::Function(_)));
        if !is_function(function) {
            let hint = match aliases.iter().find(|alias| is_function(alias)) {
                Some(alias) => format!("rename {name}.{alias} to {name}.{function}"),
                None => format!("add: function {name}.{function}({params}) … end"),
            };
            let message = format!("{name}.{function} is not a function");
            return Err(Problem::bad_script(message).with_hint(hint));
        }
        Ok(HeaderTable { bridge, kind, table })
    }

    /// Refuse a field that is none of these, and nearly one of them. Returns those that the
    /// table has.
    pub(crate) fn check_field_names<'k>(&self, known: &[&'k str]) -> Result<Vec<&'k str>> {
        let (mut present, mut unknown) = (Vec::new(), Vec::new());
        let _ = self.table.for_each(|key: Lv, _: Lv| {
            if let Lv::String(key) = key {
                let key = key.to_string_lossy();
                match known.iter().find(|field| **field == key) {
                    Some(field) => present.push(*field),
                    None if key == self.kind.function => {}
                    None => unknown.push(key),
                }
            }
            Ok(())
        });
        // Helpers kept in the table are fine; a misspelt field is not.
        unknown.sort();
        let known = || known.iter().copied().chain([self.kind.function]);
        let name = self.kind.name;
        match unknown.iter().find_map(|field| Some((nearest_name(field, known())?, field))) {
            Some((near, field)) => {
                Err(Problem::bad_script(format!("{name}.{field} means nothing"))
                    .with_hint(format!("did you mean {name}.{near}?")))
            }
            None => Ok(present),
        }
    }

    pub(crate) fn read_field(&self, field: &str) -> Result<Value> {
        let value = self.table.raw_get::<Lv>(field).unwrap_or(Lv::Nil);
        let what = format!("{}.{field}", self.kind.name);
        self.bridge.read_value(&value, &what, self.kind.max_field_bytes)
    }

    pub(crate) fn read_text(&self, field: &str) -> Result<Option<String>> {
        text_from_value(&format!("{}.{field}", self.kind.name), self.read_field(field)?)
    }
}

pub(crate) fn text_from_value(what: &str, value: Value) -> Result<Option<String>> {
    match value {
        Value::Null => Ok(None),
        Value::Str(text) => Ok(Some(text)),
        other => Err(wrong_kind_problem(what, "a string", &other)),
    }
}

pub(crate) fn wrong_kind_problem(what: &str, must_be: &str, value: &Value) -> Problem {
    Problem::bad_script(format!("{what} must be {must_be}, got {}", value.kind()))
}
