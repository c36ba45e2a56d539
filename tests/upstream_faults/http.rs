//! What goes wrong over HTTP, with and without a stream.

use serde_json::json;

use super::world::{Outcome, Way, World, told};

fn failed(text: &str) -> Outcome {
    Err(text.to_owned())
}

/// Made once and never again, whatever comes of it.
fn check(world: &World, tool: &str, expected: Outcome) {
    let before = world.count(&format!("call {tool}"));
    assert_eq!(world.call_meanwhile(tool, json!({})), expected, "{tool}");
    assert_eq!(world.count(&format!("call {tool}")), before + 1, "{tool}");
}

#[test]
fn statuses_of_a_call_say_what_to_do() {
    let world = World::http("healthy");
    for (tool, expected) in [
        ("unauthorized", failed("?")),
        ("forbidden", failed("?")),
        ("busy", failed("?")),
        ("broken", failed("?")),
        ("accepted", failed("?")),
    ] {
        check(&world, tool, expected);
    }
    let (status, answer) = world.server.post("bad.busy", &json!({}));
    assert_eq!((status, &answer["error"]["retry_after"]), (429, &json!(7)));
    assert_eq!(world.call("echo"), Ok(json!("echo")));
    world.end();
}

#[test]
fn bodies_that_are_no_answer_say_so() {
    let world = World::http("healthy");
    for (tool, expected) in [
        ("html", failed("?")),
        ("no_json", failed("?")),
        ("wrong_id", failed("?")),
        ("half_body", failed("?")),
        ("hung_up", failed("?")),
        ("huge_header", failed("?")),
    ] {
        check(&world, tool, expected);
    }
    assert_eq!(world.call("echo"), Ok(json!("echo")));
    world.end();
}

#[test]
fn answers_without_end_are_cut_off_and_never_held() {
    let world = World::new(Way::Http, "healthy", "timeout = 20");
    let grown = world.grown(|world| {
        for (tool, expected) in
            [("huge", failed("?")), ("endless_body", failed("?")), ("endless_event", failed("?"))]
        {
            check(world, tool, expected);
        }
    });
    assert!(grown < 200_000, "{grown} KB more");
    world.end();
}

#[test]
fn answers_that_do_not_come_end_with_the_calls_deadline() {
    let world = World::new(Way::Http, "healthy", "timeout = 2");
    for (tool, expected) in
        [("silent_head", failed("?")), ("slow_body", failed("?")), ("hang", failed("?"))]
    {
        check(&world, tool, expected);
    }
    world.wait_for_count("cancelled", 1);
    assert_eq!(world.call("echo"), Ok(json!("echo")));
    world.end();
}

#[test]
fn a_stream_that_drops_without_event_ids_may_have_happened() {
    let world = World::http("healthy");
    check(&world, "dropped_stream", failed("?"));
    assert_eq!(world.call("echo"), Ok(json!("echo")));
    world.end();
}

#[test]
fn a_stream_that_drops_with_event_ids_is_taken_up_again() {
    let world = World::http("healthy");
    check(&world, "resumed_stream", Ok(json!("resumed_stream")));
    check(&world, "never_resumed", failed("?"));
    world.end();
}

#[test]
fn a_flood_on_a_stream_leaves_nothing() {
    let world = World::new(Way::Http, "healthy", "timeout = 60");
    let grown = world.grown(|world| check(world, "flood", Ok(json!("flood"))));
    assert!(grown < 50_000, "{grown} KB more");
    world.end();
}

#[test]
fn redirects_are_followed_only_where_the_operator_pointed() {
    let world = World::http("healthy");
    assert_eq!(world.call("redirect_same"), Ok(json!("redirect_same")));
    // `end` sees to it that nobody was asked there.
    check(&world, "redirect_other", failed("?"));
    assert_eq!(world.call("redirect_loop"), failed("?"));
    world.end();
}

#[test]
fn a_session_that_is_forgotten_is_begun_again() {
    let world = World::http("healthy");
    for round in 1..=3 {
        assert_eq!(world.call("forget"), Ok(json!("forget")));
        assert_eq!(world.call("echo"), Ok(json!("echo")));
        assert_eq!(world.count("call echo"), round);
    }
    world.end();
}

#[test]
fn tools_that_change_are_followed_over_http_too() {
    for way in [Way::Http, Way::Sse] {
        let world = World::new(way, "healthy", "");
        assert_eq!(world.call("change"), Ok(json!("changed")));
        world.wait_for_tool("added_1");
        assert_eq!(world.call("added_1"), Ok(json!("added_1")));
        world.end();
    }
}

/// A server that never gets ready.
fn check_failing(way: Way, mode: &str, expected: &str) {
    let world = World::new(way, mode, "connect_timeout = 3");
    let source = world.wait_for_state("failed");
    assert_eq!(told(&source["error"]), expected, "{mode}");
    assert_eq!(world.call("echo"), failed(expected), "{mode}");
    world.end();
}

#[test]
fn a_server_that_wants_to_know_who_we_are_is_not_ready() {
    check_failing(Way::Http, "unauthorized", "?");
    check_failing(Way::Http, "forbidden", "?");
}

#[test]
fn a_server_in_trouble_is_not_ready() {
    check_failing(Way::Http, "busy", "?");
    check_failing(Way::Http, "broken", "?");
}

#[test]
fn a_site_that_is_no_server_is_not_ready() {
    check_failing(Way::Http, "html", "?");
    check_failing(Way::Http, "no_json", "?");
    check_failing(Way::Http, "accepted", "?");
    check_failing(Way::Http, "hung_up", "?");
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    check_failing(Way::Http, "silent_head", "?");
    check_failing(Way::Http, "slow_body", "?");
    check_failing(Way::Http, "silent_initialize", "?");
}

#[test]
fn a_server_that_sends_us_elsewhere_is_not_followed() {
    check_failing(Way::Http, "redirect_other", "?");
    check_failing(Way::Http, "redirect_loop", "?");
}

#[test]
fn a_server_that_has_moved_on_its_own_ground_is_found() {
    let world = World::http("redirect_same");
    assert_eq!(world.call("echo"), Ok(json!("echo")));
    world.end();
}

#[test]
fn the_older_transport_fails_as_clearly() {
    let world = World::new(Way::Sse, "healthy", "timeout = 2");
    assert_eq!(world.call("echo"), Ok(json!("echo")));
    check(&world, "broken", failed("?"));
    check(&world, "hang", failed("?"));
    check(&world, "silent_head", failed("?"));
    check(&world, "dropped_stream", failed("?"));
    assert_eq!(world.call("echo"), Ok(json!("echo")));
    world.end();
    check_failing(Way::Sse, "no_endpoint", "?");
    check_failing(Way::Sse, "other_endpoint", "?");
}

#[test]
fn eight_clients_are_inside_one_site_at_once() {
    for way in [Way::Http, Way::Sse] {
        let world = World::new(way, "healthy", "");
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    assert_eq!(world.call("slow"), Ok(json!("done")));
                });
            }
        });
        assert_eq!(world.call("peak"), Ok(json!("8")));
        world.end();
    }
}

#[test]
fn a_site_that_is_not_there_is_said_to_be() {
    let world = World::http("healthy");
    assert_eq!(world.call("echo"), Ok(json!("echo")));
    world.stop_site();
    assert_eq!(world.call("echo"), failed("?"));
    world.end();
}

#[test]
fn connections_that_fail_again_and_again_leave_nothing_open() {
    let world = World::http("healthy");
    world.leaks_nothing(|world| {
        for tool in ["hung_up", "half_body", "dropped_stream", "broken", "html", "forget"] {
            let _ = world.call(tool);
        }
        assert_eq!(world.call("echo"), Ok(json!("echo")));
    });
    world.end();
}
