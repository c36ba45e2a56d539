//! The prompt: rustyline on a thread of its own, because it blocks.

use std::path::{Path, PathBuf};
use std::sync::mpsc as blocking;

use moonlark_core::{Problem, Result};
use moonlark_gateway::Gateway;
use moonlark_luau::SyntaxStatus;
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use tokio::sync::mpsc;

use super::completion::complete_entry;
use crate::cli::cli_caller;

/// Entries that are remembered.
const MAX_HISTORY_ENTRIES: usize = 1000;

pub(super) struct ReplPrompt {
    entries: mpsc::Receiver<Result<String>>,
    /// The terminal is the prompt's again.
    go_on: blocking::Sender<()>,
}

impl ReplPrompt {
    pub(super) fn start(gateway: Gateway, history: PathBuf) -> Result<ReplPrompt> {
        let failed = |error: ReadlineError| Problem::unavailable(format!("no prompt: {error}"));
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .max_history_size(MAX_HISTORY_ENTRIES)
            .map_err(failed)?
            .auto_add_history(false)
            .build();
        let mut editor: Editor<ReplCompleter, FileHistory> =
            Editor::with_config(config).map_err(failed)?;
        editor.set_helper(Some(ReplCompleter { gateway }));
        // There may be none yet.
        let _ = editor.load_history(&history);
        let (sender, entries) = mpsc::channel(1);
        let (go_on, waiting) = blocking::channel();
        std::thread::spawn(move || read_entries(editor, &history, &sender, &waiting));
        Ok(ReplPrompt { entries, go_on })
    }

    /// The next entry; none when there will be no more.
    pub(super) async fn next_entry(&mut self) -> Result<Option<String>> {
        // The thread may have ended.
        let _ = self.go_on.send(());
        self.entries.recv().await.transpose()
    }
}

fn read_entries(
    mut editor: Editor<ReplCompleter, FileHistory>,
    history: &Path,
    entries: &mpsc::Sender<Result<String>>,
    go_on: &blocking::Receiver<()>,
) {
    while go_on.recv().is_ok() {
        let mut typed = String::new();
        let entry = loop {
            let prompt = if typed.is_empty() { "> " } else { "… " };
            match editor.readline(prompt) {
                Ok(line) => typed.push_str(&line),
                // Only what was typed so far is given up.
                Err(ReadlineError::Interrupted) => {
                    typed.clear();
                    continue;
                }
                Err(ReadlineError::Eof) if typed.is_empty() => return,
                Err(ReadlineError::Eof) => break Ok(typed),
                Err(error) => break Err(Problem::unavailable(format!("no prompt: {error}"))),
            }
            if !is_unfinished(&typed) {
                break Ok(typed);
            }
            typed.push('\n');
        };
        // A session that cannot be remembered is still one.
        if let Ok(entry) = &entry {
            let _ = editor.add_history_entry(entry.as_str());
        }
        if let Some(folder) = history.parent() {
            moonlark_state::state_folder::prepare_state_folder(folder);
        }
        let _ = editor.save_history(history);
        if entries.blocking_send(entry).is_err() {
            return;
        }
    }
}

/// Whether the script is not complete yet.
fn is_unfinished(entry: &str) -> bool {
    if entry.trim_start().starts_with('?') {
        return false;
    }
    // It may be statements or an expression.
    let both = [
        moonlark_luau::syntax_status(entry),
        moonlark_luau::syntax_status(&format!("return {entry}")),
    ];
    !both.contains(&SyntaxStatus::Right) && both.contains(&SyntaxStatus::Unfinished)
}

struct ReplCompleter {
    gateway: Gateway,
}

impl Helper for ReplCompleter {}
impl Highlighter for ReplCompleter {}

impl Hinter for ReplCompleter {
    type Hint = String;
}

impl Completer for ReplCompleter {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, candidates) = complete_entry(
            line.get(..at).unwrap_or(line),
            &self.gateway.catalog_for(&cli_caller()),
        );
        let pair = |it: super::completion::CompletionCandidate| Pair {
            display: it.shown,
            replacement: it.text,
        };
        Ok((start, candidates.into_iter().map(pair).collect()))
    }
}

impl Validator for ReplCompleter {
    /// Lines are taken one by one: whoever reads them asks for the next with a prompt
    /// of its own.
    fn validate(&self, _: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(ValidationResult::Valid(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_goes_on_until_it_is_a_script_or_an_expression() {
        for (entry, expected) in [
            ("1 +", true),
            ("1 + 1", false),
            ("if true then", true),
            ("if true then\nreturn 1", true),
            ("if true then\nreturn 1\nend", false),
            ("sdk.a.b({", true),
            ("end", false),
            ("? how (", false),
            ("", false),
        ] {
            assert_eq!(is_unfinished(entry), expected, "{entry}");
        }
    }
}
