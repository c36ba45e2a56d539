//! Saved scripts: files with a header, and what agents save, as functions that are found,
//! checked, called by name and from other scripts, and that outlive a crash.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{PATIENCE, Project, Server, eventually, moonlark, wait_for};
use crate::tasks::gate::{Gate, VISITS, visiting};

mod limits_of_saving;

const ORDERS: &str = r#"
tool = {
    name = "orders",
    description = "The orders of a customer",
    parameters = { { name = "customer", type = "integer", required = true } },
    output = { type = "object", properties = { total = { type = "number" } }, required = { "total" } },
    annotations = { read_only = true },
}
function tool.execute(params)
    if params.customer > 9 then error(`there is no customer {params.customer}`) end
    return { total = params.customer * 10 }
end
"#;

const REPORT: &str = "--! name: weekly_report
--! description: What the first customers ordered
--! parameter customers: integer -- How many
--! parameter label: string = \"total\"
local sum = 0
for id = 1, params.customers do
    sum += sdk.tools.orders({ customer = id }).total
end
return { [params.label] = sum }
";

fn project(config: &str) -> Project {
    Project::new(&[
        ("moonlark.toml", config),
        ("tools/orders.lua", ORDERS),
        ("scripts/report.luau", REPORT),
        ("scripts/plain.luau", "return 1"),
    ])
}

/// The text that `tool` answers over MCP.
fn text(server: &Server, tool: &str, args: Value) -> String {
    let answer = server.mcp("tools/call", json!({"name": tool, "arguments": args}));
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn problem(answer: &(u16, Value)) -> String {
    let error = &answer.1["error"];
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    format!("{} {}: {} ({})", answer.0, text("code"), text("message"), text("hint"))
}

#[test]
fn a_file_with_a_header_is_a_function_that_is_found_typed_and_called_by_name() {
    let project = project("");
    let server = project.serve();
    let found = text(&server, "search_docs", json!({"query": "what customers ordered"}));
    let signature = "sdk.scripts.weekly_report({ customers: number, label: string? })";
    assert!(found.contains("scripts.weekly_report"), "{found}");
    let docs = text(&server, "get_function_docs", json!({"names": ["scripts.weekly_report"]}));
    assert!(docs.contains("customers: number") && docs.contains("How many"), "{signature}: {docs}");
    let called = server.post(
        "execute",
        &json!({
            "script": "", "saved": "weekly_report", "arguments": {"customers": 3},
        }),
    );
    assert_eq!(called, (200, json!({"result": {"total": 60}})));
    // From a script, as any function.
    let script = "return { sdk.scripts.weekly_report({ customers = 2, label = 'a' }), \
                  scripts.weekly_report({ customers = 1 }):await() }";
    let called = server.post("execute", &json!({ "script": script }));
    assert_eq!(called, (200, json!({"result": [{"a": 30}, {"total": 10}]})));
    // What is wrong is said before anything is called.
    let wrong = server.post(
        "execute",
        &json!({
            "script": "return sdk.scripts.weekly_report({ customer = 2 })",
        }),
    );
    assert_eq!(wrong.1["error"]["code"], "bad_script", "{wrong:?}");
    for (args, expected) in [
        (
            json!({"script": "", "saved": "weekly_report", "arguments": {"customers": "3"}}),
            "400 bad_request: parameter 'customers' must be integer, got string ()",
        ),
        (
            json!({"script": "", "saved": "weekly_repot"}),
            "404 not_found: there is no saved script weekly_repot (did you mean sdk.scripts.weekly_report?)",
        ),
        (
            json!({"script": "return 1", "saved": "weekly_report"}),
            "400 bad_request: execute takes either a script or saved (leave one of them out; a script calls a saved one as sdk.scripts.NAME({ … }))",
        ),
        (
            json!({"script": "", "saved": "weekly_report", "lost": "retry"}),
            "400 bad_request: lost goes with no saved script (leave it out: a saved script takes arguments, timeout and plan)",
        ),
        (
            json!({"script": "", "saved": "weekly_report", "arguments": {"customers": 10}}),
            "500 tool_error: script:7: there is no customer 10 ()",
        ),
    ] {
        assert_eq!(problem(&server.post("execute", &args)), expected, "{args}");
    }
    // A script that calls it is told which line of which script failed.
    let failing = json!({"script": "return sdk.scripts.weekly_report({ customers = 10 })"});
    assert_eq!(
        problem(&server.post("execute", &failing)),
        "500 tool_error: script:1: scripts.weekly_report:7: there is no customer 10 ()"
    );
}

#[test]
fn the_run_of_a_saved_script_is_on_record_with_its_arguments_and_is_carried_out_as_planned() {
    let project = project("");
    let server = project.serve();
    let args = json!({"script": "", "saved": "weekly_report", "arguments": {"customers": 2}, "plan": true});
    let (status, plan) = server.post("execute", &args);
    assert_eq!((status, &plan["result"]["complete"]), (200, &json!(true)), "{plan}");
    let resumed = server.post("execute", &json!({"script": "", "resume": plan["result"]["plan"]}));
    assert_eq!(resumed, (200, json!({"result": {"total": 30}})));
    let runs: Value = serde_json::from_slice(&project.run(&["runs", "--json"]).stdout).unwrap();
    let script = runs["runs"][0]["script"].as_str().unwrap();
    assert!(
        script.starts_with(
            "local params = { customers = 2, label = \"total\" } --! name: weekly_report"
        ),
        "{script}"
    );
}

#[test]
fn a_saved_script_is_reloaded_and_one_that_no_longer_parses_keeps_its_last_version() {
    let project = project("");
    let server = project.serve();
    let ask = || {
        server.post(
            "execute",
            &json!({"script": "", "saved": "weekly_report", "arguments": {"customers": 1}}),
        )
    };
    assert_eq!(ask(), (200, json!({"result": {"total": 10}})));
    project.write("scripts/report.luau", &REPORT.replace("sum = 0", "sum = 1000"));
    wait_for("the new version", || ask() == (200, json!({"result": {"total": 1010}})));
    project.write("scripts/report.luau", &REPORT.replace("local sum = 0", "local sum ="));
    server.log.wait_for("scripts/report.luau:");
    assert_eq!(ask(), (200, json!({"result": {"total": 1010}})));
    let doctor = String::from_utf8_lossy(&project.run(&["check"]).stdout).into_owned()
        + &String::from_utf8_lossy(&project.run(&["check"]).stderr);
    assert!(doctor.contains("scripts/report.luau"), "{doctor}");
    project.remove("scripts/report.luau");
    wait_for("its end", || ask().0 == 404);
}

#[test]
fn a_saved_script_is_a_tool_where_the_operator_exposes_it() {
    let project = project("[scripts]\nexpose = \"both\"\n");
    let server = project.serve();
    let listed = server.mcp("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let tool = tools.iter().find(|it| it["name"] == "scripts__weekly_report");
    let tool = tool.unwrap_or_else(|| panic!("{listed}"));
    assert_eq!(tool["inputSchema"]["required"], json!(["customers"]), "{tool}");
    let called = server.post("scripts.weekly_report", &json!({"customers": 2}));
    assert_eq!(called, (200, json!({"result": {"total": 30}})));
    // Rules hold for it under every name.
    project.write("moonlark.toml", "[scripts]\nexpose = \"both\"\n[[policy.rules]]\ntools = [\"scripts.*\"]\naction = \"deny\"\n");
    wait_for("the rule", || {
        server.post("scripts.weekly_report", &json!({"customers": 2})).0 == 404
    });
    let args = json!({"script": "", "saved": "weekly_report", "arguments": {"customers": 2}});
    assert_eq!(server.post("execute", &args).0, 404);
}

/// A run that was killed while a saved script of it called `tool` at the second place, after
/// the first was answered: the project, the run and the run of the saved script.
fn killed_tour(gate: &Gate, tool: &str) -> (Project, [String; 2]) {
    let tour = format!(
        "--! name: tour\n--! description: Visit two places\n--! parameter last: string\n\
         local seen = {{ sdk.tools.visit({{ place = \"one\" }}), crypto.uuid() }}\n\
         table.insert(seen, sdk.tools.{tool}({{ place = params.last }}))\n\
         return #seen\n"
    );
    let project = Project::new(&[
        ("moonlark.toml", &visiting(gate)),
        VISITS[0],
        VISITS[1],
        ("scripts/tour.luau", &tour),
        (
            "script.luau",
            "local n = sdk.scripts.tour({ last = \"hold\" })\nsdk.tools.visit({ place = \"end\" })\nreturn n",
        ),
    ]);
    let mut child = moonlark()
        .args(["run", "script.luau", "--quiet"])
        .current_dir(project.path("."))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(gate.came.recv_timeout(PATIENCE).unwrap(), "/one");
    assert_eq!(gate.came.recv_timeout(PATIENCE).unwrap(), "/hold");
    let json = |args: &[&str]| -> Value {
        serde_json::from_slice(&project.run(args).stdout).unwrap_or_default()
    };
    let ids = eventually("the first answer on record", || {
        let runs = json(&["runs", "--json"]);
        let id = |of: &str| {
            let mut all = runs["runs"].as_array().into_iter().flatten();
            let run = all.find(|it| it["script"].as_str().unwrap().starts_with(of))?;
            run["id"].as_str().map(str::to_owned)
        };
        let ids = id("local n").zip(id("local params")).ok_or_else(|| runs.to_string())?;
        let inner = json(&["runs", &ids.1, "--json"]);
        if inner["calls"][0]["outcome"] == "ok" {
            Ok([ids.0, ids.1])
        } else {
            Err(inner.to_string())
        }
    });
    child.kill().unwrap();
    child.wait().unwrap();
    gate.go.send(()).unwrap();
    (project, ids)
}

fn resume(project: &Project, args: &[&str]) -> (Value, String) {
    let resumed = project.run(&[&["runs", "resume", "--json"], args].concat());
    let errors = String::from_utf8_lossy(&resumed.stderr).into_owned();
    (serde_json::from_slice(&resumed.stdout).unwrap_or_default(), errors)
}

#[test]
fn a_run_that_was_killed_inside_a_saved_script_goes_on_inside_it_and_calls_nothing_twice() {
    let gate = Gate::start();
    let (project, [run, _]) = killed_tour(&gate, "look");
    gate.go.send(()).unwrap();
    let (ended, errors) = resume(&project, &[&run]);
    assert_eq!(ended["result"], 3, "{ended} {errors}");
    // The first place was visited before the crash, and not again.
    assert_eq!(gate.came.recv_timeout(PATIENCE).unwrap(), "/hold");
    assert_eq!(gate.came.recv_timeout(PATIENCE).unwrap(), "/end");
    assert!(gate.came.try_recv().is_err());
}

#[test]
fn a_call_of_a_saved_script_whose_answer_was_lost_stops_both_runs_until_somebody_decides() {
    let gate = Gate::start();
    let (project, [run, inner]) = killed_tour(&gate, "visit");
    let (ended, errors) = resume(&project, &[&run]);
    assert!(errors.contains("may_have_happened"), "{ended} {errors}");
    assert!(errors.contains(&format!("moonlark runs resume {inner} --retry")), "{errors}");
    assert!(gate.came.try_recv().is_err(), "something was called");
    let (ended, errors) = resume(&project, &[&inner, "--assume-done"]);
    assert_eq!(ended["result"], 2, "{ended} {errors}");
    let (ended, errors) = resume(&project, &[&run]);
    assert_eq!(ended["result"], 2, "{ended} {errors}");
    assert_eq!(gate.came.recv_timeout(PATIENCE).unwrap(), "/end");
    assert!(gate.came.try_recv().is_err());
}

const SAVING: &str = "[execute]\nallow = [\"tool:*\", \"scripts:write\"]\n";

fn saved(name: &str, body: &str) -> Value {
    json!({"script": format!("--! name: {name}\n--! description: Doubles a number\n--! parameter n: number\n{body}")})
}

#[test]
fn an_agent_saves_shows_replaces_and_restores_scripts_of_its_own() {
    let project = project(SAVING);
    let server = project.serve();
    let (status, answer) = server.post("save_script", &saved("double", "return params.n * 2"));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        answer["result"],
        json!({"saved": "double", "version": 1, "call": "sdk.scripts.double({ n: number })"})
    );
    // It is in use as soon as it is saved.
    let ask =
        || server.post("execute", &json!({"script": "", "saved": "double", "arguments": {"n": 4}}));
    assert_eq!(ask(), (200, json!({"result": 8})));
    let again = server.post("save_script", &saved("double", "return params.n * 200"));
    assert_eq!(
        problem(&again),
        "400 bad_request: there is a saved script double of yours, version 1 (replace it with replace = true, which keeps the old version; or choose another name)"
    );
    let mut replacing = saved("double", "return params.n * 200");
    replacing["replace"] = json!(true);
    assert_eq!(server.post("save_script", &replacing).1["result"]["version"], 2);
    assert_eq!(ask(), (200, json!({"result": 800})));
    let (_, shown) = server.post("show_script", &json!({"name": "double", "version": 1}));
    assert!(shown["result"]["script"].as_str().unwrap().ends_with("params.n * 2"), "{shown}");
    assert_eq!(shown["result"]["versions"].as_array().unwrap().len(), 2);
    assert_eq!(
        server.post("restore_script", &json!({"name": "double", "version": 1})).1["result"]["version"],
        3
    );
    assert_eq!(ask(), (200, json!({"result": 8})));
    let (_, listed) = server.post("list_scripts", &json!({}));
    let names: Vec<&str> = listed["result"]["scripts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["weekly_report", "double"], "{listed}");
    // It outlives the server.
    drop(server);
    let server = project.serve();
    let ask =
        || server.post("execute", &json!({"script": "", "saved": "double", "arguments": {"n": 4}}));
    assert_eq!(ask(), (200, json!({"result": 8})));
    assert_eq!(server.post("remove_script", &json!({"name": "double"})).0, 200);
    assert_eq!(ask().0, 404);
    let folder = project.path(".moonlark/scripts");
    let left = std::fs::read_dir(folder.join("versions")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn what_cannot_be_saved_is_refused_with_what_to_do_next() {
    let project = project(SAVING);
    let server = project.serve();
    let refused = |script: &str| problem(&server.post("save_script", &json!({ "script": script })));
    for (script, expected) in [
        (
            "return 1",
            "400 bad_request: the script has no header, so it has no name (begin it with lines such as \"--! name: weekly_report\", \"--! description: What it does\" and \"--! parameter city: string -- Which city\")",
        ),
        (
            "--! name: a\nreturn 1",
            "400 bad_request: the header has no description (say in a line what it does: agents find scripts by their descriptions)",
        ),
        (
            "--! name: weekly_report\n--! description: Another\nreturn 1",
            "403 forbidden: weekly_report is a script of the project (choose another name; only its authors change that file)",
        ),
    ] {
        assert_eq!(refused(script), expected);
    }
    let wrong =
        refused("--! name: a\n--! description: b\nreturn sdk.tools.order({ customer = 1 })");
    assert!(wrong.contains("bad_script") && wrong.contains("nothing was saved"), "{wrong}");
    let wrong =
        refused("--! name: a\n--! description: b\n--! parameter n: string\nreturn params.m");
    assert!(wrong.contains("the header has no parameter m"), "{wrong}");
    let wrong = refused("--! name: a\n--! description: b\nreturn (");
    assert!(wrong.contains("bad_script"), "{wrong}");
    assert_eq!(
        problem(&server.post("show_script", &json!({"name": "dubble"}))),
        "404 not_found: there is no saved script dubble of yours (list_scripts has those that are there; files of the project are not shown)"
    );
}

#[test]
fn without_the_grant_there_are_no_tools_to_save_with() {
    let project = project("");
    let server = project.serve();
    for tool in ["save_script", "list_scripts", "show_script", "restore_script", "remove_script"] {
        assert_eq!(server.post(tool, &json!({})).0, 404, "{tool}");
    }
    // Nor does it cost anybody tokens where nothing is saved.
    let empty = Project::new(&[("tools/orders.lua", ORDERS)]);
    let server = empty.serve();
    let listed = server.mcp("tools/list", json!({})).to_string();
    assert!(!listed.contains("saved"), "{listed}");
}

fn token(project: &Project, name: &str) -> String {
    let output = project.run(&["token", "add", name]);
    assert!(output.status.success());
    format!("Bearer {}", String::from_utf8_lossy(&output.stdout).trim())
}

fn post_as(server: &Server, token: &str, tool: &str, args: &Value) -> (u16, Value) {
    let headers = [("Content-Type", "application/json"), ("Authorization", token)];
    let answer =
        server.request("POST", &format!("/tools/{tool}"), &headers, args.to_string().as_bytes());
    (answer.status, answer.json())
}

#[test]
fn the_saved_scripts_of_one_caller_are_out_of_reach_of_another() {
    let project = project(SAVING);
    let (ann, ben) = (token(&project, "ann"), token(&project, "ben"));
    let server = project.serve();
    let script = saved("double", "return params.n * 2");
    assert_eq!(post_as(&server, &ann, "save_script", &script).0, 200);
    let run = json!({"script": "", "saved": "double", "arguments": {"n": 4}});
    assert_eq!(post_as(&server, &ann, "execute", &run), (200, json!({"result": 8})));
    for (tool, args) in [
        ("execute", run),
        ("execute", json!({"script": "return sdk.scripts.double({ n = 1 })"})),
        ("show_script", json!({"name": "double"})),
        ("restore_script", json!({"name": "double", "version": 1})),
        ("remove_script", json!({"name": "double"})),
        ("scripts.double", json!({"n": 1})),
    ] {
        let (status, answer) = post_as(&server, &ben, tool, &args);
        assert!(status == 404 || answer["error"]["code"] == "bad_script", "{tool}: {answer}");
    }
    let listed = post_as(&server, &ben, "list_scripts", &json!({})).1.to_string();
    assert!(!listed.contains("double"), "{listed}");
    let mut replacing = script.clone();
    replacing["replace"] = json!(true);
    assert_eq!(
        problem(&post_as(&server, &ben, "save_script", &replacing)),
        "403 forbidden: double is a saved script of somebody else (choose another name; scripts:write-all in execute.allow lets all callers change all)"
    );
    // The operator may let all write to all.
    project.write("moonlark.toml", &SAVING.replace("scripts:write", "scripts:write-all"));
    eventually("the grant", || {
        let (status, answer) = post_as(&server, &ben, "save_script", &replacing);
        if status == 200 { Ok(()) } else { Err(answer.to_string()) }
    });
    let run = json!({"script": "", "saved": "double", "arguments": {"n": 4}});
    assert_eq!(post_as(&server, &ben, "execute", &run), (200, json!({"result": 8})));
}

#[test]
fn what_a_session_over_stdio_saved_is_there_for_the_next_process() {
    let project = project(SAVING);
    let mut client = project.stdio();
    let save = json!({"name": "save_script", "arguments": saved("double", "return params.n * 2")});
    let answer = client.request("tools/call", save);
    assert_eq!(answer["result"]["structuredContent"]["version"], 1, "{answer}");
    let ask = json!({"name": "execute", "arguments": {"script": "", "saved": "double", "arguments": {"n": 4}}});
    let answer = client.request("tools/call", ask);
    assert_eq!(answer["result"]["content"][0]["text"], "8", "{answer}");
    client.close();
    let called = project.run(&["call", "scripts.double", "--param", "n=4"]);
    let errors = String::from_utf8_lossy(&called.stderr);
    assert_eq!(String::from_utf8_lossy(&called.stdout).trim(), "8", "{errors}");
}
