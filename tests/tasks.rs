//! Calls that take long as tasks of MCP: started, polled, cancelled, and answered by the next
//! process when the one that began them was killed.

pub mod gate;

use serde_json::{Value, json};

use self::gate::{Gate, VISITS, visiting};
use crate::harness::{
    PATIENCE, Project, Server, StdioClient, eventually, modern, request, wait_for,
};

const SCRIPT: &str = "sdk.tools.visit({ place = \"one\" })\n\
                      sdk.tools.look({ place = \"hold\" })\n\
                      sdk.tools.visit({ place = \"end\" })\n\
                      return { done = true }";

fn project(gate: &Gate) -> Project {
    Project::new(&[
        ("moonlark.toml", &visiting(gate)),
        VISITS[0],
        VISITS[1],
        ("tools/ask.lua", ASK),
    ])
}

/// Waits for longer than a client likes to, then asks for a name.
const ASK: &str = r#"
tool = { name = "ask", description = "Ask for a name" }
function tool.execute()
    sleep(1)
    local form = { type = "object", properties = { name = { type = "string" } } }
    local one = client.elicit("First?", { schema = form })
    return one.content.name
end
"#;

/// A request of a client that knows tasks.
fn message(id: u64, method: &str, params: Value) -> Value {
    let mut message = modern(id, method, params);
    message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    message
}

fn ask_as(server: &Server, token: Option<&str>, message: &Value) -> Value {
    let params = &message["params"];
    let name = params["name"].as_str().or(params["taskId"].as_str()).unwrap_or_default();
    let mut headers = vec![
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", message["method"].as_str().unwrap()),
        ("Mcp-Name", name),
    ];
    headers.extend(token.map(|token| ("Authorization", token)));
    let answer = request(&server.address, "POST", "/mcp", &headers, message.to_string().as_bytes());
    let text = answer.text();
    let mut events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let last = events.rfind(|data| data.contains("\"id\":1"));
    serde_json::from_str(last.unwrap_or(&text)).unwrap_or_else(|_| panic!("not JSON: {text}"))
}

fn ask(server: &Server, method: &str, params: Value) -> Value {
    ask_as(server, None, &message(1, method, params))["result"].clone()
}

fn execute() -> Value {
    json!({"name": "execute", "arguments": {"script": SCRIPT}})
}

/// The id of the task that a script has become.
#[track_caller]
fn task_id(result: &Value) -> String {
    assert_eq!(result["resultType"], "task", "{result}");
    assert_eq!(result["status"], "working", "{result}");
    assert!(result["ttlMs"].as_u64().is_some_and(|it| it > 0), "{result}");
    result["taskId"].as_str().unwrap().to_owned()
}

fn state(server: &Server, id: &str) -> Value {
    ask(server, "tasks/get", json!({"taskId": id}))
}

fn until(server: &Server, id: &str, status: &str) -> Value {
    eventually(status, || {
        let state = state(server, id);
        if state["status"] == status { Ok(state) } else { Err(state.to_string()) }
    })
}

#[test]
fn a_script_that_takes_long_is_a_task_and_a_quick_one_is_not() {
    let gate = Gate::start();
    let project = project(&gate);
    let server = project.serve();
    let quick =
        ask(&server, "tools/call", json!({"name": "execute", "arguments": {"script": "return 1"}}));
    assert_eq!(quick["resultType"], "complete", "{quick}");
    let id = task_id(&ask(&server, "tools/call", execute()));
    assert_eq!(state(&server, &id)["status"], "working");
    gate.go.send(()).unwrap();
    let ended = until(&server, &id, "completed");
    assert_eq!(ended["result"]["structuredContent"], json!({"done": true}), "{ended}");
    assert_eq!(ended["resultType"], "complete");
    // Ending it twice is no mistake, and changes nothing.
    let cancelled = ask(&server, "tasks/cancel", json!({"taskId": id}));
    assert_eq!(cancelled, json!({"resultType": "complete"}));
    assert_eq!(state(&server, &id)["status"], "completed");
    // The next server has it from the journal.
    drop(server);
    let server = project.serve();
    let later = state(&server, &id);
    assert_eq!(later["result"]["structuredContent"], json!({"done": true}), "{later}");
}

#[test]
fn a_task_that_is_cancelled_stops_what_it_does() {
    let gate = Gate::start();
    let project = project(&gate);
    let server = project.serve();
    let id = task_id(&ask(&server, "tools/call", execute()));
    assert_eq!(
        ask(&server, "tasks/cancel", json!({"taskId": id})),
        json!({"resultType": "complete"})
    );
    until(&server, &id, "cancelled");
    wait_for("the end of its run", || {
        let runs: Value = serde_json::from_slice(&project.run(&["runs", "--json"]).stdout).unwrap();
        runs["runs"][0]["outcome"] == "cancelled"
    });
    gate.go.send(()).unwrap();
    let came: Vec<String> = [gate.came.recv(), gate.came.recv()].map(Result::unwrap).into();
    assert_eq!(came, ["/one", "/hold"]);
    assert!(gate.came.try_recv().is_err());
}

#[test]
fn a_task_whose_server_was_killed_goes_on_in_the_next_one_and_does_nothing_twice() {
    let gate = Gate::start();
    let project = project(&gate);
    let mut server = project.serve();
    let id = task_id(&ask(&server, "tools/call", execute()));
    assert_eq!(gate.came.recv_timeout(PATIENCE).unwrap(), "/one");
    assert_eq!(gate.came.recv_timeout(PATIENCE).unwrap(), "/hold");
    server.kill();
    let server = project.serve();
    assert_eq!(state(&server, &id)["status"], "working");
    // The one that was killed waited for it, and so does the next.
    gate.go.send(()).unwrap();
    gate.go.send(()).unwrap();
    let ended = until(&server, &id, "completed");
    assert_eq!(ended["result"]["structuredContent"], json!({"done": true}), "{ended}");
    assert_eq!(gate.came.recv_timeout(PATIENCE).unwrap(), "/hold");
    assert_eq!(gate.came.recv_timeout(PATIENCE).unwrap(), "/end");
    assert!(gate.came.try_recv().is_err(), "the first place was visited again");
}

/// The answer to a request of a client over stdio that knows tasks.
fn say(client: &mut StdioClient, id: u64, method: &str, params: Value) -> Value {
    client.send_raw(format!("{}\n", message(id, method, params)).as_bytes());
    client.answer(id)["result"].clone()
}

#[test]
fn a_task_whose_client_was_killed_is_there_for_its_next_session() {
    let gate = Gate::start();
    let project = project(&gate);
    let mut client = project.stdio();
    let id = task_id(&say(&mut client, 1, "tools/call", execute()));
    assert_eq!(gate.came.recv_timeout(PATIENCE).unwrap(), "/one");
    assert_eq!(gate.came.recv_timeout(PATIENCE).unwrap(), "/hold");
    drop(client);
    gate.go.send(()).unwrap();
    gate.go.send(()).unwrap();
    let mut client = project.stdio();
    let mut number = 0;
    let ended = eventually("the end", || {
        number += 1;
        let state = say(&mut client, number, "tasks/get", json!({"taskId": id}));
        if state["status"] == "completed" { Ok(state) } else { Err(state.to_string()) }
    });
    assert_eq!(ended["result"]["structuredContent"], json!({"done": true}), "{ended}");
    let came: Vec<String> = gate.came.try_iter().filter(|it| it == "/one").collect();
    assert!(came.is_empty(), "the first place was visited again");
}

#[test]
fn a_task_asks_its_client_and_goes_on_with_the_answer() {
    let gate = Gate::start();
    let project = project(&gate);
    let server = project.serve();
    let id = task_id(&ask(&server, "tools/call", json!({"name": "ask", "arguments": {}})));
    let asked = until(&server, &id, "input_required");
    let questions = asked["inputRequests"].as_object().unwrap();
    let (key, question) = questions.iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create", "{asked}");
    let answer = json!({ key.as_str(): {"action": "accept", "content": {"name": "ada"}} });
    let updated = ask(&server, "tasks/update", json!({"taskId": id, "inputResponses": answer}));
    assert_eq!(updated, json!({"resultType": "complete"}));
    let ended = until(&server, &id, "completed");
    assert_eq!(ended["result"]["content"][0]["text"], "ada", "{ended}");
}

fn token(project: &Project, name: &str) -> String {
    let output = project.run(&["token", "add", name]);
    format!("Bearer {}", String::from_utf8_lossy(&output.stdout).trim())
}

#[test]
fn the_tasks_of_one_caller_do_not_exist_for_another_nor_for_a_client_that_knows_none() {
    let gate = Gate::start();
    let project = project(&gate);
    let (ann, ben) = (token(&project, "ann"), token(&project, "ben"));
    let mut server = project.serve();
    let begun = ask_as(&server, Some(&ann), &message(1, "tools/call", execute()));
    let id = task_id(&begun["result"]);
    let about = |method: &str| {
        let params = json!({"taskId": id, "inputResponses": {}});
        message(1, method, params)
    };
    let refused = |server: &Server| {
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            let answer = ask_as(server, Some(&ben), &about(method));
            assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
        }
    };
    refused(&server);
    let mut plain = modern(1, "tasks/get", json!({"taskId": id}));
    plain["params"]["taskId"] = json!(id);
    assert_eq!(ask_as(&server, Some(&ann), &plain)["error"]["code"], -32021);
    // Nor after a restart.
    server.kill();
    let server = project.serve();
    refused(&server);
    let state = ask_as(&server, Some(&ann), &about("tasks/get"));
    assert_eq!(state["result"]["status"], "working", "{state}");
    gate.go.send(()).unwrap();
    gate.go.send(()).unwrap();
}

/// The answer of a call of a task, as a client gets it with nothing around it.
fn answered(server: &Server, method: &str, id: &str) -> Value {
    ask_as(server, None, &message(1, method, json!({"taskId": id, "inputResponses": {}})))
}

#[test]
fn a_plan_is_there_for_the_next_server_and_an_unfinished_one_says_to_plan_anew() {
    let gate = Gate::start();
    let project = project(&gate);
    let mut server = project.serve();
    let script = "sdk.tools.look({ place = \"hold\" })\n\
                  sdk.tools.visit({ place = \"end\" })\nreturn 1";
    let plan = json!({"name": "execute", "arguments": {"script": script, "plan": true}});
    let made = task_id(&ask(&server, "tools/call", plan.clone()));
    gate.go.send(()).unwrap();
    let live = until(&server, &made, "completed")["result"]["structuredContent"].clone();
    let unfinished = task_id(&ask(&server, "tools/call", plan));
    let came: Vec<String> = [gate.came.recv_timeout(PATIENCE), gate.came.recv_timeout(PATIENCE)]
        .map(Result::unwrap)
        .into();
    assert_eq!(came, ["/hold", "/hold"]);
    server.kill();
    gate.go.send(()).unwrap();
    let server = project.serve();
    let later = state(&server, &made);
    assert_eq!(later["status"], "completed", "{later}");
    let shown = &later["result"]["structuredContent"];
    for field in ["plan", "calls", "how"] {
        assert!(live[field] != Value::Null, "{live}");
        assert_eq!(shown[field], live[field], "{later}");
    }
    let later = state(&server, &unfinished);
    assert_eq!(later["result"]["isError"], true, "{later}");
    let said = later["result"]["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("has to be planned anew"), "{said}");
    assert_eq!(state(&server, &unfinished)["status"], "completed");
}

/// A project where somebody has to allow each visit.
fn asking_project(gate: &Gate, by: &str) -> Project {
    let rule = "[[policy.rules]]\ntools = [\"visit\"]\naction = \"approve\"\n";
    let config = format!("{rule}[approvals]\nby = \"{by}\"\n{}", visiting(gate));
    Project::new(&[("moonlark.toml", &config), VISITS[0], VISITS[1]])
}

/// Takes long, and then needs an approval.
fn held_visit() -> Value {
    let script = "sdk.tools.look({ place = \"hold\" })\n\
                  sdk.tools.visit({ place = \"end\" })\nreturn { done = true }";
    json!({"name": "execute", "arguments": {"script": script}})
}

#[test]
fn a_task_that_waits_for_the_operator_is_not_over_and_ends_as_its_run_does() {
    let gate = Gate::start();
    let project = asking_project(&gate, "operator");
    let mut server = project.serve();
    let id = task_id(&ask(&server, "tools/call", held_visit()));
    gate.go.send(()).unwrap();
    let waiting = eventually("the wait for a decision", || {
        let state = state(&server, &id);
        assert_eq!(state["status"], "working", "{state}");
        let said = state["statusMessage"].as_str().map(str::to_owned);
        said.ok_or_else(|| state.to_string())
    });
    let approval = waiting.rsplit(' ').next().unwrap().to_owned();
    let refused = answered(&server, "tasks/cancel", &id);
    let said = refused["error"]["data"]["hint"].as_str().unwrap_or_default();
    assert!(said.contains(&format!("approvals deny {approval}")), "{refused}");
    let output = project.run(&["approvals", "approve", &approval]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let ended = until(&server, &id, "completed");
    assert_eq!(ended["result"]["structuredContent"], json!({"done": true}), "{ended}");
    server.kill();
    let later = state(&project.serve(), &id);
    assert_eq!(later["result"]["structuredContent"], json!({"done": true}), "{later}");
}

#[test]
fn a_task_that_asked_for_an_approval_asks_again_after_a_restart() {
    let gate = Gate::start();
    let project = asking_project(&gate, "caller");
    let mut server = project.serve();
    // Should the answer be lost, it is looked at again.
    gate.go.send(()).unwrap();
    gate.go.send(()).unwrap();
    let slow = held_visit()["arguments"]["script"].as_str().unwrap().to_owned();
    let slow = format!("sleep(1)\n{slow}");
    let call = json!({"name": "execute", "arguments": {"script": slow}});
    let id = task_id(&ask(&server, "tools/call", call));
    until(&server, &id, "input_required");
    server.kill();
    let server = project.serve();
    let asked = until(&server, &id, "input_required");
    let (key, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create", "{asked}");
    let answer = json!({ key.as_str(): {"action": "accept", "content": {"approve": true}} });
    ask(&server, "tasks/update", json!({"taskId": id, "inputResponses": answer}));
    let ended = until(&server, &id, "completed");
    assert_eq!(ended["result"]["structuredContent"], json!({"done": true}), "{ended}");
}

#[test]
fn a_task_that_another_process_goes_on_with_is_neither_ended_nor_cancelled_by_asking_here() {
    let gate = Gate::start();
    let project = project(&gate);
    let (here, elsewhere) = (project.serve(), project.serve());
    let id = task_id(&ask(&elsewhere, "tools/call", execute()));
    assert_eq!(gate.came.recv_timeout(PATIENCE).unwrap(), "/one");
    assert_eq!(gate.came.recv_timeout(PATIENCE).unwrap(), "/hold");
    for _ in 0..3 {
        assert_eq!(state(&here, &id)["status"], "working");
    }
    for method in ["tasks/cancel", "tasks/update"] {
        let refused = answered(&here, method, &id);
        let said = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(said.contains("goes on in another process"), "{method}: {refused}");
    }
    assert_eq!(state(&elsewhere, &id)["status"], "working");
    gate.go.send(()).unwrap();
    for server in [&elsewhere, &here] {
        let ended = until(server, &id, "completed");
        assert_eq!(ended["result"]["structuredContent"], json!({"done": true}), "{ended}");
    }
    assert_eq!(gate.came.recv_timeout(PATIENCE).unwrap(), "/end");
    assert!(gate.came.try_recv().is_err(), "something was done twice");
}

#[test]
fn a_request_about_a_task_that_lacks_a_field_is_told_which() {
    let gate = Gate::start();
    let project = project(&gate);
    let server = project.serve();
    for (method, params, field) in [
        ("tasks/get", json!({}), "params.taskId"),
        ("tasks/update", json!({"taskId": "run-1"}), "params.inputResponses"),
        ("tasks/update", json!({"taskId": "run-1", "inputResponses": []}), "params.inputResponses"),
    ] {
        let refused = ask_as(&server, None, &message(1, method, params));
        assert_eq!(refused["error"]["code"], -32602, "{method}: {refused}");
        let said = refused["error"]["message"].as_str().unwrap();
        assert!(said.contains(field), "{method}: {said}");
    }
}
