//! `search_docs` for documents of the knowledge base.
//!
//! Nothing here knows the knowledge base. It is asked as agents' scripts ask it, by
//! its tools, so that the same rules hold and a script may stand in for it.

use moonlark_core::nearest::nearest_name;
use moonlark_core::sdk::SdkSource;
use moonlark_core::tool::SourceKind;
use moonlark_core::value::{Object, shorten_text};
use moonlark_core::{ProblemCode, Result, Value};
use moonlark_gateway::Call;

use crate::function_search::find_source;

/// The source that stands for all documents.
const KNOWLEDGE_SOURCE: &str = "knowledge";
const SEARCH_TOOL: &str = "search";
const SOURCES_TOOL: &str = "list_sources";
/// Bytes of a snippet that are shown.
const MAX_SNIPPET_BYTES: usize = 300;

/// What `search_docs` looks through, where it is told a source.
pub(crate) enum SearchScope<'a> {
    Functions(&'a SdkSource),
    /// Documents, of one source if one is named.
    Documents(Option<String>),
}

/// What a name means: functions first, then documents.
pub(crate) async fn find_scope<'a>(call: &'a Call, name: &str) -> Result<SearchScope<'a>> {
    let sdk = call.catalog().sdk();
    let plain = name.strip_prefix(crate::SDK_NAME_PREFIX).unwrap_or(name);
    let ours = |source: &SdkSource| source.kind == SourceKind::Builtin;
    // Where there is no knowledge base, its tool says how to begin one.
    if plain == KNOWLEDGE_SOURCE && sdk.find_source(plain).is_none_or(ours) {
        return Ok(SearchScope::Documents(None));
    }
    let problem = match find_source(sdk, name) {
        Ok(source) => return Ok(SearchScope::Functions(source)),
        Err(problem) => problem,
    };
    let sources = list_document_sources(call).await?;
    if sources.iter().any(|it| it == plain) {
        return Ok(SearchScope::Documents(Some(plain.to_owned())));
    }
    let near = nearest_name(plain, sources.iter().map(String::as_str));
    Err(match near {
        Some(near) => {
            let both = problem.hint.as_deref().filter(|it| it.starts_with("did you mean"));
            let hint = both.map(|it| format!("{} or {near}?", it.trim_end_matches('?')));
            problem.clone().with_hint(hint.unwrap_or_else(|| format!("did you mean {near}?")))
        }
        None => problem,
    })
}

/// The names of the sources that documents come from; none where the caller has no
/// knowledge base.
async fn list_document_sources(call: &Call) -> Result<Vec<String>> {
    let answer = match call.gateway().call(call, SOURCES_TOOL, Value::from_fields([])).await {
        Ok(answer) => answer,
        Err(problem)
            if matches!(
                problem.code,
                ProblemCode::Limit | ProblemCode::Timeout | ProblemCode::Cancelled
            ) =>
        {
            return Err(problem);
        }
        // There is none, or not for this caller.
        Err(_) => return Ok(Vec::new()),
    };
    let Some(Value::Array(sources)) = answer.get("sources") else { return Ok(Vec::new()) };
    let names = sources.iter().filter_map(|it| it.get("name")?.as_str());
    Ok(names.map(str::to_owned).collect())
}

/// The documents that answer a question, and how to read one.
pub(crate) async fn search_documents(
    call: &Call,
    query: &str,
    source: Option<String>,
    limit: usize,
) -> Result<String> {
    let mut args = Object::new();
    args.insert("query".to_owned(), query.into());
    args.insert("limit".to_owned(), Value::Int(i64::try_from(limit).unwrap_or(i64::MAX)));
    args.extend(source.map(|source| ("source".to_owned(), Value::from(source))));
    let answer = call.gateway().call(call, SEARCH_TOOL, Value::Object(args)).await?;
    let list = |key: &str| match (&answer, answer.get(key)) {
        (_, Some(Value::Array(items))) => items.as_slice(),
        // A script that stands in may answer with the list itself.
        (Value::Array(items), _) if key == "results" => items.as_slice(),
        _ => &[],
    };
    let mut text = String::new();
    for hit in list("results") {
        text.push_str(&format_document_hit(hit));
    }
    if text.is_empty() {
        text.push_str("Nothing in the knowledge base fits.\n");
    } else {
        text.push_str("sdk.knowledge.get({ id = …, section = … }) has the text.\n");
    }
    for note in list("notes").iter().filter_map(Value::as_str) {
        text.push_str(&format!("note: {note}\n"));
    }
    text.truncate(text.trim_end().len());
    Ok(text)
}

/// A document by what leads to it, and what was found in it.
fn format_document_hit(hit: &Value) -> String {
    let text = |key: &str| hit.get(key).and_then(Value::as_str).unwrap_or_default();
    let place = [text("source"), text("source_id"), text("heading")];
    let place = place.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(" · ");
    let snippet = text("snippet").split_whitespace().collect::<Vec<_>>().join(" ");
    let end = snippet.floor_char_boundary(MAX_SNIPPET_BYTES);
    let cut = if end < snippet.len() { "…" } else { "" };
    let title = shorten_text(text("title"));
    format!("{title} (id {})\n  {place}\n  {}{cut}\n", text("id"), &snippet[..end])
}
