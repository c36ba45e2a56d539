//! The reference page of host modules, in Markdown.

use std::fmt::Write;

use super::function_doc::{ExampleText, FunctionDoc, FunctionDocRow};
use super::function_parts::{are_same_params, object_fields, option_params};
use super::{luau, starlark};
use moonlark_core::module::{Module, ModuleFunction, ScriptLanguage};

const PAGE_INTRODUCTION: &str = "\
What a script can do beyond its language. Every module is a global, in tool scripts (Luau) and in
extensions (Starlark) alike; where its name is that of a function, it is called itself (`sleep(1)`).

Each function is shown as it is called in Luau, with types, and below that in Starlark. In Luau,
arguments are positional, those with a `?` may be left out, and `options` is one table at the end that
holds the named ones. In Starlark every parameter is positional or a keyword, and those with a
default may be left out.

A function that fails raises an error. In Luau `pcall` sees a table with `code`, `message`, `hint`
and `retryable`, and `tostring` gives the message. The codes are listed in [problems](problems.md),
the grants are explained in [safety](../guide/safety.md#grants).

In the examples, `-->` and `#` show what a call returns, and `error:` a part of the message it
fails with. They are run as tests.
";

/// The whole page. `note` is the comment under its title.
pub fn modules_page(modules: &[Module], note: &str) -> String {
    let mut page =
        format!("# Host modules\n\n{note}\n\n{PAGE_INTRODUCTION}\n| module | |\n|---|---|\n");
    for module in modules {
        let _ = writeln!(page, "| [`{0}`](#{0}) | {1} |", module.name, escape_cell(module.doc));
    }
    for module in modules {
        write_module(&mut page, module);
    }
    page
}

fn write_module(page: &mut String, module: &Module) {
    let _ = write!(page, "\n## `{}`\n\n{}\n", module.name, module.doc);
    if module.only_in_tests {
        page.push_str("\nIn tests only.\n");
    }
    page.push_str(match module.only {
        None => "",
        Some(ScriptLanguage::Luau) => "\nIn tool scripts only; Starlark has its own.\n",
        Some(ScriptLanguage::Starlark) => "\nIn extensions only; Luau has its own.\n",
    });
    for constant in &module.constants {
        let _ = write!(page, "\n### `{}.{}`\n\n{}\n", module.name, constant.name, constant.doc);
    }
    for (index, function) in module.functions.iter().enumerate() {
        write_function(page, module, function, &module.functions[..index]);
    }
}

fn write_function(
    page: &mut String,
    module: &Module,
    function: &ModuleFunction,
    before: &[ModuleFunction],
) {
    let sheet = FunctionDoc::from_function(module, function);
    // A module that is a function has its heading already.
    if !module.callable {
        let _ = write!(page, "\n### `{}`\n", sheet.name);
    }
    let short = starlark::short_starlark_signature(function);
    let signatures = match module.only {
        None => format!("`{}`\\\n`{short}`", sheet.luau),
        Some(ScriptLanguage::Luau) => format!("`{}`", sheet.luau),
        Some(ScriptLanguage::Starlark) => format!("`{short}`"),
    };
    let _ = write!(page, "\n{signatures}\n\n{}\n", sheet.doc);
    if let Some(grant) = sheet.grant {
        let _ = write!(page, "\nGrant: `{grant}`\n");
    }
    write_params(page, function, &sheet, before);
    write_result(page, function, &sheet, before);
    write_examples(page, module, &sheet.examples);
}

fn write_params(
    page: &mut String,
    function: &ModuleFunction,
    sheet: &FunctionDoc,
    before: &[ModuleFunction],
) {
    let mut rows: String = sheet.places.iter().map(markdown_row).collect();
    let own = option_params(function);
    match before.iter().find(|other| !own.is_empty() && are_same_params(option_params(other), own))
    {
        Some(first) => {
            let name = &first.tool.name;
            let _ = writeln!(rows, "| `options` | `table?` | The same as for `{name}`. |");
        }
        None => rows.extend(sheet.options.iter().map(markdown_row)),
    }
    if !rows.is_empty() {
        let _ = write!(page, "\n| parameter | type | |\n|---|---|---|\n{rows}");
    }
}

fn write_result(
    page: &mut String,
    function: &ModuleFunction,
    sheet: &FunctionDoc,
    before: &[ModuleFunction],
) {
    if object_fields(&function.returns).is_none() {
        return;
    }
    if let Some(first) = before.iter().find(|other| **other.returns == **function.returns) {
        let _ = write!(page, "\nThe result is the same as that of `{}`.\n", first.tool.name);
        return;
    }
    page.push_str("\n| result | type | |\n|---|---|---|\n");
    page.extend(sheet.result.iter().map(markdown_row));
}

fn write_examples(page: &mut String, module: &Module, examples: &[ExampleText]) {
    let mut block = |language: ScriptLanguage, name: &str, line: fn(&ExampleText) -> &str| {
        if module.is_for_language(language) {
            // What only tests see cannot be run beside the others.
            let name = if module.only_in_tests { "text" } else { name };
            let lines: String =
                examples.iter().map(|example| format!("{}\n", line(example))).collect();
            let _ = write!(page, "\n```{name}\n{lines}```\n");
        }
    };
    block(ScriptLanguage::Luau, "luau", |example| &example.luau);
    block(ScriptLanguage::Starlark, "starlark", |example| &example.starlark);
}

fn markdown_row(row: &FunctionDocRow) -> String {
    let default = match &row.default {
        None => String::new(),
        Some(value) => format!(" Default: `{}`.", luau::luau_value(value)),
    };
    format!(
        "| `{}` | `{}` | {}{default} |\n",
        row.name,
        escape_cell(&row.kind),
        escape_cell(&row.doc)
    )
}

/// Text as one cell of a Markdown table.
fn escape_cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}
