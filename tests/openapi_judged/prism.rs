//! Prism as a server of one document, which says what it thinks of requests.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::{Log, repo};

pub struct Prism {
    child: Child,
    pub url: String,
    /// What it goes on to say has to be read.
    _log: Log,
}

impl Prism {
    pub fn start(document: &Path) -> Prism {
        let root = repo().join("target/prism");
        assert!(root.join("stamp").exists(), "run tests/prism/install.sh first");
        let mut child = Command::new("node")
            .arg(root.join("node_modules/@stoplight/prism-cli/dist/index.js"))
            .args(["mock", "--errors", "--port", "0"])
            .arg(document)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let log = Log::follow(child.stdout.take().unwrap());
        let line = log.wait_for("is listening on http://");
        let url = format!("http://{}", line.split("http://").nth(1).unwrap().trim());
        Prism { child, url, _log: log }
    }
}

impl Drop for Prism {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What Prism has against a request, by its answer to it. That it does not know
/// what to answer is not the request's fault.
pub fn objection(answer: &Value) -> Option<String> {
    const OF_THE_ANSWER: [&str; 7] = [
        "NO_RESPONSE_RESPONSE_DEFINED",
        "NOT_FOUND",
        "NOT_ACCEPTABLE",
        "NO_COMPLEX_OBJECT_TEXT",
        "SCHEMA_TOO_COMPLEX",
        "VIOLATIONS",
        "UNKNOWN",
    ];
    let said = answer["headers"]["sl-violations"].as_str().unwrap_or("[]");
    // Very many are cut short, and are no JSON any more.
    let violations: Value = serde_json::from_str(said).unwrap_or_else(
        |_| serde_json::json!([{"location": ["request"], "severity": "Error", "message": said}]),
    );
    let ours = violations
        .as_array()
        .into_iter()
        .flatten()
        .find(|it| it["location"][0] == "request" && it["severity"] == "Error");
    if let Some(it) = ours {
        return Some(format!("{} {}", it["location"], it["message"]));
    }
    let kind = answer["body"]["type"].as_str()?.split_once("prism/errors#")?.1;
    (!OF_THE_ANSWER.contains(&kind)).then(|| format!("{kind} {}", answer["body"]["validation"]))
}
