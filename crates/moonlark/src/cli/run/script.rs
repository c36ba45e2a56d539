//! One agent script through the gateway's `execute`, watched.
//!
//! For every command that runs one: it says on stderr what happens meanwhile
//! and gives back what came of it. How that is shown is theirs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moonlark_core::artifacts::Held;
use moonlark_core::call::Events;
use moonlark_core::content::{Answer, Content};
use moonlark_core::run::Step;
use moonlark_core::value::Object;
use moonlark_core::{Caller, Code, Event, Gateway, Level, Problem, Result, Value};
use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use super::super::terminal::Console;
use super::super::{Global, pretty};

/// How often a script that runs on and on shows that it does.
const LIFE_INTERVAL: Duration = Duration::from_secs(1);

/// What messages call a script that has no file.
pub(crate) const NAME: &str = "script";

pub(crate) struct Given<'a> {
    pub(crate) script: &'a str,
    /// Seconds, if fewer or more than usual.
    pub(crate) timeout: Option<f64>,
    /// Only collect what it would change.
    pub(crate) plan: bool,
}

/// What came of it.
pub(crate) struct Ran {
    pub(crate) outcome: Result<Outcome>,
    /// The calls, in the order they began.
    pub(crate) steps: Vec<Step>,
    pub(crate) logs: Vec<String>,
    pub(crate) took: Duration,
}

/// What a script returned, without what was said about it.
pub(crate) enum Outcome {
    Value(Value),
    Content(Content),
}

/// Run it until it ends or somebody presses Ctrl-C.
pub(crate) async fn run(gateway: &Gateway, given: Given<'_>, global: &Global) -> Ran {
    let watching = Arc::new(Watching::new(global));
    let began = Instant::now();
    let answer = tokio::select! {
        answer = ask(gateway, &given, watching.events()) => answer,
        () = watching.show_life(began) => Err(Problem::internal("the clock has stopped")),
        _ = tokio::signal::ctrl_c() => {
            Err(Problem::new(Code::Cancelled, "the script was stopped").retryable_if(false))
        }
    };
    let took = began.elapsed();
    watching.done();
    let mut steps = std::mem::take(&mut *watching.steps.lock());
    steps.sort_by_key(|step| step.at);
    // The answer knows those that were given up, too.
    let steps = recorded(&answer).unwrap_or(steps);
    let logs = std::mem::take(&mut *watching.logs.lock());
    Ran { outcome: answer.map(|answer| Outcome::of(answer, gateway)), steps, logs, took }
}

/// The calls that an answer, or a Problem, says it made.
fn recorded(answer: &Result<Answer>) -> Option<Vec<Step>> {
    let content = match answer {
        Ok(Answer::Content(content)) => content,
        Ok(_) => return None,
        Err(problem) => problem.content.as_ref()?,
    };
    let Value::Array(calls) = about(content)?.get("calls")? else { return None };
    let millis = |call: &Value, key: &str| match call.get(key)? {
        Value::Float(ms) => Duration::try_from_secs_f64(ms / 1000.0).ok(),
        Value::Int(ms) => u64::try_from(*ms).ok().map(Duration::from_millis),
        _ => None,
    };
    let step = |call: &Value| {
        Some(Step {
            tool: call.get("tool")?.as_str()?.to_owned(),
            at: millis(call, "at")?,
            took: millis(call, "ms"),
            outcome: outcome(call.get("outcome")?.as_str()?),
            place: call.get("place").and_then(Value::as_str).map(Into::into),
            replayed: call.get("replayed") == Some(&Value::Bool(true)),
        })
    };
    calls.iter().map(step).collect()
}

fn outcome(word: &str) -> &'static str {
    let codes = Code::ALL.iter().map(|code| code.as_str());
    codes.chain(["ok"]).find(|known| *known == word).unwrap_or("cancelled")
}

/// What `execute` says about the run beside its result.
fn about(content: &Content) -> Option<&Value> {
    content.extra.get("_meta")?.get("moonlark/run")
}

async fn ask(gateway: &Gateway, given: &Given<'_>, events: Events) -> Result<Answer> {
    let mut args = Object::new();
    args.insert("script".to_owned(), Value::from(given.script.to_owned()));
    if let Some(timeout) = given.timeout {
        args.insert("timeout".to_owned(), Value::Float(timeout));
    }
    if given.plan {
        args.insert("plan".to_owned(), Value::Bool(true));
    }
    let call = gateway.open(Caller::new("cli"), Some(events))?;
    gateway.ask(&call, "execute", Value::Object(args)).await
}

/// The calls as `--json` has them.
pub(crate) fn calls(steps: &[Step]) -> Vec<Json> {
    let ms = |time: Duration| (time.as_secs_f64() * 1e4).round() / 10.0;
    let call = |step: &Step| {
        json!({
            "tool": step.tool,
            "at_ms": ms(step.at),
            "ms": step.took.map(ms),
            "outcome": step.outcome,
            "place": step.place.as_deref(),
        })
    };
    steps.iter().map(call).collect()
}

impl Outcome {
    fn of(answer: Answer, gateway: &Gateway) -> Outcome {
        match answer {
            Answer::Value(value) => Outcome::Value(value),
            Answer::Raw(fields) => Outcome::Value(Value::Object(fields)),
            Answer::Content(mut content) => {
                // What the script logged was shown while it ran.
                if said_something(&content) {
                    content.blocks.pop();
                }
                content.extra.clear();
                match whole(&content, gateway) {
                    Some(value) => Outcome::Value(value),
                    None => Outcome::Content(content),
                }
            }
        }
    }

    pub(crate) fn plain(self) -> Value {
        match self {
            Outcome::Value(value) => value,
            Outcome::Content(content) => Answer::Content(content).into_plain(),
        }
    }

    /// For people: a value as JSON, a text as it is, the rest by name.
    pub(crate) fn texts(&self) -> Result<Vec<String>> {
        let content = match self {
            Outcome::Value(Value::Str(text)) => return Ok(vec![text.clone()]),
            Outcome::Value(value) => return Ok(vec![pretty(value)?]),
            Outcome::Content(content) => content,
        };
        let mut lines = Vec::new();
        let mut blocks = content.blocks.as_slice();
        if let Some(value) = &content.structured {
            lines.push(match value {
                Value::Str(text) => text.clone(),
                value => pretty(value)?,
            });
            // The same value as text comes with it.
            blocks = blocks.get(1..).unwrap_or_default();
        }
        lines.extend(blocks.iter().map(block_line));
        Ok(lines)
    }
}

/// What an agent would get a preview of. A terminal takes all of it.
fn whole(content: &Content, gateway: &Gateway) -> Option<Value> {
    let about = content.structured.as_ref()?.as_object()?;
    let is_preview = about.keys().eq(["artifact", "size", "shape", "preview"]);
    let handle = about.get("artifact").filter(|_| is_preview)?.as_str()?;
    match &gateway.artifacts().get(handle)?.held {
        Held::Value(value) => Some(value.clone()),
        Held::Bytes { .. } => None,
    }
}

/// Whether the last block is the run's log.
fn said_something(content: &Content) -> bool {
    let logs = about(content).and_then(|run| run.get("logs"));
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

/// What is said on stderr while a script runs.
struct Watching {
    steps: Mutex<Vec<Step>>,
    logs: Mutex<Vec<String>>,
    /// How far a call has come, as it says itself.
    progress: Mutex<Option<String>>,
    quiet: bool,
    verbose: bool,
    /// Whether to show how far it is, in a line that is written over again and again.
    status: bool,
    /// Events come from other tasks than the one that carries out the command.
    console: Console,
}

impl Watching {
    fn new(global: &Global) -> Watching {
        Watching {
            steps: Mutex::default(),
            logs: Mutex::default(),
            progress: Mutex::default(),
            quiet: global.quiet,
            verbose: global.verbose > 0,
            status: !global.quiet && !global.json,
            console: Console::current(),
        }
    }

    /// Show, for ever, how long it has taken so far: a call may take minutes and say
    /// nothing.
    async fn show_life(&self, began: Instant) {
        if !self.status {
            return std::future::pending().await;
        }
        let mut ticks = tokio::time::interval(LIFE_INTERVAL);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let steps = self.steps.lock();
            let calls = super::super::counted(steps.len(), "call");
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

    fn events(self: &Arc<Self>) -> Events {
        let watching = self.clone();
        Arc::new(move |event| watching.event(event))
    }

    fn event(&self, event: Event) {
        match event {
            Event::Step(step) => {
                let mut steps = self.steps.lock();
                steps.push(step);
                if self.status
                    && let Some(last) = steps.last()
                {
                    let calls = super::super::counted(steps.len(), "call");
                    self.console.show_status(&format!("{calls}, last {}", last.tool));
                }
            }
            Event::Log { level, message, fields } => {
                let fields = fields.map(|it| format!(" {}", it.to_json_lossy()));
                let line = format!("{message}{}", fields.unwrap_or_default());
                let shown = match level {
                    Level::Debug => self.verbose,
                    Level::Info => !self.quiet,
                    Level::Warn | Level::Error => true,
                };
                let word = if level == Level::Info { "log" } else { level.as_str() };
                self.say(shown, &format!("{word}: {line}"));
                self.logs.lock().push(line);
            }
            Event::Relayed { level, logger, data } => {
                let logger = logger.map(|logger| format!("{logger}: ")).unwrap_or_default();
                let line = format!("{level}: {logger}{}", data.to_json_lossy());
                self.say(self.verbose, &line);
            }
            Event::Progress { done, total, message } => {
                let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
                let message = message.map(|it| format!(" {it}")).unwrap_or_default();
                *self.progress.lock() = Some(format!("{done}{of}{message}"));
            }
        }
    }

    fn say(&self, shown: bool, line: &str) {
        if shown {
            self.done();
            self.console.say_continued(line);
        }
    }

    /// Take the status line away.
    fn done(&self) {
        if self.status {
            self.console.clear_status();
        }
    }
}
