use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::Timestamp;
use moonlark_core::{Problem, Value};

use crate::knowledge_testing::{Listed, content, find, item, small, sync, sync_as};
use crate::{ItemContent, ScanFinding, SourceConnector, SourceItem, SyncOptions};

fn stamped(name: &str, text: &str, stamp: &str) -> SourceItem {
    SourceItem { stamp: Some(stamp.to_owned()), ..item(name, text) }
}

fn counts(summary: &crate::SyncSummary) -> (u64, u64, u64, u64, u64, u64) {
    (
        summary.added,
        summary.changed,
        summary.removed,
        summary.unchanged,
        summary.skipped.count,
        summary.failed.count,
    )
}

#[tokio::test]
async fn what_is_new_changed_gone_and_unchanged_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sub/moonlark.db");
    let knowledge = small(&file);
    let first = [
        ("a.md", "# Alpha\n\nFirst."),
        ("b.md", "# Beta\n\nSecond."),
        ("c.md", "# Gamma\n\nThird."),
    ];
    let summary = sync(&knowledge, Listed::of(&first)).await.unwrap();
    assert_eq!(counts(&summary), (3, 0, 0, 0, 0, 0));
    assert_eq!(find(&knowledge, "second").await, ["b.md"]);
    let second = [
        ("a.md", "# Alpha\n\nFirst."),
        ("b.md", "# Beta\n\nAnother."),
        ("d.md", "# Delta\n\nFourth."),
    ];
    let summary = sync(&knowledge, Listed::of(&second)).await.unwrap();
    assert_eq!(counts(&summary), (1, 1, 1, 1, 0, 0));
    assert_eq!(find(&knowledge, "another").await[0], "b.md");
    let keyword = crate::SearchQuery {
        mode: crate::SearchMode::Keyword,
        ..crate::SearchQuery::new("second third")
    };
    assert!(knowledge.search(keyword).await.unwrap().hits.is_empty());
    let clean = folder.path().join("clean.db");
    sync(&small(&clean), Listed::of(&second)).await.unwrap();
    assert_eq!(content(&file), content(&clean));
}

#[tokio::test]
async fn an_id_stays_when_its_document_changes() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = small(&folder.path().join("k.db"));
    sync(&knowledge, Listed::of(&[("a.md", "rhubarb one")])).await.unwrap();
    let id = knowledge.search(crate::SearchQuery::new("rhubarb")).await.unwrap().hits[0].id.clone();
    sync(&knowledge, Listed::of(&[("a.md", "rhubarb two")])).await.unwrap();
    let document = knowledge.get(&id).await.unwrap();
    assert_eq!((document.body.as_str(), document.source_id.as_str()), ("rhubarb two", "a.md"));
    assert_eq!(knowledge.get(&format!("{id}#0")).await.unwrap(), document);
    let problem = knowledge.get("nope").await.unwrap_err();
    assert_eq!(problem.message, "there is no document nope");
}

#[tokio::test]
async fn what_has_the_stamp_it_had_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = small(&folder.path().join("k.db"));
    let items = || (0..10).map(|number| stamped(&format!("{number}.md"), "text", "1"));
    sync(&knowledge, Listed::new(items())).await.unwrap();
    let again = Arc::new(Listed::new(items().chain([stamped("new.md", "text", "1")])));
    let summary = sync_as(&knowledge, "docs", again.clone()).await.unwrap();
    assert_eq!(counts(&summary), (1, 0, 0, 10, 0, 0));
    assert_eq!(again.read.load(Ordering::Relaxed), 1);
    let full = Arc::new(Listed::new(items()));
    let options = SyncOptions { full: true, ..SyncOptions::default() };
    let summary = knowledge.sync_source("docs", "script", full.clone(), options).await.unwrap();
    assert_eq!(counts(&summary), (0, 10, 1, 0, 0, 0));
    assert_eq!(full.read.load(Ordering::Relaxed), 10);
}

#[tokio::test]
async fn another_time_or_url_is_taken_over_without_reading_the_text_again() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = small(&folder.path().join("k.db"));
    sync(&knowledge, Listed::of(&[("a.md", "rhubarb")])).await.unwrap();
    let at = Timestamp::from_second(1_000_000_000).unwrap();
    let later = SourceItem {
        updated_at: Some(at),
        source_url: Some("https://example.com/a".to_owned()),
        ..item("a.md", "rhubarb")
    };
    let summary = sync(&knowledge, Listed::new([later])).await.unwrap();
    assert_eq!((summary.unchanged, summary.chunks), (1, 0));
    let query = crate::SearchQuery {
        filter: crate::SearchFilter {
            since: Some(at),
            until: Some(at),
            ..crate::SearchFilter::default()
        },
        ..crate::SearchQuery::new("rhubarb")
    };
    let hit = knowledge.search(query).await.unwrap().hits.remove(0);
    assert_eq!(hit.source_url.as_deref(), Some("https://example.com/a"));
    assert_eq!(hit.updated_at, Some(at));
}

#[tokio::test]
async fn a_failed_item_stays_as_it_was_and_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = small(&folder.path().join("k.db"));
    sync(&knowledge, Listed::new([stamped("a.md", "rhubarb", "1")])).await.unwrap();
    let failing = Listed {
        others: || vec![ScanFinding::Failed("a.md".to_owned(), Problem::unavailable("locked"))],
        state: Value::Int(2),
        ..Listed::new([])
    };
    let summary = sync(&knowledge, failing).await.unwrap();
    assert_eq!(counts(&summary), (0, 0, 0, 0, 0, 1));
    assert_eq!(summary.failed.first[0].0, "a.md");
    assert_eq!(find(&knowledge, "rhubarb").await, ["a.md"]);
    let again = Arc::new(Listed::new([stamped("a.md", "celery", "2")]));
    sync_as(&knowledge, "docs", again.clone()).await.unwrap();
    assert_eq!(*again.got_state.lock(), Value::Null, "no cursor goes past a failed item");
    assert_eq!(find(&knowledge, "celery").await, ["a.md"]);
}

#[tokio::test]
async fn what_is_no_text_is_skipped_once_and_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = small(&folder.path().join("k.db"));
    let image = |stamp: &str| SourceItem {
        content: ItemContent::Bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xfe\0\x01".to_vec().into()),
        ..stamped("a.png", "", stamp)
    };
    let summary = sync(&knowledge, Listed::new([image("1")])).await.unwrap();
    assert_eq!(counts(&summary), (0, 0, 0, 0, 1, 0));
    let again = Arc::new(Listed::new([image("1")]));
    let summary = sync_as(&knowledge, "docs", again.clone()).await.unwrap();
    assert_eq!((counts(&summary), again.read.load(Ordering::Relaxed)), ((0, 0, 0, 0, 1, 0), 0));
    // It becomes text, and no text again.
    let summary = sync(&knowledge, Listed::new([stamped("a.png", "rhubarb", "2")])).await.unwrap();
    assert_eq!(counts(&summary), (1, 0, 0, 0, 0, 0));
    let summary = sync(&knowledge, Listed::new([image("3")])).await.unwrap();
    assert_eq!(counts(&summary), (0, 0, 1, 0, 1, 0));
    let summary = sync(&knowledge, Listed::new([])).await.unwrap();
    assert_eq!(counts(&summary), (0, 0, 0, 0, 0, 0));
    assert!(content(&folder.path().join("k.db")).lines().count() <= 2);
}

#[tokio::test]
async fn what_is_skipped_is_new_once() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = small(&folder.path().join("k.db"));
    let bytes = |bytes: &[u8]| ItemContent::Bytes(bytes.to_vec().into());
    let image =
        || SourceItem { content: bytes(b"\x89PNG\r\n\x1a\n\0\0"), ..stamped("a.png", "", "1") };
    // Without a stamp it is read each time.
    let other =
        |head: &[u8]| SourceItem { content: bytes(head), stamp: None, ..stamped("b.gz", "", "") };
    let new = async |items: Vec<SourceItem>| {
        let summary = sync(&knowledge, Listed::new(items)).await.unwrap();
        assert_eq!(summary.skipped.count, 2);
        let mut names: Vec<String> =
            summary.skipped.first.into_iter().filter(|it| it.1.is_new).map(|it| it.0).collect();
        names.sort();
        names
    };
    let gzip = || other(b"\x1f\x8b\x08");
    assert_eq!(new(vec![image(), gzip()]).await, ["a.png", "b.gz"]);
    assert_eq!(new(vec![image(), gzip()]).await, Vec::<String>::new());
    // For another reason it is new again.
    assert_eq!(new(vec![image(), other(b"ab\0cd")]).await, ["b.gz"]);
    assert_eq!(new(vec![image(), other(b"ab\0cd")]).await, Vec::<String>::new());
}

#[tokio::test]
async fn the_item_that_is_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = small(&folder.path().join("k.db"));
    let named = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let told = named.clone();
    let options = || SyncOptions {
        reading: {
            let told = told.clone();
            Arc::new(move |item| told.lock().push(item.to_owned()))
        },
        ..SyncOptions::default()
    };
    let listed = || Arc::new(Listed::of(&[("a", "apple"), ("b", "banana")]));
    knowledge.sync_source("docs", "script", listed(), options()).await.unwrap();
    let mut names = std::mem::take(&mut *named.lock());
    names.sort();
    assert_eq!(names, ["a", "b"]);
    // What is as it was is not read.
    knowledge.sync_source("docs", "script", listed(), options()).await.unwrap();
    assert_eq!(*named.lock(), Vec::<String>::new());
}

#[tokio::test]
async fn an_incremental_scan_removes_only_what_it_says_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = small(&folder.path().join("k.db"));
    let all = Listed {
        state: Value::Int(1),
        ..Listed::of(&[("a", "apple"), ("b", "banana"), ("c", "cherry")])
    };
    sync(&knowledge, all).await.unwrap();
    let some = Arc::new(Listed {
        incremental: true,
        others: || vec![ScanFinding::Gone("b".to_owned()), ScanFinding::Gone("never".to_owned())],
        ..Listed::of(&[("c", "cranberry")])
    });
    let summary = sync_as(&knowledge, "docs", some.clone()).await.unwrap();
    assert_eq!(counts(&summary), (0, 1, 1, 0, 0, 0));
    assert_eq!(*some.got_state.lock(), Value::Int(1));
    let clean = folder.path().join("clean.db");
    sync(&small(&clean), Listed::of(&[("a", "apple"), ("c", "cranberry")])).await.unwrap();
    assert_eq!(content(&folder.path().join("k.db")), content(&clean));
}

#[tokio::test]
async fn garbage_is_reported_item_by_item() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = small(&folder.path().join("k.db"));
    let garbage = [
        item("", "no name"),
        SourceItem { metadata: Value::Array(vec![]), ..item("list", "metadata is a list") },
        item("twice", "first"),
        item("twice", "second"),
        item("a\0b", "nul in the name\0 and the text"),
        item(&"long/".repeat(10_000), "a long name"),
        SourceItem { title: Some("t".repeat(100_000)), ..item("title", "a long title") },
        SourceItem {
            metadata: Value::from_fields([("bytes", Value::Bytes(vec![0xff]))]),
            ..item("bytes", "x")
        },
    ];
    let listed = Listed {
        others: || {
            vec![ScanFinding::Same("unheard of".to_owned()), ScanFinding::Gone(String::new())]
        },
        ..Listed::new(garbage)
    };
    let summary = sync(&knowledge, listed).await.unwrap();
    let failed: Vec<_> = summary
        .failed
        .first
        .iter()
        .map(|(name, it)| (name.as_str(), it.message.as_str()))
        .collect();
    assert_eq!(failed[0], ("", "the item has no source_id"));
    assert_eq!(failed[1], ("list", "metadata is array and has to be an object"));
    assert_eq!(failed[2], ("twice", "the connector names it twice; the first counts"));
    assert_eq!(failed[3].0, "bytes");
    assert_eq!(
        failed[4],
        ("unheard of", "the connector reported it as unchanged, but it was never indexed")
    );
    assert_eq!((failed.len(), summary.added), (5, 4));
    assert_eq!(find(&knowledge, "first").await[0], "twice");
    assert_eq!(find(&knowledge, "nul").await[0], "a\0b");
}

#[tokio::test]
async fn a_connector_that_fails_half_way_keeps_what_came_and_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.db");
    let knowledge = small(&file);
    let items = || {
        (0..1_000)
            .map(|number| stamped(&format!("{number:04}"), &format!("text number{number}"), "1"))
    };
    sync(&knowledge, Listed::new([item("old", "rhubarb")])).await.unwrap();
    let failing = Listed { fails_at: Some(500), state: Value::Int(9), ..Listed::new(items()) };
    let problem = sync(&knowledge, failing).await.unwrap_err();
    assert_eq!(problem.message, "the connector failed");
    let stats = knowledge.list_sources().await.unwrap();
    assert_eq!(
        (stats[0].documents, stats[0].problem.as_deref()),
        (501, Some("the connector failed"))
    );
    assert_eq!(find(&knowledge, "rhubarb").await[0], "old");
    assert_eq!(find(&knowledge, "number499").await[0], "0499");
    let rest = Arc::new(Listed::new(items()));
    let summary = sync_as(&knowledge, "docs", rest.clone()).await.unwrap();
    assert_eq!(counts(&summary), (500, 0, 1, 500, 0, 0));
    assert_eq!(rest.read.load(Ordering::Relaxed), 500, "what was committed is not read again");
    let clean = folder.path().join("clean.db");
    sync(&small(&clean), Listed::new(items())).await.unwrap();
    assert_eq!(content(&file), content(&clean));
    assert_eq!(knowledge.list_sources().await.unwrap()[0].problem, None);
}

#[tokio::test]
async fn a_sync_that_never_ends_is_ended_by_dropping_it() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = small(&folder.path().join("k.db"));
    let endless = Listed {
        hangs: true,
        ..Listed::new((0..6).map(|n| stamped(&n.to_string(), "rhubarb", "1")))
    };
    let committed = Arc::new(tokio::sync::Notify::new());
    let told = committed.clone();
    let options = SyncOptions {
        progress: Arc::new(move |advance| {
            if advance.committed == 6 {
                told.notify_one();
            }
        }),
        ..SyncOptions::default()
    };
    let connector: Arc<dyn SourceConnector> = Arc::new(endless);
    let other = knowledge.clone();
    let syncing =
        tokio::spawn(async move { other.sync_source("docs", "script", connector, options).await });
    committed.notified().await;
    let problem = sync(&knowledge, Listed::of(&[])).await.unwrap_err();
    assert!(
        problem.message.starts_with("docs is being synced already, by process "),
        "{}",
        problem.message
    );
    assert_eq!(
        knowledge.list_sources().await.unwrap()[0].problem,
        None,
        "the refused one notes nothing"
    );
    // Another source is another matter.
    sync_as(&knowledge, "other", Arc::new(Listed::of(&[("a", "celery")]))).await.unwrap();
    syncing.abort();
    assert!(syncing.await.unwrap_err().is_cancelled());
    let again = loop {
        let listed = Arc::new(Listed::new((0..6).map(|n| stamped(&n.to_string(), "rhubarb", "1"))));
        match sync_as(&knowledge, "docs", listed).await {
            Err(problem) if problem.message.contains("already") => tokio::task::yield_now().await,
            done => break done.unwrap(),
        }
    };
    assert_eq!(counts(&again), (0, 0, 0, 6, 0, 0));
}

#[tokio::test]
async fn a_connector_that_panics_has_failed() {
    struct Panics;
    impl SourceConnector for Panics {
        fn scan(
            self: Arc<Self>,
            _: crate::SourceScan,
        ) -> moonlark_core::tool::BoxFuture<moonlark_core::Result<crate::ScanOutcome>> {
            Box::pin(async { panic!("oh no") })
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let knowledge = small(&folder.path().join("k.db"));
    let problem = knowledge
        .sync_source("docs", "script", Arc::new(Panics), SyncOptions::default())
        .await
        .unwrap_err();
    assert_eq!(problem.message, "the connector broke off while it was scanning");
}

#[tokio::test]
async fn a_source_is_forgotten_with_all_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.db");
    let knowledge = small(&file);
    knowledge.remove_source("docs").await.unwrap();
    sync(&knowledge, Listed::of(&[("a", "apple pie"), ("b", "banana pie")])).await.unwrap();
    sync_as(&knowledge, "other", Arc::new(Listed::of(&[("c", "cherry pie")]))).await.unwrap();
    knowledge.remove_source("docs").await.unwrap();
    assert_eq!(find(&knowledge, "pie").await, ["c"]);
    let clean = folder.path().join("clean.db");
    sync_as(&small(&clean), "other", Arc::new(Listed::of(&[("c", "cherry pie")]))).await.unwrap();
    assert_eq!(content(&file), content(&clean));
}

#[tokio::test]
async fn many_changes_leave_the_same_file_as_one_clean_sync() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.db");
    let knowledge = small(&file);
    let version = |round: usize| {
        (0..120).filter(move |number| !(number + round).is_multiple_of(7)).map(move |number| {
            let text = format!(
                "# Title {number}\n\nround{} word{number} common text",
                round * usize::from(number % 3 == 0)
            );
            SourceItem {
                metadata: Value::from_fields([("team", Value::Str(format!("t{}", number % 4)))]),
                ..item(&format!("{number}.md"), &text)
            }
        })
    };
    for round in 0..12 {
        sync(&knowledge, Listed::new(version(round))).await.unwrap();
    }
    let clean = folder.path().join("clean.db");
    sync(&small(&clean), Listed::new(version(11))).await.unwrap();
    assert_eq!(content(&file), content(&clean));
    let segments: i64 = rusqlite::Connection::open(&file)
        .unwrap()
        .query_row("SELECT count(*) FROM kb_segments", [], |row| row.get(0))
        .unwrap();
    assert!(segments <= 8, "{segments} segments");
    assert_eq!(
        knowledge.search(crate::SearchQuery::new("word37 common")).await.unwrap(),
        small(&clean).search(crate::SearchQuery::new("word37 common")).await.unwrap()
    );
}

#[tokio::test]
async fn other_chunk_settings_read_everything_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.db");
    let text = "A sentence about rhubarb and celery. ".repeat(100);
    let items = || [stamped("a", &text, "1")];
    sync(&small(&file), Listed::new(items())).await.unwrap();
    let other = crate::KnowledgeSettings {
        chunks: crate::ChunkSettings { target: 300, most: 400, overlap: 0 },
        ..crate::KnowledgeSettings::default()
    };
    let knowledge = crate::KnowledgeDatabase::open(&file, other).await.unwrap();
    let summary = sync(&knowledge, Listed::new(items())).await.unwrap();
    assert_eq!(counts(&summary), (0, 1, 0, 0, 0, 0));
    assert!(summary.chunks > 8);
}
