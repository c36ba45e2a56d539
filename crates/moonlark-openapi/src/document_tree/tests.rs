use serde_json::json;

use super::*;

fn many() -> Json {
    let fields = (0..100).rev().map(|number| (format!("f{number}"), json!([number])));
    Json::Object(fields.collect())
}

#[test]
fn a_tree_is_what_it_was_read_from() {
    for json in [
        json!(null),
        json!("text"),
        json!([]),
        json!({}),
        json!({"b": 1, "a": [true, null, -2.5, 1e300, {"ü": "ü"}], "": {"": ""}}),
        json!(["same", "same", {"same": "same"}]),
        many(),
    ] {
        assert_eq!(DocumentTree::from_json(&json).root_node().to_json(), json);
        let read: DocumentTree = serde_json::from_str(&json.to_string()).unwrap();
        assert_eq!(read.root_node().to_json(), json);
    }
}

#[test]
fn fields_and_pointers_lead_where_they_lead_in_json() {
    let tree = DocumentTree::from_json(&many());
    for number in 0..100 {
        let found = tree.root_node().resolve_pointer(&format!("/f{number}/0")).unwrap();
        assert_eq!(found.as_number().unwrap().as_u64(), Some(number));
    }
    assert!(!tree.root_node().has_field("f100") && !tree.root_node().has_field(""));
    let json = json!({"a/b": {"~": [1, "x"]}, "yes": true, "no": false, "word": "w"});
    let tree = DocumentTree::from_json(&json);
    let root = tree.root_node();
    let at = |pointer| root.resolve_pointer(pointer).map(TreeNode::to_json);
    for pointer in ["", "/a~1b", "/a~1b/~0", "/a~1b/~0/1", "/a~1b/~0/2", "/x", "x", "/word/0"] {
        assert_eq!(at(pointer).as_ref(), json.pointer(pointer), "{pointer}");
    }
    assert!(
        root.is_field_true("yes")
            && !root.is_field_true("no")
            && !root.is_field_true("word")
            && !root.is_field_true("x")
    );
    assert_eq!(
        (root.field_text("word"), root.field_text("yes"), root.field_text("x")),
        ("w", "", "")
    );
    assert_eq!(root.iter_descendants().count(), 8);
}

#[test]
fn of_a_name_that_is_there_twice_the_last_counts() {
    let read: DocumentTree = serde_json::from_str(r#"{"a":1,"b":2,"a":3}"#).unwrap();
    assert_eq!(read.root_node().to_json().to_string(), r#"{"a":3,"b":2}"#);
}

#[test]
fn words_are_kept_once() {
    let tree = DocumentTree::from_json(&json!(vec!["the same words"; 1000]));
    assert_eq!(tree.words.text, "the same words");
    assert_eq!(std::mem::size_of::<TreeValue>(), 12);
}
