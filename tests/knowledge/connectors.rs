//! Connector scripts, from `init` to what can be searched.

use axum::Router;
use axum::extract::{Query, State};
use axum::routing::get;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::{counts, found, run, run_json, said, text, with_word};
use crate::harness::{Project, repo};

fn connector(body: &str) -> String {
    format!(
        "connector = {{ name = 'main', description = 'Things' }}\nfunction connector.scan(config)\n{body}\nend\n"
    )
}

#[test]
fn a_new_connector_works_as_it_is() {
    let project = Project::new(&[]);
    assert_eq!(run(&project, &["connector", "init", "hello"]), "Created connectors/hello.luau\n");
    let tried = run(&project, &["connector", "test", "connectors/hello.luau"]);
    for line in [
        "Testing connector: hello (connectors/hello.luau)",
        "  ✓ Found 2 items in ",
        "      greeting/1: The word hello, 38 characters",
        "  ✓ The scan is complete: documents that it did not name are removed",
    ] {
        assert!(tried.contains(line), "no {line:?} in {tried}");
    }
    assert_eq!(
        run(&project, &["connector", "list"]),
        "hello  script  connectors/hello.luau  Say what this brings, in one line\n"
    );
    assert_eq!(counts(&run_json(&project, &["sync"]), "hello"), [2, 0, 0, 0, 0, 0]);
    assert_eq!(found(&project, "the word world")[0], "greeting/2");
    assert!(run(&project, &["check"]).contains("1 script checked, nothing wrong"));
    let again = project.run(&["connector", "init", "hello"]);
    assert!(said(&again).contains("connectors/hello.luau is there already"), "{}", said(&again));
}

#[test]
fn a_complete_scan_is_followed_in_all_it_says() {
    let script = |items: &str| connector(&format!("return {{ {items} }}"));
    let item = |id: &str, body: &str| format!("{{ source_id = '{id}', body = '{body}' }},");
    let project = Project::new(&[(
        "connectors/things.lua",
        &script(
            &[item("a", "apple tree"), item("b", "birch tree"), item("c", "cedar tree")].concat(),
        ),
    )]);
    let sync = || counts(&run_json(&project, &["sync"]), "things");
    assert_eq!(sync(), [3, 0, 0, 0, 0, 0]);
    assert_eq!(sync(), [0, 0, 0, 3, 0, 0]);
    let changed =
        [item("a", "apple tree"), item("b", "beech tree"), item("d", "date palm")].concat();
    project.write("connectors/things.lua", &script(&changed));
    assert_eq!(sync(), [1, 1, 1, 1, 0, 0]);
    assert_eq!(with_word(&project, "birch"), [""; 0]);
    assert_eq!(found(&project, "beech")[0], "b");
    // A script that is gone takes its documents along, with the next whole sync.
    project.remove("connectors/things.lua");
    project.write("connectors/other.lua", &script(&item("x", "xylophone")));
    let synced = run_json(&project, &["sync"]);
    assert_eq!(synced["forgotten"], json!([{"name": "things", "documents": 3}]));
    assert_eq!(with_word(&project, "tree"), [""; 0]);
}

#[test]
fn a_scan_that_uses_state_goes_on_where_the_last_one_ended() {
    let script = connector(
        "local page = (state.page or 0) + 1\nstate.page = page\nemit({ source_id = page, body = `page number {page}` })\nif page == 3 then emit({ source_id = 1, deleted = true }) end",
    );
    let project = Project::new(&[("connectors/pages.luau", &script)]);
    let sync = |args: &[&str]| counts(&run_json(&project, &[&["sync"], args].concat()), "pages");
    assert_eq!(sync(&[]), [1, 0, 0, 0, 0, 0]);
    assert_eq!(sync(&[]), [1, 0, 0, 0, 0, 0]);
    assert_eq!(sync(&[]), [1, 0, 1, 0, 0, 0]);
    let mut pages = found(&project, "page number");
    pages.sort();
    assert_eq!(pages, ["2", "3"]);
    // From nothing: what is not named is gone.
    let [added, changed, removed, ..] = sync(&["pages", "--full"]);
    assert_eq!((added + changed, removed), (1, 2));
    assert_eq!(found(&project, "page number"), ["1"]);
}

#[test]
fn a_script_that_fails_keeps_what_it_had_found_and_what_was_there() {
    let script = |fails: &str| {
        connector(&format!(
            "for n = 1, 1000 do\n  {fails}\n  emit({{ source_id = n, body = `thing number {{n}}` }})\nend"
        ))
    };
    let project = Project::new(&[("connectors/things.lua", &script(""))]);
    assert_eq!(counts(&run_json(&project, &["sync"]), "things"), [1000, 0, 0, 0, 0, 0]);
    project.write(
        "connectors/things.lua",
        &script("if n == 500 then error('the server is gone') end"),
    );
    let output = project.run(&["sync"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = "error[tool_error]: the server is gone\n  --> connectors/things.lua:4";
    assert!(said(&output).contains(expected), "{}", said(&output));
    let output = project.run(&["sync", "--json"]);
    let synced: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(
        synced["sources"][0]["error"]["message"],
        "connectors/things.lua:4: the server is gone"
    );
    // Nothing is lost, and the source says what is wrong with it.
    assert_eq!(found(&project, "number 999")[0], "999");
    let sources = project.run(&["sources"]);
    assert_eq!(sources.status.code(), Some(1));
    assert!(text(&sources).contains("1000 documents"), "{}", text(&sources));
    assert!(text(&sources).contains("the server is gone"), "{}", text(&sources));
    project.write("connectors/things.lua", &script(""));
    assert_eq!(counts(&run_json(&project, &["sync"]), "things"), [0, 0, 0, 1000, 0, 0]);
    assert!(project.run(&["sources"]).status.success());
}

#[test]
fn a_script_that_fails_the_first_time_keeps_what_it_found() {
    let script = connector(
        "for n = 1, 1000 do\n  if n == 500 then error('gone') end\n  emit({ source_id = n, body = `thing number {n}` })\nend",
    );
    let project = Project::new(&[("connectors/things.lua", &script)]);
    assert_eq!(project.run(&["sync"]).status.code(), Some(1));
    assert_eq!(found(&project, "number 499")[0], "499");
}

#[test]
fn garbage_is_reported_item_by_item_and_costs_nothing_else() {
    let project = Project::new(&[(
        "connectors/things.lua",
        &connector(
            "return { { source_id = 'a', body = 'apple' }, { source_id = 'b', body = 'birch' } }",
        ),
    )]);
    run(&project, &["sync"]);
    let garbage = "return { { source_id = 'a', body = 'apple' }, 5, { source_id = 'b', body = print }, { body = 'nameless' }, { source_id = 'c', body = 'cedar', updated_at = 'soon' }, { source_id = 'd', body = 'date' } }";
    project.write("connectors/things.lua", &connector(garbage));
    let output = project.run(&["sync"]);
    let said = said(&output);
    for line in [
        "things: failed item 2: item 2: an item is a table of fields, got integer",
        "things: failed item 3: item 3: the item.body is a function, which is not a value",
        "things: failed item 4: item 4: the item has no source_id",
        "things: failed c: item 5: updated_at is not a time: \"soon\"",
    ] {
        assert!(said.contains(line), "no {line:?} in {said}");
    }
    assert_eq!(output.status.code(), Some(0), "single items are no failure of the source");
    assert_eq!(found(&project, "date")[0], "d");
    // What could not be named may have been b: it stays.
    assert_eq!(found(&project, "birch")[0], "b");
    let tried = project.run(&["connector", "test", "connectors/things.lua"]);
    assert_eq!(tried.status.code(), Some(1));
    assert!(text(&tried).contains("  ✗ item 2: item 2: an item is a table"), "{}", text(&tried));
    for (body, message) in [
        ("return 5", "connector.scan returned a number"),
        ("return { source_id = 'x', body = 'b' }", "connector.scan returned one item and no list"),
    ] {
        project.write("connectors/things.lua", &connector(body));
        let output = project.run(&["sync"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(super::said(&output).contains(message), "{}", super::said(&output));
        assert_eq!(found(&project, "birch")[0], "b");
    }
}

#[test]
fn a_script_that_never_ends_is_ended_and_hogs_nothing() {
    let config = "[connectors.script.things]\npath = \"connectors/things.lua\"\ntimeout = 0.5\n";
    let project = Project::new(&[("moonlark.toml", config)]);
    for body in [
        "while true do end",
        "while true do emit({ source_id = 1, body = 'x' }) end",
        "sleep(3600)",
    ] {
        project.write("connectors/things.lua", &connector(body));
        let output = project.run(&["sync"]);
        let said = said(&output);
        assert!(said.contains("error[timeout]: the scan was not done after 0.5 seconds"), "{said}");
        assert_eq!(output.status.code(), Some(1));
    }
    project.write("moonlark.toml", &config.replace("0.5", "60"));
    project.write(
        "connectors/things.lua",
        &connector("local all = {} while true do table.insert(all, ('x'):rep(1000)) end"),
    );
    let output = project.run(&["sync", "things"]);
    assert!(
        said(&output).contains("error[limit]: the script used more than 64 MB"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_connector_has_its_configuration_its_grants_and_its_secrets() {
    let script = "connector = {}\nfunction connector.scan(config)\n  log.info('with ' .. config.api_token)\n  if config.reach then http.get('http://127.0.0.1:1/') end\n  if config.tool then return { { source_id = 'x', body = sdk.tools.say({}) } } end\n  return { { source_id = config.team, body = 'token ' .. config.api_token } }\nend\n";
    let tool = "tool = { name = 'say', description = '', parameters = {} }\nfunction tool.execute() return 'said by a tool' end\n";
    let config = |more: &str| {
        format!(
            "[connectors.script.team]\npath = \"connectors/team.lua\"\nteam = \"red\"\napi_token = \"${{TEAM_TOKEN:-canary-7f3a9c}}\"\n{more}"
        )
    };
    let project = Project::new(&[
        ("connectors/team.lua", script),
        ("tools/say.lua", tool),
        ("moonlark.toml", &config("")),
    ]);
    let output = project.run(&["sync"]);
    let shown = format!("{}{}", text(&output), said(&output));
    assert!(
        output.status.success() && shown.contains("team: with [redacted:api_token]"),
        "{shown}"
    );
    let id = run_json(&project, &["search", "token"])["result"]["results"][0]["id"].clone();
    let document = run(&project, &["get", id.as_str().unwrap()]);
    assert_eq!(document, "token [redacted:api_token]\n");
    for command in
        [&["config", "show"] as &[&str], &["sources", "--json"], &["connector", "list", "--json"]]
    {
        assert!(!run(&project, command).contains("canary"), "{command:?}");
    }
    project.write("moonlark.toml", &config("reach = true\n"));
    let denied = said(&project.run(&["sync"]));
    assert!(
        denied.contains(
            "hint: add \"net:127.0.0.1:1\" to allow for connectors.script.team in moonlark.toml"
        ),
        "{denied}"
    );
    project.write("moonlark.toml", &config("tool = true\n"));
    assert!(said(&project.run(&["sync"])).contains("\"tool:say\""));
    project.write("moonlark.toml", &config("tool = true\nallow = [\"tool:say\"]\n"));
    run(&project, &["sync"]);
    assert_eq!(found(&project, "said by a tool")[0], "x");
}

#[test]
fn what_is_wrong_with_a_connector_is_said_before_anything_is_synced() {
    let project = Project::new(&[
        (
            "connectors/broken.lua",
            "connector = { name = 'broken' }\nfunction connector.scn() end\n",
        ),
        ("connectors/good.lua", &connector("return {}")),
    ]);
    let checked = project.run(&["check"]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(
        said(&checked).contains("connector.scan is not a function\n  --> connectors/broken.lua"),
        "{}",
        said(&checked)
    );
    let checked = project.run(&["check", "connectors/broken.lua"]);
    assert_eq!(checked.status.code(), Some(1));
    run(&project, &["check", "connectors/good.lua"]);
    assert!(text(&project.run(&["doctor"])).contains("connector.scan is not a function"));
    let output = project.run(&["sync"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("good"), "{}", text(&output));
    let output = project.run(&["sync", "goood"]);
    assert!(
        said(&output).contains("there is no connector goood\nhint: did you mean good?"),
        "{}",
        said(&output)
    );
    let empty = Project::new(&[]);
    assert!(
        said(&empty.run(&["sync"]))
            .contains("there is no connector: nothing to sync\nhint: name a source")
    );
}

#[test]
fn the_configuration_is_held_to_what_goes_together() {
    for (config, message) in [
        ("[connectors.filesystem.docs]\n", "connectors.filesystem.docs.root is missing"),
        (
            "[connectors.filesystem.docs]\nroot = \"d\"\nincldue = [\"*\"]\n",
            "hint: did you mean include?",
        ),
        (
            "[connectors.filesystem.docs]\nroot = \"d\"\ninclude = [\"[\"]\n",
            "connectors.filesystem.docs.include: ",
        ),
        ("[connectors.git.docs]\n", "connectors.git.docs: needs either url or path"),
        ("[connectors.git.docs]\nurl = \"u\"\npath = \"p\"\n", "url and path exclude each other"),
        (
            "[connectors.git.docs]\npath = \".\"\n[connectors.filesystem.docs]\nroot = \".\"\n",
            "another connector has the same name",
        ),
        ("[connectors.filesystem.\"a b\"]\nroot = \".\"\n", "the name may have letters"),
        ("[store]\nurl = \"postgres://localhost/x\"\n", "cannot keep its data in PostgreSQL yet"),
        ("[knowledge]\nembedder = \"\"\n", "knowledge.embedder: must be \"builtin\""),
        (
            "[knowledge.embedder]\nkind = \"openai\"\nurl = \"u\"\n",
            "knowledge.embedder.model is missing",
        ),
        (
            "[knowledge.embedder]\nkind = \"openai\"\nurl = \"u\"\nmodel = \"m\"\n",
            "knowledge.embedder.url: must be an address",
        ),
        ("[knowledge]\nsync = \"often\"\n", "knowledge.sync must be one of \"manual\", \"start\""),
    ] {
        let project = Project::new(&[("moonlark.toml", config)]);
        let output = project.run(&["config", "check"]);
        assert_eq!(output.status.code(), Some(1), "{config}");
        assert!(said(&output).contains(message), "{config}\n{}", said(&output));
    }
}

type Asked = Arc<Mutex<Vec<HashMap<String, String>>>>;

/// GitHub's list of issues, page by page.
async fn issues(
    State(asked): State<Asked>,
    Query(query): Query<HashMap<String, String>>,
) -> String {
    let page: usize = query["page"].parse().unwrap();
    let since = query.get("since").cloned();
    asked.lock().unwrap().push(query);
    let issue = |number: usize| {
        json!({
            "number": number, "title": format!("Issue {number}"), "body": format!("Thing {number} is broken"),
            "html_url": format!("https://github.com/acme/shop/issues/{number}"), "state": "open",
            "labels": [{"name": "bug"}], "user": {"login": "ann"},
            "created_at": "2026-01-01T00:00:00Z", "updated_at": format!("2026-01-01T00:{:02}:00Z", number % 60),
        })
    };
    let all: Vec<Value> =
        if since.is_some() { vec![issue(7)] } else { (0..130).map(issue).collect() };
    let shown: Vec<Value> = all.into_iter().skip((page - 1) * 100).take(100).collect();
    Value::Array(shown).to_string()
}

fn github() -> (u16, Asked) {
    let asked = Asked::default();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let json = [("content-type", "application/json")];
    let router = Router::new()
        .route(
            "/repos/acme/shop/issues",
            get(move |state, query| async move { (json, issues(state, query).await) }),
        )
        .with_state(asked.clone());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
    });
    (port, asked)
}

#[test]
fn the_example_connectors_do_what_they_say() {
    let (port, asked) = github();
    let example = |name: &str| {
        std::fs::read_to_string(repo().join("examples/connectors").join(name)).unwrap()
    };
    let config = format!(
        "[connectors.script.shop]\npath = \"connectors/github_issues.luau\"\nrepository = \"acme/shop\"\napi = \"http://127.0.0.1:{port}\"\nallow = [\"net:127.0.0.1:{port}\"]\n"
    );
    let project = Project::new(&[
        ("moonlark.toml", &config),
        ("connectors/github_issues.luau", &example("github_issues.luau")),
        ("connectors/glossary.luau", &example("glossary.luau")),
        ("connectors/glossary.csv", &example("glossary.csv")),
    ]);
    let synced = run_json(&project, &["sync"]);
    assert_eq!(counts(&synced, "shop"), [130, 0, 0, 0, 0, 0]);
    assert_eq!(counts(&synced, "glossary"), [10, 0, 0, 0, 0, 0]);
    assert_eq!(found(&project, "what is a permission called")[0], "grant");
    let answer = run_json(
        &project,
        &["search", "thing 42", "--source", "shop", "--limit", "1", "--meta", "state=open"],
    );
    let hit = &answer["result"]["results"][0];
    assert_eq!(
        (&hit["source_id"], &hit["source_url"]),
        (&json!("42"), &json!("https://github.com/acme/shop/issues/42")),
        "{answer}"
    );
    assert_eq!(hit["metadata"], json!({"state": "open", "labels": ["bug"]}), "{answer}");
    // The second time only what is new is asked for, and all the rest stays.
    let [added, changed, removed, ..] = counts(&run_json(&project, &["sync", "shop"]), "shop");
    assert_eq!((added, changed, removed), (0, 0, 0));
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[2]["since"], "2026-01-01T00:59:00Z");
    let sources = run_json(&project, &["sources"]);
    assert_eq!(sources["knowledge"][0]["documents"], 130, "{sources}");
}
