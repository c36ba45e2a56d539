//! Agent scripts by `execute`: what a run costs, beside a client that makes the
//! same calls itself.

use anyhow::Result;

use super::report::{Row, Section, bytes, micros, millis, times};
use super::rounds::median;
use super::run_check;
use super::run_path::{Entry, Script};
use super::server::Server;
use super::upstream_load::Sample;
use super::waiting::{self, Waited};
use super::{Effort, machine, scripts};

/// How many calls a script makes.
const CALLS: [usize; 3] = [1, 10, 100];
const AT_ONCE: usize = 1000;

/// CPU of one `execute` in milliseconds, as it was measured on other gateways
/// before this one was written, on a machine of the same size.
const TOOLSCRIPT: [(&str, &str); 3] = [("no-op", "0.28"), ("1", "0.38"), ("100", "5.4")];
const MY_COOL_PROXY: [(&str, &str); 2] = [("no-op", "1.8"), ("100", "45")];

pub(super) fn run(effort: Effort) -> Result<Vec<Section>> {
    let mut sections = vec![];
    let (calls, elsewhere) = calls(effort)?;
    sections.extend(calls);
    sections.push(elsewhere);
    eprintln!("{AT_ONCE} runs at once …");
    sections.push(at_once(effort)?);
    eprintln!("type check …");
    sections.push(run_check::run(effort)?);
    Ok(sections)
}

fn calls(effort: Effort) -> Result<(Vec<Section>, Section)> {
    let mut direct = Entry::direct()?;
    let mut moonlark = Entry::moonlark()?;
    let mut compare = |what: &str, script: Script, count: usize| -> Result<Compared> {
        eprintln!("execute: {what} …");
        let mut rounds = Vec::new();
        for round in 0..effort.rounds {
            machine::quiet();
            let pair = match round % 2 {
                0 => (moonlark.execute(&script, effort)?, direct.call(effort)?),
                _ => {
                    let direct = direct.call(effort)?;
                    (moonlark.execute(&script, effort)?, direct)
                }
            };
            rounds.push(pair);
        }
        Ok(Compared::of(&rounds, count))
    };
    let noop = compare("nothing", Script::noop(), 0)?;
    let fib = compare("fib(25)", Script::fib(), 0)?;
    let (mut upstream, mut parallel, mut scripted) = (Vec::new(), Vec::new(), Vec::new());
    for count in CALLS {
        let one = |what: &str| format!("{count} {what}");
        upstream.push((count, compare(&one("upstream, in turn"), Script::upstream(count), count)?));
        parallel.push((count, compare(&one("upstream, at once"), Script::parallel(count), count)?));
        scripted.push((count, compare(&one("of a script"), Script::scripted(count), count)?));
    }

    let saved = [1, 10]
        .into_iter()
        .map(|count| saved_row(&mut moonlark, count, effort))
        .collect::<Result<Vec<Row>>>()?;

    let rows = |all: &[(usize, Compared)]| -> Vec<Row> {
        all.iter().map(|(count, it)| it.row(&super::run_path::counted(*count))).collect()
    };
    let sections = vec![
        Section {
            title: "A script that calls nothing",
            about: "One `execute` at a time over stdio: a VM of the pool, the script, its result. CPU is \
                    that of client, gateway and server. There is no floor: it is what code mode \
                    costs before a script does anything. The script is the same every time, so \
                    that its type check is remembered, here and below; what that of a new script \
                    costs is at the end of this page.",
            rows: vec![noop.alone("`return \"done\"`"), fib.alone("fib(25), a local function")],
        },
        Section {
            title: "Calls of an upstream server, one after the other",
            about: "One `execute` over stdio whose script calls a native echo server over stdio \
                    with `sdk.echo.echo(…)`, against a client that makes the same calls at the \
                    server itself, each after the one before. The first column is wall time. \
                    The floor has no gateway at all; a real agent would have its model between \
                    any two calls.",
            rows: rows(&upstream),
        },
        Section {
            title: "The same calls, started before the first is awaited",
            about: "`echo.echo(…)` and `await_all`; the floor is the same as above.",
            rows: rows(&parallel),
        },
        Section {
            title: "Calls of a script tool, one after the other",
            about: "`sdk.tools.echo(…)`: the tool is a Lua script in the same process. The floor \
                    is the same native server as above.",
            rows: rows(&scripted),
        },
        Section {
            title: "A saved script, called by its name",
            about: "`execute` with `saved`, which checks the arguments and writes them into the \
                    script, against `execute` with the same text and the same arguments in it, \
                    in turns. Both make calls of the echo server.",
            rows: saved,
        },
    ];
    let of = |all: &[(usize, Compared)], wanted: usize| {
        all.iter().find(|(count, _)| *count == wanted).map_or(f64::NAN, |(_, it)| it.gateway)
    };
    let ours = [("no-op", noop.gateway), ("1", of(&upstream, 1)), ("100", of(&upstream, 100))];
    Ok((sections, elsewhere(&ours)))
}

/// A saved script beside the same text sent.
fn saved_row(moonlark: &mut Entry, count: usize, effort: Effort) -> Result<Row> {
    eprintln!("execute: {count} of a saved script …");
    let (saved, sent) = (Script::saved(count), Script::sent_text(count));
    let mut rounds = Vec::new();
    for round in 0..effort.rounds {
        machine::quiet();
        rounds.push(match round % 2 {
            0 => (moonlark.execute(&saved, effort)?, moonlark.execute(&sent, effort)?),
            _ => {
                let sent = moonlark.execute(&sent, effort)?;
                (moonlark.execute(&saved, effort)?, sent)
            }
        });
    }
    let compared = Compared::of(&rounds, 1);
    Ok(compared
        .row(&super::run_path::counted(count))
        .goal("≤ 1.1", compared.ratio <= MAX_SAVED_RATIO))
}

/// What a saved script may cost, beside the same text sent: as much, but for noise.
const MAX_SAVED_RATIO: f64 = 1.1;

/// Beside what was measured on others.
fn elsewhere(ours: &[(&str, f64)]) -> Section {
    let row = |(what, cpu): &(&str, f64)| {
        let of = |all: &[(&str, &str)], who: &str| {
            let found = all.iter().find(|(it, _)| it == what);
            found.map(|(_, ms)| format!("{who} {ms} ms"))
        };
        let others = [of(&TOOLSCRIPT, "ToolScript"), of(&MY_COOL_PROXY, "my-cool-proxy")];
        let others: Vec<String> = others.into_iter().flatten().collect();
        let what = match *what {
            "no-op" => "a script that does nothing".to_owned(),
            "1" => "1 call of an echo server".to_owned(),
            count => format!("{count} calls of an echo server"),
        };
        Row::new(what).figures(format!("{:.2} ms", cpu / 1000.0), others.join(", "))
    };
    Section {
        title: "Beside other gateways that run scripts",
        about: "CPU of the gateway for one `execute`, from the rows above. The figures of the \
                others were not measured in this run but earlier, on a machine of the same size: \
                compare orders of magnitude, not digits. Neither checks types.",
        rows: ours.iter().map(row).collect(),
    }
}

/// Medians over the rounds. Times in microseconds.
struct Compared {
    ours: f64,
    direct: f64,
    ratio: f64,
    gateway: f64,
    cpu: String,
}

impl Compared {
    /// `count` direct calls for one run.
    fn of(rounds: &[(Sample, Sample)], count: usize) -> Compared {
        let of = |value: &dyn Fn(&(Sample, Sample)) -> f64| median(rounds.iter().map(value));
        let times = count as f64;
        let gateway = of(&|(ours, _)| ours.gateway);
        let ours = |value: fn(&Sample) -> f64| of(&|pair| value(&pair.0));
        let direct = |value: fn(&Sample) -> f64| of(&|pair| value(&pair.1) * times);
        let cpu = format!(
            "{} + {} + {}",
            micros(ours(|it| it.client)),
            micros(gateway),
            micros(ours(|it| it.server))
        );
        let floor = match count {
            0 => String::new(),
            _ => format!(
                " : {} + {}",
                micros(direct(|it| it.client)),
                micros(direct(|it| it.server))
            ),
        };
        Compared {
            ours: ours(|it| it.p50),
            direct: direct(|it| it.p50),
            ratio: of(&|pair| pair.0.p50 / (pair.1.p50 * times)),
            gateway,
            cpu: format!("{cpu}{floor}"),
        }
    }

    fn alone(&self, what: &str) -> Row {
        Row::new(what).figures(micros(self.ours), "").cpu(self.cpu.clone())
    }

    fn row(&self, what: &str) -> Row {
        Row::new(what)
            .ratio(times(self.ratio))
            .figures(micros(self.ours), micros(self.direct))
            .cpu(self.cpu.clone())
    }
}

/// Many runs that wait for one call each.
fn at_once(effort: Effort) -> Result<Section> {
    let project = scripts::project(1)?;
    std::fs::write(project.path().join("tools").join("wait.lua"), scripts::WAIT)?;
    // One upstream server would do; what matters is that scripts are offered.
    let config = "[tools.script.wait]\npath = \"tools/wait.lua\"\nexpose = \"both\"\n";
    std::fs::write(project.path().join("moonlark.toml"), config)?;
    let (mut runs, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds.min(3) {
        machine::quiet();
        let server = || Server::moonlark(project.path());
        runs.push(waiting::measure(&server()?, AT_ONCE, &Script::waiting().over_rest())?);
        plain.push(waiting::measure(&server()?, AT_ONCE, &super::run_path::wait())?);
    }
    let (runs, plain) = (Waited::median(&runs), Waited::median(&plain));
    let row = |what: &str, of: fn(&Waited) -> f64, show: fn(f64) -> String| {
        let (ours, floor) = (of(&runs), of(&plain));
        Row::new(what).ratio(times(ours / floor)).figures(show(ours), show(floor))
    };
    Ok(Section {
        title: "1,000 runs at once, each awaiting one call of 200 ms",
        about: "Over REST, on connections that are open before, in a server that has just \
                started, against 1,000 plain calls of the same tool, a script that sleeps. A run \
                has a VM of its own beside that of the tool it calls.",
        rows: vec![
            row("all answered after", |it| it.wall, millis).goal("≤ 2 s", runs.wall <= 2.0),
            row("CPU per run", |it| it.cpu * 1e6, micros),
            row("threads of the server", |it| it.threads, |count| format!("{count:.0}")),
            row("memory per run (peak minus idle)", |it| it.memory, bytes),
        ],
    })
}
