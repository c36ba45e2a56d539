//! What a statement may do: decided while SQLite compiles it, for everything in
//! it, whatever its spelling.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Mode {
    Read,
    Write,
}

/// Remembers why a statement was refused: SQLite's own error does not say.
#[derive(Clone, Default)]
pub(super) struct Guard(Arc<Inner>);

#[derive(Default)]
struct Inner {
    refused: Mutex<Option<Refusal>>,
    /// What is compiled is ours.
    ours: AtomicBool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It changes something, and the connection is for reading.
    Write,
    /// No connection does this, with the reason for the reader.
    Never(String),
}

impl Guard {
    pub(super) fn install(connection: &mut Connection, mode: Mode) -> rusqlite::Result<Guard> {
        let guard = Guard::default();
        let inner = guard.0.clone();
        connection.authorizer(Some(move |context: AuthContext<'_>| {
            match judge(&context.action, mode) {
                None => Authorization::Allow,
                Some(_) if inner.ours.load(Ordering::Relaxed) => Authorization::Allow,
                Some(refusal) => {
                    // The first is what the statement is about.
                    inner.refused.lock().get_or_insert(refusal);
                    Authorization::Deny
                }
            }
        }))?;
        Ok(guard)
    }

    /// Why the last statement was refused, if it was.
    pub(super) fn take(&self) -> Option<Refusal> {
        self.0.refused.lock().take()
    }

    /// Run a statement of our own, such as `BEGIN`.
    pub(super) fn ours(&self, connection: &Connection, sql: &str) -> rusqlite::Result<()> {
        self.0.ours.store(true, Ordering::Relaxed);
        let result = connection.execute_batch(sql);
        self.0.ours.store(false, Ordering::Relaxed);
        result
    }
}

fn judge(action: &AuthAction<'_>, mode: Mode) -> Option<Refusal> {
    let never = |reason: &str| Some(Refusal::Never(reason.to_owned()));
    match action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => None,
        AuthAction::Function { function_name } => {
            match function_name.eq_ignore_ascii_case("load_extension") {
                true => never("extensions cannot be loaded"),
                false => None,
            }
        }
        AuthAction::Pragma { pragma_name, pragma_value } => {
            judge_pragma(&pragma_name.to_ascii_lowercase(), *pragma_value, mode)
        }
        AuthAction::Attach { .. } | AuthAction::Detach { .. } => {
            never("a call works on one database file: ATTACH, DETACH and VACUUM are not possible")
        }
        // They would be there for the next call on the same connection.
        AuthAction::Transaction { .. } | AuthAction::Savepoint { .. } => never(
            "each call is a transaction of its own: BEGIN, COMMIT, ROLLBACK and SAVEPOINT are not possible",
        ),
        AuthAction::CreateTempTable { .. }
        | AuthAction::CreateTempIndex { .. }
        | AuthAction::CreateTempTrigger { .. }
        | AuthAction::CreateTempView { .. } => {
            never("nothing temporary outlives a call; make an ordinary table")
        }
        AuthAction::Unknown { .. } => never("this kind of statement is not possible"),
        _ => (mode == Mode::Read).then_some(Refusal::Write),
    }
}

/// Those that only tell something, with or without an argument.
const TELLING: &[&str] = &[
    "foreign_key_check",
    "foreign_key_list",
    "index_info",
    "index_list",
    "index_xinfo",
    "integrity_check",
    "quick_check",
    "table_info",
    "table_list",
    "table_xinfo",
];

/// Those that tell something as long as they have no argument.
const ASKING: &[&str] = &[
    "application_id",
    "collation_list",
    "compile_options",
    "data_version",
    "encoding",
    "foreign_keys",
    "freelist_count",
    "function_list",
    "journal_mode",
    "module_list",
    "page_count",
    "page_size",
    "pragma_list",
    "schema_version",
    "user_version",
];

/// Those that change the file, and nothing but the file.
const CHANGING: &[&str] = &["application_id", "user_version"];

fn judge_pragma(name: &str, value: Option<&str>, mode: Mode) -> Option<Refusal> {
    if TELLING.contains(&name) || (value.is_none() && ASKING.contains(&name)) {
        return None;
    }
    // The other journal modes are the connection's, not the file's.
    let journal = name == "journal_mode"
        && value
            .is_some_and(|mode| ["wal", "delete"].contains(&mode.to_ascii_lowercase().as_str()));
    if journal || CHANGING.contains(&name) {
        return (mode == Mode::Read).then_some(Refusal::Write);
    }
    Some(Refusal::Never(format!("PRAGMA {name} is not possible")))
}
