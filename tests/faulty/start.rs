//! What goes wrong before the first request is read.

use std::io::Write;
use std::process::{Command, exit};

use crate::server::record;

pub async fn misbehave(mode: &str) {
    record("start");
    match mode {
        "exits" => {
            eprintln!("faulty: no licence found");
            exit(3);
        }
        "waits" => wait_until_told().await,
        "deaf" => ignore_signals(),
        "grandchild" => start_grandchild(),
        "shouts" => shout(),
        _ => {}
    }
}

/// Until somebody opens the named pipe `GO` to write.
async fn wait_until_told() {
    let pipe = std::env::var("GO").expect("GO names a pipe");
    tokio::task::spawn_blocking(|| std::fs::File::open(pipe)).await.unwrap().unwrap();
}

fn ignore_signals() {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
        // SAFETY: it takes two numbers, and nothing runs on a signal.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// One that nobody waits for, in a session of its own, deaf to signals. It is
/// there when we go on.
fn start_grandchild() {
    let script = "(trap '' TERM HUP INT; setsid sleep 1000 >/dev/null 2>&1 </dev/null &)";
    assert!(Command::new("sh").args(["-c", script]).status().unwrap().success());
}

/// Twenty megabytes of complaints, in lines and as one line that never ends,
/// and bytes that are no text.
fn shout() {
    let mut stderr = std::io::stderr().lock();
    let line = [[b'y'; 99].as_slice(), b"\n"].concat();
    for _ in 0..100_000 {
        stderr.write_all(&line).unwrap();
    }
    for _ in 0..10_000 {
        stderr.write_all(&[b'x'; 1000]).unwrap();
    }
    stderr.write_all(b"\xff\xfe\n").unwrap();
}
