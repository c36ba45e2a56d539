//! Real folders with everything that can be in one.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::sync::mpsc;

use super::*;
use crate::ItemContent;

fn settings(root: &Path) -> FilesystemSettings {
    FilesystemSettings {
        name: "docs".to_owned(),
        root: root.to_owned(),
        include: Vec::new(),
        exclude: Vec::new(),
        hidden: false,
        max_file: 1000,
        url: None,
    }
}

/// What a scan said, by what it said it about, and how it ended.
async fn scan(
    settings: FilesystemSettings,
    known: BTreeMap<String, String>,
) -> (BTreeMap<String, String>, Result<ScanOutcome>) {
    let (out, mut found) = mpsc::channel(1);
    let known = Arc::new(move |id: &str| known.get(id).cloned());
    let source = Arc::new(FilesystemConnector::new(settings).unwrap());
    let scanning = source.scan(SourceScan { known, state: Value::Null, out });
    let collect = async {
        let mut all = BTreeMap::new();
        while let Some(found) = found.recv().await {
            let (id, said) = match found {
                ScanFinding::Item(item) => {
                    let ItemContent::Bytes(bytes) = &item.content else { panic!() };
                    (item.source_id.clone(), String::from_utf8_lossy(bytes).into_owned())
                }
                ScanFinding::Same(id) => (id, "same".to_owned()),
                ScanFinding::Gone(id) => (id, "gone".to_owned()),
                ScanFinding::Skipped(id, reason) => (id, format!("skipped: {reason}")),
                ScanFinding::Failed(id, problem) => (id, format!("failed: {}", problem.message)),
            };
            all.insert(id, said);
        }
        all
    };
    let (scanned, all) = tokio::join!(scanning, collect);
    (all, scanned)
}

fn write(root: &TempDir, path: &str, text: &str) {
    let path = root.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn expected<const N: usize>(all: [(&str, &str); N]) -> BTreeMap<String, String> {
    all.into_iter().map(|(id, said)| (id.to_owned(), said.to_owned())).collect()
}

#[tokio::test]
async fn files_are_found_as_ignore_files_and_patterns_say() {
    let root = TempDir::new().unwrap();
    write(&root, "a.md", "A");
    write(&root, "sub/deep/b.md", "B");
    write(&root, "sub/c.txt", "C");
    write(&root, ".hidden.md", "no");
    write(&root, ".git/config.md", "no");
    write(&root, "node_modules/x.md", "no");
    write(&root, ".gitignore", "node_modules/\n*.tmp.md\n");
    write(&root, "sub/y.tmp.md", "no");
    write(&root, "sub/.moonlarkignore", "private.md\n");
    write(&root, "sub/private.md", "no");
    write(&root, "drafts/z.md", "no");
    let mut with = settings(root.path());
    with.include = vec!["*.md".to_owned()];
    with.exclude = vec!["drafts/".to_owned()];
    let (all, scanned) = scan(with.clone(), BTreeMap::new()).await;
    assert_eq!(all, expected([("a.md", "A"), ("sub/deep/b.md", "B")]));
    assert_eq!(scanned.unwrap(), ScanOutcome { complete: true, state: Value::Null });
    with.hidden = true;
    let (all, _) = scan(with, BTreeMap::new()).await;
    assert_eq!(all, expected([(".hidden.md", "no"), ("a.md", "A"), ("sub/deep/b.md", "B")]));
}

#[tokio::test]
async fn nothing_outside_of_the_folder_is_read() {
    let outside = TempDir::new().unwrap();
    write(&outside, "secret.md", "secret");
    let root = TempDir::new().unwrap();
    write(&root, "a.md", "A");
    symlink(outside.path(), root.path().join("out")).unwrap();
    symlink(outside.path().join("secret.md"), root.path().join("out.md")).unwrap();
    symlink(root.path(), root.path().join("cycle")).unwrap();
    let (all, scanned) = scan(settings(root.path()), BTreeMap::new()).await;
    let link = "skipped: it is a link, and links are not followed";
    assert_eq!(all, expected([("a.md", "A"), ("cycle", link), ("out", link), ("out.md", link)]));
    assert!(scanned.unwrap().complete);
    // Not even when the link is put there after the folder was listed.
    let dir = Dir::open_ambient_dir(root.path(), ambient_authority()).unwrap();
    let found = stable_read::read_stable(&dir, Path::new("out.md"), 1000);
    assert!(matches!(found, Ok(FileReadOutcome::Other)));
    assert!(stable_read::read_stable(&dir, Path::new("out/secret.md"), 1000).is_err());
}

#[tokio::test]
async fn pipes_sockets_and_large_files_are_not_opened() {
    let root = TempDir::new().unwrap();
    let pipe = root.path().join("pipe.md");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.path().join("socket.md")).unwrap();
    let large = fs::File::create(root.path().join("large.md")).unwrap();
    large.set_len(2 << 30).unwrap();
    let (all, _) = scan(settings(root.path()), BTreeMap::new()).await;
    let other = "skipped: it is not a regular file";
    let size = "skipped: it has 2048 MB, and connectors.filesystem.docs.max_file is 1000 bytes";
    assert_eq!(all, expected([("large.md", size), ("pipe.md", other), ("socket.md", other)]));
    let dir = Dir::open_ambient_dir(root.path(), ambient_authority()).unwrap();
    for name in ["pipe.md", "socket.md"] {
        assert!(
            matches!(
                stable_read::read_stable(&dir, Path::new(name), 1000),
                Ok(FileReadOutcome::Other)
            ),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_file_with_the_stamp_it_had_is_not_read_again() {
    let root = TempDir::new().unwrap();
    write(&root, "a.md", "A");
    write(&root, "b.md", "B");
    let stamp = FileStat::from_metadata(&fs::metadata(root.path().join("a.md")).unwrap()).stamp();
    let known = expected([("a.md", stamp.as_str()), ("b.md", "1-2.3-4.5")]);
    let (all, _) = scan(settings(root.path()), known).await;
    assert_eq!(all, expected([("a.md", "same"), ("b.md", "B")]));
}

#[tokio::test]
async fn a_folder_that_is_missing_is_a_problem_and_not_an_empty_one() {
    let root = TempDir::new().unwrap();
    let (all, scanned) = scan(settings(&root.path().join("gone")), BTreeMap::new()).await;
    assert_eq!(all, BTreeMap::new());
    let problem = scanned.unwrap_err();
    assert_eq!(problem.code, ProblemCode::NotFound);
    assert_eq!(&*problem.place.unwrap().file, "connectors.filesystem.docs.root");
    let (all, scanned) = scan(settings(root.path()), BTreeMap::new()).await;
    assert_eq!((all, scanned.unwrap().complete), (BTreeMap::new(), true));
    write(&root, "file", "x");
    let (_, scanned) = scan(settings(&root.path().join("file")), BTreeMap::new()).await;
    assert_eq!(scanned.unwrap_err().code, ProblemCode::BadConfig);
}

#[tokio::test]
async fn names_that_are_no_text_are_names_too() {
    use std::os::unix::ffi::OsStrExt;
    let root = TempDir::new().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9 \xf0\x9f\xa6\x80.md");
    fs::write(root.path().join(name), "A").unwrap();
    let mut with = settings(root.path());
    with.url = Some("https://example.com/docs/".to_owned());
    let (all, _) = scan(with, BTreeMap::new()).await;
    assert_eq!(all, expected([("caf%E9 🦀.md", "A")]));
    assert_eq!(join_url_path("https://e.com/d/", "a b/ü.md"), "https://e.com/d/a%20b/%C3%BC.md");
}

#[test]
fn a_folder_that_cannot_be_listed_leaves_what_was_in_it() {
    // Whoever runs as root may list everything: the error itself is made.
    let error = ignore::Error::WithDepth {
        depth: 1,
        err: Box::new(ignore::Error::WithPath {
            path: PathBuf::from("/docs/private"),
            err: Box::new(ignore::Error::Io(std::io::ErrorKind::PermissionDenied.into())),
        }),
    };
    let (path, problem) = folder_problem(Path::new("/docs"), &error).unwrap();
    assert_eq!(path, "private");
    assert_eq!(problem.message, "the folder cannot be read: permission denied");
    let gone = ignore::Error::Io(std::io::ErrorKind::NotFound.into());
    assert!(folder_problem(Path::new("/docs"), &gone).is_none());
}

#[test]
fn a_file_that_keeps_changing_is_a_problem_and_one_that_stops_is_whole() {
    let root = TempDir::new().unwrap();
    write(&root, "log.md", "");
    let path = root.path().join("log.md");
    let dir = Dir::open_ambient_dir(root.path(), ambient_authority()).unwrap();
    let read = |changes: usize| {
        let mut left = changes;
        stable_read::read_stable_while(&dir, Path::new("log.md"), 1 << 20, || {
            if left > 0 {
                left -= 1;
                let longer = fs::read_to_string(&path).unwrap() + "x";
                fs::write(&path, longer).unwrap();
            }
        })
        .unwrap()
    };
    assert!(matches!(read(usize::MAX), FileReadOutcome::Unsettled));
    let FileReadOutcome::Content(bytes, stat) = read(1) else { panic!("it has stopped changing") };
    assert_eq!((bytes.len() as u64, bytes), (stat.size, fs::read(&path).unwrap()));
}

#[tokio::test]
async fn a_scan_ends_when_nobody_listens() {
    let root = TempDir::new().unwrap();
    for number in 0..50 {
        write(&root, &format!("{number}.md"), "x");
    }
    let (out, found) = mpsc::channel(1);
    drop(found);
    let source = Arc::new(FilesystemConnector::new(settings(root.path())).unwrap());
    let known = Arc::new(|_: &str| None);
    let ended = source.scan(SourceScan { known, state: Value::Null, out }).await;
    assert_eq!(ended.unwrap_err().code, ProblemCode::Cancelled);
}
