//! What an agent hears of a run: one progress that only grows, its logs, and
//! which calls were made.

use serde_json::{Value, json};

use super::upstream::{Offer, Reply, Upstream, text};
use super::world::{ERAS, Era, Heard, Ran, World};
use crate::harness::Project;

const COUNTDOWN: &str = r#"
tool = { name = "count", description = "Count", parameters = {} }
function tool.execute()
    for i = 1, 4 do progress(i, 4) sleep(0.15) end
    log.info("counted")
    return "done"
end
"#;

fn upstream() -> Upstream {
    Upstream::start(vec![
        Offer::new("tell", json!({}), |_| Reply::Telling(vec![25.0, 50.0, 75.0], text("told"))),
        Offer::of("echo", text("here")),
        Offer::of("broken", json!({"content": [], "isError": true})),
    ])
}

fn execute(world: &World, era: Era, script: &str, meta: Value) -> Heard {
    let params = json!({"name": "execute", "arguments": {"script": script}, "_meta": meta});
    world.ask(era, "tools/call", params)
}

/// The reports of one token, in order.
fn reports(heard: &Heard) -> Vec<(f64, f64)> {
    let progress = heard.said.iter().filter(|it| it["method"] == "notifications/progress");
    let number = |value: &Value| value.as_f64().unwrap();
    progress
        .map(|it| {
            assert_eq!(it["params"]["progressToken"], "token");
            (number(&it["params"]["progress"]), number(&it["params"]["total"]))
        })
        .collect()
}

#[test]
fn the_progress_of_many_calls_is_one_that_only_grows() {
    let upstream = upstream();
    let project = Project::new(&[("tools/count.luau", COUNTDOWN)]);
    let world = World::of(project, "", &[("far", &upstream)]);
    assert_eq!(world.value("return sdk.far.echo()"), json!("here"));
    let script = "
        local a, b, c = tools.count(), tools.count(), far.tell()
        await_all({ a, b, c })
        return sdk.tools.count()";
    for era in ERAS {
        let heard = execute(&world, era, script, json!({"progressToken": "token"}));
        assert_eq!(Ran(heard.answer.clone()).content()[0]["text"], "done");
        let reports = reports(&heard);
        assert!(reports.len() >= 3, "{reports:?}");
        for pair in reports.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{reports:?}");
        }
        let (last, total) = reports[reports.len() - 1];
        assert!(last <= total, "{reports:?}");
    }
    // Who did not ask is not told.
    assert!(reports(&execute(&world, Era::New, script, json!({}))).is_empty());
}

#[test]
fn a_script_may_report_by_itself() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    let script = "
        progress(1, 3) sleep(0.2) sdk.far.tell() progress(2, 3) sleep(0.2) progress(3, 3)
        return 'done'";
    let heard = execute(&world, Era::New, script, json!({"progressToken": "token"}));
    let reports = reports(&heard);
    assert!(reports.iter().all(|(_, total)| *total == 3.0), "{reports:?}");
    assert_eq!(reports[reports.len() - 1], (3.0, 3.0));
}

#[test]
fn what_a_script_prints_comes_with_its_result() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    for era in ERAS {
        let script = "print('a', 1, true, nil) log.warn('careful') return { sum = 3 }";
        let ran = world.run_in(era, script);
        // The result is not touched by it.
        assert_eq!(ran.result()["structuredContent"], json!({"sum": 3}));
        let first = ran.result()["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(first).unwrap(), json!({"sum": 3}));
        let said = ran.said().expect("a block with the logs");
        for word in ["a", "1", "true", "careful"] {
            assert!(said.contains(word), "{said}");
        }
        let logs = ran.about()["logs"].as_array().unwrap();
        assert_eq!(logs.len(), 2, "{logs:?}");
    }
    let quiet = world.run("return 1");
    assert_eq!(quiet.said(), None);
    // A long one is cut where it is read, and never without saying so.
    let ran = world.run("for i = 1, 2000 do print('line ' .. i) end return 1");
    let said = ran.said().unwrap();
    assert!(said.len() < 8 << 10, "{} bytes", said.len());
}

#[test]
fn a_script_that_fails_does_not_lose_its_logs() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    let (Ok(answer) | Err(answer)) =
        world.run("print('so far so good') sdk.far.echo() error('no more')").0;
    assert_eq!(answer["isError"], true, "{answer}");
    for word in ["no more", "so far so good", "script:1"] {
        assert!(answer.to_string().contains(word), "no {word:?} in {answer}");
    }
    // Nor the calls it made.
    let calls = &answer["_meta"]["moonlark/run"]["calls"];
    assert_eq!(calls[0]["tool"], "far.echo", "{answer}");
    assert_eq!(calls[0]["outcome"], "ok", "{answer}");
}

#[test]
fn the_calls_of_a_run_are_on_record() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    let script = "
        sdk.far.echo()
        local p = far.echo()
        pcall(sdk.far.broken)
        p:await()
        return 'done'";
    let ran = world.run(script);
    let about = ran.about();
    let calls: Vec<(&Value, &Value)> =
        about["calls"].as_array().unwrap().iter().map(|it| (&it["tool"], &it["outcome"])).collect();
    let (echo, broken) = (json!("far.echo"), json!("far.broken"));
    let (ok, failed) = (json!("ok"), json!("tool_error"));
    for (call, times) in [((&echo, &ok), 2), ((&broken, &failed), 1)] {
        assert_eq!(calls.iter().filter(|it| **it == call).count(), times, "{about}");
    }
    assert!(about["calls"][0]["ms"].is_number(), "{about}");
    assert!(about["ms"].is_number(), "{about}");
}

#[test]
fn logs_reach_the_client_as_they_are_said() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    let meta = json!({"io.modelcontextprotocol/logLevel": "info"});
    let heard = execute(&world, Era::New, "log.info('on the way') return 1", meta);
    let said = heard.said.iter().find(|it| it["method"] == "notifications/message");
    let said = said.unwrap_or_else(|| panic!("nothing was said: {:?}", heard.answer));
    assert!(said.to_string().contains("on the way"), "{said}");
}
