//! What an operator reads: `doctor`, `check` and `config check`, the log about a server
//! that is down, `--help` and `docs`, and how parameters are written.

use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::harness::{Log, Project, moonlark, wait_for};

const GREET: &str = r#"
tool = {
    name = "greet",
    description = "Greet somebody",
    parameters = {
        { name = "name", type = "string", required = true },
        { name = "times", type = "integer", minimum = 1, maximum = 9, default = 1 },
        { name = "dry_run", type = "boolean" },
        { name = "tags", type = "array" },
    },
}
function tool.execute(params) return params end
"#;

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn doctor_marks_warnings_as_such_and_counts_what_it_found() {
    let config =
        "[server]\nport = 0\n[tools.script.greet]\npath = 'tools/greet.lua'\nalow = ['net:x']\n";
    let project = Project::new(&[("moonlark.toml", config), ("tools/greet.lua", GREET)]);
    let doctor = project.run(&["doctor"]);
    let warned = "  ! configuration: warning: alow in [tools.script.greet] is the script's own key, and looks like allow
      --> moonlark.toml:5:1
    hint: did you mean allow? If it is the script's own, write it in quotes: \"alow\" = …
";
    assert!(out(&doctor).contains(warned), "{}", out(&doctor));
    assert!(out(&doctor).ends_with("\nnothing wrong, 1 warning\n"), "{}", out(&doctor));
    assert!(doctor.status.success(), "a warning is no error");
    let report: Value = serde_json::from_slice(&project.run(&["doctor", "--json"]).stdout).unwrap();
    assert_eq!((&report["errors"], &report["warnings"]), (&json!(0), &json!(1)), "{report}");

    let wrong = format!("{config}[[policy.rules]]\ntools = ['greeet']\naction = 'deny'\n");
    project.write("moonlark.toml", &wrong);
    let doctor = project.run(&["doctor"]);
    assert!(out(&doctor).contains("  ✗ policy: error[bad_config]: "), "{}", out(&doctor));
    assert!(out(&doctor).ends_with("\n1 error, 1 warning\n"), "{}", out(&doctor));
    assert!(!doctor.status.success());
}

#[test]
fn doctor_warns_where_callers_approve_their_own_calls() {
    let config = "[server]\nport = 0\n[approvals]\nby = 'caller'\n";
    let project = Project::new(&[("moonlark.toml", config), ("tools/greet.lua", GREET)]);
    assert!(!out(&project.run(&["doctor"])).contains("approvals"), "no rule requires approval");
    let rule = "[[policy.rules]]\ntools = ['greet']\naction = 'approve'\n";
    project.write("moonlark.toml", &format!("{config}{rule}"));
    let doctor = project.run(&["doctor"]);
    let warned = "  ! approvals: warning: rules require approval, and approvals.by = \"caller\" lets callers approve their own calls
    hint: set approvals.by = \"operator\"
";
    assert!(out(&doctor).contains(warned), "{}", out(&doctor));
    assert!(out(&doctor).ends_with("\nnothing wrong, 1 warning\n"), "{}", out(&doctor));
    project.write("moonlark.toml", &format!("{config}{rule}").replace("caller", "operator"));
    assert!(!out(&project.run(&["doctor"])).contains("approvals"));
}

#[test]
fn doctor_names_some_of_many_changed_names_and_says_how_to_see_all() {
    let tool = |number: usize| {
        (
            format!("tools/{number:02}.lua"),
            GREET.replace("\"greet\"", &format!("\"greet.{number:02}\"")),
        )
    };
    let files: Vec<(String, String)> = (1..=13).map(tool).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let project = Project::new(&files);
    project.write("moonlark.toml", "[server]\nport = 0\n");
    let doctor = out(&project.run(&["doctor"]));
    let named = |number: usize| {
        format!(
            "greet.{number:02} is listed to MCP clients as greet_{number:02} (characters that models refuse)"
        )
    };
    let lines: Vec<&str> =
        doctor.lines().filter_map(|line| line.strip_prefix("  ✓ names: ")).collect();
    let rest = "and 3 more tools under another name: `moonlark doctor --json` names all";
    let some: Vec<String> = (1..=10).map(named).chain([rest.to_owned()]).collect();
    assert_eq!(lines, some);

    let report: Value = serde_json::from_slice(&project.run(&["doctor", "--json"]).stdout).unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    let all = findings.filter(|it| it["what"] == "names").map(|it| it["text"].as_str().unwrap());
    assert_eq!(all.collect::<Vec<_>>(), (1..=13).map(named).collect::<Vec<_>>());
}

#[test]
fn doctor_says_who_has_the_address() {
    let stranger = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = stranger.local_addr().unwrap();
    let config = |port: u16| format!("[server]\nport = {port}\n");
    let project =
        Project::new(&[("moonlark.toml", &config(taken.port())), ("tools/greet.lua", GREET)]);
    // It takes connections and says nothing.
    let doctor = project.run(&["doctor"]);
    let said = format!("  ✗ address: error[unavailable]: cannot listen on {taken}: ");
    assert!(out(&doctor).contains(&said), "{}{}", out(&doctor), err(&doctor));
    assert!(out(&doctor).ends_with("\n1 error\n") && !doctor.status.success());

    let other = Project::new(&[("tools/greet.lua", GREET)]);
    let server = other.serve();
    let port = server.address.rsplit(':').next().unwrap().parse().unwrap();
    project.write("moonlark.toml", &config(port));
    let doctor = project.run(&["doctor"]);
    let said = format!(
        "  ✓ address: Moonlark {} is serving on {}\n",
        env!("CARGO_PKG_VERSION"),
        server.address
    );
    assert!(out(&doctor).contains(&said), "{}{}", out(&doctor), err(&doctor));
    assert!(doctor.status.success());
}

#[test]
fn what_is_wrong_and_what_is_odd_in_a_configuration_is_said_in_one_round() {
    let config = "[server]\nprot = 1\n[tools.script.greet]\npath = 'tools/greet.lua'\nalow = ['net:x']\ntoken = '${NOT_SET_ANYWHERE}'\n";
    let project = Project::new(&[("moonlark.toml", config), ("tools/greet.lua", GREET)]);
    let warning = "warning: alow in [tools.script.greet] is the script's own key, and looks like allow\n  --> moonlark.toml:5:1\nhint: did you mean allow? If it is the script's own, write it in quotes: \"alow\" = …\n";
    let error = "error[bad_config]: unknown key server.prot\n  --> moonlark.toml:2:1\nhint: did you mean port?\n";
    let note = "note: moonlark.toml:6:9: tools.script.greet.token";
    for (command, summary) in [
        (&["check"][..], "\n0 scripts checked, 1 error, 1 warning\n"),
        (&["config", "check"], "\n1 error, 1 warning\n"),
    ] {
        let checked = project.run(command);
        let said = err(&checked);
        for part in [warning, error, note] {
            assert!(said.contains(part), "{command:?}: {part}\nis not in:\n{said}");
        }
        assert!(said.ends_with(summary), "{command:?}: {said}");
        assert!(!checked.status.success());
        let mut command = command.to_vec();
        command.push("--json");
        let report: Value = serde_json::from_slice(&project.run(&command).stdout).unwrap();
        let count = |key: &str| report[key].as_array().unwrap().len();
        assert_eq!((count("problems"), count("warnings"), count("unset")), (1, 1, 1), "{report}");
    }
    let doctor = out(&project.run(&["doctor"]));
    assert!(doctor.contains("  ! configuration: warning: alow in "), "{doctor}");
    assert!(doctor.contains("  ✗ configuration: error[bad_config]: unknown key "), "{doctor}");
    assert!(doctor.ends_with("\n1 error, 1 warning\n"), "{doctor}");
    // Whatever the command, nobody has to come back for the rest.
    let called = err(&project.run(&["call", "greet", "name=Ann"]));
    assert!(called.contains(warning) && called.contains(error), "{called}");
}

#[test]
fn a_server_that_is_down_is_said_once() {
    // It notes each time that it was started.
    let config = "[server]\nport = 0\n\
         [mcp_servers.dead]\ncommand = 'sh'\nargs = ['-c', 'echo x >> starts; exit 3']\n\
         [apis.lost]\nspec = 'nothing.yaml'\n";
    let project = Project::new(&[
        ("moonlark.toml", config),
        ("tools/greet.lua", GREET),
        ("script.luau", "return sdk.tools.greet({ name = 'Ann' })"),
    ]);
    let starts =
        || std::fs::read_to_string(project.path("starts")).unwrap_or_default().lines().count();
    let said_of_dead = |log: &str| log.matches("upstream 'dead' exited with code 3").count();
    let wait_for_starts = |count: usize| {
        wait_for(&format!("{count} starts"), || starts() >= count);
    };
    let server = project.serve();
    wait_for_starts(4);
    let log = server.stop_and_read_log();
    assert_eq!(said_of_dead(&log), 1, "{log}");
    assert_eq!(log.matches("cannot read ").count(), 1, "{log}");

    let mut stdio = moonlark()
        .arg("stdio")
        .current_dir(project.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = Log::follow(stdio.stderr.take().unwrap());
    wait_for_starts(starts() + 4);
    stdio.kill().unwrap();
    stdio.wait().unwrap();
    let log = log.rest().join("\n");
    assert_eq!(said_of_dead(&log), 1, "{log}");

    // What a command does not need, it says nothing of.
    for args in [
        &["call", "greet", "name=Ann"][..],
        &["run", "script.luau", "--quiet"],
        &["search-tools", "greet"],
    ] {
        let done = project.run(args);
        assert!(done.status.success(), "{args:?}: {}", err(&done));
        assert_eq!(said_of_dead(&err(&done)), 0, "{args:?}: {}", err(&done));
    }
    // And what it does need, once.
    let called = project.run(&["call", "dead.tool"]);
    assert_eq!(said_of_dead(&err(&called)), 1, "{}", err(&called));
    for command in ["doctor", "sources"] {
        let output = project.run(&[command]);
        let said = format!("{}{}", out(&output), err(&output));
        assert_eq!(said_of_dead(&said), 1, "{command}: {said}");
        assert_eq!(said.matches("cannot read ").count(), 1, "{command}: {said}");
    }
}

#[test]
fn parameters_are_written_as_options_too() {
    let project = Project::new(&[("tools/greet.lua", GREET)]);
    let ann = json!({"result": {"name": "Ann", "times": 1}});
    for args in [
        &["call", "greet", "--name", "Ann", "--json"][..],
        &["call", "greet", "--name=Ann", "--json"],
        &["call", "greet", "--json", "name=Ann"],
        &["call", "greet", "--param", "name=Ann", "--json"],
        &["--json", "call", "greet", r#"{"name": "Ann"}"#],
    ] {
        let called = project.run(args);
        let answer: Value = serde_json::from_slice(&called.stdout)
            .unwrap_or_else(|_| panic!("{args:?}: {}", err(&called)));
        assert_eq!(answer, ann, "{args:?}");
    }
    let called =
        project.run(&["call", "greet", "--dry-run", "--times", "2", "--name", "-5", "--json"]);
    let answer: Value = serde_json::from_slice(&called.stdout).unwrap();
    assert_eq!(answer["result"], json!({"dry_run": true, "times": 2, "name": "-5"}));
    let tested = project.run(&["tool", "test", "tools/greet.lua", "--name", "Ann", "times=3"]);
    assert!(
        out(&tested).contains(r#"Calling execute({name: "Ann", times: 3})"#),
        "{}",
        out(&tested)
    );
    for (args, said) in [
        (
            &["--nmae", "Ann"][..],
            "error[bad_request]: --nmae is no option of this command, and greet has no such parameter\nhint: did you mean --name?\n",
        ),
        (
            &["--name=a", "--jsno"],
            "error[bad_request]: --jsno is no option of this command, and greet has no such parameter\nhint: did you mean --json?\n",
        ),
        (
            &["name=a", "name=b"],
            "error[bad_request]: the parameter name is given twice\nhint: it takes one value (string): leave one of the two out\n",
        ),
        (
            &["name=a", "tags=x", "tags=y"],
            "error[bad_request]: the parameter tags must be array, written as JSON: ",
        ),
        (
            &["name=a", "tags=[1]", "tags=[2]"],
            "error[bad_request]: the parameter tags is given twice\nhint: a list is written as JSON: tags='[\"a\", \"b\"]'\n",
        ),
    ] {
        let called = project.run(&[&["call", "greet"], args].concat());
        assert!(!called.status.success());
        assert!(err(&called).starts_with(said), "{args:?}: {}", err(&called));
    }
    // Other commands have no parameters of tools.
    let listed = project.run(&["tool", "list", "--name", "Ann"]);
    assert_eq!(listed.status.code(), Some(2), "{}", err(&listed));
}

#[test]
fn help_lists_what_is_special_before_what_all_commands_have() {
    let project = Project::new(&[]);
    for command in ["call", "serve", "run", "sync"] {
        let help = out(&project.run(&[command, "--help"]));
        let (own, common) = help.split_once("\nCommon options:\n").unwrap();
        for option in ["--json", "--config <FILE>", "--quiet", "--verbose"] {
            assert!(common.contains(option) && !own.contains(&format!("{option} ")), "{help}");
        }
        let is_heading = |line: &&str| !line.is_empty() && !line.starts_with(' ');
        assert_eq!(common.lines().find(is_heading), None, "nothing comes after them: {help}");
    }
}

#[test]
fn docs_show_the_defaults_and_ranges_of_parameters() {
    let project = Project::new(&[("tools/greet.lua", GREET)]);
    let page = out(&project.run(&["docs", "greet"]));
    let times = page.lines().find(|line| line.trim_start().starts_with("times ")).unwrap();
    assert!(times.ends_with("(default: 1, 1 to 9)"), "{page}");
}

#[test]
fn a_script_that_makes_too_many_calls_is_told_which_line_of_which_file_to_change() {
    let project = Project::new(&[
        ("tools/greet.lua", GREET),
        ("many.luau", "for i = 1, 150 do sdk.tools.greet({ name = 'Ann' }) end return 1"),
    ]);
    let ran = project.run(&["run", "many.luau", "--quiet"]);
    assert!(!ran.status.success());
    let said = err(&ran);
    assert!(said.contains("error[limit]: more than 100 tool calls"), "{said}");
    assert!(said.contains("raise limits.calls in moonlark.toml"), "{said}");
    // And the hint is true.
    project.write("moonlark.toml", "[limits]\ncalls = 200\n");
    let ran = project.run(&["run", "many.luau", "--quiet"]);
    assert!(ran.status.success(), "{}", err(&ran));
}

#[test]
fn sources_and_doctor_count_what_there_is() {
    let project = Project::new(&[
        ("moonlark.toml", "[server]\nport = 0\n"),
        ("tools/greet.lua", GREET),
        ("many.luau", "for i = 1, 11 do sdk.tools.greet({ name = 'Ann' }) end return 1"),
    ]);
    let sources = out(&project.run(&["sources"]));
    assert!(sources.contains("tools/greet.lua: 1 tool\n"), "{sources}");
    assert!(project.run(&["run", "many.luau", "--quiet"]).status.success());
    let doctor = out(&project.run(&["doctor"]));
    assert!(doctor.contains("  ✓ tools: 1 tool from 1 script\n"), "{doctor}");
    assert!(doctor.contains("  ✓ journal: 1 run and 12 calls in "), "{doctor}");

    let project = Project::new(&[
        ("moonlark.toml", "[server]\nport = 0\n[connectors.filesystem.docs]\nroot = \"docs\"\n"),
        ("docs/a.md", "# A"),
    ]);
    let doctor = out(&project.run(&["doctor"]));
    assert!(doctor.contains("  ✓ tools: none from scripts\n"), "{doctor}");
}

#[test]
fn a_source_that_failed_to_sync_has_a_row_too() {
    let project = Project::new(&[
        (
            "moonlark.toml",
            "[connectors.filesystem.docs]\nroot = \"docs\"\n[connectors.filesystem.gone]\nroot = \"nowhere\"\n",
        ),
        ("docs/a.md", "# A"),
    ]);
    let synced = project.run(&["sync"]);
    assert!(!synced.status.success());
    let said = out(&synced);
    let row =
        said.lines().find(|line| line.starts_with("gone ")).unwrap_or_else(|| panic!("{said}"));
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells, ["gone", "-", "-", "-", "-", "-", "-", "-", "failed"], "{said}");
    assert!(err(&synced).starts_with("gone: error["), "{}", err(&synced));
}

#[test]
fn the_time_of_a_log_line_is_to_the_second() {
    let project = Project::new(&[("tools/greet.lua", GREET)]);
    let line = project.serve().log.wait_for(" serving ");
    let time = line.split(' ').next().unwrap();
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00Z", "{line}");
}

#[test]
fn what_a_test_prints_is_in_the_log_only_when_asked_for_and_without_an_empty_name() {
    let project = Project::new(&[(
        "tools/x_test.luau",
        "function test_it() print('hello there') log.info('hello again') end\n",
    )]);
    let quiet = project.run(&["test"]);
    assert!(quiet.status.success() && !err(&quiet).contains("hello"), "{}", err(&quiet));
    let said = err(&project.run(&["test", "-v"]));
    for message in ["hello there", "hello again"] {
        assert!(said.contains(&format!("Z  INFO {message}\n")), "{said}");
    }
}

#[test]
fn a_name_that_is_not_there_leads_to_the_script_that_does_not_load() {
    let project = Project::new(&[
        ("tools/greet.lua", GREET),
        ("extensions/shop.star", "def describe_extension():\n    return Extension(name = nope)\n"),
    ]);
    for name in ["find_orders", "gret", "search_doc"] {
        let called = project.run(&["call", name]);
        let said = err(&called);
        assert!(!called.status.success());
        assert!(
            said.contains(
                "a script has a problem, and its tools may be missing: extensions/shop.star:2"
            ),
            "{said}"
        );
    }
    assert!(err(&project.run(&["call", "gret"])).contains("; did you mean greet?"));
}

#[test]
fn an_extension_with_odd_defaults_works_and_is_warned_of() {
    let star = r#"
def show(params):
    return params

def describe_extension():
    return Extension(name = "odd", tools = [Tool(name = "odd", description = "d", handler = show, parameters = [
        ToolParameter(name = "tags", param_type = "array", default = "['a', 'b']"),
        ToolParameter(name = "label", param_type = "string", default = 5),
        ToolParameter(name = "count", param_type = "integer", default = "many"),
        ToolParameter(name = "none", param_type = "integer", minimum = 5, maximum = 1),
    ])])
"#;
    let project = Project::new(&[("extensions/odd.star", star)]);
    let called = project.run(&["call", "odd", "--json"]);
    let answer: Value = serde_json::from_slice(&called.stdout).unwrap();
    assert_eq!(answer["result"], json!({"tags": ["a", "b"], "label": "5"}), "{}", err(&called));
    let checked = project.run(&["check"]);
    assert!(checked.status.success(), "{}", err(&checked));
    for warning in [
        "odd.parameters: defaults are written as text: tags",
        "odd.parameters.label.default is 5, which is taken as \"5\"",
        "odd.parameters.count.default cannot be read as integer, got the text \"many\"",
        "odd.parameters.none: no value is valid, since minimum 5 is greater than maximum 1",
    ] {
        assert!(err(&checked).contains(warning), "{warning}: {}", err(&checked));
    }
}
