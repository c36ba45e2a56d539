//! The `sqlite` module where the machine sets bounds of its own: a file that
//! may only be read.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Project, moonlark};

const SCRIPT: &str = r#"
tool = { name = "sql", description = "", parameters = { type = "object" } }
function tool.execute(p)
    if p.change then return sqlite.execute("data.db", p.change) end
    return sqlite.query("data.db", p.sql)
end
"#;

/// The binary as a user whom file modes mean something to.
fn as_nobody(project: &Project) -> Command {
    if !is_root() {
        return moonlark();
    }
    // The build folder may be closed to others.
    let copy = project.path("moonlark");
    if !copy.exists() {
        std::fs::copy(env!("CARGO_BIN_EXE_moonlark"), &copy).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(copy);
    command.env("HOME", "/nonexistent");
    command
}

fn is_root() -> bool {
    // SAFETY: asks the kernel for a number.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn a_file_that_may_only_be_read_is_read_and_says_why_it_does_not_change() {
    let project = Project::new(&[
        ("tools/sql.lua", SCRIPT),
        (
            "moonlark.toml",
            "[tools.script.sql]\npath = \"tools/sql.lua\"\nallow = [\"sql:write\"]\n",
        ),
    ]);
    for change in ["CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (7)"] {
        let args = json!({ "change": change }).to_string();
        assert!(project.run(&["call", "sql", "--args", &args]).status.success());
    }
    let mode = |name: &str, mode: u32| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(project.path(name), mode).unwrap();
    };
    mode(".", 0o755);
    mode("tools/data.db", 0o444);
    mode("tools", 0o555);
    let call = |args: Value| -> Value {
        let run = as_nobody(&project)
            .args(["call", "sql", "--json", "--args", &args.to_string()])
            .current_dir(project.path("."))
            .output()
            .unwrap();
        serde_json::from_slice(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"))
    };
    assert_eq!(call(json!({"sql": "SELECT a FROM t"})), json!({"result": [{"a": 7}]}));
    let refused = call(json!({"change": "INSERT INTO t VALUES (8)"}));
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("data.db is read-only"), "{refused}");
    mode("tools", 0o755);
    assert_eq!(call(json!({"sql": "SELECT count(*) AS n FROM t"})), json!({"result": [{"n": 1}]}));
}
