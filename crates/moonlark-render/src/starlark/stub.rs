//! The modules as classes of a Python stub: `http.get` is a static method, a
//! table with known fields is a `TypedDict`.

use std::fmt::Write;

use serde_json::Value as Json;

use super::signature::{starlark_parameters, starlark_result_type};
use super::types::{StarlarkTypeStyle, write_type};
use super::values::is_starlark_name;
use crate::function_parts::{
    object_fields, one_line_description, param_type_name, requires_field, result_type_name,
};
use moonlark_core::module::{FunctionParam, Module, ModuleConstant, ModuleFunction};
use moonlark_core::value::Value;

/// The type of a parameter, by name where it has one.
pub(super) fn starlark_param_type(
    module: &Module,
    function: &ModuleFunction,
    param: &FunctionParam,
    place: StarlarkTypeStyle,
) -> String {
    match param_type_name(module, function, param) {
        Some(name) if param.required => name,
        Some(name) => format!("{name} | None"),
        // Left out, a parameter with a default of its own is that, not `None`.
        None => {
            let default = param.schema.get("default").is_some_and(|default| !default.is_null());
            write_type(&param.schema, place, !param.required && !default)
        }
    }
}

pub(super) fn write_module(text: &mut String, module: &Module) {
    let mut known: Vec<String> = Vec::new();
    let mut table = |name: Option<String>, schema: &Json, given: bool| {
        if let Some(name) = name
            && !known.contains(&name)
        {
            write_table(text, &name, schema, given);
            known.push(name);
        }
    };
    for function in &module.functions {
        for param in &function.params {
            table(param_type_name(module, function, param), &param.schema, false);
        }
        table(result_type_name(function), &function.returns, true);
    }
    if module.callable {
        for function in &module.functions {
            write_function(text, module, function, "");
        }
        return;
    }
    let _ = write!(text, "\nclass {}:\n", module.name);
    write_docstring(text, module.doc, "    ");
    for constant in &module.constants {
        write_constant(text, constant);
    }
    for function in &module.functions {
        text.push_str("\n    @staticmethod\n");
        write_function(text, module, function, "    ");
    }
}

/// A table with known fields. What a function gives has all of them; what it
/// takes may lack the optional ones.
fn write_table(text: &mut String, name: &str, schema: &Json, given: bool) {
    let fields = object_fields(schema).into_iter().flatten();
    let _ = write!(text, "\nclass {name}(TypedDict):\n");
    let mut empty = true;
    for (field, schema_of) in fields.filter(|(field, _)| is_starlark_name(field)) {
        let required = requires_field(schema, field);
        let kind = write_type(schema_of, StarlarkTypeStyle::Stub, !required);
        let kind = if required || given { kind } else { format!("NotRequired[{kind}]") };
        let _ = writeln!(text, "    {field}: {kind}");
        write_docstring(text, &one_line_description(schema_of), "    ");
        empty = false;
    }
    if empty {
        text.push_str("    ...\n");
    }
}

fn write_constant(text: &mut String, constant: &ModuleConstant) {
    let kind = match constant.value {
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Float(_) => "float",
        Value::Str(_) | Value::Bytes(_) => "str",
        Value::Null => "None",
        Value::Array(_) | Value::Object(_) => "Any",
    };
    let _ = write!(text, "\n    {}: {kind}\n", constant.name);
    write_docstring(text, constant.doc, "    ");
}

fn write_function(text: &mut String, module: &Module, function: &ModuleFunction, indent: &str) {
    let params = starlark_parameters(module, function, StarlarkTypeStyle::Stub);
    let result = starlark_result_type(function, StarlarkTypeStyle::Stub);
    if indent.is_empty() {
        text.push('\n');
    }
    let _ = writeln!(text, "{indent}def {}({params}) -> {result}:", function.name);
    let mut lines = function.tool.description.clone();
    if let Some(grant) = function.needs {
        let _ = write!(lines, "\n\nNeeds the grant `{grant}`.");
    }
    let documented =
        || function.params.iter().map(|param| (param, one_line_description(&param.schema)));
    if documented().any(|(_, doc)| !doc.is_empty()) {
        lines.push('\n');
    }
    for (param, doc) in documented().filter(|(_, doc)| !doc.is_empty()) {
        let _ = write!(lines, "\n{}: {doc}", param.name);
    }
    write_docstring(text, &lines, &format!("{indent}    "));
}

fn write_docstring(text: &mut String, doc: &str, indent: &str) {
    if doc.is_empty() {
        return;
    }
    let doc = doc.replace('\\', "\\\\").replace("\"\"\"", "\\\"\\\"\\\"");
    let doc = match doc.strip_suffix('"') {
        Some(start) => format!("{start}\\\""),
        None => doc,
    };
    let mut lines = doc.lines();
    let _ = write!(text, "{indent}\"\"\"{}", lines.next().unwrap_or_default());
    let mut more = false;
    for line in lines {
        more = true;
        let line = format!("{indent}{line}");
        let _ = write!(text, "\n{}", line.trim_end());
    }
    if more {
        let _ = write!(text, "\n{indent}");
    }
    text.push_str("\"\"\"\n");
}
