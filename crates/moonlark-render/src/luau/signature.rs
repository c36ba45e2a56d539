//! How a Luau script calls a host function: arguments by place, then a table
//! of options. The same rule as the engine's, drawn as types.

use crate::function_parts::{
    options_type_name, param_type_name, params_by_place, result_type_name, returns_nothing,
};
use moonlark_core::module::{FunctionExample, FunctionParam, Module, ModuleFunction};

use super::types::{luau_optional_type, luau_type};
use super::values::{luau_field, luau_value};

/// `http.get(url: string, options: HttpOptions?) -> HttpAnswer`
pub fn luau_signature(module: &Module, function: &ModuleFunction) -> String {
    let (params, result) = (luau_parameters(module, function), luau_result_type(function));
    format!("{}({params}) -> {result}", function.tool.name)
}

/// The type of a parameter, by name where it has one.
pub fn luau_param_type(
    module: &Module,
    function: &ModuleFunction,
    param: &FunctionParam,
) -> String {
    param_type_name(module, function, param).unwrap_or_else(|| unnamed_param_type(param))
}

pub(super) fn unnamed_param_type(param: &FunctionParam) -> String {
    if param.required { luau_type(&param.schema) } else { luau_optional_type(&param.schema) }
}

/// What comes back, by name where it has one.
pub(super) fn luau_result_type(function: &ModuleFunction) -> String {
    match result_type_name(function) {
        Some(name) => name,
        None if returns_nothing(function) => "()".to_owned(),
        None => luau_type(&function.returns),
    }
}

/// `url: string, body: string?, options: HttpOptions?`
pub(super) fn luau_parameters(module: &Module, function: &ModuleFunction) -> String {
    let mut list: Vec<String> = params_by_place(function)
        .map(|param| format!("{}: {}", param.name, luau_param_type(module, function, param)))
        .collect();
    list.extend(options_type_name(module, function).map(|name| format!("options: {name}?")));
    list.join(", ")
}

/// An example as a script writes it: `json.encode({ 1 }, { pretty = true })`.
pub fn luau_example_call(function: &ModuleFunction, example: &FunctionExample) -> String {
    let given = |param: &FunctionParam| example.args.get(&param.name);
    let mut args: Vec<String> = params_by_place(function)
        .map(|param| given(param).map_or_else(|| "nil".to_owned(), luau_value))
        .collect();
    let known = |name: &str| params_by_place(function).any(|param| param.name == name);
    let named: Vec<String> = example
        .args
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !known(name))
        .map(|(name, value)| luau_field(name, value))
        .collect();
    if named.is_empty() {
        while args.last().is_some_and(|last| last == "nil") {
            args.pop();
        }
    } else {
        args.push(format!("{{ {} }}", named.join(", ")));
    }
    format!("{}({})", function.tool.name, args.join(", "))
}
