//! The journal as people see it: `moonlark runs`, `/runs`, and what is left when
//! a process dies or the file cannot be used.

use std::process::Output;

use serde_json::{Value, json};

use crate::harness::{Project, Server, eventually, wait_for};

const CONFIG: &str = r#"
[tools.script.note]
path = "tools/note.lua"
allow = ["fs:write"]
expose = "both"

[tools.script.hang]
path = "tools/hang.lua"
expose = "both"
api_token = "hunter22-and-more"
"#;

const NOTE: &str = r#"
tool = {
    name = "note",
    description = "Write something down",
    parameters = {
        { name = "text", type = "string", required = true },
        { name = "password", type = "string" },
    },
}
function tool.execute(params)
    local before = fs.exists("notes.txt") and fs.read("notes.txt") or ""
    fs.write("notes.txt", before .. params.text .. "\n")
    return { noted = params.text }
end
"#;

/// Until it is killed.
const HANG: &str = r#"
tool = {
    name = "hang",
    description = "Take long",
    parameters = { { name = "secret_is", type = "string" } },
}
function tool.execute()
    fs.exists("x")
    sleep(600)
end
"#;

fn project(more: &str) -> Project {
    Project::new(&[
        ("moonlark.toml", &format!("{more}{CONFIG}")),
        ("tools/note.lua", NOTE),
        ("tools/hang.lua", HANG),
    ])
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Project {
    fn runs(&self, args: &[&str]) -> Value {
        let mut all = vec!["runs"];
        all.extend(args);
        all.push("--json");
        let output = self.run(&all);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_str(&text(&output)).unwrap_or_else(|_| panic!("{args:?}: {errors}"))
    }

    /// The one run there is, once it is as wanted.
    fn wait_for_run(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        eventually("the run", || {
            let listed = self.runs(&[]);
            let run = listed["runs"].get(0).filter(|run| wanted(run));
            run.cloned().ok_or_else(|| listed.to_string())
        })
    }

    fn notes(&self) -> String {
        std::fs::read_to_string(self.path("tools/notes.txt")).unwrap_or_default()
    }
}

fn execute(server: &Server, script: &str) -> (u16, Value) {
    server.post("execute", &json!({ "script": script }))
}

#[test]
fn a_run_is_listed_and_shown_with_its_calls_by_every_way_in() {
    let project = project("");
    let server = project.serve();
    let script = "return sdk.tools.note({ text = 'a', password = 'swordfish' })";
    let (status, answer) = execute(&server, script);
    assert_eq!((status, &answer["result"]), (200, &json!({"noted": "a"})), "{answer}");
    let listed = server.get("/runs").json();
    let run = &listed["runs"][0];
    assert_eq!(
        (&run["state"], &run["outcome"], &run["calls"], &run["caller"]["name"]),
        (&json!("ended"), &json!("ok"), &json!(1), &json!("anonymous")),
        "{listed}"
    );
    let id = run["id"].as_str().unwrap();
    let shown = server.get(&format!("/runs/{id}")).json();
    assert_eq!(shown["result"], json!({"noted": "a"}));
    let call = &shown["calls"][0];
    assert_eq!((&call["tool"], &call["outcome"]), (&json!("note"), &json!("ok")), "{shown}");
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"text": "a", "password": "[redacted]"}));
    assert_eq!(project.runs(&[id]), shown, "the command line sees the same");
    assert_eq!(project.runs(&[]), listed);
    let drawn = text(&project.run(&["runs", &id[28..]]));
    for part in [id, "anonymous", "1 call in", "note  │", "\"noted\": \"a\""] {
        assert!(drawn.contains(part), "{part} is not in:\n{drawn}");
    }
    assert_eq!(server.get("/runs/nothing").status, 400);
    assert_eq!(server.get(&format!("/runs/{}", "0".repeat(32))).status, 404);
    let calls = project.runs(&["--calls"]);
    assert_eq!(calls["calls"][0]["tool"], "execute", "{calls}");
}

#[test]
fn a_run_that_was_killed_is_interrupted_and_can_be_resumed_once_somebody_says_how() {
    let project = project("");
    let mut server = project.serve();
    let address = server.address.clone();
    let script = "local a = sdk.tools.note({ text = 'once' }) sdk.tools.hang({}) return a";
    let asking = std::thread::spawn(move || {
        let body = json!({ "script": script }).to_string();
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        let head = format!(
            "POST /tools/execute HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
        // Until the server is gone.
        let _ = std::io::Read::read_to_end(&mut stream, &mut Vec::new());
    });
    let run = project.wait_for_run(|run| run["calls"] == 2);
    assert_eq!(run["state"], "running");
    server.kill();
    asking.join().unwrap();
    let id = run["id"].as_str().unwrap();
    let shown = project.runs(&[id]);
    assert_eq!(shown["state"], "interrupted");
    let calls = shown["calls"].as_array().unwrap();
    let outcomes: Vec<_> = calls.iter().map(|call| (&call["tool"], &call["outcome"])).collect();
    assert_eq!(
        outcomes,
        [(&json!("note"), &json!("ok")), (&json!("hang"), &Value::Null)],
        "{shown}"
    );
    let drawn = text(&project.run(&["runs", id]));
    let ways = format!(
        "  hang at 2 had no answer, and may have happened: {{}}
    if it has not: `moonlark runs resume {id} --retry=2` makes the call
    if it has: `moonlark runs resume {id} --answer 2=JSON` with what it answered,
      or `moonlark runs resume {id} --assume-done=2` where the script does without
"
    );
    assert!(drawn.contains(&ways), "{drawn}");
    let doctor = text(&project.run(&["doctor"]));
    assert!(
        doctor.contains("! runs: warning: 1 run was interrupted when its process ended"),
        "{doctor}"
    );
    let next = project.serve();
    assert_eq!(next.get("/health").json()["interrupted_runs"], 1);
    next.log.wait_for("1 run was interrupted when its process ended: `moonlark runs` lists them");
    // The running server carries it out, and says the same.
    let asked = project.run(&["runs", "resume", id]);
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(!asked.status.success() && said.contains("hang at 2 with {}"), "{said}");
    assert!(text(&asked).contains(&ways), "{}", text(&asked));
    next.log.wait_for("execute called by local over cli");
    drop(next);

    let asked = project.run(&["runs", "resume", id]);
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(!asked.status.success() && said.contains("may_have_happened"), "{said}");
    assert!(said.contains("hang at 2 with {}"), "{said}");
    // What is asked about names the ways on, and not the command that asked.
    assert!(text(&asked).contains(&ways), "{}", text(&asked));
    // By the beginning of its id.
    let resumed = project.run(&["runs", "resume", &id[..18], "--assume-done", "--json"]);
    let said = String::from_utf8_lossy(&resumed.stderr).into_owned();
    assert!(said.contains("the script is given nil as the answer of hang at 2"), "{said}");
    let resumed: Value = serde_json::from_str(&text(&resumed)).unwrap();
    assert_eq!(resumed["result"], json!({"noted": "once"}), "{resumed}");
    assert_eq!(project.notes(), "once\n", "what was answered is not made again");
    let again = project.run(&["runs", "resume", id, "--retry", "--json"]);
    assert!(text(&again).contains("\"noted\":\"once\""), "an ended run only says how it ended");
    let note = format!(
        "run {id} had ended by itself: nothing was done, and this is how it ended; `moonlark run` runs its script anew\n"
    );
    assert_eq!(String::from_utf8_lossy(&again.stderr), note);
    assert_eq!(project.notes(), "once\n");
}

#[test]
fn a_run_that_failed_is_not_run_again_and_that_is_said() {
    let project = project("");
    project.write("script.luau", "sdk.tools.note({ text = 'once' }) error('no')");
    assert!(!project.run(&["run", "script.luau", "--quiet"]).status.success());
    let id = project.runs(&[])["runs"][0]["id"].as_str().unwrap().to_owned();
    let notes = project.notes();
    let asked = project.run(&["runs", "resume", &id, "--retry"]);
    assert!(!asked.status.success());
    assert!(text(&asked).contains("no\n"), "{}", text(&asked));
    let note = format!(
        "run {id} had ended by itself: nothing was done, and this is how it ended; `moonlark run` runs its script anew\n"
    );
    assert_eq!(String::from_utf8_lossy(&asked.stderr), note);
    assert_eq!(project.notes(), notes);
}

#[test]
fn a_run_that_fails_on_an_assumed_answer_can_be_given_another() {
    let project = project("");
    // A tool that kills the process it runs in, the first time.
    let kill = "tool = { name = 'take', description = 'Take one' }
function tool.execute()
    if fs.exists('taken') then return { n = 1 } end
    fs.write('taken', 'yes')
    sleep(600)
end";
    project.write("tools/take.lua", kill);
    let more = "[tools.script.take]\npath = \"tools/take.lua\"\nallow = [\"fs:write\"]\n";
    project.write("moonlark.toml", &format!("{CONFIG}{more}expose = \"both\"\n"));
    project.write("script.luau", "return sdk.tools.take({}).n + 1");
    let mut child = crate::harness::moonlark()
        .args(["run", "script.luau", "--quiet"])
        .current_dir(project.path("."))
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the call", || project.path("tools/taken").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let id = project.runs(&[])["runs"][0]["id"].as_str().unwrap().to_owned();
    let failed = project.run(&["runs", "resume", &id, "--assume-done"]);
    assert!(!failed.status.success());
    let shown = text(&project.run(&["runs", &id]));
    assert!(shown.contains(&format!("moonlark runs resume {id} --answer 1=JSON")), "{shown}");
    let wrong = project.run(&["runs", "resume", &id, "--answer", "1={"]);
    assert!(!wrong.status.success());
    let resumed = project.run(&["runs", "resume", &id, "--answer", "{\"n\": 41}", "--json"]);
    let resumed: Value = serde_json::from_str(&text(&resumed)).unwrap();
    assert_eq!((&resumed["result"], &resumed["outcome"]), (&json!(42), &json!("ok")), "{resumed}");
}

#[test]
fn a_call_that_was_answered_is_on_record_after_kill_nine() {
    let project = project("");
    for round in 1..=3 {
        let mut server = project.serve();
        let word = format!("round {round}");
        assert_eq!(server.post("note", &json!({"text": word})).0, 200);
        assert_eq!(server.post("note", &json!({"text": 7})).0, 400);
        server.kill();
        let calls = project.runs(&["--calls"]);
        let calls = calls["calls"].as_array().unwrap();
        assert_eq!(calls.len(), 2 * round, "{calls:?}");
        let arguments = |call: &Value| call["arguments"].as_str().unwrap().to_owned();
        assert_eq!(
            (&calls[0]["outcome"], arguments(&calls[0])),
            (&json!("bad_request"), "{\"text\":7}".to_owned()),
            "refused calls have their arguments"
        );
        assert_eq!(
            (&calls[1]["outcome"], arguments(&calls[1])),
            (&json!("ok"), format!("{{\"text\":\"{word}\"}}"))
        );
    }
}

#[test]
fn what_cannot_be_recorded_is_said_and_only_what_must_be_is_refused() {
    let project = project("");
    std::fs::create_dir(project.path(".moonlark")).unwrap();
    std::fs::write(project.path(".moonlark/journal.db"), "not a database at all".repeat(300))
        .unwrap();
    let server = project.serve();
    server.log.wait_for("calls go on without being recorded");
    let health = server.get("/health").json();
    assert_eq!(health["status"], "degraded", "{health}");
    assert!(health["journal"].as_str().unwrap().contains("cannot be written"), "{health}");
    let doctor = text(&project.run(&["doctor"]));
    assert!(doctor.contains("✗ journal: error[unavailable]"), "{doctor}");
    assert_eq!(server.post("note", &json!({"text": "direct"})).0, 200, "calls go on");
    let (status, refused) = execute(&server, "return sdk.tools.note({ text = 'in a run' })");
    assert_eq!(status, 503, "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("must be recorded in the journal before it is made"), "{message}");
    assert_eq!(project.notes(), "direct\n");

    let damaged = project.path(".moonlark/journal.db");
    std::fs::rename(&damaged, project.path(".moonlark/aside")).unwrap();
    wait_for("a journal that works", || server.get("/health").json()["status"] == "ok");
    assert_eq!(execute(&server, "return sdk.tools.note({ text = 'in a run' })").0, 200);
    assert_eq!(project.notes(), "direct\nin a run\n");
}

#[test]
fn without_a_journal_everything_else_is_as_before() {
    let project = project("[journal]\nenabled = false\n");
    let server = project.serve();
    assert_eq!(execute(&server, "return sdk.tools.note({ text = 'a' })").0, 200);
    assert_eq!(server.get("/runs").status, 404);
    assert!(!project.path(".moonlark/journal.db").exists());
    assert_eq!(project.runs(&[]), json!({"runs": []}));
}

#[test]
fn runs_are_followed_while_they_happen() {
    let project = project("");
    let server = project.serve();
    execute(&server, "return 1");
    let mut following = crate::harness::moonlark()
        .args(["runs", "--follow", "--json"])
        .current_dir(project.path(""))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = crate::harness::Log::follow(following.stdout.take().unwrap());
    lines.wait_for("return 1");
    execute(&server, "return 22");
    let line: Value = serde_json::from_str(&lines.wait_for("return 22")).unwrap();
    assert!(matches!(line["state"].as_str(), Some("running" | "ended")), "{line}");
    following.kill().unwrap();
    following.wait().unwrap();
}
