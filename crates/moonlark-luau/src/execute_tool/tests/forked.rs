//! Forks: unchanged ones, which must be as the run was; and changed ones, which make no
//! recorded call again.

mod generated;

use std::collections::BTreeMap;

use moonlark_core::content::ToolAnswer;
use moonlark_core::record_id::RecordId;
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_gateway::journal::{CallRecord, JournalEntry};
use moonlark_gateway::{CallOutcome, Caller};
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;

use super::notebook;
use super::shop::Shop;
use crate::LuauEngine;
use crate::luau_testing::modules;

/// Scripts that are run and forked.
const GENERATED_SCRIPTS: u64 = 10_000;

/// All that an answer says: content or Problem, what was logged, and what it says of the
/// fork.
#[derive(Debug, PartialEq)]
struct WholeAnswer {
    result: String,
    logs: Json,
    fork: Json,
    id: RecordId,
}

async fn execute(shop: &Shop, caller: Caller, args: Json) -> Result<WholeAnswer> {
    let call = shop.open_call(caller)?;
    let ended = shop.gateway.invoke(&call, "execute", Value::from_json(args)?).await;
    let (words, mut content) = match ended {
        Ok(ToolAnswer::Content(content)) => (String::new(), content),
        Ok(other) => panic!("{other:?}"),
        Err(mut problem) => {
            let Some(content) = problem.content.take() else { return Err(problem) };
            (problem.to_json().to_string(), *content)
        }
    };
    let Some(Value::Object(mut meta)) = content.extra.swap_remove("_meta") else { panic!() };
    let run = meta.swap_remove("moonlark/run").unwrap().to_json_lossy();
    let blocks = Value::Array(content.blocks).to_json_lossy();
    let structured = content.structured.map(|it| it.to_json_lossy());
    Ok(WholeAnswer {
        result: json!([words, blocks, structured]).to_string(),
        logs: run["logs"].clone(),
        fork: run["fork"].clone(),
        id: run["id"].as_str().unwrap().parse().unwrap(),
    })
}

/// The calls of a run, without when they were made and how long they took.
fn calls(shop: &Shop, run: RecordId) -> BTreeMap<String, String> {
    let record = notebook::read(&shop.journal.entries(), run).unwrap();
    let describe = |call: CallRecord| {
        let ended = call.ended.filter(|ended| ended.answer.is_some());
        let ended = ended.map(|it| (it.outcome, it.message, it.answer, it.order));
        let began = call.began;
        (
            began.place.unwrap(),
            format!("{} {:?} {:?} {ended:?}", began.tool, began.effects, began.args),
        )
    };
    // One that was begun and never answered may not be begun again.
    let answered = |call: &CallRecord| call.ended.as_ref().is_some_and(|it| it.answer.is_some());
    record.calls.into_iter().filter(answered).map(describe).collect()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_fork_of_ten_thousand_scripts_without_an_edit_is_equal_in_result_calls_and_logs() {
    let workers = std::thread::available_parallelism().map_or(2, |cores| cores.get()) as u64;
    std::thread::scope(|scope| {
        for worker in 0..workers {
            scope.spawn(move || {
                let (runtime, engine) = (runtime(), LuauEngine::new(&modules()).unwrap());
                let mut calls = 0;
                for seed in (worker..GENERATED_SCRIPTS).step_by(workers as usize) {
                    calls += runtime.block_on(check_unchanged_fork(&engine, seed));
                }
                assert!(calls as u64 > GENERATED_SCRIPTS / workers, "only {calls} calls");
            });
        }
    });
}

/// How many calls it had.
async fn check_unchanged_fork(engine: &LuauEngine, seed: u64) -> usize {
    let script = generated::script(seed);
    let about = || format!("seed {seed}:\n{script}");
    let shop = Shop::new(engine, &[], seed);
    let cli = || Caller::new("cli");
    let ran = execute(&shop, cli(), json!({"script": script})).await;
    let ran = ran.unwrap_or_else(|problem| panic!("{problem} {}", about()));
    let done = shop.done();
    let asked = shop.questions();
    let fork = execute(&shop, cli(), json!({"fork": ran.id.to_string()})).await;
    let fork = fork.unwrap_or_else(|problem| panic!("{problem} {}", about()));
    assert_eq!(fork.result, ran.result, "{}", about());
    assert_eq!(fork.logs, ran.logs, "{}", about());
    let (then, now) = (calls(&shop, ran.id), calls(&shop, fork.id));
    // What had ended and was not looked at when the script ended is not given again.
    let given = |at: &&String| then.contains_key(*at);
    assert_eq!(now.keys().find(|at| !given(at)), None, "{}", about());
    for (at, call) in &now {
        assert_eq!(call, &then[at], "{at} {}", about());
    }
    assert_eq!(fork.fork["first_difference"], Json::Null, "{} {}", fork.fork, about());
    assert_eq!(fork.fork["counts"]["new"], 0, "{}", about());
    assert_eq!(fork.fork["counts"]["dropped"], 0, "{}", about());
    // Nothing was made, and nobody was asked.
    assert_eq!((shop.done(), shop.questions()), (done, asked), "{}", about());
    then.len()
}

fn shop() -> Shop {
    Shop::new(&LuauEngine::new(&modules()).unwrap(), &[], 3)
}

async fn fork(shop: &Shop, args: Json) -> Result<WholeAnswer> {
    execute(shop, Caller::new("cli"), args).await
}

async fn run(shop: &Shop, script: &str) -> String {
    fork(shop, json!({"script": script})).await.unwrap().id.to_string()
}

const BOOKING: &str = "local a = sdk.shop.read({ id = 1 })
sdk.shop.put({ id = 2 })
local b = sdk.shop.read({ id = 1 })
sdk.shop.fail({ id = 3 })
return { a, b }";

#[tokio::test]
async fn a_fork_with_an_edit_makes_no_recorded_call_again() {
    let shop = shop();
    let id = run(&shop, BOOKING).await;
    let before = shop.done();
    // The failure is caught, a call is put in front of all, and one is gone.
    let script = "print(sdk.shop.look({ id = 9 }) ~= nil)
local a = sdk.shop.read({ id = 1 })
sdk.shop.put({ id = 2 })
local ok = pcall(sdk.shop.fail, { id = 3 })
return { a.got, ok }";
    let forked =
        fork(&shop, json!({"fork": id, "script": script, "new_calls": "make"})).await.unwrap();
    let mut done = shop.done();
    assert_eq!(done.remove(r#"shop.look {"id":9}"#), Some(1));
    assert_eq!(done, before, "what was recorded was made again");
    assert_eq!(
        forked.fork,
        json!({
            "of": id,
            "new_calls": "make",
            "counts": {"recorded": 3, "new": 1, "dropped": 1},
            "recorded": [
                {"tool": "shop.read", "place": "2", "recorded_place": "1"},
                {"tool": "shop.put", "place": "3", "recorded_place": "2"},
                {"tool": "shop.fail", "place": "4"},
            ],
            "new": [{"tool": "shop.look", "place": "1", "arguments": r#"{"id":9}"#, "state": "made"}],
            "not_made": [],
            "dropped": [{"tool": "shop.read", "place": "3", "arguments": r#"{"id":1}"#}],
            "first_difference": {
                "place": "1",
                "was": {"tool": "shop.read", "place": "1", "arguments": r#"{"id":1}"#},
                "now": {"tool": "shop.look", "place": "1", "arguments": r#"{"id":9}"#, "state": "made"},
            },
        })
    );
    let text = format!(
        "fork of run {id}: 3 calls from its record, 1 new, 1 no longer made\n\
         first difference at 1: was shop.read {{\"id\":1}}, is shop.look {{\"id\":9}}\n\
         new, made: shop.look {{\"id\":9}} at 1\n\
         no longer made: shop.read {{\"id\":1}} at 3"
    );
    let expected = json!(["", [
        {"type": "text", "text": "[\"{\\\"id\\\":1}\",false]"},
        {"type": "text", "text": "logs:\ntrue"},
        {"type": "text", "text": text},
    ], ["{\"id\":1}", false]]);
    assert_eq!(forked.result, expected.to_string());
    // And a fork of that one makes nothing at all.
    let again = fork(&shop, json!({"fork": forked.id.to_string()})).await.unwrap();
    assert_eq!(again.fork["first_difference"], Json::Null, "{}", again.fork);
    assert_eq!(again.logs, forked.logs);
    assert_eq!(shop.done().len(), done.len() + 1);
}

#[tokio::test]
async fn calls_that_are_not_recorded_are_planned_unless_asked_otherwise() {
    let shop = shop();
    let id = run(&shop, BOOKING).await;
    let before = shop.done();
    let script = "local a = sdk.shop.read({ id = 1 })
sdk.shop.put({ id = 22 })
local b = sdk.shop.read({ id = 5 })
return b.got";
    let with = |how: &str| json!({"fork": id, "script": script, "new_calls": how});
    let planned = fork(&shop, with("plan")).await.unwrap();
    assert_eq!(shop.done(), before);
    let plan: Json = serde_json::from_str::<Json>(&planned.result).unwrap()[2].clone();
    let put = json!({"tool": "shop.put", "arguments": {"id": 22}, "place": "2"});
    let read = json!({"tool": "shop.read", "arguments": {"id": 5}, "place": "3"});
    assert_eq!((&plan["calls"], &plan["complete"]), (&json!([put, read]), &json!(false)));
    // The plan is carried out: only what is new goes out.
    shop.execute(json!({"resume": plan["plan"]})).await.unwrap();
    let mut done = shop.done();
    assert_eq!(done.remove(r#"shop.put {"id":22}"#), Some(1));
    assert_eq!(done.remove(r#"shop.read {"id":5}"#), Some(1));
    assert_eq!(done, before);

    let read_only = fork(&shop, with("read")).await.unwrap();
    let plan: Json = serde_json::from_str::<Json>(&read_only.result).unwrap()[2].clone();
    assert_eq!((&plan["calls"], &plan["complete"]), (&json!([put]), &json!(true)));
    let refused = fork(&shop, with("error")).await.unwrap();
    assert!(
        refused.result.contains("shop.put at 2 with {\\\\\\\"id\\\\\\\":22} is not on the record"),
        "{}",
        refused.result
    );
    assert_eq!(shop.done()[r#"shop.put {"id":22}"#], 1);
}

#[tokio::test]
async fn a_fork_of_an_interrupted_run_does_not_guess_what_happened() {
    let shop = shop();
    run(&shop, "sdk.shop.put({ id = 1 }) sdk.shop.put({ id = 2 }) return 1").await;
    let mut entries = shop.journal.entries();
    let second = entries
        .iter()
        .rposition(|it| matches!(it, JournalEntry::CallEnded(ended) if ended.order.is_some()));
    entries.truncate(second.unwrap());
    let engine = LuauEngine::new(&modules()).unwrap();
    let cut = Shop::new(&engine, &entries, 5);
    let id = cut.journal.run_id().unwrap().to_string();
    let made = fork(&cut, json!({"fork": id, "new_calls": "make"})).await.unwrap();
    assert!(made.result.contains("may_have_happened"), "{}", made.result);
    let planned = fork(&cut, json!({"fork": id})).await.unwrap();
    assert_eq!(planned.fork["counts"], json!({"recorded": 1, "new": 1, "dropped": 0}));
    assert!(cut.done().is_empty());
}

#[tokio::test]
async fn a_fork_belongs_to_who_may_see_the_run_and_takes_no_nonsense() {
    let shop = shop();
    let alice = || Caller::new("mcp").with_name("alice");
    let ran = execute(&shop, alice(), json!({"script": BOOKING})).await.unwrap();
    let id = ran.id.to_string();
    let problem = |ended: Result<WholeAnswer>| -> Problem { ended.unwrap_err() };
    let bob = Caller::new("mcp").with_name("bob");
    let bobs = problem(execute(&shop, bob, json!({"fork": id})).await);
    assert_eq!((bobs.code, bobs.message), (ProblemCode::NotFound, format!("there is no run {id}")));
    execute(&shop, alice(), json!({"fork": id})).await.unwrap();
    fork(&shop, json!({"fork": id})).await.unwrap();
    for (args, said) in [
        (json!({"fork": id, "resume": id}), "execute takes either fork or resume"),
        (json!({"fork": id, "plan": true}), "execute takes either fork or plan"),
        (json!({"fork": id, "lost": "retry"}), "execute takes either fork or lost"),
        (json!({"new_calls": "make", "script": "return 1"}), "new_calls is for a fork"),
        (json!({"fork": "7"}), "\"7\" is no id"),
    ] {
        let problem = problem(fork(&shop, args.clone()).await);
        assert!(problem.message.contains(said) || said.contains("no id"), "{args}: {problem}");
        assert_eq!(problem.code, ProblemCode::BadRequest, "{args}");
        assert!(problem.hint.is_some(), "{args}: {problem}");
    }
    let broken = fork(&shop, json!({"fork": id, "script": "return ("})).await.unwrap();
    assert!(broken.result.contains("bad_script"), "{}", broken.result);
}

#[tokio::test]
async fn a_fork_that_is_cut_is_resumed_and_makes_every_new_call_once() {
    let engine = LuauEngine::new(&modules()).unwrap();
    let shop = Shop::new(&engine, &[], 3);
    let id = run(&shop, BOOKING).await;
    let recorded = shop.journal.entries().len();
    let before = shop.done();
    let script = "local a = sdk.shop.read({ id = 1 })
local two = { shop.put({ id = 7 }), shop.read({ id = 1 }) }
await_all(two)
sdk.shop.put({ id = 2 })
print(os.clock(), math.random())
sdk.shop.put({ id = 8 })
return os.clock()";
    let args = json!({"fork": id, "script": script, "new_calls": "make"});
    let whole = fork(&shop, args).await.unwrap();
    let entries = shop.journal.entries();
    let is_end =
        |it: &JournalEntry| matches!(it, JournalEntry::RunEnded(ended) if ended.run == whole.id);
    let end = entries.iter().position(is_end).unwrap();
    let began =
        |it: &JournalEntry| matches!(it, JournalEntry::RunBegan(began) if began.run == whole.id);
    let began = entries.iter().position(began).unwrap();
    assert!(began >= recorded);
    for cut in began + 1..=end {
        let kept = &entries[..cut];
        let part = Shop::new(&engine, kept, 11);
        let args = json!({"resume": whole.id.to_string(), "lost": "retry"});
        let ended = fork(&part, args).await.unwrap();
        assert!(ended.result.contains("text"), "cut {cut}: {}", ended.result);
        for (call, times) in part.done() {
            assert!(!before.contains_key(&call), "cut {cut}: {call} was made again");
            assert_eq!(times, 1, "cut {cut}: {call}");
        }
        let answered = notebook::read(&part.journal.entries(), whole.id).unwrap().calls;
        let ok = answered
            .iter()
            .filter(|call| call.ended.as_ref().is_some_and(|it| it.outcome == CallOutcome::Ok));
        assert_eq!(ok.count(), 5, "cut {cut}: {}", ended.result);
    }
}

/// A line for each moment of a trace.
async fn trace(shop: &Shop, id: &str, how: &str) -> Vec<String> {
    let call = shop.open_call(Caller::new("cli")).unwrap();
    let args = Value::from_json(json!({"fork": id, "trace": how})).unwrap();
    let ended = shop.gateway.invoke(&call, "execute", args).await;
    let content = match ended {
        Ok(ToolAnswer::Content(content)) => content,
        Err(problem) => *problem.content.unwrap(),
        Ok(other) => panic!("{other:?}"),
    };
    let trace = content.extra["_meta"].get("moonlark/run").unwrap().get("trace").unwrap();
    let trace = trace.to_json_lossy();
    assert_eq!(trace["complete"], true);
    let line = |event: &Json| {
        let call = &event["call"];
        let call = if call.is_null() {
            String::new()
        } else {
            format!(" {} {} -> {}", call["tool"].as_str().unwrap(), call["place"], call["answer"])
        };
        format!("{} {}{call}", event["line"], event["variables"])
    };
    trace["events"].as_array().unwrap().iter().map(line).collect()
}

const TRACED: &str = "local total, password = 0, 'hunter22'
local function add(n)
    local got = sdk.shop.read({ id = n, token = 'abcdefgh' })
    total += n
    return got
end
map_parallel({ 5, 6 }, function(item)
    add(item)
end, { limit = 1 })
local list = { first = { 1, 'two' }, password = 'hunter22' }
local ok = pcall(sdk.shop.fail, { list = list.first })
return total";

#[tokio::test]
async fn a_trace_says_what_variables_hold_at_every_call_and_line_and_makes_no_call() {
    let shop = shop();
    let id = run(&shop, TRACED).await;
    let (done, entries) = (shop.done(), shop.journal.entries().len());
    let at_calls = trace(&shop, &id, "calls").await;
    let read = |n: u32, total: u32, at: &str| {
        format!(
            r#"3 {{"n":"{n}","total":"{total}"}} shop.read "{at}" -> "{{\"got\":\"{{\\\"id\\\":{n},\\\"token\\\":\\\"[redacted]\\\"}}\"}}""#
        )
    };
    assert_eq!(at_calls.len(), 3, "{at_calls:#?}");
    assert_eq!(at_calls[0], read(5, 0, "m1.1/1"));
    assert_eq!(at_calls[1], read(6, 5, "m1.2/1"));
    assert!(
        at_calls[2].starts_with(
            r#"11 {"total":"11","password":"\"[redacted]\"","add":"function","list":"{first = {1, \"two\"}, password = \"[redacted]\"}"} shop.fail "1" -> "{\"error\""#
        ),
        "{}",
        at_calls[2]
    );
    let at_lines = trace(&shop, &id, "lines").await;
    let lines: Vec<&str> = at_lines
        .iter()
        .filter(|it| !it.contains("->"))
        .map(|it| it.split(' ').next().unwrap())
        .collect();
    assert_eq!(
        lines,
        [
            "1", "2", "7", "9", "7", "8", "3", "4", "5", "9", "8", "3", "4", "5", "9", "10", "11",
            "12"
        ]
    );
    // Nothing was called, and nothing is on record but that somebody looked.
    assert_eq!(shop.done(), done);
    let is_run = |it: &JournalEntry| matches!(it, JournalEntry::RunBegan(_));
    assert_eq!(shop.journal.entries()[entries..].iter().filter(|it| is_run(it)).count(), 0);
    // The VM is as good as before.
    run(&shop, TRACED).await;
}

#[test]
fn traced_scripts_go_the_way_that_they_went() {
    let (runtime, engine) = (runtime(), LuauEngine::new(&modules()).unwrap());
    runtime.block_on(async {
        for seed in 20_000..20_200 {
            let script = generated::script(seed);
            let shop = Shop::new(&engine, &[], seed);
            let ran = fork(&shop, json!({"script": script})).await.unwrap();
            for how in ["calls", "lines"] {
                let args = json!({"fork": ran.id.to_string(), "trace": how});
                let traced = fork(&shop, args).await.unwrap();
                assert_eq!(traced.result, ran.result, "seed {seed} {how}:\n{script}");
                assert_eq!(traced.logs, ran.logs, "seed {seed} {how}:\n{script}");
                assert_eq!(traced.fork["first_difference"], Json::Null);
            }
        }
    });
}

#[tokio::test]
async fn the_recorded_answer_of_a_tool_that_may_no_longer_be_called_is_not_given() {
    let engine = LuauEngine::new(&modules()).unwrap();
    let shop = Shop::new(&engine, &[], 3);
    let script = "local seen = sdk.shop.read({ id = 1 })
local put = pcall(sdk.shop.put, { id = 2 })
shop.fail({ id = 3 })
for n = 1, 20 do sdk.shop.read({ n = n }) end
return { seen, put }";
    let ran = fork(&shop, json!({"script": script})).await.unwrap();
    assert_eq!(
        ran.result,
        r#"["",[{"type":"text","text":"[{\"got\":\"{\\\"id\\\":1}\"},true]"},{"type":"text","text":"logs:\nshop.fail failed, and its promise was not awaited: no {\"id\":3}"}],[{"got":"{\"id\":1}"},true]]"#
    );
    let narrow = Shop::with_grant(&engine, &shop.journal.entries(), 5, "tool:shop.read");
    let forked = fork(&narrow, json!({"fork": ran.id.to_string()})).await.unwrap();
    assert!(
        forked.result.contains("false]") && !forked.result.contains("true]"),
        "{}",
        forked.result
    );
    assert!(!forked.logs.to_string().contains("no {"), "{}", forked.logs);
    assert_eq!(forked.fork["counts"], json!({"recorded": 21, "new": 2, "dropped": 0}));
    assert!(narrow.done().is_empty());
}

#[tokio::test]
async fn a_trace_of_large_nested_tables_is_made_in_no_time_at_all() {
    let shop = shop();
    let nested = "local all = {}
for a = 1, 64 do
    all[a] = {}
    for b = 1, 64 do
        all[a][b] = {}
        for c = 1, 64 do all[a][b][c] = { c } end
    end
end
for n = 1, 20 do sdk.shop.read({ id = n }) end
return 1";
    let id = run(&shop, nested).await;
    let began = std::time::Instant::now();
    assert_eq!(trace(&shop, &id, "calls").await.len(), 20);
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
}
