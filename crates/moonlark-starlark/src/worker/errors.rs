//! What a script raised, as a Problem with its place.

use moonlark_core::problem::cut;
use moonlark_core::value::shorten;
use moonlark_core::{Code, Place, Problem};
use starlark::ErrorKind;

/// A Problem as an error that a script cannot swallow.
pub(super) fn raise(problem: Problem) -> starlark::Error {
    starlark::Error::new_native(problem)
}

/// The Problem for an error that ended a script.
pub(super) fn problem(error: &starlark::Error) -> Problem {
    let mut problem = match error.kind() {
        ErrorKind::Native(inner) | ErrorKind::Other(inner) => {
            match inner.downcast_ref::<Problem>() {
                Some(problem) => from_host(problem.clone()),
                None => Problem::tool_error(words(inner)),
            }
        }
        ErrorKind::StackOverflow(_) => {
            Problem::limit("the script's functions call each other too deeply")
                .hint("use a loop instead of recursion")
        }
        ErrorKind::Parser(inner) | ErrorKind::Scope(inner) => {
            Problem::new(Code::BadScript, words(inner))
        }
        ErrorKind::Internal(inner) => {
            Problem::internal(format!("the interpreter failed: {}", words(inner)))
        }
        ErrorKind::Fail(inner)
        | ErrorKind::Value(inner)
        | ErrorKind::Function(inner)
        | ErrorKind::Freeze(inner) => Problem::tool_error(words(inner)),
        _ => Problem::tool_error(cut(&error.without_diagnostic().to_string())),
    };
    if problem.place.is_none()
        && let Some(span) = error.span()
    {
        let at = span.resolve_span().begin;
        let line = u32::try_from(at.line + 1).unwrap_or(0);
        problem.place = Some(Place::line(span.filename(), line));
        problem.hint = problem.hint.or_else(|| {
            starlark_way(&problem.message, span.file.source_line(at.line)).map(str::to_owned)
        });
    }
    problem
}

/// What the host could not do is the script's failure, except where the caller
/// can do something about it.
fn from_host(mut problem: Problem) -> Problem {
    let retryable = problem.retryable();
    if !matches!(
        problem.code,
        Code::Denied
            | Code::Limit
            | Code::Unavailable
            | Code::ApprovalRequired
            | Code::BadScript
            | Code::Internal
    ) {
        problem.code = Code::ToolError;
    }
    // What the caller lacks is for the caller to know, in its own terms. Any
    // other refusal is of something that the script called.
    if problem.code != Code::Unavailable {
        problem.refusal = None;
    }
    problem.retryable_if(retryable)
}

fn words(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("fail:").unwrap_or(&text).trim_start();
    cut(text.strip_prefix("Parse error: ").unwrap_or(text))
}

/// What to write instead, for what people write from Python by habit.
fn starlark_way(message: &str, line: &str) -> Option<&'static str> {
    let line = shorten(line);
    let starts = |word: &str| line.trim_start().starts_with(word);
    Some(match () {
        () if starts("while ") => "Starlark has no while: use for … in range(…)",
        () if starts("import ") || starts("from ") => {
            "modules such as http and json are globals; use load(\"other.star\", \"name\") for files"
        }
        () if starts("try:") || starts("except") || starts("raise ") => {
            "Starlark has no exceptions: try_call(function, …) gives what failed as a value, and fail(\"…\") stops"
        }
        () if starts("class ") => "Starlark has no classes: use struct(…) and functions",
        () if starts("with ") => "Starlark has no with",
        () if message.contains("`open`") => "use fs.read(path)",
        () if message.contains("call()")
            && (line.contains("math.pi()") || line.contains("math.e()")) =>
        {
            "math.pi and math.e are numbers: write them without ()"
        }
        () => return None,
    })
}
