//! A load generator for MCP over stdio: sixteen requests in flight to one child.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};

use super::Effort;
use super::rounds::{Look, Rate};

pub(super) const IN_FLIGHT: usize = 16;

/// Start `command`, load it with `request` (given an id) and end it.
pub(super) fn load(
    mut command: Command,
    request: fn(usize) -> serde_json::Value,
    expect: &'static str,
    effort: Effort,
) -> Result<Rate> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start an MCP server")?;
    let ends = child.stdin.take().zip(child.stdout.take());
    let ended = measure(&mut child, ends, request, expect, effort);
    let _ = child.kill();
    let _ = child.wait();
    ended
}

fn measure(
    child: &mut Child,
    ends: Option<(ChildStdin, ChildStdout)>,
    request: fn(usize) -> serde_json::Value,
    expect: &'static str,
    effort: Effort,
) -> Result<Rate> {
    let (stdin, stdout) = ends.context("no pipes")?;
    let requests: Vec<String> = (0..IN_FLIGHT).map(|id| format!("{}\n", request(id))).collect();
    let done = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let (counter, stopped) = (done.clone(), stop.clone());
    let generator =
        std::thread::spawn(move || generate(stdin, stdout, &requests, expect, &counter, &stopped));
    std::thread::sleep(effort.warm_up);
    let first = Look::at(child.id(), done.load(Ordering::Relaxed))?;
    std::thread::sleep(effort.round);
    let last = Look::at(child.id(), done.load(Ordering::Relaxed))?;
    stop.store(true, Ordering::Relaxed);
    let stuck = done.load(Ordering::Relaxed) == 0;
    if stuck {
        // Its reader waits for an answer that does not come.
        child.kill()?;
    }
    match generator.join() {
        Ok(ended) => ended?,
        Err(_) => bail!("the load generator panicked"),
    }
    ensure!(!stuck, "the MCP server did not answer");
    Ok(first.rate_until(&last))
}

fn generate(
    mut stdin: ChildStdin,
    mut stdout: ChildStdout,
    requests: &[String],
    expect: &str,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<()> {
    stdin.write_all(requests.concat().as_bytes())?;
    let mut buffer = Vec::with_capacity(64 * 1024);
    let mut chunk = vec![0; 64 * 1024];
    while !stop.load(Ordering::Relaxed) {
        let read = stdout.read(&mut chunk)?;
        ensure!(read > 0, "the MCP server closed its output");
        buffer.extend_from_slice(&chunk[..read]);
        let Some(end) = buffer.iter().rposition(|byte| *byte == b'\n') else { continue };
        let mut next = String::new();
        let text = std::str::from_utf8(&buffer[..end])?;
        for line in text.lines() {
            ensure!(line.contains(expect), "unexpected answer: {line}");
            let id = id_of(line).with_context(|| format!("no id in {line}"))?;
            next.push_str(requests.get(id).with_context(|| format!("unknown id in {line}"))?);
            done.fetch_add(1, Ordering::Relaxed);
        }
        buffer.drain(..=end);
        stdin.write_all(next.as_bytes())?;
    }
    Ok(())
}

pub(super) fn id_of(line: &str) -> Option<usize> {
    let rest = line.split_once("\"id\":")?.1;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[..end].parse().ok()
}
