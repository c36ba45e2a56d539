//! What a document may refer to, and what it may not.

use serde_json::{Value as Json, json};

use super::*;

/// A document whose schema is at `reference`, in a folder with more beside it.
fn folder(reference: &str) -> (tempfile::TempDir, SpecLocation) {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, json: Json| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, json.to_string()).unwrap();
    };
    write("api/parts/near.json", json!({"A": {"type": "string"}}));
    write("common/far.json", json!({"A": {"type": "string"}}));
    write(
        "api/api.json",
        json!({"openapi": "3.0.0", "paths": {}, "x": {"$ref": format!("{reference}#/A")}}),
    );
    let spec = SpecLocation::File(folder.path().join("api/api.json"));
    (folder, spec)
}

async fn said(reference: &str, permitted: &dyn Fn(&Path) -> Vec<RefPermission>) -> (usize, String) {
    let (folder, spec) = folder(reference);
    let loaded = load_document(&spec, &permitted(folder.path())).await.unwrap();
    let problems: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
    (loaded.files.len(), problems.join("\n"))
}

#[tokio::test]
async fn a_local_document_refers_to_files_in_its_own_folder() {
    let nothing = |_: &Path| Vec::new();
    assert_eq!(said("parts/near.json", &nothing).await, (2, String::new()));
    assert_eq!(
        said("../common/far.json", &nothing).await,
        (
            1,
            "error[denied]: $ref to ../common/far.json is not read: it is outside the folder of the document\nhint: if it may be read, add its folder to refs of this API".to_owned()
        )
    );
    let granted = |root: &Path| vec![RefPermission::parse("common", root)];
    assert_eq!(said("../common/far.json", &granted).await, (2, String::new()));
    let up = "../".repeat(12);
    for device in ["dev/zero", "proc/self/environ", "etc/passwd"] {
        let (files, problems) = said(&format!("{up}{device}"), &nothing).await;
        assert_eq!(files, 1);
        assert!(problems.contains("outside the folder"), "{problems}");
    }
}

#[tokio::test]
async fn a_link_out_of_the_folder_and_a_pipe_in_it_are_not_read() {
    let (folder, spec) = folder("parts/odd.json");
    let odd = folder.path().join("api/parts/odd.json");
    std::os::unix::fs::symlink("/etc/passwd", &odd).unwrap();
    let loaded = load_document(&spec, &[]).await.unwrap();
    assert!(loaded.problems[0].message.contains("outside the folder"), "{:?}", loaded.problems);
    std::fs::remove_file(&odd).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&odd).status().unwrap().success());
    let loaded = load_document(&spec, &[]).await.unwrap();
    assert_eq!(loaded.files.len(), 1);
    let pipe = load_document(&SpecLocation::File(odd), &[]).await.err().unwrap();
    assert!(pipe.message.ends_with("it is not a regular file"), "{pipe}");
    let device = load_document(&SpecLocation::File("/dev/zero".into()), &[]).await.err().unwrap();
    assert_eq!(device.message, "cannot read /dev/zero: it is not a regular file");
}

#[tokio::test]
async fn a_local_document_gets_nothing_from_this_machine_unless_that_is_granted() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let app = axum::Router::new().fallback(|| async { r#"{"A": {"type": "string"}}"# });
    let (asked, mut asks) = tokio::sync::mpsc::unbounded_channel();
    let app = app.layer(axum::middleware::map_request(move |request: axum::extract::Request| {
        let _ = asked.send(());
        async move { request }
    }));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let reference = format!("{origin}/far.json");
    let (_, problems) = said(&reference, &|_: &Path| Vec::new()).await;
    assert_eq!(
        problems,
        format!(
            "error[denied]: $ref to {reference} is not read: {origin} is no public address\nhint: if it may be read, add \"{origin}\" to refs of this API"
        )
    );
    assert!(asks.try_recv().is_err(), "it was asked");
    let granted = |root: &Path| vec![RefPermission::parse(&origin, root)];
    assert_eq!(said(&reference, &granted).await.1, "");
    assert!(asks.try_recv().is_ok(), "it was not asked");
}
