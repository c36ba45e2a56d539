//! `search_docs`: the functions that fit a question, ready to call.

use std::sync::Arc;

use moonlark_core::sdk::{Sdk, SdkSource};
use moonlark_core::{Catalog, Result, Value};
use moonlark_gateway::Call;
use moonlark_render::script_functions::script_functions_for;

use crate::document_search::{self, SearchScope};
use crate::function_index::{FoundFunction, best_fit};
use crate::function_list::{self, still_connecting_note};
use crate::index_cache::FunctionIndexCache;
use crate::request_search::AnsweringFunction;
use crate::{artifact_search, function_summary, request_search};

/// The most that may be asked for.
pub(crate) const MAX_SEARCH_LIMIT: usize = 50;
/// How many are shown if nothing is said.
const DEFAULT_SEARCH_LIMIT: usize = 5;
/// What an answer takes, in bytes: about a thousand tokens.
const MAX_SEARCH_ANSWER_BYTES: usize = 3500;
/// What fits this much less than the best is not worth its tokens, unless a
/// number was asked for.
const MIN_RELATIVE_SCORE: f32 = 0.5;
/// How the source begins that is no source.
const ARTIFACT_SOURCE_PREFIX: &str = "artifact:";

/// What fits less than this, by [`best_fit`], is there only because something has to be
/// the best. `cargo x bench search` says how often that errs, and what it would be by
/// nine APIs for the tenth.
pub const MIN_FIT: f32 = 0.32;
/// How many are named of those that do not fit.
const MAX_NEAREST_FUNCTIONS: usize = 3;

pub(crate) async fn search_docs(
    call: &Call,
    args: &Value,
    current: &FunctionIndexCache,
) -> Result<String> {
    let query = args.get("query").and_then(Value::as_str).unwrap_or_default();
    let source = args.get("source").and_then(Value::as_str).filter(|it| !it.is_empty());
    let wanted = match args.get("limit") {
        Some(Value::Int(limit)) => usize::try_from(*limit).ok(),
        _ => None,
    };
    let limit = wanted.unwrap_or(DEFAULT_SEARCH_LIMIT);
    if let Some(handle) = source.and_then(|source| source.strip_prefix(ARTIFACT_SOURCE_PREFIX)) {
        let handle = handle.trim_start_matches('/');
        let stored = call.gateway().artifacts().find_for_caller(handle, call.caller())?;
        return artifact_search::search_artifact(stored, query.to_owned(), limit).await;
    }
    let catalog = call.catalog();
    let only = match source {
        None => None,
        Some(name) => match document_search::find_scope(call, name).await? {
            SearchScope::Functions(source) => Some(source),
            SearchScope::Documents(of) => {
                return document_search::search_documents(call, query, of, limit).await;
            }
        },
    };
    let index = current.get_or_build(catalog).await?;
    let hits = index.search(catalog, query, only, limit);
    let best = hits.iter().map(|hit| hit.score).fold(0.0, f32::max);
    let fits = best_fit(&hits) >= MIN_FIT || hits.iter().any(|hit| hit.exact);
    let shown = |hit: &&FoundFunction<'_>| {
        wanted.is_some() || hit.exact || hit.score >= best * MIN_RELATIVE_SCORE
    };
    let found: Vec<_> = hits
        .iter()
        .filter(shown)
        .map(|hit| AnsweringFunction { source: hit.source, function: hit.function, request: None })
        .collect();
    let answers = if hits.iter().any(|hit| hit.exact) {
        Vec::new()
    } else {
        request_search::answer_requests(&index, catalog, query, only)
    };
    let fits = fits || !answers.is_empty();
    let found = request_search::put_answers_first(answers, found, limit);
    let mut text = if found.is_empty() {
        nothing_found_message(catalog, only)
    } else if fits {
        let max_bytes = MAX_SEARCH_ANSWER_BYTES * limit.div_ceil(DEFAULT_SEARCH_LIMIT);
        format_found(call, &found, max_bytes)
    } else {
        format_nearest(catalog, only, &found, wanted.unwrap_or(MAX_NEAREST_FUNCTIONS))
    };
    if only.is_none() {
        for helper in script_functions_for(query) {
            text.push_str(&format!("\n{}", helper.to_line()));
        }
    }
    text.push_str(&still_connecting_note(catalog));
    Ok(text)
}

/// A source by name, with or without `sdk.` before it.
pub(crate) fn find_source<'a>(sdk: &'a Sdk, name: &str) -> Result<&'a SdkSource> {
    let plain = name.strip_prefix(crate::SDK_NAME_PREFIX).unwrap_or(name);
    match sdk.find_source(plain) {
        Some(source) => Ok(source),
        // The words are those of a script that names it.
        None => sdk.find_function(plain).map(|(source, _)| source),
    }
}

/// As many as there is room for, whole; the names of the others.
fn format_found(call: &Call, found: &[AnsweringFunction<'_>], room: usize) -> String {
    let mut text = String::new();
    let mut rest = Vec::new();
    for AnsweringFunction { source, function, request } in found {
        let mut one = function_summary::summarize_function(source, function, call);
        if text.is_empty() && one.len() > room {
            one = function_summary::summarize_briefly(source, function);
        }
        if let Some(request) = request {
            one.push_str(&format!("\n  -- for: {request}"));
        }
        // A type that several share is there once.
        let known = |line: &&str| line.starts_with("  type ") && text.lines().any(|it| it == *line);
        let one = one.lines().filter(|line| !known(line)).collect::<Vec<_>>().join("\n");
        // The best is there in any case.
        if text.is_empty() || text.len() + one.len() < room {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&one);
        } else {
            rest.push(function_summary::sdk_path(source, function));
        }
    }
    if !rest.is_empty() {
        text.push_str(&format!("\nalso: {} (see get_function_docs)", rest.join(", ")));
    }
    text
}

/// What comes nearest where nothing fits, one line each: hardly any of it is worth
/// a signature.
fn format_nearest(
    catalog: &Arc<Catalog>,
    only: Option<&SdkSource>,
    found: &[AnsweringFunction<'_>],
    most: usize,
) -> String {
    let mut text = format!("{} Nearest:\n", nothing_found_message(catalog, only));
    for AnsweringFunction { source, function, .. } in found.iter().take(most) {
        text.push_str(&function_list::function_line(source, function));
    }
    text.truncate(text.trim_end().len());
    text
}

fn nothing_found_message(catalog: &Arc<Catalog>, only: Option<&SdkSource>) -> String {
    const MAX_NAMED_SOURCES: usize = 30;
    if let Some(source) = only {
        return format!(
            "Nothing in {} fits. list_functions with source {:?} names what it has.",
            source.name, source.name
        );
    }
    let sources = catalog.sdk().sources();
    let names: Vec<&str> =
        sources.iter().map(|source| source.name.as_str()).take(MAX_NAMED_SOURCES).collect();
    match sources.len().saturating_sub(MAX_NAMED_SOURCES) {
        _ if names.is_empty() => "Nothing fits: there are no functions.".to_owned(),
        0 => format!("Nothing fits. There are the sources {}.", names.join(", ")),
        more => {
            format!("Nothing fits. There are the sources {} and {more} more.", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::test_catalog::{ask, with_documents, with_tool, world};

    #[tokio::test]
    async fn signatures_are_ready_to_use() {
        let world = world();
        assert_eq!(
            ask(&world, "search_docs", json!({"query": "open a new issue", "limit": 1})).await,
            "sdk.git_hub.create_issue(args: { repo: string, title: string, labels: {Label}? }): { number: number }\n  Create an issue.\n  type Label = { name: string, color: (\"red\" | \"blue\")? }"
        );
        let found = ask(&world, "search_docs", json!({"query": "issues"})).await;
        let lines: Vec<&str> = found.lines().filter(|line| line.starts_with("sdk.")).collect();
        assert_eq!(lines.len(), 2, "{found}");
    }

    #[tokio::test]
    async fn the_best_function_is_there_without_its_types_where_they_are_too_long() {
        let kind = "a very long name of a kind of report ".repeat(4);
        let kinds: Vec<String> = (0..3).map(|it| format!("{kind}{it}")).collect();
        let field = |number: usize| (format!("field_{number}"), json!({"enum": kinds}));
        let properties: serde_json::Map<_, _> = (0..300).map(field).collect();
        let definition = json!({
            "description": "Create a report.",
            "inputSchema": {"type": "object", "required": ["field_7"], "properties": properties},
        });
        let world = with_tool("create-report", &definition);
        let args = json!({"query": "create_report", "limit": 1});
        let found = ask(&world, "search_docs", args).await;
        assert!(found.starts_with("sdk.git_hub.create_report(args: { field_7, field_"), "{found}");
        assert!(found.contains("\n  Create a report.\n"), "{found}");
        assert!(
            found.contains(" more parameters, its types: get_function_docs git_hub.create_report)")
        );
        assert!(found.len() <= super::MAX_SEARCH_ANSWER_BYTES, "{found}");
    }

    #[tokio::test]
    async fn one_source_is_searched_alone_by_either_of_its_names() {
        let world = world();
        for source in ["files", "sdk.files"] {
            let found =
                ask(&world, "search_docs", json!({"query": "read issue", "source": source}));
            let found = found.await;
            assert!(found.starts_with("sdk.files.read_file("), "{found}");
            assert!(!found.contains("issue"), "{found}");
        }
        assert_eq!(
            ask(&world, "search_docs", json!({"query": "x", "source": "fils"})).await,
            "error[bad_request]: there is no source sdk.fils\nhint: did you mean sdk.files?"
        );
    }

    #[tokio::test]
    async fn what_does_not_fit_is_said_so_with_what_there_is() {
        let world = world();
        assert_eq!(
            ask(&world, "search_docs", json!({"query": "xylophone"})).await,
            "Nothing fits. There are the sources git_hub, files."
        );
        assert_eq!(
            ask(&world, "search_docs", json!({"query": "xylophone", "source": "git-hub"})).await,
            "Nothing in git_hub fits. list_functions with source \"git_hub\" names what it has."
        );
    }

    #[tokio::test]
    async fn what_only_comes_nearest_is_not_said_to_fit() {
        let world = world();
        assert_eq!(
            ask(&world, "search_docs", json!({"query": "send a postcard to the owner of a house"}))
                .await,
            "Nothing fits. There are the sources git_hub, files. Nearest:\nsdk.git_hub.create_issue: Create an issue."
        );
        let found = ask(&world, "search_docs", json!({"query": "create an issue"})).await;
        assert!(found.starts_with("sdk.git_hub.create_issue(args"), "{found}");
    }

    #[tokio::test]
    async fn documents_are_searched_where_the_source_says_so() {
        let world = with_documents();
        for (source, asked) in [("knowledge", "everything"), ("handbook", "handbook")] {
            assert_eq!(
                ask(&world, "search_docs", json!({"query": "undo", "source": source})).await,
                format!(
                    "Deploys (id 1-2)\n  handbook · deploys.md · Deploys > Rolling back\n  asked undo of {asked}, 5 at most\nsdk.knowledge.get({{ id = …, section = … }}) has the text.\nnote: by words only"
                )
            );
        }
        assert_eq!(
            ask(&world, "search_docs", json!({"query": "x", "source": "handbok"})).await,
            "error[bad_request]: there is no source sdk.handbok\nhint: did you mean handbook?"
        );
        assert_eq!(
            ask(&world, "search_docs", json!({"query": "nowhere", "source": "knowledge"})).await,
            "Nothing in the knowledge base fits.\nnote: by words only"
        );
    }

    #[tokio::test]
    async fn without_a_knowledge_base_its_name_is_like_any_other() {
        let answer =
            ask(&world(), "search_docs", json!({"query": "x", "source": "knowledge"})).await;
        assert!(answer.starts_with("error[bad_request]: no tool registered"), "{answer}");
    }

    #[tokio::test]
    async fn what_cannot_be_asked_is_refused() {
        let world = world();
        for args in [
            json!({}),
            json!({"query": 1}),
            json!({"query": "a", "limit": 0}),
            json!({"query": "a", "limit": 51}),
            json!({"query": "a", "sources": "files"}),
            json!({"query": "a".repeat(10_001)}),
        ] {
            let answer = ask(&world, "search_docs", args.clone()).await;
            assert!(answer.starts_with("error[bad_request]"), "{args}: {answer}");
        }
    }
}
