//! Agents' scripts by `execute`, beside ToolScript.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::echo::ANSWER;
use crate::report::{Row, Section};

use super::PeerBench;
use super::instructions::{compare_instructions, count_over_stdio};
use super::programs::Peer;
use super::projects::{EchoUpstream, PeerProject};
use super::session_client::SessionClient;
use super::turns::{
    Figure, PeerGoal, PeerRounds, in_peer_turns, repeat_operation, row_without_peer,
};

/// Numbers that make a script a new one: as long as one another, and in no other part of it.
const FIRST_NUMBER: u64 = 7_000_000;

/// What a script does, and what it may cost.
struct ScriptWork {
    what: &'static str,
    /// Text and what its answer must hold.
    script: fn(u64) -> (String, String),
    /// Whether the upstream's tools say that they only read.
    has_annotations: bool,
    max_cpu_ratio: f64,
    max_wall_ratio: Option<f64>,
    /// Operations that callgrind counts. None of new scripts, since the processes that check
    /// types do not work under it.
    counted: Option<u64>,
    reason: &'static str,
}

const WORKS: [ScriptWork; 6] = [
    ScriptWork {
        what: "no-op, the same script each time",
        script: |_| ("return \"done\"".to_owned(), "done".to_owned()),
        has_annotations: false,
        max_cpu_ratio: 1.0,
        max_wall_ratio: None,
        counted: Some(200),
        reason: "Moonlark keeps a record of the run, limits its time and memory and gives it a sandbox \
                 of its own; ToolScript keeps no record.",
    },
    ScriptWork {
        what: "no-op, a new script each time",
        script: |number| (format!("local x = {number}\nreturn x"), number.to_string()),
        has_annotations: false,
        max_cpu_ratio: 1.6,
        max_wall_ratio: None,
        counted: None,
        reason: "The types of a new script are checked before it runs, in a process of its own; \
                 ToolScript checks none.",
    },
    ScriptWork {
        what: "8 statements and one upstream call, a new script each time",
        script: eight_statements,
        has_annotations: false,
        max_cpu_ratio: 2.0,
        max_wall_ratio: None,
        counted: None,
        reason: "The types of a new script are checked before it runs, in a process of its own, and \
                 the call is validated and recorded; ToolScript does none of it.",
    },
    ScriptWork {
        what: "one upstream call, tool without annotations",
        script: |_| upstream_calls(1),
        has_annotations: false,
        max_cpu_ratio: 1.0,
        max_wall_ratio: None,
        counted: Some(100),
        reason: "The call is validated against the schema of its tool, checked against the rules and \
                 recorded, which ToolScript does not do. Where it takes fewer instructions all the \
                 same, the rest is time in the kernel, which wakes the threads of the journal and \
                 of the upstream.",
    },
    ScriptWork {
        what: "100 upstream calls in turn, tool without annotations",
        script: |_| upstream_calls(100),
        has_annotations: false,
        max_cpu_ratio: 1.2,
        max_wall_ratio: Some(1.5),
        counted: Some(10),
        reason: CALLS_REASON,
    },
    ScriptWork {
        what: "100 upstream calls in turn, tool with `readOnlyHint`",
        script: |_| upstream_calls(100),
        has_annotations: true,
        max_cpu_ratio: 1.0,
        max_wall_ratio: None,
        counted: Some(10),
        reason: CALLS_REASON,
    },
];

const CALLS_REASON: &str = "Each call is validated against the schema of its tool, checked against the \
     rules and the limits of the run, and recorded with its arguments and its answer, which takes \
     twice the instructions of ToolScript, which hands it on. It does so for tools that only read, \
     too.";

fn eight_statements(number: u64) -> (String, String) {
    let text = format!(
        "local seed = {number}\n\
         local answer = sdk.echo.echo({{ message = \"hello\" }})\n\
         local words = {{}}\n\
         for i = 1, 5 do table.insert(words, answer.echo .. tostring(i)) end\n\
         local total = 0\n\
         for _, word in ipairs(words) do total = total + #word end\n\
         if total > 10 then total = total + seed end\n\
         return {{ echo = answer.echo, total = total }}"
    );
    (text, ANSWER.to_owned())
}

fn upstream_calls(count: usize) -> (String, String) {
    let text = format!(
        "local last\nfor i = 1, {count} do\nlast = sdk.echo.echo({{ message = \"hello\" }})\nend\n\
         return last.echo"
    );
    (text, ANSWER.to_owned())
}

pub(super) fn measure(bench: &PeerBench) -> Result<Vec<Section>> {
    Ok(vec![Section {
        title: "Agents' scripts, beside ToolScript",
        about: "One `execute` at a time over stdio, with a native echo server behind the gateway. \
                The first column is CPU unless a row says wall. ToolScript checks no types, keeps \
                no record and runs one script at a time. Instructions are counted where the \
                script is the same each time, with the type check off: it is remembered then, \
                and the process that checks does not work under callgrind.",
        rows: rows(bench)?,
    }])
}

fn rows(bench: &PeerBench) -> Result<Vec<Row>> {
    let Some(program) = bench.programs.find(Peer::ToolScript) else {
        return Ok(WORKS.iter().flat_map(ScriptWork::rows_without_peer).collect());
    };
    let mut rows = Vec::new();
    for has_annotations in [false, true] {
        let upstream = EchoUpstream { tools: 1, has_annotations, delay_millis: 0 };
        let moonlark = PeerProject::moonlark_over_upstream(upstream)?;
        let peer = PeerProject::toolscript(program.clone(), upstream)?;
        let ours = RefCell::new(ScriptRunner::start(&moonlark, MOONLARK_TOOL)?);
        let theirs = RefCell::new(ScriptRunner::start(&peer, TOOLSCRIPT_TOOL)?);
        for work in WORKS.iter().filter(|work| work.has_annotations == has_annotations) {
            eprintln!("{} …", work.what);
            let round = |runner: &RefCell<ScriptRunner>| {
                let mut runner = runner.borrow_mut();
                repeat_operation(runner.client.pid(), bench.effort, || runner.run(work))
            };
            let rounds = in_peer_turns(bench.effort.rounds, || round(&ours), || round(&theirs))?;
            let mut beside = rounds.beside(Figure::Wall);
            if let Some(counted) = work.counted.filter(|_| bench.with_instructions) {
                let count = |project: &PeerProject, tool: &'static str| {
                    count_over_stdio(project, counted, |client, number| {
                        run_script(client, tool, work, number).map(drop)
                    })
                };
                let unchecked = PeerProject::moonlark_over_upstream(upstream)?;
                unchecked.switch_off_type_check()?;
                let (ours, theirs) =
                    (count(&unchecked, MOONLARK_TOOL)?, count(&peer, TOOLSCRIPT_TOOL)?);
                beside = format!("{beside}; {}", compare_instructions(ours, theirs));
            }
            rows.extend(work.rows(&rounds, beside));
        }
    }
    Ok(rows)
}

const MOONLARK_TOOL: &str = "execute";
const TOOLSCRIPT_TOOL: &str = "execute_script";

/// A gateway that runs scripts, and how many it was sent.
struct ScriptRunner {
    client: SessionClient,
    tool: &'static str,
    number: u64,
}

impl ScriptRunner {
    fn start(project: &PeerProject, tool: &'static str) -> Result<ScriptRunner> {
        Ok(ScriptRunner { client: SessionClient::start(project.command())?, tool, number: 0 })
    }

    fn run(&mut self, work: &ScriptWork) -> Result<Duration> {
        self.number += 1;
        run_script(&mut self.client, self.tool, work, self.number)
    }
}

fn run_script(
    client: &mut SessionClient,
    tool: &str,
    work: &ScriptWork,
    number: u64,
) -> Result<Duration> {
    let (text, expect) = (work.script)(FIRST_NUMBER + number);
    client.call(tool, &script_arguments(&text), &expect)
}

pub(super) fn script_arguments(text: &str) -> Value {
    json!({ "script": text })
}

impl ScriptWork {
    fn rows(&self, rounds: &PeerRounds, beside: String) -> Vec<Row> {
        let row = |what: String, figure, goal| rounds.row(what, figure, goal).reason(self.reason);
        let mut rows = vec![row(self.what.to_owned(), Figure::Cpu, self.cpu_goal()).cpu(beside)];
        rows.extend(self.wall_goal().map(|goal| row(self.wall_name(), Figure::Wall, Some(goal))));
        rows
    }

    fn rows_without_peer(&self) -> Vec<Row> {
        let mut rows = vec![row_without_peer(self.what, Peer::ToolScript, self.cpu_goal())];
        rows.extend(
            self.wall_goal()
                .map(|goal| row_without_peer(self.wall_name(), Peer::ToolScript, Some(goal))),
        );
        rows
    }

    fn cpu_goal(&self) -> Option<PeerGoal> {
        Some(PeerGoal::Ratio(self.max_cpu_ratio))
    }

    fn wall_goal(&self) -> Option<PeerGoal> {
        self.max_wall_ratio.map(PeerGoal::Ratio)
    }

    fn wall_name(&self) -> String {
        format!("{}: wall", self.what)
    }
}
