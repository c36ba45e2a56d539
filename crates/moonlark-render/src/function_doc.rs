//! Everything a reader wants to know about one function, in both languages,
//! before anything decides how it looks.

use serde_json::Value as Json;

use super::function_parts::{
    object_fields, one_line_description, option_params, params_by_place, returns_nothing,
};
use super::{luau, starlark};
use moonlark_core::module::{
    ExampleOutcome, FunctionExample, FunctionParam, Module, ModuleFunction,
};

pub struct FunctionDoc {
    pub name: String,
    pub doc: String,
    /// Signatures.
    pub luau: String,
    pub starlark: String,
    /// The grant it needs.
    pub grant: Option<&'static str>,
    /// Parameters that go by place, then those without one.
    pub places: Vec<FunctionDocRow>,
    pub options: Vec<FunctionDocRow>,
    /// The fields of the result, where it has some.
    pub result: Vec<FunctionDocRow>,
    pub examples: Vec<ExampleText>,
}

/// A parameter or a field.
pub struct FunctionDocRow {
    pub name: String,
    /// In Luau.
    pub kind: String,
    pub doc: String,
    pub default: Option<Json>,
    /// Of a number: what it may be.
    pub range: Option<String>,
}

/// An example, with what comes of it as a comment.
pub struct ExampleText {
    pub luau: String,
    pub starlark: String,
}

impl FunctionDoc {
    pub fn from_function(module: &Module, function: &ModuleFunction) -> FunctionDoc {
        let mut places = Vec::new();
        for param in params_by_place(function) {
            let kind = luau::luau_param_type(module, function, param);
            places.push(FunctionDocRow::new(param.name.clone(), kind, &param.schema));
            places.extend(FunctionDocRow::rows_for_fields(
                &param.schema,
                &format!("{}.", param.name),
            ));
        }
        let option = |FunctionParam { name, schema, .. }: &FunctionParam| {
            FunctionDocRow::new(format!("options.{name}"), luau::luau_optional_type(schema), schema)
        };
        FunctionDoc {
            name: function.tool.name.clone(),
            doc: function.tool.description.clone(),
            luau: luau::luau_signature(module, function),
            starlark: starlark::starlark_signature(module, function),
            grant: function.needs,
            places,
            options: option_params(function).iter().map(option).collect(),
            // A result is what it is: there are no defaults to speak of.
            result: FunctionDocRow::rows_for_fields(&function.returns, "")
                .into_iter()
                .map(|row| FunctionDocRow { default: None, ..row })
                .collect(),
            examples: function
                .examples
                .iter()
                .map(|example| spell_example(function, example))
                .collect(),
        }
    }
}

impl FunctionDocRow {
    fn new(name: String, kind: String, schema: &Json) -> FunctionDocRow {
        let default = schema.get("default").filter(|default| !default.is_null()).cloned();
        FunctionDocRow {
            name,
            kind,
            doc: one_line_description(schema),
            default,
            range: luau::sdk_docs::number_range(schema),
        }
    }

    /// The fields of an object, each with `prefix` in front of its name.
    pub fn rows_for_fields(schema: &Json, prefix: &str) -> Vec<FunctionDocRow> {
        let row = |(name, field): (&String, &Json)| {
            let kind = luau::luau_field_type(schema, name, field);
            FunctionDocRow::new(format!("{prefix}{name}"), kind, field)
        };
        object_fields(schema).into_iter().flatten().map(row).collect()
    }
}

/// The call of an example as it is written in both languages.
pub fn spell_example_call(function: &ModuleFunction, example: &FunctionExample) -> ExampleText {
    ExampleText {
        luau: luau::luau_example_call(function, example),
        starlark: starlark::starlark_example_call(function, example),
    }
}

fn spell_example(function: &ModuleFunction, example: &FunctionExample) -> ExampleText {
    let call = spell_example_call(function, example);
    let (luau, starlark) = match &example.outcome {
        ExampleOutcome::Returns(_) if returns_nothing(function) => return call,
        ExampleOutcome::Returns(Json::Null) => ("nil".to_owned(), "None".to_owned()),
        ExampleOutcome::Returns(value) | ExampleOutcome::Mocked(value) => {
            (luau::luau_value(value), starlark::starlark_value(value))
        }
        ExampleOutcome::Fails(part) => {
            let text = format!("error: … {part} …");
            (text.clone(), text)
        }
        ExampleOutcome::Varies => {
            let text = "differs every time".to_owned();
            (text.clone(), text)
        }
    };
    // Nobody can try it as it stands here.
    if matches!(example.outcome, ExampleOutcome::Mocked(_)) {
        return ExampleText {
            luau: format!("{} -- such as {luau}", call.luau),
            starlark: format!("{}  # such as {starlark}", call.starlark),
        };
    }
    ExampleText {
        luau: format!("{} --> {luau}", call.luau),
        starlark: format!("{}  # {starlark}", call.starlark),
    }
}
