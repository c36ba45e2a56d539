//! Agent scripts on the command line: `run`, `repl`, `search-tools`, `docs`.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::harness::{Project, moonlark, repo};

const GREET: &str = r#"
tool = {
    name = "greet",
    description = "Greet somebody by name",
    parameters = { { name = "name", type = "string", required = true, description = "Whom" } },
    output = { type = "object", properties = { greeting = { type = "string" } }, required = { "greeting" } },
}

function tool.execute(params)
    if params.name == "nobody" then error("nobody is there") end
    return { greeting = "Hello, " .. params.name .. "!" }
end
"#;

fn project() -> Project {
    Project::new(&[("tools/greet.lua", GREET)])
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Run `script` from stdin with these options.
fn run(project: &Project, script: &str, options: &[&str]) -> Output {
    let mut command = moonlark();
    command.args(["run", "-"]).args(options).current_dir(project.path(""));
    fed(command, script)
}

fn fed(mut command: Command, input: &str) -> Output {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn run_prints_the_result_and_says_what_was_called() {
    let project = project();
    let script = "print('hi') return sdk.tools.greet({ name = 'Ann' })";
    let output = run(&project, script, &[]);
    assert_eq!(text(&output.stdout), "{\n  \"greeting\": \"Hello, Ann!\"\n}\n");
    let said = text(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert_eq!(lines[0], "log: hi");
    assert!(lines[1].starts_with("1 call in "), "{said}");
    assert!(lines[2].starts_with("  greet  │") && lines[2].ends_with("ms"), "{said}");
    assert_eq!(output.status.code(), Some(0));

    let quiet = run(&project, script, &["--quiet"]);
    assert_eq!((text(&quiet.stdout), text(&quiet.stderr).as_str()), (text(&output.stdout), ""));
}

#[test]
fn run_gives_result_logs_and_calls_as_json() {
    let project = project();
    let script = "print('hi') return { sdk.tools.greet({ name = 'Ann' }).greeting, 2 }";
    let output = run(&project, script, &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["result"], json!(["Hello, Ann!", 2]));
    assert_eq!(report["logs"], json!(["hi"]));
    assert_eq!(report["calls"][0]["tool"], "greet");
    assert_eq!(report["calls"][0]["outcome"], "ok");

    let output = run(&project, "return sdk.tools.greet({ name = 'nobody' })", &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["error"]["code"], "tool_error");
    assert_eq!(report["calls"][0]["outcome"], "tool_error");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), String::new()));
}

#[test]
fn a_failing_script_shows_its_line() {
    let project = project();
    project.write(
        "scripts/fails.luau",
        "local who = 'nobody'\nreturn sdk.tools.greet({ name = who })\n",
    );
    let output = project.run(&["run", "scripts/fails.luau", "--quiet"]);
    let said = text(&output.stderr);
    assert!(said.starts_with("error[tool_error]: "), "{said}");
    assert!(said.contains("nobody is there"), "{said}");
    let place = "\n  --> scripts/fails.luau:2\n   2 | return sdk.tools.greet({ name = who })\n";
    assert!(said.contains(place), "{said}");
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""));
}

#[test]
fn a_script_that_is_not_there_and_wrong_usage_have_their_exit_codes() {
    let project = project();
    let output = project.run(&["run", "missing.luau"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("error[bad_request]: missing.luau cannot be read"));
    assert_eq!(project.run(&["run"]).status.code(), Some(2));
    assert_eq!(project.run(&["run", "a.luau", "--timeout", "-1"]).status.code(), Some(2));
}

#[test]
fn check_finds_a_mistake_and_calls_nothing() {
    let project = project();
    let wrong =
        run(&project, "print('ran')\nreturn sdk.tools.greet({ nam = 'Ann' })", &["--check"]);
    let said = text(&wrong.stderr);
    assert!(said.contains("nam") && !said.contains("log: ran"), "{said}");
    assert_eq!(wrong.status.code(), Some(1));
    let right =
        run(&project, "print('ran')\nreturn sdk.tools.greet({ name = 'Ann' })", &["--check"]);
    assert_eq!((right.status.code(), text(&right.stdout).as_str()), (Some(0), "nothing wrong\n"));
    assert!(!text(&right.stderr).contains("ran"), "{}", text(&right.stderr));
}

#[cfg(unix)]
#[test]
fn an_interrupt_stops_the_script() {
    let project = project();
    project.write("scripts/long.luau", "print('began') sleep(300) return 1");
    let mut child = moonlark()
        .args(["run", "scripts/long.luau", "--timeout", "25"])
        .current_dir(project.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = crate::harness::Log::follow(child.stderr.take().unwrap());
    log.wait_for("log: began");
    // SAFETY: a signal to a child that has not been waited for.
    unsafe { libc::kill(i32::try_from(child.id()).unwrap(), libc::SIGINT) };
    log.wait_for("error[cancelled]: the script was stopped");
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn the_repl_runs_entries_one_by_one() {
    let project = project();
    let mut command = moonlark();
    command.args(["repl", "--quiet"]).current_dir(project.path(""));
    let entries = "1 + 1\nlocal a = 1\nsdk.tools.greet({ name = 'Ann' })\n#last.greeting\nfor i = 1, 2 do\nprint(i)\nend\nsdk.tools.gret({})\n'still there'\n";
    let output = fed(command, entries);
    assert_eq!(
        text(&output.stdout),
        "2\n{\n  \"greeting\": \"Hello, Ann!\"\n}\n11\nstill there\n",
        "{}",
        text(&output.stderr)
    );
    let said = text(&output.stderr);
    assert!(said.contains("greet"), "{said}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_repl_keeps_variables_and_functions_from_entry_to_entry() {
    let project = project();
    let repl = |entries: &str| {
        let mut command = moonlark();
        command.args(["repl", "--quiet"]).current_dir(project.path(""));
        fed(command, entries)
    };
    for (entries, expected) in [
        ("local x = 5\nx\n", "5\n"),
        ("x = 1\nx += 1\nx * 10\n", "20\n"),
        ("local t = { 1 }\ntable.insert(t, 2)\n#t\n", "2\n"),
        ("local x = 2\nlocal function f(n)\n  return n * x\nend\nf(4)\nx = 3\nf(4)\n", "8\n12\n"),
        (
            "local g = sdk.tools.greet\nlocal name = 'Ann'\ng({ name = name }).greeting\n",
            "Hello, Ann!\n",
        ),
        ("local a, b = 1, 2 return a + b\na - b\n", "3\n-1\n"),
        // What fails leaves the variables as they were.
        ("local x = 1\nx = 2 error('no')\nx\n", "1\n"),
        ("1\nexit\n2\n", "1\n"),
        ("quit\n2\n", ""),
    ] {
        let output = repl(entries);
        let said = text(&output.stderr);
        assert_eq!(text(&output.stdout), expected, "{entries}\n{said}");
        assert_eq!(output.status.code(), Some(0), "{entries}");
    }
    let failed = repl("local x = 1\nlocal y = x\nreturn x.y.z\n");
    let said = text(&failed.stderr);
    assert!(said.contains("--> script:1") && said.contains("1 | return x.y.z"), "{said}");
    assert!(text(&repl("help\n").stdout).contains("what the entry before gave"));
    let promise = text(&repl("local p = tools.greet({ name = 'x' })\n").stderr);
    assert!(promise.contains("p does not stay"), "{promise}");
}

/// Types into a terminal and shows what is on it.
#[cfg(target_os = "linux")]
const TERMINAL: &str = r#"
import os, pty, select, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.execv(sys.argv[1], [sys.argv[1], "repl"])
shown = b""
def until(text):
    global shown
    end = time.time() + 60
    while text not in shown:
        if time.time() > end:
            sys.exit(f"no {text!r} in {shown!r}")
        if not select.select([fd], [], [], 1)[0]:
            continue
        try:
            shown += os.read(fd, 4096)
        except OSError:
            sys.exit(f"ended: {shown!r}")
    shown = shown.split(text, 1)[1]
until(b"> ")
os.write(fd, b"sdk.to\t")
until(b"sdk.tools")
os.write(fd, b".gr\t")
until(b".greet")
os.write(fd, b"{na\t")
until(b"name = ")
os.write(fd, b"'Ann'}\r")
until(b"Hello, Ann!")
until(b"> ")
os.write(fd, b"if true then\r")
until("… ".encode())
os.write(fd, b"return 'both ' .. 'lines'\r")
until("… ".encode())
os.write(fd, b"end\r")
until(b"both lines")
until(b"> ")
os.write(fd, b"local kept = 'this stays'\r")
until(b"> ")
os.write(fd, b"kept .. '!'\r")
until(b"this stays!")
until(b"> ")
os.write(fd, b"sleep(2.5) return 'slept'\r")
until(b" s, 0 calls done")
until(b"slept")
until(b"> ")
os.write(fd, b"\x04")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

#[cfg(target_os = "linux")]
#[test]
fn the_repl_completes_and_takes_several_lines() {
    let project = project();
    let binary = moonlark();
    let output = Command::new("python3")
        .args(["-c", TERMINAL])
        .arg(binary.get_program())
        .env("HOME", "/nonexistent")
        .current_dir(project.path(""))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let history = std::fs::read_to_string(project.path(".moonlark/history")).unwrap();
    assert!(history.contains("sdk.tools.greet{name = 'Ann'}"), "{history}");
}

#[test]
fn tools_are_searched_and_explained_as_agents_see_them() {
    let project = project();
    let found = project.run(&["search-tools", "say", "hello", "greet"]);
    assert!(text(&found.stdout).contains("sdk.tools.greet"), "{}", text(&found.stdout));
    let all = project.run(&["search-tools"]);
    assert!(text(&all.stdout).contains("tools"), "{}", text(&all.stdout));
    for name in ["greet", "sdk.tools.greet", "tools.greet"] {
        let docs = text(&project.run(&["docs", name]).stdout);
        let signature = "In agent scripts:\n  function sdk.tools.greet(args: { name: string }): { greeting: string }\n";
        assert!(docs.contains(signature), "{name}: {docs}");
    }
}

/// What an example prints; the project is the one in `examples/`, copied so that
/// nothing is written there.
fn example(script: &str) -> Value {
    let project = Project::new(&[]);
    for file in [
        "moonlark.toml",
        "extensions/csv_summary.star",
        "extensions/lib/answers.star",
        "tools/text_stats.lua",
        "weather/moonlark.toml",
        "weather/tools/forecast.lua",
        script,
    ] {
        let text = std::fs::read_to_string(repo().join("examples").join(file)).unwrap();
        // The other extensions are not needed here, and one page will do.
        let knowledge = "[connectors.filesystem.guide]\nroot = \"guide\"\n".to_owned();
        let text = if file == "moonlark.toml" { knowledge } else { text };
        project.write(file, &text);
    }
    project.write(
        "guide/calls.md",
        "# Parallel calls\n\nHow agents find a function, and call several at the same time.\n",
    );
    assert!(project.run(&["sync", "--quiet"]).status.success());
    let binary = moonlark();
    let weather = format!(
        "weather={} stdio --quiet --config weather/moonlark.toml",
        binary.get_program().to_str().unwrap()
    );
    let output = project.run(&["run", script, "--json", "--mcp", &weather]);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}{}", text(&output.stdout), text(&output.stderr)));
    report
}

#[test]
fn the_example_scripts_do_what_they_say() {
    let trip = example("scripts/trip.luau");
    assert_eq!(trip["result"]["looked_at"], 3, "{trip}");
    assert_eq!(trip["result"]["wanted_most"], "sun", "{trip}");
    assert_eq!(trip["result"]["read_on_the_way"], "Parallel calls", "{trip}");
    assert_eq!(trip["calls"].as_array().unwrap().len(), 6, "{trip}");
    let words = example("scripts/words.luau");
    assert_eq!(words["result"]["words"], 10, "{words}");
    let careful = example("scripts/careful.luau");
    assert_eq!(careful["result"]["found"], json!({"prices": 2}), "{careful}");
    let why = careful["result"]["failed"]["empty"].as_str().unwrap();
    assert!(why.ends_with("there are no rows below the header line"), "{careful}");
}
