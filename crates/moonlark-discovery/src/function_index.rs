//! Index entries of functions: what about each of them can be searched.

use moonlark_core::Tool;
use moonlark_core::catalog::Catalog;
use moonlark_core::sdk::{SdkFunction, SdkSource};
use moonlark_core::value::Value;
use serde_json::{Map, Value as Json};

use crate::text_index::{
    IndexEntry, IndexHit, RankingWeights, TextIndex, TextIndexBuilder, split_first_sentence,
};

/// How deep parameters are looked at, and how much of them.
const MAX_SCHEMA_WORD_DEPTH: usize = 6;
const MAX_SCHEMA_WORDS: usize = 500;
/// How the description of an operation begins that is no longer to be used.
const DEPRECATED_PREFIX: &str = "Deprecated. ";

/// The functions of one catalog, ready to be searched.
pub struct FunctionIndex {
    index: TextIndex,
}

/// A function that a question may mean.
pub struct FoundFunction<'a> {
    pub source: &'a SdkSource,
    pub function: &'a SdkFunction,
    /// How well it fits; comparable from question to question.
    pub score: f32,
    /// The question is its name or its summary.
    pub exact: bool,
    /// How much of the question's words it has, and how near its meaning is.
    pub coverage: f32,
    pub cosine: f32,
}

/// How well the best of what was found fits the question: what its words have of it
/// and how near it is, each at its best. Comparable from catalog to catalog.
pub fn best_fit(found: &[FoundFunction<'_>]) -> f32 {
    let best = |of: fn(&FoundFunction<'_>) -> f32| found.iter().map(of).fold(0.0, f32::max);
    best(|it| it.coverage) + best(|it| it.cosine)
}

impl FunctionIndex {
    pub fn new(catalog: &Catalog) -> FunctionIndex {
        FunctionIndex::ranked_by(catalog, RankingWeights::default())
    }

    /// With other weights than usual.
    pub fn ranked_by(catalog: &Catalog, weights: RankingWeights) -> FunctionIndex {
        let mut builder = TextIndexBuilder::with_vectors().ranked_by(weights);
        for (source, function) in all_functions(catalog) {
            builder.add_entry(&index_entry(source, function));
        }
        FunctionIndex { index: builder.build_index() }
    }

    /// The functions of that catalog which a question may mean, best first; those
    /// of one source, if one is given.
    pub fn search<'a>(
        &self,
        catalog: &'a Catalog,
        question: &str,
        only: Option<&SdkSource>,
        limit: usize,
    ) -> Vec<FoundFunction<'a>> {
        let starts = source_starts(catalog);
        let span = only.and_then(|only| {
            let at = catalog.sdk().sources().iter().position(|it| std::ptr::eq(it, only))?;
            Some(starts[at]..starts[at] + only.functions.len())
        });
        let accept = |entry: u32| span.as_ref().is_none_or(|it| it.contains(&(entry as usize)));
        let hits = self.index.search(question, limit, accept);
        let found = hits.iter().filter_map(|hit| {
            let at = starts.partition_point(|start| *start <= hit.entry as usize).checked_sub(1)?;
            let source = catalog.sdk().sources().get(at)?;
            let function = source.functions.get(hit.entry as usize - starts[at])?;
            let IndexHit { score, exact, coverage, cosine, .. } = *hit;
            Some(FoundFunction { source, function, score, exact, coverage, cosine })
        });
        found.collect()
    }
}

/// The number of the first function of each source.
fn source_starts(catalog: &Catalog) -> Vec<usize> {
    let sources = catalog.sdk().sources().iter();
    let starts = sources.scan(0, |next, source| {
        let start = *next;
        *next += source.functions.len();
        Some(start)
    });
    starts.collect()
}

/// All functions, in the order of the index.
pub(crate) fn all_functions(catalog: &Catalog) -> impl Iterator<Item = (&SdkSource, &SdkFunction)> {
    let sources = catalog.sdk().sources().iter();
    sources.flat_map(|source| source.functions.iter().map(move |function| (source, function)))
}

fn index_entry<'a>(source: &'a SdkSource, function: &'a SdkFunction) -> IndexEntry<'a> {
    let tool = &*function.tool;
    let name = format!("{}.{}", source.name, function.name);
    let mut entry = IndexEntry {
        names: vec![&function.original],
        aliases: vec![format!("{}{name}", crate::SDK_NAME_PREFIX), name],
        body: vec![&source.original],
        ..IndexEntry::default()
    };
    entry.summaries.extend(tool_title(tool).filter(|title| *title != function.original));
    let (summary, rest) = split_description(tool);
    entry.summaries.extend([summary].into_iter().filter(|it| !it.is_empty()));
    entry.body.push(rest);
    entry.body.extend(tool_tags(tool));
    collect_schema_words(tool.input.json(), 0, &mut entry.inputs);
    if let Some(output) = &tool.output {
        collect_schema_words(output.json(), 0, &mut entry.outputs);
    }
    let operation = tool.operation.as_deref();
    entry.path = operation.and_then(|it| Some(it.split_once(' ')?.1));
    entry
}

/// What a tool does in one line, and what else its description says.
fn split_description(tool: &Tool) -> (&str, &str) {
    let text = tool.description.as_str();
    let Some(summary) = tool.summary.as_deref() else { return split_first_sentence(text) };
    // A description that goes on from the summary is left whole.
    let rest = text.strip_prefix(DEPRECATED_PREFIX).unwrap_or(text).strip_prefix(summary);
    (summary, rest.filter(|rest| rest.is_empty() || rest.starts_with('\n')).unwrap_or(text))
}

fn tool_title(tool: &Tool) -> Option<&str> {
    let definition = tool.definition.as_deref()?;
    let annotated = definition.get("annotations").and_then(|it| it.get("title"));
    definition.get("title").or(annotated)?.as_str()
}

/// What the author of a tool filed it under: the tags of an operation, `_meta.tags`,
/// or those of a framework, such as `_meta.fastmcp.tags`.
pub(crate) fn tool_tags(tool: &Tool) -> Vec<&str> {
    let own = tool.tags.iter().map(String::as_str);
    let meta = tool.definition.as_deref().and_then(|it| it.get("_meta"));
    let Some(Value::Object(meta)) = meta else { return own.collect() };
    let lists = meta.get("tags").into_iter().chain(meta.values().filter_map(|it| it.get("tags")));
    let tags = lists.filter_map(|list| match list {
        Value::Array(tags) => Some(tags.iter().filter_map(Value::as_str)),
        _ => None,
    });
    own.chain(tags.flatten()).collect()
}

/// The words in a schema: names of fields and types, descriptions, values.
fn collect_schema_words<'a>(schema: &'a Map<String, Json>, depth: usize, words: &mut Vec<&'a str>) {
    if depth == MAX_SCHEMA_WORD_DEPTH || words.len() >= MAX_SCHEMA_WORDS {
        return;
    }
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            ("description" | "title", Json::String(text)) if depth > 0 => words.push(text),
            ("const", Json::String(text)) => words.push(text),
            ("enum", Json::Array(values)) => words.extend(values.iter().filter_map(Json::as_str)),
            ("properties" | "$defs" | "definitions", Json::Object(fields)) => {
                for (name, field) in fields {
                    words.push(name);
                    if let Json::Object(field) = field {
                        collect_schema_words(field, depth + 1, words);
                    }
                }
            }
            ("items" | "additionalProperties", Json::Object(below)) => {
                collect_schema_words(below, depth + 1, words);
            }
            ("anyOf" | "oneOf" | "allOf", Json::Array(choices)) => {
                for choice in choices.iter().filter_map(Json::as_object) {
                    collect_schema_words(choice, depth + 1, words);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use moonlark_core::schema::Schema;
    use moonlark_core::tool::{Source, SourceKind};
    use moonlark_gateway::tool_body::ToolBody;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_summary_is_told_from_the_rest_of_the_description() {
        let source = Arc::new(Source { kind: SourceKind::Api, name: "api".to_owned() });
        let check = |summary: Option<&str>, description: &str, expected: (&str, &str)| {
            let body = ToolBody::from_fn(|_, _| Ok(Value::Null));
            let mut tool =
                Tool::new("t", source.clone(), Schema::description_only(Map::new()), body);
            tool.summary = summary.map(str::to_owned);
            tool.description = description.to_owned();
            assert_eq!(split_description(&tool), expected, "{summary:?} {description:?}");
        };
        check(Some("List pets"), "List pets\n\nAll of them.", ("List pets", "\n\nAll of them."));
        check(Some("List pets"), "List pets in a store.", ("List pets", "List pets in a store."));
        check(Some("List pets"), "Deprecated. List pets", ("List pets", ""));
        check(None, "List pets. All of them.", ("List pets.", " All of them."));
    }

    #[test]
    fn every_word_of_a_schema_can_be_found() {
        let schema = json!({
            "type": "object",
            "title": "createArguments",
            "description": "Arguments",
            "properties": {
                "state": {"enum": ["open", "closed", 3], "description": "Of the issue"},
                "labels": {"type": "array", "items": {"$ref": "#/$defs/Label"}},
                "at": {"anyOf": [{"type": "null"}, {"const": "now"}]},
            },
            "$defs": {"Label": {"properties": {"color": {"type": "string"}}}},
        });
        let mut words = Vec::new();
        collect_schema_words(schema.as_object().unwrap(), 0, &mut words);
        assert_eq!(
            words,
            ["state", "open", "closed", "Of the issue", "labels", "at", "now", "Label", "color"]
        );
    }
}
