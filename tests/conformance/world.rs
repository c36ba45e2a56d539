//! The fixture as a process, and Moonlark in front of it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::harness::{Log, Project, Server, moonlark, wait_for};

/// The fixture over HTTP; it ends with this value.
pub struct Fixture {
    child: Child,
    pub url: String,
}

impl Fixture {
    pub fn http(eras: &str) -> Fixture {
        let mut child = Command::new(program())
            .args(["http", "--eras", eras])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Log::follow(child.stdout.take().unwrap());
        let line = log.wait_for("listening on ");
        let url = line.strip_prefix("listening on ").unwrap().trim().to_owned();
        Fixture { child, url }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Moonlark with one upstream, as if that were reached directly.
pub struct Transparent {
    pub server: Server,
    _project: Project,
}

impl Transparent {
    pub fn over_http(fixture: &Fixture) -> Transparent {
        Transparent::before(&format!("url = {:?}", fixture.url))
    }

    pub fn over_stdio(eras: &str) -> Transparent {
        let program = program().display().to_string();
        Transparent::before(&format!(
            "command = {program:?}\nargs = [\"stdio\", \"--eras\", {eras:?}]"
        ))
    }

    pub fn url(&self) -> String {
        self.server.url("/mcp")
    }

    /// Starts it and waits until the upstream is there: clients of the suite
    /// look at once, and only once.
    fn before(upstream: &str) -> Transparent {
        let project = Project::new(&[("moonlark.toml", &config(upstream))]);
        let server = project.serve();
        let call = json!({"name": "test_simple_text", "arguments": {}});
        let is_there = || server.mcp("tools/call", call.clone()).get("result").is_some();
        wait_for("the upstream", is_there);
        Transparent { server, _project: project }
    }
}

/// The fixture as if it were reached directly: its schemas have all that the suite
/// looks for in them.
pub fn config(upstream: &str) -> String {
    let server = "[server]\nschemas = \"exact\"\n\n";
    format!("{server}[mcp_servers.fixture]\n{upstream}\nexpose = \"direct\"\nprefix = \"\"\n")
}

pub fn program() -> PathBuf {
    let moonlark = moonlark();
    let built = PathBuf::from(moonlark.get_program());
    let fixture = built.parent().unwrap().join("examples/fixture");
    assert!(fixture.exists(), "run: cargo build -p moonlark --example fixture");
    fixture
}
