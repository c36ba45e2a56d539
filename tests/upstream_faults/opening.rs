//! What goes wrong before there is a connection.

use serde_json::json;

use super::world::{Way, World, not_there};
use crate::processes::signal;

/// A server that never gets ready: `GET /sources` says why, and so does a call.
fn check_failing(mode: &str, expected: &str) {
    check_failing_within(2, mode, expected);
}

fn check_failing_within(seconds: u32, mode: &str, expected: &str) {
    let world = World::new(Way::Stdio, mode, &format!("connect_timeout = {seconds}"));
    let source = world.wait_for_state("failed");
    assert_eq!(world.told(&source["error"]), expected, "{mode}");
    assert_eq!(world.call("echo"), not_there(expected), "{mode}");
    world.end();
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    check_failing(
        "silent",
        "timeout; upstream 'bad' did not answer initialize within 2 seconds; run its command by hand to see what it waits for: FAULTY …",
    );
}

#[test]
fn a_server_that_never_answers_initialize_is_given_up() {
    check_failing(
        "silent_initialize",
        "timeout; upstream 'bad' did not answer initialize within 2 seconds; run its command by hand to see what it waits for: FAULTY …",
    );
}

#[test]
fn a_server_that_exits_at_once_is_quoted() {
    check_failing(
        "exits",
        "unavailable; upstream 'bad' exited with code 3; its output: faulty: no licence found; run its command by hand to see why: FAULTY …",
    );
}

#[test]
fn a_server_that_refuses_initialize_is_quoted() {
    check_failing(
        "refuses_initialize",
        "unavailable; upstream 'bad' refused initialize: no licence found (-32603); run its command by hand to see what it waits for: FAULTY …",
    );
}

#[test]
fn a_server_of_a_version_nobody_knows_is_refused() {
    check_failing(
        "unheard_of_version",
        "unavailable; upstream 'bad' speaks version 1999-12-31 of MCP, which Moonlark does not; Moonlark speaks 2024-11-05 to 2025-11-25, and 2026-07-28",
    );
}

#[test]
fn a_server_that_names_no_version_is_refused() {
    check_failing(
        "versionless",
        "unavailable; upstream 'bad' answered initialize without a version; it is probably not an MCP server",
    );
}

#[test]
fn a_server_that_ends_in_its_first_answer_is_given_up() {
    check_failing(
        "half",
        "unavailable; upstream 'bad' exited with code 0; run its command by hand to see why: FAULTY …",
    );
}

#[test]
fn a_server_that_closes_its_pipes_at_once_is_given_up() {
    check_failing(
        "close",
        "timeout; upstream 'bad' did not answer initialize within 2 seconds; run its command by hand to see what it waits for: FAULTY …",
    );
}

#[test]
fn a_server_that_answers_others_is_given_up() {
    check_failing(
        "wrong_id",
        "timeout; upstream 'bad' did not answer initialize within 2 seconds; run its command by hand to see what it waits for: FAULTY …",
    );
}

#[test]
fn a_server_whose_first_answer_is_huge_is_given_up() {
    check_failing_within(
        60,
        "huge",
        "limit; upstream 'bad' answered with more than 32 MB; ask it for less at once, or for one page at a time",
    );
}

/// One that gets there, however it behaves before.
fn check_ready(mode: &str, more: &str, version: &str) {
    let world = World::new(Way::Stdio, mode, more);
    assert_eq!(world.call("echo"), Ok(json!("echo")), "{mode}");
    let source = world.wait_for_state("ready");
    assert_eq!(source["protocol"], version, "{mode}");
    world.end();
}

#[test]
fn a_server_that_knows_only_the_newest_version_is_never_asked_to_initialize() {
    check_ready("modern", "", "2026-07-28");
}

#[test]
fn a_server_that_is_silent_on_what_it_does_not_know_is_asked_the_old_way() {
    check_ready("silent_unknown", "connect_timeout = 8", "2025-11-25");
}

#[test]
fn a_server_that_exits_on_what_it_does_not_know_is_started_again_and_asked_the_old_way() {
    let world = World::stdio("exits_on_discover");
    assert_eq!(world.call("echo"), Ok(json!("echo")));
    assert_eq!(world.count("start"), 2);
    world.end();
}

#[test]
fn a_server_that_says_other_things_first_is_understood() {
    for mode in ["garbage", "batch", "duplicate", "text_id"] {
        check_opened_with(mode);
    }
}

/// The fault is in every answer, and so its tools cannot be called: it opened.
fn check_opened_with(fault: &str) {
    let world = World::stdio(fault);
    let source = world.wait_for_state("ready");
    assert_eq!(source["protocol"], "2025-11-25", "{fault}");
    world.end();
}

#[test]
fn complaints_on_stderr_are_read_and_not_held() {
    let world = World::stdio("shouts");
    let grown = world.grown(|world| assert_eq!(world.call("echo"), Ok(json!("echo"))));
    assert!(grown < 50_000, "{grown} KB more");
    world.end();
}

#[test]
fn calls_wait_for_a_server_that_is_slow_to_start() {
    let world = World::stdio("waits");
    std::thread::scope(|scope| {
        let call = scope.spawn(|| world.call("echo"));
        // Everybody else is served meanwhile, and it is known why.
        world.check_neighbours();
        assert_eq!(world.source()["state"], "connecting");
        std::fs::OpenOptions::new().write(true).open(world.project.path("go")).unwrap();
        assert_eq!(call.join().unwrap(), Ok(json!("echo")));
    });
    world.end();
}

#[test]
fn a_server_that_dies_between_calls_is_started_again() {
    let world = World::stdio("healthy");
    let first: u32 = world.call("pid").unwrap().as_str().unwrap().parse().unwrap();
    signal(first, libc::SIGKILL);
    world.wait_for_count("start", 2);
    assert_eq!(world.call("echo"), Ok(json!("echo")));
    assert_eq!(world.count("call echo"), 1);
    world.end();
}
