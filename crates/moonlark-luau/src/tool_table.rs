//! The global `tool` table of a script, read out of its VM.

use mlua::{Table, Value as Lv};
use moonlark_core::authored::{FIELDS, Header};
use moonlark_core::nearest::nearest;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Result};

use crate::bridge::Bridge;

/// Read the `tool` table out of a script's globals. Only raw access: nothing of
/// the script runs here.
pub(crate) fn read(bridge: &Bridge, globals: &Table) -> Result<Header> {
    let tool = match globals.raw_get("tool") {
        Ok(Lv::Table(tool)) => tool,
        Ok(Lv::Nil) => {
            return Err(Problem::bad_script("the script defines no global table named tool").hint(
                "start it with: tool = { name = \"…\", description = \"…\", parameters = {} }; \
                 or begin the file's name with _ if others are to require it",
            ));
        }
        _ => return Err(Problem::bad_script("tool must be a table")),
    };
    match tool.raw_get::<Lv>("execute") {
        Ok(Lv::Function(_)) => {}
        _ => {
            return Err(Problem::bad_script("tool.execute is not a function")
                .hint("add: function tool.execute(params, context) … end"));
        }
    }
    check_fields(&tool)?;
    let mut fields = Object::new();
    for name in FIELDS {
        let value = tool.raw_get::<Lv>(name).unwrap_or(Lv::Nil);
        fields.insert(name.to_owned(), bridge.read(&value, &format!("tool.{name}"), 1024 * 1024)?);
    }
    Header::read(fields, "tool")
}

fn check_fields(tool: &Table) -> Result<()> {
    let known = || FIELDS.into_iter().chain(["execute", "title"]);
    let mut unknown = None;
    let _ = tool.for_each(|key: Lv, _: Lv| {
        if let Lv::String(key) = key {
            let key = key.to_string_lossy();
            if !known().any(|known| known == key) {
                unknown.get_or_insert(key);
            }
        }
        Ok(())
    });
    // Helpers kept in the table are fine; a misspelt field is not.
    match unknown.and_then(|name| Some((nearest(&name, known())?, name))) {
        Some((near, name)) => Err(Problem::bad_script(format!("tool.{name} means nothing"))
            .hint(format!("did you mean tool.{near}?"))),
        None => Ok(()),
    }
}
