//! `search_docs` as agents ask it: the tool itself, and what its text names.

use anyhow::{Context, Result};
use moonlark_core::Value;
use moonlark_core::value::Object;
use moonlark_gateway::Caller;
use tokio::runtime::Runtime;

use super::question_sets::SearchedCatalog;

/// The most that `search_docs` answers.
const MAX_LIMIT: usize = 50;
/// The letters of a question that it takes; whoever has more asks by the first.
const MAX_QUERY_CHARS: usize = 10_000;
/// How the line begins that names what there was no room for.
const MORE_NAMES_PREFIX: &str = "also: ";
const FUNCTION_PREFIX: &str = "sdk.";

/// An answer: the functions that it names, in order, and whether any is said to fit.
pub(super) struct ProductAnswer {
    pub(super) functions: Vec<usize>,
    pub(super) fits: bool,
}

pub(super) fn ask_search_docs(
    runtime: &Runtime,
    searched: &SearchedCatalog,
    question: &str,
    limit: Option<usize>,
) -> Result<ProductAnswer> {
    let mut args = Object::new();
    let end = question.char_indices().nth(MAX_QUERY_CHARS).map_or(question.len(), |(at, _)| at);
    args.insert("query".to_owned(), question[..end].into());
    let limit = limit.map(|it| Value::Int(it.min(MAX_LIMIT) as i64));
    args.extend(limit.map(|it| ("limit".to_owned(), it)));
    let call = searched.gateway.open_call(Caller::new("bench"))?;
    let answer = searched.gateway.call(&call, "search_docs", Value::Object(args));
    let answer = runtime.block_on(answer)?;
    let text = answer.as_str().context("search_docs answers text")?;
    Ok(read_answer(searched, text))
}

fn read_answer(searched: &SearchedCatalog, text: &str) -> ProductAnswer {
    let mut functions = Vec::new();
    let mut add = |path: &str| {
        if let Some(number) = searched.paths.get(path)
            && !functions.contains(number)
        {
            functions.push(*number);
        }
    };
    for line in text.lines() {
        if let Some(more) = line.strip_prefix(MORE_NAMES_PREFIX) {
            let names = more.split_once(" (").map_or(more, |(names, _)| names);
            names.split(", ").for_each(&mut add);
        } else if line.starts_with(FUNCTION_PREFIX) {
            let end = line.find(['(', ':']).unwrap_or(line.len());
            add(&line[..end]);
        }
    }
    ProductAnswer { functions, fits: !text.starts_with("Nothing ") }
}
