//! Runs that are gone on with, rule by rule.

use std::time::Duration;

use moonlark_core::ProblemCode;
use moonlark_gateway::CallOutcome;
use moonlark_gateway::journal::{CallEnded, JournalEntry, caller_key};
use serde_json::json;

use super::shop::Shop;
use crate::LuauEngine;
use crate::luau_testing::modules;

fn engine() -> LuauEngine {
    LuauEngine::new(&modules()).unwrap()
}

/// The entries up to the one that `is` finds, and that one.
fn cut(entries: &[JournalEntry], is: impl Fn(&JournalEntry) -> bool) -> Vec<JournalEntry> {
    let end = entries.iter().position(is).unwrap();
    entries[..=end].to_vec()
}

fn begins(entry: &JournalEntry, tool: &str, place: &str) -> bool {
    matches!(entry, JournalEntry::CallBegan(it) if it.tool == tool && it.place.as_deref() == Some(place))
}

const TWO: &str = "local a = sdk.shop.put({ n = 1 }) local b = sdk.shop.put({ n = 2, a = a.got }) return { a.got, b.got }";

#[tokio::test]
async fn every_call_has_a_place_in_the_tree_of_coroutines() {
    let shop = Shop::new(&engine(), &[], 1);
    let script = "sdk.shop.put({ n = 1 })
        local p = shop.put({ n = 2 })
        map_parallel({ 1, 2 }, function(n)
            sdk.shop.put({ n = 3 })
            map_parallel({ 1 }, function() return sdk.shop.put({ n = 4 }) end)
            map_parallel({ 1 }, function() return sdk.shop.put({ n = 5 }) end)
        end)
        coroutine.wrap(function()
            coroutine.wrap(function() sdk.shop.put({ n = 6 }) end)()
            sdk.shop.put({ n = 7 })
        end)()
        local co = coroutine.create(function() sdk.shop.put({ n = 8 }) end)
        coroutine.resume(co)
        p:await()
        sdk.shop.put({ n = 9 })
        return 1";
    shop.run(script).await.unwrap();
    let mut places: Vec<String> = Vec::new();
    for entry in shop.journal.entries() {
        if let JournalEntry::CallBegan(began) = entry
            && let Some(place) = began.place
        {
            places.push(format!("{} {place}", began.args.encode_json("").unwrap()));
        }
    }
    places.sort();
    assert_eq!(
        places,
        [
            r#"{"n":1} 1"#,
            r#"{"n":2} 2"#,
            r#"{"n":3} m1.1/1"#,
            r#"{"n":3} m1.2/1"#,
            r#"{"n":4} m1.1/m1.1/1"#,
            r#"{"n":4} m1.2/m1.1/1"#,
            r#"{"n":5} m1.1/m2.1/1"#,
            r#"{"n":5} m1.2/m2.1/1"#,
            r#"{"n":6} c1/c1/1"#,
            r#"{"n":7} c1/1"#,
            r#"{"n":8} c2/1"#,
            r#"{"n":9} 3"#,
        ]
    );
}

#[tokio::test]
async fn what_is_on_record_is_not_done_again() {
    let first = Shop::new(&engine(), &[], 1);
    let whole = first.run(TWO).await.unwrap();
    let entries = cut(&first.journal.entries(), |it| begins(it, "shop.put", "2"));
    // Up to where the second call is about to be made.
    let second = Shop::new(&engine(), &entries[..entries.len() - 1], 1);
    assert_eq!(second.resume(None).await.unwrap(), whole);
    let made: Vec<String> = second.done().into_keys().collect();
    assert_eq!(made, [r#"shop.put {"a":"{\"n\":1}","n":2}"#]);
}

#[tokio::test]
async fn a_call_without_an_answer_may_have_happened_and_somebody_has_to_say() {
    let first = Shop::new(&engine(), &[], 1);
    let whole = first.run(TWO).await.unwrap();
    let entries = cut(&first.journal.entries(), |it| begins(it, "shop.put", "2"));

    let asked = Shop::new(&engine(), &entries, 1);
    let problem = asked.resume(None).await.unwrap_err();
    let id = asked.journal.run_id().unwrap();
    assert_eq!(
        problem.to_string(),
        format!(
            "error[may_have_happened]: shop.put at 2 with {{\"a\":\"{{\\\"n\\\":1}}\",\"n\":2}} was called and its answer was lost: it may have happened\n\
             hint: check whether the call took effect. If it has not: `moonlark runs resume {id} --retry`. \
             If it has: --answer PLACE=JSON gives the script its answer, and --assume-done goes on \
             without one; --retry=PLACE and --assume-done=PLACE are for one of several"
        )
    );
    assert!(asked.done().is_empty());

    // Asked, it can be gone on with.
    let retried = Shop::new(&engine(), &asked.journal.entries(), 1);
    assert_eq!(retried.resume(Some("retry")).await.unwrap(), whole);
    assert_eq!(retried.done().len(), 1);

    let assumed = Shop::new(&engine(), &entries, 1);
    let problem = assumed.resume(Some("assume-done")).await.unwrap_err();
    assert_eq!(problem.message, "attempt to index nil with 'got'");
    assert!(assumed.done().is_empty());

    // What came of that is not final: it can be made after all.
    let made = Shop::new(&engine(), &assumed.journal.entries(), 1);
    assert_eq!(made.resume(Some("retry")).await.unwrap(), whole);
    assert_eq!(made.done().len(), 1);
}

#[tokio::test]
async fn a_call_that_was_withdrawn_before_it_was_made_is_made_when_it_is_resumed() {
    let first = Shop::new(&engine(), &[], 1);
    let whole = first.run(TWO).await.unwrap();
    let entries = first.journal.entries();
    let mut entries = cut(&entries, |it| begins(it, "shop.put", "2"));
    let Some(JournalEntry::CallBegan(began)) = entries.last() else { unreachable!() };
    let withdrawn = JournalEntry::CallEnded(CallEnded {
        call: began.call,
        caller: caller_key(&began.caller),
        took: Duration::ZERO,
        outcome: CallOutcome::Withdrawn,
        message: None,
        answer: None,
        order: None,
    });
    entries.push(withdrawn);
    let second = Shop::new(&engine(), &entries, 1);
    assert_eq!(second.resume(None).await.unwrap(), whole);
    assert_eq!(second.done().len(), 1);
}

#[tokio::test]
async fn what_was_assumed_stays_so() {
    let script =
        "sdk.shop.put({ n = 1 }) sdk.shop.put({ n = 2 }) sdk.shop.put({ n = 3 }) return 'done'";
    let first = Shop::new(&engine(), &[], 1);
    first.run(script).await.unwrap();
    let entries = cut(&first.journal.entries(), |it| begins(it, "shop.put", "2"));
    let assumed = Shop::new(&engine(), &entries, 1);
    assert_eq!(assumed.resume(Some("assume-done")).await.unwrap(), json!("done"));
    let entries = cut(&assumed.journal.entries(), |it| begins(it, "shop.put", "3"));
    let again = Shop::new(&engine(), &entries, 1);
    let problem = again.resume(None).await.unwrap_err();
    assert!(problem.message.starts_with("shop.put at 3 with {\"n\":3} was called"), "{problem}");
    // A word for all is for the one that is open now, and not for what was assumed.
    let retried = Shop::new(&engine(), &entries, 1);
    assert_eq!(retried.resume(Some("retry")).await.unwrap(), json!("done"));
    let made: Vec<_> = retried.done().into_iter().collect();
    assert_eq!(made, [(r#"shop.put {"n":3}"#.to_owned(), 1)]);
}

#[tokio::test]
async fn what_only_reads_or_can_be_repeated_is_made_again() {
    for tool in ["read", "look", "set"] {
        let script = format!("return sdk.shop.{tool}({{ n = 1 }})");
        let first = Shop::new(&engine(), &[], 1);
        let whole = first.run(&script).await.unwrap();
        let tool = format!("shop.{tool}");
        let entries = cut(&first.journal.entries(), |it| begins(it, &tool, "1"));
        let second = Shop::new(&engine(), &entries, 1);
        assert_eq!(second.resume(None).await.unwrap(), whole, "{tool}");
        assert_eq!(second.done().len(), 1, "{tool}");
    }
}

#[tokio::test]
async fn a_run_that_goes_another_way_is_stopped_before_it_calls_anything() {
    let first = Shop::new(&engine(), &[], 1);
    first.run(TWO).await.unwrap();
    let entries = cut(&first.journal.entries(), |it| matches!(it, JournalEntry::CallEnded(_)));
    for (script, expected) in [
        (
            "local a = sdk.shop.set({ n = 1 }) return a",
            "at 1 the script now calls shop.set, but the journal has shop.put",
        ),
        (
            "local a = sdk.shop.put({ n = 7 }) return a",
            "at 1 the script calls shop.put with other arguments than in the journal",
        ),
        (
            "shop.set({ n = 5 }) return coroutine.wrap(function() return sdk.shop.put({ n = 1 }) end)()",
            "at 1 the script now calls shop.set, but the journal has shop.put",
        ),
        (
            "return coroutine.wrap(function() return sdk.shop.put({ n = 1 }) end)()",
            "the script no longer comes to 1, where it called shop.put",
        ),
        ("pcall(error) return 1", "the script no longer comes to 1, where it called shop.put"),
    ] {
        let mut entries = entries.clone();
        for entry in &mut entries {
            if let JournalEntry::RunBegan(began) = entry {
                began.script = script.to_owned();
            }
        }
        let second = Shop::new(&engine(), &entries, 1);
        let problem = second.resume(None).await.unwrap_err();
        assert_eq!(
            (problem.code, problem.message.as_str()),
            (ProblemCode::Diverged, expected),
            "{script}"
        );
        assert!(second.done().is_empty(), "{script}");
    }
}

#[tokio::test]
async fn a_run_that_has_ended_answers_again_and_calls_nothing() {
    let first = Shop::new(&engine(), &[], 1);
    let whole = first.run(TWO).await.unwrap();
    let second = Shop::new(&engine(), &first.journal.entries(), 1);
    assert_eq!(second.resume(None).await.unwrap(), whole);
    assert!(second.done().is_empty());
    let problem = second.execute(json!({"resume": "x"})).await.unwrap_err();
    assert!(problem.message.starts_with("'x' is not an id"), "{problem}");
    let problem = second.execute(json!({"script": "return 1", "resume": "x"})).await.unwrap_err();
    assert_eq!(problem.message, "execute takes either a script or resume");
}

#[tokio::test]
async fn refusals_are_on_record_as_well() {
    // A limit on calls of the tools is what this script goes by.
    let script = "local ok, problem = pcall(sdk.shop.put, { n = 1, [1] = 2 }) local ok2 = pcall(sdk.shop.fail, { n = 2 }) sdk.shop.put({ n = 3 }) return { ok, ok2 }";
    let first = Shop::new(&engine(), &[], 1);
    let whole = first.run(script).await.unwrap();
    let entries = first.journal.entries();
    let ended = entries.iter().position(|it| matches!(it, JournalEntry::RunEnded(_))).unwrap();
    let second = Shop::new(&engine(), &entries[..ended], 1);
    assert_eq!(second.resume(None).await.unwrap(), whole);
    assert!(second.done().is_empty(), "{:?}", second.done());
}

#[tokio::test]
async fn a_run_that_is_gone_on_with_raises_what_failed_in_an_item_again() {
    let script = "local got = map_parallel({ 1, 2 }, function(n)\n  if n == 2 then return sdk.shop.fail({ n = n }) end\n  return sdk.shop.put({ n = n })\nend, { limit = 1 })\nreturn got";
    let first = Shop::new(&engine(), &[], 1);
    let raised = first.run(script).await.unwrap_err();
    assert!(raised.message.starts_with("map_parallel: [2]: "), "{raised}");
    let all = first.journal.entries();
    let began = all.iter().position(|it| begins(it, "shop.fail", "m1.2/1")).unwrap();
    // With the answer of the second call on record, or before it was made.
    for entries in [&all[..all.len() - 1], &all[..began]] {
        let again = Shop::new(&engine(), entries, 1);
        let problem = again.resume(None).await.unwrap_err();
        assert_eq!((problem.message, problem.hint), (raised.message.clone(), raised.hint.clone()));
    }
}
