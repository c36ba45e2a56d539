//! The check of an agent's script before it runs: names, arguments and fields
//! that are surely wrong are said at once, and nothing has been called.
//!
//! Luau's type checker tells what type every expression has. What it finds
//! itself is not repeated: it minds much that runs well. Instead the script is
//! held to the schemas of the tools it names, and only where no doubt is left.
//! In particular a check that fails, or takes too long, finds nothing.

#[cfg(feature = "check")]
mod calls;
#[cfg(feature = "check")]
mod facts;
#[cfg(feature = "check")]
mod fields;
#[cfg(feature = "check")]
mod globals;
#[cfg(feature = "check")]
mod kept;
#[cfg(feature = "check")]
mod kinds;
#[cfg(feature = "check")]
mod names;
#[cfg(feature = "check")]
mod pool;
#[cfg(feature = "check")]
mod preamble;
#[cfg(all(test, feature = "check"))]
mod tests;
#[cfg(feature = "check")]
mod typing;
#[cfg(feature = "check")]
mod walk;

use std::sync::Arc;

use moonlark_core::{Catalog, Place, Problem};

#[cfg(feature = "check")]
pub use walk::Checker;

/// Something that is surely wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Both from one.
    pub line: u32,
    pub column: u32,
    /// One line.
    pub message: String,
    /// How it would be right: the signature, as a rule.
    pub hint: Option<String>,
}

/// What is surely wrong with a script that is to use the tools of `catalog`.
#[cfg(feature = "check")]
pub async fn run(script: &str, catalog: &Arc<Catalog>) -> Vec<Finding> {
    /// A check of its own takes less; this is for the queue before it.
    const PATIENCE: std::time::Duration =
        std::time::Duration::from_secs(if cfg!(debug_assertions) { 30 } else { 3 });
    if script.len() > crate::unit::MAX_SOURCE {
        return Vec::new();
    }
    if let Some(found) = kept::find(script, catalog) {
        return found;
    }
    let (answer, found) = tokio::sync::oneshot::channel();
    pool::submit(pool::Job { script: script.to_owned(), catalog: catalog.clone(), answer });
    match tokio::time::timeout(PATIENCE, found).await {
        Ok(Ok(found)) => {
            kept::keep(script, catalog, &found);
            found
        }
        _ => Vec::new(),
    }
}

#[cfg(not(feature = "check"))]
pub async fn run(_script: &str, _catalog: &Arc<Catalog>) -> Vec<Finding> {
    Vec::new()
}

/// The findings as one Problem, in the file that the script goes by. Signatures
/// are its hint, each once.
pub fn problem(findings: &[Finding], file: &str) -> Option<Problem> {
    let first = findings.first()?;
    let line = |it: &Finding| format!("{}:{}: {}", it.line, it.column, it.message);
    let message = match findings {
        [only] => only.message.clone(),
        many => many.iter().map(line).collect::<Vec<_>>().join("\n"),
    };
    let mut hints: Vec<&str> = Vec::new();
    for hint in findings.iter().filter_map(|it| it.hint.as_deref()) {
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    hints.push("nothing was called");
    let place = Place::column(file, first.line, first.column);
    Some(Problem::bad_script(message).at(place).hint(hints.join("\n")))
}

#[cfg(feature = "check")]
impl Finding {
    fn new(place: luau_syntax::location::Location, message: impl Into<String>) -> Finding {
        // The script begins on the line after the first, and lines count from 0.
        let (line, column) = (place.begin.line, place.begin.column + 1);
        Finding { line, column, message: message.into(), hint: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> Finding {
        self.hint = Some(hint.into());
        self
    }
}
