//! Real repositories, made and read by the system's git.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command as Process;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::sync::mpsc;

use super::*;
use crate::ItemContent;

fn git(folder: &Path, args: &[&str]) -> String {
    let done = Process::new("git")
        .args(args)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs([("GIT_AUTHOR_NAME", "Ada"), ("GIT_AUTHOR_EMAIL", "ada@example.com")])
        .envs([("GIT_COMMITTER_NAME", "Ada"), ("GIT_COMMITTER_EMAIL", "ada@example.com")])
        .env("GIT_COMMITTER_DATE", "2024-05-01T12:00:00Z")
        .output()
        .unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

fn repository() -> TempDir {
    let folder = TempDir::new().unwrap();
    git(folder.path(), &["init", "--quiet", "--initial-branch=main"]);
    // As forges allow it.
    git(folder.path(), &["config", "uploadpack.allowFilter", "true"]);
    write(&folder, "README.md", "# Hello");
    write(&folder, "docs/a b.md", "A");
    write(&folder, "docs/umlaut-ü.md", "U");
    write(&folder, "large.md", &"x".repeat(2000));
    std::os::unix::fs::symlink("README.md", folder.path().join("link.md")).unwrap();
    commit(&folder);
    folder
}

fn write(folder: &TempDir, path: &str, text: &str) {
    let path = folder.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn commit(folder: &TempDir) {
    git(folder.path(), &["add", "--all"]);
    git(folder.path(), &["commit", "--quiet", "--message", "more"]);
}

fn settings(from: GitRepository, cache: &Path) -> GitSettings {
    GitSettings {
        name: "docs".to_owned(),
        from,
        branch: None,
        include: Vec::new(),
        exclude: Vec::new(),
        max_file: 1000,
        cache: cache.join("cache"),
    }
}

fn url(folder: &TempDir) -> GitRepository {
    GitRepository::Url(format!("file://{}", folder.path().display()))
}

/// What a scan said, by what it said it about; the stamps; how it ended.
async fn scan(
    settings: &GitSettings,
    known: &BTreeMap<String, String>,
) -> (BTreeMap<String, String>, BTreeMap<String, String>, Result<ScanOutcome>) {
    let (out, mut found) = mpsc::channel(1);
    let known = known.clone();
    let known = Arc::new(move |id: &str| known.get(id).cloned());
    let source = Arc::new(GitConnector::new(settings.clone()).unwrap());
    let scanning = source.scan(SourceScan { known, state: Value::Null, out });
    let collect = async {
        let (mut all, mut stamps) = (BTreeMap::new(), BTreeMap::new());
        while let Some(found) = found.recv().await {
            let (id, said) = match found {
                ScanFinding::Item(item) => {
                    let ItemContent::Bytes(bytes) = &item.content else { panic!() };
                    assert_eq!(item.updated_at.unwrap().to_string(), "2024-05-01T12:00:00Z");
                    stamps.insert(item.source_id.clone(), item.stamp.clone().unwrap());
                    (item.source_id.clone(), String::from_utf8_lossy(bytes).into_owned())
                }
                ScanFinding::Same(id) => (id, "same".to_owned()),
                ScanFinding::Gone(id) => (id, "gone".to_owned()),
                ScanFinding::Skipped(id, reason) => (id, format!("skipped: {reason}")),
                ScanFinding::Failed(id, problem) => (id, format!("failed: {}", problem.message)),
            };
            all.insert(id, said);
        }
        (all, stamps)
    };
    let (scanned, (all, stamps)) = tokio::join!(scanning, collect);
    (all, stamps, scanned)
}

fn expected<const N: usize>(all: [(&str, &str); N]) -> BTreeMap<String, String> {
    all.into_iter().map(|(id, said)| (id.to_owned(), said.to_owned())).collect()
}

const LINK: &str = "skipped: it is a link, and links are not followed";

#[tokio::test]
async fn a_repository_elsewhere_is_fetched_and_later_only_what_is_new() {
    let (origin, here) = (repository(), TempDir::new().unwrap());
    let with = settings(url(&origin), here.path());
    let (all, stamps, scanned) = scan(&with, &BTreeMap::new()).await;
    assert_eq!(
        all,
        expected([
            ("README.md", "# Hello"),
            ("docs/a b.md", "A"),
            ("docs/umlaut-ü.md", "U"),
            (
                "large.md",
                "skipped: it has more than connectors.git.docs.max_file, which is 1000 bytes"
            ),
            ("link.md", LINK),
        ])
    );
    let scanned = scanned.unwrap();
    assert!(scanned.complete);
    let head = git(origin.path(), &["rev-parse", "HEAD"]);
    assert_eq!(scanned.state, Value::from_fields([("commit", head.into())]));

    fs::remove_file(origin.path().join("large.md")).unwrap();
    fs::remove_file(origin.path().join("link.md")).unwrap();
    write(&origin, "docs/a b.md", "changed");
    commit(&origin);
    // A fetch that was ended in its midst leaves such a file.
    fs::write(here.path().join("cache/shallow.lock"), "").unwrap();
    let (all, _, _) = scan(&with, &stamps).await;
    assert_eq!(
        all,
        expected([("README.md", "same"), ("docs/a b.md", "changed"), ("docs/umlaut-ü.md", "same")])
    );
}

#[tokio::test]
async fn a_repository_here_is_read_in_place() {
    let (origin, here) = (repository(), TempDir::new().unwrap());
    // Not committed, so not there.
    write(&origin, "README.md", "# Later");
    let mut with = settings(GitRepository::Path(origin.path().to_owned()), here.path());
    with.include = vec!["*.md".to_owned()];
    with.exclude = vec!["docs/".to_owned()];
    let (all, _, scanned) = scan(&with, &BTreeMap::new()).await;
    let large = "skipped: it has 2000 bytes, and connectors.git.docs.max_file is 1000 bytes";
    assert_eq!(all, expected([("README.md", "# Hello"), ("large.md", large), ("link.md", LINK)]));
    scanned.unwrap();
    assert!(!here.path().join("cache").exists());
    // A part of it is a source as well.
    let with = settings(GitRepository::Path(origin.path().join("docs")), here.path());
    let (all, _, _) = scan(&with, &BTreeMap::new()).await;
    assert_eq!(all, expected([("a b.md", "A"), ("umlaut-ü.md", "U")]));
}

#[tokio::test]
async fn a_branch_is_read_by_its_name() {
    let (origin, here) = (repository(), TempDir::new().unwrap());
    git(origin.path(), &["checkout", "--quiet", "-b", "feature/x"]);
    git(origin.path(), &["rm", "-r", "--quiet", "docs", "large.md", "link.md"]);
    write(&origin, "README.md", "branch");
    commit(&origin);
    git(origin.path(), &["checkout", "--quiet", "main"]);
    for from in [url(&origin), GitRepository::Path(origin.path().to_owned())] {
        let mut with = settings(from, here.path());
        with.branch = Some("feature/x".to_owned());
        let (all, _, _) = scan(&with, &BTreeMap::new()).await;
        assert_eq!(all, expected([("README.md", "branch")]));
        with.branch = Some("no/such".to_owned());
        let (_, _, scanned) = scan(&with, &BTreeMap::new()).await;
        let problem = scanned.unwrap_err();
        assert_eq!(problem.message, "the repository has no branch no/such");
        assert_eq!(problem.code, ProblemCode::NotFound);
    }
}

#[tokio::test]
async fn hooks_and_settings_of_a_repository_run_nothing() {
    let (origin, here) = (repository(), TempDir::new().unwrap());
    let trap = here.path().join("trap");
    let script = format!("#!/bin/sh\ntouch {}\n", trap.display());
    let program = here.path().join("program");
    fs::write(&program, script).unwrap();
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let said = program.display().to_string();
    for key in ["core.fsmonitor", "core.sshCommand", "core.pager", "uploadpack.packObjectsHook"] {
        git(origin.path(), &["config", key, &said]);
    }
    for hook in ["post-checkout", "reference-transaction", "post-index-change"] {
        fs::copy(&program, origin.path().join(".git/hooks").join(hook)).unwrap();
    }
    for from in [GitRepository::Path(origin.path().to_owned()), url(&origin)] {
        let (all, _, _) = scan(&settings(from, here.path()), &BTreeMap::new()).await;
        assert_eq!(all["README.md"], "# Hello");
        assert!(!trap.exists());
    }
}

#[tokio::test]
async fn what_is_wrong_is_said_with_what_to_do() {
    let here = TempDir::new().unwrap();
    let fails = async |from| {
        let (all, _, scanned) = scan(&settings(from, here.path()), &BTreeMap::new()).await;
        assert_eq!(all, BTreeMap::new());
        scanned.unwrap_err()
    };
    let empty = TempDir::new().unwrap();
    let shown = empty.path().display();
    let problem = fails(GitRepository::Path(empty.path().to_owned())).await;
    assert_eq!(problem.message, format!("{shown} is not a git repository"));
    assert_eq!(&*problem.place.unwrap().file, "connectors.git.docs.path");
    let problem = fails(url(&empty)).await;
    assert_eq!(problem.message, format!("file://{shown} is not a git repository"));
    let problem = fails(GitRepository::Path(empty.path().join("gone"))).await;
    assert_eq!(problem.message, format!("there is no folder {shown}/gone"));
    let problem = fails(GitRepository::Url("ext::sh -c touch".replace(' ', "%20"))).await;
    assert_eq!(problem.code, ProblemCode::BadConfig);
    git(empty.path(), &["init", "--quiet"]);
    for from in [url(&empty), GitRepository::Path(empty.path().to_owned())] {
        let problem = fails(from).await;
        assert!(problem.message.ends_with("has no commits yet"), "{}", problem.message);
    }
}

#[tokio::test]
async fn a_server_that_wants_a_password_is_told_apart() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let answer = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\n\
                          Content-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let here = TempDir::new().unwrap();
    let from = GitRepository::Url(format!("http://s3cret@{address}/a/b.git"));
    let (_, _, scanned) = scan(&settings(from, here.path()), &BTreeMap::new()).await;
    let problem = scanned.unwrap_err();
    assert_eq!(problem.message, format!("http://{address}/a/b.git: authentication failed"));
    assert!(!problem.to_string().contains("s3cret"));
    server.abort();
}

#[test]
fn what_would_be_an_option_is_refused() {
    let with = |from, branch: Option<&str>| {
        let mut settings = settings(from, Path::new("/tmp"));
        settings.branch = branch.map(str::to_owned);
        GitConnector::new(settings).err()
    };
    for url in ["--upload-pack=touch /tmp/x", "-x", "", "https://a b", "a\nb"] {
        assert!(with(GitRepository::Url(url.to_owned()), None).is_some(), "{url:?}");
    }
    for branch in ["--all", "a..b", "a:b", "", "a b", "refs/x^{}", "../x", "a\nb"] {
        let problem =
            with(GitRepository::Url("https://example.com/x".into()), Some(branch)).unwrap();
        assert_eq!(&*problem.place.unwrap().file, "connectors.git.docs.branch", "{branch:?}");
    }
    assert!(with(GitRepository::Url("https://example.com/x".into()), Some("a/b-c.d")).is_none());
}
