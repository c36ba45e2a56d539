//! The same script through every way in: MCP over HTTP and stdio, REST, and the
//! command line.

use serde_json::{Value, json};

use super::upstream::{Offer, Reply, Upstream, structured, text};
use super::world::{World, server};
use crate::harness::Project;

const SCRIPT: &str = "
    print('on the way')
    local a, b = far.double({ n = 1 }), far.double({ n = 2 })
    return { a = a:await().n, b = b:await().n, local_ = sdk.tools.hello({ who = 'you' }) }";

const HELLO: &str = r#"
tool = {
    name = "hello",
    description = "Say hello",
    parameters = { { name = "who", type = "string", required = true } },
}
function tool.execute(params) return "hello " .. params.who end
"#;

const EXTENSION: &str = r#"
def shout(params):
    return params["text"].upper()

def describe_extension():
    return Extension(
        name = "loud",
        version = "1.0.0",
        description = "Loud",
        tools = [Tool(
            name = "shout",
            description = "Shout",
            parameters = [ToolParameter(name = "text", param_type = "string", required = True)],
            handler = shout,
        )],
    )
"#;

fn expected() -> Value {
    json!({"a": 2, "b": 4, "local_": "hello you"})
}

fn upstream() -> Upstream {
    Upstream::start(vec![
        Offer::new("double", json!({"n": {"type": "integer"}}), |args| {
            Reply::Now(structured(json!({"n": args["n"].as_i64().unwrap() * 2})))
        }),
        Offer::of("echo", text("here")),
    ])
}

fn project(upstream: &Upstream) -> Project {
    let project = Project::new(&[
        ("tools/hello.luau", HELLO),
        ("extensions/loud.star", EXTENSION),
        ("script.luau", SCRIPT),
    ]);
    project.write("moonlark.toml", &server("far", upstream, ""));
    project
}

#[test]
fn over_mcp_and_rest() {
    let upstream = upstream();
    let config = "";
    let world = World::of(project(&upstream), config, &[("far", &upstream)]);
    assert_eq!(world.value(SCRIPT), expected());
    let (status, answer) = world.server.post("execute", &json!({ "script": SCRIPT }));
    assert_eq!(status, 200, "{answer}");
    // The value, and what is told about the run.
    let result = &answer["result"];
    let value = if result.get("result").is_some() { &result["result"] } else { result };
    assert_eq!(*value, expected(), "{answer}");
    let (status, answer) = world.server.post("execute", &json!({"script": "error('no')"}));
    assert!((400..600).contains(&status), "{status} {answer}");
    assert_eq!(answer["error"]["code"], "tool_error", "{answer}");
    let (status, answer) = world.server.post("execute", &json!({"script": "return 1 +"}));
    assert!((400..600).contains(&status), "{status} {answer}");
    let (status, answer) = world.server.post("search_docs", &json!({"query": "double"}));
    assert_eq!(status, 200, "{answer}");
    assert!(answer.to_string().contains("sdk.far.double("), "{answer}");
}

#[test]
fn over_stdio() {
    let upstream = upstream();
    let project = project(&upstream);
    let mut client = project.stdio();
    let params = json!({"name": "execute", "arguments": {"script": SCRIPT}});
    let answer = client.request("tools/call", params);
    assert_eq!(answer["result"]["structuredContent"], expected(), "{answer}");
    // What it prints is not on our standard output, but in the answer.
    assert!(answer["result"].to_string().contains("on the way"), "{answer}");
    assert_eq!(client.close(), 0);
}

#[test]
fn from_the_command_line() {
    let upstream = upstream();
    let project = project(&upstream);
    let param = format!("script={SCRIPT}");
    let called = project.run(&["call", "execute", "--param", &param]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&called.stdout), text(&called.stderr));
    assert!(called.status.success(), "{out}{err}");
    assert!(out.contains("hello you"), "{out}{err}");
    let ran = project.run(&["run", "script.luau"]);
    let (out, err) = (text(&ran.stdout), text(&ran.stderr));
    assert!(ran.status.success(), "{out}{err}");
    let value: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    assert_eq!(value, expected());
    assert!(err.contains("on the way"), "{err}");
}

#[test]
fn everything_in_the_catalog_is_in_reach() {
    let upstream = upstream();
    let world = World::of(project(&upstream), "", &[("far", &upstream)]);
    let script = "return {
        sdk.tools.hello({ who = 'a' }), tools.hello({ who = 'b' }):await(),
        sdk.loud.shout({ text = 'c' }), loud.shout({ text = 'd' }):await(),
        sdk.far.echo(), far.echo():await(),
    }";
    assert_eq!(world.value(script), json!(["hello a", "hello b", "C", "D", "here", "here"]));
    // Arguments are held to the schema, whoever made the tool.
    for call in ["sdk.tools.hello({})", "sdk.loud.shout({})", "sdk.tools.hello({ who = 5 })"] {
        let script = format!("local call = function(f, args) return f(args) end return {call}");
        let (Ok(answer) | Err(answer)) = world.run(&script).0;
        assert_eq!(answer["isError"], true, "{call}: {answer}");
    }
}

#[test]
fn a_tool_script_has_the_sdk_too_and_needs_a_grant() {
    let upstream = upstream();
    let chain = r#"
tool = { name = "chain", description = "Chain", parameters = {} }
function tool.execute(params, context)
    return { said = sdk.far.echo(), twice = sdk.far.double({ n = 4 }).n }
end
"#;
    for (allow, works) in [("'tool:far.*'", true), ("", false)] {
        let config =
            format!("[tools.script.chain]\npath = 'tools/chain.luau'\nallow = [{allow}]\n");
        let project = Project::new(&[("tools/chain.luau", chain)]);
        let world = World::of(project, &config, &[("far", &upstream)]);
        let (status, answer) = world.server.post("chain", &json!({}));
        if works {
            assert_eq!(answer["result"], json!({"said": "here", "twice": 8}));
        } else {
            assert_eq!(answer["error"]["code"], "denied", "{status} {answer}");
        }
    }
}
