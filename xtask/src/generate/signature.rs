//! How a script calls a host function: arguments by place, then a table of
//! options. The same rule as the engine's, drawn as types.

use moonlark_core::module::{Example, Function, Module, Param};
use serde_json::Value as Json;

use super::luau_type::{luau_type, optional_type};
use super::luau_value::{field, luau_value};

/// The parameters that go by place.
pub(crate) fn by_place(function: &Function) -> impl Iterator<Item = &Param> {
    function.params.iter().take_while(|param| param.positional)
}

/// The parameters that go into the trailing table.
pub(crate) fn options(function: &Function) -> &[Param] {
    let places = by_place(function).count();
    &function.params[places..]
}

pub(crate) fn param_type(param: &Param) -> String {
    if param.required { luau_type(&param.schema) } else { optional_type(&param.schema) }
}

/// The fields of an object schema, if it lists any.
pub(crate) fn fields(schema: &Json) -> Option<&serde_json::Map<String, Json>> {
    let fields = schema.get("properties")?.as_object()?;
    (schema["type"] == "object" && !fields.is_empty()).then_some(fields)
}

pub(crate) fn doc(schema: &Json) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\n', " ")
}

/// `HttpAnswer` for the result that `http` calls `Answer`.
pub(crate) fn result_name(module: &Module, function: &Function) -> Option<String> {
    fields(&function.returns)?;
    Some(format!("{}{}", capital(module.name), function.returns["title"].as_str()?))
}

/// What comes back, by name where it has one.
pub(crate) fn result_type(module: &Module, function: &Function) -> String {
    match result_name(module, function) {
        Some(name) => name,
        None if function.returns["type"] == "null" => "()".to_owned(),
        None => luau_type(&function.returns),
    }
}

/// `HttpOptions`, or `HttpGetOptions` where the functions of a module differ.
pub(crate) fn options_name(module: &Module, function: &Function) -> Option<String> {
    if options(function).is_empty() {
        return None;
    }
    let same = module
        .functions
        .iter()
        .filter(|other| !options(other).is_empty())
        .all(|other| same_params(options(other), options(function)));
    let own = if same { String::new() } else { capital(function.name) };
    Some(format!("{}{own}Options", capital(module.name)))
}

/// `HttpRequestOpts`, for a table that goes by place.
pub(crate) fn param_name(module: &Module, function: &Function, param: &Param) -> Option<String> {
    fields(&param.schema)?;
    Some(format!("{}{}{}", capital(module.name), capital(function.name), capital(&param.name)))
}

/// `url: string, body: string?, options: HttpOptions?`
pub(crate) fn parameters(module: &Module, function: &Function) -> String {
    let mut list: Vec<String> = by_place(function)
        .map(|param| {
            let kind = param_name(module, function, param).unwrap_or_else(|| param_type(param));
            format!("{}: {kind}", param.name)
        })
        .collect();
    list.extend(options_name(module, function).map(|name| format!("options: {name}?")));
    list.join(", ")
}

/// An example as a script writes it: `json.encode({ 1 }, { pretty = true })`.
pub(crate) fn call(function: &Function, example: &Example) -> String {
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

pub(crate) fn same_params(left: &[Param], right: &[Param]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).all(|(a, b)| a.name == b.name && a.schema == b.schema)
}

pub(crate) fn capital(name: &str) -> String {
    name.split('_')
        .map(|word| {
            let mut letters = word.chars();
            letters.next().map_or_else(String::new, |first| {
                first.to_ascii_uppercase().to_string() + letters.as_str()
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(name: &str) -> String {
        let modules = moonlark_host::all();
        let found = modules.iter().find_map(|module| {
            let function = module.functions.iter().find(|function| function.tool.name == name)?;
            let result = result_type(module, function);
            Some(format!("({}) -> {result}", parameters(module, function)))
        });
        found.unwrap_or_else(|| panic!("no function {name}"))
    }

    #[test]
    fn places_come_first_and_options_last() {
        for (name, expected) in [
            ("http.post", "(url: string, body: string?, options: HttpOptions?) -> HttpAnswer"),
            ("http.request", "(opts: HttpRequestOpts) -> HttpAnswer"),
            ("json.encode", "(value: any, options: JsonOptions?) -> string"),
            ("time.now", "() -> number"),
            ("time.format", "(timestamp: number?, format: string?, timezone: string?) -> string"),
            ("env.get", "(name: string, default: string?) -> string?"),
            ("sleep", "(seconds: number) -> ()"),
        ] {
            assert_eq!(show(name), expected, "{name}");
        }
    }
}
