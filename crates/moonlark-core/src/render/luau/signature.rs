//! How a Luau script calls a host function: arguments by place, then a table
//! of options. The same rule as the engine's, drawn as types.

use crate::module::{Example, Function, Module, Param};
use crate::render::shape::{by_place, options_name, param_name, result_name, returns_nothing};

use super::types::{luau_type, optional_type};
use super::values::{field, luau_value};

/// `http.get(url: string, options: HttpOptions?) -> HttpAnswer`
pub fn signature(module: &Module, function: &Function) -> String {
    let (params, result) = (parameters(module, function), result_type(module, function));
    format!("{}({params}) -> {result}", function.tool.name)
}

/// The type of a parameter, by name where it has one.
pub fn param_type(module: &Module, function: &Function, param: &Param) -> String {
    param_name(module, function, param).unwrap_or_else(|| own_type(param))
}

pub(super) fn own_type(param: &Param) -> String {
    if param.required { luau_type(&param.schema) } else { optional_type(&param.schema) }
}

/// What comes back, by name where it has one.
pub(super) fn result_type(module: &Module, function: &Function) -> String {
    match result_name(module, function) {
        Some(name) => name,
        None if returns_nothing(function) => "()".to_owned(),
        None => luau_type(&function.returns),
    }
}

/// `url: string, body: string?, options: HttpOptions?`
pub(super) fn parameters(module: &Module, function: &Function) -> String {
    let mut list: Vec<String> = by_place(function)
        .map(|param| format!("{}: {}", param.name, param_type(module, function, param)))
        .collect();
    list.extend(options_name(module, function).map(|name| format!("options: {name}?")));
    list.join(", ")
}

/// An example as a script writes it: `json.encode({ 1 }, { pretty = true })`.
pub fn call(function: &Function, example: &Example) -> String {
    let given = |param: &Param| example.args.get(&param.name);
    let mut args: Vec<String> = by_place(function)
        .map(|param| given(param).map_or_else(|| "nil".to_owned(), luau_value))
        .collect();
    let known = |name: &str| by_place(function).any(|param| param.name == name);
    let named: Vec<String> = example
        .args
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !known(name))
        .map(|(name, value)| field(name, value))
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
