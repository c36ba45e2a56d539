//! The two ways from a client to the echo server that `bench run` compares:
//! directly, and by scripts that Moonlark runs. Both over stdio.

use anyhow::Result;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Effort;
use super::echo::{self, ANSWER};
use super::http::Request;
use super::scripts;
use super::server::beside;
use super::upstream_load::{Pipe, Processes, Sample};
use super::upstream_path::{pipe, processes};

/// A script, and what must be in its answer.
pub(super) struct Script {
    text: String,
    expect: &'static str,
}

impl Script {
    fn new(text: impl Into<String>, expect: &'static str) -> Script {
        Script { text: text.into(), expect }
    }

    pub(super) fn noop() -> Script {
        Script::new("return \"done\"", "done")
    }

    pub(super) fn fib() -> Script {
        let text = "local function fib(n: number): number\n\
                    if n < 2 then return n end\nreturn fib(n - 1) + fib(n - 2)\nend\n\
                    return fib(25)";
        Script::new(text, "75025")
    }

    pub(super) fn upstream(count: usize) -> Script {
        Script::in_turn("sdk.echo.echo", count)
    }

    pub(super) fn scripted(count: usize) -> Script {
        Script::in_turn("sdk.tools.echo", count)
    }

    fn in_turn(function: &str, count: usize) -> Script {
        let text = format!(
            "local last\nfor i = 1, {count} do\nlast = {function}({{ message = \"hello\" }})\nend\n\
             return last.echo"
        );
        Script::new(text, ANSWER)
    }

    pub(super) fn parallel(count: usize) -> Script {
        let text = format!(
            "local calls = {{}}\nfor i = 1, {count} do\n\
             calls[i] = echo.echo({{ message = \"hello\" }})\nend\n\
             return await_all(calls)[{count}].echo"
        );
        Script::new(text, ANSWER)
    }

    pub(super) fn waiting() -> Script {
        Script::new("return sdk.tools.wait({ seconds = 0.2 })", "waited")
    }

    pub(super) fn over_rest(&self) -> Request {
        Request::post("/tools/execute", &[], &json!({"script": self.text}), self.expect)
    }

    fn over_mcp(&self) -> Value {
        echo::tool_call(0, "execute", json!({"script": self.text}))
    }
}

/// The plain call that a run of [`Script::waiting`] makes.
pub(super) fn wait() -> Request {
    Request::post("/tools/wait", &[], &json!({"seconds": 0.2}), "waited")
}

/// A process that is spoken to by pipes, with all it started.
pub(super) struct Entry {
    pipe: Pipe,
    processes: Processes,
    _project: Option<TempDir>,
}

impl Entry {
    /// The echo server itself.
    pub(super) fn direct() -> Result<Entry> {
        let pipe = pipe("moonlark-bench", &[ECHO, "--stdio"], std::path::Path::new("."))?;
        let processes = Processes { gateway: vec![], server: vec![pipe.child.id()] };
        Ok(Entry { pipe, processes, _project: None })
    }

    /// Moonlark, with the echo server behind it and the echo tool beside it.
    pub(super) fn moonlark() -> Result<Entry> {
        let project = scripts::project(1)?;
        let config = format!(
            "[limits]\ncalls = 1000\n[mcp_servers.echo]\ncommand = {:?}\nargs = [{ECHO:?}, \"--stdio\"]\n",
            beside("moonlark-bench")?
        );
        std::fs::write(project.path().join("moonlark.toml"), config)?;
        let mut pipe = pipe("moonlark", &["stdio", "--quiet"], project.path())?;
        let first = Script::upstream(1);
        pipe.call_once(&[line(&first.over_mcp())], first.expect)?;
        let processes = processes(pipe.child.id())?;
        Ok(Entry { pipe, processes, _project: Some(project) })
    }

    /// One script at a time.
    pub(super) fn execute(&mut self, script: &Script, effort: Effort) -> Result<Sample> {
        self.pipe.load(vec![line(&script.over_mcp())], script.expect, &self.processes, effort)
    }

    /// One call at a time.
    pub(super) fn call(&mut self, effort: Effort) -> Result<Sample> {
        self.pipe.load(vec![line(&echo::call(0))], ANSWER, &self.processes, effort)
    }
}

/// A hidden command of this binary.
const ECHO: &str = "floor-rmcp";

fn line(message: &Value) -> String {
    format!("{message}\n")
}

/// `1 call`, `10 calls`
pub(super) fn counted(count: usize) -> String {
    format!("{count} call{}", if count == 1 { "" } else { "s" })
}
