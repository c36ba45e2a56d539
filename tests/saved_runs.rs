//! `moonlark runs save --as-tool`, the whole way: a run, the tool it becomes, its test, and
//! the tool called over MCP; and artifacts that outlive the server.

use serde_json::{Value, json};

use crate::harness::{Project, Server};

const CUSTOMERS: &str = r#"
tool = { name = "customers", description = "Customers of a city", annotations = { read_only = true },
    parameters = { { name = "city", type = "string", required = true } } }
function tool.execute(params)
    local all = { Bonn = { 1, 3 }, Kiel = { 2 } }
    return { ids = all[params.city] or {} }
end
"#;
const ORDERS: &str = r#"
tool = { name = "orders", description = "Orders of a customer", annotations = { read_only = true },
    parameters = { { name = "customer", type = "integer", required = true } } }
function tool.execute(params) return { total = params.customer * 10 } end
"#;
const SCRIPT: &str = "-- What the customers of a city ordered
local found = sdk.tools.customers({ city = \"Bonn\" })
local totals = map_parallel(found.ids, function(id)
    return tools.orders({ customer = id }):await().total
end)
local sum = 0
for _, total in totals do sum += total end
result({ city = \"Bonn\", sum = sum, least = 5 })
";

fn project() -> Project {
    Project::new(&[
        ("moonlark.toml", "# mine\n"),
        ("tools/customers.lua", CUSTOMERS),
        ("tools/orders.lua", ORDERS),
        ("bonn.luau", SCRIPT),
        ("kiel.luau", &SCRIPT.replace("Bonn", "Kiel")),
    ])
}

/// The id of the run of a file.
fn ran(project: &Project, file: &str) -> String {
    let output = project.run(&["run", file, "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    newest(project)
}

fn newest(project: &Project) -> String {
    let runs: Value = serde_json::from_slice(&project.run(&["runs", "--json"]).stdout).unwrap();
    runs["runs"][0]["id"].as_str().unwrap_or_else(|| panic!("{runs}")).to_owned()
}

fn save(project: &Project, more: &[&str]) -> (bool, String) {
    let output = project.run(&[&["runs", "save"], more].concat());
    let said = [&output.stdout[..], &output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_run_becomes_a_typed_tool_with_its_test_and_is_called_over_mcp() {
    let project = project();
    let id = ran(&project, "bonn.luau");
    ran(&project, "kiel.luau");
    // It proposes what differs between runs of the same shape.
    let (done, said) = save(&project, &[&id, "--as-tool", "city_total"]);
    assert!(!done && said.contains("--param '\"Bonn\"=city'"), "{said}");
    let args = [&id, "--as-tool", "city_total", "--param", "\"Bonn\"=city", "--param", "5=least"];
    let (done, said) = save(&project, &args);
    assert!(done, "{said}");
    assert_eq!(
        said,
        "wrote tools/city_total.luau and tools/city_total_test.luau\n\
         added [tools.script.city_total] to moonlark.toml: it may use tool:customers, tool:orders\n\
         next: `moonlark test tools/city_total_test.luau`, then edit its description\n"
    );
    let config = std::fs::read_to_string(project.path("moonlark.toml")).unwrap();
    assert_eq!(
        config,
        "# mine\n\n[tools.script.city_total]\npath = \"tools/city_total.luau\"\nallow = [\"tool:customers\", \"tool:orders\"]\n"
    );
    let test = project.run(&["test"]);
    let shown = String::from_utf8_lossy(&test.stdout).into_owned();
    assert!(test.status.success() && shown.contains("1 passed, 0 failed"), "{shown}");
    let server = project.serve();
    let listed = server.mcp("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let tool = tools.iter().find(|it| it["name"] == "city_total").unwrap();
    assert_eq!(tool["description"], "What the customers of a city ordered");
    assert_eq!(tool["inputSchema"]["required"], json!(["city", "least"]), "{tool}");
    assert_eq!(tool["inputSchema"]["properties"]["least"]["type"], "integer", "{tool}");
    let sum = &tool["outputSchema"]["properties"]["sum"]["type"];
    assert!(sum == "integer" || sum == "number", "{tool}");
    assert_eq!(tool["annotations"]["readOnlyHint"], true, "{tool}");
    for (city, sum) in [("Bonn", 40), ("Kiel", 20)] {
        let args = json!({"name": "city_total", "arguments": {"city": city, "least": 7}});
        let answer = server.mcp("tools/call", args);
        let expected = json!({"city": city, "sum": sum, "least": 7});
        assert_eq!(answer["result"]["structuredContent"], expected, "{answer}");
    }
}

#[test]
fn what_cannot_become_a_tool_is_said_and_nothing_is_overwritten() {
    let project = project();
    project.write("failing.luau", "return sdk.tools.orders({ customer = 1 }).total.x");
    project.write(
        "secret.luau",
        "local key = { password = \"hunter22\" }\nreturn key.password == \"a\"",
    );
    let id = ran(&project, "bonn.luau");
    let failing = project.run(&["run", "failing.luau", "--json"]);
    assert!(!failing.status.success());
    let failed = newest(&project);
    let secret = ran(&project, "secret.luau");
    let refused = |args: &[&str]| {
        let (done, said) = save(&project, args);
        assert!(!done, "{said}");
        said
    };
    for (args, expected) in [
        (vec![id.as_str(), "--as-tool", "orders"], "a tool or a module orders already"),
        (vec![&id, "--as-tool", "a b"], "cannot be the name of a tool"),
        (
            vec![&id, "--as-tool", "x", "--param", "\"Bon\"=city"],
            "did you mean --param '\"Bonn\"=city'?",
        ),
        (vec![&id, "--as-tool", "x", "--param", "Bonn"], "names no literal"),
        (vec![&failed, "--as-tool", "x"], "only a run that ended well becomes a tool"),
        (vec![&secret, "--as-tool", "x"], "has a secret in plain text"),
        (vec!["0000", "--as-tool", "x"], "the journal has no run 0000"),
    ] {
        let said = refused(&args);
        assert!(said.contains(expected), "{args:?}: {said}");
    }
    // As a parameter it is in none of the files.
    let (done, said) =
        save(&project, &[&secret, "--as-tool", "keyed", "--param", "\"hunter22\"=password"]);
    assert!(done, "{said}");
    for file in ["tools/keyed.luau", "tools/keyed_test.luau"] {
        let text = std::fs::read_to_string(project.path(file)).unwrap();
        assert!(!text.contains("hunter22"), "{text}");
    }
    assert_eq!(std::fs::read_to_string(project.path("tools/orders.lua")).unwrap(), ORDERS);
    assert_eq!(std::fs::read_to_string(project.path("moonlark.toml")).unwrap(), "# mine\n");
    assert!(!project.path("tools/x.luau").exists());
}

fn large(server: &Server) -> String {
    let script = "local list = {}\nfor id = 1, 20000 do list[id] = { id = id } end\nreturn list";
    let (status, answer) = server.post("execute", &json!({ "script": script }));
    assert_eq!(status, 200, "{answer}");
    answer["result"]["artifact"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[test]
fn an_artifact_outlives_a_server_that_is_killed_and_nobody_else_can_read_its_file() {
    let project = Project::new(&[("tools/orders.lua", ORDERS)]);
    let mut server = project.serve();
    let handle = large(&server);
    server.kill();
    let server = project.serve();
    let read = json!({"script": format!("return artifact('{handle}')[20000].id")});
    assert_eq!(server.post("execute", &read), (200, json!({"result": 20000})));
    // Neither the handle nor what is in it is on the disk in plain.
    let files: Vec<_> =
        std::fs::read_dir(project.path(".moonlark/artifacts")).unwrap().flatten().collect();
    assert_eq!(files.len(), 1);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(files[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!files[0].file_name().to_string_lossy().contains(&handle[4..]));
    let bytes = std::fs::read(files[0].path()).unwrap();
    // As the values are packed.
    assert!(!bytes.windows(6).any(|it| it == b"\x81\xa2id\x02\x81"));
    // What is damaged is not there, and says so.
    std::fs::write(files[0].path(), &bytes[..bytes.len() / 2]).unwrap();
    drop(server);
    let server = project.serve();
    let (_, answer) = server.post("execute", &read);
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("there is no artifact"), "{answer}");
}

#[test]
fn artifacts_on_disk_are_bounded_by_the_operator() {
    let project = Project::new(&[
        ("moonlark.toml", "[limits]\nartifacts = \"1MB\"\n"),
        ("tools/orders.lua", ORDERS),
    ]);
    let mut server = project.serve();
    let make = |server: &Server| {
        let script = json!({"script": "return string.rep('x', 300000)"});
        let (_, answer) = server.post("execute", &script);
        let text = answer["result"]["artifact"].as_str();
        text.unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let handles: Vec<String> = (0..12).map(|_| make(&server)).collect();
    let files = std::fs::read_dir(project.path(".moonlark/artifacts")).unwrap().flatten();
    let bytes: u64 = files.map(|it| it.metadata().unwrap().len()).sum();
    assert!(bytes <= 1 << 20, "{bytes}");
    // The newest are there for the next server, and the oldest are not.
    server.kill();
    let server = project.serve();
    let read = |handle: &str| {
        let script =
            format!("local ok, text = pcall(artifact, '{handle}')\nreturn if ok then #text else 0");
        server.post("execute", &json!({ "script": script })).1["result"].clone()
    };
    assert_eq!((read(&handles[11]), read(&handles[0])), (json!(300_000), json!(0)));
}

#[test]
fn a_tool_is_not_saved_where_its_name_or_the_configuration_has_no_room_for_it() {
    let project = project();
    project.write(
        "other_file.luau",
        "tool = { name = \"taken\", description = \"x\" }\nfunction tool.execute() return 1 end",
    );
    std::fs::rename(project.path("other_file.luau"), project.path("tools/other_file.luau"))
        .unwrap();
    ran(&project, "bonn.luau");
    for name in ["execute", "search_docs", "save_script", "taken", "env"] {
        let (done, said) = save(&project, &["last", "--as-tool", name, "--no-params"]);
        assert!(!done && said.contains("already"), "{name}: {said}");
    }
    let inline = "tools = { dir = \"tools\" }\n";
    project.write("moonlark.toml", inline);
    let (done, said) = save(&project, &["last", "--as-tool", "city_total", "--no-params"]);
    assert!(!done && said.contains("[tools.script.city_total]"), "{said}");
    assert_eq!(std::fs::read_to_string(project.path("moonlark.toml")).unwrap(), inline);
    assert!(!project.path("tools/city_total.luau").exists());
}

#[test]
fn a_repaired_fork_that_planned_nothing_becomes_a_tool() {
    let project = project();
    project.write("broken.luau", &SCRIPT.replace("sum = sum,", "sum = sum.x,"));
    assert!(!project.run(&["run", "broken.luau"]).status.success());
    let forked = project.run(&["runs", "fork", "last", "--script", "bonn.luau"]);
    assert!(forked.status.success(), "{}", String::from_utf8_lossy(&forked.stderr));
    let (done, said) = save(&project, &["last", "--as-tool", "city_total", "--no-params"]);
    assert!(done, "{said}");
    let test = project.run(&["test"]);
    assert!(test.status.success(), "{}", String::from_utf8_lossy(&test.stdout));
}
