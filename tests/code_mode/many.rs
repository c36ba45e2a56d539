//! A thousand agents at once, and one among them that computes.

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::upstream::{Offer, Reply, Upstream, text};
use super::world::World;

const RUNS: usize = 1000;

/// Nobody waits this long unless runs wait for each other: one after another
/// they would take 200 seconds. The figure itself is the benchmark's.
const HANG: Duration = Duration::from_secs(100);

fn upstream() -> Upstream {
    let wait = Duration::from_millis(200);
    Upstream::start(vec![
        Offer::new("wait", json!({}), move |_| Reply::After(wait, text("waited"))),
        Offer::of("echo", text("here")),
    ])
}

async fn execute(address: &str, script: &str, timeout: f64) -> (Value, Duration) {
    let started = Instant::now();
    let body = json!({"script": script, "timeout": timeout}).to_string();
    let head = format!(
        "POST /tools/execute HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let answer = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
    (answer, started.elapsed())
}

/// Kilobytes that the server has at most had since it was last asked.
fn peak(world: &World) -> u64 {
    let pid = world.server.pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_runs_wait_at_once_and_one_that_computes_delays_nobody() {
    let upstream = upstream();
    let world = World::with("[execute]\nmax_timeout = 100\n", &[("far", &upstream)]);
    let address = world.server.address.clone();
    let script = "return sdk.far.wait()";
    // The first is there when the server behind is.
    assert_eq!(world.value("return sdk.far.echo()"), json!("here"));
    peak(&world);
    let before = peak(&world);

    let started = Instant::now();
    let mut runs: FuturesUnordered<_> =
        (0..RUNS).map(|_| execute(&address, script, 100.0)).collect();
    let mut slowest = Duration::ZERO;
    while let Some((answer, took)) = runs.next().await {
        assert_eq!(answer["result"], "waited", "{answer}");
        slowest = slowest.max(took);
    }
    let grown = peak(&world).saturating_sub(before);
    println!(
        "{RUNS} runs: {:?}, slowest {slowest:?}; {} in flight at once; {} KB each",
        started.elapsed(),
        upstream.seen().peak,
        grown / RUNS as u64
    );
    assert_eq!(upstream.called("wait"), RUNS);
    assert!(started.elapsed() < HANG, "{:?}", started.elapsed());

    // Among neighbours that do nothing but compute.
    let busy = "local n = 0 while true do n += 1 end";
    let busy: Vec<_> = (0..2)
        .map(|_| {
            let address = address.clone();
            tokio::spawn(async move { execute(&address, busy, 5.0).await.0 })
        })
        .collect();
    let mut slowest = Duration::ZERO;
    let mut answered = 0;
    while !busy.iter().all(tokio::task::JoinHandle::is_finished) {
        let (answer, took) = execute(&address, "return sdk.far.echo()", 100.0).await;
        assert_eq!(answer["result"], "here", "{answer}");
        slowest = slowest.max(took);
        answered += 1;
    }
    println!("beside two that compute: {answered} answered, slowest {slowest:?}");
    for busy in busy {
        let answer = busy.await.unwrap();
        assert_eq!(answer["error"]["code"], "timeout", "{answer}");
    }
    assert!(answered > 10, "only {answered}");
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
}
