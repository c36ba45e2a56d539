//! Tools with an app, behind the default settings of a server.

use serde_json::json;

use super::source;
use super::tiny::Tiny;
use crate::harness::Project;

#[test]
fn pages_of_apps_keep_their_addresses_and_their_tools_are_listed() {
    let tool =
        |name: &str, meta| json!({"name": name, "inputSchema": {"type": "object"}, "_meta": meta});
    let tools = json!([
        tool("chart", json!({"ui": {"resourceUri": "ui://charts/main"}})),
        tool("old", json!({"ui/resourceUri": "ui://charts/old"})),
        tool("plain", json!({})),
    ]);
    let resources = json!([
        {"uri": "ui://charts/main", "name": "main"},
        {"uri": "file:///a", "name": "a"},
    ]);
    let tiny = Tiny::open(tools, resources);
    let config = format!("[mcp_servers.charts]\nurl = {:?}\n", tiny.url());
    let project = Project::new(&[("moonlark.toml", &config)]);
    let server = project.serve();
    source(&server, "charts");
    let listed = server.mcp("tools/list", json!({}));
    let listed = listed["result"]["tools"].as_array().unwrap();
    let find = |name: &str| listed.iter().find(|it| it["name"] == name);
    let chart = find("charts__chart").expect("it is listed");
    assert_eq!(chart["_meta"]["ui"]["resourceUri"], "ui://charts/main");
    assert_eq!(find("charts__old").unwrap()["_meta"]["ui/resourceUri"], "ui://charts/old");
    assert!(find("charts__plain").is_none());
    assert!(find("execute").is_some());
    let resources = server.mcp("resources/list", json!({}));
    let text = resources.to_string();
    assert!(
        text.contains("\"ui://charts/main\"") && text.contains("\"mcp://charts/file:///a\""),
        "{text}"
    );
    // One of them is listed, the other only named by its tool.
    for uri in ["ui://charts/main", "ui://charts/old"] {
        let read = server.mcp("resources/read", json!({"uri": uri}));
        assert_eq!(read["result"]["contents"][0]["uri"], uri, "{read}");
    }
}
