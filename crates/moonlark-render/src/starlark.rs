//! Starlark: a stub in Python's syntax for editors.
//!
//! No editor knows Starlark's modules, but Python's language servers read
//! stubs, and the two languages agree on what a stub says. Host modules are
//! drawn from their descriptors; the contract of an extension is written by
//! hand in `starlark/contract.pyi`, with the parts that code knows filled in.

mod signature;
mod stub;
mod types;
mod values;

use serde_json::Value as Json;

use super::function_parts::{properties_of, search_options};
use moonlark_core::module::{Module, ScriptLanguage};
use moonlark_core::schema::Schema;
use types::{StarlarkTypeStyle, write_type};
use values::is_starlark_name;

pub use signature::{short_starlark_signature, starlark_example_call, starlark_signature};
pub use types::starlark_type;
pub use values::starlark_value;

/// The stub of everything an extension finds. `search` is what the built-in of
/// that name takes.
pub fn python_stub(modules: &[Module], search: &Schema) -> String {
    let mut text =
        include_str!("starlark/contract.pyi").replace("SEARCH_OPTIONS", &search_keywords(search));
    text.push_str("\n# Host modules\n");
    for module in modules.iter().filter(|module| module.is_for_language(ScriptLanguage::Starlark)) {
        stub::write_module(&mut text, module);
    }
    text
}

/// `, mode: Literal["keyword"] = "keyword", limit: int = 12`
fn search_keywords(search: &Schema) -> String {
    properties_of(&search_options(search))
        .filter(|(name, _)| is_starlark_name(name))
        .map(|(name, schema)| {
            let default = schema.get("default").unwrap_or(&Json::Null);
            let kind = write_type(schema, StarlarkTypeStyle::Stub, default.is_null());
            format!(", {name}: {kind} = {}", starlark_value(default))
        })
        .collect()
}
