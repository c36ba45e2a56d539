//! Running the suite, and reading what it found.
//!
//! It leaves a folder for each scenario with a file of checks. That is read, not
//! what it prints: a check that is missing is seen there, too.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Project, moonlark, repo};

use super::world::program;

/// A check by scenario, id, name, and which of those with the same names it is.
type Key = (String, String, String, usize);

pub struct Report {
    checks: BTreeMap<Key, Check>,
    /// What the suite printed, for people.
    pub said: String,
}

struct Check {
    status: String,
    message: String,
}

/// What the suite finds in a server.
pub fn server(url: &str, revision: &str) -> Report {
    run(&["server", "--url", url, "--requirements", revision], &[])
}

/// As above, without extensions of the protocol.
pub fn server_without_extensions(url: &str, revision: &str) -> Report {
    run(&["server", "--url", url, "--suite", "all", "--spec-version", revision], &[])
}

/// What the suite finds in Moonlark as a client.
pub fn client(revision: &str) -> Report {
    let driver = format!("{} drive-client", program().display());
    let echo = include_str!("../../examples/tools/echo.lua");
    let project = Project::new(&[("tools/echo.lua", echo)]);
    let tools = project.stdio().request("tools/list", json!({}));
    let tools = tools["result"]["tools"].as_array().unwrap();
    let own: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let args = ["client", "--command", &driver, "--requirements", revision];
    run(&args, &[("MOONLARK_OWN_TOOLS", &own.join(","))])
}

fn run(args: &[&str], env: &[(&str, &str)]) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let packages = installed();
    let output = Command::new(packages.join(".bin/node"))
        .arg(packages.join("@modelcontextprotocol/conformance/dist/index.js"))
        .args(args)
        .arg("-o")
        .arg(folder.path())
        .env("HOME", "/nonexistent")
        .env("NO_PROXY", "127.0.0.1,localhost")
        .env("MOONLARK", moonlark().get_program())
        .env_remove("MOONLARK_LOG")
        .env_remove("RUST_BACKTRACE")
        .envs(env.iter().copied())
        .output()
        .unwrap();
    let said = [&output.stdout[..], &output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    let mut report = Report { checks: BTreeMap::new(), said };
    report.read(folder.path(), "");
    assert!(!report.checks.is_empty(), "nothing was run: {}\n{}", output.status, report.said);
    report
}

/// Where the suite's packages are; fails when they are not.
fn installed() -> std::path::PathBuf {
    let script = repo().join("tests/conformance/install.sh");
    let check = Command::new("sh").arg(script).arg("--check").output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    repo().join("target/conformance/node_modules")
}

impl Report {
    /// Every folder below `folder` with checks in it; `under` is its scenario's
    /// name so far, which may have slashes.
    fn read(&mut self, folder: &Path, under: &str) {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.file_name().unwrap().to_str().unwrap();
            let file = entry.join("checks.json");
            if file.exists() {
                // The scenario's name, and when it was run.
                let name = &name[..name.len() - "-2026-11-16T00-22-00-985Z".len()];
                let scenario = format!("{under}{}", name.strip_prefix("server-").unwrap_or(name));
                self.add(&scenario, &std::fs::read(file).unwrap());
            } else if entry.is_dir() {
                self.read(&entry, &format!("{under}{name}/"));
            }
        }
    }

    fn add(&mut self, scenario: &str, checks: &[u8]) {
        let checks: Vec<Value> = serde_json::from_slice(checks).unwrap();
        for check in checks {
            let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
            let named = (scenario.to_owned(), text("id"), text("name"));
            let is_same = |key: &&Key| (&key.0, &key.1, &key.2) == (&named.0, &named.1, &named.2);
            let nth = self.checks.keys().filter(is_same).count();
            let status = text("status");
            let message = text("errorMessage");
            self.checks.insert((named.0, named.1, named.2, nth), Check { status, message });
        }
    }

    pub fn passed(&self) -> usize {
        self.checks.values().filter(|check| check.status == "SUCCESS").count()
    }

    /// What did not go well, of the scenarios that count.
    pub fn failed(&self, counts: impl Fn(&str) -> bool) -> Vec<String> {
        let failed = |check: &Check| matches!(&*check.status, "FAILURE" | "WARNING");
        let checks = self.checks.iter().filter(|(key, check)| counts(&key.0) && failed(check));
        checks.map(|(key, check)| describe(key, &check.status, &check.message)).collect()
    }

    /// What goes well here and not there, of the scenarios that count. A check
    /// that says there that it does not apply is not lost.
    pub fn lost(&self, there: &Report, counts: impl Fn(&str) -> bool) -> Vec<String> {
        let passed = self.checks.iter().filter(|(_, check)| check.status == "SUCCESS");
        passed
            .filter(|(key, _)| counts(&key.0))
            .filter_map(|(key, _)| match there.checks.get(key) {
                None => Some(describe(key, "MISSING", "")),
                Some(check) if matches!(&*check.status, "SUCCESS" | "INFO") => None,
                Some(check) => Some(describe(key, &check.status, &check.message)),
            })
            .collect()
    }

    /// The scenarios that were run.
    pub fn scenarios(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.checks.keys().map(|key| key.0.as_str()).collect();
        names.dedup();
        names
    }
}

fn describe((scenario, id, name, _): &Key, status: &str, message: &str) -> String {
    // Some contain the whole message that they are about.
    let message: String = message.chars().take(300).collect();
    format!("{scenario}: {id} ({name}): {status} {message}")
}

#[test]
fn a_check_that_fails_or_is_not_made_is_lost() {
    let report = |checks: Value| {
        let mut report = Report { checks: BTreeMap::new(), said: String::new() };
        report.add("ping", checks.to_string().as_bytes());
        report
    };
    let check = |id: &str, status: &str| json!({"id": id, "name": "n", "status": status, "errorMessage": "why"});
    let direct = report(json!([
        check("same", "SUCCESS"),
        check("same", "SUCCESS"),
        check("kept", "SUCCESS"),
        check("gone", "SUCCESS"),
        check("never", "FAILURE"),
        check("idle", "SUCCESS"),
    ]));
    let through = report(json!([
        check("same", "SUCCESS"),
        check("same", "WARNING"),
        check("kept", "SUCCESS"),
        check("never", "FAILURE"),
        check("idle", "INFO"),
    ]));
    assert_eq!(
        direct.lost(&through, |_| true),
        ["ping: gone (n): MISSING ", "ping: same (n): WARNING why"]
    );
    assert_eq!(direct.failed(|_| true), ["ping: never (n): FAILURE why"]);
    assert_eq!(direct.passed(), 5);
}
