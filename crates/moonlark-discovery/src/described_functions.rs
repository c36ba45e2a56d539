//! The functions of a catalog as data, for programs that search as agents do.

use moonlark_core::Result;
use moonlark_core::sdk::{SdkFunction, SdkSource};
use moonlark_gateway::Call;
use serde_json::{Value as Json, json};

use crate::function_search::find_source;
use crate::index_cache::FunctionIndexCache;
use crate::{function_index, function_summary};

/// One function that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct DescribedFunction {
    /// As scripts call it: `sdk.github.create_issue`.
    pub name: String,
    pub source: String,
    /// The tool that it calls.
    pub tool: String,
    /// How to call it, with the types that it names below.
    pub signature: String,
    /// The first sentence of its description.
    pub summary: String,
    /// How well it fits, the best first; none where nothing was asked.
    pub score: Option<f32>,
}

impl DescribedFunction {
    pub fn to_json(&self) -> Json {
        let DescribedFunction { name, source, tool, signature, summary, score } = self;
        let mut json = json!({
            "name": name, "source": source, "tool": tool, "signature": signature, "summary": summary,
        });
        if let Some(score) = score {
            json["score"] = json!(score);
        }
        json
    }
}

/// The functions that fit a question, or all of them; of one source, if it is named.
pub async fn find_functions(
    call: &Call,
    query: &str,
    source: Option<&str>,
    limit: usize,
) -> Result<Vec<DescribedFunction>> {
    let catalog = call.catalog();
    let only = source.map(|source| find_source(catalog.sdk(), source)).transpose()?;
    if query.trim().is_empty() {
        let is_asked = |source: &SdkSource| only.is_none_or(|only| std::ptr::eq(source, only));
        let all = function_index::all_functions(catalog).filter(|(source, _)| is_asked(source));
        return Ok(all.take(limit).map(|(of, it)| describe_function(call, of, it, None)).collect());
    }
    let index = FunctionIndexCache::default().get_or_build(catalog).await?;
    let hits = index.search(catalog, query, only, limit).into_iter();
    Ok(hits.map(|it| describe_function(call, it.source, it.function, Some(it.score))).collect())
}

fn describe_function(
    call: &Call,
    source: &SdkSource,
    function: &SdkFunction,
    score: Option<f32>,
) -> DescribedFunction {
    let text = function_summary::summarize_function(source, function, call);
    let (types, about): (Vec<&str>, Vec<&str>) = text
        .lines()
        .skip(1)
        .map(str::trim_start)
        .partition(|line| line.starts_with("type ") || line.starts_with("(its types"));
    let first = text.lines().next().unwrap_or_default();
    // What was learned of the result is part of the signature, that it was learned is not.
    let first = first.split(" -- ").next().unwrap_or(first);
    DescribedFunction {
        name: function_summary::sdk_path(source, function),
        source: source.original.clone(),
        tool: function.tool.name.clone(),
        signature: std::iter::once(first).chain(types).collect::<Vec<_>>().join("\n"),
        summary: about.join(" "),
        score,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_catalog::{enter, world};

    #[tokio::test]
    async fn what_is_found_is_data() {
        let world = world();
        let call = enter(&world);
        let found = find_functions(&call, "open a new issue", None, 1).await.unwrap();
        let [found] = &found[..] else { panic!("{found:?}") };
        assert!(found.score.is_some_and(|score| score > 0.0), "{found:?}");
        assert_eq!(
            DescribedFunction { score: None, ..found.clone() },
            DescribedFunction {
                name: "sdk.git_hub.create_issue".to_owned(),
                source: "git-hub".to_owned(),
                tool: found.tool.clone(),
                signature: "sdk.git_hub.create_issue(args: { repo: string, title: string, labels: {Label}? }): { number: number }\ntype Label = { name: string, color: (\"red\" | \"blue\")? }".to_owned(),
                summary: "Create an issue.".to_owned(),
                score: None,
            }
        );
    }

    #[tokio::test]
    async fn without_a_question_all_functions_are_listed() {
        let world = world();
        let call = enter(&world);
        let all = find_functions(&call, "", None, 100).await.unwrap();
        let of_files = find_functions(&call, " ", Some("files"), 100).await.unwrap();
        assert!(of_files.len() < all.len() && !of_files.is_empty());
        assert!(of_files.iter().all(|it| it.source == "files" && it.score.is_none()));
        assert!(find_functions(&call, "", Some("fils"), 100).await.is_err());
    }
}
