//! `exec`: commands of this machine, never through a shell.
//!
//! Here stand the function and its documentation. [`command`] finds the program
//! and makes its environment, [`process_run`] feeds it and reads what it says,
//! and `moonlark-child` ends everything the command has started, whatever
//! becomes of Moonlark.
mod command;
mod process_run;

use moonlark_core::value::TextOrBytes;
use moonlark_core::{Module, Result, Value};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::args::{ScriptList, ScriptTable};

pub(crate) fn module() -> Module {
    Module::new(
        "exec",
        "Run commands of the machine. Both have to agree: the script's author, in allowed_exec, \
         and the operator, in allow.",
    )
    .async_function(
        "run",
        "Run a command and wait for its end. There is no shell: the arguments arrive as they are, \
         and one that begins with - is an option to most commands, so put -- before what others \
         wrote. The command sees PATH, HOME, TMPDIR, TZ and the language of Moonlark's own \
         environment, nothing else. When it ends, or its time does, all that it started ends too.",
        run,
    )
    .positional_params(&["args"])
    .needs("exec:NAME")
    .with_side_effects()
    .mocked_example(
        json!({"cmd": "git", "args": ["branch", "--show-current"]}),
        json!({"stdout": "main\n", "stderr": "", "exit_code": 0, "success": true}),
    )
    .fails(json!({"cmd": "git", "args": ["status"]}), "may not run git")
    .fails(json!({"cmd": "./git"}), "neither a bare name nor an absolute path")
    .fails(json!({"cmd": "git status"}), "neither a bare name nor an absolute path")
    .fails(json!({"cmd": "git", "args": "status"}), "args")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExecRunArgs {
    /// The command: a name that is looked up in Moonlark's PATH, or an absolute
    /// path, exactly as in allowed_exec.
    cmd: String,
    /// Its arguments, one by one.
    #[schemars(with = "Option<Vec<String>>")]
    args: Option<ScriptList>,
    /// What it reads from its standard input; nothing when not given.
    stdin: Option<TextOrBytes>,
    /// Environment variables to set.
    #[schemars(with = "Option<std::collections::BTreeMap<String, String>>")]
    env: Option<ScriptTable>,
    /// The folder to run in, relative to the script's directory; that itself
    /// when not given.
    cwd: Option<String>,
    /// Seconds until it is killed; the call's own deadline holds anyway.
    timeout: Option<f64>,
    /// Raise an error unless it exits with 0.
    #[serde(default)]
    check: bool,
}

/// How a command went.
#[derive(JsonSchema)]
#[schemars(inline)]
struct ExecOutput {
    /// What it wrote to its standard output.
    stdout: TextOrBytes,
    /// What it wrote to its standard error.
    stderr: TextOrBytes,
    /// Its exit code; 128 and the number of the signal that killed it.
    exit_code: i64,
    /// Whether that is 0.
    success: bool,
}

impl From<ExecOutput> for Value {
    fn from(output: ExecOutput) -> Self {
        Value::from_fields([
            ("stdout", output.stdout.into()),
            ("stderr", output.stderr.into()),
            ("exit_code", output.exit_code.into()),
            ("success", output.success.into()),
        ])
    }
}

async fn run(call: Call, args: ExecRunArgs) -> Result<ExecOutput> {
    let allowed = call.grants().check_exec("exec.run", &args.cmd)?;
    process_run::run_command(call, allowed, args).await
}

#[cfg(all(test, unix))]
mod tests {
    use std::path::Path;

    use moonlark_core::tool::CallScope;
    use serde_json::json;

    use crate::test_calls::{problem, scope};

    fn scope_declaring(grants: &[&str], commands: &[&str]) -> CallScope {
        let mut scope = scope(Path::new("."), grants);
        let commands = commands.iter().map(|command| (*command).to_owned()).collect();
        scope.grants = scope.grants.with_declared_commands(commands);
        scope
    }

    #[tokio::test]
    async fn author_and_operator_have_to_agree() {
        let args = json!({"cmd": "sh"});
        assert_eq!(
            problem(scope_declaring(&["exec:sh"], &[]), "exec.run", args.clone()).await,
            "error[denied]: exec.run may not run sh, which the script does not declare\nhint: add \"sh\" to allowed_exec in the script"
        );
        assert_eq!(
            problem(scope_declaring(&[], &["sh"]), "exec.run", args).await,
            "error[denied]: exec.run may not run sh\nhint: add \"exec:sh\" to allow for tools.script.test in moonlark.toml"
        );
    }

    #[tokio::test]
    async fn what_is_wrong_is_said_before_anything_starts() {
        for (args, expected) in [
            (
                json!({"cmd": "moonlark-missing"}),
                "error[unavailable]: exec.run: moonlark-missing is not installed\nhint: install it in a folder of the PATH that Moonlark is started with",
            ),
            (
                json!({"cmd": "sh", "timeout": 0}),
                "error[bad_request]: exec.run: timeout must be a number of seconds over 0, got 0",
            ),
            (
                json!({"cmd": "sh", "timeout": -1}),
                "error[bad_request]: exec.run: timeout must be a number of seconds over 0, got -1",
            ),
            (
                json!({"cmd": "sh", "args": ["a", 5]}),
                "error[bad_request]: exec.run: args[2] must be a string, got integer",
            ),
            (
                json!({"cmd": "sh", "cwd": "../.."}),
                "error[denied]: exec.run may not leave the script's directory\nhint: give cwd as a folder below the script, such as \"data\"",
            ),
            // These tests are not the binary that could watch over it. What
            // happens there is in the integration suite.
            (
                json!({"cmd": "sh"}),
                "error[unavailable]: exec.run: sh cannot be started: this program is not the moonlark binary",
            ),
        ] {
            let allowed =
                scope_declaring(&["exec:sh", "exec:moonlark-missing"], &["sh", "moonlark-missing"]);
            assert_eq!(problem(allowed, "exec.run", args).await, expected);
        }
    }
}
