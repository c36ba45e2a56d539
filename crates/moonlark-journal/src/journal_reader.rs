//! Queries of the journal, for people and surfaces.

pub(crate) mod run_records;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use moonlark_core::content::ToolAnswer;
use moonlark_core::record_id::RecordId;
use moonlark_core::secret::{Secrets, secrets_from_literals};
use moonlark_core::tool::CallEffects;
use moonlark_core::{Problem, Result, Value};
use moonlark_gateway::Caller;
use moonlark_gateway::approval::ApprovalState;
use moonlark_gateway::journal::{JournalQuery, JournalQueryKind, RunRecord};
use moonlark_gateway::run::{RunComparison, compare_runs};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

use crate::id_search::{ID_HAS_PART, MAX_CANDIDATES, ambiguous_id_problem, hex_digits};
use crate::journal_rows::{SqlId, duration_from_micros, effects_from_bits, unix_micros};
use crate::journal_schema::{journal_problem, open_if_there};
use crate::process_lock;
use crate::sealing::{JournalSeal, SealedField};
use crate::value_packing::{unpack_answer, unpack_value};

/// Reads one database, from any thread; blocks, as files do.
#[derive(Debug, Clone)]
pub struct JournalReader {
    file: PathBuf,
}

/// How far a run or a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedState {
    Running,
    /// For a person to decide something.
    Waiting,
    /// Its process is gone.
    Interrupted,
    Ended,
}

/// How the approval stands that a run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AwaitedApprovalState {
    Waiting,
    Approved,
    Denied,
    /// Nobody decided in time, or the call was not made in time.
    Expired,
}

impl AwaitedApprovalState {
    pub fn as_str(self) -> &'static str {
        match self {
            AwaitedApprovalState::Waiting => "waiting",
            AwaitedApprovalState::Approved => "approved",
            AwaitedApprovalState::Denied => "denied",
            AwaitedApprovalState::Expired => "expired",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallerView {
    pub surface: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// One run in a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    #[serde(serialize_with = "as_text")]
    pub id: RecordId,
    pub at: Timestamp,
    pub state: RecordedState,
    /// `ok`, or the code of what went wrong; none before the end.
    pub outcome: Option<String>,
    #[serde(rename = "ms", serialize_with = "as_millis")]
    pub took: Option<Duration>,
    pub caller: CallerView,
    /// How many calls the script itself made.
    pub calls: u64,
    pub plan: bool,
    /// What it waits for.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text_if_any")]
    pub approval: Option<RecordId>,
    /// How that stands by now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_state: Option<AwaitedApprovalState>,
    /// Who has decided on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// Whether the process that runs it is alive.
    #[serde(skip)]
    pub is_alive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    pub script: String,
}

/// One call, as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallView {
    #[serde(serialize_with = "as_text")]
    pub id: RecordId,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text_if_any")]
    pub parent: Option<RecordId>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text_if_any")]
    pub run: Option<RecordId>,
    /// Where in the run's script it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    pub at: Timestamp,
    pub tool: String,
    pub source: String,
    #[serde(skip)]
    pub effects: CallEffects,
    pub caller: CallerView,
    pub state: RecordedState,
    pub outcome: Option<String>,
    #[serde(rename = "ms", serialize_with = "as_millis")]
    pub took: Option<Duration>,
    /// Redacted, as JSON text; cut where it is long.
    pub arguments: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// One run, with all that is on record of it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunView {
    pub line: RunSummary,
    /// All below it, in the order they began.
    pub calls: Vec<CallView>,
    /// What it was answered with, if it has ended; without what is secret by its name
    /// in the script.
    pub answer: Option<Result<ToolAnswer>>,
}

/// Calls of one run that are shown.
const MAX_SHOWN_CALLS: usize = 10_000;

impl JournalReader {
    /// Of the database at `file`, whether it exists or not.
    pub fn new(file: &Path) -> JournalReader {
        JournalReader { file: file.to_owned() }
    }

    /// The newest runs, at most `most`, before the run `before`.
    pub fn list_runs(&self, most: usize, before: Option<RecordId>) -> Result<Vec<RunSummary>> {
        self.list_runs_of(None, most, before)
    }

    fn list_runs_of(
        &self,
        caller: Option<&str>,
        most: usize,
        before: Option<RecordId>,
    ) -> Result<Vec<RunSummary>> {
        let Some(connection) = self.open_connection()? else { return Ok(Vec::new()) };
        let sql = format!(
            "{SELECT_RUN} WHERE (?1 IS NULL OR run.id < ?1) AND (?3 IS NULL OR run.caller = ?3) \
             ORDER BY run.id DESC LIMIT ?2"
        );
        let params = params![before.map(SqlId), most as i64, caller];
        self.query_rows(&connection, &sql, params, read_run_summary)
    }

    /// The newest calls from outside, at most `most`, before the call `before`.
    pub fn list_calls(&self, most: usize, before: Option<RecordId>) -> Result<Vec<CallView>> {
        self.list_calls_of(None, most, before)
    }

    fn list_calls_of(
        &self,
        caller: Option<&str>,
        most: usize,
        before: Option<RecordId>,
    ) -> Result<Vec<CallView>> {
        let Some(connection) = self.open_connection()? else { return Ok(Vec::new()) };
        let sql = format!(
            "{SELECT_CALL} WHERE call.parent IS NULL AND (?1 IS NULL OR call.id < ?1) \
             AND (?3 IS NULL OR call.caller = ?3) ORDER BY call.id DESC LIMIT ?2"
        );
        let params = params![before.map(SqlId), most as i64, caller];
        self.query_rows(&connection, &sql, params, read_call_view)
    }

    /// The same as JSON, for surfaces.
    pub(crate) fn answer_query(&self, look: &JournalQuery) -> Result<Json> {
        let of = look.of.as_deref();
        Ok(match look.what {
            JournalQueryKind::Runs { most, before } => {
                json!({ "runs": self.list_runs_of(of, most, before)? })
            }
            JournalQueryKind::Calls { most, before } => {
                json!({ "calls": self.list_calls_of(of, most, before)? })
            }
            JournalQueryKind::Run(id) => {
                let run = self.show_run(id)?;
                let name = run.line.caller.name.as_deref();
                // What is another's does not exist.
                if of.is_some_and(|of| name != Some(of)) {
                    return Err(no_run_problem(&id.to_string()));
                }
                run.to_json()
            }
            JournalQueryKind::Diff { before, after } => {
                let [before, after] = [before, after].map(|id| {
                    let run = self.load_record(id)?;
                    match of {
                        // What is another's does not exist.
                        Some(of) if run.began.caller.name() != of => {
                            Err(no_run_problem(&id.to_string()))
                        }
                        _ => Ok(run),
                    }
                });
                compare_runs(&before?, &after?).to_json()
            }
        })
    }

    /// What differs between two runs.
    pub fn compare_runs(&self, before: RecordId, after: RecordId) -> Result<RunComparison> {
        Ok(compare_runs(&self.load_record(before)?, &self.load_record(after)?))
    }

    /// One run with its calls.
    pub fn show_run(&self, id: RecordId) -> Result<RunView> {
        let Some(connection) = self.open_connection()? else {
            return Err(no_run_problem(&id.to_string()));
        };
        let sql = format!("{SELECT_RUN} WHERE run.id = ?1");
        let line = self.query_rows(&connection, &sql, params![SqlId(id)], read_run_summary)?.pop();
        let line = line.ok_or_else(|| no_run_problem(&id.to_string()))?;
        let sql =
            format!("{SELECT_CALL} WHERE call.run = ?1 ORDER BY call.id LIMIT {MAX_SHOWN_CALLS}");
        let mut calls = self.query_rows(&connection, &sql, params![SqlId(id)], read_call_view)?;
        for call in &mut calls {
            // What a paused run has begun waits with it.
            if call.state == RecordedState::Running && line.state != RecordedState::Running {
                call.state = line.state;
            }
        }
        let sql = "SELECT answer, sealed FROM journal_runs WHERE id = ?1";
        let sealed: Option<(Option<Vec<u8>>, Vec<u8>)> = connection
            .query_row(sql, params![SqlId(id)], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(|error| self.sqlite_problem(&error))?;
        let answer = match sealed {
            Some((Some(answer), script)) => {
                let seal = JournalSeal::load_beside(&self.file)?;
                let script = match unpack_value(&seal.open_value(SealedField::Run, id, script)?)? {
                    Value::Object(exact) => {
                        exact.get("script").and_then(Value::as_str).map(secrets_from_literals)
                    }
                    _ => None,
                };
                let answer =
                    unpack_answer(&seal.open_value(SealedField::RunAnswer, id, answer)?)?;
                let answer = redact_answer(&script.unwrap_or_default(), answer);
                Some(if line.plan { answer.map(strip_plan_order) } else { answer })
            }
            _ => None,
        };
        Ok(RunView { line, calls, answer })
    }

    /// One run exactly as it is on record, secrets included: to be run again, not shown.
    pub fn load_record(&self, id: RecordId) -> Result<RunRecord> {
        if self.open_connection()?.is_none() {
            return Err(no_run_problem(&id.to_string()));
        }
        run_records::read_run_record(&self.file, id, None)
    }

    /// The run that `text` names: its id, or the beginning or end of one.
    pub fn find_run(&self, text: &str) -> Result<RecordId> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        let digits = hex_digits(text).ok_or_else(|| no_run_problem(text))?;
        let Some(connection) = self.open_connection()? else { return Err(no_run_problem(text)) };
        let sql = format!(
            "SELECT id FROM journal_runs WHERE {ID_HAS_PART} ORDER BY id DESC LIMIT {MAX_CANDIDATES}"
        );
        let found =
            self.query_rows(&connection, &sql, params![digits], |row, _| read_id(row, 0))?;
        match found.as_slice() {
            [one] => Ok(*one),
            [] => Err(no_run_problem(text)),
            several => Err(ambiguous_id_problem("runs", text, several)),
        }
    }

    /// Runs that wait for a decision in no process that is alive: the run, who
    /// made it, and the approval.
    pub fn abandoned_waiting_runs(&self) -> Result<Vec<(RecordId, Caller, RecordId)>> {
        let Some(connection) = self.open_connection()? else { return Ok(Vec::new()) };
        let sql = "SELECT run.id, run.surface, run.caller, run.approval, process.lock \
             FROM journal_runs AS run \
             LEFT JOIN journal_processes AS process ON process.number = run.process \
             WHERE run.approval IS NOT NULL AND run.outcome IS NULL";
        let left = self.query_rows(&connection, sql, params![], |row, alive| {
            let (surface, name): (String, Option<String>) = (row.get(1)?, row.get(2)?);
            let lock: Option<String> = row.get(4)?;
            let caller = run_records::recorded_caller(&surface, name.as_deref());
            Ok((alive.is_alive(lock.as_deref()), (read_id(row, 0)?, caller, read_id(row, 3)?)))
        })?;
        Ok(left.into_iter().filter(|(alive, _)| !alive).map(|(_, run)| run).collect())
    }

    /// How many runs of processes that are gone can go on: they were interrupted, and
    /// wait for nobody's decision.
    pub fn count_interrupted(&self) -> Result<usize> {
        let Some(connection) = self.open_connection()? else { return Ok(0) };
        let sql = "SELECT process.lock FROM journal_runs AS run \
             LEFT JOIN journal_processes AS process ON process.number = run.process \
             LEFT JOIN approval_requests AS asked ON asked.id = run.approval \
             WHERE run.outcome IS NULL AND NOT run.plan \
             AND (run.approval IS NULL OR asked.state = 'used')";
        let alive = self.query_rows(&connection, sql, params![], |row, alive| {
            let lock: Option<String> = row.get(0)?;
            Ok(alive.is_alive(lock.as_deref()))
        })?;
        Ok(alive.into_iter().filter(|alive| !alive).count())
    }

    /// How much is in it, or what is wrong with it.
    pub fn summary(&self) -> Result<String> {
        let Some(connection) = self.open_connection()? else { return Ok("nothing yet".to_owned()) };
        JournalSeal::load_beside(&self.file)?;
        let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let read = || {
            let runs = number("SELECT count(*) FROM journal_runs")?;
            let calls = number("SELECT count(*) FROM journal_calls")?;
            let bytes = number("PRAGMA page_count")? * number("PRAGMA page_size")?;
            Ok((runs, calls, bytes))
        };
        let (runs, calls, bytes) =
            read().map_err(|error: rusqlite::Error| self.sqlite_problem(&error))?;
        let size = moonlark_core::limits::format_size(usize::try_from(bytes).unwrap_or(0));
        let counted = |count: i64, what: &str| {
            let plural = if count == 1 { "" } else { "s" };
            format!("{count} {what}{plural}")
        };
        Ok(format!("{} and {} in {size}", counted(runs, "run"), counted(calls, "call")))
    }

    /// To see whether anything was written; none if there is no journal yet.
    pub fn watch_changes(&self) -> Result<Option<JournalWatcher>> {
        let Some(connection) = self.open_connection()? else { return Ok(None) };
        Ok(Some(JournalWatcher { connection, file: self.file.clone(), version: 0 }))
    }

    fn open_connection(&self) -> Result<Option<Connection>> {
        open_if_there(&self.file)
    }

    fn query_rows<T>(
        &self,
        connection: &Connection,
        sql: &str,
        params: &[&dyn rusqlite::ToSql],
        read: impl Fn(&Row<'_>, &mut ProcessLiveness<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let mut alive = ProcessLiveness { file: &self.file, known: HashMap::new() };
        let mut all = || {
            let mut statement = connection.prepare(sql)?;
            let rows = statement.query_map(params, |row| read(row, &mut alive))?;
            rows.collect::<rusqlite::Result<Vec<T>>>()
        };
        all().map_err(|error| self.sqlite_problem(&error))
    }

    fn sqlite_problem(&self, error: &rusqlite::Error) -> Problem {
        journal_problem(&self.file, error)
    }
}

/// The journal, as far as anything changes in it.
pub struct JournalWatcher {
    connection: Connection,
    file: PathBuf,
    version: i64,
}

impl JournalWatcher {
    /// Whether anybody has written since the last time this was asked.
    pub fn has_changed(&mut self) -> Result<bool> {
        let version = self.connection.query_row("PRAGMA data_version", [], |row| row.get(0));
        let version: i64 = version.map_err(|error| journal_problem(&self.file, &error))?;
        Ok(std::mem::replace(&mut self.version, version) != version)
    }
}

fn redact_answer(secrets: &Secrets, answer: Result<ToolAnswer>) -> Result<ToolAnswer> {
    match answer {
        Ok(answer) => Ok(secrets.redact_answer(answer)),
        Err(mut problem) => {
            secrets.redact_problem(&mut problem);
            Err(problem)
        }
    }
}

/// A plan without what only carrying it out needs.
fn strip_plan_order(plan: ToolAnswer) -> ToolAnswer {
    let ToolAnswer::Value(Value::Array(mut calls)) = plan else { return plan };
    for call in &mut calls {
        if let Value::Object(fields) = call {
            fields.shift_remove("order");
        }
    }
    ToolAnswer::Value(Value::Array(calls))
}

impl RunView {
    /// As REST answers and `--json` prints it.
    pub fn to_json(&self) -> Json {
        let mut json = json!(self.line);
        json["calls"] = json!(self.calls);
        match &self.answer {
            Some(Ok(answer)) => json["result"] = answer.clone().into_plain_value().to_json_lossy(),
            Some(Err(problem)) => json["error"] = problem.to_json(),
            None => {}
        }
        json
    }
}

const SELECT_RUN: &str = "SELECT run.id, run.at, run.took, run.outcome, run.message, run.surface, \
    run.caller, run.client, run.script, run.plan, run.approval, process.lock, \
    (SELECT count(*) FROM journal_calls WHERE journal_calls.run = run.id AND place IS NOT NULL), \
    asked.state, asked.expires, asked.decided_by \
    FROM journal_runs AS run LEFT JOIN journal_processes AS process ON process.number = run.process \
    LEFT JOIN approval_requests AS asked ON asked.id = run.approval";

fn read_run_summary(
    row: &Row<'_>,
    alive: &mut ProcessLiveness<'_>,
) -> rusqlite::Result<RunSummary> {
    let outcome: Option<String> = row.get(3)?;
    let approval = read_id_if_any(row, 10)?;
    let lock: Option<String> = row.get(11)?;
    let is_alive = alive.is_alive(lock.as_deref());
    let asked: Option<String> = row.get(13)?;
    // The call was made, and how it went was not written down.
    let is_used = asked.as_deref() == Some(ApprovalState::Used.as_str());
    let state = match (&outcome, approval) {
        (Some(_), _) => RecordedState::Ended,
        // It waits in no process, if need be.
        (None, Some(_)) if !is_used => RecordedState::Waiting,
        (None, _) if is_alive => RecordedState::Running,
        (None, _) => RecordedState::Interrupted,
    };
    let approval = approval.filter(|_| state == RecordedState::Waiting);
    let expires: Option<i64> = row.get(14)?;
    let approval_state = approval.map(|_| awaited_state(asked.as_deref(), expires));
    Ok(RunSummary {
        id: read_id(row, 0)?,
        at: read_time(row, 1)?,
        state,
        took: read_duration(row, 2)?,
        outcome,
        message: row.get(4)?,
        caller: CallerView { surface: row.get(5)?, name: row.get(6)?, client: row.get(7)? },
        script: row.get(8)?,
        plan: row.get(9)?,
        approval,
        approval_state,
        decided_by: row.get::<_, Option<String>>(15)?.filter(|_| approval.is_some()),
        is_alive,
        calls: row.get::<_, i64>(12)?.try_into().unwrap_or(0),
    })
}

/// A request that is no longer on record is over as well.
fn awaited_state(state: Option<&str>, expires: Option<i64>) -> AwaitedApprovalState {
    let is_over = expires.is_none_or(|expires| unix_micros(SystemTime::now()) >= expires);
    let is = |word: ApprovalState| state == Some(word.as_str());
    if is_over {
        AwaitedApprovalState::Expired
    } else if is(ApprovalState::Approved) {
        AwaitedApprovalState::Approved
    } else if is(ApprovalState::Denied) {
        AwaitedApprovalState::Denied
    } else {
        AwaitedApprovalState::Waiting
    }
}

const SELECT_CALL: &str = "SELECT call.id, call.at, call.took, call.outcome, call.message, call.surface, \
    call.caller, call.client, call.tool, call.source, call.args, call.parent, call.run, \
    call.place, process.lock, call.effects FROM journal_calls AS call \
    LEFT JOIN journal_processes AS process ON process.number = call.process";

fn read_call_view(row: &Row<'_>, alive: &mut ProcessLiveness<'_>) -> rusqlite::Result<CallView> {
    let outcome: Option<String> = row.get(3)?;
    let lock: Option<String> = row.get(14)?;
    let state = match &outcome {
        Some(_) => RecordedState::Ended,
        None if alive.is_alive(lock.as_deref()) => RecordedState::Running,
        None => RecordedState::Interrupted,
    };
    Ok(CallView {
        id: read_id(row, 0)?,
        at: read_time(row, 1)?,
        took: read_duration(row, 2)?,
        outcome,
        message: row.get(4)?,
        caller: CallerView { surface: row.get(5)?, name: row.get(6)?, client: row.get(7)? },
        tool: row.get(8)?,
        source: row.get(9)?,
        arguments: row.get(10)?,
        parent: read_id_if_any(row, 11)?,
        run: read_id_if_any(row, 12)?,
        place: row.get(13)?,
        effects: effects_from_bits(row.get(15)?),
        state,
    })
}

/// Which processes are alive, each looked at once.
struct ProcessLiveness<'a> {
    file: &'a Path,
    known: HashMap<String, bool>,
}

impl ProcessLiveness<'_> {
    fn is_alive(&mut self, lock: Option<&str>) -> bool {
        let Some(lock) = lock else { return false };
        if let Some(known) = self.known.get(lock) {
            return *known;
        }
        let alive = process_lock::is_process_alive(self.file, lock);
        self.known.insert(lock.to_owned(), alive);
        alive
    }
}

pub(crate) fn read_id(row: &Row<'_>, at: usize) -> rusqlite::Result<RecordId> {
    row.get::<_, [u8; 16]>(at).map(RecordId::from_bytes)
}

pub(crate) fn read_id_if_any(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<RecordId>> {
    Ok(row.get::<_, Option<[u8; 16]>>(at)?.map(RecordId::from_bytes))
}

fn read_time(row: &Row<'_>, at: usize) -> rusqlite::Result<Timestamp> {
    Ok(Timestamp::from_microsecond(row.get(at)?).unwrap_or_default())
}

fn read_duration(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Duration>> {
    Ok(row.get::<_, Option<i64>>(at)?.map(duration_from_micros))
}

fn no_run_problem(text: &str) -> Problem {
    let text = moonlark_core::value::shorten_text(text);
    Problem::not_found(format!("the journal has no run {text}"))
        .with_hint("`moonlark runs` lists those that are")
}

pub(crate) fn as_text<S: Serializer>(id: &RecordId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

pub(crate) fn as_text_if_any<S: Serializer>(
    id: &Option<RecordId>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match id {
        Some(id) => serializer.collect_str(id),
        None => serializer.serialize_none(),
    }
}

/// With one decimal, as the answer of a run has them.
fn as_millis<S: Serializer>(took: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match took {
        Some(took) => serializer.serialize_f64((took.as_secs_f64() * 1e4).round() / 10.0),
        None => serializer.serialize_none(),
    }
}
