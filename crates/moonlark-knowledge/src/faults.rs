//! Fault tests: a killed process, a full disk, a file that is damaged or from another
//! version.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use moonlark_core::{ProblemCode, Value};
use parking_lot::Mutex;

use crate::knowledge_testing::{Listed, content, find, fresh_file, item, small, sync};
use crate::store::KnowledgeStore;
use crate::sync::BatchSize;
use crate::{
    KnowledgeDatabase, KnowledgeSettings, SearchMode, SearchQuery, SourceItem, SyncOptions,
};

/// What the source has at first, and what it has later.
fn items_of_version(number: usize) -> Vec<SourceItem> {
    let text = |it: usize| {
        let round = if it.is_multiple_of(3) { number } else { 0 };
        format!(
            "# Page {it}\n\nAbout topic{it} and rhubarb, in round{round}.\n\n## More\n\n{}",
            "Common words. ".repeat(it * 9)
        )
    };
    let there = (0..30_usize).filter(|it| number == 0 || !it.is_multiple_of(5));
    let page = |it: usize| SourceItem {
        stamp: Some(format!("{}", if it.is_multiple_of(3) { number } else { 0 })),
        metadata: Value::from_fields([("number", Value::Int(it as i64))]),
        ..item(&format!("{it}.md"), &text(it))
    };
    there.map(page).collect()
}

async fn sync_clean(file: &Path, number: usize) -> String {
    sync(&small(file), Listed::new(items_of_version(number))).await.unwrap();
    content(file)
}

/// A file as it is at some moment: what a crash would leave.
fn copy_database(from: &Path, to: &Path) {
    for part in ["", "-wal"] {
        let of = |path: &Path| format!("{}{part}", path.display());
        if Path::new(&of(from)).exists() {
            std::fs::copy(of(from), of(to)).unwrap();
        }
    }
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_sync_loses_and_doubles_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (before, after) =
        (sync_clean(&at("before.db"), 0).await, sync_clean(&at("after.db"), 1).await);
    let file = at("k.db");
    let knowledge = small(&file);
    sync(&knowledge, Listed::new(items_of_version(0))).await.unwrap();
    let crashes = Arc::new(Mutex::new(Vec::new()));
    let seen = crashes.clone();
    let root = folder.path().to_owned();
    let crashing = file.clone();
    let options = SyncOptions {
        progress: Arc::new(move |_| {
            let mut seen = seen.lock();
            let copied = root.join(format!("crash{}.db", seen.len()));
            copy_database(&crashing, &copied);
            seen.push(copied);
        }),
        ..SyncOptions::default()
    };
    let connector = Arc::new(Listed::new(items_of_version(1)));
    knowledge.sync_source("docs", "script", connector, options).await.unwrap();
    assert_eq!(content(&file), after);
    let crashes = crashes.lock().clone();
    assert!(crashes.len() > 30);
    let mut states = BTreeMap::new();
    for crashed in crashes {
        let state = content(&crashed);
        // Whatever was committed, it is one of few states, each of them whole.
        if states.insert(state.clone(), ()).is_some() {
            continue;
        }
        let knowledge = small(&crashed);
        assert_eq!(find(&knowledge, "topic7").await[0], "7.md");
        sync(&knowledge, Listed::new(items_of_version(1))).await.unwrap();
        assert_eq!(content(&crashed), after);
    }
    assert!(states.contains_key(&before) && states.len() > 5, "{} states", states.len());
}

/// The sync in a process of its own that others end; nothing when it is run as a test.
#[test]
fn a_sync_for_others_to_kill() {
    let (Ok(file), Ok(number)) = (std::env::var("SYNC_FILE"), std::env::var("SYNC_VERSION")) else {
        return;
    };
    if let Ok(most) = std::env::var("SYNC_MOST_BYTES") {
        // Writing beyond this fails; the signal that comes with it does not end us.
        // SAFETY: nothing else of this process handles that signal.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        let most = Some(most.parse().unwrap());
        let limit = rustix::process::Rlimit { current: most, maximum: most };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
    }
    let options = SyncOptions {
        progress: Arc::new(|advance| eprintln!("step {advance:?}")),
        ..SyncOptions::default()
    };
    let connector = Arc::new(Listed::new(items_of_version(number.parse().unwrap())));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let done = runtime.block_on(async {
        small(Path::new(&file)).sync_source("docs", "script", connector, options).await
    });
    match done {
        Ok(_) => eprintln!("done"),
        Err(problem) => eprintln!("problem {}", problem.message),
    }
}

fn sync_command(file: &Path, number: usize) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "faults::a_sync_for_others_to_kill", "--nocapture"])
        .env("SYNC_FILE", file)
        .env("SYNC_VERSION", number.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

#[tokio::test]
async fn killed_again_and_again_a_sync_ends_as_if_nothing_had_happened() {
    let (folder, file) = fresh_file();
    for number in [0, 1] {
        let mut kills = 0;
        loop {
            let mut running = sync_command(&file, number).spawn().unwrap();
            let lines = BufReader::new(running.stderr.take().unwrap()).lines();
            // Later and later, so that it ends some time.
            let killed_at = 2 + kills * 5 % 11 + kills;
            let last = lines
                .map_while(Result::ok)
                .filter(|line| line.starts_with("step") || line == "done")
                .take(killed_at)
                .last();
            if last.as_deref() == Some("done") {
                running.wait().unwrap();
                break;
            }
            running.kill().unwrap();
            assert_eq!(running.wait().unwrap().signal(), Some(9));
            kills += 1;
            if file.exists() {
                content_if_any(&file);
            }
        }
        assert!(kills >= 3, "{kills} kills");
        let clean = sync_clean(&folder.path().join(format!("clean{number}.db")), number).await;
        assert_eq!(content(&file), clean);
    }
    assert_eq!(find(&small(&file), "topic7").await[0], "7.md");
}

/// The tables may not be there yet.
fn content_if_any(file: &Path) {
    let connection = rusqlite::Connection::open(file).unwrap();
    let sql = "SELECT count(*) FROM sqlite_master WHERE name = 'kb_meta'";
    let tables: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    if tables > 0 {
        content(file);
    }
}

#[tokio::test]
async fn a_disk_that_takes_no_more_is_a_problem_and_later_all_is_well() {
    let folder = tempfile::tempdir().unwrap();
    let after = sync_clean(&folder.path().join("clean.db"), 0).await;
    for most in [20_000, 100_000, 200_000] {
        let file = folder.path().join(format!("{most}.db"));
        let output =
            sync_command(&file, 0).env("SYNC_MOST_BYTES", most.to_string()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let problem = said.lines().find(|line| line.starts_with("problem "));
        let expected = ["cannot be read or written", "there is no room", "cannot be opened"];
        let told = problem.is_some_and(|it| expected.iter().any(|words| it.contains(words)));
        assert!(output.status.success() && told, "{most}: {said}");
        sync(&small(&file), Listed::new(items_of_version(0))).await.unwrap();
        assert_eq!(content(&file), after);
    }
}

#[tokio::test]
async fn a_full_disk_says_so_and_keeps_what_was_committed() {
    let (folder, file) = fresh_file();
    let mut store = KnowledgeStore::new(&file);
    store.most_pages = Some(40);
    let batch = BatchSize { items: 3, ..BatchSize::default() };
    let full = KnowledgeDatabase::new(store, KnowledgeSettings::default(), batch);
    let problem = sync(&full, Listed::new(items_of_version(0))).await.unwrap_err();
    assert_eq!(
        problem.message,
        format!("there is no room for the knowledge base {}: the disk is full", file.display())
    );
    assert!(problem.hint.unwrap().starts_with("make room on the disk"));
    content(&file);
    assert_eq!(find(&full, "topic1").await[0], "1.md");
    sync(&small(&file), Listed::new(items_of_version(0))).await.unwrap();
    assert_eq!(content(&file), sync_clean(&folder.path().join("clean.db"), 0).await);
}

#[tokio::test]
async fn a_file_that_is_no_knowledge_base_is_a_problem() {
    let (_folder, file) = fresh_file();
    std::fs::write(&file, "This is a letter to my aunt. ".repeat(1_000)).unwrap();
    let opened = KnowledgeDatabase::open(&file, KnowledgeSettings::default()).await;
    let problem = opened.err().unwrap();
    assert_eq!(
        problem.message,
        format!("{} is not the knowledge base, or damaged", file.display())
    );
    let problem = sync(&small(&file), Listed::of(&[])).await.unwrap_err();
    assert_eq!((problem.code, problem.is_retryable()), (ProblemCode::Unavailable, false));
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("This is a letter"));
}

#[tokio::test]
async fn a_file_from_a_newer_version_is_left_alone() {
    let (_folder, file) = fresh_file();
    sync(&small(&file), Listed::of(&[("a", "rhubarb")])).await.unwrap();
    rusqlite::Connection::open(&file).unwrap().pragma_update(None, "user_version", 7).unwrap();
    let opened = KnowledgeDatabase::open(&file, KnowledgeSettings::default()).await;
    let problem = opened.err().unwrap();
    let expected = format!(
        "the knowledge base {} was written by a newer Moonlark: its tables have version 7, and this one knows version 2",
        file.display()
    );
    assert_eq!(problem.message, expected);
    assert!(problem.hint.unwrap().contains("name another file by store.url"));
    assert_eq!(sync(&small(&file), Listed::of(&[])).await.unwrap_err().message, expected);
    assert_eq!(
        small(&file).search(SearchQuery::new("rhubarb")).await.unwrap_err().message,
        expected
    );
}

#[tokio::test]
async fn a_file_from_before_it_had_a_version_is_read_and_written() {
    let (_folder, file) = fresh_file();
    sync(&small(&file), Listed::of(&[("a", "rhubarb")])).await.unwrap();
    // As the first version made its tables.
    rusqlite::Connection::open(&file)
        .unwrap()
        .execute_batch(
            "DROP INDEX kb_documents_by_language;
             ALTER TABLE kb_documents DROP COLUMN language;
             PRAGMA user_version = 0",
        )
        .unwrap();
    assert_eq!(find(&small(&file), "rhubarb").await, ["a"]);
    sync(&small(&file), Listed::of(&[("b", "rhubarb")])).await.unwrap();
    assert_eq!(find(&small(&file), "rhubarb").await, ["b"]);
}

#[tokio::test]
async fn other_tables_in_the_file_do_not_matter() {
    let (_folder, file) = fresh_file();
    rusqlite::Connection::open(&file)
        .unwrap()
        .execute_batch("CREATE TABLE journal (run); INSERT INTO journal VALUES (1)")
        .unwrap();
    let knowledge = KnowledgeDatabase::open(&file, KnowledgeSettings::default()).await.unwrap();
    assert_eq!(find(&knowledge, "rhubarb").await, [] as [&str; 0]);
    sync(&knowledge, Listed::of(&[("a", "rhubarb")])).await.unwrap();
    assert_eq!(find(&knowledge, "rhubarb").await, ["a"]);
}

#[tokio::test]
async fn a_damaged_file_gives_answers_or_problems_and_never_a_panic() {
    let (folder, file) = fresh_file();
    sync(&small(&file), Listed::new(items_of_version(0))).await.unwrap();
    // Into the file itself.
    rusqlite::Connection::open(&file)
        .unwrap()
        .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    let whole = std::fs::read(&file).unwrap();
    let mut problems = 0;
    for step in 0..40_usize {
        let damaged = folder.path().join(format!("{step}.db"));
        let mut bytes = whole.clone();
        let start = 100 + step * (bytes.len() - 300) / 40;
        for (at, byte) in bytes[start..start + 120].iter_mut().enumerate() {
            *byte = byte.wrapping_mul(31).wrapping_add((at * step) as u8 | 1);
        }
        std::fs::write(&damaged, &bytes).unwrap();
        let knowledge = small(&damaged);
        for mode in SearchMode::ALL_MODES {
            let query =
                SearchQuery { mode, explain: true, ..SearchQuery::new("rhubarb topic7 common") };
            match knowledge.search(query).await {
                Ok(answer) => {
                    for hit in answer.hits {
                        problems += usize::from(knowledge.get(&hit.id).await.is_err());
                    }
                }
                Err(problem) => {
                    assert!(!problem.message.contains("did not finish"), "{problem}");
                    problems += 1;
                }
            }
        }
        if let Err(problem) = sync(&knowledge, Listed::new(items_of_version(1))).await {
            assert!(!problem.message.contains("broke off"), "{problem}");
            problems += 1;
        }
        std::fs::remove_file(&damaged).unwrap();
    }
    assert!(problems > 5, "{problems} problems");
}

#[tokio::test]
async fn a_file_that_was_moved_away_and_made_anew_is_read_anew() {
    let (_folder, file) = fresh_file();
    let knowledge = small(&file);
    sync(&knowledge, Listed::of(&[("a", "rhubarb")])).await.unwrap();
    assert_eq!(find(&knowledge, "rhubarb").await, ["a"]);
    for part in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{part}", file.display()));
    }
    assert_eq!(find(&knowledge, "rhubarb").await, [] as [&str; 0]);
    // As many commits as before, by somebody else.
    sync(&small(&file), Listed::of(&[("b", "rhubarb")])).await.unwrap();
    assert_eq!(find(&knowledge, "rhubarb").await, ["b"]);
}
