//! Everything a reader wants to know about one function, in both languages,
//! before anything decides how it looks.

use serde_json::Value as Json;

use super::shape::{by_place, doc, fields, options, requires, returns_nothing};
use super::{luau, starlark};
use crate::module::{Example, Function, Module, Outcome, Param};

pub struct Sheet {
    pub name: String,
    pub doc: String,
    /// Signatures.
    pub luau: String,
    pub starlark: String,
    /// The grant it needs.
    pub grant: Option<&'static str>,
    /// Parameters that go by place, then those without one.
    pub places: Vec<Row>,
    pub options: Vec<Row>,
    /// The fields of the result, where it has some.
    pub result: Vec<Row>,
    pub examples: Vec<Sample>,
}

/// A parameter or a field.
pub struct Row {
    pub name: String,
    /// In Luau.
    pub kind: String,
    pub doc: String,
    pub default: Option<Json>,
    /// Of a number: what it may be.
    pub range: Option<String>,
}

/// An example, with what comes of it as a comment.
pub struct Sample {
    pub luau: String,
    pub starlark: String,
}

impl Sheet {
    pub fn of(module: &Module, function: &Function) -> Sheet {
        let mut places = Vec::new();
        for param in by_place(function) {
            let kind = luau::param_type(module, function, param);
            places.push(Row::new(param.name.clone(), kind, &param.schema));
            places.extend(Row::fields(&param.schema, &format!("{}.", param.name)));
        }
        let option = |Param { name, schema, .. }: &Param| {
            Row::new(format!("options.{name}"), luau::optional_type(schema), schema)
        };
        Sheet {
            name: function.tool.name.clone(),
            doc: function.tool.description.clone(),
            luau: luau::signature(module, function),
            starlark: starlark::signature(module, function),
            grant: function.needs,
            places,
            options: options(function).iter().map(option).collect(),
            // A result is what it is: there are no defaults to speak of.
            result: Row::fields(&function.returns, "")
                .into_iter()
                .map(|row| Row { default: None, ..row })
                .collect(),
            examples: function.examples.iter().map(|example| sample(function, example)).collect(),
        }
    }
}

impl Row {
    fn new(name: String, kind: String, schema: &Json) -> Row {
        let default = schema.get("default").filter(|default| !default.is_null()).cloned();
        Row { name, kind, doc: doc(schema), default, range: luau::sdk::range(schema) }
    }

    /// The fields of an object, each with `prefix` in front of its name.
    pub fn fields(schema: &Json, prefix: &str) -> Vec<Row> {
        let fields = fields(schema).into_iter().flatten();
        let row = |(name, field): (&String, &Json)| {
            let kind = match requires(schema, name) {
                true => luau::luau_type(field),
                false => luau::optional_type(field),
            };
            Row::new(format!("{prefix}{name}"), kind, field)
        };
        fields.map(row).collect()
    }
}

/// The call of an example as it is written in both languages.
pub fn spelled(function: &Function, example: &Example) -> Sample {
    Sample { luau: luau::call(function, example), starlark: starlark::call(function, example) }
}

fn sample(function: &Function, example: &Example) -> Sample {
    let (luau, starlark) = match &example.outcome {
        Outcome::Returns(_) if returns_nothing(function) => (None, None),
        Outcome::Returns(Json::Null) => (Some("nil".to_owned()), Some("None".to_owned())),
        Outcome::Returns(value) => {
            (Some(luau::luau_value(value)), Some(starlark::starlark_value(value)))
        }
        Outcome::Fails(part) => {
            let text = format!("error: … {part} …");
            (Some(text.clone()), Some(text))
        }
        Outcome::Mocked(_) => (None, None),
        Outcome::Varies => {
            let text = "differs every time".to_owned();
            (Some(text.clone()), Some(text))
        }
    };
    let with = |call: String, arrow: &str, outcome: Option<String>| match outcome {
        Some(outcome) => format!("{call}{arrow}{outcome}"),
        None => call,
    };
    let call = spelled(function, example);
    // Nobody can try it as it stands here.
    if let Outcome::Mocked(value) = &example.outcome {
        return Sample {
            luau: format!("{} -- such as {}", call.luau, luau::luau_value(value)),
            starlark: format!("{}  # such as {}", call.starlark, starlark::starlark_value(value)),
        };
    }
    Sample { luau: with(call.luau, " --> ", luau), starlark: with(call.starlark, "  # ", starlark) }
}
