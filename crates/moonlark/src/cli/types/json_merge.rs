//! Additions to JSON that people wrote: comments, order and layout stay.

use moonlark_clients::config_syntax::ConfigSyntax;
use moonlark_clients::syntax_tree::{SyntaxNode, SyntaxNodeKind};
use serde_json::{Map, Value as Json};

/// What came of it.
pub(super) struct MergedJson {
    /// The new text, if it is another.
    pub(super) text: Option<String>,
    /// What is there with another value, as it should be.
    pub(super) refused: Map<String, Json>,
}

/// `text` with what it lacks of `wanted`; none if it is not a JSON object.
pub(super) fn merge_missing(text: &str, wanted: &Map<String, Json>) -> Option<MergedJson> {
    let root = ConfigSyntax::Json.parse(text).ok()?;
    let mut additions = Vec::new();
    let refused = compare_members(root.as_ref(), wanted, &[], &mut additions)?;
    let mut new = text.to_owned();
    for (path, value) in &additions {
        new = ConfigSyntax::Json.put_value(&new, path, value).ok()?;
    }
    // Better not to touch a file than to break it.
    ConfigSyntax::Json.parse(&new).ok()?;
    Some(MergedJson { text: (new != text).then_some(new), refused })
}

/// What is refused of `wanted` in the object at `path`. What it lacks goes to `additions`.
fn compare_members<'a>(
    object: Option<&SyntaxNode>,
    wanted: &'a Map<String, Json>,
    path: &[&'a str],
    additions: &mut Vec<(Vec<&'a str>, &'a Json)>,
) -> Option<Map<String, Json>> {
    if object.is_some_and(|object| !matches!(object.kind, SyntaxNodeKind::Object(_))) {
        return None;
    }
    let mut refused = Map::new();
    for (key, value) in wanted {
        let path = [path, &[key.as_str()]].concat();
        match (object.and_then(|object| object.get(key)), value) {
            (None, value) => additions.push((path, value)),
            (Some(there), value) if there.value.to_json() == *value => {}
            (Some(there), Json::Object(whole)) => {
                let inner = compare_members(Some(&there.value), whole, &path, additions);
                let inner = inner.unwrap_or_else(|| whole.clone());
                if !inner.is_empty() {
                    refused.insert(key.clone(), Json::Object(inner));
                }
            }
            (Some(_), value) => drop(refused.insert(key.clone(), value.clone())),
        }
    }
    Some(refused)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted() -> Map<String, Json> {
        json!({"a": 1, "b": {"x": true}, "c": "text"}).as_object().unwrap().clone()
    }

    fn check(text: &str, expected: &str) {
        let merged = merge_missing(text, &wanted()).unwrap();
        let new = merged.text.unwrap_or_else(|| text.to_owned());
        assert_eq!(new, expected);
        // A second time there is nothing to add.
        assert!(merge_missing(&new, &wanted()).unwrap().text.is_none(), "{new}");
    }

    #[test]
    fn what_is_there_stays_as_it_is() {
        check("", "{\n  \"a\": 1,\n  \"b\": {\n    \"x\": true\n  },\n  \"c\": \"text\"\n}\n");
        check("{}", "{\n  \"a\": 1,\n  \"b\": {\n    \"x\": true\n  },\n  \"c\": \"text\"\n}");
        check(
            "{\"z\": [1, \"}\"], \"b\": {}}\n",
            "{\"z\": [1, \"}\"], \"b\": {\"x\": true}, \"a\": 1, \"c\": \"text\"}\n",
        );
        check(
            "// mine\n{\n\t\"a\": 1, // one, \"two\" }\n\t/* b { */ \"b\": {\n\t\t\"y\": \"//\",\n\t}, \n\t\"c\": \"text\" // last\n}\n",
            "// mine\n{\n\t\"a\": 1, // one, \"two\" }\n\t/* b { */ \"b\": {\n\t\t\"y\": \"//\",\n\t\t\"x\": true,\n\t}, \n\t\"c\": \"text\" // last\n}\n",
        );
        check(
            "{\n    \"z\": 1 // last\n    // end\n}",
            "{\n    \"z\": 1, // last\n    // end\n    \"a\": 1,\n    \"b\": {\n        \"x\": true\n    },\n    \"c\": \"text\"\n}",
        );
    }

    #[test]
    fn another_value_is_kept_and_named() {
        let merged =
            merge_missing(r#"{"a": 2, "b": {"x": false, "y": 1}, "c": "text"}"#, &wanted());
        let merged = merged.unwrap();
        assert!(merged.text.is_none());
        assert_eq!(Json::Object(merged.refused), json!({"a": 1, "b": {"x": true}}));
        let merged = merge_missing(r#"{"a": 1, "b": [], "c": "text"}"#, &wanted()).unwrap();
        assert!(merged.text.is_none());
        assert_eq!(Json::Object(merged.refused), json!({"b": {"x": true}}));
    }

    #[test]
    fn what_is_not_an_object_is_not_touched() {
        let deep = "[".repeat(100_000);
        for text in ["[]", "1", "{", "{\"a\": }", "{'a': 1}", "{} {}", "\"", "/*", "{\"a", &deep] {
            assert!(merge_missing(text, &wanted()).is_none(), "{text:.20}");
        }
    }
}
