//! `exec`: commands of this machine, never through a shell.
//!
//! Here stand the function and its documentation. [`command`] finds the program
//! and makes its environment, [`running`] feeds it and reads what it says,
//! [`supervised`] starts it below a process of ours, and [`supervisor`] is that
//! process: it ends everything the command has started, whatever becomes of
//! Moonlark.

#[cfg(unix)]
mod command;
#[cfg(unix)]
mod ending;
#[cfg(unix)]
mod running;
#[cfg(unix)]
mod supervised;
#[cfg(unix)]
mod supervisor;

use moonlark_core::value::Bytes;
use moonlark_core::{Call, Module, Result, Value};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::args::{List, Table};

#[cfg(unix)]
pub use supervisor::supervise_if_asked;

pub(crate) fn module() -> Module {
    Module::new(
        "exec",
        "Run commands of the machine. Both have to agree: the script's author, in allowed_exec, \
         and the operator, in allow.",
    )
    .waiting(
        "run",
        "Run a command and wait for its end. There is no shell: the arguments arrive as they are, \
         and one that begins with - is an option to most commands, so put -- before what others \
         wrote. The command sees PATH, HOME, TMPDIR, TZ and the language of Moonlark's own \
         environment, nothing else. When it ends, or its time does, all that it started ends too.",
        run,
    )
    .positional(&["args"])
    .needs("exec:NAME")
    .fails(json!({"cmd": "git", "args": ["status"]}), "may not run git")
    .fails(json!({"cmd": "./git"}), "neither a bare name nor an absolute path")
    .fails(json!({"cmd": "git status"}), "neither a bare name nor an absolute path")
    .fails(json!({"cmd": "git", "args": "status"}), "args")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Run {
    /// The command: a name that is looked up in Moonlark's PATH, or an absolute
    /// path, exactly as in allowed_exec.
    cmd: String,
    /// Its arguments, one by one.
    #[serde(default)]
    #[schemars(with = "Option<Vec<String>>")]
    args: Option<List>,
    /// What it reads from its standard input; nothing when not given.
    #[serde(default)]
    stdin: Option<Bytes>,
    /// Environment variables to set.
    #[serde(default)]
    #[schemars(with = "Option<std::collections::BTreeMap<String, String>>")]
    env: Option<Table>,
    /// The folder to run in, relative to the script's directory; that itself
    /// when not given.
    #[serde(default)]
    cwd: Option<String>,
    /// Seconds until it is killed; the call's own deadline holds anyway.
    #[serde(default)]
    timeout: Option<f64>,
    /// Raise an error unless it exits with 0.
    #[serde(default)]
    check: bool,
}

/// How a command went.
#[derive(JsonSchema)]
#[schemars(inline)]
struct Output {
    /// What it wrote to its standard output.
    stdout: Bytes,
    /// What it wrote to its standard error.
    stderr: Bytes,
    /// Its exit code; 128 and the number of the signal that killed it.
    exit_code: i64,
}

impl From<Output> for Value {
    fn from(output: Output) -> Self {
        Value::object([
            ("stdout", output.stdout.into()),
            ("stderr", output.stderr.into()),
            ("exit_code", output.exit_code.into()),
        ])
    }
}

async fn run(call: Call, args: Run) -> Result<Output> {
    let allowed = call.grants().exec("exec.run", &args.cmd)?;
    #[cfg(unix)]
    return running::run(call, allowed, args).await;
    #[cfg(not(unix))]
    return Err(moonlark_core::Problem::unavailable(format!(
        "{} cannot be run: commands need a Unix system",
        allowed.command()
    ))
    .retryable_if(false));
}

/// Elsewhere no command is run, so nobody asks.
#[cfg(not(unix))]
pub fn supervise_if_asked() {}
