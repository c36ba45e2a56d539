//! `moonlark docs`: a module, a function or a tool, in both languages.

mod sdk_docs;

use std::sync::Arc;

use clap::Args;
use moonlark_core::module::{Module, ModuleFunction, ScriptLanguage};
use moonlark_core::tool::{CallEffects, SourceKind};
use moonlark_core::visible_text::visible_in_line;
use moonlark_core::{Catalog, Problem, ProblemCode, Tool};
use moonlark_render::luau::sdk_docs::SdkFunctionDocs as Signature;
use moonlark_render::script_functions::{ScriptFunction, find_script_function};
use moonlark_render::{FunctionDoc, FunctionDocRow, luau, starlark};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::served_command::ServedCommand;
use super::source_args::SourceArgs;
use super::{
    CommandResult, GlobalArgs, cli_caller, near_hint, print_json, print_text, wait_for_sources,
};
use crate::project::Project;

#[derive(Args, Serialize, Deserialize)]
pub(crate) struct DocsArgs {
    /// A module (`http`), a function (`http.get`) or a tool; without it, everything is
    /// listed.
    name: Option<String>,
}

impl DocsArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        // What is built in can be explained in any project, even a broken one.
        let modules = moonlark_host::host_modules();
        let built_in =
            self.name.as_deref().and_then(|name| DocsTopic::find_built_in(&modules, name));
        if let Some(topic) = built_in {
            topic.print_topic(global.json);
            return Ok(());
        }
        ServedCommand::Docs(self).run(SourceArgs::default(), global).await
    }

    pub(crate) async fn run_in(self, project: &Arc<Project>, global: &GlobalArgs) -> CommandResult {
        wait_for_sources(project).await;
        let modules = moonlark_host::host_modules();
        let catalog = project.gateway.catalog_for(&cli_caller());
        let Some(name) = self.name else {
            print_overview(&modules, &catalog, global.json);
            return Ok(());
        };
        let in_sdk = || catalog.sdk().find_function(&name).map(|(_, it)| &it.tool);
        let tool = catalog.find_tool(&name).or_else(|_| in_sdk());
        let tool = tool.map_err(|_| unknown_name_problem(&name, &modules, &catalog))?;
        let docs = sdk_docs::find_sdk_docs(tool, &catalog, &project.gateway);
        DocsTopic::Tool(tool, docs).print_topic(global.json);
        Ok(())
    }
}

fn unknown_name_problem(name: &str, modules: &[Module], catalog: &Catalog) -> Problem {
    let functions = modules.iter().flat_map(|module| &module.functions);
    let names = modules
        .iter()
        .map(|module| module.name)
        .chain(functions.map(|function| function.tool.name.as_str()))
        .chain(catalog.tools().iter().map(|tool| tool.name.as_str()));
    let hint = near_hint(name, names);
    let hint = hint.unwrap_or_else(|| "`moonlark docs` lists what there is".to_owned());
    let name = moonlark_core::value::shorten_text(name);
    Problem::new(ProblemCode::NotFound, format!("no module, function or tool is named {name}"))
        .with_hint(hint)
}

/// Something that can be explained.
enum DocsTopic<'a> {
    Module(&'a Module),
    Function(&'a Module, &'a ModuleFunction),
    Tool(&'a Tool, Option<Signature>),
    Helper(&'static ScriptFunction),
}

impl<'a> DocsTopic<'a> {
    fn find_built_in(modules: &'a [Module], name: &str) -> Option<DocsTopic<'a>> {
        for module in modules {
            let function = module.functions.iter().find(|function| function.tool.name == name);
            if let Some(function) = function {
                return Some(DocsTopic::Function(module, function));
            }
            if module.name == name {
                return Some(DocsTopic::Module(module));
            }
        }
        find_script_function(name).map(DocsTopic::Helper)
    }

    fn print_topic(&self, as_json: bool) {
        match (self, as_json) {
            (DocsTopic::Module(module), false) => print_text(module_text(module)),
            (DocsTopic::Module(module), true) => print_json(&module_json(module)),
            (DocsTopic::Function(module, function), false) => {
                print_text(function_text(module, function))
            }
            (DocsTopic::Function(module, function), true) => {
                print_json(&function_json(module, function));
            }
            (DocsTopic::Tool(tool, docs), false) => {
                print_text(wrap_lines(&tool_text(tool, docs.as_ref())))
            }
            (DocsTopic::Helper(helper), false) => {
                print_text(wrap_lines(&format!("In agent scripts:\n{}", helper.to_page())));
            }
            (DocsTopic::Helper(helper), true) => print_json(&json!({
                "kind": "helper",
                "name": helper.name,
                "description": helper.doc,
                "luau": helper.signature,
                "examples": [{ "luau": helper.example }],
            })),
            (DocsTopic::Tool(tool, docs), true) => print_json(&tool_json(tool, docs.as_ref())),
        }
    }
}

/// Everything there is, one line each.
fn print_overview(modules: &[Module], catalog: &Catalog, as_json: bool) {
    let tools: Vec<_> = catalog.tools_for_agents().collect();
    if as_json {
        let modules: Vec<Json> = modules
            .iter()
            .map(|module| json!({ "name": module.name, "description": module.doc }))
            .collect();
        let tools: Vec<Json> = tools
            .iter()
            .map(|tool| json!({ "name": tool.name, "description": tool.description }))
            .collect();
        print_json(&json!({ "modules": modules, "tools": tools }));
        return;
    }
    let modules =
        modules.iter().map(|module| vec![module.name.to_owned(), first_sentence(module.doc)]);
    let tools = tools.iter().map(|tool| vec![tool.name.clone(), first_sentence(&tool.description)]);
    let (modules, tools) = (format_table(modules.collect()), format_table(tools.collect()));
    print_text(format!("Modules:\n{modules}\n\nTools:\n{tools}"));
}

fn module_text(module: &Module) -> String {
    let mut text = format!("{}\n{}\n", module.name, module.doc);
    for constant in &module.constants {
        text.push_str(&format!("\n{}.{}\n  {}\n", module.name, constant.name, constant.doc));
    }
    for function in &module.functions {
        let signature = match module.only {
            Some(ScriptLanguage::Starlark) => starlark::starlark_signature(module, function),
            _ => luau::luau_signature(module, function),
        };
        text.push_str(&format!("\n{signature}\n  {}\n", function.tool.description));
    }
    text.trim_end().to_owned()
}

fn module_json(module: &Module) -> Json {
    let functions: Vec<Json> =
        module.functions.iter().map(|function| function_json(module, function)).collect();
    let constants: Vec<Json> = module
        .constants
        .iter()
        .map(|constant| json!({ "name": constant.name, "description": constant.doc }))
        .collect();
    json!({
        "kind": "module",
        "name": module.name,
        "description": module.doc,
        "constants": constants,
        "functions": functions,
    })
}

fn function_text(module: &Module, function: &ModuleFunction) -> String {
    let sheet = FunctionDoc::from_function(module, function);
    let mut parts = vec![format!("{}\n{}", sheet.name, sheet.doc), signature_lines(module, &sheet)];
    parts.extend(sheet.grant.map(|grant| format!("Grant: {grant}")));
    let params: Vec<&FunctionDocRow> = sheet.places.iter().chain(&sheet.options).collect();
    parts.extend(field_section("Parameters", &params));
    parts.extend(field_section("Result", &sheet.result.iter().collect::<Vec<_>>()));
    if !sheet.examples.is_empty() {
        let luau = sheet.examples.iter().map(|example| &example.luau);
        let starlark = sheet.examples.iter().map(|example| &example.starlark);
        if module.is_for_language(ScriptLanguage::Luau) {
            parts.push(format!("Examples in Luau:\n{}", indent_lines(luau)));
        }
        if module.is_for_language(ScriptLanguage::Starlark) {
            parts.push(format!("Examples in Starlark:\n{}", indent_lines(starlark)));
        }
    }
    parts.join("\n\n")
}

fn signature_lines(module: &Module, sheet: &FunctionDoc) -> String {
    match module.only {
        None => format!("  Luau      {}\n  Starlark  {}", sheet.luau, sheet.starlark),
        Some(ScriptLanguage::Luau) => format!("  Luau only  {}", sheet.luau),
        Some(ScriptLanguage::Starlark) => format!("  Starlark only  {}", sheet.starlark),
    }
}

fn function_json(module: &Module, function: &ModuleFunction) -> Json {
    let sheet = FunctionDoc::from_function(module, function);
    let examples: Vec<Json> = sheet
        .examples
        .iter()
        .map(|example| {
            json!({
                "luau": text_for_language(module, ScriptLanguage::Luau, &example.luau),
                "starlark": text_for_language(module, ScriptLanguage::Starlark, &example.starlark),
            })
        })
        .collect();
    json!({
        "kind": "function",
        "name": sheet.name,
        "module": module.name,
        "description": sheet.doc,
        "luau": text_for_language(module, ScriptLanguage::Luau, &sheet.luau),
        "starlark": text_for_language(module, ScriptLanguage::Starlark, &sheet.starlark),
        "grant": sheet.grant,
        "parameters": **function.tool.input.json(),
        "result": **function.returns,
        "examples": examples,
    })
}

/// What is said in a language, if the module is there in it.
fn text_for_language<'a>(
    module: &Module,
    language: ScriptLanguage,
    text: &'a str,
) -> Option<&'a str> {
    module.is_for_language(language).then_some(text)
}

/// Columns after which a line goes on in the next.
const MAX_DOCS_COLUMNS: usize = 110;

/// Long lines in several, broken between words: types of large results are one line.
fn wrap_lines(text: &str) -> String {
    let mut wrapped = String::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let is_comment = line.trim_start().starts_with("--");
        let mut columns = 0;
        for (index, word) in line.split(' ').enumerate() {
            let length = word.chars().count() + 1;
            if columns + length > MAX_DOCS_COLUMNS && columns > indent + 4 {
                wrapped.push('\n');
                wrapped.push_str(&" ".repeat(indent + if is_comment { 0 } else { 4 }));
                wrapped.push_str(if is_comment { "-- " } else { "" });
                columns = indent + 4;
            } else if index > 0 {
                wrapped.push(' ');
            }
            wrapped.push_str(word);
            columns += length;
        }
        wrapped.push('\n');
    }
    wrapped.trim_end().to_owned()
}

fn tool_text(tool: &Tool, docs: Option<&Signature>) -> String {
    let (input, output) = tool_schemas(tool);
    let version = tool.version.as_ref().map(|version| format!(", version {version}"));
    let origin = match tool.source.kind {
        SourceKind::Builtin => "Part of Moonlark".to_owned(),
        SourceKind::Upstream => format!("From upstream {}", tool.source.name),
        _ => format!("From {}{}", tool.source.name, version.unwrap_or_default()),
    };
    let origin = format!("{origin}; {}.", describe_effects(tool.effects));
    let (in_luau, in_starlark) = call_signatures(tool);
    let mut parts = vec![
        format!("{}\n{}", tool_heading(tool), tool.description).trim_end().to_owned(),
        format!("  Luau      {in_luau}\n  Starlark  {in_starlark}"),
    ];
    parts.extend(docs.map(sdk_docs::sdk_docs_text));
    parts.push(origin);
    parts.extend(
        required_grant(tool).map(|grant| format!("Grant, for a script that calls it: {grant}")),
    );
    parts.extend(field_section(
        "Parameters",
        &FunctionDocRow::rows_for_fields(&input, "").iter().collect::<Vec<_>>(),
    ));
    let result =
        output.map(|output| FunctionDocRow::rows_for_fields(&output, "")).unwrap_or_default();
    parts.extend(field_section("Result", &result.iter().collect::<Vec<_>>()));
    parts.join("\n\n")
}

/// Its name, and beside it the one for people.
fn tool_heading(tool: &Tool) -> String {
    let name = visible_in_line(&tool.name);
    match &tool.title {
        Some(title) => format!("{name} ({})", visible_in_line(title)),
        None => name.into_owned(),
    }
}

fn tool_json(tool: &Tool, docs: Option<&Signature>) -> Json {
    let (input, output) = tool_schemas(tool);
    let (in_luau, in_starlark) = call_signatures(tool);
    let CallEffects { read_only, destructive, idempotent, open_world } = tool.effects;
    json!({
        "kind": "tool",
        "name": tool.name,
        "aliases": tool.aliases,
        "title": tool.title,
        "description": tool.description,
        "version": tool.version,
        "source": tool.source.name,
        "luau": in_luau,
        "starlark": in_starlark,
        "sdk": docs.map(sdk_docs::sdk_docs_json),
        "grant": required_grant(tool),
        "annotations": {
            "read_only": read_only,
            "destructive": destructive,
            "idempotent": idempotent,
            "open_world": open_world,
        },
        "parameters": input,
        "result": output,
    })
}

fn tool_schemas(tool: &Tool) -> (Json, Option<Json>) {
    let input = Json::Object((**tool.input.json()).clone());
    (input, tool.output.as_ref().map(|output| Json::Object((**output.json()).clone())))
}

/// How scripts call a tool, in Luau and in Starlark.
fn call_signatures(tool: &Tool) -> (String, String) {
    let (input, output) = tool_schemas(tool);
    let name = Json::String(tool.name.clone());
    let takes = input["properties"].as_object().is_none_or(|fields| !fields.is_empty());
    let draw = |kind: fn(&Json) -> String| {
        let args = if takes { format!(", args: {}", kind(&input)) } else { String::new() };
        let result = output.as_ref().map_or_else(|| kind(&Json::Bool(true)), kind);
        format!("context.call({name}{args}) -> {result}")
    };
    (draw(luau::luau_type), draw(starlark::starlark_type))
}

/// What a script needs in order to call it.
fn required_grant(tool: &Tool) -> Option<String> {
    (tool.source.kind != SourceKind::Builtin).then(|| format!("tool:{}", tool.name))
}

fn describe_effects(effects: CallEffects) -> String {
    let world = if effects.open_world { "reaches systems outside" } else { "stays inside" };
    let change = match effects {
        CallEffects { read_only: true, .. } => "changes nothing",
        CallEffects { destructive: true, .. } => "may overwrite or delete",
        _ => "changes things, destroys nothing",
    };
    format!("it {change} and {world}")
}

fn field_section(title: &str, rows: &[&FunctionDocRow]) -> Option<String> {
    let cells = |row: &&FunctionDocRow| {
        let default = row.default.as_ref();
        let default = default.map(|value| format!("default: {}", luau::luau_value(value)));
        let facts: Vec<String> = default.into_iter().chain(row.range.clone()).collect();
        let facts =
            if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
        let text = format!("{}{facts}", row.doc).trim_start().to_owned();
        vec![row.name.clone(), row.kind.clone(), text]
    };
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    (!cells.is_empty()).then(|| format!("{title}:\n{}", format_table(cells)))
}

/// Columns, each as wide as it needs to be but for one that is very wide.
fn format_table(rows: Vec<Vec<String>>) -> String {
    const MAX_CELL_COLUMNS: usize = 40;
    let length = |cell: &String| cell.chars().count();
    let width = |column: usize| {
        let lengths = rows.iter().filter_map(|row| row.get(column)).map(length);
        lengths.filter(|length| *length <= MAX_CELL_COLUMNS).max().unwrap_or(0)
    };
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let cell = visible_in_line(cell);
            line.push_str(&format!("  {cell:<width$}", width = width(column)));
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn indent_lines<'a>(lines: impl Iterator<Item = &'a String>) -> String {
    lines.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// The first sentence, or the first line if that is shorter.
fn first_sentence(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.split_once(". ").map_or_else(|| line.to_owned(), |(sentence, _)| format!("{sentence}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_go_on_in_the_next() {
        let long = format!("  Luau  context.call(\"x\") -> {{ {} }}", "field: string, ".repeat(40));
        let wrapped = wrap_lines(&long);
        assert!(wrapped.lines().count() > 5, "{wrapped}");
        assert!(
            wrapped.lines().all(|line| line.chars().count() <= MAX_DOCS_COLUMNS + 1),
            "{wrapped}"
        );
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&wrapped), words(&long));
        assert_eq!(wrap_lines("a\n  short  line"), "a\n  short  line");
    }
}
