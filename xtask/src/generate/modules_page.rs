//! `docs/reference/modules.md`: every host module and function.

use std::fmt::Write;

use moonlark_core::module::{Function, Module, Outcome, Param};
use serde_json::Value as Json;

use super::luau_type::{is_required, luau_type, optional_type};
use super::luau_value::luau_value;
use super::signature::{
    by_place, call, doc, fields, options, param_name, param_type, parameters, result_type,
    same_params,
};
use super::{cell, made_from};

const INTRODUCTION: &str = "\
What a tool script can do beyond its language. Every module is a global table, or a function
where its name is one (`sleep(1)`).

Arguments in a signature go by place, and those with a `?` may be left out. `options` is one
table at the end that holds the named ones. A function that fails raises an error: `pcall` sees
a table with `code`, `message`, `hint` and `retryable`, and `tostring` gives the message. The
codes are listed in [problems](problems.md), the grants are explained in
[safety](../guide/safety.md#grants).

In the examples, `-->` shows what a call returns, and `--> error:` a part of the message it
fails with. They are run as tests.
";

pub(crate) fn page() -> String {
    let modules = moonlark_host::all();
    let mut page = format!(
        "# Host modules\n\n{}\n\n{INTRODUCTION}\n| module | |\n|---|---|\n",
        made_from("the modules in crates/moonlark-host")
    );
    for module in &modules {
        let _ = writeln!(page, "| [`{0}`](#{0}) | {1} |", module.name, cell(module.doc));
    }
    for module in &modules {
        write_module(&mut page, module);
    }
    page
}

fn write_module(page: &mut String, module: &Module) {
    let _ = write!(page, "\n## `{}`\n\n{}\n", module.name, module.doc);
    for constant in &module.constants {
        let _ = write!(page, "\n### `{}.{}`\n\n{}\n", module.name, constant.name, constant.doc);
    }
    for (index, function) in module.functions.iter().enumerate() {
        write_function(page, module, function, &module.functions[..index]);
    }
}

fn write_function(page: &mut String, module: &Module, function: &Function, before: &[Function]) {
    let name = &function.tool.name;
    // A module that is a function has its heading already.
    if !module.callable {
        let _ = write!(page, "\n### `{name}`\n");
    }
    let (params, result) = (parameters(module, function), result_type(module, function));
    let _ = write!(page, "\n`{name}({params}) -> {result}`\n\n{}\n", function.tool.description);
    if let Some(grant) = function.needs {
        let _ = write!(page, "\nGrant: `{grant}`\n");
    }
    write_params(page, module, function, before);
    write_result(page, function, before);
    write_examples(page, function);
}

fn write_params(page: &mut String, module: &Module, function: &Function, before: &[Function]) {
    let mut rows = String::new();
    for param in by_place(function) {
        let kind = param_name(module, function, param).unwrap_or_else(|| param_type(param));
        row(&mut rows, &param.name, &kind, &doc(&param.schema), param.schema.get("default"));
        if let Some(fields) = fields(&param.schema) {
            for (name, field) in fields {
                let kind = field_type(&param.schema, name, field);
                row(
                    &mut rows,
                    &format!("{}.{name}", param.name),
                    &kind,
                    &doc(field),
                    field.get("default"),
                );
            }
        }
    }
    let own = options(function);
    match before.iter().find(|other| !own.is_empty() && same_params(options(other), own)) {
        Some(first) => {
            let text = format!("The same as for `{}`.", first.tool.name);
            row(&mut rows, "options", "table?", &text, None);
        }
        None => {
            for Param { name, schema, .. } in own {
                let kind = optional_type(schema);
                row(
                    &mut rows,
                    &format!("options.{name}"),
                    &kind,
                    &doc(schema),
                    schema.get("default"),
                );
            }
        }
    }
    if !rows.is_empty() {
        let _ = write!(page, "\n| parameter | type | |\n|---|---|---|\n{rows}");
    }
}

fn write_result(page: &mut String, function: &Function, before: &[Function]) {
    let Some(fields) = fields(&function.returns) else { return };
    if let Some(first) = before.iter().find(|other| other.returns == function.returns) {
        let _ = write!(page, "\nThe result is the same as that of `{}`.\n", first.tool.name);
        return;
    }
    page.push_str("\n| result | type | |\n|---|---|---|\n");
    for (name, field) in fields {
        row(page, name, &field_type(&function.returns, name, field), &doc(field), None);
    }
}

fn write_examples(page: &mut String, function: &Function) {
    page.push_str("\n```luau\n");
    for example in &function.examples {
        let outcome = match &example.outcome {
            Outcome::Returns(_) if function.returns["type"] == "null" => String::new(),
            Outcome::Returns(Json::Null) => " --> nil".to_owned(),
            Outcome::Returns(value) => format!(" --> {}", luau_value(value)),
            Outcome::Fails(part) => format!(" --> error: … {part} …"),
            Outcome::Varies => " --> differs every time".to_owned(),
        };
        let _ = writeln!(page, "{}{outcome}", call(function, example));
    }
    page.push_str("```\n");
}

fn field_type(schema: &Json, name: &str, field: &Json) -> String {
    let required = schema.as_object().is_some_and(|schema| is_required(schema, name));
    if required { luau_type(field) } else { optional_type(field) }
}

fn row(rows: &mut String, name: &str, kind: &str, doc: &str, default: Option<&Json>) {
    let default = match default {
        None | Some(Json::Null) => String::new(),
        Some(value) => format!(" Default: `{}`.", luau_value(value)),
    };
    let _ = writeln!(rows, "| `{name}` | `{}` | {}{default} |", cell(kind), cell(doc));
}
