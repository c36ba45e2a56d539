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
    /// What `execute` is asked for.
    arguments: Value,
    expect: &'static str,
}

impl Script {
    fn new(text: impl Into<String>, expect: &'static str) -> Script {
        let text: String = text.into();
        Script { arguments: json!({"script": text}), expect }
    }

    /// A script that is sent with its argument in it.
    pub(super) fn sent_text(count: usize) -> Script {
        Script::new(format!("local params = {{ count = {count} }}\n{SAVED_BODY}"), ANSWER)
    }

    /// The same script, saved, by its name.
    pub(super) fn saved(count: usize) -> Script {
        let arguments = json!({"script": "", "saved": "bench", "arguments": {"count": count}});
        Script { arguments, expect: ANSWER }
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
        Request::post("/tools/execute", &[], &self.arguments, self.expect)
    }

    fn over_mcp(&self) -> Value {
        echo::tool_call(0, "execute", self.arguments.clone())
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
        let saved = format!(
            "--! name: bench\n--! description: Call the echo server\n--! parameter count: integer\n{SAVED_BODY}"
        );
        std::fs::create_dir(project.path().join("scripts"))?;
        std::fs::write(project.path().join("scripts").join("bench.luau"), saved)?;
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

/// A script of some length, as agents send them.
const SAVED_BODY: &str = "local last, total, longest = nil, 0, 0\n\
    for i = 1, params.count do\n\
    last = sdk.echo.echo({ message = \"hello\" })\n\
    total += #last.echo\n\
    if #last.echo > longest then longest = #last.echo end\n\
    end\n\
    if total ~= longest * params.count then error(`{total} is not {longest} times {params.count}`) end\n\
    return last.echo";

/// A hidden command of this binary.
const ECHO: &str = "floor-rmcp";

fn line(message: &Value) -> String {
    format!("{message}\n")
}

/// `1 call`, `10 calls`
pub(super) fn counted(count: usize) -> String {
    format!("{count} call{}", if count == 1 { "" } else { "s" })
}
