//! Entries that are in the log and not in the database: processes that are killed, power
//! that fails, disks that are full.

use super::*;
use crate::entry_codec::{decode_entry, encode_entry};
use crate::entry_log::{EntryLog, read_log};
use crate::journal_rows::shown_text;
use crate::process_lock::ProcessLock;
use crate::sealing::JournalSeal;
use moonlark_gateway::run::{NewCallPolicy, RunFork};

/// One of each kind, in the order a run has them.
fn entries() -> Vec<JournalEntry> {
    let mut began = run_began("return sdk.files.write({ text = 'hunter22' })");
    began.at = trimmed(began.at);
    began.follows = Some(RecordId::new());
    let (source, clock) = (RecordId::new(), began.at);
    began.fork = Some(RunFork { source, clock, new_calls: NewCallPolicy::Make });
    let args = Value::from_fields([("text", "hunter22".into()), ("n", Value::Int(-5))]);
    let mut call = call_began(Some(began.run), Some("m1.3/2"), args);
    call.at = trimmed(call.at);
    call.parent = Some(RecordId::new());
    let mut plain = call_began(None, None, Value::Null);
    plain.at = call.at;
    let answer = Ok(ToolAnswer::Value(Value::Bytes(vec![0, 255])));
    let failed = Err(Problem::tool_error("no"));
    let paused = RunPaused { run: began.run, approval: RecordId::new(), place: Some("2".into()) };
    let ended = RunEnded {
        run: began.run,
        took: Duration::from_micros(77),
        outcome: CallOutcome::Ok,
        message: None,
        answer: Some(Ok(ToolAnswer::Value("done".into()))),
    };
    vec![
        JournalEntry::RunBegan(began.clone()),
        JournalEntry::CallBegan(call.clone()),
        JournalEntry::CallEnded(call_ended(call.call, 3, answer)),
        JournalEntry::CallBegan(plain.clone()),
        JournalEntry::CallEnded(CallEnded {
            answer: None,
            order: None,
            ..call_ended(plain.call, 0, failed)
        }),
        JournalEntry::RunPaused(paused),
        JournalEntry::RunWentOn(began.run),
        JournalEntry::RunEnded(ended),
    ]
}

/// A journal whose entries are in the log and nowhere else, as a process that is killed
/// leaves them: the database of `place`, and the bytes of its log.
fn killed_with(place: &Place, entries: &[JournalEntry]) -> (JournalSeal, Vec<u8>) {
    let seal = || JournalSeal::load_beside(&place.file()).unwrap();
    // Makes the tables.
    drop(crate::journal_schema::JOURNAL_DATABASE.open_to_write(&place.file()).unwrap());
    let process = ProcessLock::acquire(&place.file()).unwrap();
    let log = EntryLog::default();
    log.open(&place.file(), &process.lock, Arc::new(seal())).unwrap();
    for entry in entries {
        assert!(log.append_entry(entry, shown_text(entry).as_deref()).is_some());
    }
    log.sync_to(log.write_out().unwrap()).unwrap();
    let bytes = std::fs::read(log_files(place).pop().unwrap()).unwrap();
    // Without closing it: that would be an end.
    std::mem::forget(log);
    (seal(), bytes)
}

fn log_files(place: &Place) -> Vec<PathBuf> {
    let Ok(files) = std::fs::read_dir(place.file().with_extension("log")) else { return vec![] };
    let files = files.map(|file| file.unwrap().path());
    files.filter(|path| path.file_stem().is_some_and(|it| it != "recovery")).collect()
}

fn decoded(bytes: &[u8], seal: &JournalSeal) -> Vec<JournalEntry> {
    read_log(bytes, seal).entries.into_iter().map(|(entry, _)| entry).collect()
}

#[test]
fn entries_come_back_from_their_bytes_with_what_is_shown_of_them() {
    for entry in entries() {
        let mut bytes = Vec::new();
        let shown = shown_text(&entry);
        encode_entry(&entry, shown.as_deref(), &mut bytes).unwrap();
        assert!(shown.as_ref().is_none_or(|shown| !shown.contains("hunter22")), "{shown:?}");
        assert_eq!(decode_entry(&bytes), Some((entry.clone(), shown)));
        for cut in 0..bytes.len() {
            assert_eq!(decode_entry(&bytes[..cut]), None, "{cut} of {entry:?}");
        }
        bytes.push(0);
        assert_eq!(decode_entry(&bytes), None, "more than {entry:?}");
    }
}

#[test]
fn a_log_that_ends_anywhere_is_good_up_to_its_last_whole_entry() {
    let place = Place::new();
    let entries = entries();
    let (seal, bytes) = killed_with(&place, &entries);
    assert!(!bytes.windows(8).any(|it| it == b"hunter22"), "what is in it is sealed");
    let mut whole = 0;
    for cut in 0..=bytes.len() {
        let read = decoded(&bytes[..cut], &seal);
        assert_eq!(read, entries[..read.len()], "cut at {cut}");
        assert!(read.len() >= whole, "cut at {cut}");
        whole = read.len();
    }
    assert_eq!(whole, entries.len());
    // A write that was torn, or a disk that lies: what is whole behind it is good.
    for at in 0..bytes.len() {
        let mut torn = bytes.clone();
        torn[at] ^= 1;
        let read = decoded(&torn, &seal);
        assert!(read.len() < entries.len(), "changed at {at}");
        let mut others = entries.iter();
        assert!(read.iter().all(|read| others.any(|other| other == read)), "changed at {at}");
    }
}

#[tokio::test]
async fn what_a_killed_process_has_logged_is_in_the_journal_of_the_next() {
    let place = Place::new();
    let entries = entries();
    killed_with(&place, &entries[..4]);
    let JournalEntry::RunBegan(began) = &entries[0] else { unreachable!() };
    // Whoever looks first moves it: here, somebody who only reads.
    let runs = place.reader().list_runs(10, None).unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(log_files(&place), Vec::<PathBuf>::new());
    let journal = place.journal();
    let record = journal.take_over_run(began.run).await.unwrap();
    assert_eq!(record.began, *began);
    let JournalEntry::CallBegan(call) = &entries[1] else { unreachable!() };
    let JournalEntry::CallEnded(ended) = &entries[2] else { unreachable!() };
    assert_eq!(record.calls.len(), 1);
    assert_eq!((&record.calls[0].began, &record.calls[0].ended), (call, &Some(ended.clone())));
    journal.close().await;
    let shown = String::from_utf8_lossy(&place.bytes()).into_owned();
    assert!(!shown.contains("hunter22"), "secrets are redacted for those who did not know them");
    assert_eq!(log_files(&place), Vec::<PathBuf>::new(), "a journal that is closed leaves none");
}

#[tokio::test]
async fn what_was_taken_before_there_was_a_log_survives_with_what_comes_after_it() {
    for _ in 0..20 {
        let place = Place::new();
        let journal = place.journal();
        // The file is being opened meanwhile.
        let began = run_began("return 1");
        journal.record_entry(JournalEntry::RunBegan(began.clone()));
        let call = call_began(Some(began.run), Some("1"), Value::Null);
        journal.record_durably(JournalEntry::CallBegan(call)).await.unwrap();
        let seal = JournalSeal::load_beside(&place.file()).unwrap();
        let logged = log_files(&place)
            .into_iter()
            .flat_map(|log| decoded(&std::fs::read(log).unwrap_or_default(), &seal));
        let is_logged = logged.into_iter().any(|it| matches!(it, JournalEntry::RunBegan(_)));
        let connection = Connection::open(place.file()).unwrap();
        let rows = connection
            .query_row("SELECT count(*) FROM journal_runs", [], |row| row.get::<_, i64>(0));
        assert!(is_logged || rows == Ok(1), "{is_logged} {rows:?}");
        journal.close().await;
    }
}

#[tokio::test]
async fn a_log_that_was_moved_already_changes_nothing_and_no_run_that_others_go_on_with() {
    let place = Place::new();
    let mut entries = entries();
    let JournalEntry::RunEnded(ended) = &mut entries[7] else { unreachable!() };
    (ended.outcome, ended.answer) = (CallOutcome::Cancelled, None);
    let (_, bytes) = killed_with(&place, &entries);
    let log = log_files(&place).pop().unwrap();
    let journal = place.journal();
    let JournalEntry::RunBegan(began) = &entries[0] else { unreachable!() };
    journal.take_over_run(began.run).await.unwrap();
    let usage = || {
        let connection = Connection::open(place.file()).unwrap();
        connection.query_row("SELECT sum(bytes) FROM journal_usage", [], |row| row.get::<_, i64>(0))
    };
    let before = usage().unwrap();
    // It could not be removed.
    std::fs::write(&log, &bytes).unwrap();
    assert_eq!(place.reader().list_runs(10, None).unwrap()[0].state, RecordedState::Running);
    assert!(!log.exists());
    assert_eq!(usage().unwrap(), before, "nothing is counted twice");
    journal.close().await;
}

#[tokio::test]
async fn a_full_disk_is_told_to_whoever_needs_the_entry_and_is_over_when_there_is_room() {
    let place = Place::new();
    let journal = place.journal();
    journal.flush().await.unwrap();
    let began = run_began("return 1");
    journal.record_durably(JournalEntry::RunBegan(began.clone())).await.unwrap();
    let full = place.file().with_extension("log").join("full");
    std::fs::write(&full, "").unwrap();
    // The database has room: it takes longer, and is as good.
    let call = call_began(Some(began.run), Some("1"), Value::Null);
    journal.record_durably(JournalEntry::CallBegan(call.clone())).await.unwrap();
    let copied = Connection::open(place.file()).unwrap();
    let calls = || copied.query_row("SELECT count(*) FROM journal_calls", [], |row| row.get(0));
    assert_eq!(calls(), Ok(1), "it is in the database already");
    // Neither has.
    std::fs::write(place.file().with_extension("pages"), "1").unwrap();
    let second = call_began(Some(began.run), Some("2"), Value::from("x".repeat(100_000)));
    let refused = journal.record_durably(JournalEntry::CallBegan(second)).await.unwrap_err();
    assert_eq!(refused.code, ProblemCode::Unavailable, "{refused}");
    std::fs::remove_file(full).unwrap();
    std::fs::remove_file(place.file().with_extension("pages")).unwrap();
    let third = call_began(Some(began.run), Some("3"), Value::Null);
    while journal.record_durably(JournalEntry::CallBegan(third.clone())).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    journal.close().await;
    assert_eq!(journal.health().problem, None);
}

#[tokio::test]
async fn what_is_flushed_is_in_the_log_and_what_is_asked_for_in_the_database() {
    let place = Place::new();
    let journal = Journal::open(JournalSettings { power: false, ..place.settings() }).unwrap();
    journal.flush().await.unwrap();
    for number in 0..2000 {
        let call = call_began(None, None, Value::from("x".repeat(1000)));
        journal.record_entry(JournalEntry::CallBegan(call.clone()));
        let ended = CallEnded {
            answer: None,
            ..call_ended(call.call, number, Ok(ToolAnswer::Value(Value::Null)))
        };
        journal.record_entry(JournalEntry::CallEnded(ended));
        journal.flush_caller(&call.caller).await;
    }
    journal.flush().await.unwrap();
    let sizes =
        || log_files(&place).iter().map(|it| std::fs::metadata(it).unwrap().len()).sum::<u64>();
    // What is synced in the database goes from the log, with the next entry that is moved.
    while sizes() > 1 << 20 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        journal.record_entry(JournalEntry::RunWentOn(RecordId::new()));
        journal.flush().await.unwrap();
    }
    let connection = Connection::open(place.file()).unwrap();
    let calls = connection.query_row(
        "SELECT count(*) FROM journal_calls WHERE outcome = 'ok'",
        [],
        |row| row.get(0),
    );
    assert_eq!(calls, Ok(2000));
    journal.close().await;
}
