//! Plans: what a script would change, and runs that change just that.

use moonlark_core::{ProblemCode, Result};
use moonlark_gateway::journal::JournalEntry;
use serde_json::{Value as Json, json};

use super::shop::Shop;
use crate::LuauEngine;
use crate::luau_testing::modules;

fn shop() -> Shop {
    Shop::new(&LuauEngine::new(&modules()).unwrap(), &[], 1)
}

async fn plan(shop: &Shop, script: &str) -> Result<Json> {
    shop.execute(json!({"script": script, "plan": true})).await
}

const SCRIPT: &str = "local seen = sdk.shop.read({ n = 1 })
    local made = {}
    for n = 1, 2 do made[n] = shop.put({ n = n, seen = seen.got, at = os.clock(), key = math.random(1e9) }) end
    await_all(made)
    sdk.shop.set({ n = 3 })
    return 'done'";

#[tokio::test]
async fn a_plan_reads_collects_the_rest_and_changes_nothing() {
    let shop = shop();
    let mut planned = plan(&shop, SCRIPT).await.unwrap();
    let id = planned["plan"].take();
    for call in planned["calls"].as_array_mut().unwrap() {
        call["arguments"].as_object_mut().unwrap().retain(|key, _| key != "at" && key != "key");
    }
    let id = id.as_str().unwrap();
    let how = format!("nothing was changed; `moonlark runs resume {id}` does just this, once");
    let seen = r#"{"n":1}"#;
    let expected = json!({
        "plan": null,
        "calls": [
            {"tool": "shop.put", "arguments": {"n": 1, "seen": seen}, "place": "2"},
            {"tool": "shop.put", "arguments": {"n": 2, "seen": seen}, "place": "3"},
            {"tool": "shop.set", "arguments": {"n": 3}, "place": "4"},
        ],
        "complete": true,
        "how": how,
    });
    assert_eq!(planned, expected);
    let done: Vec<_> = shop.done().into_iter().collect();
    assert_eq!(done, [(r#"shop.read {"n":1}"#.to_owned(), 1)]);
}

const PARALLEL: &str = "map_parallel({ 1, 2, 3, 4 }, function(n)
        sdk.shop.read({ n = n })
        sdk.shop.set({ n = n, at = os.clock() })
        local p = { shop.put({ n = n, at = os.clock() }), shop.read({ p = n }) }
        await_all(p)
        sdk.shop.put({ n = -n, at = os.clock(), key = math.random(1e9) })
    end)
    return 'done'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn carrying_out_a_plan_does_exactly_that() {
    let engine = LuauEngine::new(&modules()).unwrap();
    for (script, pace) in [(SCRIPT, 1), (PARALLEL, 1), (PARALLEL, 2), (PARALLEL, 3)] {
        let shop = Shop::new(&engine, &[], pace);
        let planned = plan(&shop, script).await.unwrap();
        let read = shop.done();
        let done = shop.execute(json!({"resume": planned["plan"]})).await.unwrap();
        assert_eq!(done, json!("done"));
        let is_read = |call: &String| call.starts_with("shop.read");
        let mut made: Vec<String> = shop.done().into_keys().filter(|it| !is_read(it)).collect();
        let as_made =
            |call: &Json| format!("{} {}", call["tool"].as_str().unwrap(), call["arguments"]);
        let mut expected: Vec<String> =
            planned["calls"].as_array().unwrap().iter().map(as_made).collect();
        made.sort();
        expected.sort();
        assert_eq!(made, expected);
        // What it had read when the plan was made is what it goes by.
        let read_since = shop.done().into_iter().filter(|(call, _)| is_read(call));
        assert_eq!(read_since.collect::<Vec<_>>(), Vec::from_iter(read));
    }
}

#[tokio::test]
async fn a_plan_ends_where_an_answer_is_needed_that_is_not_there() {
    let shop = shop();
    for (use_of, complete) in [
        ("made.got", false),
        ("made .. ''", false),
        ("tostring(made)", false),
        ("#made", false),
        ("pcall(function() return made.got end)", false),
        ("sdk.shop.put({ made = made })", false),
        ("shop.put({ n = { made } }):await()", false),
        ("sdk.shop.put({ n = 2 })", true),
        ("made", true),
    ] {
        let script = format!("local made = sdk.shop.put({{ n = 1 }}) local x = {use_of} return x");
        let planned = plan(&shop, &script).await.unwrap();
        assert_eq!(planned["complete"], complete, "{use_of}");
        assert_eq!(planned["calls"][0]["tool"], "shop.put", "{use_of}");
        let ends = "the plan ends here: what shop.put answers is not known before it is called";
        assert_eq!(planned.get("ends").and_then(Json::as_str), (!complete).then_some(ends));
    }
    assert!(shop.done().is_empty());
}

#[tokio::test]
async fn what_is_not_in_the_plan_is_not_called() {
    let shop = shop();
    // Only with the answer can the script come to the second call.
    let script =
        "local made = sdk.shop.put({ n = 1 }) sdk.shop.put({ n = 2, made = made.got }) return 1";
    let planned = plan(&shop, script).await.unwrap();
    let problem = shop.execute(json!({"resume": planned["plan"]})).await.unwrap_err();
    assert_eq!(
        problem.to_string(),
        "error[diverged]: shop.put at 2 is not in the plan\n\
         hint: nothing was called that is not in the plan. What was done before is in the journal: make a new plan for the rest"
    );
    let done: Vec<String> = shop.done().into_keys().collect();
    assert_eq!(done, [r#"shop.put {"n":1}"#]);
}

#[tokio::test]
async fn a_plan_being_carried_out_can_be_interrupted() {
    let first = shop();
    let planned = plan(&first, SCRIPT).await.unwrap();
    let before = first.journal.entries().len();
    first.execute(json!({"resume": planned["plan"]})).await.unwrap();
    let entries = first.journal.entries();
    let id = entries[before..].iter().find_map(|entry| match entry {
        JournalEntry::RunBegan(began) => Some(began.run),
        _ => None,
    });
    let id = id.unwrap().to_string();
    for cut in before + 2..entries.len() {
        let shop = Shop::new(&LuauEngine::new(&modules()).unwrap(), &entries[..cut], 1);
        let done = shop.execute(json!({"resume": id, "lost": "retry"})).await;
        assert_eq!(done.unwrap(), json!("done"), "{cut}");
        let puts = shop.done().into_keys().filter(|it| it.starts_with("shop.put")).count();
        let answered = entries[before..cut]
            .iter()
            .filter(|entry| matches!(entry, JournalEntry::CallEnded(it) if it.answer.is_some()))
            .count();
        // The first answer is what was read.
        assert_eq!(puts, 2 - answered.saturating_sub(1).min(2), "{cut}");
    }
}

#[tokio::test]
async fn a_plan_that_failed_cannot_be_carried_out() {
    let shop = shop();
    let problem = plan(&shop, "error('no')").await.unwrap_err();
    assert_eq!(problem.code, ProblemCode::ToolError);
    let id = shop.journal.run_id().unwrap().to_string();
    let problem = shop.execute(json!({"resume": id})).await.unwrap_err();
    assert_eq!(
        problem.to_string(),
        format!(
            "error[bad_request]: run {id} has failed, so there is no plan to follow\n\
             hint: make the plan again: execute with plan = true"
        )
    );
}
