//! How a Starlark script calls a host function: every parameter by place or by
//! keyword, in the order declared, and what is optional has a default.

use serde_json::Value as Json;

use crate::function_parts::{params_by_place, result_type_name, returns_nothing};
use moonlark_core::module::{FunctionExample, FunctionParam, Module, ModuleFunction};

use super::stub::starlark_param_type;
use super::types::{StarlarkTypeStyle, write_type};
use super::values::{is_starlark_name, starlark_value};

/// `http.get(url: str, headers: dict[str, str] | None = None) -> HttpAnswer`
pub fn starlark_signature(module: &Module, function: &ModuleFunction) -> String {
    let params = starlark_parameters(module, function, StarlarkTypeStyle::Text);
    let result = starlark_result_type(function, StarlarkTypeStyle::Text);
    format!("{}({params}) -> {result}", function.tool.name)
}

/// The same without types: `http.get(url, headers=None)`.
pub fn short_starlark_signature(function: &ModuleFunction) -> String {
    let params: Vec<String> = function
        .params
        .iter()
        .map(|param| {
            if param.required {
                param.name.clone()
            } else {
                format!("{}={}", param.name, default_value(param))
            }
        })
        .collect();
    format!("{}({})", function.tool.name, params.join(", "))
}

/// What comes back, by name where it has one.
pub(super) fn starlark_result_type(function: &ModuleFunction, place: StarlarkTypeStyle) -> String {
    match result_type_name(function) {
        Some(name) => name,
        None if returns_nothing(function) => "None".to_owned(),
        None => write_type(&function.returns, place, false),
    }
}

/// `url: str, body: str | None = None`
pub(super) fn starlark_parameters(
    module: &Module,
    function: &ModuleFunction,
    place: StarlarkTypeStyle,
) -> String {
    // A default is possible only where everything after it has one too.
    let last_required = function.params.iter().rposition(|param| param.required);
    let params: Vec<String> = function
        .params
        .iter()
        .enumerate()
        .map(|(index, param)| {
            let name = if is_starlark_name(&param.name) {
                param.name.clone()
            } else {
                format!("{}_", param.name)
            };
            let kind = starlark_param_type(module, function, param, place);
            if last_required.is_some_and(|last| index <= last) {
                format!("{name}: {kind}")
            } else {
                format!("{name}: {kind} = {}", default_value(param))
            }
        })
        .collect();
    params.join(", ")
}

pub(super) fn default_value(param: &FunctionParam) -> String {
    starlark_value(param.schema.get("default").unwrap_or(&Json::Null))
}

/// An example as a script writes it: `json.encode([1], pretty=True)`.
pub fn starlark_example_call(function: &ModuleFunction, example: &FunctionExample) -> String {
    let mut args = Vec::new();
    // By place while nothing is left out, by keyword from there on.
    let mut places = params_by_place(function).peekable();
    while let Some(value) = places.peek().and_then(|param| example.args.get(&param.name)) {
        args.push(starlark_value(value));
        places.next();
    }
    let given = args.len();
    let named = example
        .args
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !function.params[..given].iter().any(|param| param.name == **name));
    args.extend(named.map(|(name, value)| format!("{name}={}", starlark_value(value))));
    format!("{}({})", function.tool.name, args.join(", "))
}
