//! The global `tool` table of a script, read out of its VM.

use mlua::Table;
use moonlark_core::Result;
use moonlark_core::tool_header::{TOOL_HEADER_ALIASES, TOOL_HEADER_FIELDS, ToolHeader};
use moonlark_core::value::Object;

use crate::header_table::{HeaderKind, HeaderTable};
use crate::luau_bridge::Bridge;

const TOOL_TABLE: HeaderKind = HeaderKind {
    name: "tool",
    example: "name = \"…\", description = \"…\", parameters = {}",
    function: "execute",
    params: "params, context",
    aliases: &["run", "handler", "call", "main", "invoke", "fn"],
    max_field_bytes: 1024 * 1024,
};

/// Read the `tool` table out of a script's globals.
pub(crate) fn read_tool_header(bridge: &Bridge, globals: &Table) -> Result<ToolHeader> {
    let tool = HeaderTable::find(bridge, globals, &TOOL_TABLE)?;
    let aliases = TOOL_HEADER_ALIASES.map(|(alias, _)| alias);
    let known: Vec<&str> = TOOL_HEADER_FIELDS.into_iter().chain(aliases).collect();
    let present = tool.check_field_names(&known)?;
    let read = |name: &str| Ok((name.to_owned(), tool.read_field(name)?));
    // In a fixed order: the first mistake is the one that is reported.
    let fields = known.into_iter().filter(|name| present.contains(name)).map(read);
    let fields = fields.collect::<Result<Object>>()?;
    ToolHeader::from_fields(fields, "tool")
}
