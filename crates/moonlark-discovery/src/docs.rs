//! `get_function_docs`: everything about functions.

use moonlark_core::render::luau::sdk::{Observed, together};
use moonlark_core::sdk::{SdkFunction, SdkSource};
use moonlark_core::{Call, Gateway, Problem, Result, Value};

use crate::example::example;
use crate::short::observed;

/// Functions explained at once.
pub(crate) const MOST: usize = 50;

pub(crate) fn get_function_docs(call: &Call, args: &Value) -> Result<String> {
    let Some(Value::Array(names)) = args.get("names") else {
        return Err(Problem::bad_request("missing required parameter: names"));
    };
    let mut known: Vec<(&SdkSource, &SdkFunction)> = Vec::new();
    let mut problems: Vec<Problem> = Vec::new();
    for name in names.iter().filter_map(Value::as_str) {
        match call.catalog().sdk().find(name.trim()) {
            Ok(found) if known.iter().any(|it| std::ptr::eq(it.1, found.1)) => {}
            Ok(found) => known.push(found),
            Err(problem) => problems.push(problem),
        }
    }
    // What is there is answered, whatever else was asked for.
    if known.is_empty()
        && let Some(problem) = only(&problems)
    {
        return Err(problem);
    }
    let mut text = page(&known, call.gateway());
    for problem in problems {
        let hint = problem.hint.map(|hint| format!(": {hint}")).unwrap_or_default();
        text.push_str(&format!("\n-- {}{hint}\n", problem.message));
    }
    text.truncate(text.trim_end().len());
    Ok(text)
}

/// One Problem for all of them.
fn only(problems: &[Problem]) -> Option<Problem> {
    let (first, rest) = problems.split_first()?;
    let said = |problem: &Problem| match &problem.hint {
        Some(hint) => format!("{}: {hint}", problem.message),
        None => problem.message.clone(),
    };
    match rest.is_empty() {
        true => Some(first.clone()),
        false => {
            let all: Vec<String> = problems.iter().map(said).collect();
            Some(Problem::new(first.code, all.join("; ")))
        }
    }
}

/// Functions with the types that they share.
pub(crate) fn page(functions: &[(&SdkSource, &SdkFunction)], gateway: &Gateway) -> String {
    let learned: Vec<Option<Observed>> =
        functions.iter().map(|(_, function)| observed(function, gateway)).collect();
    let entries: Vec<_> = functions
        .iter()
        .zip(&learned)
        .map(|((source, function), learned)| (*source, *function, learned.as_ref()))
        .collect();
    let mut text = String::new();
    for (docs, (source, function)) in together(&entries).into_iter().zip(functions) {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&docs.text());
        text.push_str(&format!("\n-- {}\n", effects(function)));
        text.push_str(&format!("local value = {}\n", example(source, function)));
    }
    text
}

/// The types of a source's functions, each once.
pub(crate) fn types(source: &SdkSource, most: usize, gateway: &Gateway) -> String {
    let functions = || source.functions.iter().take(most);
    let learned: Vec<Option<Observed>> = functions().map(|it| observed(it, gateway)).collect();
    let entries: Vec<_> =
        functions().zip(&learned).map(|(it, learned)| (source, it, learned.as_ref())).collect();
    let types = together(&entries).into_iter().flat_map(|docs| docs.types);
    let written: Vec<String> =
        types.map(|(name, body)| format!("export type {name} = {body}\n")).collect();
    written.join("\n")
}

/// What a call does to the world, as far as the author has said.
fn effects(function: &SdkFunction) -> String {
    let (tool, effects) = (&function.tool, function.tool.effects);
    let unsaid = tool.definition.as_deref().is_some_and(|it| !it.contains_key("annotations"));
    match effects.read_only {
        true => "reads only; for example:".to_owned(),
        false if unsaid => "for example:".to_owned(),
        false => {
            let what = if effects.destructive { "may change or delete" } else { "adds" };
            let again = if effects.idempotent { ", safe to repeat" } else { "" };
            format!("{what}{again}; for example:")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{ask, world};

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
