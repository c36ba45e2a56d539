//! The journal as a whole, on real files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use moonlark_core::content::Answer;
use moonlark_core::journal::{
    CallBegan, CallEnded, Entry, Id, Recorder, RunBegan, RunEnded, RunPaused, Secrecy,
};
use moonlark_core::secret::{Secret, Secrets};
use moonlark_core::tool::{Effects, Scope};
use moonlark_core::{Caller, Code, Problem, Value};
use rusqlite::Connection;

use crate::{Journal, Reader, Settings, State};

/// Whether the disk is full is a file beside the database, in these tests.
pub(crate) fn limit_disk(connection: &Connection) -> rusqlite::Result<()> {
    let Some(file) = connection.path().map(PathBuf::from) else { return Ok(()) };
    let pages = std::fs::read_to_string(file.with_extension("pages")).unwrap_or_default();
    let most = pages.parse().unwrap_or(1_000_000_000i64);
    connection.pragma_update_and_check(None, "max_page_count", most, |_| Ok(()))
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

    fn settings(&self) -> Settings {
        let keep = Duration::from_secs(3600);
        Settings { file: self.file(), power: true, keep, size: 1 << 30 }
    }

    fn journal(&self) -> Arc<Journal> {
        Journal::open(self.settings()).unwrap()
    }

    fn reader(&self) -> Reader {
        Reader::of(&self.file())
    }

    /// Everything that is in the files of this place.
    fn bytes(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        let files = files.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        files.flat_map(|path| std::fs::read(path).unwrap()).collect()
    }
}

fn secrets() -> Secrecy {
    let secret = Secret { key: "token".into(), value: "hunter22".into(), by_name: true };
    let scope = Scope { secrets: Secrets::new(vec![secret]), ..Scope::default() };
    Secrecy([Arc::new(scope), Arc::default()])
}

fn run_began(script: &str) -> RunBegan {
    RunBegan {
        caller: Caller { client: Some("tester".into()), ..Caller::new("mcp").named("ci") },
        timeout: Some(Duration::from_millis(1500)),
        secrets: secrets(),
        ..RunBegan::of_script(script, [7; 32])
    }
}

fn call_began(run: Option<Id>, place: Option<&str>, args: Value) -> CallBegan {
    CallBegan {
        call: Id::new(),
        parent: None,
        run,
        place: place.map(str::to_owned),
        at: SystemTime::now(),
        tool: "files.write".into(),
        source: "files".into(),
        effects: Effects { idempotent: true, ..Effects::default() },
        caller: Caller { client: Some("tester".into()), ..Caller::new("mcp").named("ci") },
        args,
        secrets: secrets(),
    }
}

fn call_ended(call: Id, order: u64, answer: Result<Answer, Problem>) -> CallEnded {
    let outcome = answer.as_ref().map_or_else(|problem| problem.code.as_str(), |_| "ok");
    let message = answer.as_ref().err().map(|problem| problem.message.clone());
    let took = Duration::from_micros(1234);
    CallEnded { call, took, outcome, message, answer: Some(answer), order: Some(order) }
}

/// Of the precision that is kept.
fn trimmed(time: SystemTime) -> SystemTime {
    let micros = time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros();
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros as u64)
}

#[tokio::test]
async fn a_run_comes_back_for_replay_exactly_as_it_was() {
    let place = Place::new();
    let mut began = run_began("return sdk.files.write({ text = 'hunter22' })");
    began.at = trimmed(began.at);
    let args = || Value::object([("text", "hunter22".into()), ("raw", Value::Bytes(vec![255, 0]))]);
    let mut first = call_began(Some(began.run), Some("0"), args());
    first.at = trimmed(first.at);
    let mut second = call_began(Some(began.run), Some("m1.3/2"), Value::Null);
    second.at = first.at;
    let mut inner = call_began(Some(began.run), None, Value::Null);
    inner.parent = Some(first.call);
    let answered = call_ended(first.call, 0, Ok(Answer::Value(Value::Float(f64::INFINITY))));
    {
        let journal = place.journal();
        journal.record(Entry::RunBegan(began.clone()));
        journal.durable(Entry::CallBegan(first.clone())).await.unwrap();
        journal.record(Entry::CallBegan(inner));
        journal.record(Entry::CallEnded(answered.clone()));
        journal.record(Entry::CallBegan(second.clone()));
        journal.close().await;
    }
    let journal = place.journal();
    let record = journal.take_over(began.run).await.unwrap();
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
    journal.record(Entry::RunBegan(began));
    let args = Value::object([
        ("text", "a hunter22 b".into()),
        ("password", "swordfish".into()),
        ("nested", Value::object([("Authorization", "Bearer opensesame".into())])),
    ]);
    for place in [Some("0"), None] {
        let call = call_began(Some(run), place, args.clone());
        let id = call.call;
        journal.record(Entry::CallBegan(call));
        let echoed = Answer::Value("hunter22 swordfish opensesame".into());
        journal.record(Entry::CallEnded(CallEnded {
            answer: place.map(|_| Ok(echoed.clone())),
            ..call_ended(id, 0, Ok(echoed))
        }));
    }
    let answer = Some(Ok(Answer::Value("hunter22".into())));
    let took = Duration::ZERO;
    journal.record(Entry::RunEnded(RunEnded { run, took, outcome: "ok", message: None, answer }));
    journal.flush().await.unwrap();
    let shown = place.reader().run(run).unwrap();
    assert_eq!(shown.answer, Some(Ok(Answer::Value("hunter22".into()))), "sealed, not lost");
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
    let state = |id| place.reader().run(id).unwrap().line.state;
    let runs: Vec<Id> = (0..3)
        .map(|_| {
            let began = run_began("x");
            let run = began.run;
            journal.record(Entry::RunBegan(began));
            run
        })
        .collect();
    let approval = Id::new();
    journal.record(Entry::RunPaused(RunPaused { run: runs[1], approval, place: None }));
    let ended = RunEnded {
        run: runs[2],
        took: Duration::from_secs(2),
        outcome: "tool_error",
        message: Some("no".into()),
        answer: Some(Err(Problem::tool_error("no"))),
    };
    journal.record(Entry::RunEnded(ended));
    journal.flush().await.unwrap();
    let all = || [state(runs[0]), state(runs[1]), state(runs[2])];
    assert_eq!(all(), [State::Running, State::Waiting, State::Ended]);
    assert!(place.reader().left_waiting().unwrap().is_empty(), "its process is alive");
    journal.record(Entry::RunWentOn(runs[1]));
    journal.flush().await.unwrap();
    assert_eq!(all(), [State::Running, State::Running, State::Ended]);
    journal.close().await;
    drop(journal);
    assert_eq!(all(), [State::Interrupted, State::Interrupted, State::Ended]);
    let lines = place.reader().runs(10, None).unwrap();
    assert_eq!(lines.iter().map(|line| line.id).rev().collect::<Vec<_>>(), runs, "newest first");
    assert_eq!(place.reader().runs(10, Some(runs[1])).unwrap().len(), 1);
    assert_eq!(place.reader().runs(1, None).unwrap().len(), 1);
}

#[tokio::test]
async fn a_journal_that_is_just_begun_has_nothing_in_it() {
    let place = Place::new();
    let connection = Connection::open(place.file()).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    assert_eq!(place.reader().runs(10, None).unwrap(), []);
    assert_eq!(place.reader().interrupted().unwrap(), 0);
}

#[tokio::test]
async fn interrupted_runs_are_those_of_the_last_count() {
    let place = Place::new();
    let journal = place.journal();
    assert_eq!(journal.interrupted(), None, "nobody has counted yet");
    assert_eq!(journal.count_interrupted().unwrap(), 0);
    assert_eq!(journal.interrupted(), Some(0));
    journal.close().await;
    std::fs::write(place.file(), "no database").unwrap();
    assert!(journal.count_interrupted().is_err());
    assert_eq!(journal.interrupted(), None, "what cannot be counted is not known");
}

#[tokio::test]
async fn only_a_run_that_has_stopped_can_be_taken_over_and_only_by_one() {
    let place = Place::new();
    let first = place.journal();
    let began = run_began("x");
    let run = began.run;
    first.record(Entry::RunBegan(began));
    let problem = first.take_over(run).await.unwrap_err();
    assert_eq!(problem.message, format!("run {run} has not stopped"));
    let second = place.journal();
    let problem = second.take_over(run).await.unwrap_err();
    assert_eq!(problem.message, format!("run {run} has not stopped"));
    first.close().await;
    drop(first);
    second.take_over(run).await.unwrap();
    let third = place.journal();
    assert!(third.take_over(run).await.is_err(), "the second has it");
    let ended = |answer| RunEnded {
        run,
        took: Duration::ZERO,
        outcome: "cancelled",
        message: None,
        answer,
    };
    second.record(Entry::RunEnded(ended(None)));
    second.flush().await.unwrap();
    third.take_over(run).await.unwrap();
    third.record(Entry::RunEnded(ended(Some(Ok(Answer::Value(Value::Null))))));
    let problem = third.take_over(run).await.unwrap_err();
    assert_eq!(problem.message, format!("run {run} has ended: cancelled"));
    let unknown = third.take_over(Id::new()).await.unwrap_err();
    assert_eq!(unknown.code, Code::NotFound);
}

#[tokio::test]
async fn a_run_is_found_by_the_end_of_its_id() {
    let place = Place::new();
    assert_eq!(place.reader().find("abcd").unwrap_err().code, Code::NotFound);
    assert!(place.reader().runs(10, None).unwrap().is_empty());
    let journal = place.journal();
    let began = run_began("x");
    let run = began.run;
    journal.record(Entry::RunBegan(began));
    journal.flush().await.unwrap();
    let text = run.to_string();
    for part in [&text[..], &text[28..], &text.to_uppercase()[20..]] {
        assert_eq!(place.reader().find(part).unwrap(), run, "{part}");
    }
    for wrong in ["abc", "", "%", "nothing", "'; DROP TABLE journal_runs; --"] {
        assert_eq!(place.reader().find(wrong).unwrap_err().code, Code::NotFound, "{wrong}");
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
                    if let Some(room) = journal.room() {
                        room.await;
                    }
                    let call = call_began(None, None, Value::object([("n", Value::Int(1))]));
                    let id = call.call;
                    journal.record(Entry::CallBegan(call));
                    journal.record(Entry::CallEnded(call_ended(
                        id,
                        0,
                        Ok(Answer::Value(Value::Null)),
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
    let calls = place.reader().calls(100_000, None).unwrap();
    assert_eq!(calls.len(), 20_000);
    assert!(calls.iter().all(|call| call.state == State::Ended));
}

#[tokio::test]
async fn a_full_disk_refuses_what_must_be_durable_and_loses_nothing_else_for_a_while() {
    let place = Place::new();
    let journal = place.journal();
    journal.flush().await.unwrap();
    std::fs::write(place.file().with_extension("pages"), "1").unwrap();
    let long = || Value::object([("text", "x".repeat(3000).into())]);
    let before = call_began(None, None, long());
    for _ in 0..20 {
        journal.record(Entry::CallBegan(call_began(None, None, long())));
    }
    journal.record(Entry::CallBegan(before.clone()));
    let refused = call_began(None, Some("0"), long());
    let problem = journal.durable(Entry::CallBegan(refused.clone())).await.unwrap_err();
    assert!(problem.message.contains("is full"), "{problem}");
    let problem = journal.durable(Entry::CallBegan(refused.clone())).await.unwrap_err();
    assert!(problem.message.starts_with("this call must be on record"), "{problem}");
    assert!(journal.problem().unwrap().hint.is_some());
    assert!(journal.room().is_none(), "calls go on");
    std::fs::remove_file(place.file().with_extension("pages")).unwrap();
    while journal.flush().await.is_err() {}
    assert_eq!(journal.problem(), None);
    journal.durable(Entry::CallBegan(call_began(None, None, Value::Null))).await.unwrap();
    let calls = place.reader().calls(100, None).unwrap();
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
    assert!(problem.message.ends_with("is damaged"), "{problem}");
    assert_eq!(journal.health().problem, Some(problem));
    journal.record(Entry::CallBegan(call_began(None, None, Value::Null)));
    assert!(place.reader().runs(1, None).is_err());
    std::fs::rename(place.file(), place.folder.path().join("aside")).unwrap();
    while journal.flush().await.is_err() {}
    assert_eq!(place.reader().calls(10, None).unwrap().len(), 1);
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
    assert!(problem.message.contains("newer version of Moonlark (form 99"), "{problem}");
    assert_eq!(place.reader().runs(1, None).unwrap_err(), problem);
}

#[tokio::test]
async fn what_is_too_old_goes_and_a_run_that_waits_does_not() {
    let place = Place::new();
    let hours = |hours: u64| SystemTime::now() - Duration::from_secs(hours * 3600);
    let began = |hours_ago: u64| RunBegan { at: hours(hours_ago), ..run_began("x") };
    let (old, new, waits) = (began(2), began(0), began(2));
    {
        let journal = place.journal();
        for began in [&old, &new, &waits] {
            journal.record(Entry::RunBegan(began.clone()));
            let call = call_began(Some(began.run), Some("0"), Value::Null);
            journal.record(Entry::CallBegan(CallBegan { at: began.at, ..call }));
        }
        journal.record(Entry::RunPaused(RunPaused {
            run: waits.run,
            approval: Id::new(),
            place: None,
        }));
        let call = call_began(None, None, Value::Null);
        journal.record(Entry::CallBegan(CallBegan { at: hours(2), ..call }));
        journal.close().await;
    }
    let journal = place.journal();
    journal.flush().await.unwrap();
    journal.close().await;
    let left: Vec<Id> = place.reader().runs(10, None).unwrap().iter().map(|it| it.id).collect();
    assert_eq!(left, [waits.run, new.run]);
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
    let long = Value::object([("text", "x".repeat(4000).into())]);
    let minutes_ago = SystemTime::now() - Duration::from_secs(600);
    {
        let journal = place.journal();
        for _ in 0..2000 {
            let call = call_began(None, None, long.clone());
            journal.record(Entry::CallBegan(CallBegan { at: minutes_ago, ..call }));
        }
        journal.close().await;
    }
    let size = |file: &Path| std::fs::metadata(file).unwrap().len();
    assert!(size(&place.file()) > 8_000_000);
    let journal = Journal::open(Settings { size: 4_000_000, ..place.settings() }).unwrap();
    // Whatever goes, it goes between batches.
    for _ in 0..10 {
        journal.flush().await.unwrap();
    }
    let fresh = call_began(None, None, long.clone());
    journal.durable(Entry::CallBegan(fresh.clone())).await.unwrap();
    journal.close().await;
    let calls = place.reader().calls(10_000, None).unwrap();
    assert!(calls.len() < 1000, "{}", calls.len());
    assert_eq!(calls[0].id, fresh.call);
}
