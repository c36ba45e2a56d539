//! Looking at the journal: what people and surfaces are shown of it.

pub(crate) mod replay;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use moonlark_core::approval::State as ApprovalState;
use moonlark_core::content::Answer;
use moonlark_core::journal::{Id, Look, Looked};
use moonlark_core::secret::{Secrets, literals};
use moonlark_core::tool::Effects;
use moonlark_core::{Caller, Code, Problem, Result, Value};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

use crate::failure::problem;
use crate::id_search::{HAS_PART, MAX_CANDIDATES, ambiguous, hex_digits};
use crate::packed::{unpack, unpack_answer};
use crate::process;
use crate::rows::{Key, effects, micros};
use crate::schema::open_if_begun;
use crate::sealing::{Seal, Spot};

/// Reads one database, from any thread; blocks, as files do.
#[derive(Debug, Clone)]
pub struct Reader {
    file: PathBuf,
}

/// How far a run or a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
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
pub enum AwaitedState {
    Waiting,
    Approved,
    Denied,
    /// Nobody decided in time, or the call was not made in time.
    Expired,
}

impl AwaitedState {
    pub fn as_str(self) -> &'static str {
        match self {
            AwaitedState::Waiting => "waiting",
            AwaitedState::Approved => "approved",
            AwaitedState::Denied => "denied",
            AwaitedState::Expired => "expired",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallerShown {
    pub surface: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// One run in a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunLine {
    #[serde(serialize_with = "as_text")]
    pub id: Id,
    pub at: Timestamp,
    pub state: State,
    /// `ok`, or the code of what went wrong; none before the end.
    pub outcome: Option<String>,
    #[serde(rename = "ms", serialize_with = "as_millis")]
    pub took: Option<Duration>,
    pub caller: CallerShown,
    /// How many calls the script itself made.
    pub calls: u64,
    pub plan: bool,
    /// What it waits for.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text_if_any")]
    pub approval: Option<Id>,
    /// How that stands by now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_state: Option<AwaitedState>,
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
pub struct CallShown {
    #[serde(serialize_with = "as_text")]
    pub id: Id,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text_if_any")]
    pub parent: Option<Id>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text_if_any")]
    pub run: Option<Id>,
    /// Where in the run's script it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    pub at: Timestamp,
    pub tool: String,
    pub source: String,
    #[serde(skip)]
    pub effects: Effects,
    pub caller: CallerShown,
    pub state: State,
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
pub struct RunShown {
    pub line: RunLine,
    /// All below it, in the order they began.
    pub calls: Vec<CallShown>,
    /// What it was answered with, if it has ended; without what is secret by its name
    /// in the script.
    pub answer: Option<Result<Answer>>,
}

/// Calls of one run that are shown.
const CALLS: usize = 10_000;

impl Reader {
    /// Of the database at `file`, whether it exists or not.
    pub fn of(file: &Path) -> Reader {
        Reader { file: file.to_owned() }
    }

    /// The newest runs, at most `most`, before the run `before`.
    pub fn runs(&self, most: usize, before: Option<Id>) -> Result<Vec<RunLine>> {
        self.runs_of(None, most, before)
    }

    fn runs_of(
        &self,
        caller: Option<&str>,
        most: usize,
        before: Option<Id>,
    ) -> Result<Vec<RunLine>> {
        let Some(connection) = self.open()? else { return Ok(Vec::new()) };
        let sql = format!(
            "{RUN} WHERE (?1 IS NULL OR run.id < ?1) AND (?3 IS NULL OR run.caller = ?3) \
             ORDER BY run.id DESC LIMIT ?2"
        );
        let params = params![before.map(Key), most as i64, caller];
        self.query(&connection, &sql, params, run_line)
    }

    /// The newest calls from outside, at most `most`, before the call `before`.
    pub fn calls(&self, most: usize, before: Option<Id>) -> Result<Vec<CallShown>> {
        self.calls_of(None, most, before)
    }

    fn calls_of(
        &self,
        caller: Option<&str>,
        most: usize,
        before: Option<Id>,
    ) -> Result<Vec<CallShown>> {
        let Some(connection) = self.open()? else { return Ok(Vec::new()) };
        let sql = format!(
            "{CALL} WHERE call.parent IS NULL AND (?1 IS NULL OR call.id < ?1) \
             AND (?3 IS NULL OR call.caller = ?3) ORDER BY call.id DESC LIMIT ?2"
        );
        let params = params![before.map(Key), most as i64, caller];
        self.query(&connection, &sql, params, call_shown)
    }

    /// The same as JSON, for surfaces.
    pub(crate) fn look(&self, look: &Look) -> Result<Json> {
        let of = look.of.as_deref();
        Ok(match look.what {
            Looked::Runs { most, before } => json!({ "runs": self.runs_of(of, most, before)? }),
            Looked::Calls { most, before } => json!({ "calls": self.calls_of(of, most, before)? }),
            Looked::Run(id) => {
                let run = self.run(id)?;
                let name = run.line.caller.name.as_deref();
                // What is another's does not exist.
                if of.is_some_and(|of| name != Some(of)) {
                    return Err(no_run(&id.to_string()));
                }
                run.to_json()
            }
        })
    }

    /// One run with its calls.
    pub fn run(&self, id: Id) -> Result<RunShown> {
        let Some(connection) = self.open()? else { return Err(no_run(&id.to_string())) };
        let sql = format!("{RUN} WHERE run.id = ?1");
        let line = self.query(&connection, &sql, params![Key(id)], run_line)?.pop();
        let line = line.ok_or_else(|| no_run(&id.to_string()))?;
        let sql = format!("{CALL} WHERE call.run = ?1 ORDER BY call.id LIMIT {CALLS}");
        let mut calls = self.query(&connection, &sql, params![Key(id)], call_shown)?;
        for call in &mut calls {
            // What a paused run has begun waits with it.
            if call.state == State::Running && line.state != State::Running {
                call.state = line.state;
            }
        }
        let sql = "SELECT answer, sealed FROM journal_runs WHERE id = ?1";
        let sealed: Option<(Option<Vec<u8>>, Vec<u8>)> = connection
            .query_row(sql, params![Key(id)], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(|error| self.problem(&error))?;
        let answer = match sealed {
            Some((Some(answer), script)) => {
                let seal = Seal::beside(&self.file)?;
                let script = match unpack(&seal.open(Spot::Run, id, script)?)? {
                    Value::Object(exact) => {
                        exact.get("script").and_then(Value::as_str).map(literals)
                    }
                    _ => None,
                };
                let answer = unpack_answer(&seal.open(Spot::RunAnswer, id, answer)?)?;
                let answer = without(&script.unwrap_or_default(), answer);
                Some(if line.plan { answer.map(without_order) } else { answer })
            }
            _ => None,
        };
        Ok(RunShown { line, calls, answer })
    }

    /// The run that `text` names: its id, or the beginning or end of one.
    pub fn find(&self, text: &str) -> Result<Id> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        let digits = hex_digits(text).ok_or_else(|| no_run(text))?;
        let Some(connection) = self.open()? else { return Err(no_run(text)) };
        let sql = format!(
            "SELECT id FROM journal_runs WHERE {HAS_PART} ORDER BY id DESC LIMIT {MAX_CANDIDATES}"
        );
        let found = self.query(&connection, &sql, params![digits], |row, _| id(row, 0))?;
        match found.as_slice() {
            [one] => Ok(*one),
            [] => Err(no_run(text)),
            several => Err(ambiguous("runs", text, several)),
        }
    }

    /// Runs that wait for a decision in no process that is alive: the run, who
    /// made it, and the approval.
    pub fn left_waiting(&self) -> Result<Vec<(Id, Caller, Id)>> {
        let Some(connection) = self.open()? else { return Ok(Vec::new()) };
        let sql = "SELECT run.id, run.surface, run.caller, run.approval, process.lock \
             FROM journal_runs AS run \
             LEFT JOIN journal_processes AS process ON process.number = run.process \
             WHERE run.approval IS NOT NULL AND run.outcome IS NULL";
        let left = self.query(&connection, sql, params![], |row, alive| {
            let (surface, name): (String, Option<String>) = (row.get(1)?, row.get(2)?);
            let lock: Option<String> = row.get(4)?;
            let caller = replay::caller_of(&surface, name.as_deref());
            Ok((alive.is(lock.as_deref()), (id(row, 0)?, caller, id(row, 3)?)))
        })?;
        Ok(left.into_iter().filter(|(alive, _)| !alive).map(|(_, run)| run).collect())
    }

    /// How many runs of processes that are gone can go on: they were interrupted, and
    /// wait for nobody's decision.
    pub fn interrupted(&self) -> Result<usize> {
        let Some(connection) = self.open()? else { return Ok(0) };
        let sql = "SELECT process.lock FROM journal_runs AS run \
             LEFT JOIN journal_processes AS process ON process.number = run.process \
             LEFT JOIN approval_requests AS asked ON asked.id = run.approval \
             WHERE run.outcome IS NULL AND NOT run.plan \
             AND (run.approval IS NULL OR asked.state = 'used')";
        let alive = self.query(&connection, sql, params![], |row, alive| {
            let lock: Option<String> = row.get(0)?;
            Ok(alive.is(lock.as_deref()))
        })?;
        Ok(alive.into_iter().filter(|alive| !alive).count())
    }

    /// How much is in it, or what is wrong with it.
    pub fn summary(&self) -> Result<String> {
        let Some(connection) = self.open()? else { return Ok("nothing yet".to_owned()) };
        Seal::beside(&self.file)?;
        let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let read = || {
            let runs = number("SELECT count(*) FROM journal_runs")?;
            let calls = number("SELECT count(*) FROM journal_calls")?;
            let bytes = number("PRAGMA page_count")? * number("PRAGMA page_size")?;
            Ok((runs, calls, bytes))
        };
        let (runs, calls, bytes) = read().map_err(|error: rusqlite::Error| self.problem(&error))?;
        let size = moonlark_core::limits::size(usize::try_from(bytes).unwrap_or(0));
        let counted = |count: i64, what: &str| {
            let plural = if count == 1 { "" } else { "s" };
            format!("{count} {what}{plural}")
        };
        Ok(format!("{} and {} in {size}", counted(runs, "run"), counted(calls, "call")))
    }

    /// To see whether anything was written; none if there is no journal yet.
    pub fn watch(&self) -> Result<Option<Watched>> {
        let Some(connection) = self.open()? else { return Ok(None) };
        Ok(Some(Watched { connection, file: self.file.clone(), version: 0 }))
    }

    fn open(&self) -> Result<Option<Connection>> {
        open_if_begun(&self.file)
    }

    fn query<T>(
        &self,
        connection: &Connection,
        sql: &str,
        params: &[&dyn rusqlite::ToSql],
        read: impl Fn(&Row<'_>, &mut Alive<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let mut alive = Alive { file: &self.file, known: HashMap::new() };
        let mut all = || {
            let mut statement = connection.prepare(sql)?;
            let rows = statement.query_map(params, |row| read(row, &mut alive))?;
            rows.collect::<rusqlite::Result<Vec<T>>>()
        };
        all().map_err(|error| self.problem(&error))
    }

    fn problem(&self, error: &rusqlite::Error) -> Problem {
        problem(&self.file, error)
    }
}

/// The journal, as far as anything changes in it.
pub struct Watched {
    connection: Connection,
    file: PathBuf,
    version: i64,
}

impl Watched {
    /// Whether anybody has written since the last time this was asked.
    pub fn changed(&mut self) -> Result<bool> {
        let version = self.connection.query_row("PRAGMA data_version", [], |row| row.get(0));
        let version: i64 = version.map_err(|error| problem(&self.file, &error))?;
        Ok(std::mem::replace(&mut self.version, version) != version)
    }
}

fn without(secrets: &Secrets, answer: Result<Answer>) -> Result<Answer> {
    match answer {
        Ok(answer) => Ok(secrets.redact_answer(answer)),
        Err(mut problem) => {
            secrets.redact_problem(&mut problem);
            Err(problem)
        }
    }
}

/// A plan without what only carrying it out needs.
fn without_order(plan: Answer) -> Answer {
    let Answer::Value(Value::Array(mut calls)) = plan else { return plan };
    for call in &mut calls {
        if let Value::Object(fields) = call {
            fields.shift_remove("order");
        }
    }
    Answer::Value(Value::Array(calls))
}

impl RunShown {
    /// As REST answers and `--json` prints it.
    pub fn to_json(&self) -> Json {
        let mut json = json!(self.line);
        json["calls"] = json!(self.calls);
        match &self.answer {
            Some(Ok(answer)) => json["result"] = answer.clone().into_plain().to_json_lossy(),
            Some(Err(problem)) => json["error"] = problem.to_json(),
            None => {}
        }
        json
    }
}

const RUN: &str = "SELECT run.id, run.at, run.took, run.outcome, run.message, run.surface, \
    run.caller, run.client, run.script, run.plan, run.approval, process.lock, \
    (SELECT count(*) FROM journal_calls WHERE journal_calls.run = run.id AND place IS NOT NULL), \
    asked.state, asked.expires, asked.decided_by \
    FROM journal_runs AS run LEFT JOIN journal_processes AS process ON process.number = run.process \
    LEFT JOIN approval_requests AS asked ON asked.id = run.approval";

fn run_line(row: &Row<'_>, alive: &mut Alive<'_>) -> rusqlite::Result<RunLine> {
    let outcome: Option<String> = row.get(3)?;
    let approval: Option<[u8; 16]> = row.get(10)?;
    let lock: Option<String> = row.get(11)?;
    let is_alive = alive.is(lock.as_deref());
    let asked: Option<String> = row.get(13)?;
    // The call was made, and how it went was not written down.
    let is_used = asked.as_deref() == Some(ApprovalState::Used.as_str());
    let state = match (&outcome, approval) {
        (Some(_), _) => State::Ended,
        // It waits in no process, if need be.
        (None, Some(_)) if !is_used => State::Waiting,
        (None, _) if is_alive => State::Running,
        (None, _) => State::Interrupted,
    };
    let approval = approval.filter(|_| state == State::Waiting);
    let expires: Option<i64> = row.get(14)?;
    let approval_state = approval.map(|_| awaited_state(asked.as_deref(), expires));
    Ok(RunLine {
        id: id(row, 0)?,
        at: time(row, 1)?,
        state,
        took: duration(row, 2)?,
        outcome,
        message: row.get(4)?,
        caller: CallerShown { surface: row.get(5)?, name: row.get(6)?, client: row.get(7)? },
        script: row.get(8)?,
        plan: row.get(9)?,
        approval: approval.map(Id::from_bytes),
        approval_state,
        decided_by: row.get::<_, Option<String>>(15)?.filter(|_| approval.is_some()),
        is_alive,
        calls: row.get::<_, i64>(12)?.try_into().unwrap_or(0),
    })
}

/// A request that is no longer on record is over as well.
fn awaited_state(state: Option<&str>, expires: Option<i64>) -> AwaitedState {
    let is_over = expires.is_none_or(|expires| micros(SystemTime::now()) >= expires);
    let is = |word: ApprovalState| state == Some(word.as_str());
    if is_over {
        AwaitedState::Expired
    } else if is(ApprovalState::Approved) {
        AwaitedState::Approved
    } else if is(ApprovalState::Denied) {
        AwaitedState::Denied
    } else {
        AwaitedState::Waiting
    }
}

const CALL: &str = "SELECT call.id, call.at, call.took, call.outcome, call.message, call.surface, \
    call.caller, call.client, call.tool, call.source, call.args, call.parent, call.run, \
    call.place, process.lock, call.effects FROM journal_calls AS call \
    LEFT JOIN journal_processes AS process ON process.number = call.process";

fn call_shown(row: &Row<'_>, alive: &mut Alive<'_>) -> rusqlite::Result<CallShown> {
    let outcome: Option<String> = row.get(3)?;
    let lock: Option<String> = row.get(14)?;
    let state = match &outcome {
        Some(_) => State::Ended,
        None if alive.is(lock.as_deref()) => State::Running,
        None => State::Interrupted,
    };
    Ok(CallShown {
        id: id(row, 0)?,
        at: time(row, 1)?,
        took: duration(row, 2)?,
        outcome,
        message: row.get(4)?,
        caller: CallerShown { surface: row.get(5)?, name: row.get(6)?, client: row.get(7)? },
        tool: row.get(8)?,
        source: row.get(9)?,
        arguments: row.get(10)?,
        parent: row.get::<_, Option<[u8; 16]>>(11)?.map(Id::from_bytes),
        run: row.get::<_, Option<[u8; 16]>>(12)?.map(Id::from_bytes),
        place: row.get(13)?,
        effects: effects(row.get(15)?),
        state,
    })
}

/// Which processes are alive, each looked at once.
struct Alive<'a> {
    file: &'a Path,
    known: HashMap<String, bool>,
}

impl Alive<'_> {
    fn is(&mut self, lock: Option<&str>) -> bool {
        let Some(lock) = lock else { return false };
        if let Some(known) = self.known.get(lock) {
            return *known;
        }
        let alive = process::is_alive(self.file, lock);
        self.known.insert(lock.to_owned(), alive);
        alive
    }
}

fn id(row: &Row<'_>, at: usize) -> rusqlite::Result<Id> {
    row.get::<_, [u8; 16]>(at).map(Id::from_bytes)
}

fn time(row: &Row<'_>, at: usize) -> rusqlite::Result<Timestamp> {
    Ok(Timestamp::from_microsecond(row.get(at)?).unwrap_or_default())
}

fn duration(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Duration>> {
    let micros: Option<i64> = row.get(at)?;
    Ok(micros.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0))))
}

fn no_run(text: &str) -> Problem {
    let text = moonlark_core::value::shorten(text);
    Problem::new(Code::NotFound, format!("no run {text} is on record"))
        .hint("`moonlark runs` lists those that are")
}

fn as_text<S: Serializer>(id: &Id, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

fn as_text_if_any<S: Serializer>(id: &Option<Id>, serializer: S) -> Result<S::Ok, S::Error> {
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
