//! Problems of git, with what to do next.

use std::io;

use moonlark_core::Problem;
use moonlark_core::value::shorten_text;

pub(super) fn git_missing_problem() -> Problem {
    Problem::unavailable("git is not installed, or not in PATH")
        .with_hint("install git, such as with apt install git")
}

pub(super) fn no_branch_problem(branch: &str) -> Problem {
    Problem::not_found(format!("the repository has no branch {}", shorten_text(branch)))
        .with_hint("git ls-remote --heads lists the branches of a repository")
}

pub(super) fn git_unusable_problem(error: &io::Error) -> Problem {
    Problem::unavailable(format!("git cannot be used: {error}"))
}

const SILENT_FAILURE_MESSAGE: &str = "git failed without a word";

/// Whether it failed without saying why, as it does when it is only asked.
pub(super) fn is_silent_failure(problem: &Problem) -> bool {
    problem.message == SILENT_FAILURE_MESSAGE
}

/// Messages come in English, whatever the user's language is.
pub(super) fn explain_failure(name: &str, said: &str) -> Problem {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&[
        "could not read Username",
        "could not read Password",
        "terminal prompts disabled",
        "Authentication failed",
        "Permission denied (",
        "Host key verification failed",
        "The requested URL returned error: 401",
        "The requested URL returned error: 403",
    ]) {
        return Problem::unavailable(format!("{name}: authentication failed"))
            .with_retryable(false)
            .with_hint(format!(
                "set up a key or a credential helper, so that git ls-remote {name} answers \
                 without asking"
            ));
    }
    if has(&["couldn't find remote ref HEAD"]) {
        return Problem::unavailable(format!("{name} has no commits yet"));
    }
    if let Some((_, after)) = said.split_once("couldn't find remote ref ") {
        let branch = after.lines().next().unwrap_or_default().trim();
        return no_branch_problem(branch.trim_start_matches("refs/heads/"));
    }
    if has(&["dubious ownership"]) {
        return Problem::unavailable(format!("{name} belongs to another user"))
            .with_retryable(false)
            .with_hint(format!("git config --global --add safe.directory {name}"));
    }
    if has(&[
        "not a git repository",
        "does not appear to be a git repository",
        "Repository not found",
        "repository '",
        "does not exist",
    ]) {
        return Problem::not_found(format!("{name} is not a git repository"))
            .with_hint(format!("git ls-remote {name} says what git finds there"));
    }
    if has(&["transport '"]) {
        return Problem::bad_config(format!("{name} is not reached in a way that is allowed"))
            .with_hint("use https, ssh, git or file");
    }
    let Some(last) = said.lines().map(str::trim).rfind(|line| !line.is_empty()) else {
        return Problem::unavailable(SILENT_FAILURE_MESSAGE);
    };
    let shown = shorten_text(last.trim_start_matches("fatal: ").trim_start_matches("error: "));
    Problem::unavailable(match name {
        "" => format!("git says: {shown}"),
        name => format!("{name} cannot be read: {shown}"),
    })
}
