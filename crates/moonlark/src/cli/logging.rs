//! The log on stderr: how much of it, and in which form.

use std::fmt;

use moonlark_core::visible_text::{indent_after_first, visible_json};
use serde_json::{Map, Value as Json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::log_writer::LogWriter;
use super::terminal::{CONTINUATION_INDENT, stderr_has_colors};
use super::{CliCommand, GlobalArgs, load_config};
use moonlark_config::{LogConfig, LogFormat};

/// The levels that are words; anything else is a list for the filter.
const LOG_LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Log from now on. A server's lines wait for their turn: `LogWriter::flush_lines` writes those.
pub(super) fn start_logging(global: &GlobalArgs, command: &CliCommand) -> Option<LogWriter> {
    let config = load_log_config(global, command);
    let format = global.log_format.unwrap_or(config.format);
    let notice = match format {
        LogFormat::Text => lost_lines_text,
        LogFormat::Json => lost_lines_json,
    };
    // Of all other commands, lines stand between what they say themselves.
    let serves = matches!(command, CliCommand::Serve(_) | CliCommand::Stdio(_));
    let queue = serves.then(|| LogWriter::new(Box::new(log_output()), notice));
    let writer = match &queue {
        Some(queue) => BoxMakeWriter::new(queue.clone()),
        None => BoxMakeWriter::new(log_output),
    };
    tracing_subscriber::fmt()
        .with_env_filter(build_filter(global, command, config.level.as_deref()))
        .with_writer(writer)
        .with_ansi(false)
        .event_format(LogLineFormat { format, colours: stderr_has_colors() })
        .init();
    queue
}

/// What is logged of lines that nobody read in time.
fn lost_lines_text(lost: u64) -> String {
    format!("{:.0}  WARN {lost} log lines were lost: stderr was not read\n", jiff::Timestamp::now())
}

fn lost_lines_json(lost: u64) -> String {
    let message = format!("{lost} log lines were lost: stderr was not read");
    let time = jiff::Timestamp::now().to_string();
    let line = serde_json::json!({
        "time": time, "level": "warn", "target": "log", "message": message,
    });
    format!("{line}\n")
}

#[expect(clippy::disallowed_methods, reason = "the formats below show control characters")]
fn log_output() -> std::io::Stderr {
    std::io::stderr()
}

/// What `[log]` says, for commands that serve. What is wrong with the file is
/// reported by whoever loads it next.
fn load_log_config(global: &GlobalArgs, command: &CliCommand) -> LogConfig {
    let serves = matches!(command, CliCommand::Serve(_) | CliCommand::Stdio(_));
    let loaded = serves.then(|| load_config(global).ok()).flatten();
    loaded.map(|loaded| loaded.config.log).unwrap_or_default()
}

/// What scripts say in a test belongs into its report, and what an agent script
/// says into that of its run, not into the log.
fn build_filter(global: &GlobalArgs, command: &CliCommand, configured: Option<&str>) -> EnvFilter {
    let serves = matches!(command, CliCommand::Serve(_) | CliCommand::Stdio(_));
    let runs = match command {
        CliCommand::Call(_) | CliCommand::Run(_) | CliCommand::Repl(_) | CliCommand::Demo(_) => {
            true
        }
        CliCommand::Runs(runs) => runs.is_fork(),
        _ => false,
    };
    let level = match (global.quiet, global.verbose, command) {
        (true, ..) => "warn",
        (false, 0, CliCommand::Test(_)) => "off",
        (false, 0, CliCommand::SearchTools(_)) => "warn",
        (false, 0, _) if runs => "warn",
        (false, 0, _) => configured.filter(|level| LOG_LEVELS.contains(level)).unwrap_or("info"),
        (false, 1, _) => "debug",
        (false, ..) => "trace",
    };
    let script = if runs { "off" } else { level };
    let verbose = global.verbose > 0;
    // Every other command says itself what is wrong with a source, once.
    let upstream = if serves || verbose { level } else { "off" };
    let access = if matches!(command, CliCommand::Serve(_)) || verbose { level } else { "off" };
    // What a process that was killed has left is news to whoever runs a server.
    let journal = if serves || verbose { level } else { "warn" };
    // Libraries only speak when asked to. To the MCP library a client that hangs
    // up is an error.
    let default = format!(
        "warn,rmcp::service=off,moonlark={level},script={script},access={access},call={level},http={level},upstream={upstream},journal={journal},telemetry={level}"
    );
    let list = configured.filter(|level| !LOG_LEVELS.contains(level));
    let list = list.filter(|_| !global.quiet && global.verbose == 0);
    let filter = EnvFilter::try_from_env("MOONLARK_LOG")
        .ok()
        .or_else(|| list?.parse().ok())
        .unwrap_or_else(|| EnvFilter::new(default));
    // Below that it writes down what it gets, arguments and tokens alike.
    match "rmcp=warn".parse() {
        Ok(quiet) => filter.add_directive(quiet),
        Err(_) => filter,
    }
}

/// An event as one line.
struct LogLineFormat {
    format: LogFormat,
    /// Of a line for people.
    colours: bool,
}

impl<S, N> FormatEvent<S, N> for LogLineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = LogEventVisitor::default();
        event.record(&mut line);
        let text = match self.format {
            LogFormat::Text => line.to_text(*event.metadata().level(), self.colours),
            LogFormat::Json => line.into_json_text(event.metadata()),
        };
        writeln!(writer, "{text}")
    }
}

#[derive(Default)]
struct LogEventVisitor {
    message: String,
    fields: Map<String, Json>,
}

impl LogEventVisitor {
    /// For people: the time to the second, how severe it is, what happened.
    fn to_text(&self, level: Level, colours: bool) -> String {
        let colour = match level {
            Level::ERROR => "31",
            Level::WARN => "33",
            Level::INFO => "32",
            Level::DEBUG | Level::TRACE => "2",
        };
        let fields: String =
            self.fields.iter().map(|(key, value)| format!(" {key}={value}")).collect();
        let now = jiff::Timestamp::now();
        let text = format!("{}{fields}", self.message);
        // What is logged may come from outside: only we begin a line with a time.
        let text = indent_after_first(text.trim(), CONTINUATION_INDENT);
        if colours {
            format!("\x1b[2m{now:.0}\x1b[0m \x1b[{colour}m{level:>5}\x1b[0m {text}")
        } else {
            format!("{now:.0} {level:>5} {text}")
        }
    }

    /// For programs: one object.
    fn into_json_text(mut self, metadata: &Metadata<'_>) -> String {
        let mut object = Map::new();
        let mut set = |key: &str, value: Json| drop(object.insert(key.to_owned(), value));
        set("time", jiff::Timestamp::now().to_string().into());
        set("level", metadata.level().as_str().to_ascii_lowercase().into());
        set("target", metadata.target().into());
        set("message", self.message.into());
        if let Some(trace) = self.fields.shift_remove("trace_id") {
            set("trace_id", trace);
        }
        if !self.fields.is_empty() {
            set("fields", self.fields.into());
        }
        visible_json(&Json::Object(object).to_string()).into_owned()
    }

    fn set_field(&mut self, field: &Field, value: Json) {
        self.fields.insert(field.name().to_owned(), value);
    }
}

impl Visit for LogEventVisitor {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.set_field(field, value.into()),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set_field(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set_field(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set_field(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set_field(field, value.into());
    }
}
