//! Shared parts of function documentation: positional parameters, named tables,
//! descriptions.

use serde_json::{Map, Value as Json};

use moonlark_core::module::{FunctionParam, Module, ModuleFunction};
use moonlark_core::problem::{Problem, Result};
use moonlark_core::schema::Schema;

/// The parameters that go by place.
pub(super) fn params_by_place(function: &ModuleFunction) -> impl Iterator<Item = &FunctionParam> {
    function.params.iter().take_while(|param| param.positional)
}

/// The parameters that have no place.
pub(super) fn option_params(function: &ModuleFunction) -> &[FunctionParam] {
    let places = params_by_place(function).count();
    &function.params[places..]
}

pub(super) fn are_same_params(left: &[FunctionParam], right: &[FunctionParam]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).all(|(a, b)| a.name == b.name && a.schema == b.schema)
}

/// The fields of an object schema, if it lists any.
pub(super) fn object_fields(schema: &Json) -> Option<&Map<String, Json>> {
    let fields = schema.get("properties")?.as_object()?;
    (schema["type"] == "object" && !fields.is_empty()).then_some(fields)
}

/// The properties that a schema lists.
pub(super) fn properties_of(schema: &Map<String, Json>) -> impl Iterator<Item = (&String, &Json)> {
    schema.get("properties").and_then(Json::as_object).into_iter().flatten()
}

/// Whether an object of this schema always has `name`.
pub(super) fn is_required(schema: &Map<String, Json>, name: &str) -> bool {
    let required = schema.get("required").and_then(Json::as_array);
    required.is_some_and(|required| required.iter().any(|key| key == name))
}

/// The same for a schema that may be anything.
pub(super) fn requires_field(schema: &Json, name: &str) -> bool {
    schema.as_object().is_some_and(|schema| is_required(schema, name))
}

pub(super) fn one_line_description(schema: &Json) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\n', " ")
}

/// Whether there is a result at all.
pub(super) fn returns_nothing(function: &ModuleFunction) -> bool {
    function.returns["type"] == "null"
}

/// The name of the struct that a function returns: `HttpAnswer` for `http.get`.
pub(super) fn result_type_name(function: &ModuleFunction) -> Option<String> {
    object_fields(&function.returns)?;
    Some(function.returns["title"].as_str()?.to_owned())
}

/// `HttpOptions`, or `HttpGetOptions` where the functions of a module differ.
pub(super) fn options_type_name(module: &Module, function: &ModuleFunction) -> Option<String> {
    if option_params(function).is_empty() {
        return None;
    }
    let same = module
        .functions
        .iter()
        .filter(|other| !option_params(other).is_empty())
        .all(|other| are_same_params(option_params(other), option_params(function)));
    let own = if same { String::new() } else { to_pascal_case(function.name) };
    Some(format!("{}{own}Options", to_pascal_case(module.name)))
}

/// `HttpRequestOpts`, for a table that goes by place.
pub(super) fn param_type_name(
    module: &Module,
    function: &ModuleFunction,
    param: &FunctionParam,
) -> Option<String> {
    object_fields(&param.schema)?;
    Some(format!(
        "{}{}{}",
        to_pascal_case(module.name),
        to_pascal_case(function.name),
        to_pascal_case(&param.name)
    ))
}

/// What `search` takes beside the query.
pub(super) fn search_options(search: &Schema) -> Map<String, Json> {
    let mut schema = (**search.json()).clone();
    if let Some(Json::Object(properties)) = schema.get_mut("properties") {
        properties.shift_remove("query");
    }
    schema.remove("required");
    schema
}

/// The module that is also a part of the context.
pub(super) fn progress_function(modules: &[Module]) -> Result<(&Module, &ModuleFunction)> {
    modules
        .iter()
        .find(|module| module.name == "progress")
        .and_then(|module| Some((module, module.functions.first()?)))
        .ok_or_else(|| Problem::internal("there is no module named progress"))
}

/// Whether it has the form of a name in both languages.
pub(super) fn is_identifier(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

pub(super) fn to_pascal_case(name: &str) -> String {
    name.split('_')
        .map(|word| {
            let mut letters = word.chars();
            letters.next().map_or_else(String::new, |first| {
                first.to_ascii_uppercase().to_string() + letters.as_str()
            })
        })
        .collect()
}
