//! One table of questions, asked in every way there is: the same answers.

use serde_json::{Value, json};

use super::{HANDBOOK_CONFIG, handbook, names, run, run_json};
use crate::harness::Server;

/// Hands over what `context` gives, and what `sdk` does.
const LUAU: &str = r#"
tool = { name = "luau", description = "", parameters = { { name = "options", type = "object" } } }
function tool.execute(params, context)
    local options = params.options
    local query = options.query
    options.query = nil
    return { results = context.search(query, options) }
end
"#;

const STARLARK: &str = r#"
def ask(params, context):
    return {"results": context.search(**params["options"])}

def describe_extension():
    return Extension(name = "ask", tools = [Tool(
        name = "starlark",
        parameters = [ToolParameter(name = "options", param_type = "object")],
        handler = ask,
    )])
"#;

/// What is asked, and the documents that must come, in this order.
fn questions() -> Vec<(Value, Vec<&'static str>)> {
    vec![
        (json!({"query": "how do I undo a release", "limit": 1}), vec!["deploys.md"]),
        (json!({"query": "thirty days", "mode": "keyword"}), vec!["holidays.md"]),
        (json!({"query": "vacation", "mode": "semantic", "limit": 1}), vec!["holidays.md"]),
        (json!({"query": "auth token", "mode": "hybrid", "limit": 1}), vec!["tokens.md"]),
        (json!({"query": "Bohnen", "mode": "keyword"}), vec!["kaffee.md"]),
        (json!({"query": "release", "mode": "keyword", "source": "handbook"}), vec!["deploys.md"]),
        (
            json!({"query": "release", "mode": "keyword", "source": "filesystem"}),
            vec!["deploys.md"],
        ),
        (
            json!({"query": "release", "mode": "keyword", "source": ["nobody", "handbook"]}),
            vec!["deploys.md"],
        ),
        (json!({"query": "release", "since": "2999-01-01"}), vec![]),
        (json!({"query": "release", "until": "1999-01-01"}), vec![]),
        (json!({"query": "release", "mode": "keyword", "since": "1999-01-01"}), vec!["deploys.md"]),
        (json!({"query": "release", "metadata": {"extension": "txt"}}), vec![]),
        (
            json!({"query": "release", "mode": "keyword", "metadata": {"extension": ["txt", "md"]}}),
            vec!["deploys.md"],
        ),
    ]
}

#[test]
fn every_way_in_gives_the_same_answers() {
    let project = handbook(&[("tools/luau.lua", LUAU), ("extensions/ask.star", STARLARK)]);
    run(&project, &["sync", "--quiet"]);
    let server = project.serve();
    let mut stdio = project.stdio();
    for (args, expected) in questions() {
        let rest = over_rest(&server, "search", &args);
        assert_eq!(names(&rest), expected, "{args}");
        let call = json!({"name": "search", "arguments": args});
        let http = server.mcp("tools/call", call.clone());
        let piped = stdio.request("tools/call", call);
        let cli = run_json(&project, &["call", "search", "--args", &args.to_string()]);
        let ways = [
            ("MCP over HTTP", http["result"]["structuredContent"].clone()),
            ("MCP over stdio", piped["result"]["structuredContent"].clone()),
            ("the command line", cli["result"].clone()),
        ];
        for (way, answer) in ways {
            assert_eq!(answer, rest, "{args} over {way}");
        }
        // `context` gives the list itself.
        for tool in ["luau", "starlark"] {
            let answer = over_rest(&server, tool, &json!({"options": args}));
            assert_eq!(answer["results"], rest["results"], "{args} in {tool}");
        }
        let script = format!("return sdk.knowledge.search(json.decode([==[{args}]==]))");
        let answer = over_rest(&server, "execute", &json!({"script": script}));
        assert_eq!(answer, rest, "{args} in an agent's script");
    }
}

fn over_rest(server: &Server, tool: &str, args: &Value) -> Value {
    let (status, answer) = server.post(tool, args);
    assert_eq!(status, 200, "{tool} {args}: {answer}");
    answer["result"].clone()
}

#[test]
fn a_hit_leads_to_its_document_under_every_name() {
    let project = handbook(&[]);
    run(&project, &["sync", "--quiet"]);
    let server = project.serve();
    let found = over_rest(&server, "search", &json!({"query": "undo a release", "limit": 1}));
    let hit = &found["results"][0];
    let expected = json!({
        "id": hit["id"], "score": hit["score"], "title": "Deploys", "snippet": hit["snippet"],
        "source": "handbook", "source_id": "deploys.md",
        "source_url": "https://handbook.example.com/deploys.md",
        "updated_at": hit["updated_at"], "heading": hit["heading"], "chunk": hit["chunk"],
        "metadata": {"folder": "", "extension": "md"},
    });
    let mut plain = hit.clone();
    plain.as_object_mut().unwrap().remove("also");
    assert_eq!(plain, expected);
    let score = hit["score"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&score), "{hit}");
    let snippet = hit["snippet"].as_str().unwrap();
    assert!(snippet.contains("**undo**") && snippet.len() < 400, "{snippet}");

    let id = json!({"id": hit["id"]});
    let document = over_rest(&server, "get_document", &id);
    assert_eq!(document, over_rest(&server, "get", &id));
    assert_eq!(document["title"], "Deploys");
    assert!(document["body"].as_str().unwrap().contains("ship undo"), "{document}");
    assert_eq!(document["chunks"][0]["index"], 0, "{document}");
    let printed = run(&project, &["get", hit["id"].as_str().unwrap()]);
    assert_eq!(printed.trim_end(), document["body"].as_str().unwrap().trim_end());
    let (status, problem) = server.post("get", &json!({"id": "nobody"}));
    assert_eq!((status, &problem["error"]["code"]), (404, &json!("not_found")), "{problem}");

    let sources = over_rest(&server, "list_sources", &json!({}));
    assert_eq!(sources, over_rest(&server, "sources", &json!({})));
    let source = &sources["sources"][0];
    let expected = json!({
        "name": "handbook", "kind": "filesystem", "documents": 4, "chunks": source["chunks"],
        "last_sync": source["last_sync"], "configured": true, "healthy": true,
        "languages": {"de": 1},
        "note": "1 in German: found by their words, hardly by meaning, since the built-in model has read English only",
    });
    assert_eq!(*source, expected);
    assert_eq!(server.get("/tools/sources").json()["result"], sources, "without a body");
}

#[test]
fn scores_explain_themselves_when_asked() {
    let project = handbook(&[]);
    run(&project, &["sync", "--quiet"]);
    let answer = run_json(&project, &["search", "undo a release", "--explain", "--limit", "1"]);
    let explain = &answer["result"]["results"][0]["explain"];
    assert!(explain["keyword"].is_number() && explain["semantic"].is_number(), "{answer}");
    assert!(!explain["terms"].as_array().unwrap().is_empty(), "{answer}");
    let shown = run(&project, &["search", "undo a release", "--explain", "--limit", "1"]);
    for part in ["1. Deploys  0.", "handbook · deploys.md · ", "**undo**", "keyword 0.", "terms: "]
    {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
}

#[test]
fn the_built_ins_say_what_to_do_until_there_is_something_to_find() {
    let project = crate::harness::Project::new(&[("tools/luau.lua", LUAU)]);
    let output = project.run(&["search", "anything"]);
    let said = super::said(&output);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        said,
        "error[unavailable]: search: there is no knowledge base yet\nhint: name a source in moonlark.toml, such as [connectors.filesystem.docs] with root = \"docs\", then run `moonlark sync`\n"
    );
    // Configured and not synced: nothing is found, and nothing is wrong.
    project.write("docs/a.md", "# A\n\nAnything at all.\n");
    project.write("moonlark.toml", &HANDBOOK_CONFIG.replace("handbook", "docs"));
    let found = run_json(&project, &["search", "anything"]);
    assert_eq!(found["result"]["results"], json!([]), "{found}");
    let sources = run(&project, &["sources"]);
    assert!(sources.contains("docs: filesystem, never synced"), "{sources}");
    run(&project, &["sync", "--quiet"]);
    assert_eq!(super::found(&project, "anything"), ["a.md"]);
    // What was synced can be searched without the source being configured.
    project.write("moonlark.toml", "");
    assert_eq!(super::found(&project, "anything"), ["a.md"]);
    let sources = run(&project, &["sources"]);
    assert!(sources.contains(", no longer configured"), "{sources}");
}

#[test]
fn in_code_mode_agents_find_the_knowledge_base_only_where_there_is_one() {
    let shop = (
        "shop.yaml",
        "openapi: 3.0.0\ninfo: {title: t, version: '1'}\nservers: [{url: 'http://127.0.0.1:1'}]\npaths: {/things: {get: {operationId: things, responses: {'200': {description: d}}}}}\n",
    );
    let api = "[apis.shop]\nspec = \"shop.yaml\"\n";
    let config = format!("{api}{HANDBOOK_CONFIG}");
    let with = handbook(&[shop, ("moonlark.toml", &config)]);
    let without = handbook(&[shop, ("moonlark.toml", api)]);
    let shown = |project: &crate::harness::Project| {
        let server = project.serve();
        let list = server.mcp("tools/list", json!({}));
        let tools = list["result"]["tools"].as_array().unwrap().clone();
        let names: Vec<String> =
            tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
        let docs = server.post("search_docs", &json!({"query": "search documents"})).1;
        (names.contains(&"search".to_owned()), docs.to_string().contains("knowledge.search"))
    };
    assert_eq!(shown(&with), (true, true));
    assert_eq!(shown(&without), (false, false));
}
