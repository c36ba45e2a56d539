//! The protocol of the engine and its workers: frames of MessagePack over a socket. One
//! job at a time; while it runs, the worker asks and the engine answers.

use moonlark_core::problem::ProtocolError;
use moonlark_core::{Problem, ProblemCode, SourceLocation, Value};
use serde::{Deserialize, Serialize};

/// Longest file: the parser's memory is nobody's limit.
pub const MAX_STARLARK_SOURCE_BYTES: usize = 256 * 1024;
/// Longest file of data that an extension reads while it loads. It is kept with
/// the extension.
pub const MAX_EXTENSION_DATA_BYTES: usize = 8 * 1024 * 1024;
/// Files that one extension may consist of.
pub const MAX_EXTENSION_FILES: usize = 256;
/// `load()` inside `load()`.
pub(crate) const MAX_LOAD_DEPTH: usize = 64;

/// A frame is refused beyond this, whatever a limit says.
pub(crate) const MAX_WORKER_FRAME_BYTES: usize = 256 * 1024 * 1024;
/// Values nest to 128; the messages around them a little more.
const MAX_MESSAGE_DEPTH: usize = 160;

/// From the engine to a worker.
#[derive(Serialize, Deserialize)]
pub(crate) enum WorkerOrder {
    Job(WorkerJob),
    /// The answer to the last [`WorkerReport`] that asks for one.
    Answer(WorkerReply),
}

/// One piece of work.
#[derive(Serialize, Deserialize)]
pub(crate) struct WorkerJob {
    pub script: StarlarkScriptVersion,
    pub kind: WorkerJobKind,
    /// The text of the main file, where the worker surely needs it.
    pub main_text: Option<String>,
    /// Bytes the script may use beyond what it takes to load it.
    pub memory: usize,
    /// Bytes of one value that leaves or enters the script.
    pub value: usize,
    /// Calls and loop rounds.
    pub steps: u64,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct StarlarkScriptVersion {
    /// Its version; a worker keeps what it has loaded.
    pub unit: u64,
    /// The folder as messages show it.
    pub folder: String,
    /// The main file in there.
    pub main: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum WorkerJobKind {
    /// Load it and say what it is.
    Describe,
    /// Call the handler of a tool.
    Call { handler: usize, args: Value, context: Value },
    /// Load a file of tests and name them.
    ListTests,
    /// Run one test.
    Test { name: String },
}

impl WorkerJobKind {
    /// Whether it is about a file of tests, which sees the module `testing`.
    pub(crate) fn is_test(&self) -> bool {
        matches!(self, WorkerJobKind::ListTests | WorkerJobKind::Test { .. })
    }
}

/// From a worker to the engine.
#[derive(Serialize, Deserialize)]
pub(crate) enum WorkerReport {
    /// Call a host function, by its place in the list of all.
    Host { function: usize, args: Value },
    /// Call a tool.
    Tool { name: String, args: Value },
    /// `print`.
    Print { text: String },
    /// The text of a file.
    Read { path: String },
    /// The job is over. A worker that is not clean does no other.
    Done { reply: WorkerReply, clean: bool },
}

pub(crate) type WorkerReply = Result<Value, WireProblem>;

/// A Problem on its way.
#[derive(Serialize, Deserialize)]
pub(crate) struct WireProblem {
    code: String,
    message: String,
    place: Option<(String, Option<u32>, Option<u32>)>,
    hint: Option<String>,
    retryable: bool,
    /// Code, message and data of what the caller's protocol has words for.
    refusal: Option<(i64, String, Option<Value>)>,
}

impl From<Problem> for WireProblem {
    fn from(problem: Problem) -> Self {
        WireProblem {
            code: problem.code.as_str().to_owned(),
            retryable: problem.is_retryable(),
            message: problem.message,
            refusal: problem.refusal.map(|it| (it.code, it.message, it.data)),
            place: problem.place.map(|place| (place.file.into_string(), place.line, place.column)),
            hint: problem.hint,
        }
    }
}

impl From<WireProblem> for Problem {
    fn from(words: WireProblem) -> Self {
        let code = ProblemCode::ALL_CODES.iter().find(|code| code.as_str() == words.code);
        let mut problem =
            Problem::new(code.copied().unwrap_or(ProblemCode::Internal), words.message)
                .with_optional_hint(words.hint)
                .with_retryable(words.retryable);
        problem.place = words.place.map(|(file, line, column)| SourceLocation {
            file: file.into(),
            line,
            column,
        });
        problem.refusal = words
            .refusal
            .map(|(code, message, data)| Box::new(ProtocolError { code, message, data }));
        problem
    }
}

/// A frame, with its length in front.
pub(crate) fn encode_frame(message: &impl Serialize) -> Result<Vec<u8>, Problem> {
    let mut frame = vec![0; 4];
    rmp_serde::encode::write(&mut frame, message)
        .map_err(|error| Problem::internal(format!("a message cannot be encoded: {error}")))?;
    match u32::try_from(frame.len() - 4) {
        Ok(length) if length as usize <= MAX_WORKER_FRAME_BYTES => {
            frame[..4].copy_from_slice(&length.to_le_bytes());
            Ok(frame)
        }
        _ => Err(Problem::limit_exceeded("a value is too large to pass to or from a script")),
    }
}

/// The message in a frame's body.
pub(crate) fn decode_frame<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    let mut decoder = rmp_serde::Deserializer::from_read_ref(body);
    decoder.set_max_depth(MAX_MESSAGE_DEPTH);
    T::deserialize(&mut decoder)
        .map_err(|error| Problem::internal(format!("a message cannot be decoded: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_problems_travel_whole() {
        let deep = (0..127).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        for value in [
            Value::Null,
            Value::Int(i64::MIN),
            Value::Float(f64::INFINITY),
            Value::Bytes(vec![0xff, 0]),
            Value::from("ä"),
            Value::from_fields([("a", Value::Array(vec![])), ("", Value::Bool(true))]),
            deep,
        ] {
            let report = WorkerReport::Done { reply: Ok(value.clone()), clean: true };
            let frame = encode_frame(&report).unwrap();
            let WorkerReport::Done { reply: Ok(back), .. } = decode_frame(&frame[4..]).unwrap()
            else {
                panic!("another message");
            };
            assert_eq!(back, value);
        }
        let problem = Problem::denied("no")
            .at_location(SourceLocation::at_line("a.star", 3))
            .with_hint("ask");
        assert_eq!(
            Problem::from(WireProblem::from(problem.clone())).to_string(),
            problem.to_string()
        );
        assert!(decode_frame::<WorkerReport>(&[0xc1]).is_err());
    }
}
