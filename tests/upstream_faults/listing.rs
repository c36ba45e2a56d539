//! Lists of tools that are too long, never end, or are none; and tools that
//! should not be in any.

use serde_json::json;

use super::world::{Way, World, told};

#[test]
fn ten_thousand_tools_on_twenty_pages_are_all_there() {
    let world = World::stdio("many");
    assert_eq!(world.call("tool_09999"), Ok(json!("tool_09999")));
    let tools = world.tools();
    assert_eq!(tools.len(), 10_000);
    assert_eq!((tools[0].as_str(), tools[9_999].as_str()), ("tool_00000", "tool_09999"));
    world.end();
}

/// A list that cannot be had: what a call is told.
fn check_failing(mode: &str, expected: &str) {
    let world = World::new(Way::Stdio, mode, "connect_timeout = 5");
    let grown = world.grown(|world| {
        let source = world.wait_for_state("failed");
        assert_eq!(told(&source["error"]), expected, "{mode}");
        assert_eq!(world.call("echo"), Err(expected.to_owned()), "{mode}");
    });
    assert!(grown < 200_000, "{mode}: {grown} KB more");
    world.end();
}

#[test]
fn a_list_that_is_refused_says_so() {
    check_failing("list_fails", "?");
}

#[test]
fn a_list_that_never_comes_is_given_up() {
    check_failing("list_silent", "?");
}

#[test]
fn a_list_that_is_none_says_so() {
    check_failing("list_text", "?");
}

#[test]
fn a_list_of_a_hundred_megabytes_is_refused_and_never_held() {
    check_failing("huge_list", "?");
}

#[test]
fn pages_that_never_end_are_read_up_to_a_bound() {
    check_failing("endless_pages", "?");
}

#[test]
fn empty_pages_that_never_end_are_read_up_to_a_bound() {
    check_failing("empty_pages", "?");
}

#[test]
fn a_cursor_that_leads_to_itself_is_noticed() {
    check_failing("same_cursor", "?");
}

#[test]
fn what_a_server_declares_and_does_not_have_is_as_good_as_empty() {
    let world = World::stdio("lies");
    assert_eq!(world.call("echo"), Ok(json!("echo")));
    world.wait_for_state("ready");
    world.end();
}

#[test]
fn one_odd_tool_does_not_spoil_the_list() {
    let world = World::stdio("odd_tools");
    // Nobody asks the remote address: `end` sees to that.
    assert_eq!(world.call("first"), Ok(json!("first")));
    assert_eq!(world.call("last"), Ok(json!("last")));
    assert_eq!(world.tools(), ["?"]);
    world.end();
}

#[test]
fn tools_with_odd_schemas_are_called_or_refused_but_never_hang() {
    let world = World::stdio("odd_tools");
    for (tool, args, expected) in [
        ("tree", json!({"node": {"value": 1, "next": {"value": 2}}}), Ok(json!("tree"))),
        ("tree", json!({"node": {"value": 1, "next": {}}}), Err("?".to_owned())),
        ("input_missing", json!({"anything": 1}), Ok(json!("input_missing"))),
        ("input_null", json!({}), Ok(json!("input_null"))),
        ("input_untyped", json!({"a": "text"}), Ok(json!("input_untyped"))),
        ("output_true", json!({}), Ok(json!("output_true"))),
    ] {
        assert_eq!(world.call_with(tool, args), expected, "{tool}");
    }
    // Whatever the rest comes to, it comes to something, and each name that is
    // listed can be called.
    for tool in world.tools() {
        let _ = world.call_with(&tool.replace('/', "%2F").replace(' ', "%20"), json!({"a": 1}));
    }
    world.end();
}
