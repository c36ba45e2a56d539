//! The faults as they are on the wire: a fault that does not happen proves
//! nothing about those who survive it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::world::faulty;

/// The server with the faults, without Moonlark in between.
struct Raw {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Raw {
    fn start(mode: &str) -> Raw {
        let mut child = Command::new(faulty())
            .arg(mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Raw { child, output }
    }

    fn ask(&mut self, method: &str, params: Value) {
        let request = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(format!("{request}\n").as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// Whatever comes until it closes its output.
    fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first lines that come when a tool is called.
fn called(tool: &str, lines: usize) -> String {
    let mut raw = Raw::start("healthy");
    raw.ask("tools/call", json!({"name": tool}));
    (0..lines).map(|_| raw.line()).collect()
}

fn answer(text: &str, id: &str) -> String {
    let content = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
    format!("{{\"result\":{content},\"jsonrpc\":\"2.0\",\"id\":{id}}}")
}

#[test]
fn the_answers_that_must_be_survived_are_given() {
    assert_eq!(called("echo", 1), format!("{}\n", answer("echo", "7")));
    assert_eq!(
        called("duplicate", 2),
        format!("{}\n{}\n", answer("duplicate", "7"), answer("second", "7"))
    );
    assert_eq!(called("text_id", 1), format!("{}\n", answer("text_id", "\"7\"")));
    let ids = ["4000000000", "-1", "null", "[]", "1.5"];
    let wrong: String = ids.map(|id| format!("{}\n", answer("wrong_id", id))).concat();
    assert_eq!(called("wrong_id", 5), wrong);
    assert!(called("batch", 1).starts_with("[{\"jsonrpc\":\"2.0\",\"method\":"));
    let garbage = called("garbage", 16);
    assert!(garbage.starts_with("\nServer started on stdio\n{\n}\n"), "{garbage}");
    assert!(garbage.ends_with(&format!("{}\n", answer("garbage", "7"))), "{garbage}");
    assert_eq!(called("huge", 1).len(), 100_000_074);
}

#[test]
fn the_ends_that_must_be_survived_come() {
    for (tool, output, code) in [
        ("half", &answer("half", "7")[..38], Some(0)),
        ("unended", &answer("unended", "7"), Some(0)),
        ("die", "", Some(9)),
    ] {
        let mut raw = Raw::start("healthy");
        raw.ask("tools/call", json!({"name": tool}));
        assert_eq!(raw.rest(), output);
        assert_eq!(raw.child.wait().unwrap().code(), code, "{tool}");
    }
    let mut raw = Raw::start("healthy");
    raw.ask("tools/call", json!({"name": "close"}));
    assert_eq!(raw.rest(), "");
    assert_eq!(raw.child.try_wait().unwrap(), None);
}

#[test]
fn a_flood_is_a_million_and_an_answer() {
    let mut raw = Raw::start("healthy");
    raw.ask("tools/call", json!({"name": "flood"}));
    let lines = raw.output.by_ref().lines().map(Result::unwrap);
    let said = lines.take_while(|line| line.contains("notifications/message")).count();
    assert_eq!(said, 1_000_000);
}

#[test]
fn ten_thousand_tools_are_on_twenty_pages() {
    let mut raw = Raw::start("many");
    let (mut tools, mut pages, mut cursor) = (0, 0, json!({}));
    while cursor != json!({"cursor": null}) {
        raw.ask("tools/list", cursor);
        let page: Value = serde_json::from_str(&raw.line()).unwrap();
        tools += page["result"]["tools"].as_array().unwrap().len();
        pages += 1;
        cursor = json!({"cursor": page["result"]["nextCursor"]});
    }
    assert_eq!((tools, pages), (10_000, 20));
}
