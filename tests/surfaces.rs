//! REST beyond the plain call: streams, its own description, load, clients that
//! go away.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::harness::{Project, wait_for};

const STEPS: &str = r#"
tool = { name = "steps", description = "Takes steps", parameters = { { name = "count", type = "integer", default = 2 } } }
function tool.execute(params, context)
    for step = 1, params.count do
        sleep(0.001)
        context.progress(step, params.count, "step " .. step)
    end
    log.warn("tired", { legs = 2 })
    print("done", params.count)
    return { steps = params.count }
end
"#;

/// The events of a stream, as (event, data).
fn events(body: &str) -> Vec<(String, Value)> {
    body.split("\n\n")
        .filter_map(|block| {
            let event = block.lines().find_map(|line| line.strip_prefix("event: "))?;
            let data = block.lines().find_map(|line| line.strip_prefix("data: "))?;
            Some((event.to_owned(), serde_json::from_str(data).unwrap()))
        })
        .collect()
}

#[test]
fn a_call_streams_its_progress_its_log_and_its_result() {
    let project = Project::new(&[("tools/steps.lua", STEPS)]);
    let server = project.serve();
    let stream = |body: &[u8]| {
        let headers = [("Content-Type", "application/json"), ("Accept", "text/event-stream")];
        let answer = server.request("POST", "/tools/steps", &headers, body);
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, Some("text/event-stream"))
        );
        events(&answer.text())
    };
    let event = |kind: &str, data: Value| (kind.to_owned(), data);
    assert_eq!(
        stream(b"{}"),
        [
            event("progress", json!({"done": 1.0, "total": 2.0, "message": "step 1"})),
            event("progress", json!({"done": 2.0, "total": 2.0, "message": "step 2"})),
            event("log", json!({"level": "warn", "message": "tired", "fields": {"legs": 2}})),
            event("log", json!({"level": "info", "message": "done\t2"})),
            event("result", json!({"result": {"steps": 2}})),
        ]
    );
    assert_eq!(
        stream(b"{\"count\": \"x\"}"),
        [event(
            "result",
            json!({"error": {"code": "bad_request", "message": "parameter 'count' must be integer, got string"}})
        )]
    );
}

#[test]
fn the_server_describes_itself() {
    let project = Project::new(&[("tools/steps.lua", STEPS)]);
    let server = project.serve();
    let health = server.get("/health").json();
    assert_eq!(health["status"], json!("ok"));
    let list = server.get("/tools/list").json();
    assert_eq!(
        list["tools"][3],
        json!({
            "name": "steps", "description": "Takes steps", "builtin": false,
            "parameters": {"type": "object", "properties": {"count": {"type": "integer", "default": 2}}, "additionalProperties": false},
        })
    );
    let names: Vec<&Value> =
        list["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["search", "get_document", "list_sources", "steps"]);
    let document = server.get("/openapi.json").json();
    assert_eq!(document["openapi"], json!("3.1.0"));
    let operation = &document["paths"]["/tools/steps"]["post"];
    assert_eq!(
        operation["requestBody"]["content"]["application/json"]["schema"],
        list["tools"][3]["parameters"]
    );
    for path in ["/health", "/tools/list", "/tools/search"] {
        assert!(document["paths"][path].is_object(), "{path}");
    }
}

#[test]
fn too_many_calls_at_once_are_refused_and_a_client_that_leaves_frees_its_place() {
    let project = Project::new(&[
        (
            "tools/wait.lua",
            "tool = { name = 'wait', description = '', parameters = {} }\nfunction tool.execute() log.info('waiting') while true do pcall(sleep, 1) end end",
        ),
        (
            "tools/quick.lua",
            "tool = { name = 'quick', description = '', parameters = {} }\nfunction tool.execute() return 1 end",
        ),
        ("moonlark.toml", "[limits]\nruns = 1\nqueued = 0\ntimeout = 3600\n"),
    ]);
    let server = project.serve();
    let mut client = TcpStream::connect(&server.address).unwrap();
    client
        .write_all(b"POST /tools/wait HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        .unwrap();
    server.log.wait_for("waiting");
    let refused =
        server.request("POST", "/tools/quick", &[("Content-Type", "application/json")], b"{}");
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(refused.json()["error"]["code"], json!("rate_limited"));
    // The caller goes away in the middle of it.
    drop(client);
    wait_for("a free slot", || server.post("quick", &json!({})).0 == 200);
}

#[test]
fn a_slow_client_does_not_hold_up_the_others() {
    let project = Project::new(&[("tools/steps.lua", STEPS)]);
    let server = project.serve();
    let mut slow = TcpStream::connect(&server.address).unwrap();
    slow.write_all(
        b"POST /tools/steps HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{",
    )
    .unwrap();
    assert_eq!(server.post("steps", &json!({})).0, 200);
    slow.write_all(b"}").unwrap();
    drop(slow);
    // Half a request, then nothing: the server is still there.
    let mut half = TcpStream::connect(&server.address).unwrap();
    half.write_all(b"POST /tools/st").unwrap();
    half.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = half.read(&mut [0; 100]);
    assert_eq!(server.post("steps", &json!({})).0, 200);
}
