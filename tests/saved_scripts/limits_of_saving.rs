//! What a saved script may claim, and what saving may not break.

use super::*;

/// A tool that changes something: a file `put-…` for each time it is called.
const PUT: &str = r#"
tool = { name = "put", description = "Put an item", parameters = { { name = "id", type = "integer" } } }
function tool.execute()
    fs.write(`put-{crypto.uuid()}`, "")
    return "done"
end
"#;

fn times_put(project: &Project) -> usize {
    let entries = std::fs::read_dir(project.path("tools")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("put-")).count()
}

fn reading(name: &str, body: &str) -> String {
    format!("--! name: {name}\n--! description: Reads\n--! annotations: read_only\n{body}")
}

#[test]
fn a_saved_script_that_says_that_it_only_reads_is_held_to_that_however_it_is_called() {
    let config = format!(
        "{SAVING}[scripts]\nexpose = \"both\"\n[tools.script.put]\npath = \"tools/put.lua\"\nallow = [\"fs:write\"]\n"
    );
    let honest = reading("honest", "return sdk.tools.orders({ customer = 2 }).total");
    let project = Project::new(&[
        ("moonlark.toml", &config),
        ("tools/orders.lua", ORDERS),
        ("tools/put.lua", PUT),
        ("scripts/outside.luau", &reading("outside", "return sdk.tools.put({ id = 1 })")),
        ("scripts/honest.luau", &honest),
    ]);
    let server = project.serve();
    for (name, body) in [
        ("direct", "return sdk.tools.put({ id = 666 })"),
        ("promised", "return tools.put({ id = 666 }):await()"),
        (
            "mapped",
            "return map_parallel({ 1, 2 }, function(id) return sdk.tools.put({ id = id }) end)",
        ),
        ("caught", "return { pcall(function() return sdk.tools.put({ id = 666 }) end) }"),
        ("nested", "return sdk.scripts.direct({})"),
    ] {
        let answer = server.post("save_script", &json!({"script": reading(name, body)}));
        assert_eq!(answer.0, 200, "{answer:?}");
    }
    let plain = "--! name: plain\n--! description: Puts\nreturn sdk.tools.put({ id = 1 })";
    assert_eq!(server.post("save_script", &json!({ "script": plain })).0, 200);
    let over = reading("over", "return sdk.scripts.plain({})");
    assert_eq!(server.post("save_script", &json!({ "script": over })).0, 200);

    let denied = server.post("execute", &json!({"script": "", "saved": "direct"}));
    let said = problem(&denied);
    assert!(
        said.contains("the saved script direct says that it only reads, and calls put"),
        "{said}"
    );
    for name in ["direct", "promised", "mapped", "caught", "nested", "over", "outside"] {
        let script = format!("return sdk.scripts.{name}({{}})");
        for args in [
            json!({"script": script}),
            json!({"script": script, "plan": true}),
            json!({"script": "", "saved": name}),
            json!({"script": "", "saved": name, "plan": true}),
        ] {
            let answer = server.post("execute", &args);
            assert_eq!(times_put(&project), 0, "{args}: {answer:?}");
            let said = answer.1.to_string();
            assert!(!said.contains("\"done\""), "{args}: {said}");
        }
        let got = server.get(&format!("/tools/scripts.{name}"));
        assert_eq!(times_put(&project), 0, "{name}: {}", got.status);
    }
    // A fork makes new calls that only read, and this one only seems to.
    assert_eq!(server.post("execute", &json!({"script": "return 1"})).0, 200);
    let run = server.get("/runs").json()["runs"][0]["id"].as_str().unwrap().to_owned();
    let fork = json!({"script": "return sdk.scripts.nested({})", "fork": run, "new_calls": "read"});
    let forked = server.post("execute", &fork);
    assert!(forked.1.to_string().contains("only reads"), "{forked:?}");
    assert_eq!(times_put(&project), 0);
    // Run again from the record of its own run, it is held to the same.
    assert_ne!(server.post("execute", &json!({"script": "", "saved": "direct"})).0, 200);
    let run = server.get("/runs").json()["runs"][0]["id"].as_str().unwrap().to_owned();
    server.post("execute", &json!({"script": "", "fork": run, "new_calls": "make"}));
    assert_eq!(times_put(&project), 0);
    // What is true of a script that is honest is made of it, also for a plan.
    let args = json!({"script": "return sdk.scripts.honest({}) + 1"});
    assert_eq!(server.post("execute", &args), (200, json!({"result": 21})));
    let args = json!({"script": "return sdk.scripts.honest({}) + 1", "plan": true});
    let (_, plan) = server.post("execute", &args);
    assert_eq!(plan["result"]["complete"], true, "{plan}");
    assert!(!plan.to_string().contains("scripts.honest"), "{plan}");
    // One that does not say so puts.
    let args = json!({"script": "", "saved": "plain"});
    assert_eq!(server.post("execute", &args), (200, json!({"result": "done"})));
    assert_eq!(times_put(&project), 1);
}

#[test]
fn what_is_wrong_with_the_script_of_one_caller_is_said_to_that_caller_alone() {
    let project = project(SAVING);
    let (ann, ben) = (token(&project, "ann"), token(&project, "ben"));
    let server = project.serve();
    let script = saved("double", "return params.n * 2");
    assert_eq!(post_as(&server, &ann, "save_script", &script).0, 200);
    // It came to be broken after it was saved.
    let file = project.path(".moonlark/scripts/double.luau");
    let text = std::fs::read_to_string(&file).unwrap();
    let broken = text
        .replace("params.n * 2", "params.obey_me_now")
        .replace("\"version\":1", "\"version\":2");
    std::fs::write(&file, broken).unwrap();
    server.log.wait_for("obey_me_now");
    let mut asked: Vec<String> = Vec::new();
    for token in [&ann, &ben] {
        for tool in ["dubble", "double"] {
            asked.push(post_as(&server, token, tool, &json!({})).1.to_string());
        }
        let listed = post_as(&server, token, "list_scripts", &json!({})).1.to_string();
        assert_eq!(listed.contains("obey_me_now"), token == &ann, "{listed}");
    }
    assert!(!asked.concat().contains("obey_me_now"), "{asked:?}");
    let shown = post_as(&server, &ann, "show_script", &json!({"name": "double"})).1;
    assert!(shown["result"]["problem"].as_str().unwrap().contains("obey_me_now"), "{shown}");
    let check = project.run(&["check"]);
    let said = [check.stdout, check.stderr].concat();
    assert!(String::from_utf8_lossy(&said).contains("obey_me_now"));
}

#[test]
fn a_default_that_does_not_fit_its_type_is_not_saved_and_the_good_version_stays() {
    let project = project(SAVING);
    let server = project.serve();
    assert_eq!(server.post("save_script", &saved("double", "return params.n * 2")).0, 200);
    let wrong = "--! name: double\n--! description: b\n--! parameter n: integer = \"q\"\nreturn 1";
    let answer = server.post("save_script", &json!({"script": wrong, "replace": true}));
    assert!(
        problem(&answer).contains("bad_script") && problem(&answer).contains("default"),
        "{answer:?}"
    );
    // A file that comes to have one keeps its last good version.
    project.write(
        "scripts/report.luau",
        &REPORT.replace("customers: integer", "customers: integer = \"q\""),
    );
    server.log.wait_for("scripts/report.luau");
    for (name, args, expected) in [
        ("double", json!({"n": 4}), json!(8)),
        ("weekly_report", json!({"customers": 1}), json!({"total": 10})),
    ] {
        let args = json!({"script": "", "saved": name, "arguments": args});
        assert_eq!(server.post("execute", &args), (200, json!({ "result": expected })));
    }
}

#[test]
fn a_script_of_an_agent_stays_its_own_when_the_project_gets_one_of_that_name() {
    let project = project(SAVING);
    let server = project.serve();
    assert_eq!(server.post("save_script", &saved("cl", "return params.n * 2")).0, 200);
    let own = "--! name: cl\n--! description: Of the project\nreturn 1";
    project.write("scripts/cl.luau", own);
    let whose = || -> Vec<(String, String)> {
        let (_, listed) = server.post("list_scripts", &json!({}));
        let scripts = listed["result"]["scripts"].as_array().unwrap().clone();
        let text = |it: &Value, key: &str| it[key].as_str().unwrap_or_default().to_owned();
        let mut all: Vec<_> =
            scripts.iter().map(|it| (text(it, "description"), text(it, "of"))).collect();
        all.retain(|(description, _)| !description.contains("customers"));
        all.sort();
        all
    };
    eventually("the one of the project", || {
        let found = whose();
        let is_there = found.iter().any(|(description, _)| description == "Of the project");
        if is_there { Ok(()) } else { Err(format!("{found:?}")) }
    });
    for (description, of) in whose() {
        let expected = if description == "Of the project" { "the project" } else { "yours" };
        assert_eq!(of, expected, "{description}");
    }
    let began = std::time::Instant::now();
    assert_eq!(server.post("remove_script", &json!({"name": "cl"})).0, 200);
    assert!(began.elapsed() < std::time::Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn a_version_that_cannot_be_is_not_taken_for_the_newest() {
    let project = project(SAVING);
    let server = project.serve();
    assert_eq!(server.post("save_script", &saved("double", "return params.n * 2")).0, 200);
    for tool in ["show_script", "restore_script"] {
        let answer =
            server.post(tool, &json!({"name": "double", "version": 1_099_511_627_776_i64}));
        assert_eq!(
            problem(&answer),
            "404 not_found: there is no version 1099511627776 of double (show_script without a version says which are kept)"
        );
    }
}

#[test]
fn a_script_is_saved_without_the_fence_or_the_mark_that_was_put_around_it() {
    let project = project(SAVING);
    let server = project.serve();
    let plain = "--! name: one\n--! description: One\nreturn 1\n";
    for script in [
        plain.to_owned(),
        format!("\u{feff}{plain}"),
        format!("```luau\n{plain}```"),
        format!("\n```\n{plain}```\n"),
    ] {
        let answer = server.post("save_script", &json!({"script": script, "replace": true}));
        assert_eq!(answer.0, 200, "{script}: {answer:?}");
        let shown = server.post("show_script", &json!({"name": "one"})).1;
        assert_eq!(shown["result"]["script"], plain, "{script}");
    }
    // In a file of the project, too.
    let file = plain.replace("one", "two").replace("return 1", "return 2");
    project.write("scripts/two.luau", &format!("\u{feff}{file}"));
    let args = json!({"script": "", "saved": "two"});
    wait_for("the file", || server.post("execute", &args) == (200, json!({"result": 2})));
}
