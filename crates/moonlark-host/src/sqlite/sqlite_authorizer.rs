//! SQLite authorizer: what a statement may do, decided while SQLite compiles it, whatever
//! its spelling.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SqliteMode {
    Read,
    Write,
}

/// Remembers why a statement was refused: SQLite's own error does not say.
#[derive(Clone, Default)]
pub(super) struct SqliteAuthorizer(Arc<AuthorizerState>);

#[derive(Default)]
struct AuthorizerState {
    refused: Mutex<Option<StatementRefusal>>,
    /// What is compiled is ours.
    ours: AtomicBool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StatementRefusal {
    /// It changes something, and the connection is for reading.
    Write,
    /// No connection does this, with the reason for the reader.
    Never(String),
}

impl SqliteAuthorizer {
    pub(super) fn install_on(
        connection: &mut Connection,
        mode: SqliteMode,
    ) -> rusqlite::Result<SqliteAuthorizer> {
        let guard = SqliteAuthorizer::default();
        let inner = guard.0.clone();
        connection.authorizer(Some(move |context: AuthContext<'_>| {
            match check_action(&context.action, mode) {
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
    pub(super) fn take_refusal(&self) -> Option<StatementRefusal> {
        self.0.refused.lock().take()
    }

    /// Run a statement of our own, such as `BEGIN`.
    pub(super) fn run_own_sql(&self, connection: &Connection, sql: &str) -> rusqlite::Result<()> {
        self.0.ours.store(true, Ordering::Relaxed);
        let result = connection.execute_batch(sql);
        self.0.ours.store(false, Ordering::Relaxed);
        result
    }
}

fn check_action(action: &AuthAction<'_>, mode: SqliteMode) -> Option<StatementRefusal> {
    let never = |reason: &str| Some(StatementRefusal::Never(reason.to_owned()));
    match action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => None,
        AuthAction::Function { function_name } => {
            if function_name.eq_ignore_ascii_case("load_extension") {
                never("extensions cannot be loaded")
            } else {
                None
            }
        }
        AuthAction::Pragma { pragma_name, pragma_value } => {
            check_pragma(&pragma_name.to_ascii_lowercase(), *pragma_value, mode)
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
        _ => (mode == SqliteMode::Read).then_some(StatementRefusal::Write),
    }
}

/// Those that only tell something, with or without an argument.
const READ_PRAGMAS: &[&str] = &[
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
const READ_PRAGMAS_WITHOUT_ARGUMENT: &[&str] = &[
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
const WRITE_PRAGMAS: &[&str] = &["application_id", "user_version"];

fn check_pragma(name: &str, value: Option<&str>, mode: SqliteMode) -> Option<StatementRefusal> {
    if READ_PRAGMAS.contains(&name)
        || (value.is_none() && READ_PRAGMAS_WITHOUT_ARGUMENT.contains(&name))
    {
        return None;
    }
    // The other journal modes are the connection's, not the file's.
    let journal = name == "journal_mode"
        && value
            .is_some_and(|mode| ["wal", "delete"].contains(&mode.to_ascii_lowercase().as_str()));
    if journal || WRITE_PRAGMAS.contains(&name) {
        return (mode == SqliteMode::Read).then_some(StatementRefusal::Write);
    }
    Some(StatementRefusal::Never(format!("PRAGMA {name} is not possible")))
}
