//! The global `tool` table of a script, read out of its VM.

use mlua::{Table, Value as Lv};
use moonlark_core::nearest::nearest_name;
use moonlark_core::tool_header::{TOOL_HEADER_ALIASES, TOOL_HEADER_FIELDS, ToolHeader};
use moonlark_core::value::Object;
use moonlark_core::{Problem, Result};

use crate::luau_bridge::Bridge;

/// Read the `tool` table out of a script's globals. Only raw access: nothing of
/// the script runs here.
pub(crate) fn read_tool_header(bridge: &Bridge, globals: &Table) -> Result<ToolHeader> {
    let tool = match globals.raw_get("tool") {
        Ok(Lv::Table(tool)) => tool,
        Ok(Lv::Nil) => {
            return Err(Problem::bad_script("the script defines no global table named tool")
                .with_hint(
                    "start it with: tool = { name = \"…\", description = \"…\", parameters = {} }; \
                 or begin the file's name with _ if others are to require it",
                ));
        }
        _ => return Err(Problem::bad_script("tool must be a table")),
    };
    match tool.raw_get::<Lv>("execute") {
        Ok(Lv::Function(_)) => {}
        _ => {
            let is_function = |name: &&str| matches!(tool.raw_get(*name), Ok(Lv::Function(_)));
            let hint = match EXECUTE_ALIASES.into_iter().find(|name| is_function(name)) {
                Some(name) => format!("rename tool.{name} to tool.execute"),
                None => "add: function tool.execute(params, context) … end".to_owned(),
            };
            return Err(Problem::bad_script("tool.execute is not a function").with_hint(hint));
        }
    }
    check_tool_fields(&tool)?;
    let mut fields = Object::new();
    for name in TOOL_HEADER_FIELDS.into_iter().chain(TOOL_HEADER_ALIASES.map(|(alias, _)| alias)) {
        let value = tool.raw_get::<Lv>(name).unwrap_or(Lv::Nil);
        fields.insert(
            name.to_owned(),
            bridge.read_value(&value, &format!("tool.{name}"), 1024 * 1024)?,
        );
    }
    ToolHeader::from_fields(fields, "tool")
}

/// What others call `execute`.
const EXECUTE_ALIASES: [&str; 6] = ["run", "handler", "call", "main", "invoke", "fn"];

fn check_tool_fields(tool: &Table) -> Result<()> {
    let known = || {
        TOOL_HEADER_FIELDS
            .into_iter()
            .chain(TOOL_HEADER_ALIASES.map(|(alias, _)| alias))
            .chain(["execute"])
    };
    let mut unknown = Vec::new();
    let _ = tool.for_each(|key: Lv, _: Lv| {
        if let Lv::String(key) = key {
            let key = key.to_string_lossy();
            if !known().any(|known| known == key) {
                unknown.push(key);
            }
        }
        Ok(())
    });
    // Helpers kept in the table are fine; a misspelt field is not.
    unknown.sort();
    match unknown.into_iter().find_map(|name| Some((nearest_name(&name, known())?, name))) {
        Some((near, name)) => Err(Problem::bad_script(format!("tool.{name} means nothing"))
            .with_hint(format!("did you mean tool.{near}?"))),
        None => Ok(()),
    }
}
