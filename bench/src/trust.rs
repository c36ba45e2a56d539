//! What trust costs: rules and the journal on the path of a call, how much the
//! journal takes, and what a server does under ten times its load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use moonlark_core::schema::Schema;
use moonlark_core::tool::{CallEffects, Source, SourceKind};
use moonlark_core::{Catalog, Tool, Value};
use moonlark_gateway::gateway::CallRecords;
use moonlark_gateway::journal::JournalRecorder;
use moonlark_gateway::policy::{CallPolicy, RuleTerms};
use moonlark_gateway::tool_body::ToolBody;
use moonlark_gateway::{Caller, Gateway};
use moonlark_journal::{Journal, JournalSettings};
use serde_json::json;
use tokio::runtime::Runtime;

use super::report::{Row, Section, micros, millis, times};
use super::rounds::median;
use super::{Effort, machine, process, trust_load};

/// Calls whose times are looked at, and the least time from one to the next: a
/// server that takes five thousand a second.
const CALLS: usize = 10_000;
const EVERY: Duration = Duration::from_micros(200);
/// Rules in front of the one that decides.
const RULES: usize = 20;
/// Calls at the same time where the journal is what is measured.
const IN_FLIGHT: usize = 64;

pub(super) fn run(effort: Effort) -> Result<Vec<Section>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(vec![path(&runtime, effort)?, sustained(&runtime, effort)?, trust_load::run(effort)?])
}

/// The same call with nothing, with rules, with the journal, with both.
fn path(runtime: &Runtime, effort: Effort) -> Result<Section> {
    eprintln!("rules and journal on the path of a call …");
    let world = |rules, journal| World::new(runtime, rules, journal, true);
    let worlds =
        [world(false, false)?, world(true, false)?, world(false, true)?, world(true, true)?];
    let mut rounds: Vec<[Times; 4]> = Vec::new();
    for _ in 0..effort.rounds.max(3) {
        machine::quiet();
        let mut round = [Times::default(); 4];
        for (times, world) in round.iter_mut().zip(&worlds) {
            *times = world.paced(runtime)?;
        }
        rounds.push(round);
    }
    let of = |index: usize, value: fn(&Times) -> f64| {
        median(rounds.iter().map(|round| value(&round[index])))
    };
    let more = |index: usize, value: fn(&Times) -> f64| {
        median(rounds.iter().map(|round| value(&round[index]) - value(&round[0])))
    };
    let p50: fn(&Times) -> f64 = |times| times.p50;
    let p99: fn(&Times) -> f64 = |times| times.p99;
    let row = |what: &str, index: usize| {
        let ours = format!("{} (p99 {})", micros(of(index, p50)), micros(of(index, p99)));
        let floor = format!("{} (p99 {})", micros(of(0, p50)), micros(of(0, p99)));
        Row::new(what).ratio(format!("+ {}", micros(more(index, p50)))).figures(ours, floor)
    };
    let both = more(3, p50);
    Ok(Section {
        title: "Rules and journal on the path of a call",
        about: "Time of one call of a native tool through the gateway, five thousand calls a second, \
                against the same call without rules and without a journal. Twenty rules are in \
                front of the one that decides, which counts a rate. The journal is a file on disk, \
                written by its own thread.",
        rows: vec![
            row("with rules", 1),
            row("with the journal", 2),
            row("with both", 3).goal("≤ 10 µs p50", both <= 10.0),
        ],
    })
}

/// As much as the journal takes.
fn sustained(runtime: &Runtime, effort: Effort) -> Result<Section> {
    eprintln!("the journal, as fast as it can …");
    let plain = World::new(runtime, false, true, true)?;
    let before = process::own_cpu();
    let (calls, took) = plain.flat_out(runtime, effort.round * 2)?;
    let cpu = (process::own_cpu() - before).as_secs_f64() * 1e6 / calls as f64;
    let written = plain.rows()?;
    ensure!(written == calls, "{calls} calls, {written} rows");
    let size = plain.size()? as f64 / calls as f64;
    let rate = calls as f64 / took.as_secs_f64();
    let none = World::new(runtime, false, false, true)?;
    let (bare, bare_took) = none.flat_out(runtime, effort.round)?;
    let bare_rate = bare as f64 / bare_took.as_secs_f64();
    let mut rows = vec![
        Row::new("calls recorded, two entries each, all of them in the file at the end")
            .ratio(times(rate / bare_rate))
            .figures(format!("{rate:.0}/s"), format!("{bare_rate:.0}/s"))
            .cpu(micros(cpu)),
        Row::new("size of a call in the file").figures(format!("{size:.0} bytes"), String::new()),
    ];
    for (what, power) in [("power", true), ("process", false)] {
        for at_once in [1, IN_FLIGHT] {
            let (rate, p50) = durable(runtime, power, at_once, effort.round)?;
            rows.push(
                Row::new(format!(
                    "calls that must be on record first, durability {what}, {at_once} at once"
                ))
                .figures(format!("{rate:.0}/s, p50 {}", micros(p50)), String::new()),
            );
        }
    }
    Ok(Section {
        title: "The journal, as fast as it can",
        about: "Native calls by 64 tasks, as fast as they go, with the journal and without; then entries \
                that are waited for until they are durable, as before a call that an agent's \
                script makes and that changes something.",
        rows,
    })
}

/// Entries that are waited for, per second, and the time of one in µs.
fn durable(runtime: &Runtime, power: bool, at_once: usize, time: Duration) -> Result<(f64, f64)> {
    let folder = tempfile::tempdir()?;
    let journal = journal(&folder, power)?;
    let began = Instant::now();
    let tasks: Vec<_> = (0..at_once)
        .map(|_| {
            let journal = journal.clone();
            runtime.spawn(async move {
                let mut times = Vec::new();
                while began.elapsed() < time {
                    let one = Instant::now();
                    let entry = trust_load::entry();
                    journal.record_durably(entry).await.map_err(|problem| anyhow!("{problem}"))?;
                    times.push(one.elapsed());
                }
                anyhow::Ok(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(runtime.block_on(task)??);
    }
    let took = began.elapsed().as_secs_f64();
    runtime.block_on(journal.close());
    let count = times.len() as f64;
    Ok((count / took, Times::of(times).p50))
}

#[derive(Debug, Default, Clone, Copy)]
struct Times {
    p50: f64,
    p99: f64,
}

impl Times {
    fn of(mut times: Vec<Duration>) -> Times {
        times.sort_unstable();
        let at = |share: f64| {
            let index = (times.len() as f64 * share) as usize;
            times
                .get(index.min(times.len().saturating_sub(1)))
                .map_or(0.0, |it| it.as_secs_f64() * 1e6)
        };
        Times { p50: at(0.5), p99: at(0.99) }
    }
}

/// A gateway with one native tool.
struct World {
    gateway: Gateway,
    journal: Option<Arc<Journal>>,
    folder: tempfile::TempDir,
}

fn journal(folder: &tempfile::TempDir, power: bool) -> Result<Arc<Journal>> {
    let settings = JournalSettings {
        file: folder.path().join("journal.db"),
        power,
        keep: Duration::from_secs(86_400),
        size: 1 << 34,
    };
    Journal::open(settings).map_err(|problem| anyhow!("{problem}"))
}

impl World {
    fn new(runtime: &Runtime, rules: bool, journaled: bool, power: bool) -> Result<World> {
        let schema = json!({"type": "object", "properties": {"message": {"type": "string"}}});
        let schema = schema.as_object().cloned().unwrap_or_default();
        let schema = Schema::compile(schema).map_err(|problem| anyhow!("{problem}"))?;
        let source = Source { kind: SourceKind::Builtin, name: "bench".to_owned() };
        let mut tool =
            Tool::new("echo", Arc::new(source), schema, ToolBody::from_fn(|_, args| Ok(args)));
        tool.effects = CallEffects::READ_ONLY;
        let catalog = Catalog::new(Arc::default(), vec![Arc::new(tool)], &[], Vec::new());
        let folder = tempfile::tempdir()?;
        let journal = if journaled { Some(journal(&folder, power)?) } else { None };
        if let Some(journal) = &journal {
            runtime.block_on(journal.flush()).map_err(|problem| anyhow!("{problem}"))?;
        }
        let rules = if rules { many_rules()? } else { Vec::new() };
        let recorder = journal.clone().map(|it| it as Arc<dyn JournalRecorder>);
        let gateway = Gateway::builder(catalog)
            .max_running_calls(10_000)
            .policy(CallPolicy::new(rules))
            .records(CallRecords { recorder, ..CallRecords::default() })
            .build();
        Ok(World { gateway, journal, folder })
    }

    /// The times of calls at a steady pace.
    fn paced(&self, runtime: &Runtime) -> Result<Times> {
        let gateway = self.gateway.clone();
        let times = runtime.block_on(runtime.spawn(async move {
            let mut times = Vec::with_capacity(CALLS);
            let mut next = Instant::now();
            for _ in 0..CALLS {
                while Instant::now() < next {
                    std::hint::spin_loop();
                }
                let began = Instant::now();
                echo(&gateway).await?;
                times.push(began.elapsed());
                next = (next + EVERY).max(Instant::now());
            }
            anyhow::Ok(times)
        }))??;
        Ok(Times::of(times))
    }

    /// How many calls were made, and how long it took until all was written.
    fn flat_out(&self, runtime: &Runtime, time: Duration) -> Result<(u64, Duration)> {
        let began = Instant::now();
        let tasks: Vec<_> = (0..IN_FLIGHT)
            .map(|_| {
                let gateway = self.gateway.clone();
                runtime.spawn(async move {
                    let mut calls = 0;
                    while began.elapsed() < time {
                        echo(&gateway).await?;
                        calls += 1;
                        if calls % 64 == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                    anyhow::Ok(calls)
                })
            })
            .collect();
        let mut calls = 0;
        for task in tasks {
            calls += runtime.block_on(task)??;
        }
        if let Some(journal) = &self.journal {
            runtime.block_on(journal.flush()).map_err(|problem| anyhow!("{problem}"))?;
        }
        Ok((calls, began.elapsed()))
    }

    fn rows(&self) -> Result<u64> {
        trust_load::ended_calls(&self.folder.path().join("journal.db"))
    }

    fn size(&self) -> Result<u64> {
        Ok(std::fs::metadata(self.folder.path().join("journal.db"))?.len())
    }
}

fn many_rules() -> Result<Vec<(String, RuleTerms)>> {
    let other =
        |index: usize| RuleTerms { tools: vec![format!("other{index}.*")], ..RuleTerms::default() };
    let mut rules: Vec<RuleTerms> = (0..RULES).map(other).collect();
    let rate = "1000000/s".parse().map_err(|error| anyhow!("{error}"))?;
    rules.push(RuleTerms {
        tools: vec!["ec*".to_owned()],
        rate: Some(rate),
        ..RuleTerms::default()
    });
    Ok(rules.into_iter().enumerate().map(|(at, terms)| (format!("rules[{at}]"), terms)).collect())
}

async fn echo(gateway: &Gateway) -> Result<()> {
    let problem = |problem| anyhow!("{problem}");
    let args = Value::from_fields([("message", "hello".into())]);
    let call = gateway.open_call(Caller::new("bench")).map_err(problem)?;
    let answer = gateway.call(&call, "echo", args).await.map_err(problem)?;
    ensure!(answer.get("message").is_some(), "wrong result");
    Ok(())
}

/// For the part about load.
pub(super) fn latency(times: Vec<Duration>) -> (String, String) {
    let Times { p50, p99 } = Times::of(times);
    (millis(p50 / 1e6), millis(p99 / 1e6))
}
