//! How a Starlark script calls a host function: every parameter by place or by
//! keyword, in the order declared, and what is optional has a default.

use serde_json::Value as Json;

use crate::module::{Example, Function, Module, Param};
use crate::render::shape::{by_place, result_name, returns_nothing};

use super::stub::param_type;
use super::types::{Place, written};
use super::values::{is_name, starlark_value};

/// `http.get(url: str, headers: dict[str, str] | None = None) -> HttpAnswer`
pub fn signature(module: &Module, function: &Function) -> String {
    let params = parameters(module, function, Place::Text);
    let result = result_type(module, function, Place::Text);
    format!("{}({params}) -> {result}", function.tool.name)
}

/// The same without types: `http.get(url, headers=None)`.
pub fn short_signature(function: &Function) -> String {
    let params: Vec<String> = function
        .params
        .iter()
        .map(|param| match param.required {
            true => param.name.clone(),
            false => format!("{}={}", param.name, default(param)),
        })
        .collect();
    format!("{}({})", function.tool.name, params.join(", "))
}

/// What comes back, by name where it has one.
pub(super) fn result_type(module: &Module, function: &Function, place: Place) -> String {
    match result_name(module, function) {
        Some(name) => name,
        None if returns_nothing(function) => "None".to_owned(),
        None => written(&function.returns, place, false),
    }
}

/// `url: str, body: str | None = None`
pub(super) fn parameters(module: &Module, function: &Function, place: Place) -> String {
    // A default is possible only where everything after it has one too.
    let last_required = function.params.iter().rposition(|param| param.required);
    let params: Vec<String> = function
        .params
        .iter()
        .enumerate()
        .map(|(index, param)| {
            let name =
                if is_name(&param.name) { param.name.clone() } else { format!("{}_", param.name) };
            let kind = param_type(module, function, param, place);
            match last_required.is_some_and(|last| index <= last) {
                true => format!("{name}: {kind}"),
                false => format!("{name}: {kind} = {}", default(param)),
            }
        })
        .collect();
    params.join(", ")
}

pub(super) fn default(param: &Param) -> String {
    starlark_value(param.schema.get("default").unwrap_or(&Json::Null))
}

/// An example as a script writes it: `json.encode([1], pretty=True)`.
pub fn call(function: &Function, example: &Example) -> String {
    let mut args = Vec::new();
    // By place while nothing is left out, by keyword from there on.
    let mut places = by_place(function).peekable();
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
