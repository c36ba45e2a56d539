//! Answers of real servers, with each field removed, renamed, retyped and emptied: drift
//! that has to be found, and none where nothing was changed.

use std::collections::BTreeSet;

use moonlark_core::Value;
use moonlark_gateway::answer_drift::{DriftKind, find_answer_drift};
use serde_json::{Value as Json, json};

#[derive(Debug, Default)]
pub struct TriedMutations {
    pub packages: usize,
    pub answers: usize,
    pub mutations: usize,
}

pub fn check_every_mutation<'a>(
    answers: impl Iterator<Item = (&'a str, &'a Json)>,
) -> TriedMutations {
    let (mut tried, mut packages) = (TriedMutations::default(), BTreeSet::new());
    for (package, answer) in answers {
        let Some(answer) = plain_answer(answer) else { continue };
        assert_eq!(drift(&answer, &answer), [], "{package}: {answer}");
        tried.answers += 1;
        let mut paths = BTreeSet::new();
        collect_paths(&answer, &mut Vec::new(), &mut paths);
        for path in paths {
            for kind in
                [DriftKind::Removed, DriftKind::Renamed, DriftKind::Retyped, DriftKind::Emptied]
            {
                // Where values of several kinds stand, none of them is another kind.
                let is_mixed = kinds_at(&answer, &path).len() > 1;
                if is_mixed && matches!(kind, DriftKind::Retyped | DriftKind::Emptied) {
                    continue;
                }
                let mut changed = answer.clone();
                mutate(&mut changed, &path, kind);
                if changed == answer {
                    continue;
                }
                let found = drift(&answer, &changed);
                let expected = path.join(".").replace(".[]", "[]");
                let is_found = found.iter().any(|(at, was)| *at == expected && *was == kind);
                assert!(is_found, "{package}: {kind:?} {expected}: {found:?} in {changed}");
                tried.mutations += 1;
                packages.insert(package);
            }
        }
    }
    tried.packages = packages.len();
    tried
}

fn drift(before: &Json, after: &Json) -> Vec<(String, DriftKind)> {
    let value = |json: &Json| Value::from_json(json.clone()).unwrap();
    let found = find_answer_drift(&value(before), &value(after));
    found.into_iter().map(|drift| (drift.path, drift.kind)).collect()
}

/// The answer as a script has it, where it has fields.
fn plain_answer(answer: &Json) -> Option<Json> {
    let structured = &answer["structuredContent"];
    if structured.is_object() {
        return Some(structured.clone());
    }
    let [only] = answer["content"].as_array()?.as_slice() else { return None };
    let parsed: Json = serde_json::from_str(only["text"].as_str()?).ok()?;
    (parsed.is_object() || parsed.is_array()).then_some(parsed)
}

/// Every field, through lists, as a path such as `rows`, `[]`, `name`. Not below what has
/// names that are data.
fn collect_paths(value: &Json, path: &mut Vec<String>, paths: &mut BTreeSet<Vec<String>>) {
    match value {
        Json::Object(fields) => {
            let is_name = |name: &String| {
                name.len() <= 60 && name.chars().all(|c| c.is_alphabetic() || c == '_' || c == '$')
            };
            if !fields.keys().all(is_name) {
                return;
            }
            for (name, field) in fields {
                path.push(name.clone());
                paths.insert(path.clone());
                collect_paths(field, path, paths);
                path.pop();
            }
        }
        Json::Array(items) => {
            path.push("[]".to_owned());
            items.iter().for_each(|item| collect_paths(item, path, paths));
            path.pop();
        }
        _ => {}
    }
}

/// Which kinds of values the field has, wherever it is.
fn kinds_at(value: &Json, path: &[String]) -> BTreeSet<&'static str> {
    match (value, path.split_first()) {
        (Json::Array(items), Some((first, rest))) if first == "[]" => {
            items.iter().flat_map(|item| kinds_at(item, rest)).collect()
        }
        (Json::Object(fields), Some((first, rest))) => {
            fields.get(first).map(|field| kinds_at(field, rest)).unwrap_or_default()
        }
        (_, Some(_)) | (Json::Null, None) => BTreeSet::new(),
        (Json::Bool(_), None) => ["truth"].into(),
        (Json::Number(_), None) => ["number"].into(),
        (Json::String(_), None) => ["text"].into(),
        (Json::Array(_), None) => ["list"].into(),
        (Json::Object(_), None) => ["object"].into(),
    }
}

/// Change the field wherever it is.
fn mutate(value: &mut Json, path: &[String], kind: DriftKind) {
    let Some((first, rest)) = path.split_first() else { return };
    match value {
        Json::Array(items) if first == "[]" => {
            items.iter_mut().for_each(|item| mutate(item, rest, kind));
        }
        Json::Object(fields) if rest.is_empty() => {
            let Some(field) = fields.remove(first) else { return };
            match kind {
                DriftKind::Removed => {}
                DriftKind::Renamed => drop(fields.insert("qqq".to_owned(), field)),
                DriftKind::Retyped => drop(fields.insert(first.clone(), retyped(field))),
                DriftKind::Emptied => drop(fields.insert(first.clone(), emptied(field))),
            }
        }
        Json::Object(fields) => {
            if let Some(field) = fields.get_mut(first) {
                mutate(field, rest, kind);
            }
        }
        _ => {}
    }
}

fn retyped(value: Json) -> Json {
    match value {
        // What was null has no kind that could change.
        Json::Null => Json::Null,
        Json::String(text) => json!({"text": text}),
        other => Json::String(other.to_string()),
    }
}

fn emptied(value: Json) -> Json {
    match value {
        Json::String(text) if text.trim().is_empty() => Json::String(text),
        Json::String(_) => json!(""),
        Json::Array(_) => json!([]),
        Json::Object(fields) if fields.is_empty() => Json::Object(fields),
        _ => Json::Null,
    }
}
