//! What people and programs get wrong: a Problem each, never a crash, and never
//! the loss of another tool.

use serde_json::{Value, json};

use crate::harness::Project;

const ECHO: &str = "tool = { name = 'echo', description = 'Echo', parameters = { { name = 'message', type = 'string', required = true } } }\nfunction tool.execute(params) return { echo = params.message } end";

/// One raw request: status and `error.code: error.message`.
fn refused(
    server: &crate::harness::Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> String {
    let answer = server.request(method, path, headers, body);
    let json: Value = answer.json();
    format!(
        "{} {}: {}",
        answer.status,
        json["error"]["code"].as_str().unwrap_or("?"),
        json["error"]["message"].as_str().unwrap_or("?")
    )
}

#[test]
fn a_bad_http_request_is_answered_with_a_problem() {
    let project = Project::new(&[
        ("tools/echo.lua", ECHO),
        ("moonlark.toml", "[limits]\nrequest_body = \"1KB\"\n"),
    ]);
    let mut server = project.serve();
    let json_type: &[(&str, &str)] = &[("Content-Type", "application/json")];
    let large = format!("{{\"message\": \"{}\"}}", "x".repeat(5000));
    let deep = "[".repeat(1000);
    for (method, path, headers, body, expected) in [
        (
            "POST",
            "/tools/echo",
            json_type,
            b"{" as &[u8],
            "400 bad_request: invalid JSON: EOF while parsing an object at line 1 column 1",
        ),
        (
            "POST",
            "/tools/echo",
            json_type,
            b"[1]",
            "400 bad_request: the request body must be a JSON object, got array",
        ),
        (
            "POST",
            "/tools/echo",
            json_type,
            b"{\"message\": \"\xff\"}",
            "400 bad_request: invalid JSON: invalid unicode code point at line 1 column 14",
        ),
        (
            "POST",
            "/tools/echo",
            json_type,
            b"{\"message\": 18446744073709551615}",
            "400 bad_request: invalid JSON: the integer 18446744073709551615 does not fit 64 bits at line 1 column 32",
        ),
        (
            "POST",
            "/tools/echo",
            json_type,
            deep.as_bytes(),
            "400 bad_request: the JSON is nested deeper than 128 levels",
        ),
        (
            "POST",
            "/tools/echo",
            json_type,
            large.as_bytes(),
            "413 too_large: the request body is larger than 1 KB",
        ),
        (
            "POST",
            "/tools/echo",
            &[("Content-Type", "text/plain")],
            b"{}",
            "415 unsupported_media_type: the request body must be JSON, not text/plain",
        ),
        (
            "POST",
            "/tools/echo",
            &[],
            b"{}",
            "415 unsupported_media_type: the request body must be JSON; no Content-Type was sent",
        ),
        (
            "POST",
            "/tools/echo",
            json_type,
            b"",
            "400 bad_request: missing required parameter: message",
        ),
        (
            "POST",
            "/tools/nope",
            json_type,
            b"{}",
            "404 not_found: no tool registered with name: nope",
        ),
        (
            "POST",
            "/tools/%2e%2e%2fetc",
            json_type,
            b"{}",
            "404 not_found: no tool registered with name: ../etc",
        ),
        (
            "GET",
            "/tools/echo",
            &[],
            b"",
            "405 method_not_allowed: the tool echo is called with POST",
        ),
        (
            "DELETE",
            "/tools/echo",
            &[],
            b"",
            "405 method_not_allowed: /tools/echo does not answer to DELETE",
        ),
        ("GET", "/nowhere", &[], b"", "404 not_found: no route /nowhere"),
        (
            "POST",
            "/tools/echo",
            &[("Content-Type", "application/json"), ("Host", "evil.example")],
            b"{}",
            "403 forbidden: the Host evil.example is not served here",
        ),
        (
            "POST",
            "/tools/echo",
            &[("Content-Type", "application/json"), ("Origin", "https://evil.example")],
            b"{}",
            "403 forbidden: pages of https://evil.example may not call this server",
        ),
        (
            "POST",
            "/mcp",
            &[("Content-Type", "application/json"), ("Origin", "https://evil.example")],
            b"{}",
            "403 forbidden: pages of https://evil.example may not call this server",
        ),
    ] {
        assert_eq!(refused(&server, method, path, headers, body), expected, "{method} {path}");
    }
    assert!(server.is_alive());
    assert_eq!(
        server.post("echo", &json!({"message": "still here"})),
        (200, json!({"result": {"echo": "still here"}}))
    );
}

#[test]
fn garbage_on_stdin_is_answered_or_passed_over() {
    let project = Project::new(&[("tools/echo.lua", ECHO)]);
    let mut client = project.stdio();
    for garbage in [
        b"\n" as &[u8],
        b"this is not JSON\n",
        b"{\"jsonrpc\": \"2.0\"}\n",
        b"[]\n",
        b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":900,\"method\":\"no/such/method\",\"params\":{}}\n",
        b"\xff\xfe\n",
        b"null\n",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":12345}}\n",
    ] {
        client.send_raw(garbage);
    }
    let answer = client
        .request("tools/call", json!({"name": "echo", "arguments": {"message": "still here"}}));
    assert_eq!(answer["result"]["structuredContent"], json!({"echo": "still here"}));
    assert_eq!(client.close(), 0);
}

#[test]
fn a_broken_script_is_reported_and_the_others_work() {
    let project = Project::new(&[
        ("tools/a_syntax.lua", "tool = {\n  name = 'x'\n  description\n}"),
        ("tools/b_no_table.lua", "local x = 1"),
        ("tools/c_no_execute.lua", "tool = { name = 'c', parameters = {} }"),
        ("tools/d_loops.lua", "while true do end"),
        ("tools/e_bad_name.lua", "tool = { name = 'no spaces', parameters = {}, execute = print }"),
        ("tools/f_typo.lua", "tool = { name = 'f', paramters = {}, execute = print }"),
        ("tools/g_operators.lua", "local bits = 5 & 3"),
        ("tools/h_network.lua", "http.get('https://example.com')"),
        (
            "tools/i_schema.lua",
            "tool = { name = 'i', parameters = { type = 'object', properties = { x = { type = 'nonsense' } } }, execute = print }",
        ),
        ("tools/echo.lua", ECHO),
        ("tools/echo_again.lua", ECHO),
        ("moonlark.toml", "[limits]\nload = 2\n"),
    ]);
    std::fs::write(project.path("tools/j_bytes.lua"), b"tool = {}\n\xff").unwrap();
    std::fs::write(project.path("tools/k_huge.lua"), "-".repeat(300 * 1024)).unwrap();
    let output = project.run(&["check"]);
    let text = String::from_utf8_lossy(&output.stderr);
    for expected in [
        "error[bad_script]: Expected ',' after table constructor element\n  --> tools/a_syntax.lua:3",
        "error[bad_script]: the script defines no global table named tool\n  --> tools/b_no_table.lua\nhint: start it with: tool = {",
        "error[bad_script]: tool.execute is not a function\n  --> tools/c_no_execute.lua",
        "error[timeout]: the script did not finish loading in time\n  --> tools/d_loops.lua\nhint: move what takes long into tool.execute, which runs when it is called, or raise limits.load",
        "error[bad_script]: \"no spaces\" cannot be the name of a tool\n  --> tools/e_bad_name.lua",
        "error[bad_script]: tool.paramters means nothing\n  --> tools/f_typo.lua\nhint: did you mean tool.parameters?",
        "--> tools/g_operators.lua:1\nhint: bit operators are functions here: bit32.band",
        "error[denied]: http.get may not reach example.com\n  --> tools/h_network.lua:1\nhint: while a script loads it can only read its own files: move this into tool.execute",
        "--> tools/i_schema.lua",
        "error[bad_script]: tools/echo.lua and tools/echo_again.lua both define a tool named echo; the second is echo_2\n  --> tools/echo_again.lua\nhint: rename one of them",
        "error[bad_script]: the script is not UTF-8 text\n  --> tools/j_bytes.lua:2",
        "error[bad_script]: the script is larger than 256 KB\n  --> tools/k_huge.lua",
        "13 scripts checked, 12 errors",
    ] {
        assert!(text.contains(expected), "not there: {expected}\n{text}");
    }
    assert_eq!(output.status.code(), Some(1));
    let server = project.serve();
    for tool in ["echo", "echo_2"] {
        assert_eq!(
            server.post(tool, &json!({"message": "x"})),
            (200, json!({"result": {"echo": "x"}}))
        );
    }
}

#[test]
fn every_mistake_in_the_configuration_is_reported_at_once() {
    let project = Project::new(&[
        ("tools/echo.lua", ECHO),
        (
            "moonlark.toml",
            "[server]\nprt = 7331\n\n[limits]\ntimeout = \"soon\"\n\n[tools.script.jira]\npath = \"tools/jira.lua\"\nrate = \"10/fortnight\"\n",
        ),
    ]);
    let output = project.run(&["config", "check"]);
    let text = String::from_utf8_lossy(&output.stderr);
    let places: Vec<&str> =
        text.lines().filter(|line| line.contains("-->")).map(str::trim).collect();
    assert_eq!(
        places,
        ["--> moonlark.toml:2:1", "--> moonlark.toml:5:11", "--> moonlark.toml:9:1"],
        "{text}"
    );
    for part in ["port", "limits.timeout", "tools.script.jira.rate"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn wrong_usage_and_an_empty_folder_say_what_to_do() {
    let project = Project::new(&[]);
    assert_eq!(project.run(&["no-such-command"]).status.code(), Some(2));
    let output = project.run(&["serve", "--port", "0"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error[bad_config]: there are no tools: the folder tools/ has no .lua or .luau file, extensions/ no .star file, and no upstream server or API is configured\nhint: run `moonlark tool init hello` to write one, `moonlark serve --mcp NAME=COMMAND` to use a server's, `moonlark serve NAME=openapi.yaml` for an API's, or `moonlark demo` for a tour\n"
    );
    let output = project.run(&["serve", "--host", "0.0.0.0"]);
    assert_eq!(output.status.code(), Some(1));
}
