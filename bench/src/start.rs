//! From the start of the process to the first answer, and what it holds when it is idle;
//! how soon an edited script is in use; what is given back after bursts.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tempfile::TempDir;

use super::http::{Connection, Request};
use super::report::{Row, Section, bytes, millis, times};
use super::rounds::median;
use super::scale::settle;
use super::server::{Server, beside};
use super::{Effort, echo, machine, process, scripts};

/// Starts of each server; the median counts.
const STARTS: u32 = 5;
/// Edits of one script, each after a quiet moment.
const EDITS: u32 = 20;
const EDIT_PAUSE: Duration = Duration::from_millis(150);
/// How often it is asked whether the new version is there.
const EDIT_POLL_INTERVAL: Duration = Duration::from_micros(300);
/// How long anything may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);
const BURSTS: usize = 4;
const RUNS_PER_BURST: usize = 1000;
const CONNECTIONS_PER_BURST: usize = 200;
/// After the bursts, before memory is looked at.
const REST_AFTER_BURSTS: Duration = Duration::from_secs(10);

pub(super) fn run(_effort: Effort) -> Result<Vec<Section>> {
    let floor =
        FirstAnswer::measure(|| Server::floor(&["floor-axum"]), &Request::get("/health", "ok"))?;
    let mut starts = Vec::new();
    for count in [10, 1000] {
        eprintln!("{count} Lua tools …");
        let project = scripts::project(count)?;
        starts.push((format!("{count} Lua tools"), start_project(project.path(), &echo::rest())?));
    }
    for count in [10, 1000] {
        eprintln!("{count} Starlark extensions …");
        let project = scripts::starlark_project(count)?;
        let what = format!("{count} Starlark extensions");
        starts.push((what, start_project(project.path(), &echo::rest())?));
    }
    eprintln!("an upstream server …");
    let project = upstream_project(10)?;
    let what = "an upstream server with 10 tools, `execute`".to_owned();
    starts.push((what, start_project(project.path(), &execute(""))?));
    let rows = |figure: fn(&FirstAnswer) -> f64, shown: fn(f64) -> String, with_cpu: bool| {
        let row = |(what, it): &(String, FirstAnswer)| {
            let cpu = if with_cpu { millis(it.cpu) } else { String::new() };
            Row::new(what.clone())
                .ratio(times(figure(it) / figure(&floor)))
                .figures(shown(figure(it)), shown(figure(&floor)))
                .cpu(cpu)
        };
        starts.iter().map(row).collect()
    };
    let first = rows(|it| it.seconds, millis, true);
    let memory = rows(|it| it.resident, bytes, false);
    eprintln!("edits …");
    let edits = edit_script()?;
    eprintln!("bursts …");
    let bursts = burst_memory()?;
    Ok(vec![
        Section {
            title: "Start to the first answer",
            about: "Wall time from the start of the process to the first answer of a tool, \
                    against that of a bare axum server's `/health`, and the CPU time of the \
                    process until then. Helper processes are not counted.",
            rows: first,
        },
        Section {
            title: "Idle memory",
            about: "Resident memory of the same processes when they have nothing more to do, \
                    against that of a bare axum server. Helper processes are not counted.",
            rows: memory,
        },
        Section {
            title: "An edited script",
            about: "From writing a Lua script in place to the first answer of its new version, \
                    asked for over and over, each edit after a quiet moment.",
            rows: vec![edits],
        },
        Section {
            title: "Memory after bursts",
            about: "Four bursts of 1,000 runs of agents' scripts that sleep and call an upstream \
                    tool. Resident memory ten seconds later, against that before.",
            rows: vec![bursts],
        },
    ])
}

struct FirstAnswer {
    seconds: f64,
    cpu: f64,
    resident: f64,
}

impl FirstAnswer {
    fn measure(start: impl Fn() -> Result<Server>, request: &Request) -> Result<FirstAnswer> {
        let (mut seconds, mut cpu, mut resident) = (Vec::new(), Vec::new(), 0.0);
        for number in 1..=STARTS {
            machine::quiet();
            let began = Instant::now();
            let server = start()?;
            ask(&server, request)?;
            seconds.push(began.elapsed().as_secs_f64());
            cpu.push(process::cpu(server.pid())?.as_secs_f64());
            if number == STARTS {
                settle(server.pid())?;
                // Memory goes back a second after the last work.
                std::thread::sleep(Duration::from_secs(2));
                resident = process::status(server.pid())?.resident as f64;
            }
        }
        Ok(FirstAnswer { seconds: median(seconds), cpu: median(cpu), resident })
    }
}

fn start_project(project: &Path, request: &Request) -> Result<FirstAnswer> {
    FirstAnswer::measure(|| Server::moonlark(project), request)
}

fn ask(server: &Server, request: &Request) -> Result<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { Connection::open(server.address).await?.ask(request).await })
}

/// A project whose tools are those of a native server over stdio.
fn upstream_project(tools: usize) -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("bench-").tempdir()?;
    let program = beside("moonlark-bench")?;
    let config = format!(
        "[mcp_servers.up]\ncommand = {program:?}\nargs = [\"floor-rmcp\", \"--stdio\", \"--tools\", \"{tools}\"]\n"
    );
    std::fs::write(folder.path().join("moonlark.toml"), config)?;
    Ok(folder)
}

/// A run of an agent's script: `before`, then a call of the upstream tool.
fn execute(before: &str) -> Request {
    let script = format!("{before} return sdk.up.echo{{ message = \"hello\" }}");
    Request::post("/tools/execute", &[], &json!({ "script": script }), echo::ANSWER)
}

fn edit_script() -> Result<Row> {
    let project = scripts::project(10)?;
    let server = Server::moonlark(project.path())?;
    let file = project.path().join("tools/echo.lua");
    ask(&server, &echo::rest())?;
    let mut seconds = Vec::new();
    for number in 0..EDITS {
        std::thread::sleep(EDIT_PAUSE);
        let answer = format!("Version {number}: hello");
        let text = scripts::ECHO.replacen("Echo: ", &format!("Version {number}: "), 1);
        let request = Request::post("/tools/echo", &[], &json!({"message": "hello"}), &answer);
        let began = Instant::now();
        std::fs::write(&file, text)?;
        while ask(&server, &request).is_err() {
            ensure!(began.elapsed() < PATIENCE, "the new version was never in use");
            std::thread::sleep(EDIT_POLL_INTERVAL);
        }
        seconds.push(began.elapsed().as_secs_f64());
    }
    let longest = seconds.iter().copied().fold(0.0, f64::max);
    let middle = median(seconds);
    Ok(Row::new("edit to the first answer, median and longest")
        .figures(millis(middle), millis(longest))
        .goal("≤ 5 ms", middle <= 0.005))
}

fn burst_memory() -> Result<Row> {
    let project = upstream_project(10)?;
    let server = Server::moonlark(project.path())?;
    ask(&server, &execute(""))?;
    settle(server.pid())?;
    std::thread::sleep(Duration::from_secs(2));
    let idle = process::status(server.pid())?.resident as f64;
    let mut largest = idle;
    for _ in 0..BURSTS {
        run_burst(&server)?;
        largest = largest.max(process::status(server.pid())?.resident as f64);
    }
    std::thread::sleep(REST_AFTER_BURSTS);
    let rested = process::status(server.pid())?.resident as f64;
    Ok(Row::new(format!("resident memory, right after a burst {}", bytes(largest)))
        .ratio(times(rested / idle))
        .figures(bytes(rested), bytes(idle))
        .goal("≤ 2 ×", rested <= 2.0 * idle))
}

fn run_burst(server: &Server) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (address, request) = (server.address, execute("sleep(0.2)"));
    let bursts = async move {
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..CONNECTIONS_PER_BURST {
            let request = request.clone();
            clients.spawn(async move {
                let mut connection = Connection::open(address).await?;
                for _ in 0..RUNS_PER_BURST / CONNECTIONS_PER_BURST {
                    connection.ask(&request).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended??;
        }
        anyhow::Ok(())
    };
    let ended = runtime.block_on(async { tokio::time::timeout(PATIENCE, bursts).await });
    ended.context("a burst did not end in time")?
}
