//! That an upstream ends with Moonlark, or when it is not wanted any more,
//! with all it has started and however it resists.

use serde_json::json;

use super::world::World;
use crate::processes::signal;

/// A world whose upstream runs. `moonlark` itself, the two supervisors and the
/// healthy neighbour are there besides; `own` is what the upstream adds.
fn running(mode: &str, own: usize) -> World {
    let world = World::stdio(mode);
    assert_eq!(world.call("echo"), Ok(json!("echo")));
    world.wait_until_running(3 + own);
    world
}

#[test]
fn a_server_that_ignores_every_signal_ends_with_moonlark() {
    running("deaf", 1).end();
}

#[test]
fn what_a_server_has_started_ends_with_moonlark() {
    running("grandchild", 2).end();
}

#[test]
fn a_killed_moonlark_leaves_no_server_and_nothing_it_has_started() {
    for (mode, own) in [("healthy", 1), ("deaf", 1), ("grandchild", 2)] {
        let world = running(mode, own);
        signal(world.server.pid(), libc::SIGKILL);
        world.wait_for_processes(0);
    }
}

#[test]
fn a_moonlark_that_is_killed_in_a_call_leaves_nothing() {
    let world = running("grandchild", 2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.call("hang")))
        });
        world.wait_for_count("call hang", 1);
        signal(world.server.pid(), libc::SIGKILL);
    });
    world.wait_for_processes(0);
}

#[test]
fn what_a_server_has_started_ends_with_it_when_it_dies() {
    let world = running("grandchild", 2);
    assert!(world.call("die").is_err());
    assert_eq!(world.call("echo"), Ok(json!("echo")));
    // The second one has all that the first one had, which is gone.
    world.wait_until_running(5);
    world.end();
}

#[test]
fn a_server_that_is_taken_out_of_the_configuration_ends() {
    for mode in ["healthy", "deaf", "grandchild"] {
        let world = World::stdio(mode);
        assert_eq!(world.call("echo"), Ok(json!("echo")));
        world.remove_bad();
        world.wait_for_processes(2);
        world.end();
    }
}
