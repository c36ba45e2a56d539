//! How the tools of a source appear: from scripts, as tools of their own, both,
//! whichever is shorter, or not at all.

use serde_json::json;

use super::upstream::{Offer, Upstream, text};
use super::world::{Era, World, server};
use crate::harness::Project;

const CODE_MODE: [&str; 4] = ["execute", "get_function_docs", "list_functions", "search_docs"];

const LOCAL: &str = r#"
tool = { name = "hello", description = "Say hello", parameters = {} }
function tool.execute() return "hello" end
"#;

/// As many tools.
fn upstream(count: usize) -> Upstream {
    let offer = |n: usize| Offer::of(&format!("tool_{n}"), text(&n.to_string()));
    Upstream::start((1..=count).map(offer).collect())
}

fn world(config: &str) -> World {
    World::of(Project::new(&[("tools/hello.luau", LOCAL)]), config, &[])
}

/// Which of the four tools of code mode, and which of `far`, an agent is shown.
fn shown(world: &World) -> (Vec<String>, Vec<String>) {
    // Called by its own name it is there in any case, and waited for.
    let (status, answer) = world.server.post("far.tool_1", &json!({}));
    assert_eq!(status, 200, "{answer}");
    listed(world)
}

/// The same, of what is there now.
fn listed(world: &World) -> (Vec<String>, Vec<String>) {
    let (mut code, mut far) = (Vec::new(), Vec::new());
    for tool in world.tools() {
        if CODE_MODE.contains(&tool.as_str()) {
            code.push(tool);
        } else if tool.starts_with("far__") {
            far.push(tool);
        }
    }
    code.sort();
    (code, far)
}

fn all(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("far__tool_{n}")).collect()
}

#[test]
fn a_server_is_for_scripts_unless_it_says_otherwise() {
    let far = upstream(2);
    for more in ["", "expose = \"code\""] {
        let world = world(&server("far", &far, more));
        assert_eq!(shown(&world), (CODE_MODE.map(str::to_owned).to_vec(), vec![]));
        assert_eq!(world.value("return sdk.far.tool_2()"), json!("2"));
        // The project's own tools stay where they were.
        assert!(world.tools().contains(&"hello".to_owned()));
        assert_eq!(world.value("return sdk.tools.hello()"), json!("hello"));
    }
}

#[test]
fn a_direct_server_needs_no_scripts() {
    let far = upstream(2);
    let world = world(&server("far", &far, "expose = \"direct\""));
    assert_eq!(shown(&world), (vec![], all(2)));
    let answer = world.call(Era::New, "far__tool_2", json!({})).unwrap();
    assert_eq!(answer["content"][0]["text"], "2");
}

#[test]
fn both_are_both() {
    let far = upstream(2);
    let world = world(&server("far", &far, "expose = \"both\""));
    assert_eq!(shown(&world), (CODE_MODE.map(str::to_owned).to_vec(), all(2)));
    assert_eq!(world.value("return sdk.far.tool_1()"), json!("1"));
}

#[test]
fn auto_is_whichever_is_shorter() {
    let few = upstream(2);
    let small = world(&server("far", &few, "expose = \"auto\""));
    assert_eq!(shown(&small), (vec![], all(2)));
    let many = upstream(200);
    let large = world(&server("far", &many, "expose = \"auto\""));
    assert_eq!(shown(&large), (CODE_MODE.map(str::to_owned).to_vec(), vec![]));
    assert_eq!(large.value("return sdk.far.tool_200()"), json!("200"));
}

#[test]
fn hidden_is_hidden_from_scripts_too() {
    let far = upstream(2);
    let near = upstream(1);
    let config = server("far", &far, "expose = \"hidden\"") + &server("near", &near, "");
    let world = world(&config);
    // Not by its own name either, once it is known what there is.
    assert_eq!(world.server.post("far.tool_1", &json!({})).0, 404);
    assert_eq!(listed(&world), (CODE_MODE.map(str::to_owned).to_vec(), vec![]));
    world.run("return sdk.far.tool_1()").problem();
    assert_eq!(world.value("return sdk.near.tool_1()"), json!("1"));
    let listed = world.text("list_functions", json!({}));
    assert!(!listed.contains("far"), "{listed}");
    let found = world.text("search_docs", json!({"query": "tool_1"}));
    assert!(!found.contains("sdk.far"), "{found}");
}

#[test]
fn a_script_tool_may_be_for_scripts_only() {
    let config = "[tools.script.hello]\npath = 'tools/hello.luau'\nexpose = 'code'\n";
    let world = world(config);
    let tools = world.tools();
    assert!(!tools.contains(&"hello".to_owned()), "{tools:?}");
    assert!(CODE_MODE.iter().all(|name| tools.iter().any(|it| it == name)), "{tools:?}");
    assert_eq!(world.value("return sdk.tools.hello()"), json!("hello"));
    assert_eq!(world.value("return tools.hello():await()"), json!("hello"));
}

#[test]
fn without_anything_for_scripts_there_is_no_code_mode() {
    let world = world("");
    let tools = world.tools();
    assert!(!tools.iter().any(|tool| CODE_MODE.contains(&tool.as_str())), "{tools:?}");
}

#[test]
fn names_that_are_taken_are_reached_by_the_sdk() {
    let far = upstream(1);
    let config: String =
        ["json", "string", "result", "print"].map(|name| server(name, &far, "")).concat();
    let world = world(&config);
    for name in ["json", "string", "result", "print"] {
        let script = format!("return sdk.{name}.tool_1()");
        assert_eq!(world.value(&script), json!("1"), "{name}");
    }
    let script = "return { json.encode({ a = {} }), string.upper('a'), type(print), type(result) }";
    let value = world.value(script);
    assert_eq!(value, json!(["{\"a\":{}}", "A", "function", "function"]));
}

#[test]
fn a_script_waits_for_servers_that_still_start_and_says_which_are_not_there() {
    let late = upstream(1);
    let world = world(
        &(server("far", &late, "")
            + "[mcp_servers.gone]\nurl = \"http://127.0.0.1:1/mcp\"\nconnect_timeout = 1\n"),
    );
    assert_eq!(world.value("return sdk.far.tool_1()"), json!("1"));
    let ran = world.run("return sdk.gone.anything()");
    let (Ok(answer) | Err(answer)) = &ran.0;
    assert_eq!(answer["isError"], true, "{answer}");
    assert!(answer.to_string().contains("gone"), "{answer}");
}
