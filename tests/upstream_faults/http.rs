//! What goes wrong over HTTP, with and without a stream.

use serde_json::json;

use super::world::{Outcome, Way, World, lost, lost_with, not_there};

const LOGIN: &str = "unavailable; upstream 'bad' requires a login; add `auth = \"oauth\"` to [mcp_servers.bad] in moonlark.toml and run `moonlark login bad`, or give it a token of yours: `auth = { type = \"bearer\", token = \"${TOKEN}\" }`";
const FORBIDDEN: &str = "forbidden; upstream 'bad' does not allow this (HTTP 403); see what the account or token of mcp_servers.bad may do";
const BUSY: &str =
    "rate_limited; upstream 'bad' answered with HTTP 429 Too Many Requests; try again in 7 seconds";
const SILENT: &str = "timeout; upstream 'bad' did not answer initialize within 3 seconds; see whether an MCP server is running at SITE";

fn timed_out(tool: &str) -> Outcome {
    Err(format!("timeout; tool 'bad.{tool}' timed out after 2 seconds; "))
}

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
        ("unauthorized", failed(LOGIN)),
        ("forbidden", failed(FORBIDDEN)),
        ("busy", failed(BUSY)),
        (
            "broken",
            lost("upstream 'bad' answered with HTTP 500 Internal Server Error: a stack trace"),
        ),
        ("accepted", lost("upstream 'bad' answered with nothing where JSON or events belong")),
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
        ("html", lost("upstream 'bad' answered with text/html where JSON or events belong")),
        (
            "no_json",
            lost("upstream 'bad' answered with something else where JSON or events belong"),
        ),
        (
            "wrong_id",
            lost("upstream 'bad' answered with something else where JSON or events belong"),
        ),
        (
            "half_body",
            lost(
                "upstream 'bad' broke the connection off: end of file before message length reached",
            ),
        ),
        (
            "hung_up",
            lost(
                "upstream 'bad' broke the connection off: connection closed before message completed",
            ),
        ),
        ("huge_header", lost("upstream 'bad' broke the connection off: message head is too large")),
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
        for (tool, expected) in [
            ("huge", lost_with("limit", "upstream 'bad' answered with more than 32 MB")),
            ("endless_body", lost_with("limit", "upstream 'bad' answered with more than 32 MB")),
        ] {
            check(world, tool, expected);
        }
    });
    assert!(grown < 200_000, "{grown} KB more");
    world.end();
}

#[test]
fn answers_that_do_not_come_end_with_the_calls_deadline() {
    let world = World::new(Way::Http, "healthy", "timeout = 2");
    for (tool, expected) in [
        ("silent_head", timed_out("silent_head")),
        ("slow_body", timed_out("slow_body")),
        ("hang", timed_out("hang")),
        ("endless_event", timed_out("endless_event")),
    ] {
        check(&world, tool, expected);
    }
    world.wait_for_count("cancelled", 1);
    assert_eq!(world.call("echo"), Ok(json!("echo")));
    world.end();
}

#[test]
fn a_stream_that_drops_without_event_ids_may_have_happened() {
    let world = World::http("healthy");
    check(&world, "dropped_stream", lost("upstream 'bad' ended its stream without an answer"));
    assert_eq!(world.call("echo"), Ok(json!("echo")));
    world.end();
}

#[test]
fn a_stream_that_drops_with_event_ids_is_taken_up_again() {
    let world = World::http("healthy");
    check(&world, "resumed_stream", Ok(json!("resumed_stream")));
    check(&world, "never_resumed", lost("upstream 'bad' ended its stream without an answer"));
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
    check(
        &world,
        "redirect_other",
        failed(
            "unavailable; upstream 'bad' redirects to REMOTE, another origin: not followed; if it moved there, set url of mcp_servers.bad",
        ),
    );
    assert_eq!(
        world.call("redirect_loop"),
        failed("unavailable; upstream 'bad': too many redirects; check url of mcp_servers.bad")
    );
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
    assert_eq!(world.told(&source["error"]), expected, "{mode}");
    assert_eq!(world.call("echo"), not_there(expected), "{mode}");
    world.end();
}

#[test]
fn a_server_that_wants_to_know_who_we_are_is_not_ready() {
    check_failing(Way::Http, "unauthorized", LOGIN);
    check_failing(Way::Http, "forbidden", FORBIDDEN);
}

#[test]
fn a_server_in_trouble_is_not_ready() {
    check_failing(Way::Http, "busy", BUSY);
    check_failing(
        Way::Http,
        "broken",
        "unavailable; upstream 'bad' answered with HTTP 500 Internal Server Error: a stack trace; see the log of SITE",
    );
}

#[test]
fn a_site_that_is_no_server_is_not_ready() {
    check_failing(
        Way::Http,
        "html",
        "unavailable; upstream 'bad' answered with text/html where JSON or events belong; see whether url of mcp_servers.bad is that of an MCP server",
    );
    check_failing(
        Way::Http,
        "no_json",
        "unavailable; upstream 'bad' answered with something else where JSON or events belong; see whether url of mcp_servers.bad is that of an MCP server",
    );
    check_failing(
        Way::Http,
        "accepted",
        "unavailable; upstream 'bad' answered with nothing where JSON or events belong; see whether url of mcp_servers.bad is that of an MCP server",
    );
    check_failing(
        Way::Http,
        "hung_up",
        "unavailable; upstream 'bad' broke the connection off: connection closed before message completed; ",
    );
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    check_failing(Way::Http, "silent_head", SILENT);
    check_failing(Way::Http, "slow_body", SILENT);
    check_failing(Way::Http, "silent_initialize", SILENT);
}

#[test]
fn a_server_that_sends_us_elsewhere_is_not_followed() {
    check_failing(
        Way::Http,
        "redirect_other",
        "unavailable; upstream 'bad' redirects to REMOTE, another origin: not followed; if it moved there, set url of mcp_servers.bad",
    );
    check_failing(
        Way::Http,
        "redirect_loop",
        "unavailable; upstream 'bad': too many redirects; check url of mcp_servers.bad",
    );
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
    check(
        &world,
        "broken",
        lost("upstream 'bad' answered with HTTP 500 Internal Server Error: a stack trace"),
    );
    check(&world, "hang", timed_out("hang"));
    check(&world, "silent_head", timed_out("silent_head"));
    check(&world, "dropped_stream", lost("upstream 'bad' ended its stream"));
    assert_eq!(world.call("echo"), Ok(json!("echo")));
    world.end();
    check_failing(Way::Sse, "no_endpoint", SILENT);
    check_failing(
        Way::Sse,
        "other_endpoint",
        "unavailable; upstream 'bad' wants messages at REMOTE, which is another server; if it speaks Streamable HTTP, remove transport of mcp_servers.bad",
    );
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
    let expected = "unavailable; upstream 'bad' cannot be reached at SITE: Connection refused (os error 111); see whether the server is running, and reachable from here";
    assert_eq!(world.call("echo"), failed(expected));
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
