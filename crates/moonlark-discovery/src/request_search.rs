//! Questions that need several functions: one for each request in them.
//!
//! "Find the customer and refund the last order" is two requests. Asked as one, the
//! functions of the first may take all places. So each is asked by itself as well, and
//! the best of each comes first, with the words that it answers; before them only what
//! fits the whole question best.

use moonlark_core::Catalog;
use moonlark_core::sdk::{SdkFunction, SdkSource};
use moonlark_core::visible_text::visible_line;
use moonlark_search::split_requests;

use crate::function_index::{FoundFunction, FunctionIndex, best_fit};
use crate::function_search::MIN_FIT;

/// A function of the answer.
pub(crate) struct AnsweringFunction<'a> {
    pub(crate) source: &'a SdkSource,
    pub(crate) function: &'a SdkFunction,
    /// The request that it answers, where the question has several.
    pub(crate) request: Option<String>,
}

impl AnsweringFunction<'_> {
    fn is_same(&self, other: &AnsweringFunction<'_>) -> bool {
        std::ptr::eq(self.function, other.function)
    }
}

/// The function that fits each request of a question best, each once; nothing where
/// one function answers all of them.
pub(crate) fn answer_requests<'a>(
    index: &FunctionIndex,
    catalog: &'a Catalog,
    question: &str,
    only: Option<&SdkSource>,
) -> Vec<AnsweringFunction<'a>> {
    let mut answers: Vec<AnsweringFunction<'a>> = Vec::new();
    for request in split_requests(question) {
        let hits = index.search(catalog, &request, only, 1);
        let fits = |it: &&FoundFunction<'_>| it.exact || best_fit(&hits) >= MIN_FIT;
        let Some(hit) = hits.first().filter(fits) else { continue };
        let request = Some(visible_line(&request));
        let answer = AnsweringFunction { source: hit.source, function: hit.function, request };
        if !answers.iter().any(|it| it.is_same(&answer)) {
            answers.push(answer);
        }
    }
    if answers.len() > 1 { answers } else { Vec::new() }
}

/// What answers each request, then the rest; but first what fits the whole question
/// best, if it is none of them.
pub(crate) fn put_answers_first<'a>(
    mut answers: Vec<AnsweringFunction<'a>>,
    found: Vec<AnsweringFunction<'a>>,
    limit: usize,
) -> Vec<AnsweringFunction<'a>> {
    for (place, it) in found.into_iter().enumerate() {
        if answers.iter().any(|there| there.is_same(&it)) {
            continue;
        }
        let at = if place == 0 { 0 } else { answers.len() };
        answers.insert(at, it);
    }
    answers.truncate(limit);
    answers
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::test_catalog::{ask, world};

    #[tokio::test]
    async fn each_request_of_a_question_has_a_function_that_says_so() {
        let query = "create an issue, then read the file";
        let found = ask(&world(), "search_docs", json!({"query": query})).await;
        let shown: Vec<&str> = found
            .lines()
            .filter_map(|line| line.split('(').next().filter(|_| line.starts_with("sdk.")))
            .collect();
        assert_eq!(shown[..2], ["sdk.git_hub.create_issue", "sdk.files.read_file"], "{found}");
        assert!(found.contains("\n  -- for: create an issue\n"), "{found}");
        assert!(found.contains("\n  -- for: read the file"), "{found}");
    }

    #[tokio::test]
    async fn one_request_is_answered_without_a_word_about_it() {
        for query in ["create an issue", "which issues are open, and where"] {
            let found = ask(&world(), "search_docs", json!({"query": query})).await;
            assert!(!found.contains("-- for:"), "{query}: {found}");
        }
    }
}
