//! `testing`: assertions and mocks for tests of scripts.

mod differ;

use moonlark_core::module::ScriptLanguage;
use moonlark_core::value::{Object, Value};
use moonlark_core::{Module, Problem, ProblemCode, Result};
use moonlark_gateway::Call;
use moonlark_gateway::mock::TestMock;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::args::ScriptTable;

pub(crate) fn module() -> Module {
    let module = Module::new(
        "testing",
        "Check results and stand in for the world. Only in files of tests: `*_test.luau`, \
         `*_test.star`.",
    )
    .only_in_tests();
    mocks(checks(module))
}

fn checks(module: Module) -> Module {
    module
        .function("eq", "Both values are equal, all the way down.", eq)
        .positional_params(&["message"])
        .example(json!({"actual": {"a": [1, 2]}, "expected": {"a": [1, 2]}}), json!(null))
        .fails(json!({"actual": {"a": {"b": 2}}, "expected": {"a": {"b": 3}}}), "a.b is 2, expected 3")
        .function("ne", "The values differ.", ne)
        .positional_params(&["message"])
        .example(json!({"actual": 1, "unexpected": 2}), json!(null))
        .fails(json!({"actual": [1], "unexpected": [1]}), "both are [1]")
        .function("is_true", "The value is true. In Starlark, whatever counts as true is; in Luau, only `true` itself.", is_true)
        .positional_params(&["message"])
        .example(json!({"value": true}), json!(null))
        .fails(json!({"value": false}), "expected true, got false")
        .function("is_false", "The value is false. In Starlark, whatever counts as false is; in Luau, only `false` itself.", is_false)
        .positional_params(&["message"])
        .example(json!({"value": false}), json!(null))
        .fails(json!({"value": "no", "message": "switched off"}), "switched off")
        .function(
            "contains",
            "A text has this part, a list this item, or a table or dict this key.",
            contains,
        )
        .positional_params(&["message"])
        .example(json!({"container": "moonlark", "item": "lark"}), json!(null))
        .example(json!({"container": ["a", "b"], "item": "b"}), json!(null))
        .fails(json!({"container": ["a"], "item": "b"}), "[\"a\"] does not contain \"b\"")
        .function("fail", "The test has failed.", fail)
        .fails(json!({"message": "not reached"}), "not reached")
        .function(
            "raises",
            "The function, called without arguments, fails, with a message that contains the \
             text. Gives the message.",
            in_the_engine::<Raises>,
        )
        .positional_params(&["contains", "message"])
        .fails(json!({"fn": null}), "takes a function")
        .function(
            "context",
            "A context as tools get it, with this configuration.",
            in_the_engine::<Context>,
        )
        .positional_params(&["config"])
        .mocked_example(
            json!({"config": {"url": "https://tickets.example.com"}}),
            json!({"config": {"url": "https://tickets.example.com"}}),
        )
        .fails(json!({"config": 1}), "")
}

fn mocks(module: Module) -> Module {
    module
        .async_function(
            "call",
            "Call a tool of the project as its users do: its arguments are checked, defaults are \
             filled in, and the result is held to its `output`. What is mocked stays mocked.",
            call_tool,
        )
        .positional_params(&["args"])
        .mocked_example(
            json!({"tool": "create_ticket", "args": {"title": "It is broken"}}),
            json!({"id": 7}),
        )
        .fails(json!({"tool": "no_such_tool"}), "no tool registered")
        .function(
            "mock_http",
            "Answer requests to this address instead of sending them. From the first mock on, a \
             request that none fits is an error.",
            mock_http,
        )
        .example(json!({"url": "https://api.example.com/*", "json": {"ok": true}}), json!(null))
        .fails(json!({"url": "https://a.example", "status": 99}), "status must be")
        .function(
            "mock_tool",
            "Answer calls of this tool, which need not exist, or of this host function, such as \
             `sqlite.query`. The arguments that a call must have are given as `when`.",
            mock_tool,
        )
        .example(json!({"name": "search", "returns": []}), json!(null))
        .fails(json!({"name": ""}), "needs the name of a tool")
        .function("mock_exec", "Answer exec.run of this command instead of running it.", mock_exec)
        .example(json!({"cmd": "git", "stdout": "main\n"}), json!(null))
        .fails(json!({"cmd": ""}), "needs a command")
        .function(
            "calls",
            "The calls so far of what is mocked: `http`, `exec`, a host function or the name of a \
             tool; each with its arguments.",
            calls,
        )
        .example(json!({"target": "http"}), json!([]))
        .fails(json!({}), "target")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Eq {
    /// What the script gave.
    actual: Value,
    /// What it should have given.
    expected: Value,
    /// What this is about, for the report.
    message: Option<String>,
}

fn eq(call: &Call, args: Eq) -> Result<()> {
    match differ::differences(&args.actual, &args.expected, first_index(call)) {
        None => Ok(()),
        Some(report) => Err(failed(args.message, &report)),
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Ne {
    /// What the script gave.
    actual: Value,
    /// What it must not give.
    unexpected: Value,
    /// What this is about, for the report.
    message: Option<String>,
}

fn ne(_: &Call, args: Ne) -> Result<()> {
    match differ::differences(&args.actual, &args.unexpected, 0) {
        Some(_) => Ok(()),
        None => Err(failed(args.message, &format!("both are {}", differ::show(&args.actual)))),
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Truth {
    /// The value to look at.
    value: Value,
    /// What this is about, for the report.
    message: Option<String>,
}

fn is_true(call: &Call, args: Truth) -> Result<()> {
    truth(call, args, true)
}

fn is_false(call: &Call, args: Truth) -> Result<()> {
    truth(call, args, false)
}

fn truth(call: &Call, args: Truth, wanted: bool) -> Result<()> {
    let holds = match language(call) {
        Some(ScriptLanguage::Starlark) => counts_as_true(&args.value) == wanted,
        _ => args.value == Value::Bool(wanted),
    };
    if holds {
        return Ok(());
    }
    Err(failed(args.message, &format!("expected {wanted}, got {}", differ::show(&args.value))))
}

/// As Starlark and Python have it.
fn counts_as_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Int(int) => *int != 0,
        Value::Float(float) => *float != 0.0,
        Value::Str(text) => !text.is_empty(),
        Value::Bytes(bytes) => !bytes.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// What the test is written in.
fn language(call: &Call) -> Option<ScriptLanguage> {
    call.mocks().and_then(|mocks| mocks.language())
}

/// The index of the first item of a list there.
fn first_index(call: &Call) -> usize {
    usize::from(language(call) == Some(ScriptLanguage::Luau))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Contains {
    /// A text, a list, or a table or dict.
    container: Value,
    /// The part, item or key.
    item: Value,
    /// What this is about, for the report.
    message: Option<String>,
}

fn contains(_: &Call, args: Contains) -> Result<()> {
    let found = match (&args.container, &args.item) {
        (Value::Str(text), Value::Str(part)) => text.contains(part.as_str()),
        (Value::Array(items), item) => {
            items.iter().any(|other| differ::differences(other, item, 0).is_none())
        }
        (Value::Object(object), Value::Str(key)) => object.contains_key(key),
        (container, _) => {
            return Err(Problem::bad_request(format!(
                "the container must be a text, a list or an object, got {}",
                container.kind()
            )));
        }
    };
    let report = || {
        format!("{} does not contain {}", differ::show(&args.container), differ::show(&args.item))
    };
    if found { Ok(()) } else { Err(failed(args.message, &report())) }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fail {
    /// Why.
    message: String,
}

fn fail(_: &Call, args: Fail) -> Result<()> {
    Err(Problem::tool_error(args.message))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "engines have this one themselves: a function is no value")]
struct Raises {
    /// The function to call.
    r#fn: Value,
    /// What the message must contain.
    contains: Option<String>,
    /// What this is about, for the report.
    message: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "engines have this one themselves: a context has functions")]
struct Context {
    /// What the script finds as context.config.
    config: Option<ScriptTable>,
}

fn in_the_engine<A>(_: &Call, _: A) -> Result<Value> {
    Err(Problem::bad_request("takes a function, which no value is"))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CallTool {
    /// The tool, by its name; in Luau also as its table `tool`.
    tool: String,
    /// Its arguments.
    args: Option<ScriptTable>,
}

async fn call_tool(call: Call, args: CallTool) -> Result<Value> {
    let given = Value::Object(args.args.unwrap_or_default().0);
    call.gateway().call(&call.as_user_of_tools(), &args.tool, given).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MockHttp {
    /// The address, with its query or without; `*` stands for anything.
    url: String,
    /// The method; when not set, any.
    method: Option<String>,
    /// Further arguments that the call must have, such as headers, query or json.
    when: Option<ScriptTable>,
    /// The status of the answer; 200 when not set.
    status: Option<u16>,
    /// The headers of the answer.
    headers: Option<ScriptTable>,
    /// The body of the answer, as JSON.
    json: Option<Value>,
    /// The body of the answer, as text.
    body: Option<String>,
    /// Fail with this message instead of answering.
    error: Option<String>,
}

fn mock_http(call: &Call, args: MockHttp) -> Result<()> {
    let status = args.status.unwrap_or(200);
    if !(100..=599).contains(&status) {
        return Err(Problem::bad_request(format!("status must be from 100 to 599, got {status}")));
    }
    let mut headers = args.headers.map(|headers| headers.0).unwrap_or_default();
    let (json, body) = match (args.json, args.body) {
        (Some(json), _) => {
            headers.entry("content-type".to_owned()).or_insert_with(|| "application/json".into());
            let body = json.encode_json("json")?;
            (json, body)
        }
        (None, Some(body)) => (Value::parse_json(body.as_bytes()).unwrap_or_default(), body),
        (None, None) => (Value::Null, String::new()),
    };
    let answer = Value::from_fields([
        ("status", Value::Int(status.into())),
        ("ok", Value::Bool((200..300).contains(&status))),
        ("headers", Value::Object(headers)),
        ("body", body.into()),
        ("json", json),
    ]);
    let mut when = args.when.map(|when| when.0).unwrap_or_default();
    when.insert("url".to_owned(), args.url.into());
    if let Some(method) = args.method {
        when.insert("method".to_owned(), method.to_uppercase().into());
    }
    add(call, "http", when, answer, args.error)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MockTool {
    /// The tool's name.
    name: String,
    /// The answer.
    returns: Option<Value>,
    /// Arguments that the call must have; `*` in a text stands for anything.
    when: Option<ScriptTable>,
    /// Fail with this message instead of answering.
    error: Option<String>,
}

fn mock_tool(call: &Call, args: MockTool) -> Result<()> {
    if args.name.is_empty() {
        return Err(Problem::bad_request("mock_tool needs the name of a tool"));
    }
    let when = args.when.map(|when| when.0).unwrap_or_default();
    add(call, &args.name, when, args.returns.unwrap_or_default(), args.error)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MockExec {
    /// The command.
    cmd: String,
    /// Its arguments; when not set, any.
    args: Option<Vec<String>>,
    /// What it writes.
    stdout: Option<String>,
    /// What it writes about it.
    stderr: Option<String>,
    /// Its exit code; 0 when not set.
    exit_code: Option<i32>,
    /// Fail with this message instead of answering.
    error: Option<String>,
}

fn mock_exec(call: &Call, args: MockExec) -> Result<()> {
    if args.cmd.is_empty() {
        return Err(Problem::bad_request("mock_exec needs a command"));
    }
    let mut when = Object::new();
    when.insert("cmd".to_owned(), args.cmd.into());
    if let Some(arguments) = args.args {
        when.insert("args".to_owned(), arguments.into());
    }
    let exit_code = args.exit_code.unwrap_or(0);
    let answer = Value::from_fields([
        ("stdout", args.stdout.unwrap_or_default().into()),
        ("stderr", args.stderr.unwrap_or_default().into()),
        ("exit_code", Value::Int(exit_code.into())),
        ("success", Value::Bool(exit_code == 0)),
    ]);
    add(call, "exec", when, answer, args.error)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Calls {
    /// `http`, `exec` or the name of a tool.
    target: String,
}

fn calls(call: &Call, args: Calls) -> Result<Vec<Value>> {
    Ok(call.mocks().map(|mocks| mocks.recorded_calls(&args.target)).unwrap_or_default())
}

fn add(
    call: &Call,
    target: &str,
    when: Object,
    answer: Value,
    error: Option<String>,
) -> Result<()> {
    let answer = match error {
        None => Ok(answer),
        Some(message) => Err(Problem::new(ProblemCode::Unavailable, message)),
    };
    if let Some(mocks) = call.mocks() {
        mocks.add_mock(TestMock { target: target.to_owned(), when, answer });
    }
    Ok(())
}

/// A check that does not hold.
fn failed(message: Option<String>, report: &str) -> Problem {
    Problem::tool_error(match message {
        Some(message) => format!("{message}: {report}"),
        None => report.to_owned(),
    })
}
