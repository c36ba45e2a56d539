//! `fuzzy`: fuzzy search by a few letters.
//!
//! Here stand the functions; [`fuzzy_matcher`] is the score of one text. It is
//! written here, in a few pages, because the one crate of this kind that is well
//! kept (nucleo-matcher) is under a licence that asks more of those who pass the
//! binary on than ours does, and because every search of a script has to stay
//! within bounds of time and memory that are ours to set.

mod fuzzy_matcher;

use std::time::Duration;

use moonlark_core::limits::format_seconds;
use moonlark_core::{Module, Problem, Result, Value};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use crate::args::ScriptList;
use fuzzy_matcher::FuzzyQuery;

/// However much time the call has left.
const MAX_FUZZY_SEARCH_TIME: Duration = Duration::from_secs(2);
/// Putting more of them in order would take longer than a call may overrun.
const MAX_FUZZY_ITEMS: usize = 200_000;
/// What is read of one item; the rest finds nothing.
const MAX_ITEM_TEXT_BYTES: usize = 16 * 1024;

pub(crate) fn module() -> Module {
    let fruit = || json!(["apple", "grape", "pineapple"]);
    let people = || json!([{"name": "Ann", "town": "Graz"}, {"name": "Grace", "town": "Bonn"}]);
    Module::new(
        "fuzzy",
        "Find items by some of their letters, in order, the best first. Upper and lower case are \
         the same, and each word of the query has to be found.",
    )
    .function(
        "search",
        "The items that match: texts, or tables and dicts, of which all fields that are text are \
         searched, or the one named by `key`, or those named by `keys`.",
        search,
    )
    .example(json!({"query": "aple", "items": fruit()}), json!(["apple", "pineapple"]))
    .example(json!({"query": "gra", "items": people(), "key": "name"}), json!([people()[1]]))
    .fails(json!({"query": "a", "items": "apple"}), "expected a list")
    .fails(json!({"query": "a", "items": fruit(), "key": "a", "keys": ["b"]}), "key or keys")
    .function(
        "search_with_scores",
        "The same, each item with its score: a higher one is a better match.",
        search_with_scores,
    )
    .example(
        json!({"query": "gr", "items": fruit(), "limit": 1}),
        json!([{"item": "grape", "score": 58}]),
    )
    .fails(json!({"query": "a", "items": fruit(), "key": "a", "keys": ["b"]}), "key or keys")
    .pure()
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FuzzySearchArgs {
    /// What is looked for.
    query: String,
    /// Where: a list of texts, or of tables or dicts.
    items: ScriptList,
    /// The one field that is searched.
    key: Option<String>,
    /// The fields that are searched.
    #[schemars(with = "Option<Vec<String>>")]
    keys: Option<ScriptList>,
    /// How many items at most; all when not given, or 0.
    limit: Option<i64>,
}

fn search(call: &Call, args: FuzzySearchArgs) -> Result<ScriptList> {
    Ok(ScriptList(find_matches(call, args)?.into_iter().map(|(_, item)| item).collect()))
}

fn search_with_scores(call: &Call, args: FuzzySearchArgs) -> Result<ScriptList> {
    let scored = |(score, item)| Value::from_fields([("item", item), ("score", Value::Int(score))]);
    Ok(ScriptList(find_matches(call, args)?.into_iter().map(scored).collect()))
}

/// The items that match with their scores, the best first; equal ones as given.
fn find_matches(call: &Call, args: FuzzySearchArgs) -> Result<Vec<(i64, Value)>> {
    let fields = searched_fields(args.key, args.keys)?;
    let query = FuzzyQuery::new(&args.query)?;
    let end = call.deadline().min(Instant::now() + MAX_FUZZY_SEARCH_TIME);
    if args.items.0.len() > MAX_FUZZY_ITEMS {
        return Err(Problem::limit_exceeded(format!(
            "more than {MAX_FUZZY_ITEMS} items cannot be searched"
        ))
        .with_hint("search them in parts"));
    }
    let mut found = Vec::new();
    let mut matcher = query.new_matcher();
    for item in args.items.0 {
        if Instant::now() >= end {
            let most = format_seconds(MAX_FUZZY_SEARCH_TIME);
            return Err(Problem::limit_exceeded(format!("the search takes longer than {most}"))
                .with_hint("search fewer or shorter items, or name the fields with key"));
        }
        let Some(text) = searched_text(&item, fields.as_deref()) else { continue };
        if let Some(score) = matcher.score_text(&text) {
            found.push((score, text.chars().count(), item));
        }
    }
    found.sort_by(|(a, a_length, _), (b, b_length, _)| b.cmp(a).then(a_length.cmp(b_length)));
    if let Some(limit) = args.limit.and_then(|limit| usize::try_from(limit).ok())
        && limit > 0
    {
        found.truncate(limit);
    }
    Ok(found.into_iter().map(|(score, _, item)| (score, item)).collect())
}

/// The fields of an item that are searched; all of them when none are named.
fn searched_fields(key: Option<String>, keys: Option<ScriptList>) -> Result<Option<Vec<String>>> {
    match (key, keys) {
        (Some(_), Some(_)) => Err(Problem::bad_request("give key or keys, not both")),
        (Some(key), None) => Ok(Some(vec![key])),
        (None, Some(keys)) => {
            let name = |key: Value| match key {
                Value::Str(key) => Ok(key),
                other => Err(Problem::bad_request(format!(
                    "keys must be a list of names, got {}",
                    other.kind()
                ))),
            };
            keys.0.into_iter().map(name).collect::<Result<_>>().map(Some)
        }
        (None, None) => Ok(None),
    }
}

/// The text of an item that is searched; none if it has none.
fn searched_text(item: &Value, fields: Option<&[String]>) -> Option<String> {
    match item {
        Value::Str(text) => Some(truncate_item_text(text).to_owned()),
        Value::Object(object) => {
            let texts: Vec<&str> = match fields {
                None => object.values().filter_map(Value::as_str).collect(),
                Some(names) => names.iter().filter_map(|name| object.get(name)?.as_str()).collect(),
            };
            if texts.is_empty() { None } else { Some(join_texts(&texts)) }
        }
        _ => None,
    }
}

/// The texts with spaces between, as far as they are read.
fn join_texts(texts: &[&str]) -> String {
    let mut all = String::new();
    for text in texts {
        if all.len() >= MAX_ITEM_TEXT_BYTES {
            break;
        }
        if !all.is_empty() {
            all.push(' ');
        }
        all.push_str(truncate_item_text(text));
    }
    let end = truncate_item_text(&all).len();
    all.truncate(end);
    all
}

fn truncate_item_text(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_ITEM_TEXT_BYTES)]
}

#[cfg(test)]
mod tests {
    use moonlark_core::ProblemCode;
    use serde_json::Value as Json;

    use super::*;
    use crate::test_calls::{call, scope};

    async fn found(args: Json) -> Json {
        let dir = tempfile::tempdir().unwrap();
        match call(scope(dir.path(), &[]), "fuzzy.search", args).await {
            Ok(value) => value.into_json("found").unwrap(),
            Err(problem) => json!(problem.to_string()),
        }
    }

    #[tokio::test]
    async fn the_best_comes_first_and_what_does_not_match_is_left_out() {
        for (query, items, expected) in [
            ("", json!(["b", "a"]), json!(["b", "a"])),
            ("GH", json!(["rough", "git hub", "xyz"]), json!(["git hub", "rough"])),
            ("usrsrv", json!(["UserService", "users"]), json!(["UserService"])),
            ("main rs", json!(["src/lib.rs", "src/main.rs"]), json!(["src/main.rs"])),
            ("rs main", json!(["src/main.rs"]), json!(["src/main.rs"])),
            (
                "potion",
                json!(["Hyper Potion", "Potion", "Pot Iron"]),
                json!(["Potion", "Hyper Potion", "Pot Iron"]),
            ),
            ("é", json!(["cafe", "café", "CAFÉ"]), json!(["café", "CAFÉ"])),
            ("a", json!([1, null, ["a"], {"n": 1}, {"n": "a"}]), json!([{"n": "a"}])),
            ("ab", json!([{"x": "a", "y": "b"}]), json!([{"x": "a", "y": "b"}])),
        ] {
            let args = json!({"query": query, "items": items});
            assert_eq!(found(args).await, expected, "{query}");
        }
    }

    #[tokio::test]
    async fn only_the_named_fields_are_searched() {
        let items = json!([{"name": "tea", "note": "milk"}, {"name": "milk", "note": "x"}]);
        let by = |more: Json| {
            let mut args = json!({"query": "milk", "items": items});
            args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            found(args)
        };
        assert_eq!(by(json!({})).await.as_array().unwrap().len(), 2);
        assert_eq!(by(json!({"key": "name"})).await, json!([items[1]]));
        assert_eq!(by(json!({"keys": ["note"]})).await, json!([items[0]]));
        assert_eq!(by(json!({"keys": ["name", "note"], "limit": 1})).await, json!([items[1]]));
        assert_eq!(by(json!({"limit": 0})).await.as_array().unwrap().len(), 2);
        assert_eq!(by(json!({"key": "missing"})).await, json!([]));
    }

    /// Every letter of the text could be every letter of the query.
    #[tokio::test]
    async fn a_hostile_search_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let text = "a".repeat(20_000);
        let items: Vec<Json> = (0..1000).map(|_| json!(format!("{text}b"))).collect();
        let args = json!({"query": format!("{}b", "a".repeat(250)), "items": items});
        let began = std::time::Instant::now();
        let ended = call(scope(dir.path(), &[]), "fuzzy.search", args).await;
        let problem = ended.err();
        assert!(problem.is_none_or(|it| it.code == ProblemCode::Limit));
        assert!(began.elapsed() < Duration::from_secs(60));
        let long = json!({"query": "x".repeat(100_000), "items": ["x"]});
        let problem = call(scope(dir.path(), &[]), "fuzzy.search", long).await.unwrap_err();
        assert_eq!(problem.code, ProblemCode::BadRequest);
    }
}
