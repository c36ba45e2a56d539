use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::test_calls::{limited, problem, scope};

async fn refused(grants: &[&str], conn: &str) -> String {
    let scope =
        limited(scope(Path::new("."), grants), |limits| limits.timeout = Duration::from_secs(5));
    problem(scope, "postgres.query", json!({"conn": conn, "sql": "SELECT 1"})).await
}

/// However a connection string is broken, no message repeats its password.
#[tokio::test]
async fn a_password_is_in_no_message() {
    for conn in [
        "postgres://me:hunter2@127.0.0.1:1/app",
        "postgres://me:hunter2@localhost:notaport/app",
        "postgres://me:hunt@hunter2@127.0.0.1/app",
        "postgres://me:hunt@hunter2/x@127.0.0.1/app",
        "postgres://me:hunter2@hunter2 hunter2/app",
        "postgres://me:hunter2@/app",
        "postgres://me:hunter2@127.0.0.1/app?hunter2=1",
        "postgres://me:hunter2@127.0.0.1/app?sslmode=hunter2",
        "host=127.0.0.1 user=me password=pass hunter2=1",
        "host=127.0.0.1 user=me password='hunter2",
        "host=127.0.0.1 port=1 user=me password=hunter2",
        "host=127.0.0.1 hostaddr=10.0.0.1 password=hunter2",
        "password=hunter2",
        "me:hunter2@127.0.0.1/app",
    ] {
        for grants in [&[][..], &["net:127.0.0.1", "net:localhost"]] {
            let text = refused(grants, conn).await;
            assert!(text.starts_with("error[") && !text.contains("hunter2"), "{conn}: {text}");
        }
    }
}

#[tokio::test]
async fn the_server_has_to_be_granted_under_every_name() {
    for (grants, conn, expected) in [
        (vec![], "postgres://me@db.example.com/x", "may not reach db.example.com:5432"),
        (
            vec!["net:a.example"],
            "postgres://me@a.example,b.example/x",
            "may not reach b.example:5432",
        ),
        (vec!["net:a.example:1"], "postgres://me@a.example:2/x", "may not reach a.example:2"),
        (
            vec!["net:127.0.0.1"],
            "host=127.0.0.1 hostaddr=10.0.0.1",
            "hostaddr in a connection string is not supported",
        ),
        (
            vec!["net:127.0.0.1"],
            "postgres://127.0.0.1/x?host=10.0.0.1",
            "may not reach 10.0.0.1:5432",
        ),
        (vec!["net:127.0.0.1"], "postgres://127.1/x", "may not reach 127.1:5432"),
        (vec!["net:/run/a"], "host=/run/b", "may not reach /run/b"),
        (vec!["net:/run/a"], "host=/run/a/../b", "the host in the connection string is not one"),
        (vec!["net:*"], "postgres://localhost/x", "may not reach localhost:5432"),
    ] {
        let text = refused(&grants, conn).await;
        assert!(text.contains(expected), "{conn}: {text}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    // Nothing listens on a port that was bound and closed.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    assert_eq!(
        refused(&["net:127.0.0.1"], &format!("postgres://me:hunter2@127.0.0.1:{port}/x")).await,
        format!(
            "error[unavailable]: postgres.query: cannot connect to 127.0.0.1:{port}: connection refused"
        )
    );
    assert_eq!(
        refused(&["net:/nowhere"], "host=/nowhere user=me").await,
        "error[unavailable]: postgres.query: cannot connect to /nowhere/.s.PGSQL.5432: entity not found"
    );
    let text = refused(&["net:name.invalid"], "postgres://me@name.invalid/x").await;
    assert!(
        text.starts_with("error[unavailable]: postgres.query: cannot connect to name.invalid:5432"),
        "{text}"
    );
}

/// Something that listens and never says anything.
#[tokio::test]
async fn a_server_that_is_silent_is_given_up_before_the_deadline() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let scope = limited(scope(Path::new("."), &["net:127.0.0.1"]), |limits| {
        limits.timeout = Duration::from_millis(400);
    });
    let args = json!({"conn": format!("postgres://me@127.0.0.1:{port}/x"), "sql": "SELECT 1"});
    assert_eq!(
        problem(scope, "postgres.query", args).await,
        format!("error[unavailable]: postgres.query: no answer from 127.0.0.1:{port} in time")
    );
}
