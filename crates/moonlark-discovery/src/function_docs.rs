//! `get_function_docs`: everything about functions.

use std::sync::Arc;

use moonlark_core::sdk::{SdkFunction, SdkSource, to_identifier};
use moonlark_core::{Catalog, Problem, Result, Value};
use moonlark_gateway::Call;
use moonlark_render::luau::sdk_docs::{ObservedResult, SdkFunctionDocs, docs_for_page};
use moonlark_render::script_functions::{ScriptFunction, find_script_function};

use crate::example_call::render_example_call;
use crate::function_summary::{find_result_type, mentions_name, observed_result};

/// Functions explained at once.
pub(crate) const MAX_EXPLAINED_FUNCTIONS: usize = 50;

pub(crate) fn get_function_docs(call: &Call, args: &Value) -> Result<String> {
    let Some(Value::Array(names)) = args.get("names") else {
        return Err(Problem::bad_request("missing required parameter: names"));
    };
    let mut known: Vec<(&SdkSource, &SdkFunction)> = Vec::new();
    let mut helpers: Vec<&ScriptFunction> = Vec::new();
    let mut problems: Vec<Problem> = Vec::new();
    for name in names.iter().filter_map(Value::as_str) {
        let plain = name.trim().strip_prefix(crate::SDK_NAME_PREFIX).unwrap_or(name.trim());
        match find_function(call, name.trim()) {
            Ok(found) if known.iter().any(|it| std::ptr::eq(it.1, found.1)) => {}
            Ok(found) => known.push(found),
            Err(problem) => match find_script_function(plain) {
                Some(helper) => helpers.push(helper),
                None => problems.push(problem),
            },
        }
    }
    // What is there is answered, whatever else was asked for.
    if known.is_empty()
        && helpers.is_empty()
        && let Some(problem) = combine_problems(&problems)
    {
        return Err(problem);
    }
    let mut text = render_functions(&known, call);
    for helper in helpers {
        text.push_str(if text.is_empty() { "" } else { "\n" });
        text.push_str(&format!("{}\n", helper.to_page()));
    }
    for problem in problems {
        text.push_str(&format!("\n-- {}\n", message_with_hint(&problem)));
    }
    text.truncate(text.trim_end().len());
    Ok(text)
}

/// A function by name; a source that is configured and out of reach says why.
fn find_function<'c>(call: &'c Call, name: &str) -> Result<(&'c SdkSource, &'c SdkFunction)> {
    let catalog = call.catalog();
    let found = catalog.sdk().find_function(name);
    let found = found.or_else(|problem| find_by_listed_name(catalog, name).ok_or(problem));
    found.map_err(|problem| {
        let plain = name.strip_prefix(crate::SDK_NAME_PREFIX).unwrap_or(name);
        let source = plain.split_once('.').map_or(plain, |(source, _)| source);
        if catalog.sdk().find_source(source).is_some() {
            return problem;
        }
        unavailable_source_problem(catalog, source).unwrap_or(problem)
    })
}

/// A function by a name that its tool has elsewhere, such as in the list of tools.
fn find_by_listed_name<'c>(
    catalog: &'c Catalog,
    name: &str,
) -> Option<(&'c SdkSource, &'c SdkFunction)> {
    let tool = catalog.find_tool_for_agents(name).ok()?;
    let mut sources = catalog.sdk().sources().iter();
    sources.find_map(|source| {
        let is_it = |function: &&SdkFunction| Arc::ptr_eq(&function.tool, tool);
        Some((source, source.functions.iter().find(is_it)?))
    })
}

/// The Problem of a source that is configured and has no functions at the moment.
fn unavailable_source_problem(catalog: &Catalog, source: &str) -> Option<Problem> {
    let is = |name: &str| name == source || to_identifier(name) == source;
    if let Some(it) = catalog.connecting_sources().iter().find(|it| is(&it.source)) {
        let message =
            format!("sdk.{} is not there yet: it is still connecting", to_identifier(&it.source));
        return Some(Problem::unavailable(message).with_hint("try again in a moment"));
    }
    let health = catalog.health().iter().find(|it| is(&it.source))?;
    let problem = health.problem.clone()?;
    let message = format!("sdk.{} is not there: {}", to_identifier(source), problem.message);
    Some(problem.with_message(message))
}

/// One Problem for all of them.
fn combine_problems(problems: &[Problem]) -> Option<Problem> {
    match problems {
        [] => None,
        [one] => Some(one.clone()),
        [first, ..] => {
            let all: Vec<String> = problems.iter().map(message_with_hint).collect();
            Some(Problem::new(first.code, all.join("; ")))
        }
    }
}

fn message_with_hint(problem: &Problem) -> String {
    match &problem.hint {
        Some(hint) => format!("{}: {hint}", problem.message),
        None => problem.message.clone(),
    }
}

/// The documentation of functions on one page, with what was seen of their results.
fn document_functions(
    functions: &[(&SdkSource, &SdkFunction)],
    call: &Call,
) -> Vec<SdkFunctionDocs> {
    let learned: Vec<Option<ObservedResult>> =
        functions.iter().map(|(_, function)| observed_result(function, call)).collect();
    let both = functions.iter().zip(&learned);
    let entries: Vec<_> = both.map(|((of, it), learned)| (*of, *it, learned.as_ref())).collect();
    docs_for_page(&entries)
}

/// Functions with the types that they share.
pub(crate) fn render_functions(functions: &[(&SdkSource, &SdkFunction)], call: &Call) -> String {
    let mut text = String::new();
    for (mut docs, (source, function)) in
        document_functions(functions, call).into_iter().zip(functions)
    {
        if !text.is_empty() {
            text.push('\n');
        }
        let left_out = leave_out_types(&mut docs);
        text.push_str(&docs.to_text());
        if left_out > 0 {
            let types = if left_out == 1 { "type" } else { "types" };
            let all = format!("sdk://{}/schemas", source.name);
            text.push_str(&format!(
                "\n-- {left_out} more {types} of the result left out; the resource {all} has all\n"
            ));
        }
        text.push_str(&format!("\n-- {}\n", describe_effects(function)));
        text.push_str(&format!("local value = {}\n", render_example_call(source, function)));
    }
    text
}

/// Bytes of types that only the result has. Results of large APIs name hundreds.
const MAX_RESULT_TYPES_BYTES: usize = 4000;
/// Bytes of one of them.
const MAX_TYPE_BYTES: usize = 1500;

/// Leave out the types of a result that are far from it, and the end of long ones. What
/// arguments need stays whole. How many types were left out.
fn leave_out_types(docs: &mut SdkFunctionDocs) -> usize {
    let at = find_result_type(&docs.signature).unwrap_or(docs.signature.len());
    let (arguments, result) = docs.signature.split_at(at);
    let for_arguments = reachable_types(arguments, &docs.types);
    let mut kept: Vec<usize> = Vec::new();
    let mut room = MAX_RESULT_TYPES_BYTES;
    let mut left_out = 0;
    for index in reachable_types(result, &docs.types) {
        if for_arguments.contains(&index) {
            continue;
        }
        let size = docs.types[index].1.len().min(MAX_TYPE_BYTES);
        match room.checked_sub(size).filter(|_| left_out == 0) {
            Some(less) => {
                room = less;
                kept.push(index);
            }
            None => left_out += 1,
        }
    }
    let types = std::mem::take(&mut docs.types);
    for (index, (name, body)) in types.into_iter().enumerate() {
        if for_arguments.contains(&index) {
            docs.types.push((name, body));
        } else if kept.contains(&index) {
            docs.types.push((name, truncate_type_fields(body)));
        }
    }
    left_out
}

/// The types that a text names, and those that they name: the nearest first.
fn reachable_types(text: &str, types: &[(String, String)]) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    let mut texts = vec![text];
    while !texts.is_empty() {
        let mut next = Vec::new();
        for (index, (name, body)) in types.iter().enumerate() {
            if !found.contains(&index) && texts.iter().any(|text| mentions_name(text, name)) {
                found.push(index);
                next.push(body.as_str());
            }
        }
        texts = next;
    }
    found
}

/// A type of one field a line, without those for which there is no room.
fn truncate_type_fields(body: String) -> String {
    let lines: Vec<&str> = body.lines().collect();
    if body.len() <= MAX_TYPE_BYTES || lines.len() < 4 {
        return body;
    }
    let mut shown = String::new();
    let mut taken = 0;
    for line in &lines[..lines.len() - 1] {
        if shown.len() + line.len() > MAX_TYPE_BYTES {
            break;
        }
        shown.push_str(line);
        shown.push('\n');
        taken += 1;
    }
    format!("{shown}    -- and {} more lines\n}}", lines.len() - 1 - taken)
}

/// The types of a source's functions, each once.
pub(crate) fn render_source_types(source: &SdkSource, most: usize, call: &Call) -> String {
    let functions: Vec<_> = source.functions.iter().take(most).map(|it| (source, it)).collect();
    let types = document_functions(&functions, call).into_iter().flat_map(|docs| docs.types);
    let written: Vec<String> =
        types.map(|(name, body)| format!("export type {name} = {body}\n")).collect();
    written.join("\n")
}

/// What a call does to the world, as far as the author has said.
fn describe_effects(function: &SdkFunction) -> String {
    let (tool, effects) = (&function.tool, function.tool.effects);
    let unsaid = tool.definition.as_deref().is_some_and(|it| !it.contains_key("annotations"));
    if effects.read_only {
        "reads only; for example:".to_owned()
    } else if unsaid {
        "for example:".to_owned()
    } else {
        let what = if effects.destructive { "may change or delete" } else { "adds" };
        let again = if effects.idempotent { ", safe to repeat" } else { "" };
        format!("{what}{again}; for example:")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::test_catalog::{ask, world};

    #[tokio::test]
    async fn documentation_has_types_effects_and_an_example() {
        let world = world();
        assert_eq!(
            ask(&world, "get_function_docs", json!({"names": ["git-hub.create-issue"]})).await,
            "\
-- Create an issue. It is open at first.
-- @param repo - Owner and name
function sdk.git_hub.create_issue(args: { repo: string, title: string, labels: {Label}? }): { number: number }

export type Label = {
    name: string,
    color: (\"red\" | \"blue\")?,
}

-- adds; for example:
local value = sdk.git_hub.create_issue({ repo = \"…\", title = \"…\" })"
        );
    }

    #[test]
    fn types_far_from_a_large_result_are_left_out_and_counted() {
        let field = "    field: string, -- something that is said about it at some length\n";
        let body =
            |of: &str, lines: usize| format!("{{\n{}    next: {of},\n}}", field.repeat(lines));
        let mut types = vec![("Wanted".to_owned(), body("string", 60))];
        for n in 0..20 {
            types.push((format!("T{n}"), body(&format!("T{}", n + 1), 10)));
        }
        let mut docs = super::SdkFunctionDocs {
            path: "sdk.a.b".to_owned(),
            about: String::new(),
            params: Vec::new(),
            signature: "function sdk.a.b(args: { w: Wanted }): T0".to_owned(),
            types,
            learned: None,
        };
        let left_out = super::leave_out_types(&mut docs);
        let names: Vec<&str> = docs.types.iter().map(|(name, _)| name.as_str()).collect();
        // What the arguments need is whole, however long.
        assert_eq!(names[..2], ["Wanted", "T0"]);
        assert_eq!(docs.types[0].1.lines().count(), 63);
        assert_eq!(left_out + names.len(), 21);
        assert!(docs.to_text().len() < 10_000, "{}", docs.to_text().len());
        let long = super::truncate_type_fields(body("string", 60));
        assert!(long.len() < 1700 && long.contains("more lines"), "{long}");
    }

    #[tokio::test]
    async fn a_source_that_is_down_says_so() {
        let world = world();
        let problem = moonlark_core::Problem::unavailable("'sql' exited with code 1");
        let health = moonlark_core::source_resources::SourceHealth {
            source: "sql".to_owned(),
            state: moonlark_core::source_resources::SourceState::Failed,
            is_remembered: false,
            protocol: None,
            server: None,
            tools: 0,
            resources: 0,
            prompts: 0,
            problem: Some(problem.with_hint("see its log")),
            flaws: Vec::new(),
        };
        let tools = world.catalog().tools().to_vec();
        let catalog = moonlark_core::Catalog::new(Default::default(), tools, &[], Vec::new());
        world.publish(catalog.with_health(vec![health]));
        assert_eq!(
            ask(&world, "get_function_docs", json!({"names": ["sql.query"]})).await,
            "error[unavailable]: sdk.sql is not there: 'sql' exited with code 1\nhint: see its log"
        );
    }

    #[tokio::test]
    async fn what_scripts_have_beside_the_sdk_is_explained() {
        let world = world();
        let docs = ask(&world, "get_function_docs", json!({"names": ["map_parallel"]})).await;
        assert!(docs.contains("function map_parallel<T, R>(list: {T}"), "{docs}");
        assert!(docs.contains("takes the second result"), "{docs}");
        let both = json!({"names": ["sdk.await_all", "files.read_file"]});
        let docs = ask(&world, "get_function_docs", both).await;
        assert!(docs.contains("function sdk.files.read_file("), "{docs}");
        assert!(docs.contains("function await_all("), "{docs}");
        let found = ask(&world, "search_docs", json!({"query": "run calls in parallel"})).await;
        assert!(found.contains("map_parallel<T, R>("), "{found}");
    }

    #[tokio::test]
    async fn a_name_that_is_not_there_does_not_keep_the_others_back() {
        let world = world();
        let names = json!({"names": ["files.raed_file", "sdk.files.read_file", "files.read_file"]});
        assert_eq!(
            ask(&world, "get_function_docs", names).await,
            "\
-- Read a file.
function sdk.files.read_file(args: { path: string }): any

-- for example:
local value = sdk.files.read_file({ path = \"…\" })

-- sdk.files has no function raed_file: did you mean sdk.files.read_file?"
        );
        assert_eq!(
            ask(&world, "get_function_docs", json!({"names": ["files.raed_file"]})).await,
            "error[bad_request]: sdk.files has no function raed_file\nhint: did you mean sdk.files.read_file?"
        );
        assert_eq!(
            ask(&world, "get_function_docs", json!({"names": ["files.raed_file", "x"]})).await,
            "error[bad_request]: sdk.files has no function raed_file: did you mean sdk.files.read_file?; there is no source sdk.x: there are git_hub, files"
        );
        let none = ask(&world, "get_function_docs", json!({"names": []})).await;
        assert!(none.starts_with("error[bad_request]"), "{none}");
    }
}
