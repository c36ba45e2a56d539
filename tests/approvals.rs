//! Calls that a person decides on, through every way in: each is made once, if
//! somebody said so, and as it was shown.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Answer, LOOK, Project, Server, eventually, repo};

const CONFIG: &str = r#"
[[policy.rules]]
tools = ["delete"]
action = "approve"

[tools.script.delete]
path = "tools/delete.lua"
allow = ["fs:write"]
expose = "both"

[tools.script.look]
path = "tools/look.lua"
allow = ["fs:write"]
expose = "both"

[tools.script.sweep]
path = "tools/sweep.lua"
allow = ["tool:*"]
"#;

/// Both write down that they were called, a file for each time.
const DELETE: &str = r#"
tool = {
    name = "delete",
    description = "Delete a thing",
    parameters = { { name = "id", type = "integer", required = true } },
}
function tool.execute(params)
    fs.write(`deleted-{params.id}-{crypto.uuid()}`, "")
    return { deleted = params.id }
end
"#;
const SWEEP: &str = r#"
tool = {
    name = "sweep",
    description = "Delete by another tool",
    parameters = { { name = "id", type = "integer", required = true } },
}
function tool.execute(params, context)
    return { swept = context.call("delete", { id = params.id }) }
end
"#;

const BY_CALLER: &str = "[approvals]\nby = \"caller\"\n";

fn project(more: &str) -> Project {
    Project::new(&[
        ("moonlark.toml", &format!("{CONFIG}{more}")),
        ("tools/delete.lua", DELETE),
        ("tools/look.lua", LOOK),
        ("tools/sweep.lua", SWEEP),
    ])
}

impl Project {
    /// What was deleted so far.
    fn deleted(&self) -> Vec<String> {
        let mut deleted: Vec<String> = (self.written().iter())
            .filter_map(|name| Some(name.strip_prefix("deleted-")?.split_once('-')?.0.to_owned()))
            .collect();
        deleted.sort();
        deleted
    }

    fn looked(&self) -> usize {
        self.written().iter().filter(|name| name.starts_with("looked-")).count()
    }

    fn written(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("tools")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn approvals(&self, args: &[&str]) -> Value {
        let mut all = vec!["approvals"];
        all.extend(args);
        all.push("--json");
        let output = self.run(&all);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{args:?}: {text}{errors}"))
    }

    /// The one approval that waits.
    fn waiting(&self) -> String {
        let listed = self.approvals(&["list"]);
        let all = listed["approvals"].as_array().unwrap();
        assert_eq!(all.len(), 1, "{listed}");
        all[0]["id"].as_str().unwrap().to_owned()
    }
}

/// `POST /tools/{name}` with tokens of approvals.
fn call(server: &Server, tool: &str, args: Value, token: Option<&str>) -> (u16, Value) {
    let mut headers = vec![("Content-Type", "application/json")];
    headers.extend(token.map(|token| ("Moonlark-Approval", token)));
    let path = format!("/tools/{tool}");
    let answer = server.request("POST", &path, &headers, args.to_string().as_bytes());
    (answer.status, answer.json())
}

fn token(answer: &Value) -> String {
    answer["approval"]["token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn refusal((status, answer): (u16, Value)) -> String {
    assert_eq!(status, 403, "{answer}");
    answer["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn over_rest_the_same_request_with_the_token_is_made_once() {
    let project = project(BY_CALLER);
    let server = project.serve();
    let (status, asked) = call(&server, "delete", json!({"id": 1}), None);
    assert_eq!(status, 202, "{asked}");
    let approval = &asked["approval"];
    assert_eq!(approval["tool"], "delete");
    assert_eq!(approval["arguments"], json!({"id": 1}));
    assert_eq!(approval["effects"], json!(["writes", "destructive", "open-world"]));
    assert!(approval["expires_at"].as_str().unwrap().ends_with('Z'), "{asked}");
    assert!(project.deleted().is_empty());

    let one = token(&asked);
    let two = token(&call(&server, "delete", json!({"id": 2}), None).1);
    let changed = refusal(call(&server, "delete", json!({"id": 3}), Some(&one)));
    assert_eq!(changed, "the token was given for other arguments than these");
    let another = refusal(call(&server, "delete", json!({"id": 1}), Some(&two)));
    assert_eq!(another, "the token was given for other arguments than these");
    let forged = refusal(call(&server, "delete", json!({"id": 1}), Some("apr_AAAA")));
    assert_eq!(forged, "no approval has this token");
    assert!(project.deleted().is_empty());

    let (status, made) = call(&server, "delete", json!({"id": 1}), Some(&one));
    assert_eq!((status, made), (200, json!({"result": {"deleted": 1}})));
    let again = refusal(call(&server, "delete", json!({"id": 1}), Some(&one)));
    assert!(again.ends_with("was used: an approval is valid for one call"), "{again}");
    assert_eq!(project.deleted(), ["1"]);
    let unrelated = call(&server, "look", json!({}), Some(&two));
    assert_eq!(unrelated, (200, json!({"result": "seen"})), "it needs none");
}

#[test]
fn as_events_the_answer_is_the_same() {
    let project = project(BY_CALLER);
    let server = project.serve();
    let stream = |token: &str| -> String {
        let headers = [
            ("Content-Type", "application/json"),
            ("Accept", "text/event-stream"),
            ("Moonlark-Approval", token),
        ];
        server.request("POST", "/tools/delete", &headers, br#"{"id":1}"#).text()
    };
    let asked = stream("");
    let data = asked.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let asked: Value = serde_json::from_str(data).unwrap();
    let made = stream(&token(&asked));
    assert!(made.contains(r#"{"result":{"deleted":1}}"#), "{made}");
    assert_eq!(project.deleted(), ["1"]);
}

#[test]
fn what_a_tool_calls_in_turn_is_asked_about_too() {
    let project = project(BY_CALLER);
    let server = project.serve();
    let (status, asked) = call(&server, "sweep", json!({"id": 4}), None);
    assert_eq!((status, &asked["approval"]["tool"]), (202, &json!("delete")), "{asked}");
    let (status, made) = call(&server, "sweep", json!({"id": 4}), Some(&token(&asked)));
    assert_eq!((status, made), (200, json!({"result": {"swept": {"deleted": 4}}})));
    assert_eq!(project.deleted(), ["4"]);
}

#[test]
fn after_its_time_a_token_is_of_no_use() {
    let project = project("[approvals]\nby = \"caller\"\nexpiry = \"1ms\"\n");
    let server = project.serve();
    let asked = call(&server, "delete", json!({"id": 1}), None).1;
    let late = refusal(call(&server, "delete", json!({"id": 1}), Some(&token(&asked))));
    assert!(late.ends_with("has expired"), "{late}");
    assert!(project.deleted().is_empty());
    assert_eq!(project.approvals(&["list"])["approvals"], json!([]));
}

#[test]
fn a_token_outlives_the_server_that_gave_it() {
    let project = project(BY_CALLER);
    let mut server = project.serve();
    let one = token(&call(&server, "delete", json!({"id": 1}), None).1);
    server.kill();
    let server = project.serve();
    assert_eq!(call(&server, "delete", json!({"id": 1}), Some(&one)).0, 200);
    refusal(call(&server, "delete", json!({"id": 1}), Some(&one)));
    assert_eq!(project.deleted(), ["1"]);
}

#[test]
fn whoever_asks_does_not_decide_unless_the_operator_says_so() {
    let project = project("");
    let server = project.serve();
    let (status, asked) = call(&server, "delete", json!({"id": 1}), None);
    assert_eq!((status, &asked["status"]), (202, &json!("approval_required")), "{asked}");
    assert_eq!(asked["approval"].get("token"), None, "nothing that approves: {asked}");
    let id = asked["approval"]["id"].as_str().unwrap();
    let how = asked["approval"]["how"].as_str().unwrap();
    assert_eq!(
        how,
        format!(
            "ask your user, or the operator of this server, to decide on approval {id}; then make the same call again"
        )
    );
    let still = call(&server, "delete", json!({"id": 1}), None);
    assert_eq!((still.0, &still.1["approval"]["id"]), (202, &json!(id)));
    let forged = call(&server, "delete", json!({"id": 1}), Some("apr_AAAA"));
    assert_eq!(forged.0, 403, "{}", forged.1);
    let post = |path: &str| -> Answer { server.request("POST", path, &[], b"") };
    assert_eq!(post(&format!("/approvals/{id}/approve")).status, 403);
    assert!(project.deleted().is_empty());
    // By the beginning of its id, as well as by its end.
    assert_eq!(project.approvals(&["approve", &id[..13]])["state"], "approved");
    assert_eq!(call(&server, "delete", json!({"id": 1}), None).0, 200);
    assert_eq!(call(&server, "delete", json!({"id": 1}), None).0, 202, "once");
    assert_eq!(project.deleted(), ["1"]);
}

#[test]
fn what_is_not_shown_whole_is_not_decided_there() {
    let project = project(BY_CALLER);
    let pay = "tool = { name = 'pay', description = 'Pay', parameters = { type = 'object' } }
function tool.execute(params) return params.to end";
    project.write("tools/pay.lua", pay);
    project
        .write("moonlark.toml", &format!("{CONFIG}{BY_CALLER}").replace("\"delete\"]", "\"pay\"]"));
    let server = project.serve();
    let args = json!({"note": "n".repeat(6000), "auth_note": "all of it", "to": "mallory"});
    let (status, asked) = call(&server, "pay", args.clone(), None);
    assert_eq!(status, 202, "{asked}");
    let approval = &asked["approval"];
    assert_eq!(approval.as_object().unwrap().keys().next().unwrap(), "left_out", "said first");
    assert_eq!(approval["arguments"]["to"], "mallory", "{asked}");
    assert_eq!(approval["arguments"]["auth_note"], "all of it", "{asked}");
    assert!(approval["arguments"]["note"].as_str().unwrap().contains("bytes are left out"));
    assert_eq!(approval.get("token"), None, "{asked}");
    let listed = project.run(&["approvals"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("[shortened: see `moonlark approvals show"), "{listed}");
    let id = approval["id"].as_str().unwrap();
    assert_eq!(project.approvals(&["show", id])["arguments"], args);
    project.approvals(&["approve", id]);
    assert_eq!(call(&server, "pay", args, None), (200, json!({"result": "mallory"})));
}

#[test]
fn what_waits_is_listed_and_decided_over_rest_by_who_holds_the_token() {
    let project = project(BY_CALLER);
    let server = project.serve();
    let asked = call(&server, "delete", json!({"id": 1}), None).1;
    let (id, token) = (asked["approval"]["id"].as_str().unwrap(), token(&asked));
    let listed = server.get("/approvals");
    assert_eq!(listed.json()["approvals"][0]["id"], id);
    assert!(!listed.text().contains(&token), "the token is for who made the call");
    let path = format!("/approvals/{id}/deny");
    assert_eq!(server.request("POST", &path, &[], b"").status, 403);
    let denied = server.request("POST", &path, &[("Moonlark-Approval", &token)], b"");
    assert_eq!((denied.status, &denied.json()["approval"]["state"]), (200, &json!("denied")));
    let refused = refusal(call(&server, "delete", json!({"id": 1}), None));
    assert!(refused.starts_with("anonymous (caller) has denied"), "{refused}");
    assert_eq!(server.get("/approvals").json(), json!({"approvals": []}));
    assert_eq!(server.get(&format!("/approvals/{id}")).json()["approval"]["state"], "denied");
    assert!(project.deleted().is_empty());
}

#[test]
fn on_the_command_line_the_exact_arguments_are_shown_and_the_call_made_again() {
    let project = project("");
    let output = project.run(&["call", "delete", "--param", "id=7"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let id = project.waiting();
    assert!(
        !output.status.success() && said.contains(&format!("approvals approve {id}")),
        "{said}"
    );
    assert_eq!(project.approvals(&["show", &id[28..]])["arguments"], json!({"id": 7}));
    project.approvals(&["approve", &id]);
    assert!(project.run(&["call", "delete", "--param", "id=7"]).status.success());
    assert!(!project.run(&["call", "delete", "--param", "id=7"]).status.success());
    assert_eq!(project.deleted(), ["7"]);
}

/// The official clients, with a user at them or without.
struct Client<'a> {
    server: &'a Server,
    which: &'a str,
}

impl Client<'_> {
    fn call(&self, answer: &str, tool: &str, args: Value) -> Value {
        let url = self.server.url("/mcp");
        let args = args.to_string();
        let mut command = match self.which {
            "typescript" => {
                let mut command = Command::new("node");
                command.arg(repo().join("tests/approvals/ask.mjs")).arg(url);
                command
            }
            era => {
                let mut command = Command::new(repo().join("target/clients/python/bin/python"));
                command.arg(repo().join("tests/approvals/ask.py")).args([&url, era]);
                command
            }
        };
        command.env("HOME", "/nonexistent").env("NO_PROXY", "127.0.0.1");
        let output = command.args([answer, tool, &args]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{}: {text}{errors}", self.which))
    }
}

const CLIENTS: [&str; 3] = ["legacy", "modern", "typescript"];

#[test]
#[ignore = "needs tests/clients/install.sh: run ./test"]
fn over_mcp_the_user_of_a_client_that_can_ask_is_asked() {
    for which in CLIENTS {
        let project = project(BY_CALLER);
        let server = project.serve();
        let client = Client { server: &server, which };
        let made = client.call("approve", "delete", json!({"id": 1}));
        assert_eq!(
            (&made["is_error"], &made["structured"]["deleted"]),
            (&json!(false), &json!(1)),
            "{which}: {made}"
        );
        let question = made["asked"][0].as_str().unwrap();
        assert!(question.contains(r#"delete({"id":1})"#), "{which}: {question}");
        assert_eq!(made["asked"].as_array().unwrap().len(), 1, "{which}");
        for no in ["refuse", "decline"] {
            let id = if no == "refuse" { 2 } else { 3 };
            let refused = client.call(no, "delete", json!({"id": id}));
            let text = refused["text"].as_str().unwrap();
            assert!(
                text.starts_with("error[forbidden]: anonymous (caller) has denied"),
                "{which}: {text}"
            );
        }
        // Neither yes nor no: it can still be decided otherwise.
        let open = client.call("cancel", "delete", json!({"id": 4}));
        assert_eq!(open["structured"]["error"]["code"], "approval_required", "{which}: {open}");
        assert_eq!(project.deleted(), ["1"], "{which}");
    }
}

#[test]
#[ignore = "needs tests/clients/install.sh: run ./test"]
fn over_mcp_an_agent_is_told_to_ask_and_not_how_to_approve() {
    for which in CLIENTS {
        let project = project("");
        let server = project.serve();
        let client = Client { server: &server, which };
        let told = client.call("nobody", "delete", json!({"id": 1}));
        let approval = &told["structured"]["error"]["approval"];
        let id = approval["id"].as_str().unwrap_or_else(|| panic!("{which}: {told}"));
        assert_eq!(approval.get("token"), None, "{which}: whoever calls must not decide");
        let text = told["text"].as_str().unwrap();
        assert!(text.contains("ask your user, or the operator of this server"), "{text}");
        assert!(!text.contains("moonlark approvals approve"), "{text}");
        assert!(project.deleted().is_empty());
        project.approvals(&["approve", id]);
        let made = client.call("nobody", "delete", json!({"id": 1}));
        assert_eq!(made["structured"]["deleted"], 1, "{which}: {made}");
        let again = client.call("nobody", "delete", json!({"id": 1}));
        assert_eq!(again["is_error"], true, "{which}: {again}");
        assert_eq!(project.deleted(), ["1"], "{which}");
    }
}

const SCRIPT: &str = "\
local seen = sdk.tools.look({})
local one = tools.delete({ id = 1 })
local two = tools.delete({ id = 2 })
return { seen, one:await(), two:await() }";

#[test]
#[ignore = "needs tests/clients/install.sh: run ./test"]
fn inside_a_run_the_user_of_a_client_that_can_ask_is_asked_for_each_call() {
    for which in CLIENTS {
        let project = project(BY_CALLER);
        let server = project.serve();
        let client = Client { server: &server, which };
        let made = client.call("approve", "execute", json!({ "script": SCRIPT }));
        assert_eq!(made["is_error"], false, "{which}: {made}");
        assert_eq!(made["asked"].as_array().unwrap().len(), 2, "{which}: {made}");
        assert_eq!(project.deleted(), ["1", "2"], "{which}");
        let refused = client.call("decline", "execute", json!({ "script": SCRIPT }));
        assert!(refused["text"].as_str().unwrap().contains("has denied"), "{which}: {refused}");
        assert_eq!(project.deleted().len(), 2, "{which}");
    }
}

/// A run that waits, and the approvals it waits for.
fn paused(project: &Project, server: &Server) -> (String, Vec<String>) {
    let (status, told) = call(server, "execute", json!({ "script": SCRIPT }), None);
    assert_eq!(status, 202, "{told}");
    let run = told["approval"]["run"].as_str().unwrap().to_owned();
    // Both calls were made at once; what the second waits for may come a moment later.
    let ids = eventually("the second approval", || {
        let listed = project.approvals(&["list"]);
        let ids: Vec<String> = (listed["approvals"].as_array().unwrap().iter())
            .map(|approval| approval["id"].as_str().unwrap().to_owned())
            .collect();
        if ids.len() == 2 { Ok(ids) } else { Err(listed.to_string()) }
    });
    (run, ids)
}

fn ended(server: &Server, run: &str) -> Value {
    eventually("the end of the run", || {
        let shown = server.get(&format!("/runs/{run}")).json();
        if shown["state"] == "ended" { Ok(shown) } else { Err(shown.to_string()) }
    })
}

#[test]
fn a_run_that_nobody_can_be_asked_for_waits_and_goes_on_by_itself() {
    let project = project("");
    let server = project.serve();
    let (run, approvals) = paused(&project, &server);
    assert_eq!(server.get(&format!("/runs/{run}")).json()["state"], "waiting");
    assert!(project.deleted().is_empty());
    let (status, still) = call(&server, "execute", json!({ "resume": run }), None);
    assert_eq!(status, 400, "{still}");
    for id in &approvals {
        project.approvals(&["approve", id]);
    }
    let shown = ended(&server, &run);
    assert_eq!(shown["result"], json!(["seen", {"deleted": 1}, {"deleted": 2}]), "{shown}");
    let (status, fetched) = call(&server, "execute", json!({ "resume": run }), None);
    assert_eq!((status, &fetched["result"]), (200, &shown["result"]), "{fetched}");
    assert_eq!((project.deleted().len(), project.looked()), (2, 1));
}

#[test]
fn a_run_whose_call_is_denied_gets_that_as_an_error() {
    let project = project("");
    let server = project.serve();
    let (run, approvals) = paused(&project, &server);
    for id in &approvals {
        project.approvals(&["deny", id]);
    }
    let shown = ended(&server, &run);
    assert!(shown["error"]["message"].as_str().unwrap().contains("has denied"), "{shown}");
    assert!(project.deleted().is_empty());
}

#[test]
fn a_run_that_waits_survives_the_death_of_its_server() {
    let project = project("");
    let mut server = project.serve();
    let (run, approvals) = paused(&project, &server);
    server.kill();
    for id in &approvals {
        project.approvals(&["approve", id]);
    }
    let resumed = project.run(&["runs", "resume", &run, "--json"]);
    let resumed: Value = serde_json::from_slice(&resumed.stdout).unwrap();
    assert_eq!(resumed["result"], json!(["seen", {"deleted": 1}, {"deleted": 2}]), "{resumed}");
    assert_eq!((project.deleted().len(), project.looked()), (2, 1), "nothing is made twice");
}

fn shown_run(project: &Project, run: &str) -> String {
    String::from_utf8(project.run(&["runs", run]).stdout).unwrap()
}

#[test]
fn a_run_says_how_the_approval_it_waits_for_stands() {
    let script = "return sdk.tools.delete({ id = 7 })";
    for (decision, word, said) in [
        ("approve", "approved", "local (operator) has approved the call it waited for"),
        (
            "deny",
            "denied",
            "local (operator) has denied the call it waited for: its script gets an error",
        ),
    ] {
        let project = project("");
        let mut server = project.serve();
        let (status, told) = call(&server, "execute", json!({ "script": script }), None);
        assert_eq!(status, 202, "{told}");
        let run = told["approval"]["run"].as_str().unwrap().to_owned();
        let approval = told["approval"]["id"].as_str().unwrap().to_owned();
        server.kill();
        let shown = shown_run(&project, &run);
        assert!(shown.contains(": waiting\n  it waits for a decision: "), "{shown}");
        assert!(shown.contains(&format!("`moonlark approvals deny {approval}`")), "{shown}");
        // By the beginning of its id, as runs are.
        let decided = project.run(&["approvals", decision, &approval[..13]]);
        let decided = String::from_utf8(decided.stdout).unwrap();
        let goes_on =
            format!("the process of the run is gone: `moonlark runs resume {run}` goes on with it");
        assert!(decided.contains(&goes_on), "{decided}");
        let shown = shown_run(&project, &run);
        assert!(
            shown.contains(&format!(
                ": {word}\n  {said}; its process is gone:\n  `moonlark runs resume {run}` goes on"
            )),
            "{shown}"
        );
        let listed = project.run(&["runs", "--json"]);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        let line = &listed["runs"][0];
        assert_eq!((&line["state"], &line["approval_state"]), (&json!("waiting"), &json!(word)));
        // And the command it names is the one that goes on.
        let resumed = project.run(&["runs", "resume", &run]);
        assert_eq!(resumed.status.success(), decision == "approve");
        assert_eq!(project.deleted().len(), usize::from(decision == "approve"));
    }
}

#[test]
fn a_run_that_nobody_decided_on_in_time_says_so_and_asks_again_when_resumed() {
    let project = project("[approvals]\nexpiry = \"1s\"\n");
    let mut server = project.serve();
    let script = "return sdk.tools.delete({ id = 7 })";
    let (status, told) = call(&server, "execute", json!({ "script": script }), None);
    assert_eq!(status, 202, "{told}");
    let run = told["approval"]["run"].as_str().unwrap().to_owned();
    server.kill();
    let shown = eventually("the end of the wait", || {
        let shown = shown_run(&project, &run);
        if shown.contains("it waits for a decision") { Err(shown) } else { Ok(shown) }
    });
    let said = format!(
        "in time, and its process is gone:\n  `moonlark runs resume {run}` goes on, and asks again\n"
    );
    assert!(shown.contains(": expired\n  nobody decided on approval "), "{shown}");
    assert!(shown.contains(&said), "{shown}");
    let resumed = project.run(&["runs", "resume", &run]);
    let said = String::from_utf8(resumed.stderr).unwrap();
    assert!(said.contains("error[approval_required]"), "{said}");
    assert!(project.deleted().is_empty());
}

#[test]
fn a_server_goes_on_with_runs_that_another_left_waiting() {
    let project = project("");
    let mut server = project.serve();
    let (run, approvals) = paused(&project, &server);
    server.kill();
    let server = project.serve();
    assert_eq!(server.get(&format!("/runs/{run}")).json()["state"], "waiting");
    for id in &approvals {
        project.approvals(&["approve", id]);
    }
    let shown = ended(&server, &run);
    assert_eq!(shown["result"], json!(["seen", {"deleted": 1}, {"deleted": 2}]), "{shown}");
    assert_eq!((project.deleted().len(), project.looked()), (2, 1), "nothing is made twice");
}
