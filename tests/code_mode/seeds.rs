//! The seeds' own scripts, word for word, over servers with the names they use.

use serde_json::{Value, json};

use super::upstream::{Offer, Reply, Upstream, structured, text};
use super::world::{ERAS, Era, World};

const SIMPLE_CALL: &str = r"
local result = calculator.add({ a = 10, b = 20 }):await()
result(result)
";

const ORCHESTRATION: &str = r"
-- Fetch data from one server
local data = data_server.fetch_records({ limit = 10 }):await()

-- Process with another server
local summary = analytics.summarize({ records = data.records }):await()

-- Return combined result
result({
    record_count = #data.records,
    summary = summary
})
";

const ERROR_HANDLING: &str = r#"
local success, data = pcall(function()
    return risky_server.dangerous_operation({}):await()
end)

if success then
    result({ status = "ok", data = data })
else
    result({ status = "error", message = tostring(data) })
end
"#;

const TRANSFORMATION: &str = r"
local raw = data_server.get_users({}):await()

-- Transform in Lua
local names = {}
for i, user in ipairs(raw.users) do
    names[i] = user.name
end

result({ user_names = names })
";

const SEQUENCE: &str = r"
-- These run one after another, not in parallel
local a = server.tool1({ x = 1 }):await()
local b = server.tool2({ y = 2 }):await()
local c = server.tool3({ z = 3 }):await()
result({ a = a, b = b, c = c })
";

const PROMISE: &str = r"
-- Tool calls return promise-like objects
local promise = calculator.add({ a = 5, b = 3 })

-- :await() unwraps the promise synchronously
local result = promise:await()
";

const TOOL_OUTPUT: &str = r"
-- Return tool output directly
local data = server.fetch_data({}):await()
result(data)
";

const CORRECT: &str = r"
-- Use a different variable name
local sum = calculator.add({ a = 1, b = 2 }):await()
result(sum)
";

const MIXED_CALLS: &str = r#"
sdk.filesystem.read_file({ path = "/tmp/data.txt" })
sdk.database.query({ sql = "SELECT * FROM users", limit = 10 })
"#;

struct Seeds {
    calculator: Upstream,
    others: Vec<(&'static str, Upstream)>,
}

impl Seeds {
    /// `add` answers as a structure, as a text that is a number, or as a text.
    fn new(add: fn(i64) -> Value) -> Seeds {
        let number = json!({"type": "number"});
        let add = Offer::new("add", json!({"a": number, "b": number}), move |args| {
            Reply::Now(add(args["a"].as_i64().unwrap() + args["b"].as_i64().unwrap()))
        });
        let echo = |name: &str, key: &'static str| {
            let properties = json!({ key: {"type": "number"} });
            Offer::new(name, properties, |args| Reply::Now(structured(args.clone())))
        };
        let fetch = Offer::new("fetch_records", json!({"limit": {"type": "integer"}}), |args| {
            let records: Vec<Value> =
                (0..args["limit"].as_u64().unwrap()).map(|id| json!({ "id": id })).collect();
            Reply::Now(structured(json!({ "records": records })))
        });
        let users = json!({"users": [{"name": "Ada"}, {"name": "Grace"}]});
        let summarize = Offer::new("summarize", json!({"records": {"type": "array"}}), |args| {
            let count = args["records"].as_array().unwrap().len();
            Reply::Now(structured(json!({"total": count, "mood": null})))
        });
        let failed = json!({
            "content": [{"type": "text", "text": "the reactor is offline"}],
            "isError": true,
        });
        let file = Offer::new("read_file", json!({"path": {"type": "string"}}), |args| {
            Reply::Now(text(&format!("in {}", args["path"].as_str().unwrap())))
        });
        let query = json!({"sql": {"type": "string"}, "limit": {"type": "integer"}});
        let query = Offer::new("query", query, |args| Reply::Now(structured(json!({"got": args}))));
        let others = vec![
            (
                "data-server",
                Upstream::start(vec![fetch, Offer::of("get_users", structured(users))]),
            ),
            ("analytics", Upstream::start(vec![summarize])),
            ("risky_server", Upstream::start(vec![Offer::of("dangerous_operation", failed)])),
            (
                "server",
                Upstream::start(vec![
                    echo("tool1", "x"),
                    echo("tool2", "y"),
                    echo("tool3", "z"),
                    Offer::of("fetch_data", structured(json!({"fetched": [1, 2, 3]}))),
                ]),
            ),
            ("filesystem", Upstream::start(vec![file])),
            ("database", Upstream::start(vec![query, Offer::of("ping", text("pong"))])),
        ];
        Seeds { calculator: Upstream::start(vec![add]), others }
    }

    fn world(&self) -> World {
        let mut upstreams = vec![("calculator", &self.calculator)];
        upstreams.extend(self.others.iter().map(|(name, upstream)| (*name, upstream)));
        World::new(&upstreams)
    }
}

fn as_structure(sum: i64) -> Value {
    structured(json!({ "sum": sum }))
}

fn as_number(sum: i64) -> Value {
    text(&sum.to_string())
}

fn as_words(sum: i64) -> Value {
    text(&format!("the sum is {sum}"))
}

#[test]
fn the_examples_run_as_they_are() {
    let seeds = Seeds::new(as_structure);
    let world = seeds.world();
    for era in ERAS {
        let value = |script: &str| world.run_in(era, script).value();
        assert_eq!(
            value(ORCHESTRATION),
            json!({"record_count": 10, "summary": {"total": 10, "mood": null}})
        );
        assert_eq!(value(TRANSFORMATION), json!({"user_names": ["Ada", "Grace"]}));
        assert_eq!(value(SEQUENCE), json!({"a": {"x": 1}, "b": {"y": 2}, "c": {"z": 3}}));
        assert_eq!(value(TOOL_OUTPUT), json!({"fetched": [1, 2, 3]}));
        assert_eq!(value(CORRECT), json!({"sum": 3}));
        let failed = value(ERROR_HANDLING);
        assert_eq!(failed["status"], "error");
        assert!(failed["message"].as_str().unwrap().contains("the reactor is offline"), "{failed}");
    }
}

#[test]
fn the_one_that_shadows_result_is_explained_whatever_the_value_is() {
    for add in [as_structure as fn(i64) -> Value, as_number, as_words] {
        let seeds = Seeds::new(add);
        let world = seeds.world();
        world.run(SIMPLE_CALL).fails("tool_error", &["result", "local"]);
    }
    // It has nothing to do with calls.
    let seeds = Seeds::new(as_structure);
    let world = seeds.world();
    for value in ["5", "'text'", "{}", "true", "nil"] {
        let script = format!("local result = {value}\nresult(result)");
        world.run(&script).fails("tool_error", &["result", "local"]);
    }
}

#[test]
fn a_promise_is_a_value_and_a_script_without_a_result_says_so() {
    let seeds = Seeds::new(as_number);
    let world = seeds.world();
    world.run(PROMISE).fails("tool_error", &["return", "result("]);
    // The calls were made.
    assert_eq!(seeds.calculator.called("add"), 1);
    let script = "local promise = calculator.add({ a = 5, b = 3 })\nresult(promise:await())";
    assert_eq!(world.value(script), json!(8));
    assert_eq!(world.value("result(calculator.add({ a = 5, b = 3 }):await())"), json!(8));
}

#[test]
fn results_are_processed_as_the_seed_says() {
    let seeds = Seeds::new(as_structure);
    let world = seeds.world();
    let content = |text: &str| json!([{"type": "text", "text": text}]);
    for era in ERAS {
        let run = |script: &str| world.run_in(era, script).result().clone();
        // An object is structure, and text.
        let object = run("result({ sum = 10, product = 20 })");
        assert_eq!(object["structuredContent"], json!({"sum": 10, "product": 20}));
        let said: Value =
            serde_json::from_str(object["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(said, object["structuredContent"]);
        // Only newer clients take anything else as structure.
        for (script, value, said) in [
            ("result(42)", json!(42), "42"),
            ("result({ 1, 2 })", json!([1, 2]), "[1,2]"),
            // A text says it all by itself.
            ("result('text')", Value::Null, "text"),
            ("result(true)", json!(true), "true"),
        ] {
            let result = run(script);
            assert_eq!(result["content"], content(said), "{script}");
            let structure = if era == Era::New { value } else { Value::Null };
            assert_eq!(result["structuredContent"], structure, "{script} {era:?}");
        }
        // A result of a call is one already.
        let whole = run("result({ content = { { type = 'text', text = 'as it is' } } })");
        assert_eq!(whole["content"], content("as it is"));
        assert_eq!(whole.get("structuredContent"), None);
    }
}

#[test]
fn both_spellings_of_a_call_are_one() {
    let seeds = Seeds::new(as_structure);
    let world = seeds.world();
    let script = format!("{MIXED_CALLS}\nreturn 'done'");
    assert_eq!(world.value(&script), json!("done"));
    assert_eq!(
        world.value(r#"return sdk.filesystem.read_file({ path = "/tmp/data.txt" })"#),
        json!("in /tmp/data.txt")
    );
    assert_eq!(
        world.value(r#"return sdk.database.query({ sql = "SELECT * FROM users", limit = 10 })"#),
        json!({"got": {"sql": "SELECT * FROM users", "limit": 10}})
    );
    // No parameters, no arguments.
    for script in [
        "return sdk.database.ping()",
        "return sdk.database.ping({})",
        "return database.ping():await()",
        "return sdk['database']['ping']()",
    ] {
        assert_eq!(world.value(script), json!("pong"), "{script}");
    }
    // As the operator wrote it, and as an identifier.
    for script in [
        "return #sdk.data_server.fetch_records({ limit = 2 }).records",
        "return #sdk['data-server'].fetch_records({ limit = 2 }).records",
        "return #data_server.fetch_records({ limit = 2 }):await().records",
    ] {
        assert_eq!(world.value(script), json!(2), "{script}");
    }
}

#[test]
fn a_failed_call_is_raised_and_can_be_caught() {
    let seeds = Seeds::new(as_structure);
    let world = seeds.world();
    for call in [
        "sdk.risky_server.dangerous_operation()",
        "risky_server.dangerous_operation():await()",
        "await_all({ risky_server.dangerous_operation() })",
    ] {
        let failed = world.run(&format!("return {call}"));
        let (Ok(said) | Err(said)) = &failed.0;
        assert_eq!(said["isError"], true, "{call}: {said}");
        assert!(said.to_string().contains("the reactor is offline"), "{call}: {said}");
        let caught = world.value(&format!(
            "local ok, err = pcall(function() return {call} end)\n\
             return {{ ok = ok, code = err.code, message = err.message, text = tostring(err) }}"
        ));
        assert_eq!(caught["ok"], false);
        assert_eq!(caught["code"], "tool_error", "{call}");
        for key in ["message", "text"] {
            let said = caught[key].as_str().unwrap();
            assert!(said.contains("the reactor is offline"), "{call}: {caught}");
        }
    }
}
