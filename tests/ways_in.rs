//! One table of calls, driven through every way in: the outcomes are the same.

use serde_json::{Value, json};

use crate::harness::Project;
use crate::jira;

const ECHO: &str = r#"
tool = {
    name = "echo",
    description = "Echoes back the input message",
    parameters = {
        { name = "message", type = "string", required = true },
        { name = "loud", type = "boolean", default = false },
        { name = "times", type = "integer", minimum = 1, maximum = 3, default = 1 },
        { name = "style", type = "string", enum = { "plain", "fancy" }, default = "plain" },
        { name = "extra", type = "object", properties = { { name = "deep", type = "number", default = 1.5 } } },
    },
}
function tool.execute(params, context)
    local said = string.rep(params.message, params.times)
    return { echo = if params.loud then said:upper() else said, style = params.style, extra = params.extra }
end
"#;

/// Returns its argument, to see what survives the way in and out.
const MIRROR: &str = r#"
tool = { name = "mirror", description = "", parameters = { type = "object", properties = { value = {} } } }
function tool.execute(params) return params.value end
"#;

const FAIL: &str = r#"
tool = {
    name = "fail", description = "",
    parameters = { { name = "how", type = "string", required = true } },
}
local ways = {}
function ways.error() error("customer not found") end
function ways.plain() error("Jira API returned 403: Forbidden", 0) end
function ways.table() error({ code = "not_found", message = "no such thing" }) end
function ways.index() local t = nil; return t.x end
function ways.slow() while true do end end
function ways.sleep() sleep(100) end
function ways.denied() http.get("http://127.0.0.1:1/") end
function ways.env() return env.get("HOME") end
function ways.call(context) return context.call("echo", { message = "x" }) end
function ways.search(context) return context.search("x") end
function ways.cycle() local t = {}; t.self = t; return t end
function ways.func() return { a = { print } } end
function ways.mixed() return { 1, 2, x = 3 } end
function ways.nan() return { n = 0 / 0 } end
function ways.bytes() return { raw = "\255" } end
function ways.secret(context) error("token is " .. context.config.api_token) end
function ways.leak(context) return { said = context.config.api_token } end
function tool.execute(params, context) return ways[params.how](context) end
"#;

/// The same three tools in Starlark.
const STAR: &str = r#"
def echo(params):
    said = params["message"] * params["times"]
    answer = {"echo": said.upper() if params["loud"] else said, "style": params["style"]}
    if "extra" in params:
        answer["extra"] = params["extra"]
    return answer

def mirror(params):
    return params.get("value")

def spin():
    for _ in range(2000000000):
        for _ in range(2000000000):
            pass

def cycle():
    value = {}
    value["self"] = value
    return value

def fail_somehow(params, context):
    how = params["how"]
    if how == "error":
        fail("customer not found")
    if how == "slow":
        spin()
    if how == "sleep":
        sleep(100)
    if how == "denied":
        http.get("http://127.0.0.1:1/")
    if how == "env":
        return env.get("HOME")
    if how == "call":
        return context.call("echo", {"message": "x"})
    if how == "search":
        return context.search("x")
    if how == "cycle":
        return cycle()
    if how == "func":
        return {"a": [print]}
    if how == "nan":
        return {"n": float("nan")}
    if how == "bytes":
        return {"raw": base64.decode("/w==")}
    if how == "secret":
        fail("token is " + context.config["api_token"])
    return {"said": context.config["api_token"]}

def describe_extension():
    deep = ToolParameter("deep", "number", default = 1.5)
    return Extension(name = "star", tools = [
        Tool("star_echo", "Echoes back the input message", [
            ToolParameter("message", "string", True),
            ToolParameter("loud", "boolean", default = False),
            ToolParameter("times", "integer", default = 1, minimum = 1, maximum = 3),
            ToolParameter("style", "string", default = "plain", enum = ["plain", "fancy"]),
            ToolParameter("extra", "object", properties = [deep]),
        ], echo),
        Tool("star_mirror", "", {"type": "object", "properties": {"value": {}}}, mirror),
        Tool("star_fail", "", [ToolParameter("how", "string", True)], fail_somehow),
    ])
"#;

const CONFIG: &str = r#"
[tools.script.create_jira_ticket]
path = "tools/create-jira-ticket.lua"
timeout = 30
url = "http://127.0.0.1:PORT"
email = "bot@company.com"
api_token = "${JIRA_API_TOKEN:-jira-secret-1}"
allow = ["net:127.0.0.1:PORT"]

[tools.script.fail]
path = "tools/fail.lua"
timeout = 0.5
api_token = "hunter2hunter2"

[extensions.script.star]
timeout = 0.5
api_token = "hunter2hunter2"
"#;

/// The same for the guide's tool of the same name, with a search to call.
const GUIDE_CONFIG: &str = r#"
[tools.script.create_jira_ticket]
path = "tools/create-jira-ticket.lua"
timeout = 30
jira_url = "http://127.0.0.1:PORT"
jira_project = "ENG"
jira_token = "jira-secret-1"
allow = ["net:127.0.0.1:PORT"]
"#;

const SEARCH: &str = r#"
tool = {
    name = "search", description = "Finds three things",
    parameters = {
        { name = "query", type = "string", required = true }, { name = "limit", type = "integer" },
        { name = "mode", type = "string" },
    },
}
function tool.execute(params)
    return {
        { title = "Refresh tokens", score = 0.918, snippet = "How they expire", source_url = "https://docs.example/1" },
        { title = "Log-in", score = 0.5 },
    }
end
"#;

enum Expected {
    Result(Value),
    /// Code, message, and the hint where it matters.
    Problem(&'static str, &'static str),
}
use Expected::{Problem, Result};

type Row = (&'static str, Value, Expected);

/// Every row, and for the tools that are there in Starlark too, what their
/// twins answer: the same, but for places and names.
fn table() -> Vec<Row> {
    let mut rows = lua_table();
    rows.extend(lua_table().into_iter().filter_map(twin));
    rows
}

fn twin((tool, args, expected): Row) -> Option<Row> {
    let twin = match tool {
        "echo" => "star_echo",
        "mirror" => "star_mirror",
        "fail" => "star_fail",
        _ => return None,
    };
    // What only Lua has: capitals of ASCII alone, errors without a place or
    // that are tables, indexing nil, tables that are lists and objects at once.
    let only_lua = ["plain", "table", "index", "mixed"];
    if args["how"].as_str().is_some_and(|how| only_lua.contains(&how)) || args["times"] == 2 {
        return None;
    }
    let expected = match expected {
        Result(value) => Result(value),
        Problem(code, message) => Problem(code, in_starlark(message, &args).leak()),
    };
    Some((twin, args, expected))
}

fn in_starlark(message: &str, args: &Value) -> String {
    let message = message.replace("tool 'fail'", "tool 'star_fail'").replace("a table", "a value");
    let Some(rest) = message.strip_prefix("tools/fail.lua:") else { return message };
    // The line after the one that asks for this way to fail.
    let asks = format!("if how == {}:", args["how"]);
    let line = STAR.trim_start().lines().position(|line| line.trim() == asks).unwrap() + 2;
    format!("extensions/star.star:{line}:{}", rest.split_once(':').unwrap().1)
}

fn lua_table() -> Vec<Row> {
    vec![
        ("echo", json!({"message": "hi"}), Result(json!({"echo": "hi", "style": "plain"}))),
        (
            "echo",
            json!({"message": "hé🌙", "loud": true, "times": 2}),
            Result(json!({"echo": "Hé🌙Hé🌙", "style": "plain"})),
        ),
        (
            "echo",
            json!({"message": "hi", "extra": {}}),
            Result(json!({"echo": "hi", "style": "plain", "extra": {"deep": 1.5}})),
        ),
        ("echo", json!({}), Problem("bad_request", "missing required parameter: message")),
        (
            "echo",
            json!({"message": 5}),
            Problem("bad_request", "parameter 'message' must be string, got integer"),
        ),
        (
            "echo",
            json!({"message": null}),
            Problem("bad_request", "parameter 'message' must be string, got null"),
        ),
        (
            "echo",
            json!({"message": "x", "times": 9}),
            Problem("bad_request", "parameter 'times' must be at most 3"),
        ),
        (
            "echo",
            json!({"message": "x", "times": 1.5}),
            Problem("bad_request", "parameter 'times' must be integer, got number"),
        ),
        (
            "echo",
            json!({"message": "x", "style": "odd"}),
            Problem("bad_request", "parameter 'style' must be one of plain, fancy, got odd"),
        ),
        (
            "echo",
            json!({"message": "x", "extra": {"deep": "y"}}),
            Problem("bad_request", "parameter 'extra.deep' must be number, got string"),
        ),
        (
            "echo",
            json!({"mesage": "x"}),
            Problem(
                "bad_request",
                "unknown parameter: mesage (did you mean message?); missing required parameter: message",
            ),
        ),
        (
            "mirror",
            json!({"value": {"a": null, "b": [], "c": {}, "d": [null, 1], "e": ""}}),
            Result(json!({"a": null, "b": [], "c": {}, "d": [null, 1], "e": ""})),
        ),
        (
            "mirror",
            json!({"value": [9007199254740993i64, -9223372036854775808i64, 1e300, 0.1, true]}),
            Result(json!([9007199254740993i64, -9223372036854775808i64, 1e300, 0.1, true])),
        ),
        ("mirror", json!({"value": "a\u{0}b\n\u{202e}"}), Result(json!("a\u{0}b\n\u{202e}"))),
        ("mirror", json!({"value": 9007199254740993i64}), Result(json!(9007199254740993i64))),
        ("mirror", json!({"value": null}), Result(json!(null))),
        ("mirror", json!({}), Result(json!(null))),
        (
            "fail",
            json!({"how": "error"}),
            Problem("tool_error", "tools/fail.lua:6: customer not found"),
        ),
        (
            "fail",
            json!({"how": "plain"}),
            Problem("tool_error", "Jira API returned 403: Forbidden"),
        ),
        ("fail", json!({"how": "table"}), Problem("tool_error", "tools/fail.lua:8: no such thing")),
        (
            "fail",
            json!({"how": "index"}),
            Problem("tool_error", "tools/fail.lua:9: attempt to index nil with 'x'"),
        ),
        (
            "fail",
            json!({"how": "slow"}),
            Problem("timeout", "tool 'fail' timed out after 0.5 seconds"),
        ),
        (
            "fail",
            json!({"how": "sleep"}),
            Problem("timeout", "tool 'fail' timed out after 0.5 seconds"),
        ),
        (
            "fail",
            json!({"how": "denied"}),
            Problem("denied", "tools/fail.lua:12: http.get may not reach 127.0.0.1:1"),
        ),
        (
            "fail",
            json!({"how": "env"}),
            Problem("denied", "tools/fail.lua:13: env.get may not read the variable HOME"),
        ),
        (
            "fail",
            json!({"how": "call"}),
            Problem("denied", "tools/fail.lua:14: the script may not call echo"),
        ),
        (
            "fail",
            json!({"how": "search"}),
            Problem("unavailable", "tools/fail.lua:15: search: there is no knowledge base yet"),
        ),
        (
            "fail",
            json!({"how": "cycle"}),
            Problem("tool_error", "result.self refers back to a table that contains it"),
        ),
        (
            "fail",
            json!({"how": "func"}),
            Problem("tool_error", "result.a[0] is a function, which is not a value"),
        ),
        (
            "fail",
            json!({"how": "mixed"}),
            Problem("tool_error", "result has list items and also the key x"),
        ),
        (
            "fail",
            json!({"how": "nan"}),
            Problem("tool_error", "result.n is NaN, which JSON cannot hold"),
        ),
        (
            "fail",
            json!({"how": "bytes"}),
            Problem("tool_error", "result.raw is not UTF-8 text, which JSON cannot hold"),
        ),
        (
            "fail",
            json!({"how": "secret"}),
            Problem("tool_error", "tools/fail.lua:21: token is [redacted:api_token]"),
        ),
        ("fail", json!({"how": "leak"}), Result(json!({"said": "[redacted:api_token]"}))),
        (
            "create_jira_ticket",
            json!({"title": "Fix auth", "body": "It breaks", "enrich": false}),
            Result(json!({
                "success": true, "ticket_key": "ENG-1234", "url": "http://127.0.0.1:PORT/browse/ENG-1234",
                "message": "Created ENG-1234: Fix auth",
            })),
        ),
        (
            "create_jira_ticket",
            json!({"title": "Fix auth", "body": "x", "project": "NOPE", "enrich": false}),
            Result(json!({
                "success": false, "error": "Jira API returned 403", "details": "{\"errorMessages\":[\"no such project\"]}",
            })),
        ),
        (
            "create_jira_ticket",
            json!({"title": "Fix auth", "body": "x"}),
            Problem(
                "unavailable",
                "tools/create-jira-ticket.lua:63: search: there is no knowledge base yet",
            ),
        ),
        (
            "create_jira_ticket",
            json!({"title": "x"}),
            Problem("bad_request", "missing required parameter: body"),
        ),
        (
            "create_jira_ticket",
            json!({"title": "x", "body": "y", "priority": "Urgent"}),
            Problem(
                "bad_request",
                "parameter 'priority' must be one of Lowest, Low, Medium, High, Highest, got Urgent",
            ),
        ),
        ("nope", json!({}), Problem("not_found", "no tool registered with name: nope")),
        ("ech", json!({}), Problem("not_found", "no tool registered with name: ech")),
    ]
}

/// What a way in answered: `{"result": …}` or `{"error": {code, message}}`.
fn check(way: &str, tool: &str, args: &Value, expected: &Expected, answer: &Value, port: u16) {
    let context = || format!("{way}: {tool} {args}");
    match expected {
        Result(result) => {
            let result: Value =
                serde_json::from_str(&result.to_string().replace("PORT", &port.to_string()))
                    .unwrap();
            assert_eq!(answer["result"], result, "{}: {answer}", context());
        }
        Problem(code, message) => {
            assert_eq!(answer["error"]["code"], json!(code), "{}: {answer}", context());
            assert_eq!(answer["error"]["message"], json!(message), "{}", context());
        }
    }
}

fn project(port: u16) -> Project {
    let jira =
        std::fs::read_to_string(crate::harness::repo().join("tests/seeds/create-jira-ticket.lua"))
            .unwrap();
    Project::new(&[
        ("moonlark.toml", &CONFIG.replace("PORT", &port.to_string())),
        ("tools/echo.lua", ECHO),
        ("tools/mirror.luau", MIRROR),
        ("tools/fail.lua", FAIL.trim_start()),
        ("tools/create-jira-ticket.lua", &jira),
        ("extensions/star.star", STAR.trim_start()),
    ])
}

/// An MCP answer in REST's words.
fn unwrap_mcp(answer: &Value) -> Value {
    if let Some(error) = answer.get("error") {
        assert_eq!(error["code"], json!(-32602), "{answer}");
        return json!({ "error": error["data"] });
    }
    let result = &answer["result"];
    if result["isError"] == json!(true) {
        return result["structuredContent"].clone();
    }
    json!({ "result": result["structuredContent"] })
}

#[test]
fn rest_answers_as_the_table_says() {
    let (port, seen) = jira::start();
    let project = project(port);
    let server = project.serve();
    for (tool, args, expected) in table() {
        let (status, answer) = server.post(tool, &args);
        check("REST", tool, &args, &expected, &answer, port);
        let wanted = match expected {
            Result(_) => 200,
            Problem("bad_request", _) => 400,
            Problem("not_found", _) => 404,
            Problem("timeout", _) => 408,
            Problem("unavailable", _) => 503,
            Problem(..) => 500,
        };
        assert_eq!(status, wanted, "{tool} {args}");
    }
    let first = &seen.lock().unwrap()[0];
    assert_eq!(first["authorization"], json!("Basic Ym90QGNvbXBhbnkuY29tOmppcmEtc2VjcmV0LTE="));
    assert_eq!(first["fields"]["priority"], json!({"name": "Medium"}));
    assert_eq!(
        first["fields"]["description"]["content"][0]["content"][0]["text"],
        json!("It breaks")
    );
}

#[test]
fn mcp_over_http_answers_as_the_table_says() {
    let (port, _) = jira::start();
    let project = project(port);
    let server = project.serve();
    for (tool, args, expected) in table() {
        let answer = server.mcp("tools/call", json!({"name": tool, "arguments": args}));
        check("MCP over HTTP", tool, &args, &expected, &unwrap_mcp(&answer), port);
    }
}

#[test]
fn mcp_over_stdio_answers_as_the_table_says() {
    let (port, _) = jira::start();
    let project = project(port);
    let mut client = project.stdio();
    for (tool, args, expected) in table() {
        let answer = client.request("tools/call", json!({"name": tool, "arguments": args}));
        check("MCP over stdio", tool, &args, &expected, &unwrap_mcp(&answer), port);
    }
    assert_eq!(client.close(), 0);
}

#[test]
fn the_command_line_answers_as_the_table_says() {
    let (port, _) = jira::start();
    let project = project(port);
    for (tool, args, expected) in table() {
        let output = project.run(&["call", tool, "--json", "--args", &args.to_string()]);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        check("CLI", tool, &args, &expected, &answer, port);
        let failed = matches!(expected, Problem(..));
        assert_eq!(output.status.code(), Some(i32::from(failed)), "{tool} {args}");
    }
}

#[test]
fn the_guides_jira_tool_runs_unchanged_with_a_search_of_the_project() {
    let (port, seen) = jira::start();
    let jira = std::fs::read_to_string(
        crate::harness::repo().join("tests/seeds/create-jira-ticket-guide.lua"),
    )
    .unwrap();
    let project = Project::new(&[
        ("moonlark.toml", &GUIDE_CONFIG.replace("PORT", &port.to_string())),
        ("tools/create-jira-ticket.lua", &jira),
        ("tools/search.lua", SEARCH),
    ]);
    let server = project.serve();
    let (status, answer) = server.post(
        "create_jira_ticket",
        &json!({"title": "Fix auth token refresh", "priority": "High"}),
    );
    let expected = json!({"result": {
        "key": "ENG-1234", "url": format!("http://127.0.0.1:{port}/browse/ENG-1234"),
        "related_docs": 2, "status": "created",
    }});
    assert_eq!((status, answer), (200, expected));
    assert_eq!(
        seen.lock().unwrap()[0]["fields"]["description"],
        json!(
            "\n\n## Related Context\n\n- **Refresh tokens** (score: 0.92)\n  How they expire\n  [View source](https://docs.example/1)\n- **Log-in** (score: 0.50)\n  \n"
        )
    );
    // Without a search of its own, the project's search is the built-in one.
    project.remove("tools/search.lua");
    server.log.wait_for("tools/search.lua removed");
    let (status, answer) = server.post("create_jira_ticket", &json!({"title": "x"}));
    assert_eq!((status, &answer["error"]["code"]), (503, &json!("unavailable")));
}
