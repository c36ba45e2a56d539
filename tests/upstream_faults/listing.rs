//! Lists of tools that are too long, never end, or are none; and tools that
//! should not be in any.

use serde_json::json;

use super::world::{Way, World, not_there};

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
    let world = World::new(Way::Stdio, mode, "connect_timeout = 2");
    let grown = world.grown(|world| {
        let source = world.wait_for_state("failed");
        assert_eq!(world.told(&source["error"]), expected, "{mode}");
        assert_eq!(world.call("echo"), not_there(expected), "{mode}");
    });
    assert!(grown < 200_000, "{mode}: {grown} KB more");
    world.end();
}

#[test]
fn a_list_that_is_refused_says_so() {
    check_failing("list_fails", "unavailable; upstream 'bad': tools/list: the list is locked; ");
}

#[test]
fn a_list_that_never_comes_is_given_up() {
    check_failing("list_silent", "timeout; upstream 'bad': it did not list its tools in time; ");
}

#[test]
fn a_list_that_is_none_says_so() {
    check_failing(
        "list_text",
        "unavailable; upstream 'bad': tools/list was answered without tools; ",
    );
}

#[test]
fn a_list_of_a_hundred_megabytes_is_refused_and_never_held() {
    check_failing("huge_list", "timeout; upstream 'bad': it did not list its tools in time; ");
}

/// A list that is used as far as it goes: how many there are, and what
/// `moonlark doctor` says.
fn check_cut(mode: &str, tools: usize) {
    let world = World::stdio(mode);
    let source = world.wait_for_state("ready");
    assert_eq!(source["tools"], tools, "{mode}");
    let complaint =
        format!("error[bad_script]: tools/list never ends: only the first {tools} are used");
    assert_eq!(world.complaints(), [complaint], "{mode}");
    world.end();
}

#[test]
fn pages_that_never_end_are_read_up_to_a_bound() {
    check_cut("endless_pages", 50_000);
}

#[test]
fn empty_pages_that_never_end_are_read_up_to_a_bound() {
    check_cut("empty_pages", 0);
}

#[test]
fn a_cursor_that_leads_to_itself_is_noticed() {
    let world = World::stdio("same_cursor");
    assert_eq!(world.wait_for_state("ready")["tools"], 1);
    let never = "error[bad_script]: tools/list never ends: only the first 2 are used";
    let complaints = world.complaints();
    assert!(complaints.iter().any(|complaint| complaint == never), "{complaints:?}");
    assert!(complaints.iter().any(|it| it.contains("lists tool echo twice")), "{complaints:?}");
    world.end();
}

#[test]
fn what_a_server_declares_and_does_not_have_is_as_good_as_empty() {
    let world = World::stdio("lies");
    assert_eq!(world.call("echo"), Ok(json!("echo")));
    world.wait_for_state("ready");
    world.end();
}

/// What is left of them: as scripts call them, and as agents are shown them.
const ODD_TOOLS: &[(&str, &str)] = &[
    ("first", "first"),
    ("refers_to_itself", "refers_to_itself"),
    ("cycle", "cycle"),
    ("tree", "tree"),
    ("remote", "remote"),
    ("remote_whole", "remote_whole"),
    ("remote_dialect", "remote_dialect"),
    ("local_file", "local_file"),
    ("dangling", "dangling"),
    ("input_missing", "input_missing"),
    ("input_null", "input_null"),
    ("input_true", "input_true"),
    ("input_text", "input_text"),
    ("input_untyped", "input_untyped"),
    ("input_bad_pattern", "input_bad_pattern"),
    ("input_bad_properties", "input_bad_properties"),
    ("output_true", "output_true"),
    ("output_null", "output_null"),
    ("output_text", "output_text"),
    ("output_unknown_type", "output_unknown_type"),
    ("twin", "twin"),
    ("with space", "with_space"),
    ("a/b", "a_b_ccb75d4f"),
    ("a.b", "a_b_1cab6b57"),
    ("../up", "___up"),
    ("käse🌙", "k_se_"),
    ("new\nline", "new_line"),
    ("nul\0byte", "nul_byte"),
    ("LONG", "LONG"),
    ("__index", "__index"),
    ("end", "end"),
    ("description_null", "description_null"),
    ("description_number", "description_number"),
    ("annotations_text", "annotations_text"),
    ("last", "last"),
];

/// What is wrong with them, up to the words of others.
const COMPLAINTS: &[&str] = &[
    "an entry of tools/list is left out: it is no object, or nests too deep",
    "tool remote of 'bad': its arguments are not checked",
    "tool remote_whole of 'bad': its arguments are not checked",
    "tool remote_dialect of 'bad': its arguments are not checked",
    "tool local_file of 'bad': its arguments are not checked",
    "tool dangling of 'bad': its arguments are not checked",
    "tool input_array of 'bad': left out: its schema does not describe an object of arguments",
    "tool input_unknown_type of 'bad': left out: its schema does not describe an object of arguments",
    "tool input_bad_pattern of 'bad': its arguments are not checked",
    "tool input_bad_properties of 'bad': its arguments are not checked",
    "a tool without a name is left out",
    "upstream 'bad' lists tool twin twice",
    "error[bad_config]: tools a/b, a.b of 'bad' are all sdk.bad.a_b in scripts: that is a/b, and a.b gets a number behind it",
];

#[test]
fn one_odd_tool_does_not_spoil_the_list() {
    let world = World::stdio("odd_tools");
    // Nobody asks the remote address: `end` sees to that.
    assert_eq!(world.call("first"), Ok(json!("first")));
    assert_eq!(world.call("last"), Ok(json!("last")));
    let short = |name: &String| if name.starts_with("xxx") { "LONG".into() } else { name.clone() };
    let tools: Vec<String> = world.tools().iter().map(short).collect();
    let shown: Vec<String> = world.shown().iter().map(short).collect();
    let (expected, agents): (Vec<&str>, Vec<&str>) = ODD_TOOLS.iter().copied().unzip();
    assert_eq!(tools, expected);
    assert_eq!(shown, agents);
    // Agents cannot have names of any length.
    assert!(world.shown().iter().all(|name| "bad__".len() + name.len() <= 49));
    let complaints = world.complaints();
    let complaints = complaints.iter().map(|complaint| {
        let complaint = complaint.strip_prefix("error[bad_script]: ").unwrap_or(complaint);
        complaint.split(" checked:").next().unwrap().replace("are not", "are not checked")
    });
    assert_eq!(complaints.collect::<Vec<_>>(), COMPLAINTS);
    world.end();
}

#[test]
fn tools_with_odd_schemas_are_called_or_refused_but_never_hang() {
    let world = World::stdio("odd_tools");
    for (tool, args, expected) in [
        ("tree", json!({"node": {"value": 1, "next": {"value": 2}}}), Ok(json!("tree"))),
        (
            "tree",
            json!({"node": {"value": 1, "next": {}}}),
            Err("bad_request; missing required parameter: node.next.value; ".to_owned()),
        ),
        ("input_missing", json!({"anything": 1}), Ok(json!("input_missing"))),
        ("input_null", json!({}), Ok(json!("input_null"))),
        ("input_untyped", json!({"a": "text"}), Ok(json!("input_untyped"))),
        ("output_true", json!({}), Ok(json!("output_true"))),
    ] {
        assert_eq!(world.call_with(tool, args), expected, "{tool}");
    }
    // Whatever the rest comes to, it comes to something.
    for tool in world.tools() {
        let outcome = world.call(&tool);
        let impossible = tool == "input_array" && outcome.is_err();
        assert!(outcome.is_ok() || impossible, "{tool:?}: {outcome:?}");
    }
    world.end();
}
