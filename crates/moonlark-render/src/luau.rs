//! Luau: what luau-lsp needs to know about a tool script's globals.
//!
//! Host modules are drawn from their descriptors. The contract of a script is
//! no module, so its types are written by hand in `luau/contract.d.luau`, with
//! the parts that code knows filled in.

mod merged_schema;
pub mod sdk_docs;
mod signature;
mod type_names;
mod types;
mod values;

use std::fmt::Write;

use serde_json::Value as Json;

use super::function_parts::{
    object_fields, one_line_description, option_params, options_type_name, param_type_name,
    progress_function, requires_field, result_type_name, search_options,
};
use moonlark_core::answer_shape::AnswerShape;
use moonlark_core::module::{FunctionParam, Module, ModuleFunction, ScriptLanguage};
use moonlark_core::problem::{ProblemCode, Result};
use moonlark_core::schema::Schema;
use moonlark_core::value::Value;
use signature::{luau_parameters, luau_result_type, unnamed_param_type};
use types::table_key;

pub use signature::{luau_example_call, luau_param_type, luau_signature};
pub use types::{is_luau_name, luau_optional_type, luau_type};
pub use values::luau_value;

/// The definitions of everything a tool script finds. `search` is what the
/// built-in of that name takes.
pub fn tool_script_definitions(modules: &[Module], search: &Schema) -> Result<String> {
    let mut text = script_contract(modules, search)?;
    text.push_str(
        "\n-- Host modules -----------------------------------------------------------------\n",
    );
    text.push_str(&module_definitions(modules));
    Ok(text)
}

/// Those of host modules alone.
pub fn module_definitions(modules: &[Module]) -> String {
    let mut text = String::new();
    for module in modules.iter().filter(|module| module.is_for_language(ScriptLanguage::Luau)) {
        write_module(&mut text, module);
    }
    text
}

/// The longest type of a value that is shown; more than that explains nothing.
const MAX_VALUE_TYPE_BYTES: usize = 4000;

/// The type of a value as Luau writes it, drawn from its beginning.
pub fn luau_type_of(value: &Value) -> String {
    let mut drawn = luau_type(&AnswerShape::from_value(value).to_schema());
    if drawn.len() > MAX_VALUE_TYPE_BYTES {
        drawn.truncate(drawn.floor_char_boundary(MAX_VALUE_TYPE_BYTES));
        drawn.push('…');
    }
    drawn
}

fn script_contract(modules: &[Module], search: &Schema) -> Result<String> {
    let codes: Vec<String> =
        ProblemCode::ALL_CODES.iter().map(|code| format!("{:?}", code.as_str())).collect();
    let (module, function) = progress_function(modules)?;
    let options = luau_type(&Json::Object(search_options(search)));
    Ok(include_str!("luau/contract.d.luau")
        .replace("PROBLEM_CODES", &codes.join("\n    | "))
        .replace("PROGRESS", &function_type(module, function))
        .replace("SEARCH_OPTIONS", &options))
}

fn write_module(text: &mut String, module: &Module) {
    for (name, body) in named_table_types(module) {
        let _ = write!(text, "\nexport type {name} = {body}\n");
    }
    let _ = write!(text, "\n--- {}\n", module.doc);
    if module.callable {
        for function in &module.functions {
            let (params, result) = (luau_parameters(module, function), luau_result_type(function));
            let _ = writeln!(text, "declare function {}({params}): {result}", function.name);
        }
        return;
    }
    let _ = writeln!(text, "declare {}: {{", module.name);
    for function in &module.functions {
        let _ = writeln!(text, "    --- {}", function.tool.description);
        let kind = function_type(module, function);
        let _ = writeln!(text, "    {}: {kind},", table_key(function.name));
    }
    for constant in &module.constants {
        let _ = writeln!(text, "    --- {}", constant.doc);
        let kind = constant_type(&constant.value);
        let _ = writeln!(text, "    {}: {kind},", table_key(constant.name));
    }
    text.push_str("}\n");
}

fn function_type(module: &Module, function: &ModuleFunction) -> String {
    format!("({}) -> {}", luau_parameters(module, function), luau_result_type(function))
}

fn constant_type(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "boolean",
        Value::Int(_) | Value::Float(_) => "number",
        Value::Str(_) | Value::Bytes(_) => "string",
        Value::Null | Value::Array(_) | Value::Object(_) => "any",
    }
}

/// The tables that the module's functions take and give, each once.
fn named_table_types(module: &Module) -> Vec<(String, String)> {
    let mut types: Vec<(String, String)> = Vec::new();
    let mut add = |name: Option<String>, body: &dyn Fn() -> String| {
        if let Some(name) = name
            && !types.iter().any(|(known, _)| *known == name)
        {
            types.push((name, body()));
        }
    };
    for function in &module.functions {
        for param in &function.params {
            add(param_type_name(module, function, param), &|| table_type(&param.schema));
        }
        add(options_type_name(module, function), &|| options_table_type(option_params(function)));
        add(result_type_name(function), &|| table_type(&function.returns));
    }
    types
}

fn options_table_type(params: &[FunctionParam]) -> String {
    let lines = params
        .iter()
        .map(|param| (one_line_description(&param.schema), &param.name, unnamed_param_type(param)));
    lines_table_type(lines)
}

fn table_type(schema: &Json) -> String {
    let Some(fields) = object_fields(schema) else { return luau_type(schema) };
    lines_table_type(fields.iter().map(|(name, field)| {
        (one_line_description(field), name, luau_field_type(schema, name, field))
    }))
}

/// The type of a field of an object with this schema.
pub(super) fn luau_field_type(schema: &Json, name: &str, field: &Json) -> String {
    if requires_field(schema, name) { luau_type(field) } else { luau_optional_type(field) }
}

fn lines_table_type<'a>(fields: impl Iterator<Item = (String, &'a String, String)>) -> String {
    let lines: String = fields
        .map(|(doc, name, kind)| format!("    --- {doc}\n    {}: {kind},\n", table_key(name)))
        .collect();
    format!("{{\n{lines}}}")
}
