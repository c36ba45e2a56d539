//! Runs of a real process that is really killed, and a service that knows what
//! has happened. That a run can be cut anywhere is shown in the engine's own
//! tests, for every entry of the journal; here it is for a few, the whole way.

mod counting;

use std::collections::BTreeMap;
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use self::counting::{Counting, Kill, When, document};
use crate::harness::{PATIENCE, Project, moonlark};

/// One after the other, each in a coroutine of its own, and started at once.
const SCRIPT: &str = r#"
sdk.shop.put({ id = "first" })
map_parallel({ "a", "b", "c" }, function(id)
    sdk.shop.read({ id = id })
    sdk.shop.put({ id = id })
end)
await_all({ shop.put({ id = "x" }), shop.put({ id = "y" }) })
sdk.shop.put({ id = "last", at = time.now(), key = crypto.uuid() })
return "done"
"#;

fn project(counting: &Counting) -> Project {
    Project::new(&[
        ("shop.json", &document(counting.port)),
        ("script.luau", SCRIPT),
        ("moonlark.toml", "[apis.shop]\nspec = \"shop.json\"\n"),
    ])
}

fn json_of(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}\n{errors}"))
}

/// Run the script until it is killed.
fn run_and_kill(project: &Project, counting: &Counting) {
    let mut child = moonlark()
        .args(["run", "script.luau", "--quiet"])
        .current_dir(project.path("."))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let killed = counting.now.recv_timeout(PATIENCE);
    if killed.is_err() {
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        panic!("nobody was to be killed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let killed = killed.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    killed.send(()).unwrap();
    counting.settle();
}

#[test]
fn a_run_that_is_killed_goes_on_and_does_everything_once() {
    let kills = [
        (1, When::Arrived),
        (1, When::Done),
        (1, When::Answered),
        (3, When::Answered),
        (5, When::Done),
        (6, When::Arrived),
        (7, When::Answered),
        (8, When::Done),
        (9, When::Arrived),
        (10, When::Done),
        (10, When::Answered),
    ];
    for (request, when) in kills {
        let kill = Kill { request, when };
        let counting = Counting::start(Some(kill));
        let project = project(&counting);
        run_and_kill(&project, &counting);
        let runs = json_of(&project.run(&["runs", "--json"]));
        let run = &runs["runs"][0];
        assert_eq!(run["state"], "interrupted", "{kill:?}: {runs}");
        let id = run["id"].as_str().unwrap().to_owned();
        let ended = go_on(&project, &counting, &id, kill);
        assert_eq!(ended["result"], "done", "{kill:?}: {ended}");
        let all = ["a", "b", "c", "first", "last", "x", "y"];
        let once: BTreeMap<String, usize> = all.map(|id| (id.to_owned(), 1)).into();
        assert_eq!(counting.done(), once, "{kill:?}: {ended}");
        // It has ended: to ask again does nothing.
        let again = json_of(&project.run(&["runs", "resume", &id, "--json"]));
        assert_eq!(again["result"], "done", "{kill:?}");
        assert_eq!(counting.done(), once, "{kill:?}");
    }
}

/// Resume it, and say what happened where that is asked.
fn go_on(project: &Project, counting: &Counting, id: &str, kill: Kill) -> Value {
    let shown = json_of(&project.run(&["runs", id, "--json"]));
    let output = project.run(&["runs", "resume", id, "--json"]);
    if output.status.success() {
        return json_of(&output);
    }
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("error[may_have_happened]"), "{kill:?}: {errors}");
    let done = counting.done();
    let mut words = vec!["runs".to_owned(), "resume".into(), id.into(), "--json".into()];
    for call in shown["calls"].as_array().unwrap() {
        let (open, place) = (call["outcome"].is_null(), call["place"].as_str().unwrap());
        if open && call["tool"] == "shop.put" {
            assert!(errors.contains(&format!("shop.put at {place}")), "{kill:?}: {errors}");
            let arguments: Value =
                serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
            let happened = done.contains_key(arguments["id"].as_str().unwrap());
            let word = if happened { "assume-done" } else { "retry" };
            words.push(format!("--{word}={place}"));
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = project.run(&words);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{kill:?}: {words:?}: {errors}");
    json_of(&output)
}

#[test]
fn a_plan_is_shown_first_and_then_carried_out() {
    let counting = Counting::start(None);
    let project = project(&counting);
    let planned = json_of(&project.run(&["run", "script.luau", "--plan", "--json"]));
    let plan = &planned["result"];
    let calls = plan["calls"].as_array().unwrap();
    let id = |call: &Value| call["arguments"]["id"].as_str().unwrap().to_owned();
    let mut ids: Vec<String> = calls.iter().map(id).collect();
    // Those that go on side by side come in any order, but not before what is above them.
    ids[1..4].sort();
    ids[4..6].sort();
    assert_eq!(ids, ["first", "a", "b", "c", "x", "y", "last"], "{planned}");
    assert_eq!(plan["complete"], true);
    assert!(counting.done().is_empty());
    let id = plan["plan"].as_str().unwrap();
    let ended = json_of(&project.run(&["runs", "resume", id, "--json"]));
    assert_eq!(ended["result"], "done", "{ended}");
    assert_eq!(counting.done().len(), 7);
    assert!(counting.done().values().all(|times| *times == 1));
    let how = plan["how"].as_str().unwrap();
    assert!(how.contains(&format!("moonlark runs resume {id}")), "{how}");
    let shown = String::from_utf8_lossy(&project.run(&["runs", id]).stdout).into_owned();
    assert!(shown.contains("\"place\"") && !shown.contains("\"order\""), "{shown}");
}

#[test]
fn a_plan_is_carried_out_once_however_often_it_is_asked_for() {
    let counting = Counting::start(None);
    let project = project(&counting);
    let server = project.serve();
    let (status, answer) = server.post("execute", &json!({"script": SCRIPT, "plan": true}));
    assert_eq!(status, 200, "{answer}");
    let plan = answer["result"]["plan"].clone();
    std::thread::scope(|scope| {
        let ask = || server.post("execute", &json!({"resume": plan}));
        let asking: Vec<_> = (0..6).map(|_| scope.spawn(ask)).collect();
        for asked in asking {
            let (status, answer) = asked.join().unwrap();
            assert_eq!((status, &answer["result"]), (200, &json!("done")), "{answer}");
        }
    });
    assert!(counting.done().values().all(|times| *times == 1), "{:?}", counting.done());
    let id = plan.as_str().unwrap();
    let output = project.run(&["runs", "resume", id, "--json"]);
    let again = json_of(&output);
    assert_eq!(again["result"], "done", "{again}");
    let note = format!(
        "run {} has carried out the plan before, and is shown: nothing of it was done twice; --again carries the plan out another time\n",
        again["id"].as_str().unwrap()
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), note);
    assert!(counting.done().values().all(|times| *times == 1), "{:?}", counting.done());
    let (status, answer) = server.post("execute", &json!({"resume": plan, "again": true}));
    assert_eq!((status, &answer["result"]), (200, &json!("done")), "{answer}");
    assert!(counting.done().values().all(|times| *times == 2), "{:?}", counting.done());
}

#[test]
fn a_run_is_resumed_over_rest_by_whoever_began_it() {
    let counting = Counting::start(Some(Kill { request: 5, when: When::Done }));
    let project = project(&counting);
    run_and_kill(&project, &counting);
    let runs = json_of(&project.run(&["runs", "--json"]));
    let id = runs["runs"][0]["id"].as_str().unwrap().to_owned();
    let server = project.serve();
    // It was begun at this machine, and whoever comes over the network is another.
    let (status, answer) = server.post("execute", &json!({"resume": id}));
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("not_found")), "{answer}");
    let (status, answer) = server.post("execute", &json!({"script": SCRIPT, "plan": true}));
    assert_eq!(status, 200, "{answer}");
    let plan = answer["result"]["plan"].clone();
    let before = counting.done();
    let (status, answer) = server.post("execute", &json!({"resume": plan}));
    assert_eq!((status, &answer["result"]), (200, &json!("done")), "{answer}");
    assert!(counting.done().values().sum::<usize>() == before.values().sum::<usize>() + 7);
}
