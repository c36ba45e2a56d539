use serde_json::json;

use super::*;
use crate::edit_check::{is_same_json, put_json};

const PATH: [&str; 2] = ["m", "x"];

fn entry() -> Json {
    json!({"cmd": "/bin/c", "args": ["d", "--e"], "on": true})
}

fn check_put(text: &str, expected: &str) -> String {
    let new = put_value(text, &PATH, &entry()).unwrap_or_else(|fault| panic!("{text}\n{fault:?}"));
    assert_eq!(new, expected);
    assert_eq!(put_value(&new, &PATH, &entry()).unwrap(), new, "a second time changes nothing");
    new
}

/// Putting it in and taking it out again leaves what was there.
fn check(text: &str, expected: &str) {
    let new = check_put(text, expected);
    assert_eq!(remove_value(&new, &PATH).unwrap(), text);
}

#[test]
fn a_new_member_goes_in_as_the_text_is_laid_out() {
    check(
        "# mine\nm:\n  a:\n    b: 1 # one\n\nz: 2\n",
        "# mine\nm:\n  a:\n    b: 1 # one\n  x:\n    cmd: /bin/c\n    args:\n      - d\n      - \"--e\"\n    \"on\": true\n\nz: 2\n",
    );
    check(
        "m:\n    a: 1\n    # about a\n# about z\nz: 2\n",
        "m:\n    a: 1\n    # about a\n    x:\n        cmd: /bin/c\n        args:\n            - d\n            - \"--e\"\n        \"on\": true\n# about z\nz: 2\n",
    );
    check(
        "m:\r\n  a: 1\r\n",
        "m:\r\n  a: 1\r\n  x:\r\n    cmd: /bin/c\r\n    args:\r\n      - d\r\n      - \"--e\"\r\n    \"on\": true\r\n",
    );
    check("m: {a: 1}\n", "m: {a: 1, x: {cmd: /bin/c, args: [d, \"--e\"], \"on\": true}}\n");
    // A list of servers, each with its name.
    let item = json!({"name": "x", "cmd": "c"});
    let text = "m:\n  - name: a\n    b: c\n\n  # two\n  - name: d\nz: 1\n";
    let new = put_value(text, &PATH, &item).unwrap();
    assert_eq!(new, text.replace("d\nz", "d\n  - name: x\n    cmd: c\nz"));
    assert_eq!(remove_value(&new, &PATH).unwrap(), text);
}

#[test]
fn mappings_on_the_way_are_made() {
    let whole =
        "m:\n  x:\n    cmd: /bin/c\n    args:\n      - d\n      - \"--e\"\n    \"on\": true\n";
    check_put("", whole);
    check_put("# mine", &format!("# mine\n{whole}"));
    check_put("a: 1", &format!("a: 1\n{whole}"));
    check_put("m:\n", whole);
    check_put("m: # mine\na: 1\n", &format!("{}a: 1\n", whole.replace("m:\n", "m: # mine\n")));
    check_put("m: {}\n", whole);
    check_put("m: {} # mine\n", &whole.replace("m:\n", "m: # mine\n"));
    check_put("m: null\nz: 1\n", &format!("{whole}z: 1\n"));
    assert_eq!(put_value("a: {m: {}}\n", &["a", "m", "x"], &json!(1)).unwrap(), "a: {m: {x: 1}}\n");
    assert_eq!(
        put_value("m: []\n", &["m"], &json!([{"name": "x", "on": 1}])).unwrap(),
        "m:\n  - name: x\n    \"on\": 1\n"
    );
    check_put("---\na: 1\n", &format!("---\na: 1\n{whole}"));
}

#[test]
fn a_value_that_is_there_is_replaced_where_it_is() {
    for (text, key, value, expected) in [
        ("m:\n  x:\n    cmd: a # b\n", "cmd", json!("c"), "m:\n  x:\n    cmd: c # b\n"),
        (
            "m:\n  x:\n    args:\n    - a\n    - b\n    z: 1\n",
            "args",
            json!(["c"]),
            "m:\n  x:\n    args:\n      - c\n    z: 1\n",
        ),
        ("m:\n  x:\n    args: [a]\n", "args", json!(["c", "d"]), "m:\n  x:\n    args: [c, d]\n"),
        (
            "m:\n  - name: x\n    cmd: 'a'\n",
            "cmd",
            json!("b c"),
            "m:\n  - name: x\n    cmd: \"b c\"\n",
        ),
        (
            "m:\n  x:\n    cmd: >-\n      a\n      b\n    z: 1\n",
            "cmd",
            json!("c"),
            "m:\n  x:\n    cmd: c\n    z: 1\n",
        ),
    ] {
        let new = put_value(text, &["m", "x", key], &value).unwrap();
        assert_eq!(new, expected);
    }
}

#[test]
fn the_last_one_leaves_an_empty_mapping_or_list() {
    for (text, expected) in [
        ("m:\n  x:\n    a: 1\nz: 1\n", "m: {}\nz: 1\n"),
        ("m: # mine\n  x:\n    a: 1\n", "m: {} # mine\n"),
        ("m:\n- name: x\n  a: 1\nz: 1\n", "m: []\nz: 1\n"),
        ("m: {x: {a: 1}} # c\n", "m: {} # c\n"),
        ("m:\n  y: 1\n", "m:\n  y: 1\n"),
        ("", ""),
    ] {
        assert_eq!(remove_value(text, &PATH).unwrap(), expected);
    }
    assert_eq!(remove_value("# c\nm:\n  x: 1\n", &["m"]).unwrap(), "# c\n");
}

#[test]
fn what_was_there_before_comes_back_as_it_was_written() {
    let copy = "m:\n  x:\n    cmd: 'a' # mine\n    b: {c: d}\n";
    let now = "# new\nm:\n  x:\n    cmd: b\n    args: []\nz: 1\n";
    assert_eq!(restore_value(now, &PATH, copy).unwrap(), format!("# new\n{copy}z: 1\n"));
    let deeper = "m:\n    x:\n        cmd: b\n";
    assert_eq!(
        restore_value(deeper, &PATH, copy).unwrap(),
        "m:\n    x:\n        cmd: a\n        b:\n            c: d\n"
    );
}

#[test]
fn what_cannot_be_changed_alone_is_refused() {
    let base = "base: &b\n  y: 1\nm: *b\n";
    let fault = put_value(base, &PATH, &entry()).unwrap_err();
    assert_eq!(fault.message, "m should be a mapping here");
    // The anchor would change with it.
    let shared = "m: &b\n  y: 1\nz: *b\n";
    let fault = put_value(shared, &PATH, &entry()).unwrap_err();
    assert!(fault.is_about_edit, "{fault:?}");
    for (text, message) in [
        ("[]\n", "the whole file should be a mapping here"),
        ("text\n", "the whole file should be a mapping here"),
        ("m: text\n", "m should be a mapping here"),
    ] {
        let fault = put_value(text, &PATH, &entry()).unwrap_err();
        assert_eq!(fault.message, message, "{text}");
    }
}

#[test]
fn no_layout_is_broken_and_no_comment_lost() {
    let heads = ["", "# f\n", "---\n", "a: 1\n\n", "a: |\n  t\n\n"];
    let opens = ["m:\n", "m: # o\n", "m:\n\n  # o\n", "\"m\":\n"];
    let firsts = [
        "",
        "  b: 1\n",
        "  b: 1 # b\n",
        "  b:\n    c: [1,\n      2]\n",
        "  b: |\n    t\n  # end\n",
        "  b: {}\n\n",
    ];
    let tails = ["", "z: 1\n", "# z\nz: 1\n", "\n\n# end", "\n# z\nz:\n  - 1\n"];
    for head in heads {
        for open in opens {
            for first in firsts {
                for tail in tails {
                    let text = format!("{head}{open}{first}{tail}");
                    let json = |text: &str| parse(text).unwrap().unwrap().to_json();
                    let new = put_value(&text, &PATH, &entry())
                        .unwrap_or_else(|it| panic!("{text}\n{it:?}"));
                    let mut expected = json(&text);
                    put_json(&mut expected, &PATH, &entry());
                    assert_eq!(json(&new), expected, "{text}\n{new}");
                    let back =
                        remove_value(&new, &PATH).unwrap_or_else(|it| panic!("{new}\n{it:?}"));
                    assert!(is_same_json(&json(&back), &json(&text)), "{text}\n{new}\n{back}");
                    for line in text.lines().filter(|line| line.contains('#')) {
                        let comment = &line[line.find('#').unwrap()..];
                        assert!(
                            new.contains(comment) && back.contains(comment),
                            "{text}\n{new}\n{back}"
                        );
                    }
                }
            }
        }
    }
}
