//! What keeps a script in its directory, tried on a real disk.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use moonlark_core::Value;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::test_calls::{call, limited, problem, scope};

/// `outside.txt` beside the script's directory, `inside.txt` in it.
fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("outside.txt"), "secret").unwrap();
    fs::create_dir_all(place.path().join("tools/data")).unwrap();
    fs::write(place.path().join("tools/inside.txt"), "hello").unwrap();
    place
}

fn dir(place: &TempDir) -> std::path::PathBuf {
    place.path().join("tools")
}

async fn read(place: &TempDir, path: &str) -> String {
    match call(scope(&dir(place), &[]), "fs.read", json!({"path": path})).await {
        Ok(value) => value.as_str().unwrap().to_owned(),
        Err(problem) => format!("{}: {}", problem.code, problem.message),
    }
}

async fn write(place: &TempDir, path: &str, data: &str) -> String {
    let args = json!({"path": path, "data": data});
    match call(scope(&dir(place), &["fs:write"]), "fs.write", args).await {
        Ok(_) => "written".to_owned(),
        Err(problem) => format!("{}: {}", problem.code, problem.message),
    }
}

async fn list(place: &TempDir, args: Json) -> Json {
    call(scope(&dir(place), &[]), "fs.list", args).await.unwrap().to_json_lossy()
}

const DENIED: &str = "denied: fs.read may not leave the script's directory";

#[tokio::test]
async fn no_path_and_no_link_leads_out() {
    let place = place();
    let at = |name: &str| dir(&place).join(name);
    symlink("../outside.txt", at("link")).unwrap();
    symlink("/etc/passwd", at("absolute")).unwrap();
    symlink("link", at("chain")).unwrap();
    symlink("..", at("up")).unwrap();
    symlink("/", at("data/root")).unwrap();
    symlink("../inside.txt", at("data/within")).unwrap();
    symlink("loop", at("loop")).unwrap();
    for path in [
        "../outside.txt",
        "/etc/passwd",
        "data/../../outside.txt",
        "./../outside.txt",
        "..",
        "link",
        "absolute",
        "chain",
        "up/outside.txt",
        "data/root/etc/passwd",
        "missing/../../x",
        "up/missing",
    ] {
        assert_eq!(read(&place, path).await, DENIED, "{path}");
    }
    assert_eq!(read(&place, "data/../inside.txt").await, "hello");
    assert_eq!(read(&place, "data/within").await, "hello");
    assert!(read(&place, "loop").await.starts_with("tool_error: fs.read: cannot use loop"));
    // Whether something outside exists is not told either.
    for path in ["link", "../outside.txt", "../missing.txt", "up/missing"] {
        let text = problem(scope(&dir(&place), &[]), "fs.exists", json!({"path": path})).await;
        assert!(text.starts_with("error[denied]: fs.exists may not leave"), "{path}: {text}");
        let text = problem(scope(&dir(&place), &[]), "fs.stat", json!({"path": path})).await;
        assert!(text.starts_with("error[denied]: fs.stat may not leave"), "{path}: {text}");
    }
    let text = problem(scope(&dir(&place), &[]), "fs.list", json!({"dir": "up"})).await;
    assert!(text.starts_with("error[denied]: fs.list may not leave"), "{text}");
}

#[tokio::test]
async fn what_is_not_a_file_is_refused_at_once() {
    let place = place();
    assert!(Command::new("mkfifo").arg(dir(&place).join("pipe")).status().unwrap().success());
    let _socket = UnixListener::bind(dir(&place).join("socket")).unwrap();
    for path in ["pipe", "socket", "data", "."] {
        assert_eq!(
            read(&place, path).await,
            format!("bad_request: fs.read: {path} is not a regular file")
        );
    }
    for device in ["zero", "null", "random"] {
        let text = problem(scope(Path::new("/dev"), &[]), "fs.read", json!({"path": device})).await;
        assert_eq!(text, format!("error[bad_request]: fs.read: {device} is not a regular file"));
    }
    let found = call(scope(&dir(&place), &[]), "fs.stat", json!({"path": "pipe"})).await.unwrap();
    assert_eq!(found.get("kind"), Some(&Value::from("other")));
}

#[tokio::test]
async fn messages_name_the_path_as_the_script_wrote_it() {
    let place = place();
    assert_eq!(read(&place, "data/x.txt").await, "not_found: fs.read: no file data/x.txt");
    assert_eq!(read(&place, "inside.txt/x").await, "not_found: fs.read: no file inside.txt/x");
    assert_eq!(read(&place, "a\0b").await, "bad_request: fs.read: the path contains a NUL byte");
    let long = "x".repeat(5000);
    assert!(read(&place, &long).await.len() < 200);
}

#[tokio::test]
async fn a_file_is_read_up_to_the_limit_whatever_it_says_its_size_is() {
    let place = place();
    let small = |dir: &Path| limited(scope(dir, &[]), |limits| limits.value = 4);
    let text = problem(small(&dir(&place)), "fs.read", json!({"path": "inside.txt"})).await;
    assert_eq!(
        text,
        "error[limit]: fs.read: inside.txt is larger than 4 bytes\nhint: read a smaller file, or raise limits.value"
    );
    // Files in /proc have the size 0, and content.
    let status = Path::new("/proc/self");
    assert!(status.join("status").metadata().is_ok_and(|found| found.len() == 0));
    let text = problem(small(status), "fs.read", json!({"path": "status"})).await;
    assert!(text.contains("status is larger than 4 bytes"), "{text}");
    assert!(call(scope(status, &[]), "fs.read", json!({"path": "status"})).await.is_ok());
}

#[tokio::test]
async fn a_write_is_whole_and_stays_inside() {
    let place = place();
    let at = |name: &str| dir(&place).join(name);
    assert_eq!(write(&place, "new/deep/a.txt", "one").await, "written");
    assert_eq!(read(&place, "new/deep/a.txt").await, "one");
    fs::set_permissions(at("inside.txt"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(write(&place, "inside.txt", "two").await, "written");
    assert_eq!(fs::read_to_string(at("inside.txt")).unwrap(), "two");
    assert_eq!(at("inside.txt").metadata().unwrap().permissions().mode() & 0o777, 0o600);

    symlink("..", at("up")).unwrap();
    symlink("../outside.txt", at("link")).unwrap();
    let denied = "denied: fs.write may not leave the script's directory";
    for path in ["up/x.txt", "up/new/x.txt", "../x.txt", "/tmp/moonlark-x.txt"] {
        assert_eq!(write(&place, path, "x").await, denied, "{path}");
    }
    // A link is replaced, not followed.
    assert_eq!(write(&place, "link", "three").await, "written");
    assert_eq!(fs::read_to_string(place.path().join("outside.txt")).unwrap(), "secret");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);

    assert_eq!(write(&place, "data", "x").await, "bad_request: fs.write: data is a directory");
    for path in ["", ".", "data/", "data/.."] {
        assert!(write(&place, path, "x").await.ends_with("does not name a file"), "{path}");
    }
    let names = list(&place, json!({})).await;
    assert_eq!(names, json!(["data", "inside.txt", "link", "new", "up"]));
}

#[tokio::test]
async fn writing_needs_a_grant() {
    let place = place();
    for (function, args) in [
        ("fs.write", json!({"path": "a.txt", "data": ""})),
        ("fs.remove", json!({"path": "inside.txt"})),
    ] {
        assert_eq!(
            problem(scope(&dir(&place), &[]), function, args).await,
            format!(
                "error[denied]: {function} may not write files\nhint: add \"fs:write\" to allow for tools.script.test in moonlark.toml"
            )
        );
    }
    assert!(dir(&place).join("inside.txt").exists());
}

#[tokio::test]
async fn remove_takes_files_links_and_empty_directories() {
    let place = place();
    symlink("../outside.txt", dir(&place).join("link")).unwrap();
    fs::create_dir(dir(&place).join("full")).unwrap();
    fs::write(dir(&place).join("full/x"), "").unwrap();
    let remove = async |path: &str| match call(
        scope(&dir(&place), &["fs:write"]),
        "fs.remove",
        json!({"path": path}),
    )
    .await
    {
        Ok(_) => "removed".to_owned(),
        Err(problem) => format!("{}: {}", problem.code, problem.message),
    };
    for path in ["inside.txt", "link", "data"] {
        assert_eq!(remove(path).await, "removed", "{path}");
    }
    assert!(place.path().join("outside.txt").exists());
    assert_eq!(remove("full").await, "bad_request: fs.remove: the directory full is not empty");
    assert_eq!(remove("gone").await, "not_found: fs.remove: no file gone");
    assert_eq!(remove("..").await, "denied: fs.remove may not leave the script's directory");
}

#[tokio::test]
async fn a_glob_walks_and_links_are_not_entered() {
    let place = place();
    let at = |name: &str| dir(&place).join(name);
    fs::create_dir_all(at("data/more")).unwrap();
    for name in ["a.md", "data/b.md", "data/more/c.md", "data/more/d.txt"] {
        fs::write(at(name), "").unwrap();
    }
    symlink("..", at("data/up")).unwrap();
    for (args, expected) in [
        (json!({}), json!(["a.md", "data", "inside.txt"])),
        (json!({"dir": "data"}), json!(["b.md", "more", "up"])),
        (json!({"dir": ".", "glob": "*.md"}), json!(["a.md"])),
        (json!({"dir": ".", "glob": "*/*.md"}), json!(["data/b.md"])),
        (json!({"dir": ".", "glob": "**/*.md"}), json!(["a.md", "data/b.md", "data/more/c.md"])),
        (
            json!({"dir": "data", "glob": "**/*.{md,txt}"}),
            json!(["b.md", "more/c.md", "more/d.txt"]),
        ),
    ] {
        assert_eq!(list(&place, args.clone()).await, expected, "{args}");
    }
    let text = problem(scope(&dir(&place), &[]), "fs.list", json!({"dir": "a.md"})).await;
    assert_eq!(text, "error[bad_request]: fs.list: a.md is not a directory");
}

#[tokio::test]
async fn a_list_ends_at_ten_thousand_entries() {
    let place = place();
    for index in 0..10_001 {
        fs::write(dir(&place).join(format!("data/{index}")), "").unwrap();
    }
    let text = problem(scope(&dir(&place), &[]), "fs.list", json!({"dir": "data"})).await;
    assert_eq!(
        text,
        "error[limit]: fs.list: more than 10000 results\nhint: list a smaller directory, or use a narrower glob"
    );
}
