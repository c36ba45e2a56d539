//! Commands that scripts run: who may, what they see, and that none is left.

use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::harness::{PATIENCE, Project, Server, wait_for};
use crate::processes::{fifo, is_dead, marked, signal, status, wait_for_death};

/// Runs what it is told to, of what its author declares.
const RUN: &str = r#"
tool = {
    name = "run", description = "Run a command",
    allowed_exec = { "sh", "cat", "env", "sleep", "head", "yes", "local-tool", "/bin/sh", "only-declared" },
    parameters = {
        { name = "cmd", type = "string", required = true },
        { name = "args", type = "array", default = {} },
        { name = "opts", type = "object", default = {} },
        { name = "encoded", type = "boolean", default = false },
    },
}
function tool.execute(params)
    local done = exec.run(params.cmd, params.args, params.opts)
    if params.encoded then done.stdout = base64.encode(done.stdout) end
    return done
end
"#;

const CONFIG: &str = r#"
[tools.script.run]
path = "tools/run.lua"
allow = ["exec:sh", "exec:cat", "exec:env", "exec:sleep", "exec:head", "exec:yes", "exec:local-tool", "exec:only-granted"]
"#;

fn project() -> Project {
    Project::new(&[("tools/run.lua", RUN), ("moonlark.toml", CONFIG)])
}

/// The result, or `code: message` and the hint.
fn run(server: &Server, args: Value) -> Result<Value, String> {
    let (_, answer) = server.post("run", &args);
    match answer.get("error") {
        None => Ok(answer["result"].clone()),
        Some(error) => {
            let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
            Err([text("code"), text("message"), text("hint")].join("; "))
        }
    }
}

fn sh(server: &Server, script: &str, opts: Value) -> Result<Value, String> {
    run(server, json!({"cmd": "sh", "args": ["-c", script], "opts": opts}))
}

fn done(stdout: &str) -> Result<Value, String> {
    Ok(json!({"stdout": stdout, "stderr": "", "exit_code": 0, "success": true}))
}

/// A pipe in the project's folder by which a command tells us something: we
/// wait for the event itself.
struct Told(mpsc::Receiver<String>);

impl Told {
    fn new(path: &Path) -> Told {
        fifo(path);
        let (sender, told) = mpsc::channel();
        let path = path.to_owned();
        std::thread::spawn(move || {
            let mut text = String::new();
            std::fs::File::open(path).unwrap().read_to_string(&mut text).unwrap();
            let _ = sender.send(text);
        });
        Told(told)
    }

    /// The numbers of processes it tells.
    fn pids(&self) -> Vec<u32> {
        let text = self.0.recv_timeout(PATIENCE).expect("a word from the command");
        pids(&text)
    }
}

fn pids(text: &str) -> Vec<u32> {
    let pids: Vec<u32> = text.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert!(!pids.is_empty());
    pids
}

/// The server's own number: a command's supervisor is its child.
fn server_pid(server: &Server) -> u32 {
    let result =
        sh(server, "while read -r line; do echo \"$line\"; done < /proc/$PPID/status", json!({}))
            .unwrap();
    let text = result["stdout"].as_str().unwrap().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    line.trim().parse().unwrap()
}

fn executable(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_command_that_the_author_does_not_declare_is_denied() {
    let project = project();
    assert_eq!(
        run(&project.serve(), json!({"cmd": "only-granted"})),
        Err("denied; tools/run.lua:13: exec.run may not run only-granted, which the script does not declare; add \"only-granted\" to allowed_exec in the script".to_owned())
    );
}

#[test]
fn a_command_that_the_operator_does_not_grant_is_denied() {
    let project = project();
    assert_eq!(
        run(&project.serve(), json!({"cmd": "only-declared"})),
        Err("denied; tools/run.lua:13: exec.run may not run only-declared; add \"exec:only-declared\" to allow for tools.script.run in moonlark.toml".to_owned())
    );
}

#[test]
fn no_other_spelling_of_a_command_is_accepted() {
    let project = project();
    let server = project.serve();
    for cmd in [
        "./sh",
        "../bin/sh",
        "bin/sh",
        "/bin/sh",
        "/usr/bin/sh",
        "//bin/sh",
        "/bin/../bin/sh",
        "sh ",
        " sh",
        "sh\t",
        "sh\n",
        "sh\u{0}x",
        "sh\u{0}",
        "sh -c",
        "SH",
        "s*",
        "",
        ".",
        "..",
        "~/sh",
        "$SHELL",
    ] {
        let refused = run(&server, json!({"cmd": cmd})).unwrap_err();
        assert!(refused.starts_with("denied; "), "{cmd:?}: {refused}");
    }
}

#[test]
fn a_command_is_never_looked_up_in_the_current_folder() {
    let project = project();
    executable(&project.path("tools/local-tool"), "#!/bin/sh\necho wrong\n");
    executable(&project.path("local-tool"), "#!/bin/sh\necho wrong\n");
    let server = project.serve_with(&[], &[("PATH", ":.:tools::/usr/bin:/bin:")]);
    let own = project.path("tools");
    for opts in [json!({}), json!({"cwd": "."}), json!({"env": {"PATH": own.to_str().unwrap()}})] {
        assert_eq!(
            run(&server, json!({"cmd": "local-tool", "opts": opts})),
            Err("unavailable; tools/run.lua:13: exec.run: local-tool is not installed; install it in a folder of the PATH that Moonlark is started with".to_owned())
        );
    }
    // And the command itself finds a PATH without them.
    assert_eq!(sh(&server, "echo $PATH", json!({})), done("/usr/bin:/bin\n"));
}

#[test]
fn arguments_arrive_as_they_are() {
    let project = project();
    let server = project.serve();
    let odd = [
        "-rf", "--", "--help", "$(id)", "`id`", "a; id", "*", "a b", "", "'\"\\", "ä🌙\n", "|& >x",
    ];
    let mut args = vec!["-c", "for a; do printf '[%s]' \"$a\"; done", "sh"];
    args.extend(odd);
    let expected: String = odd.iter().map(|arg| format!("[{arg}]")).collect();
    assert_eq!(run(&server, json!({"cmd": "sh", "args": args})), done(&expected));
    let refused = run(&server, json!({"cmd": "cat", "args": ["a\u{0}b"]}));
    assert_eq!(
        refused,
        Err("tool_error; tools/run.lua:13: exec.run: args[1] contains a NUL byte; ".to_owned())
    );
    let long = "x".repeat(1_000_000);
    let refused = run(&server, json!({"cmd": "cat", "args": [long]}));
    assert_eq!(refused, Err("tool_error; tools/run.lua:13: exec.run: the arguments of cat are too long; give it long text by stdin".to_owned()));
}

#[test]
fn a_command_sees_nothing_of_moonlarks_environment_but_the_common() {
    let project = project();
    let env = [
        ("PATH", "/usr/bin:/bin"),
        ("LANG", "C.UTF-8"),
        ("LC_TIME", "C"),
        ("TMPDIR", "/tmp"),
        ("TZ", "UTC"),
        ("SECRET_TOKEN", "s3cr3t"),
        ("LD_LIBRARY_PATH", "/nowhere"),
        ("SSH_AUTH_SOCK", "/nowhere"),
    ];
    let server = project.serve_with(&[], &env);
    let opts = json!({"env": {"OWN": "a=b\nc", "TZ": "Asia/Tokyo"}});
    let result = run(&server, json!({"cmd": "env", "args": ["-0"], "opts": opts})).unwrap();
    let mut seen: Vec<&str> = result["stdout"].as_str().unwrap().split_terminator('\0').collect();
    // The test runner's own may be there too.
    seen.retain(|line| !line.starts_with("LC_") || line.starts_with("LC_TIME="));
    seen.sort_unstable();
    let expected = [
        "HOME=/nonexistent",
        "LANG=C.UTF-8",
        "LC_TIME=C",
        "OWN=a=b\nc",
        "PATH=/usr/bin:/bin",
        "TMPDIR=/tmp",
        "TZ=Asia/Tokyo",
    ];
    assert_eq!(seen, expected);
    let opts = json!({"env": {"LD_PRELOAD": "./evil.so"}});
    let refused = run(&server, json!({"cmd": "env", "opts": opts})).unwrap_err();
    assert!(refused.starts_with("denied; "), "{refused}");
}

#[test]
fn a_command_runs_in_the_scripts_directory_or_below_it() {
    let project = project();
    std::fs::create_dir(project.path("tools/data")).unwrap();
    std::fs::write(project.path("tools/data/file"), "").unwrap();
    symlink("/", project.path("tools/out")).unwrap();
    let server = project.serve();
    let here = |opts: Value| sh(&server, "pwd -P", opts);
    let tools = project.path("tools").canonicalize().unwrap();
    assert_eq!(here(json!({})), done(&format!("{}\n", tools.display())));
    assert_eq!(here(json!({"cwd": "data"})), done(&format!("{}/data\n", tools.display())));
    for outside in ["..", "/", "/tmp", "data/../..", "out", "out/tmp"] {
        let refused = here(json!({"cwd": outside})).unwrap_err();
        assert_eq!(
            refused,
            "denied; tools/run.lua:13: exec.run may not leave the script's directory; give cwd as a folder below the script, such as \"data\"",
            "{outside}"
        );
    }
    assert_eq!(
        here(json!({"cwd": "data/file"})),
        Err("tool_error; tools/run.lua:13: exec.run: data/file is not a folder; ".to_owned())
    );
    assert_eq!(
        here(json!({"cwd": "none"})),
        Err("tool_error; tools/run.lua:13: exec.run: no folder none; ".to_owned())
    );
}

#[test]
fn a_command_that_waits_for_input_finds_the_end() {
    let project = project();
    let server = project.serve();
    assert_eq!(run(&server, json!({"cmd": "cat"})), done(""));
    let long = "line\n".repeat(200_000);
    assert_eq!(run(&server, json!({"cmd": "cat", "opts": {"stdin": long}})), done(&long));
    // One that does not read what it is given.
    assert_eq!(sh(&server, "echo done", json!({"stdin": long})), done("done\n"));
    // One that closes its input and goes on.
    assert_eq!(sh(&server, "exec <&-; echo done", json!({"stdin": long})), done("done\n"));
}

#[test]
fn exit_codes_and_signals_are_told() {
    let project = project();
    let server = project.serve();
    let code = |script: &str| sh(&server, script, json!({})).unwrap()["exit_code"].clone();
    assert_eq!(code("exit 0"), 0);
    assert_eq!(code("exit 7"), 7);
    assert_eq!(code("exit 255"), 255);
    assert_eq!(code("kill -9 $$"), 137);
    assert_eq!(code("kill -15 $$"), 143);
    // Writing to a reader that is gone ends a command as it does in a terminal.
    assert_eq!(code("yes | head -n 1 > /dev/null"), 0);
    let check = |script: &str| sh(&server, script, json!({"check": true}));
    assert_eq!(check("echo fine"), done("fine\n"));
    assert_eq!(
        check("echo first >&2; echo 'fatal: last' >&2; exit 3"),
        Err("tool_error; tools/run.lua:13: exec.run: sh exited with 3: fatal: last; ".to_owned())
    );
    assert_eq!(
        check("kill -9 $$"),
        Err("tool_error; tools/run.lua:13: exec.run: sh was killed by signal 9; ".to_owned())
    );
}

#[test]
fn output_that_is_no_text_stays_as_it_is() {
    let project = project();
    let server = project.serve();
    let args = json!({"cmd": "sh", "args": ["-c", "printf '\\377\\000a'"], "encoded": true});
    assert_eq!(run(&server, args), done("/wBh"));
}

#[test]
fn endless_output_is_cut_off_and_never_held() {
    let project = project();
    let server = project.serve();
    let pid = server_pid(&server);
    let before = status(pid, "VmHWM:");
    for (cmd, args) in [("head", json!(["-c", "1000000000", "/dev/zero"])), ("yes", json!([]))] {
        assert_eq!(
            run(&server, json!({"cmd": cmd, "args": args})),
            Err(format!(
                "limit; exec.run: {cmd} wrote more than 10 MB to stdout; have it write less, or raise limits.http_body"
            ))
        );
    }
    assert_eq!(
        sh(&server, "exec yes >&2", json!({})),
        Err("limit; exec.run: sh wrote more than 10 MB to stderr; have it write less, or raise limits.http_body".to_owned())
    );
    let grown = status(pid, "VmHWM:") - before;
    assert!(grown < 100_000, "{grown} KB more");
}

#[test]
fn a_command_that_ignores_sigterm_is_killed_in_time() {
    let project = project();
    let server = project.serve();
    let told = Told::new(&project.path("told"));
    let script = format!(
        "trap '' TERM HUP INT; sleep 1000 & echo $$ $! > '{}'; wait; sleep 1000",
        project.path("told").display()
    );
    assert_eq!(
        sh(&server, &script, json!({"timeout": 1})),
        Err("tool_error; tools/run.lua:13: exec.run: sh did not end within 1 second; ".to_owned())
    );
    // They were dead before the answer came.
    assert!(told.pids().into_iter().all(is_dead));
}

/// Starts a process in a session of its own, twice forked away, deaf to
/// signals, that would write `late` to a file; ends when that runs.
fn escape(project: &Project) -> String {
    let (pipe, late) = (project.path("escaped"), project.path("late"));
    fifo(&pipe);
    executable(
        &project.path("escape.sh"),
        &format!(
            "trap '' TERM HUP INT\necho $$ > '{}'\nsleep 5\necho late > '{}'\n",
            pipe.display(),
            late.display()
        ),
    );
    format!(
        "( ( setsid sh '{}' & ) & ); read pid < '{}'",
        project.path("escape.sh").display(),
        pipe.display()
    )
}

#[test]
fn what_a_command_leaves_behind_ends_with_it() {
    let project = project();
    let server = project.serve();
    let script = format!("{}; echo $pid", escape(&project));
    let result = sh(&server, &script, json!({})).unwrap();
    assert_eq!(result["exit_code"], 0);
    assert!(pids(result["stdout"].as_str().unwrap()).into_iter().all(is_dead));
    assert!(!project.path("late").exists());
}

#[test]
fn a_process_that_keeps_forking_away_is_caught() {
    let project = project();
    let hop = project.path("hop.sh");
    std::fs::write(&hop, "echo >> \"$0.count\"\nsetsid sh \"$0\" &\n").unwrap();
    let server = project.serve();
    let mark = format!("HOPPER={}", std::process::id());
    let opts = json!({"timeout": 1, "env": {"HOPPER": std::process::id().to_string()}});
    let hops = format!("for i in 1 2 3 4; do sh '{}'; done; sleep 1000", hop.display());
    let ended = sh(&server, &hops, opts).unwrap_err();
    assert!(ended.contains("sh did not end within 1 second"), "{ended}");
    assert_eq!(marked(&mark), Vec::<u32>::new());
    let count = std::fs::metadata(project.path("hop.sh.count")).unwrap().len();
    assert!(count > 20, "{count} hops only");
}

#[test]
fn the_calls_deadline_ends_commands() {
    let project = Project::new(&[
        ("tools/run.lua", RUN),
        ("moonlark.toml", &CONFIG.replace("path =", "timeout = 2\npath =")),
    ]);
    let server = project.serve();
    let told = Told::new(&project.path("told"));
    let script = format!(
        "{}; echo $$ $pid > '{}'; sleep 1000",
        escape(&project),
        project.path("told").display()
    );
    assert_eq!(
        sh(&server, &script, json!({})),
        Err("timeout; tool 'run' timed out after 2 seconds; ".to_owned())
    );
    told.pids().into_iter().for_each(wait_for_death);
    assert!(!project.path("late").exists());
}

/// Begin a call that does not end by itself; the numbers of its processes, and
/// the connection that asked.
fn begin(project: &Project, server: &Server) -> (Vec<u32>, std::net::TcpStream) {
    let told = Told::new(&project.path("told"));
    let script = format!(
        "{}; echo $PPID $$ $pid > '{}'; sleep 1000",
        escape(project),
        project.path("told").display()
    );
    let body = json!({"cmd": "sh", "args": ["-c", script]}).to_string();
    let mut stream = std::net::TcpStream::connect(&server.address).unwrap();
    let head = format!(
        "POST /tools/run HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        server.address,
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    (told.pids(), stream)
}

#[test]
fn a_caller_that_goes_away_ends_commands() {
    let project = project();
    let server = project.serve();
    let (pids, stream) = begin(&project, &server);
    drop(stream);
    pids.into_iter().for_each(wait_for_death);
    assert!(!project.path("late").exists());
    // No zombie of it stays with the server, and it goes on.
    assert_eq!(sh(&server, "echo on", json!({})), done("on\n"));
    let server = server_pid(&server);
    let children = || {
        let threads = std::fs::read_dir(format!("/proc/{server}/task")).unwrap().flatten();
        threads
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
            .collect::<String>()
    };
    wait_for("the end of all children", || children().is_empty());
}

#[test]
fn a_killed_moonlark_leaves_no_process() {
    let project = project();
    let server = project.serve();
    let pid = server_pid(&server);
    let (pids, _stream) = begin(&project, &server);
    assert_eq!(pids.len(), 3);
    assert!(!pids.iter().copied().any(is_dead));
    signal(pid, libc::SIGKILL);
    pids.into_iter().for_each(wait_for_death);
    assert!(!project.path("late").exists());
}

#[test]
fn a_supervisor_holds_nothing_of_moonlark_and_is_small() {
    let project = project();
    // Not even what Moonlark was given itself.
    // SAFETY: it takes a number.
    assert!(unsafe { libc::dup(2) } > 2);
    let server = project.serve();
    let (pids, _stream) = begin(&project, &server);
    let open = |pid: u32| -> Vec<String> {
        let mut all: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .flatten()
            .map(|entry| {
                let target = std::fs::read_link(entry.path()).unwrap_or_default();
                let kind = target.to_string_lossy().split(':').next().unwrap().to_owned();
                format!("{} {kind}", entry.file_name().to_string_lossy())
            })
            .collect();
        all.sort();
        all
    };
    assert_eq!(open(pids[0]), ["0 socket", "1 /dev/null", "2 /dev/null"]);
    // The fourth is the folder that is being listed.
    assert_eq!(sh(&server, "ls /proc/self/fd", json!({})), done("0\n1\n2\n3\n"));
    let own = status(pids[0], "RssAnon:");
    // Most of it is what the loader writes: the addresses in a program of this size.
    assert!(own < 5_000, "{own} KB");
}

#[test]
fn what_cannot_be_run_says_why() {
    let project = Project::new(&[
        ("tools/run.lua", &RUN.replace("/bin/sh", "PLACE/noise")),
        ("moonlark.toml", &CONFIG.replace("exec:local-tool", "exec:PLACE/noise")),
    ]);
    let place = project.path("").canonicalize().unwrap();
    for file in ["tools/run.lua", "moonlark.toml"] {
        let text = std::fs::read_to_string(project.path(file)).unwrap();
        project.write(file, &text.replace("PLACE", place.to_str().unwrap()));
    }
    let noise = place.join("noise");
    let server = project.serve();
    let attempt = || run(&server, json!({"cmd": noise.to_str().unwrap()}));
    let refused = |why: &str| {
        Err(format!("unavailable; tools/run.lua:13: exec.run: {} {why}; ", noise.display()))
    };
    assert_eq!(attempt(), refused("is not a program on this machine"));
    std::fs::write(&noise, "noise").unwrap();
    assert_eq!(attempt(), refused("is not a program on this machine"));
    // No shell takes over where the system says no.
    executable(&noise, "echo wrong\n");
    assert_eq!(attempt(), refused("cannot be started: it is not a program"));
    executable(&noise, "#!/nowhere/sh\n");
    assert_eq!(
        attempt(),
        refused("cannot be started: it, or what it is to be run with, is not there")
    );
    executable(&noise, "#!/bin/sh\necho fine\n");
    assert_eq!(attempt(), done("fine\n"));
}
