//! The journal as a whole, on real files.

mod journal_shares;
mod logged_entries;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use moonlark_core::content::ToolAnswer;
use moonlark_core::record_id::RecordId;
use moonlark_core::secret::{SecretValue, Secrets};
use moonlark_core::tool::{CallEffects, CallScope};
use moonlark_core::{Problem, ProblemCode, Value};
use moonlark_gateway::journal::{
    CallBegan, CallEnded, JournalEntry, JournalRecorder, RedactionScopes, RunBegan, RunCarrier,
    RunEnded, RunPaused, UpcomingCall,
};
use moonlark_gateway::{CallOutcome, Caller};
use rusqlite::Connection;

use crate::{Journal, JournalReader, JournalSettings, RecordedState};

/// Whether the disk is full is a file beside the database, in these tests.
pub(crate) fn limit_disk(connection: &Connection) -> rusqlite::Result<()> {
    let Some(file) = connection.path().map(PathBuf::from) else { return Ok(()) };
    let pages = std::fs::read_to_string(file.with_extension("pages")).unwrap_or_default();
    let most = pages.parse().unwrap_or(1_000_000_000i64);
    connection.pragma_update_and_check(None, "max_page_count", most, |_| Ok(()))
}

/// Whether the log cannot be written is a file beside it or the database, in these tests.
pub(crate) fn limit_log(log: &Path) -> std::io::Result<()> {
    let folder = log.parent().unwrap();
    let is_full = folder.join("full").exists() || folder.with_extension("pages").exists();
    if is_full { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(()) }
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("journal.db")
    }

    fn settings(&self) -> JournalSettings {
        let keep = Duration::from_secs(3600);
        JournalSettings { file: self.file(), power: true, keep, size: 1 << 30 }
    }

    fn journal(&self) -> Arc<Journal> {
        Journal::open(self.settings()).unwrap()
    }

    fn reader(&self) -> JournalReader {
        JournalReader::new(&self.file())
    }

    /// Everything that is in the files of this place.
    fn bytes(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        let files = files.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        files.flat_map(|path| std::fs::read(path).unwrap()).collect()
    }
}

fn secrets() -> RedactionScopes {
    let secret = SecretValue { key: "token".into(), value: "hunter22".into(), by_name: true };
    let scope = CallScope { secrets: Secrets::new(vec![secret]), ..CallScope::default() };
    RedactionScopes([Arc::new(scope), Arc::default()])
}

pub(crate) fn run_began(script: &str) -> RunBegan {
    RunBegan {
        run: RecordId::new(),
        call: None,
        at: SystemTime::now(),
        script: script.to_owned(),
        seed: [7; 32],
        plan: false,
        follows: None,
        fork: None,
        caller: Caller { client: Some("tester".into()), ..Caller::new("mcp").with_name("ci") },
        timeout: Some(Duration::from_millis(1500)),
        secrets: secrets(),
    }
}

pub(crate) fn call_began(run: Option<RecordId>, place: Option<&str>, args: Value) -> CallBegan {
    CallBegan {
        call: RecordId::new(),
        parent: None,
        run,
        place: place.map(str::to_owned),
        at: SystemTime::now(),
        tool: "files.write".into(),
        source: "files".into(),
        effects: CallEffects { idempotent: true, ..CallEffects::default() },
        caller: Caller { client: Some("tester".into()), ..Caller::new("mcp").with_name("ci") },
        args,
        secrets: secrets(),
    }
}

fn call_ended(call: RecordId, order: u64, answer: Result<ToolAnswer, Problem>) -> CallEnded {
    let outcome = CallOutcome::from_result(&answer);
    let message = answer.as_ref().err().map(|problem| problem.message.clone());
    let took = Duration::from_micros(1234);
    let (caller, answer) = ("ci".into(), Some(answer));
    CallEnded { call, caller, took, outcome, message, answer, order: Some(order) }
}

/// Of the precision that is kept.
pub(crate) fn trimmed(time: SystemTime) -> SystemTime {
    let micros = time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros();
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros as u64)
}

#[tokio::test]
async fn a_run_comes_back_for_replay_exactly_as_it_was() {
    let place = Place::new();
    let mut began = run_began("return sdk.files.write({ text = 'hunter22' })");
    began.at = trimmed(began.at);
    let args =
        || Value::from_fields([("text", "hunter22".into()), ("raw", Value::Bytes(vec![255, 0]))]);
    let mut first = call_began(Some(began.run), Some("0"), args());
    first.at = trimmed(first.at);
    let mut second = call_began(Some(began.run), Some("m1.3/2"), Value::Null);
    second.at = first.at;
    let mut inner = call_began(Some(began.run), None, Value::Null);
    inner.parent = Some(first.call);
    let answered = call_ended(first.call, 0, Ok(ToolAnswer::Value(Value::Float(f64::INFINITY))));
    {
        let journal = place.journal();
        journal.record_entry(JournalEntry::RunBegan(began.clone()));
        journal.record_durably(JournalEntry::CallBegan(first.clone())).await.unwrap();
        journal.record_entry(JournalEntry::CallBegan(inner));
        journal.record_entry(JournalEntry::CallEnded(answered.clone()));
        journal.record_entry(JournalEntry::CallBegan(second.clone()));
        journal.close().await;
    }
    let journal = place.journal();
    let record = journal.take_over_run(began.run).await.unwrap();
    assert_eq!(record.began, began);
    assert_eq!((&record.paused, &record.ended), (&None, &None));
    assert_eq!(record.calls.len(), 2);
    assert_eq!((&record.calls[0].began, &record.calls[0].ended), (&first, &Some(answered)));
    assert_eq!((&record.calls[1].began, &record.calls[1].ended), (&second, &None));
    journal.close().await;
}

#[tokio::test]
async fn no_secret_is_in_the_files_in_clear() {
    let place = Place::new();
    let journal = place.journal();
    let began = run_began("return 'hunter22'");
    let run = began.run;
    journal.record_entry(JournalEntry::RunBegan(began));
    let args = Value::from_fields([
        ("text", "a hunter22 b".into()),
        ("password", "swordfish".into()),
        ("nested", Value::from_fields([("Authorization", "Bearer opensesame".into())])),
    ]);
    for place in [Some("0"), None] {
        let call = call_began(Some(run), place, args.clone());
        let id = call.call;
        journal.record_entry(JournalEntry::CallBegan(call));
        let echoed = ToolAnswer::Value("hunter22 swordfish opensesame".into());
        journal.record_entry(JournalEntry::CallEnded(CallEnded {
            answer: place.map(|_| Ok(echoed.clone())),
            ..call_ended(id, 0, Ok(echoed))
        }));
    }
    let answer = Some(Ok(ToolAnswer::Value("hunter22".into())));
    let took = Duration::ZERO;
    journal.record_entry(JournalEntry::RunEnded(RunEnded {
        run,
        took,
        outcome: CallOutcome::Ok,
        message: None,
        answer,
    }));
    journal.flush().await.unwrap();
    let shown = place.reader().show_run(run).unwrap();
    assert_eq!(shown.answer, Some(Ok(ToolAnswer::Value("hunter22".into()))), "sealed, not lost");
    let arguments = r#"{"text":"a [redacted:token] b","password":"[redacted]","nested":{"Authorization":"[redacted]"}}"#;
    assert_eq!(shown.calls[0].arguments, arguments);
    assert_eq!(shown.line.script, "return '[redacted:token]'");
    journal.close().await;
    let bytes = place.bytes();
    for secret in ["hunter22", "swordfish", "opensesame"] {
        let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!found, "{secret} is in the files");
    }
    assert!(bytes.windows(11).any(|part| part == b"files.write"), "it looks where things are");
}

#[tokio::test]
async fn a_run_is_running_waiting_interrupted_or_ended() {
    let place = Place::new();
    let journal = place.journal();
    let state = |id| place.reader().show_run(id).unwrap().line.state;
    let runs: Vec<RecordId> = (0..3)
        .map(|_| {
            let began = run_began("x");
            let run = began.run;
            journal.record_entry(JournalEntry::RunBegan(began));
            run
        })
        .collect();
    let approval = RecordId::new();
    journal.record_entry(JournalEntry::RunPaused(RunPaused {
        run: runs[1],
        approval,
        place: None,
    }));
    let ended = RunEnded {
        run: runs[2],
        took: Duration::from_secs(2),
        outcome: ProblemCode::ToolError.into(),
        message: Some("no".into()),
        answer: Some(Err(Problem::tool_error("no"))),
    };
    journal.record_entry(JournalEntry::RunEnded(ended));
    journal.flush().await.unwrap();
    let all = || [state(runs[0]), state(runs[1]), state(runs[2])];
    assert_eq!(all(), [RecordedState::Running, RecordedState::Waiting, RecordedState::Ended]);
    assert!(place.reader().abandoned_waiting_runs().unwrap().is_empty(), "its process is alive");
    journal.record_entry(JournalEntry::RunWentOn(runs[1]));
    journal.flush().await.unwrap();
    assert_eq!(all(), [RecordedState::Running, RecordedState::Running, RecordedState::Ended]);
    journal.close().await;
    drop(journal);
    assert_eq!(
        all(),
        [RecordedState::Interrupted, RecordedState::Interrupted, RecordedState::Ended]
    );
    let lines = place.reader().list_runs(10, None).unwrap();
    assert_eq!(lines.iter().map(|line| line.id).rev().collect::<Vec<_>>(), runs, "newest first");
    assert_eq!(place.reader().list_runs(10, Some(runs[1])).unwrap().len(), 1);
    assert_eq!(place.reader().list_runs(1, None).unwrap().len(), 1);
}

#[tokio::test]
async fn a_journal_that_is_just_begun_has_nothing_in_it() {
    let place = Place::new();
    let connection = Connection::open(place.file()).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    assert_eq!(place.reader().list_runs(10, None).unwrap(), []);
    assert_eq!(place.reader().count_interrupted().unwrap(), 0);
}

#[tokio::test]
async fn interrupted_runs_are_those_of_the_last_count() {
    let place = Place::new();
    let journal = place.journal();
    assert_eq!(journal.count_interrupted_runs(), None, "nobody has counted yet");
    assert_eq!(journal.count_interrupted().unwrap(), 0);
    assert_eq!(journal.count_interrupted_runs(), Some(0));
    journal.close().await;
    std::fs::write(place.file(), "no database").unwrap();
    assert!(journal.count_interrupted().is_err());
    assert_eq!(journal.count_interrupted_runs(), None, "what cannot be counted is not known");
}

#[tokio::test]
async fn only_a_run_that_has_stopped_can_be_taken_over_and_only_by_one() {
    let place = Place::new();
    let first = place.journal();
    let began = run_began("x");
    let run = began.run;
    first.record_entry(JournalEntry::RunBegan(began));
    let problem = first.take_over_run(run).await.unwrap_err();
    assert_eq!(problem.message, format!("run {run} has not stopped"));
    let second = place.journal();
    let problem = second.take_over_run(run).await.unwrap_err();
    assert_eq!(problem.message, format!("run {run} has not stopped"));
    assert_eq!(first.find_run_carrier(run).await, Ok(Some(RunCarrier::ThisProcess)));
    assert_eq!(second.find_run_carrier(run).await, Ok(Some(RunCarrier::OtherProcess)));
    first.close().await;
    drop(first);
    assert_eq!(second.find_run_carrier(run).await, Ok(None), "nobody has it");
    second.take_over_run(run).await.unwrap();
    assert_eq!(second.find_run_carrier(run).await, Ok(Some(RunCarrier::ThisProcess)));
    let third = place.journal();
    assert!(third.take_over_run(run).await.is_err(), "the second has it");
    let ended = |answer| RunEnded {
        run,
        took: Duration::ZERO,
        outcome: CallOutcome::Cancelled,
        message: None,
        answer,
    };
    second.record_entry(JournalEntry::RunEnded(ended(None)));
    second.flush().await.unwrap();
    third.take_over_run(run).await.unwrap();
    third.record_entry(JournalEntry::RunEnded(ended(Some(Ok(ToolAnswer::Value(Value::Null))))));
    let problem = third.take_over_run(run).await.unwrap_err();
    assert_eq!(problem.message, format!("run {run} has ended: cancelled"));
    let unknown = third.take_over_run(RecordId::new()).await.unwrap_err();
    assert_eq!(unknown.code, ProblemCode::NotFound);
}

#[tokio::test]
async fn a_run_is_found_by_the_end_of_its_id() {
    let place = Place::new();
    assert_eq!(place.reader().find_run("abcd").unwrap_err().code, ProblemCode::NotFound);
    assert!(place.reader().list_runs(10, None).unwrap().is_empty());
    let journal = place.journal();
    let began = run_began("x");
    let run = began.run;
    journal.record_entry(JournalEntry::RunBegan(began));
    journal.flush().await.unwrap();
    let text = run.to_string();
    for part in [&text[..], &text[28..], &text.to_uppercase()[20..]] {
        assert_eq!(place.reader().find_run(part).unwrap(), run, "{part}");
    }
    for wrong in ["abc", "", "%", "nothing", "'; DROP TABLE journal_runs; --"] {
        assert_eq!(
            place.reader().find_run(wrong).unwrap_err().code,
            ProblemCode::NotFound,
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn many_writers_of_one_process_lose_nothing() {
    let place = Place::new();
    let journal = place.journal();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let journal = journal.clone();
            tokio::spawn(async move {
                for _ in 0..2500 {
                    if let Some(room) = journal.wait_for_room() {
                        room.await;
                    }
                    let call = call_began(None, None, Value::from_fields([("n", Value::Int(1))]));
                    let id = call.call;
                    journal.record_entry(JournalEntry::CallBegan(call));
                    journal.record_entry(JournalEntry::CallEnded(call_ended(
                        id,
                        0,
                        Ok(ToolAnswer::Value(Value::Null)),
                    )));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    journal.close().await;
    assert_eq!(journal.health().lost, 0);
    let calls = place.reader().list_calls(100_000, None).unwrap();
    assert_eq!(calls.len(), 20_000);
    assert!(calls.iter().all(|call| call.state == RecordedState::Ended));
}

#[tokio::test]
async fn a_full_disk_refuses_what_must_be_durable_and_loses_nothing_else_for_a_while() {
    let place = Place::new();
    let journal = place.journal();
    journal.flush().await.unwrap();
    std::fs::write(place.file().with_extension("pages"), "1").unwrap();
    let long = || Value::from_fields([("text", "x".repeat(3000).into())]);
    let before = call_began(None, None, long());
    for _ in 0..20 {
        journal.record_entry(JournalEntry::CallBegan(call_began(None, None, long())));
    }
    journal.record_entry(JournalEntry::CallBegan(before.clone()));
    let refused = call_began(None, Some("0"), long());
    let problem =
        journal.record_durably(JournalEntry::CallBegan(refused.clone())).await.unwrap_err();
    assert!(problem.message.contains("is full"), "{problem}");
    let problem =
        journal.record_durably(JournalEntry::CallBegan(refused.clone())).await.unwrap_err();
    assert!(problem.message.starts_with("this call must be recorded in the journal"), "{problem}");
    assert!(journal.current_problem().unwrap().hint.is_some());
    assert!(journal.wait_for_room().is_none(), "calls go on");
    std::fs::remove_file(place.file().with_extension("pages")).unwrap();
    while journal.flush().await.is_err() {}
    assert_eq!(journal.current_problem(), None);
    journal
        .record_durably(JournalEntry::CallBegan(call_began(None, None, Value::Null)))
        .await
        .unwrap();
    journal.flush().await.unwrap();
    let calls = place.reader().list_calls(100, None).unwrap();
    assert!(calls.iter().any(|call| call.id == before.call), "what waited is written");
    assert!(calls.iter().all(|call| call.id != refused.call), "what was refused is not");
    assert_eq!(calls.len(), 22);
}

#[tokio::test]
async fn a_damaged_file_is_said_and_a_new_one_begun_when_it_is_moved_away() {
    let place = Place::new();
    std::fs::write(
        place.file(),
        "this is no database, but long enough to look like one".repeat(99),
    )
    .unwrap();
    let journal = place.journal();
    let problem = journal.flush().await.unwrap_err();
    assert!(problem.message.ends_with("is not the journal, or damaged"), "{problem}");
    assert_eq!(journal.health().problem, Some(problem));
    journal.record_entry(JournalEntry::CallBegan(call_began(None, None, Value::Null)));
    assert!(place.reader().list_runs(1, None).is_err());
    std::fs::rename(place.file(), place.folder.path().join("aside")).unwrap();
    while journal.flush().await.is_err() {}
    assert_eq!(place.reader().list_calls(10, None).unwrap().len(), 1);
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_left_alone() {
    let place = Place::new();
    place.journal().close().await;
    let connection = Connection::open(place.file()).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let journal = place.journal();
    let problem = journal.flush().await.unwrap_err();
    assert!(problem.message.contains("newer Moonlark: its tables have version 99"), "{problem}");
    assert_eq!(place.reader().list_runs(1, None).unwrap_err(), problem);
}

/// An id of its own, as it would have been made then.
fn id_made_at(time: SystemTime) -> RecordId {
    let mut bytes = *RecordId::first_at(time).as_bytes();
    bytes[6..].copy_from_slice(&RecordId::new().as_bytes()[6..]);
    RecordId::from_bytes(bytes)
}

#[tokio::test]
async fn what_is_too_old_goes_and_a_run_that_waits_does_not() {
    let place = Place::new();
    let hours = |hours: u64| SystemTime::now() - Duration::from_secs(hours * 3600);
    let began = |hours_ago: u64| {
        let at = hours(hours_ago);
        RunBegan { run: id_made_at(at), at, ..run_began("x") }
    };
    let (old, new, waits) = (began(2), began(0), began(2));
    {
        let journal = place.journal();
        for began in [&old, &new, &waits] {
            journal.record_entry(JournalEntry::RunBegan(began.clone()));
            let call = call_began(Some(began.run), Some("0"), Value::Null);
            let (call, at) = (CallBegan { call: id_made_at(began.at), ..call }, began.at);
            journal.record_entry(JournalEntry::CallBegan(CallBegan { at, ..call }));
        }
        journal.record_entry(JournalEntry::RunPaused(RunPaused {
            run: waits.run,
            approval: RecordId::new(),
            place: None,
        }));
        let call = call_began(None, None, Value::Null);
        let (call, at) = (CallBegan { call: id_made_at(hours(2)), ..call }, hours(2));
        journal.record_entry(JournalEntry::CallBegan(CallBegan { at, ..call }));
        journal.close().await;
    }
    let journal = place.journal();
    journal.flush().await.unwrap();
    journal.close().await;
    let left: Vec<RecordId> =
        place.reader().list_runs(10, None).unwrap().iter().map(|it| it.id).collect();
    assert_eq!(left, [new.run, waits.run]);
    let rows = |table: &str| -> i64 {
        let connection = Connection::open(place.file()).unwrap();
        connection
            .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))
            .unwrap()
    };
    assert_eq!((rows("journal_calls"), rows("journal_exact")), (2, 2));
}

#[tokio::test]
async fn what_is_too_much_goes_the_oldest_first() {
    let place = Place::new();
    let long = Value::from_fields([("text", "x".repeat(4000).into())]);
    let minutes_ago = SystemTime::now() - Duration::from_secs(600);
    {
        let journal = place.journal();
        for _ in 0..2000 {
            let call = call_began(None, None, long.clone());
            journal.record_entry(JournalEntry::CallBegan(CallBegan { at: minutes_ago, ..call }));
        }
        journal.close().await;
    }
    let size = |file: &Path| std::fs::metadata(file).unwrap().len();
    assert!(size(&place.file()) > 8_000_000);
    let journal = Journal::open(JournalSettings { size: 4_000_000, ..place.settings() }).unwrap();
    // Whatever goes, it goes between batches.
    for _ in 0..10 {
        journal.flush().await.unwrap();
    }
    let fresh = call_began(None, None, long.clone());
    journal.record_durably(JournalEntry::CallBegan(fresh.clone())).await.unwrap();
    journal.close().await;
    let calls = place.reader().list_calls(10_000, None).unwrap();
    assert!(calls.len() < 1000, "{}", calls.len());
    assert_eq!(calls[0].id, fresh.call);
}
