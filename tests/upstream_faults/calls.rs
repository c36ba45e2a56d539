//! What goes wrong in the middle of a call.

use std::sync::Barrier;

use serde_json::{Value, json};

use super::world::{Outcome, Way, World, lost, lost_with};
use crate::harness::eventually;
use crate::processes::is_dead;

/// Hundred megabytes are never held, whatever a debug build wastes beside.
const HUGE: i64 = 200_000;
/// A million notifications leave nothing behind.
const FLOOD: i64 = 50_000;

/// Fifteen megabytes of zeros are held as text, and as nothing else.
const ZEROS: i64 = 60_000;
/// Six answers that take as much memory as an answer may.
const PARSED: i64 = 1_000_000;

fn text(text: &str) -> Outcome {
    Ok(json!(text))
}

fn failed(text: &str) -> Outcome {
    Err(text.to_owned())
}

/// The number of the process that answers now.
fn pid(world: &World) -> u32 {
    world.call("pid").unwrap().as_str().unwrap().parse().unwrap()
}

/// For calls that never get an answer.
fn impatient() -> World {
    World::new(Way::Stdio, "healthy", "timeout = 2")
}

#[test]
fn lines_that_are_no_answers_are_passed_over() {
    let world = impatient();
    let same = pid(&world);
    assert_eq!(world.call("garbage"), text("garbage"));
    assert_eq!(world.call("duplicate"), text("duplicate"));
    assert_eq!(world.call("batch"), text("batch"));
    assert_eq!(world.call("text_id"), text("text_id"));
    // Answers to somebody else are no answer.
    let expected = "timeout; tool 'bad.wrong_id' timed out after 2 seconds; ";
    assert_eq!(world.call_meanwhile("wrong_id", json!({})), Err(expected.to_owned()));
    let expected = "tool_error; upstream 'bad': it answered with neither a result nor an error; ";
    assert_eq!(world.call_meanwhile("no_result", json!({})), Err(expected.to_owned()));
    // All of it was one connection.
    assert_eq!(world.call("echo"), text("echo"));
    assert_eq!(pid(&world), same);
    world.end();
}

#[test]
fn results_that_are_none_say_so_and_odd_ones_arrive() {
    let world = World::stdio("healthy");
    let same = pid(&world);
    for (tool, expected) in [
        ("odd_content", Ok(json!([{"type": "hologram", "beam": 1}, "beside it"]))),
        ("empty_result", Ok(json!([]))),
        ("null_result", Ok(json!([]))),
        // What it promised is between the server and whoever reads it.
        ("wrong_output", Ok(json!({"n": "one"}))),
        (
            "text_for_content",
            failed("tool_error; upstream 'bad' answered with content that is no list but string; "),
        ),
        (
            "list_result",
            lost_with("tool_error", "upstream 'bad' answered with array where an object belongs"),
        ),
        (
            "deep_result",
            lost_with(
                "limit",
                "the answer of upstream 'bad' cannot be read: the JSON is nested deeper than 128 levels",
            ),
        ),
        ("odd_error", failed("tool_error; upstream 'bad': \"a text instead of an object\"; ")),
        ("both", failed("tool_error; upstream 'bad': not fine; ")),
    ] {
        assert_eq!(world.call(tool), expected, "{tool}");
    }
    assert_eq!(pid(&world), same);
    world.end();
}

#[test]
fn a_tool_that_kills_its_server_is_executed_once() {
    let world = World::stdio("healthy");
    let first = pid(&world);
    assert_eq!(world.call("die"), lost("upstream 'bad' exited with code 9"));
    // Nobody has to do anything: the next call finds it started again.
    assert_ne!(pid(&world), first);
    assert!(is_dead(first));
    assert_eq!(world.count("call die"), 1);
    assert_eq!(world.count("start"), 2);
    assert_eq!(world.call("die"), lost("upstream 'bad' exited with code 9"));
    assert_eq!(world.call("echo"), text("echo"));
    assert_eq!(world.count("call die"), 2);
    world.end();
}

#[test]
fn a_tool_that_only_reads_is_called_again_when_its_server_dies_and_only_once_more() {
    let world = World::stdio("healthy");
    let first = pid(&world);
    assert_eq!(world.call("read_and_die_once"), text("read_and_die_once"));
    assert_ne!(pid(&world), first);
    assert_eq!((world.count("call read_and_die_once"), world.count("start")), (2, 2));
    let told = world.call("read_and_die").unwrap_err();
    let expected = "unavailable; upstream 'bad' exited with code 9; it was tried twice; ";
    assert!(told.starts_with(expected) && told.len() > expected.len(), "{told}");
    assert_eq!(world.count("call read_and_die"), 2);
    // One that may change something is not, though it would be answered the second time.
    assert_eq!(world.call("die_once"), lost("upstream 'bad' exited with code 9"));
    assert_eq!(world.count("call die_once"), 1);
    assert_eq!(world.call("die_once"), text("die_once"));
    world.end();
}

#[test]
fn all_calls_that_a_dying_server_had_are_told_and_none_is_made_again() {
    let world = World::stdio("healthy");
    std::thread::scope(|scope| {
        let hanging: Vec<_> = (0..8).map(|_| scope.spawn(|| world.call("hang"))).collect();
        world.wait_for_count("call hang", 8);
        assert_eq!(world.call("die"), lost("upstream 'bad' exited with code 9"));
        for call in hanging {
            assert_eq!(call.join().unwrap(), lost("upstream 'bad' exited with code 9"));
        }
    });
    assert_eq!(world.call("echo"), text("echo"));
    assert_eq!((world.count("call hang"), world.count("call die")), (8, 1));
    world.end();
}

#[test]
fn half_an_answer_is_none() {
    let world = World::stdio("healthy");
    let first = pid(&world);
    assert_eq!(world.call("half"), lost("upstream 'bad' exited with code 0"));
    assert_ne!(pid(&world), first);
    assert_eq!(world.count("call half"), 1);
    world.end();
}

#[test]
fn a_whole_answer_counts_even_if_its_line_does_not_end() {
    let world = World::stdio("healthy");
    assert_eq!(world.call("unended"), text("unended"));
    assert_eq!(world.call("echo"), text("echo"));
    assert_eq!(world.count("call unended"), 1);
    world.end();
}

#[test]
fn a_server_that_closes_its_pipes_and_stays_is_ended_and_started_again() {
    let world = World::stdio("healthy");
    let first = pid(&world);
    assert_eq!(
        world.call("close"),
        lost("upstream 'bad' closed its input or output and was ended")
    );
    assert_ne!(pid(&world), first);
    eventually("the end of the one that stayed", || {
        if is_dead(first) { Ok(()) } else { Err(first.to_string()) }
    });
    world.end();
}

#[test]
fn a_call_that_hangs_ends_with_its_deadline_and_is_cancelled() {
    let world = impatient();
    let same = pid(&world);
    assert_eq!(
        world.call_meanwhile("hang", json!({})),
        failed("timeout; tool 'bad.hang' timed out after 2 seconds; ")
    );
    world.wait_for_count("cancelled", 1);
    // The server is not to blame for one call.
    assert_eq!(pid(&world), same);
    world.end();
}

#[test]
fn a_caller_that_goes_away_cancels_its_call() {
    let world = World::stdio("healthy");
    let body = b"{}";
    let mut stream = std::net::TcpStream::connect(&world.server.address).unwrap();
    let head = format!(
        "POST /tools/bad.hang HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        world.server.address,
        body.len()
    );
    std::io::Write::write_all(&mut stream, &[head.as_bytes(), body].concat()).unwrap();
    world.wait_for_count("call hang", 1);
    drop(stream);
    world.wait_for_count("cancelled", 1);
    world.end();
}

#[test]
fn an_answer_of_a_hundred_megabytes_is_refused_and_never_held() {
    let world = impatient();
    let same = pid(&world);
    let grown = world.grown(|world| {
        assert_eq!(
            world.call_meanwhile("huge", json!({})),
            lost_with("limit", "upstream 'bad' answered with more than 32 MB")
        );
        // Where the id comes too late, nobody can tell whose answer it is.
        assert_eq!(
            world.call_meanwhile("huge", json!({"late": true})),
            failed("timeout; tool 'bad.huge' timed out after 2 seconds; ")
        );
    });
    assert!(grown < HUGE, "{grown} KB more");
    assert_eq!(world.call("echo"), text("echo"));
    assert_eq!(pid(&world), same);
    world.end();
}

#[test]
fn an_answer_of_millions_of_zeros_is_refused_before_it_takes_memory() {
    let world = World::new(Way::Stdio, "healthy", "timeout = 60");
    let same = pid(&world);
    let refused = || {
        lost_with(
            "limit",
            "the answer of upstream 'bad' cannot be read: the JSON has so many values that reading it would take more than 160 MB",
        )
    };
    let alone = world.grown(|world| {
        assert_eq!(world.call_meanwhile("zeros", json!({})), refused());
    });
    assert!(alone < ZEROS, "{alone} KB more");
    let together = world.grown(|world| {
        for outcome in at_once(world, 6, &json!({})) {
            assert_eq!(outcome, refused());
        }
    });
    assert!(together < 6 * ZEROS, "{together} KB more");
    assert_eq!(pid(&world), same);
    world.end();
}

/// Each takes about as much as one answer may, so that not all six are read at once.
#[test]
fn answers_of_as_many_zeros_as_may_be_are_read_a_few_at_a_time() {
    let world = World::new(Way::Stdio, "healthy", "timeout = 60");
    let same = pid(&world);
    let many = json!({"count": 1_600_000});
    let grown = world.grown(|world| {
        for outcome in at_once(world, 6, &many) {
            match outcome {
                Ok(answer) => assert_eq!(answer["zeros"].as_array().unwrap().len(), 1_600_000),
                Err(told) => assert_eq!(
                    Err(told),
                    lost("the answer of upstream 'bad' cannot be read: too much JSON is being read at this moment")
                ),
            }
        }
    });
    assert!(grown < PARSED, "{grown} KB more");
    assert_eq!(world.call("echo"), text("echo"));
    assert_eq!(pid(&world), same);
    world.end();
}

/// The outcomes of as many calls of `zeros` at once.
fn at_once(world: &World, count: usize, args: &Value) -> Vec<Outcome> {
    let start = Barrier::new(count);
    std::thread::scope(|scope| {
        let call = || {
            start.wait();
            world.call_with("zeros", args.clone())
        };
        let calls: Vec<_> = (0..count).map(|_| scope.spawn(call)).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    })
}

#[test]
fn a_million_notifications_hold_nobody_up_and_leave_nothing() {
    let world = World::new(Way::Stdio, "healthy", "timeout = 60");
    let grown = world.grown(|world| {
        for (method, params) in [
            ("notifications/message", json!({"level": "info", "data": "flood"})),
            ("notifications/progress", json!({"progressToken": 1, "progress": 1})),
            ("notifications/tools/list_changed", json!({})),
            ("notifications/nobody/knows", json!({})),
        ] {
            let args = json!({"method": method, "params": params});
            assert_eq!(world.call_meanwhile("flood", args), text("flood"), "{method}");
        }
    });
    assert!(grown < FLOOD, "{grown} KB more");
    world.end();
}

#[test]
fn questions_of_a_server_are_answered_and_too_many_do_no_harm() {
    let world = World::new(Way::Stdio, "healthy", "timeout = 20");
    let few = json!({"count": 50, "wait": true});
    assert_eq!(world.call_with("asks", few), text("asks"));
    let grown = world.grown(|world| {
        assert_eq!(world.call_with("asks", json!({"count": 100_000})), text("asks"));
    });
    assert!(grown < FLOOD, "{grown} KB more");
    world.end();
}

#[test]
fn eight_clients_are_inside_one_server_at_once() {
    let world = World::stdio("healthy");
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                assert_eq!(world.call("slow"), text("done"));
            });
        }
    });
    assert_eq!(world.call("peak"), text("8"));
    world.end();
}

#[test]
fn a_server_that_changes_its_tools_while_being_called_is_followed() {
    let world = World::stdio("healthy");
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| world.call("slow"));
        world.wait_for_count("call slow", 1);
        assert_eq!(world.call_with("change", json!({"remove": "slow"})), text("changed"));
        eventually("the new list", || {
            let tools = world.tools();
            if tools.contains(&"added_1".to_owned()) && !tools.contains(&"slow".to_owned()) {
                Ok(())
            } else {
                Err(format!("{tools:?}"))
            }
        });
        // What had begun goes on.
        assert_eq!(slow.join().unwrap(), text("done"));
    });
    assert_eq!(world.call("added_1"), text("added_1"));
    let gone = world.call("slow").unwrap_err();
    assert!(gone.starts_with("not_found; no tool registered with name: bad.slow; "), "{gone}");
    world.end();
}

#[test]
fn a_server_that_dies_again_and_again_leaves_nothing_open() {
    let world = World::stdio("healthy");
    world.leaks_nothing(|world| {
        assert!(world.call("die").is_err());
        assert_eq!(world.call("echo"), text("echo"));
    });
    world.end();
}
