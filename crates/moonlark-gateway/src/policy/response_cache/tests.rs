use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;

use super::*;
use crate::tool_body::ToolBody;
use moonlark_core::problem::ProblemCode;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{Source, SourceKind};

fn tool() -> Arc<Tool> {
    let source = Arc::new(Source { kind: SourceKind::Upstream, name: "a".to_owned() });
    let schema = Schema::description_only(serde_json::Map::new());
    Arc::new(Tool::new("a.b", source, schema, ToolBody::from_fn(|_, _| Ok(Value::Null))))
}

const LONG: Duration = Duration::from_secs(3600);

fn answer(text: &str) -> Result<ToolAnswer> {
    Ok(ToolAnswer::Value(text.into()))
}

/// Ask at once, which must not wait.
fn now(
    kept: &ResponseCache,
    tool: &Arc<Tool>,
    good_for: Duration,
    says: Result<ToolAnswer>,
) -> Result<ToolAnswer> {
    let asked = kept.get_or_run("key".to_owned(), "", tool, good_for, async { says });
    asked.now_or_never().expect("it does not wait")
}

#[test]
fn an_answer_is_given_again_for_as_long_as_it_is_good() {
    let (kept, tool) = (ResponseCache::default(), tool());
    assert_eq!(now(&kept, &tool, LONG, answer("first")), answer("first"));
    assert_eq!(now(&kept, &tool, LONG, answer("second")), answer("first"));
    let kept = ResponseCache::default();
    assert_eq!(now(&kept, &tool, Duration::ZERO, answer("first")), answer("first"));
    assert_eq!(now(&kept, &tool, Duration::ZERO, answer("second")), answer("second"));
}

#[test]
fn a_tool_that_was_loaded_anew_is_asked_anew() {
    let (kept, old, new) = (ResponseCache::default(), tool(), tool());
    assert_eq!(now(&kept, &old, LONG, answer("old")), answer("old"));
    assert_eq!(now(&kept, &new, LONG, answer("new")), answer("new"));
}

#[test]
fn errors_and_answers_in_a_protocols_own_words_are_not_kept() {
    let (kept, tool) = (ResponseCache::default(), tool());
    let failed = || Err(Problem::tool_error("no"));
    assert_eq!(now(&kept, &tool, LONG, failed()), failed());
    let raw = || Ok(ToolAnswer::Raw(Default::default()));
    assert_eq!(now(&kept, &tool, LONG, raw()), raw());
    assert_eq!(now(&kept, &tool, LONG, answer("yes")), answer("yes"));
}

#[tokio::test]
async fn who_asks_the_same_meanwhile_gets_the_same_answer() {
    let (kept, tool) = (ResponseCache::default(), tool());
    let made = AtomicUsize::new(0);
    let ask = |says: Result<ToolAnswer>| {
        let made = &made;
        kept.get_or_run("key".to_owned(), "", &tool, LONG, async move {
            made.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            says
        })
    };
    let (a, b, c) = tokio::join!(ask(answer("a")), ask(answer("b")), ask(answer("c")));
    assert_eq!((a, b, c), (answer("a"), answer("a"), answer("a")));
    assert_eq!(made.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn the_next_asks_itself_if_the_first_goes_away_or_ran_out_of_time() {
    let (kept, tool) = (ResponseCache::default(), tool());
    let mut first =
        Box::pin(kept.get_or_run("key".to_owned(), "", &tool, LONG, std::future::pending()));
    assert!((&mut first).now_or_never().is_none());
    let mut second =
        Box::pin(kept.get_or_run("key".to_owned(), "", &tool, LONG, async { answer("second") }));
    assert!((&mut second).now_or_never().is_none());
    drop(first);
    assert_eq!(second.await, answer("second"));

    let kept = ResponseCache::default();
    let late = || Problem::new(ProblemCode::Timeout, "late");
    let slow = kept.get_or_run("key".to_owned(), "", &tool, LONG, async {
        tokio::task::yield_now().await;
        Err(late())
    });
    let other = kept.get_or_run("key".to_owned(), "", &tool, LONG, async { answer("in time") });
    assert_eq!(tokio::join!(slow, other), (Err(late()), answer("in time")));
}

#[test]
fn what_is_kept_is_bounded_in_number_and_bytes() {
    let (kept, tool) = (ResponseCache::default(), tool());
    let put = |key: String, text: String| {
        let says = Ok(ToolAnswer::Value(text.into()));
        kept.get_or_run(key, "", &tool, LONG, async { says }).now_or_never().unwrap().unwrap();
    };
    for number in 0..MAX_CACHED_ANSWERS + 100 {
        put(number.to_string(), String::new());
    }
    assert!(kept.all.lock().slots.len() <= MAX_CACHED_ANSWERS);
    for number in 0..40 {
        put(format!("long {number}"), "x".repeat(MAX_CACHED_ANSWER_BYTES / 2));
    }
    let all = kept.all.lock();
    let counted: usize = all.slots.values().map(ResponseCacheEntry::cached_bytes).sum();
    assert!(all.bytes <= MAX_CACHE_BYTES && all.bytes == counted, "{} of {counted}", all.bytes);
    drop(all);
    put("too long".to_owned(), "x".repeat(MAX_CACHED_ANSWER_BYTES));
    assert!(!kept.all.lock().slots.contains_key("too long"));
}

#[test]
fn answers_of_one_caller_never_push_out_those_of_another_within_its_share() {
    let (kept, tool) = (ResponseCache::default(), tool());
    let ask = |caller: &str, n: usize, says: &str| {
        let asked =
            kept.get_or_run(format!("{caller} {n}"), caller, &tool, LONG, async { answer(says) });
        asked.now_or_never().expect("it does not wait")
    };
    assert_eq!(ask("ann", 0, "first"), answer("first"));
    for n in 0..2 * MAX_CACHED_ANSWERS {
        assert_eq!(ask("bob", n, "bob's"), answer("bob's"));
    }
    assert_eq!(ask("ann", 0, "second"), answer("first"));
    assert_eq!(ask("bob", 0, "asked again"), answer("asked again"));
}
