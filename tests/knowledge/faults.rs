//! What happens to a knowledge base when things end badly.

use std::process::Stdio;

use serde_json::{Value, json};

use super::{counts, found, handbook, run, run_json, said, text, with_word};
use crate::harness::{Log, Project, moonlark};

/// Items enough for several commits; each says where the scan is.
const MANY: &str = r#"
connector = {}
function connector.scan(config)
    for n = 1, 600 do
        log.info(`at {n}.`)
        emit({ source_id = `thing-{n}`, title = `Thing {n}`, body = `This is thing number {n}, made of {("wood iron glass"):split(" ")[n % 3 + 1]}. ` .. ("It stands in a long row of things. "):rep(20) })
    end
end
"#;

fn everything(project: &Project) -> (u64, u64, Vec<Value>) {
    let sources = run_json(project, &["sources"]);
    let source = &sources["knowledge"][0];
    let answers = ["thing number 1", "glass", "made of wood", "row of things"].map(|query| {
        let answer = run_json(project, &["search", query, "--limit", "50"]);
        let hits = answer["result"]["results"].as_array().unwrap().clone();
        let ids: Vec<&Value> = hits.iter().map(|hit| &hit["source_id"]).collect();
        let mut once = ids.clone();
        once.sort_by_key(|id| id.to_string());
        once.dedup();
        assert_eq!(once.len(), ids.len(), "a document is found twice: {answer}");
        json!(hits.iter().map(|hit| json!([hit["source_id"], hit["score"]])).collect::<Vec<_>>())
    });
    (source["documents"].as_u64().unwrap(), source["chunks"].as_u64().unwrap(), answers.to_vec())
}

#[test]
fn a_sync_that_is_killed_loses_and_doubles_nothing() {
    let whole = Project::new(&[("connectors/things.luau", MANY)]);
    run(&whole, &["sync", "--quiet"]);
    let expected = everything(&whole);
    assert_eq!(expected.0, 600);
    let project = Project::new(&[("connectors/things.luau", MANY)]);
    let mut before = 0;
    for at in [1, 40, 130, 260, 390, 520, 590, 600] {
        let mut child = moonlark()
            .args(["sync"])
            .current_dir(project.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Log::follow(child.stderr.take().unwrap()).wait_for(&format!("at {at}."));
        child.kill().unwrap();
        child.wait().unwrap();
        // What is there can be read at once, and only grows.
        let sources = run_json(&project, &["sources"]);
        let documents = sources["knowledge"][0]["documents"].as_u64().unwrap();
        assert!((before..=600).contains(&documents), "{before} then {sources}");
        before = documents;
        assert!(project.run(&["search", "thing number 1", "--json"]).status.success());
    }
    let synced = run_json(&project, &["sync"]);
    let [added, changed, removed, unchanged, ..] = counts(&synced, "things");
    assert_eq!((added + unchanged, changed, removed), (600, 0, 0), "{synced}");
    assert_eq!(everything(&project), expected);
}

#[test]
fn two_syncs_of_one_source_exclude_each_other_and_readers_do_not_wait() {
    let script = "connector = {}\nfunction connector.scan(config)\n  emit({ source_id = 1, body = 'the first thing' })\n  log.info('waiting')\n  while not fs.exists('go.txt') do sleep(0.02) end\n  return { { source_id = 2, body = 'the second thing' } }\nend\n";
    let project = Project::new(&[("connectors/slow.lua", script)]);
    let mut first = moonlark()
        .args(["sync"])
        .current_dir(project.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    Log::follow(first.stderr.take().unwrap()).wait_for("waiting");
    let second = project.run(&["sync", "slow"]);
    assert_eq!(second.status.code(), Some(1));
    let expected = format!("slow is being synced already, by process {} since ", first.id());
    assert!(said(&second).contains(&expected), "{}", said(&second));
    assert!(project.run(&["search", "thing", "--json"]).status.success());
    project.write("connectors/go.txt", "");
    assert!(first.wait().unwrap().success());
    let mut all = found(&project, "thing");
    all.sort();
    assert_eq!(all, ["1", "2"]);
}

#[test]
fn a_database_of_a_newer_version_is_left_alone() {
    let project = handbook(&[]);
    run(&project, &["sync", "--quiet"]);
    let file = project.path(".moonlark/moonlark.db");
    let database = rusqlite::Connection::open(&file).unwrap();
    database.pragma_update(None, "user_version", 999).unwrap();
    drop(database);
    let before = std::fs::read(&file).unwrap();
    for command in [&["search", "x"] as &[&str], &["sync"], &["sources"], &["get", "x"]] {
        let output = project.run(command);
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        assert!(said(&output).contains("newer Moonlark"), "{command:?}: {}", said(&output));
    }
    assert!(text(&project.run(&["doctor"])).contains("newer Moonlark"));
    let server = project.serve();
    let (status, answer) = server.post("search", &json!({"query": "x"}));
    assert_eq!((status, &answer["error"]["code"]), (503, &json!("unavailable")), "{answer}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let project = handbook(&[(".moonlark/moonlark.db", "this is a diary, and a long one at that")]);
    let output = project.run(&["sync"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let text = std::fs::read_to_string(project.path(".moonlark/moonlark.db")).unwrap();
    assert_eq!(text, "this is a diary, and a long one at that");
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_there() {
    let project = handbook(&[("handbook/list.csv", "a,b\n1,2\n")]);
    std::fs::write(project.path("handbook/logo.png"), b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0")
        .unwrap();
    std::fs::write(project.path("handbook/broken.pdf"), b"%PDF-1.7\nnot really").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", project.path("handbook/passwords.txt")).unwrap();
    // Two gigabytes that take no room.
    let huge = std::fs::File::create(project.path("handbook/huge.md")).unwrap();
    huge.set_len(2 * 1024 * 1024 * 1024).unwrap();
    let synced = run_json(&project, &["sync"]);
    let [added, _, _, _, skipped, failed] = counts(&synced, "handbook");
    assert_eq!(added, 5, "{synced}");
    assert_eq!(skipped + failed, 4, "{synced}");
    let source = &synced["sources"][0];
    let named: Vec<&str> = [&source["skipped"]["first"], &source["failed"]["first"]]
        .iter()
        .flat_map(|all| all.as_array().unwrap())
        .map(|it| it["item"].as_str().unwrap())
        .collect();
    for name in ["logo.png", "broken.pdf", "passwords.txt", "huge.md"] {
        assert!(named.contains(&name), "{name} is not named in {synced}");
    }
    assert_eq!(with_word(&project, "root"), [""; 0]);
}
