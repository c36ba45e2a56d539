//! The one way in which commands write to the terminal.
//!
//! Data goes to stdout, everything said about it to stderr. Both may contain text
//! from outside: names, results, errors of servers and agents. So every text is
//! written with its control characters shown, and colours are no part of the text:
//! they are added here, and only for a terminal. What [`print`] and [`say`] are given
//! is one line, whatever is in it; only what has lines of its own, such as a result or
//! a page of documentation, goes through [`print_text`] and [`eprint_text`].
//! `clippy.toml` of this crate forbids the macros and functions that would write
//! around this.
//!
//! A command that a running server carries out writes to the terminal of whoever
//! asked for it: [`CommandConsole`] says where that is.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use moonlark_core::visible_text::{
    indent_after_first, visible_in_line, visible_json, visible_text,
};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tokio::sync::mpsc;

/// Before the further lines of a text from outside that has some: further to the right
/// than any line of ours begins.
pub(crate) const CONTINUATION_INDENT: &str = "    ";

tokio::task_local! {
    static CURRENT_CONSOLE: CommandConsole;
}

/// Where a command writes.
#[derive(Clone)]
pub(crate) enum CommandConsole {
    /// To this process's own stdout and stderr.
    OwnTerminal,
    /// To those of another process, which gets it piece by piece.
    Remote(mpsc::UnboundedSender<ConsoleWrite>),
}

/// One thing that is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConsoleWrite {
    Print(StyledText),
    /// With lines of its own.
    PrintText(StyledText),
    PrintJson(String),
    Say(StyledText),
    /// With lines of its own.
    SayText(StyledText),
    /// A line that is written over by the next.
    Status(String),
    ClearStatus,
}

/// A text in parts that may each look different.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct StyledText(Vec<(TextStyle, String)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TextStyle {
    Plain,
    Bold,
    /// A word that was looked for. Without colours it stands between asterisks.
    Found,
    Dim,
    Red,
    Green,
    Yellow,
    BoldRed,
    BoldCyan,
}

impl TextStyle {
    fn ansi_code(self) -> &'static str {
        match self {
            TextStyle::Plain => "",
            TextStyle::Bold | TextStyle::Found => "1",
            TextStyle::Dim => "2",
            TextStyle::Red => "31",
            TextStyle::Green => "32",
            TextStyle::Yellow => "33",
            TextStyle::BoldRed => "1;31",
            TextStyle::BoldCyan => "1;36",
        }
    }
}

impl StyledText {
    pub(crate) fn new(style: TextStyle, text: impl Into<String>) -> Self {
        Self(vec![(style, text.into())])
    }

    #[must_use]
    pub(crate) fn with_part(mut self, style: TextStyle, text: impl Into<String>) -> Self {
        self.0.push((style, text.into()));
        self
    }

    #[must_use]
    pub(crate) fn append_text(mut self, other: impl Into<StyledText>) -> Self {
        self.0.extend(other.into().0);
        self
    }

    /// As it is written, with everything from outside made visible.
    fn render_visible(&self, colours: bool, visible: fn(&str) -> Cow<'_, str>) -> String {
        let part = |(style, text): &(TextStyle, String)| match (colours, style) {
            (false, TextStyle::Found) => format!("**{}**", visible(text)),
            (false, _) | (true, TextStyle::Plain) => visible(text).into_owned(),
            (true, style) => format!("\x1b[{}m{}\x1b[0m", style.ansi_code(), visible(text)),
        };
        self.0.iter().map(part).collect()
    }

    /// Without its styles.
    pub(crate) fn to_plain_text(&self) -> String {
        self.0.iter().map(|(_, text)| text.as_str()).collect()
    }
}

impl From<&str> for StyledText {
    fn from(text: &str) -> Self {
        Self::new(TextStyle::Plain, text)
    }
}

impl From<&String> for StyledText {
    fn from(text: &String) -> Self {
        Self::new(TextStyle::Plain, text)
    }
}

impl From<String> for StyledText {
    fn from(text: String) -> Self {
        Self::new(TextStyle::Plain, text)
    }
}

impl CommandConsole {
    /// Of the command that this task carries out.
    pub(crate) fn current() -> CommandConsole {
        CURRENT_CONSOLE.try_with(CommandConsole::clone).unwrap_or(CommandConsole::OwnTerminal)
    }

    /// Carry out a command that writes here.
    pub(crate) async fn scope_future<F: Future>(self, command: F) -> F::Output {
        CURRENT_CONSOLE.scope(self, command).await
    }

    pub(crate) fn eprint_line(&self, line: impl Into<StyledText>) {
        self.dispatch_write(ConsoleWrite::Say(line.into()));
    }

    pub(crate) fn eprint_text(&self, text: impl Into<StyledText>) {
        self.dispatch_write(ConsoleWrite::SayText(text.into()));
    }

    /// A line, whose text may go on in further ones.
    pub(crate) fn eprint_continued(&self, text: &str) {
        self.eprint_text(indent_after_first(text, CONTINUATION_INDENT));
    }

    /// For people who look at it while they wait; elsewhere nothing is written.
    pub(crate) fn show_status(&self, text: &str) {
        self.dispatch_write(ConsoleWrite::Status(text.to_owned()));
    }

    pub(crate) fn clear_status(&self) {
        self.dispatch_write(ConsoleWrite::ClearStatus);
    }

    pub(crate) fn dispatch_write(&self, write: ConsoleWrite) {
        match self {
            CommandConsole::OwnTerminal => write.write_to_terminal(),
            // Nobody is left to read it when that fails.
            CommandConsole::Remote(other) => drop(other.send(write)),
        }
    }
}

/// A line of data, for stdout.
pub(crate) fn print_line(line: impl Into<StyledText>) {
    CommandConsole::current().dispatch_write(ConsoleWrite::Print(line.into()));
}

/// Data with lines of its own, for stdout.
pub(crate) fn print_text(text: impl Into<StyledText>) {
    CommandConsole::current().dispatch_write(ConsoleWrite::PrintText(text.into()));
}

/// Data as JSON in one line, for stdout.
pub(crate) fn print_json(json: &Json) {
    CommandConsole::current().dispatch_write(ConsoleWrite::PrintJson(json.to_string()));
}

/// A line about the data, for stderr.
pub(crate) fn eprint_line(line: impl Into<StyledText>) {
    CommandConsole::current().eprint_line(line);
}

/// Lines about the data, for stderr.
pub(crate) fn eprint_text(text: impl Into<StyledText>) {
    CommandConsole::current().eprint_text(text);
}

#[expect(clippy::disallowed_methods, reason = "what writes is here")]
impl ConsoleWrite {
    /// A reader that has gone (`| head`) is no reason to fail.
    fn write_to_terminal(&self) {
        let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
        let attended = stderr_has_colors();
        let coloured = stdout_has_colors();
        let _ = match self {
            ConsoleWrite::Print(line) => {
                writeln!(out, "{}", line.render_visible(coloured, visible_in_line))
            }
            ConsoleWrite::PrintText(text) => {
                writeln!(out, "{}", text.render_visible(coloured, visible_text))
            }
            ConsoleWrite::PrintJson(text) => writeln!(out, "{}", visible_json(text)),
            ConsoleWrite::Say(line) => {
                writeln!(err, "{}", line.render_visible(attended, visible_in_line))
            }
            ConsoleWrite::SayText(text) => {
                writeln!(err, "{}", text.render_visible(attended, visible_text))
            }
            ConsoleWrite::Status(text) if attended => {
                write!(err, "\r\x1b[2K\x1b[2m{}\x1b[0m", truncate_status(text))
            }
            ConsoleWrite::ClearStatus if attended => write!(err, "\r\x1b[2K"),
            ConsoleWrite::Status(_) | ConsoleWrite::ClearStatus => Ok(()),
        };
        let _ = err.flush();
    }
}

/// A status that wraps could not be written over.
fn truncate_status(text: &str) -> String {
    const MAX_STATUS_COLUMNS: usize = 78;
    visible_in_line(text).chars().take(MAX_STATUS_COLUMNS).collect()
}

/// Colours for what is printed as a result.
#[expect(clippy::disallowed_methods, reason = "it only asks what stdout is")]
pub(crate) fn stdout_has_colors() -> bool {
    std::io::stdout().is_terminal() && are_colors_wanted()
}

/// Colours for what is said on stderr. Only people see any.
#[expect(clippy::disallowed_methods, reason = "it only asks what stderr is")]
pub(crate) fn stderr_has_colors() -> bool {
    std::io::stderr().is_terminal() && are_colors_wanted()
}

/// Columns that a text for people may have: those of the terminal, as far as lines of
/// that length are easy to read.
#[expect(clippy::disallowed_methods, reason = "it only asks what stdout is")]
pub(crate) fn terminal_width() -> usize {
    const DEFAULT_COLUMNS: usize = 100;
    const MIN_COLUMNS: usize = 40;
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    let columns = size.map_or(DEFAULT_COLUMNS, |size| usize::from(size.ws_col));
    if columns == 0 { DEFAULT_COLUMNS } else { columns.clamp(MIN_COLUMNS, DEFAULT_COLUMNS) }
}

/// The text in lines of at most `width` columns, cut between words. A longer word has a
/// line of its own.
pub(crate) fn wrap_words(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn are_colors_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_ours_and_escapes_from_outside_are_shown() {
        let text = StyledText::new(TextStyle::Bold, "na\x1b[8mme")
            .with_part(TextStyle::Plain, ": \u{202e}x\ny");
        assert_eq!(
            text.render_visible(true, visible_in_line),
            "\x1b[1mna\\u{1b}[8mme\x1b[0m: \\u{202e}x\\ny"
        );
        assert_eq!(text.render_visible(false, visible_in_line), "na\\u{1b}[8mme: \\u{202e}x\\ny");
        assert_eq!(text.render_visible(false, visible_text), "na\\u{1b}[8mme: \\u{202e}x\ny");
    }

    #[test]
    fn long_lines_are_cut_between_words() {
        assert_eq!(wrap_words("", 10), [""]);
        assert_eq!(wrap_words("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap_words("a muchlongerword b", 5), ["a", "muchlongerword", "b"]);
        assert_eq!(wrap_words("grüße an alle", 8), ["grüße an", "alle"]);
    }

    #[tokio::test]
    async fn a_command_for_another_process_writes_there() {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        CommandConsole::Remote(sender)
            .scope_future(async {
                print_line("data");
                print_json(&serde_json::json!({"a": 1}));
                eprint_line("about it");
            })
            .await;
        let mut written = Vec::new();
        while let Some(write) = receiver.recv().await {
            written.push(write);
        }
        assert_eq!(
            written,
            [
                ConsoleWrite::Print("data".into()),
                ConsoleWrite::PrintJson("{\"a\":1}".to_owned()),
                ConsoleWrite::Say("about it".into()),
            ]
        );
    }
}
