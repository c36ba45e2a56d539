//! What a person reads when something is wrong: code, message, place, hint.
//!
//! The same [`Problem`] reaches the terminal, MCP, REST and the journal; a
//! surface chooses how to draw it, never what it says. Codes are stable words,
//! so nothing anywhere classifies an error by the text of its message.

use std::fmt;

use serde::Serialize;

use crate::approval_ticket::ApprovalTicket;
use crate::content::Content;
use crate::value::Value;

/// One line per code: its meaning, its name here, its word on the wire. The
/// meaning is the doc comment and the text of the reference page alike.
macro_rules! codes {
    ($(#[doc = $meaning:literal] $name:ident = $word:literal,)*) => {
        /// A stable word for what kind of thing went wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ProblemCode {
            $(#[doc = $meaning] $name,)*
        }

        impl ProblemCode {
            pub const ALL_CODES: &[ProblemCode] = &[$(ProblemCode::$name,)*];

            /// The word as it appears on the wire and in the terminal.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(ProblemCode::$name => $word,)*
                }
            }

            /// What it says, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(ProblemCode::$name => $meaning.trim_ascii(),)*
                }
            }
        }
    };
}

codes! {
    /// The arguments or the request are invalid.
    BadRequest = "bad_request",
    /// No tool, document or route has that name.
    NotFound = "not_found",
    /// The deadline passed before the call was done.
    Timeout = "timeout",
    /// The tool itself failed: its script raised an error.
    ToolError = "tool_error",
    /// A script used something the operator did not grant.
    Denied = "denied",
    /// Credentials are missing or invalid.
    Unauthorized = "unauthorized",
    /// The caller is not allowed to do this.
    Forbidden = "forbidden",
    /// The call requires approval by a person.
    ApprovalRequired = "approval_required",
    /// The request is larger than the server accepts.
    TooLarge = "too_large",
    /// The request body has a format that the server does not support.
    UnsupportedMediaType = "unsupported_media_type",
    /// The method does not exist for this route.
    MethodNotAllowed = "method_not_allowed",
    /// A limit on memory, calls, log output or value size ended the call.
    Limit = "limit",
    /// A rate limit was exceeded, or the server is full; try again later.
    RateLimited = "rate_limited",
    /// The call was cancelled, or its caller disconnected.
    Cancelled = "cancelled",
    /// Something that the call needs is not available at the moment, or not built in.
    Unavailable = "unavailable",
    /// A script or extension does not load.
    BadScript = "bad_script",
    /// The configuration is wrong.
    BadConfig = "bad_config",
    /// A resumed run, or a run of a plan, makes other calls than were recorded.
    Diverged = "diverged",
    /// A call was sent and its answer lost: check whether it took effect, then resume.
    MayHaveHappened = "may_have_happened",
    /// A defect of Moonlark itself.
    Internal = "internal",
}

impl ProblemCode {
    /// Whether the same call may succeed when it is made again later.
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            ProblemCode::Timeout
                | ProblemCode::RateLimited
                | ProblemCode::Unavailable
                | ProblemCode::Cancelled
        )
    }
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where it happened: a file with a line, or a configuration key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceLocation {
    /// A path relative to the project, or a key such as `server.port`.
    pub file: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
}

impl SourceLocation {
    pub fn in_file(file: impl Into<String>) -> Self {
        Self { file: file.into().into_boxed_str(), line: None, column: None }
    }

    pub fn at_line(file: impl Into<String>, line: u32) -> Self {
        Self { file: file.into().into_boxed_str(), line: Some(line), column: None }
    }

    pub fn at_column(file: impl Into<String>, line: u32, column: u32) -> Self {
        Self { file: file.into().into_boxed_str(), line: Some(line), column: Some(column) }
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(column) = self.column {
            write!(f, ":{column}")?;
        }
        Ok(())
    }
}

/// What went wrong, in the reader's terms.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    pub code: ProblemCode,
    /// What happened. One sentence, no trailing full stop, no place.
    pub message: String,
    pub place: Option<SourceLocation>,
    /// The next action. It must be true.
    pub hint: Option<String>,
    /// For [`ProblemCode::RateLimited`]: seconds until it is worth trying again.
    pub retry_after: Option<u32>,
    /// What the tool itself answered while failing.
    pub content: Option<Box<Content>>,
    /// The refusal of a source that speaks the caller's protocol, as it put it.
    pub refusal: Option<Box<ProtocolError>>,
    /// The HTTP status that an API answered with.
    pub status: Option<u16>,
    /// What an API said about it, as it said it. Bounded by whoever sets it.
    pub data: Option<Box<Value>>,
    /// For [`ProblemCode::ApprovalRequired`]: what is to be decided.
    pub approval: Option<Box<ApprovalTicket>>,
    retryable: Option<bool>,
}

/// An error in the words of a protocol; only a surface that speaks it looks.
#[derive(Debug, Clone, PartialEq)]
pub struct ProtocolError {
    pub code: i64,
    pub message: String,
    pub data: Option<Value>,
}

/// Shorthand for what nearly every function of this crate returns.
pub type Result<T, E = Problem> = std::result::Result<T, E>;

impl Problem {
    pub fn new(code: ProblemCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            place: None,
            hint: None,
            retry_after: None,
            content: None,
            refusal: None,
            status: None,
            data: None,
            approval: None,
            retryable: None,
        }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ProblemCode::BadRequest, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ProblemCode::NotFound, message)
    }

    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(ProblemCode::Forbidden, message)
    }

    pub fn tool_error(message: impl Into<String>) -> Self {
        Self::new(ProblemCode::ToolError, message)
    }

    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(ProblemCode::Denied, message)
    }

    pub fn limit_exceeded(message: impl Into<String>) -> Self {
        Self::new(ProblemCode::Limit, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ProblemCode::Unavailable, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ProblemCode::Internal, message)
    }

    pub fn bad_script(message: impl Into<String>) -> Self {
        Self::new(ProblemCode::BadScript, message)
    }

    pub fn bad_config(message: impl Into<String>) -> Self {
        Self::new(ProblemCode::BadConfig, message)
    }

    #[must_use]
    pub fn at_location(mut self, place: SourceLocation) -> Self {
        self.place = Some(place);
        self
    }

    /// The same in other words.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn with_optional_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }

    /// Say whether trying again makes sense, where the code alone does not.
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.retryable = Some(retryable);
        self
    }

    /// With the seconds until it is worth trying again.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub fn is_retryable(&self) -> bool {
        self.retryable.unwrap_or_else(|| self.code.is_retryable())
    }

    /// `place: message`, as a Lua error reads, for places with one line.
    pub fn to_line(&self) -> String {
        match &self.place {
            Some(place) => format!("{place}: {}", self.message),
            None => self.message.clone(),
        }
    }

    /// The terminal form with the line that it is about, out of `source`, the text of
    /// the file that the place names.
    pub fn to_text_with_source_line(&self, source: &str) -> String {
        let text = self.to_string();
        let Some(line) = self.source_line(source) else { return text };
        let hint = self.hint.as_ref().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        let above = text.strip_suffix(&hint).unwrap_or(&text);
        format!("{above}\n   {line}{hint}")
    }

    /// The line that it is about, with its number: `2 | return a.b.c`.
    pub fn source_line(&self, source: &str) -> Option<String> {
        let line = self.place.as_ref()?.line?;
        let text = source.lines().nth(line.saturating_sub(1) as usize)?;
        Some(format!("{line} | {}", cut_message(text.trim_end())))
    }

    /// The `error` object of REST, MCP structured content and `--json`.
    pub fn to_json(&self) -> serde_json::Value {
        let mut object = serde_json::Map::new();
        object.insert("code".into(), self.code.as_str().into());
        object.insert("message".into(), self.to_line().into());
        if let Some(hint) = &self.hint {
            object.insert("hint".into(), hint.as_str().into());
        }
        if self.is_retryable() {
            object.insert("retryable".into(), true.into());
        }
        if let Some(seconds) = self.retry_after {
            object.insert("retry_after".into(), seconds.into());
        }
        if let Some(data) = &self.data {
            object.insert("data".into(), data.to_json_lossy());
        }
        if let Some(ticket) = &self.approval {
            object.insert("approval".into(), ticket.to_json(false));
        }
        serde_json::Value::Object(object)
    }

    /// Apply `edit` to every text a reader would see.
    pub fn map_text(&mut self, edit: impl Fn(&str) -> String) {
        self.message = edit(&self.message);
        if let Some(hint) = &mut self.hint {
            *hint = edit(hint);
        }
    }
}

/// Text from a script as a message: of bounded length.
pub fn cut_message(text: &str) -> String {
    const MAX_CUT_MESSAGE_BYTES: usize = 4096;
    if text.len() <= MAX_CUT_MESSAGE_BYTES {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(MAX_CUT_MESSAGE_BYTES)])
}

/// The terminal form: `error[code]: message`, `--> place`, `hint: …`.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        if let Some(place) = &self.place {
            write!(f, "\n  --> {place}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

/// What works and would better be written otherwise: nothing is refused for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Warning {
    /// What is there. One sentence, no trailing full stop, no place.
    pub message: String,
    pub place: Option<SourceLocation>,
    /// How to write it.
    pub hint: Option<String>,
}

impl Warning {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), place: None, hint: None }
    }

    #[must_use]
    pub fn at_location(mut self, place: SourceLocation) -> Self {
        self.place = Some(place);
        self
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same for programs.
    pub fn to_json(&self) -> serde_json::Value {
        let mut object = serde_json::Map::new();
        let line = match &self.place {
            Some(place) => format!("{place}: {}", self.message),
            None => self.message.clone(),
        };
        object.insert("message".into(), line.into());
        if let Some(hint) = &self.hint {
            object.insert("hint".into(), hint.as_str().into());
        }
        serde_json::Value::Object(object)
    }
}

/// The terminal form: `warning: message`, `--> place`, `hint: …`.
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warning: {}", self.message)?;
        if let Some(place) = &self.place {
            write!(f, "\n  --> {place}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminal_form_names_code_place_and_hint() {
        let problem = Problem::denied("http.get may not reach api.example.com")
            .at_location(SourceLocation::at_line("tools/tickets.luau", 12))
            .with_hint("add \"net:api.example.com\" to allow");
        assert_eq!(
            problem.to_string(),
            "error[denied]: http.get may not reach api.example.com\n  --> tools/tickets.luau:12\nhint: add \"net:api.example.com\" to allow"
        );
        assert_eq!(
            problem.to_line(),
            "tools/tickets.luau:12: http.get may not reach api.example.com"
        );
    }
}
