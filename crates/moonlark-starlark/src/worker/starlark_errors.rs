//! Errors of Starlark scripts as Problems with their place.

use moonlark_core::problem::cut_message;
use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, ProblemCode, SourceLocation};
use starlark::ErrorKind;

/// A Problem as an error that a script cannot swallow.
pub(super) fn raise_problem(problem: Problem) -> starlark::Error {
    starlark::Error::new_native(problem)
}

/// The Problem for an error that ended a script.
pub(super) fn problem_from_error(error: &starlark::Error) -> Problem {
    let mut problem = match error.kind() {
        ErrorKind::Native(inner) | ErrorKind::Other(inner) => {
            match inner.downcast_ref::<Problem>() {
                Some(problem) => problem_from_host(problem.clone()),
                None => Problem::tool_error(error_message(inner)),
            }
        }
        ErrorKind::StackOverflow(_) => {
            Problem::limit_exceeded("the script's functions call each other too deeply")
                .with_hint("use a loop instead of recursion")
        }
        ErrorKind::Parser(inner) | ErrorKind::Scope(inner) => {
            Problem::new(ProblemCode::BadScript, error_message(inner))
        }
        ErrorKind::Internal(inner) => {
            Problem::internal(format!("the interpreter failed: {}", error_message(inner)))
        }
        ErrorKind::Fail(inner)
        | ErrorKind::Value(inner)
        | ErrorKind::Function(inner)
        | ErrorKind::Freeze(inner) => Problem::tool_error(error_message(inner)),
        _ => Problem::tool_error(cut_message(&error.without_diagnostic().to_string())),
    };
    if problem.place.is_none()
        && let Some(span) = error.span()
    {
        let at = span.resolve_span().begin;
        let line = u32::try_from(at.line + 1).unwrap_or(0);
        problem.place = Some(SourceLocation::at_line(span.filename(), line));
        problem.hint = problem.hint.or_else(|| {
            hint_for_python_spelling(&problem.message, span.file.source_line(at.line))
                .map(str::to_owned)
        });
    }
    problem
}

/// What the host could not do is the script's failure, except where the caller
/// can do something about it.
fn problem_from_host(mut problem: Problem) -> Problem {
    let retryable = problem.is_retryable();
    if !matches!(
        problem.code,
        ProblemCode::Denied
            | ProblemCode::Limit
            | ProblemCode::Unavailable
            | ProblemCode::ApprovalRequired
            | ProblemCode::BadScript
            | ProblemCode::Internal
    ) {
        problem.code = ProblemCode::ToolError;
    }
    // What the caller lacks is for the caller to know, in its own terms. Any
    // other refusal is of something that the script called.
    if problem.code != ProblemCode::Unavailable {
        problem.refusal = None;
    }
    problem.with_retryable(retryable)
}

fn error_message(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("fail:").unwrap_or(&text).trim_start();
    cut_message(text.strip_prefix("Parse error: ").unwrap_or(text))
}

/// What to write instead, for what people write from Python by habit.
fn hint_for_python_spelling(message: &str, line: &str) -> Option<&'static str> {
    let line = shorten_text(line);
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
