//! Events of a call: log messages and progress, for the operator and for subscribers.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Call, RunContext};
use crate::run::RunStep;
use moonlark_core::problem::Result;
use moonlark_core::value::{Object, Value, shorten_text};

/// What happens during a call, for whoever watches it.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEvent {
    Log {
        level: LogLevel,
        message: String,
        fields: Option<Value>,
    },
    /// What a source that speaks the caller's protocol logs, in its own words.
    Relayed {
        level: String,
        logger: Option<String>,
        data: Value,
    },
    Progress {
        done: f64,
        total: Option<f64>,
        message: Option<String>,
    },
    /// A call of an agent's script has ended.
    Step(RunStep),
}

pub type CallEventSink = Arc<dyn Fn(CallEvent) + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

impl LogLevel {
    pub fn as_str(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        }
    }
}

impl Call {
    /// Pass on what a source logs in the words of the caller's protocol.
    pub fn relay_log(&self, level: &str, logger: Option<&str>, data: Value) -> Result<()> {
        let Some(events) = &self.0.root.events else { return Ok(()) };
        let text = data.to_json_lossy().to_string();
        self.0.root.usage.count_log(16 + text.len(), self.limits())?;
        let data = match self.0.scope.secrets.redact_text(&text) {
            Cow::Borrowed(_) => data,
            Cow::Owned(redacted) => {
                Value::parse_json(redacted.as_bytes()).unwrap_or(Value::from(redacted))
            }
        };
        let (level, logger) =
            (shorten_text(level).into_owned(), logger.map(|it| shorten_text(it).into()));
        events(CallEvent::Relayed { level, logger, data });
        Ok(())
    }

    /// Log on behalf of the script: to the operator's log and to the caller.
    pub fn log_message(
        &self,
        level: LogLevel,
        message: &str,
        fields: Option<Object>,
    ) -> Result<()> {
        let fields = fields.map(|fields| Value::Object(fields).to_json_lossy().to_string());
        let size = 16 + message.len() + fields.as_ref().map_or(0, String::len);
        self.0.root.usage.count_log(size, self.limits())?;
        let secrets = &self.0.scope.secrets;
        let message = secrets.redact_text(message).into_owned();
        let fields = fields.map(|fields| secrets.redact_text(&fields).into_owned());
        let extra = fields.as_deref().map(|fields| format!(" {fields}")).unwrap_or_default();
        let tool = self.tool();
        if let Some(part) = &self.0.run {
            // The script's own words, or those of a tool that it called.
            let whose = part.step.map(|_| format!("{tool}: ")).unwrap_or_default();
            part.run.add_log_line(format!("{whose}{message}{extra}"));
        }
        let trace_id = self.trace().map(|trace| tracing::field::display(trace.id_hex()));
        // What is no tool's, such as a file of tests, has no name.
        let tool = if tool.is_empty() { String::new() } else { format!("{tool}: ") };
        let line = format!("{tool}{message}{extra}");
        let line = match &self.0.run {
            Some(part) => part.run.redact_for_operator(&line),
            None => Cow::Borrowed(line.as_str()),
        };
        match level {
            LogLevel::Debug => tracing::debug!(target: "script", trace_id, "{line}"),
            LogLevel::Info => tracing::info!(target: "script", trace_id, "{line}"),
            LogLevel::Warn => tracing::warn!(target: "script", trace_id, "{line}"),
            LogLevel::Error => tracing::error!(target: "script", trace_id, "{line}"),
        }
        if let Some(events) = &self.0.root.events {
            let fields = fields.and_then(|json| Value::parse_json(json.as_bytes()).ok());
            events(CallEvent::Log { level, message, fields });
        }
        Ok(())
    }

    /// Tell the caller how far the work is. A flood is thinned out, because
    /// only the newest report is worth anything.
    pub fn report_progress(&self, done: f64, total: Option<f64>, message: Option<&str>) {
        if self.0.root.events.is_none() {
            return;
        }
        // A line on a progress bar, not a way to move data past the limits.
        let message =
            message.map(|text| shorten_text(&self.0.scope.secrets.redact_text(text)).into_owned());
        match &self.0.run {
            None => self.send_progress(done, total, message),
            Some(RunContext { run, step: None, .. }) => {
                run.use_own_progress();
                self.send_progress(done, total, message);
            }
            // One of several: its share of the whole.
            Some(RunContext { run, step: Some(step), .. }) => {
                let share = total.filter(|total| *total > 0.0).map_or(0.0, |total| done / total);
                let Some((done, total)) = run.advance_step(*step, share) else { return };
                let message = message.map_or(self.tool().to_owned(), |message| {
                    format!("{}: {message}", self.tool())
                });
                self.send_progress(done, Some(total), Some(message));
            }
        }
    }

    pub(super) fn send_progress(&self, done: f64, total: Option<f64>, message: Option<String>) {
        let Some(events) = &self.0.root.events else { return };
        // Sent while it is held: of two that are let through, the lesser is first.
        let mut throttle = self.0.root.progress.lock();
        if throttle.should_send(done, total) {
            events(CallEvent::Progress { done, total, message });
        }
    }
}

/// A hundred reports at once, then at most twenty a second, and only upwards,
/// as MCP demands.
#[derive(Default)]
pub(super) struct ProgressThrottle {
    sent: u32,
    last: Option<Instant>,
    highest: Option<f64>,
}

impl ProgressThrottle {
    fn should_send(&mut self, done: f64, total: Option<f64>) -> bool {
        if self.highest.is_some_and(|highest| done <= highest) {
            return false;
        }
        let free = self.sent < 100;
        self.sent = self.sent.saturating_add(1);
        let due = self.last.is_none_or(|last| last.elapsed() > Duration::from_millis(50));
        let complete = total == Some(done);
        if free || due || complete {
            self.last = Some(Instant::now());
            self.highest = Some(done);
            return true;
        }
        false
    }
}
