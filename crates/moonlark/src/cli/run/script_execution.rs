//! One agent script through the gateway's `execute`, watched.
//!
//! For every command that runs one: it says on stderr what happens meanwhile
//! and gives back what came of it. How that is shown is theirs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moonlark_core::content::{Content, ToolAnswer};
use moonlark_core::value::Object;
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_gateway::artifacts::ArtifactContent;
use moonlark_gateway::call::CallEventSink;
use moonlark_gateway::gateway::CallOptions;
use moonlark_gateway::run::RunStep;
use moonlark_gateway::{CallEvent, CallOutcome, Gateway, LogLevel};
use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use super::super::terminal::CommandConsole;
use super::super::{GlobalArgs, cli_caller, format_count, pretty_json};
use super::ScriptFork;

/// How often a script that runs on and on shows that it does.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// What messages call a script that has no file.
pub(crate) const UNNAMED_SCRIPT: &str = "script";

pub(crate) struct AgentScriptRequest<'a> {
    pub(crate) script: &'a str,
    /// Seconds, if fewer or more than usual.
    pub(crate) timeout: Option<f64>,
    /// Only collect what it would change.
    pub(crate) plan: bool,
    /// Run it on the record of another run.
    pub(crate) fork: Option<&'a ScriptFork>,
}

/// What came of it.
pub(crate) struct AgentScriptReport {
    pub(crate) outcome: Result<AgentScriptOutcome>,
    /// The calls, in the order they began.
    pub(crate) steps: Vec<RunStep>,
    pub(crate) logs: Vec<String>,
    pub(crate) took: Duration,
    /// For a fork: its id, and what it has in common with the run that it is of.
    pub(crate) fork: Option<(Json, Json)>,
    /// The same in words, where something differs.
    fork_text: Option<String>,
}

impl AgentScriptReport {
    /// What a fork has in common with the run that it is of, for people.
    pub(crate) fn fork_lines(&self) -> Vec<String> {
        match (&self.fork, &self.fork_text) {
            (_, Some(text)) => text.lines().map(str::to_owned).collect(),
            (Some((_, fork)), None) => {
                let of = fork["of"].as_str().unwrap_or_default();
                let calls = fork["counts"]["recorded"].as_u64().unwrap_or_default();
                let calls = format_count(usize::try_from(calls).unwrap_or(0), "call");
                vec![format!("fork of run {of}: {calls} from its record, none is new or missing")]
            }
            (None, None) => Vec::new(),
        }
    }
}

/// What a script returned, without what was said about it.
pub(crate) enum AgentScriptOutcome {
    Value(Value),
    Content(Content),
}

/// Run it until it ends or somebody presses Ctrl-C.
pub(crate) async fn run_script(
    gateway: &Gateway,
    given: AgentScriptRequest<'_>,
    global: &GlobalArgs,
) -> AgentScriptReport {
    let watching = Arc::new(AgentScriptWatcher::new(global));
    let began = Instant::now();
    let answer = tokio::select! {
        answer = call_execute(gateway, &given, watching.event_listener()) => answer,
        () = watching.show_elapsed(began) => Err(Problem::internal("the clock has stopped")),
        _ = tokio::signal::ctrl_c() => {
            Err(Problem::new(ProblemCode::Cancelled, "the script was stopped").with_retryable(false))
        }
    };
    let took = began.elapsed();
    watching.clear_status();
    let mut steps = std::mem::take(&mut *watching.steps.lock());
    steps.sort_by_key(|step| step.at);
    // The answer knows those that were given up, too.
    let steps = recorded_steps(&answer).unwrap_or(steps);
    let logs = std::mem::take(&mut *watching.logs.lock());
    let fork = answer_metadata(&answer).and_then(|run| {
        let fork = run.get("fork")?.to_json_lossy();
        Some((run.get("id")?.to_json_lossy(), fork))
    });
    let fork_text = answer_content(&answer).and_then(fork_block);
    AgentScriptReport {
        fork,
        fork_text,
        outcome: answer.map(|answer| AgentScriptOutcome::from_answer(answer, gateway)),
        steps,
        logs,
        took,
    }
}

/// The calls that an answer, or a Problem, says it made.
fn recorded_steps(answer: &Result<ToolAnswer>) -> Option<Vec<RunStep>> {
    let Value::Array(calls) = answer_metadata(answer)?.get("calls")? else { return None };
    let millis = |call: &Value, key: &str| match call.get(key)? {
        Value::Float(ms) => Duration::try_from_secs_f64(ms / 1000.0).ok(),
        Value::Int(ms) => u64::try_from(*ms).ok().map(Duration::from_millis),
        _ => None,
    };
    let step = |call: &Value| {
        Some(RunStep {
            tool: call.get("tool")?.as_str()?.to_owned(),
            at: millis(call, "at")?,
            took: millis(call, "ms"),
            outcome: CallOutcome::from_word(call.get("outcome")?.as_str()?)
                .unwrap_or(CallOutcome::Cancelled),
            place: call.get("place").and_then(Value::as_str).map(Into::into),
            replayed: call.get("replayed") == Some(&Value::Bool(true)),
        })
    };
    calls.iter().map(step).collect()
}

/// What an answer of `execute`, or a Problem, says about the run.
pub(crate) fn answer_metadata(answer: &Result<ToolAnswer>) -> Option<&Value> {
    run_metadata(answer_content(answer)?)
}

fn answer_content(answer: &Result<ToolAnswer>) -> Option<&Content> {
    match answer {
        Ok(ToolAnswer::Content(content)) => Some(content),
        Ok(_) => None,
        Err(problem) => problem.content.as_deref(),
    }
}

/// What the last block says of a fork, if it does.
fn fork_block(content: &Content) -> Option<String> {
    run_metadata(content)?.get("fork")?;
    let text = content.blocks.last()?.get("text")?.as_str()?;
    text.starts_with("fork of run ").then(|| text.to_owned())
}

/// What `execute` says about the run beside its result.
fn run_metadata(content: &Content) -> Option<&Value> {
    content.extra.get("_meta")?.get("moonlark/run")
}

async fn call_execute(
    gateway: &Gateway,
    given: &AgentScriptRequest<'_>,
    events: CallEventSink,
) -> Result<ToolAnswer> {
    let mut args = Object::new();
    args.insert("script".to_owned(), Value::from(given.script.to_owned()));
    if let Some(timeout) = given.timeout {
        args.insert("timeout".to_owned(), Value::Float(timeout));
    }
    if let Some(fork) = given.fork {
        args.insert("fork".to_owned(), fork.run.as_str().into());
        args.insert("new_calls".to_owned(), fork.new_calls.as_str().into());
    }
    if given.plan {
        args.insert("plan".to_owned(), Value::Bool(true));
    }
    let call = gateway.open_call(CallOptions::from(cli_caller()).with_events(Some(events)))?;
    gateway.invoke(&call, "execute", Value::Object(args)).await
}

/// The calls as `--json` has them.
pub(crate) fn calls_json(steps: &[RunStep]) -> Vec<Json> {
    let ms = |time: Duration| (time.as_secs_f64() * 1e4).round() / 10.0;
    let call = |step: &RunStep| {
        json!({
            "tool": step.tool,
            "at_ms": ms(step.at),
            "ms": step.took.map(ms),
            "outcome": step.outcome.as_str(),
            "place": step.place.as_deref(),
        })
    };
    steps.iter().map(call).collect()
}

impl AgentScriptOutcome {
    fn from_answer(answer: ToolAnswer, gateway: &Gateway) -> AgentScriptOutcome {
        match answer {
            ToolAnswer::Value(value) => AgentScriptOutcome::Value(value),
            ToolAnswer::Raw(fields) => AgentScriptOutcome::Value(Value::Object(fields)),
            ToolAnswer::Content(mut content) => {
                if fork_block(&content).is_some() {
                    content.blocks.pop();
                }
                // What the script logged was shown while it ran.
                if has_log_block(&content) {
                    content.blocks.pop();
                }
                content.extra.clear();
                match find_full_value(&content, gateway) {
                    Some(value) => AgentScriptOutcome::Value(value),
                    None => AgentScriptOutcome::Content(content),
                }
            }
        }
    }

    pub(crate) fn into_plain_value(self) -> Value {
        match self {
            AgentScriptOutcome::Value(value) => value,
            AgentScriptOutcome::Content(content) => ToolAnswer::Content(content).into_plain_value(),
        }
    }

    /// For people: a value as JSON, a text as it is, the rest by name.
    pub(crate) fn display_texts(&self) -> Result<Vec<String>> {
        let content = match self {
            AgentScriptOutcome::Value(Value::Str(text)) => return Ok(vec![text.clone()]),
            AgentScriptOutcome::Value(value) => return Ok(vec![pretty_json(value)?]),
            AgentScriptOutcome::Content(content) => content,
        };
        let mut lines = Vec::new();
        let mut blocks = content.blocks.as_slice();
        if let Some(value) = &content.structured {
            lines.push(match value {
                Value::Str(text) => text.clone(),
                value => pretty_json(value)?,
            });
            // The same value as text comes with it.
            blocks = blocks.get(1..).unwrap_or_default();
        }
        lines.extend(blocks.iter().map(block_line));
        Ok(lines)
    }
}

/// What an agent would get a preview of. A terminal takes all of it.
fn find_full_value(content: &Content, gateway: &Gateway) -> Option<Value> {
    let about = content.structured.as_ref()?.as_object()?;
    let is_preview = about.keys().eq(["artifact", "size", "shape", "preview"]);
    let handle = about.get("artifact").filter(|_| is_preview)?.as_str()?;
    match &gateway.artifacts().get(handle)?.held {
        ArtifactContent::Value(value) => Some(value.clone()),
        ArtifactContent::Bytes { .. } => None,
    }
}

/// Whether the last block is the run's log.
fn has_log_block(content: &Content) -> bool {
    let logs = run_metadata(content).and_then(|run| run.get("logs"));
    let any = matches!(logs, Some(Value::Array(logs)) if !logs.is_empty());
    let last = content.blocks.last().and_then(|block| block.get("text")?.as_str());
    any && last.is_some_and(|text| text.starts_with("logs:\n"))
}

fn block_line(block: &Value) -> String {
    let field = |name: &str| block.get(name).and_then(Value::as_str);
    if let Some(text) = field("text").filter(|_| field("type") == Some("text")) {
        return text.to_owned();
    }
    let kind = field("type").unwrap_or("content");
    let what = field("mimeType").or(field("uri")).unwrap_or_default();
    match field("data") {
        Some(data) => format!("[{kind} {what}, about {} bytes]", data.len() / 4 * 3),
        None => block.to_json_lossy().to_string(),
    }
}

/// A line of a script's log.
pub(crate) fn log_text(message: &str, fields: Option<&Value>) -> String {
    let fields = fields.map(|it| format!(" {}", it.to_json_lossy()));
    format!("{message}{}", fields.unwrap_or_default())
}

/// What such a line begins with.
pub(crate) fn log_word(level: LogLevel) -> &'static str {
    if level == LogLevel::Info { "log" } else { level.as_str() }
}

/// What is said on stderr while a script runs.
struct AgentScriptWatcher {
    steps: Mutex<Vec<RunStep>>,
    logs: Mutex<Vec<String>>,
    /// How far a call has come, as it says itself.
    progress: Mutex<Option<String>>,
    global: GlobalArgs,
    /// Whether to show how far it is, in a line that is written over again and again.
    status: bool,
    /// Events come from other tasks than the one that carries out the command.
    console: CommandConsole,
}

impl AgentScriptWatcher {
    fn new(global: &GlobalArgs) -> AgentScriptWatcher {
        AgentScriptWatcher {
            steps: Mutex::default(),
            logs: Mutex::default(),
            progress: Mutex::default(),
            global: global.clone(),
            status: !global.quiet && !global.json,
            console: CommandConsole::current(),
        }
    }

    /// Show, for ever, how long it has taken so far: a call may take minutes and say
    /// nothing.
    async fn show_elapsed(&self, began: Instant) {
        if !self.status {
            return std::future::pending().await;
        }
        let mut ticks = tokio::time::interval(STATUS_INTERVAL);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let steps = self.steps.lock();
            let calls = format_count(steps.len(), "call");
            let progress = self.progress.lock().clone();
            let doing = match (progress, steps.last()) {
                (Some(progress), _) => format!(", {progress}"),
                (None, Some(last)) => format!(", last {}", last.tool),
                (None, None) => String::new(),
            };
            let seconds = began.elapsed().as_secs();
            self.console.show_status(&format!("{seconds} s, {calls} done{doing}"));
        }
    }

    fn event_listener(self: &Arc<Self>) -> CallEventSink {
        let watching = self.clone();
        Arc::new(move |event| watching.on_event(event))
    }

    fn on_event(&self, event: CallEvent) {
        match event {
            CallEvent::Step(step) => {
                let mut steps = self.steps.lock();
                steps.push(step);
                if self.status
                    && let Some(last) = steps.last()
                {
                    let calls = format_count(steps.len(), "call");
                    self.console.show_status(&format!("{calls}, last {}", last.tool));
                }
            }
            CallEvent::Log { level, message, fields } => {
                let line = log_text(&message, fields.as_ref());
                let shown = self.global.shows_log(level);
                self.eprint_if(shown, &format!("{}: {line}", log_word(level)));
                self.logs.lock().push(line);
            }
            CallEvent::Relayed { level, logger, data } => {
                let logger = logger.map(|logger| format!("{logger}: ")).unwrap_or_default();
                let line = format!("{level}: {logger}{}", data.to_json_lossy());
                self.eprint_if(self.global.verbose > 0, &line);
            }
            CallEvent::Progress { done, total, message } => {
                let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
                let message = message.map(|it| format!(" {it}")).unwrap_or_default();
                *self.progress.lock() = Some(format!("{done}{of}{message}"));
            }
        }
    }

    fn eprint_if(&self, shown: bool, line: &str) {
        if shown {
            self.clear_status();
            self.console.eprint_continued(line);
        }
    }

    /// Take the status line away.
    fn clear_status(&self) {
        if self.status {
            self.console.clear_status();
        }
    }
}
