//! A tool under another name goes by the same rules, and what is hidden is not there.

use serde_json::json;

use crate::code_mode::upstream::{Offer, Upstream, text};
use crate::harness::Project;

#[test]
fn a_tool_that_a_server_lists_twice_is_there_once() {
    let pay = || Offer::of("pay", text("paid"));
    let upstream = Upstream::start(vec![pay(), pay(), Offer::of("look", text("seen"))]);
    let config = format!(
        "[mcp_servers.u]\nurl = \"{}\"\n[[policy.rules]]\ntools = ['u.pay']\naction = 'deny'\n",
        upstream.url
    );
    let project = Project::new(&[("moonlark.toml", &config)]);
    let server = project.serve();
    server.wait_until("u.look", |status, _| status == 200);
    for name in ["u.pay", "u.pay_2", "u__pay", "u__pay_2"] {
        let (status, answer) = server.post(name, &json!({}));
        assert_eq!(status, 404, "{name}: {answer}");
    }
    let said = String::from_utf8_lossy(&project.run(&["doctor"]).stdout).into_owned();
    assert!(said.contains("upstream 'u' lists tool pay twice"), "{said}");
}

#[test]
fn an_operation_with_the_id_of_another_goes_by_its_rules() {
    let operation = json!({"operationId": "wipe", "responses": {"200": {"description": "done"}}});
    let document = json!({
        "openapi": "3.0.3",
        "info": {"title": "x", "version": "1"},
        "servers": [{"url": "http://127.0.0.1:9"}],
        "paths": {"/a": {"post": operation}, "/b": {"post": operation}},
    });
    let config =
        "[apis.x]\nspec = 'x.json'\n[[policy.rules]]\ntools = ['x.wipe']\naction = 'approve'\n";
    let project = Project::new(&[("moonlark.toml", config), ("x.json", &document.to_string())]);
    let server = project.serve();
    for name in ["x.wipe", "x.wipe_2"] {
        server.wait_until(name, |status, _| status == 202);
    }
    let said = project.run(&["policy", "explain", "x.wipe_2"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("its source calls it wipe: rules for that name hold as well"), "{said}");
    assert!(said.contains("decides: approve"), "{said}");
}

#[test]
fn what_is_hidden_from_agents_is_not_there_over_rest_either() {
    let tool = |name: &str| {
        format!(
            "tool = {{ name = '{name}', description = 'x', annotations = {{ read_only = true }} }}
function tool.execute(params, context) return '{name}' end"
        )
    };
    let calls = "tool = { name = 'front', description = 'x' }
function tool.execute(params, context) return context.call('inner', {}) end";
    let config = "[tools.script.inner]\npath = 'tools/inner.lua'\nexpose = 'hidden'\n\
                  [tools.script.front]\npath = 'tools/front.lua'\nallow = ['tool:inner']\n";
    let project = Project::new(&[
        ("moonlark.toml", config),
        ("tools/inner.lua", &tool("inner")),
        ("tools/front.lua", calls),
    ]);
    let server = project.serve();
    assert!(!server.get("/tools/list").text().contains("inner"));
    assert!(!server.get("/openapi.json").text().contains("inner"));
    assert_eq!(server.post("inner", &json!({})).0, 404);
    assert_eq!(server.get("/tools/inner").status, 404);
    let (_, slip) = server.post("iner", &json!({}));
    assert!(!slip.to_string().contains("inner"), "{slip}");
    let called = server.mcp("tools/call", json!({"name": "inner", "arguments": {}}));
    assert!(!called.to_string().contains("\"text\":\"inner\""), "{called}");
    assert_eq!(server.post("front", &json!({})), (200, json!({"result": "inner"})));
    assert!(project.run(&["call", "inner"]).status.success(), "the command line reaches it");
}
