//! When agents are offered the tools of the knowledge base, and what these say.

use serde_json::{Value, json};

use super::{HANDBOOK, HANDBOOK_CONFIG, handbook, run};
use crate::harness::{Project, StdioClient};

const ECHO: (&str, &str) = (
    "tools/echo.lua",
    "tool = { name = 'echo', description = '', parameters = {}, execute = function() return {} end }",
);

/// The tools that a client is shown, with what they say.
fn listed(client: &mut StdioClient) -> Vec<(String, String)> {
    let answer = client.request("tools/list", json!({}));
    let tools = answer["result"]["tools"].as_array().unwrap();
    let text = |tool: &Value, key: &str| tool[key].as_str().unwrap_or_default().to_owned();
    tools.iter().map(|tool| (text(tool, "name"), text(tool, "description"))).collect()
}

#[test]
fn tools_of_the_knowledge_base_are_offered_where_there_is_one() {
    let mut files = HANDBOOK.to_vec();
    files.push(ECHO);
    let project = Project::new(&files);
    let mut client = project.stdio();
    client.send_raw(
        b"{\"jsonrpc\":\"2.0\",\"id\":100,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"clientInfo\":{\"name\":\"suite\",\"version\":\"1\"}}}\n\
          {\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n",
    );
    client.answer(100);
    let names = |client: &mut StdioClient| -> Vec<String> {
        listed(client).into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names(&mut client), ["echo"]);
    // Who calls one all the same is told how to begin.
    let call = json!({"name": "search", "arguments": {"query": "x"}});
    let answer = client.request("tools/call", call);
    let said = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(said.contains("there is no knowledge base yet"), "{answer}");
    assert!(said.contains("[connectors.filesystem.docs]"), "{answer}");
    project.write("moonlark.toml", HANDBOOK_CONFIG);
    while client.message()["method"] != json!("notifications/tools/list_changed") {}
    assert_eq!(names(&mut client), ["search", "get_document", "list_sources", "echo"]);
}

#[test]
fn search_says_what_there_is_to_find() {
    let oncall = "connector = { name = 'oncall', description = 'Who is on call,\\n week by week' }\nfunction connector.scan() return {} end";
    let project = handbook(&[("connectors/oncall.luau", oncall)]);
    let mut client = project.stdio();
    let (_, said) = listed(&mut client).into_iter().find(|(name, _)| name == "search").unwrap();
    assert_eq!(
        said,
        "Search the knowledge base: handbook (files in handbook), oncall (Who is on call, week by week)"
    );
}

#[test]
fn a_search_says_which_sources_were_never_synced() {
    let project = handbook(&[]);
    let notes = |args: &[&str]| super::run_json(&project, args)["result"]["notes"].clone();
    let said = json!(["handbook has never been synced: `moonlark sync handbook` reads it"]);
    assert_eq!(notes(&["search", "release"]), said);
    run(&project, &["sync", "--quiet"]);
    assert_eq!(notes(&["search", "release"]), Value::Null);
}

#[test]
fn a_misspelt_source_that_was_never_synced_is_suggested() {
    let project = handbook(&[("drafts/new.md", "# New\n\nThe release.\n")]);
    run(&project, &["sync", "--quiet"]);
    let drafts = "\n[connectors.filesystem.drafts]\nroot = \"drafts\"\n";
    project.write("moonlark.toml", &format!("{}{drafts}", super::HANDBOOK_CONFIG));
    let notes = |source: &str| {
        let args = ["search", "release", "--source", source];
        super::run_json(&project, &args)["result"]["notes"].clone()
    };
    let near = "no document is from a source named draft; did you mean drafts?";
    assert_eq!(notes("draft"), json!([near]));
    let never = "drafts has never been synced: `moonlark sync drafts` reads it";
    assert_eq!(notes("drafts"), json!([never]));
}

#[test]
fn a_long_document_is_read_in_parts() {
    let page = format!("# Long\n\n{}\n\n## Rolling back\n\nUndo it.\n", "word ".repeat(400));
    let project = handbook(&[("handbook/long.md", &page)]);
    run(&project, &["sync", "--quiet"]);
    let server = project.serve();
    let ask = |tool: &str, args: Value| server.post(tool, &args);
    let (_, found) = ask("search", json!({"query": "rolling back long", "limit": 5}));
    let hits = found["result"]["results"].as_array().unwrap();
    let id = hits.iter().find(|it| it["source_id"] == "long.md").unwrap()["id"].clone();
    let (_, part) = ask("get_document", json!({"id": id, "limit": 6}));
    let part = &part["result"];
    assert_eq!((&part["body"], &part["offset"]), (&json!("# Long"), &json!(0)), "{part}");
    let length = part["length"].as_u64().unwrap();
    let rest = format!("{} more characters: ask again with offset 6", length - 6);
    assert_eq!((&part["rest"], &part["chunks"]), (&json!(rest), &json!([])), "{part}");
    let (_, section) = ask("get", json!({"id": id, "section": "Long > Rolling back"}));
    assert_eq!(section["result"]["body"].as_str().unwrap().trim(), "## Rolling back\n\nUndo it.");
    let (status, problem) = ask("get", json!({"id": id, "section": "Roling back"}));
    assert_eq!((status, &problem["error"]["hint"]), (400, &json!("did you mean Rolling back?")));
    // By the command line, and from a script.
    let id = id.as_str().unwrap();
    let printed = run(&project, &["get", id, "--section", "rolling back"]);
    assert_eq!(printed, "## Rolling back\n\nUndo it.\n");
    let script =
        format!("return #sdk.knowledge.get({{ id = {id:?}, offset = 1, limit = 5 }}).body");
    let (_, answer) = ask("execute", json!({"script": script}));
    assert_eq!(answer["result"], json!(5), "{answer}");
}

#[test]
fn agents_search_documents_by_the_tool_that_finds_functions() {
    let project = handbook(&[ECHO]);
    run(&project, &["sync", "--quiet"]);
    let server = project.serve();
    for source in ["knowledge", "handbook"] {
        let args = json!({"query": "how do I undo a release", "source": source, "limit": 1});
        let (status, answer) = server.post("search_docs", &args);
        let text = answer["result"].as_str().unwrap_or_default();
        assert_eq!(status, 200, "{answer}");
        assert!(text.starts_with("Deploys (id "), "{text}");
        assert!(
            text.contains("\n  handbook · deploys.md · ") && text.contains("**undo**"),
            "{text}"
        );
    }
    let args = json!({"query": "x", "source": "handbok"});
    let (status, answer) = server.post("search_docs", &args);
    assert_eq!((status, &answer["error"]["hint"]), (400, &json!("did you mean handbook?")));
}
