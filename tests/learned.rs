//! What tools answer that do not say so is learned, and known after a restart.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::harness::{Project, Server, eventually};
use crate::processes::signal;

const STOCK: &str = r#"
tool = {
  name = "stock",
  description = "Lists items.",
  execute = function(args)
    return { items = { { id = 1, tag = "a" }, { id = 2 } }, owner = { ["ada@example.com"] = true } }
  end,
}
"#;

fn project() -> Project {
    Project::new(&[("tools/stock.lua", STOCK)])
}

/// Ask it to end, and wait until it has.
fn end(mut server: Server) {
    signal(server.pid(), libc::SIGTERM);
    eventually("its end", || if server.is_alive() { Err("it lives".to_owned()) } else { Ok(()) });
}

fn kept(project: &Project) -> Value {
    let text = std::fs::read(project.path(".moonlark/learned.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn docs(project: &Project) -> String {
    let output = project.run(&["docs", "stock"]);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_a_tool_answered_is_known_after_a_restart() {
    let project = project();
    assert!(!docs(&project).contains("learned"));
    for calls in [1, 2] {
        let server = project.serve();
        server.post("stock", &json!({}));
        end(server);
        assert_eq!(kept(&project)["callers"][""]["stock"]["shape"]["calls"], calls);
    }
    let file = std::fs::metadata(project.path(".moonlark/learned.json")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    let docs = docs(&project);
    assert!(docs.contains("{ id: number, tag: string? }"), "{docs}");
    assert!(docs.contains("learned from 2 calls"), "{docs}");
    // Names of fields are kept, and nothing that is data.
    let text = kept(&project).to_string();
    assert!(text.contains("\"owner\"") && !text.contains("ada"), "{text}");
}

#[test]
fn a_tool_that_was_changed_is_learned_anew() {
    let project = project();
    let server = project.serve();
    server.post("stock", &json!({}));
    end(server);
    project.write("tools/stock.lua", &STOCK.replace("Lists items.", "Lists others."));
    assert!(!docs(&project).contains("learned"), "{}", docs(&project));
    let server = project.serve();
    server.post("stock", &json!({}));
    end(server);
    assert_eq!(kept(&project)["callers"][""]["stock"]["shape"]["calls"], 1);
}

#[test]
fn a_broken_file_is_a_warning_and_replaced() {
    let project = project();
    project.write(".moonlark/learned.json", "{\"version\": 1, ");
    let output = project.run(&["docs", "stock"]);
    let warning = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{warning}");
    assert!(warning.contains("learned.json: no learned shapes: EOF"), "{warning}");
    let server = project.serve();
    server.post("stock", &json!({}));
    end(server);
    assert_eq!(kept(&project)["callers"][""]["stock"]["shape"]["calls"], 1);
}

#[test]
fn nothing_is_written_where_nothing_was_learned() {
    let project = project();
    end(project.serve());
    assert!(!project.path(".moonlark/learned.json").exists());
}
