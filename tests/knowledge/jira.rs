//! Both seeds' Jira tools, unchanged, over a knowledge base that was synced from
//! a folder.

use serde_json::json;

use super::{HANDBOOK_CONFIG, handbook, run};
use crate::harness::repo;
use crate::jira;

fn seed(name: &str) -> String {
    std::fs::read_to_string(repo().join("tests/seeds").join(name)).unwrap()
}

#[test]
fn the_designs_ticket_gets_links_to_related_documents() {
    let (port, seen) = jira::start();
    let config = format!(
        "{HANDBOOK_CONFIG}[tools.script.create_jira_ticket]\npath = \"tools/create-jira-ticket.lua\"\nurl = \"http://127.0.0.1:{port}\"\nemail = \"bot@company.com\"\napi_token = \"jira-secret-1\"\nallow = [\"net:127.0.0.1:{port}\"]\n"
    );
    let tool = seed("create-jira-ticket.lua");
    let project = handbook(&[("moonlark.toml", &config), ("tools/create-jira-ticket.lua", &tool)]);
    run(&project, &["sync", "--quiet"]);
    let server = project.serve();
    let args = json!({"title": "Auth token refresh fails", "body": "People are logged out"});
    let (status, answer) = server.post("create_jira_ticket", &args);
    assert_eq!((status, &answer["result"]["ticket_key"]), (200, &json!("ENG-1234")), "{answer}");
    let sent = seen.lock().unwrap()[0]["fields"]["description"].to_string();
    assert!(sent.contains("*Related documentation:*"), "{sent}");
    let links: Vec<&str> = sent.split("- [").skip(1).collect();
    assert!(
        links[0].starts_with("Log-in and tokens](https://handbook.example.com/tokens.md) (score: "),
        "{sent}"
    );
    assert!(links.len() <= 3, "{sent}");
}

#[test]
fn the_guides_ticket_gets_related_context() {
    let (port, seen) = jira::start();
    let config = format!(
        "{HANDBOOK_CONFIG}[tools.script.create_jira_ticket]\npath = \"tools/create-jira-ticket.lua\"\ntimeout = 30\njira_url = \"http://127.0.0.1:{port}\"\njira_project = \"ENG\"\njira_token = \"jira-secret-1\"\nallow = [\"net:127.0.0.1:{port}\"]\n"
    );
    let tool = seed("create-jira-ticket-guide.lua");
    let project = handbook(&[("moonlark.toml", &config), ("tools/create-jira-ticket.lua", &tool)]);
    run(&project, &["sync", "--quiet"]);
    let server = project.serve();
    let args = json!({"title": "Fix auth token refresh", "priority": "High"});
    let (status, answer) = server.post("create_jira_ticket", &args);
    let result = &answer["result"];
    assert_eq!((status, &result["key"]), (200, &json!("ENG-1234")), "{answer}");
    assert!(result["related_docs"].as_u64().unwrap() >= 1, "{answer}");
    let sent = seen.lock().unwrap()[0]["fields"]["description"].as_str().unwrap().to_owned();
    for part in [
        "## Related Context",
        "- **Log-in and tokens** (score: 0.",
        "refresh",
        "[View source](https://handbook.example.com/tokens.md)",
    ] {
        assert!(sent.contains(part), "no {part:?} in {sent}");
    }
    // Without anything synced the ticket is still made, with nothing to add.
    let project = handbook(&[("moonlark.toml", &config), ("tools/create-jira-ticket.lua", &tool)]);
    let (status, answer) = project.serve().post("create_jira_ticket", &args);
    assert_eq!((status, &answer["result"]["related_docs"]), (200, &json!(0)), "{answer}");
}
