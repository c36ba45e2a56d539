//! The process that checks scripts, driven by itself: whatever a script makes the checker
//! do, the process ends within its bounds of time, memory and stack, and says why.
//!
//! Scripts of agents cannot get that far with a `type function`, which is refused before.
//! Here it is let through: nothing else can make the checker do anything at all.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// What a check may take in these tests.
const LIMIT: Duration = Duration::from_millis(300);
/// Memory of a process at its largest: what it has at the start, and 256 MB.
const MAX_RESIDENT_KB: u64 = 400 * 1024;

struct CheckProcess {
    child: Child,
}

/// How a check ended.
#[derive(Debug)]
enum CheckEnd {
    Reported(Value),
    /// The process is gone: its exit code, and what it said.
    Ended(Option<i32>, String),
}

impl CheckProcess {
    fn start() -> CheckProcess {
        let child = Command::new(env!("CARGO_BIN_EXE_moonlark"))
            .arg("__check")
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        CheckProcess { child }
    }

    fn check(&mut self, script: &str, run_type_functions: bool) -> CheckEnd {
        let request = json!({
            "script": script,
            "catalog": {"sources": [], "awaited": []},
            "limit": {"secs": LIMIT.as_secs(), "nanos": LIMIT.subsec_nanos()},
            "run_type_functions": run_type_functions,
        });
        let body = request.to_string();
        let length = u32::try_from(body.len()).unwrap().to_le_bytes();
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(&[&length, body.as_bytes()].concat()).unwrap();
        input.flush().unwrap();
        let mut length = [0; 4];
        let output = self.child.stdout.as_mut().unwrap();
        if output.read_exact(&mut length).is_err() {
            let mut said = String::new();
            self.child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
            return CheckEnd::Ended(self.child.wait().unwrap().code(), said);
        }
        let mut body = vec![0; u32::from_le_bytes(length) as usize];
        output.read_exact(&mut body).unwrap();
        CheckEnd::Reported(serde_json::from_slice(&body).unwrap())
    }

    /// The most memory that it ever had. None when it has ended.
    fn peak_kb(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    }

    /// Processor time so far, in hundredths of a second.
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let mut fields = stat.rsplit(')').next().unwrap().split_whitespace().skip(11);
        let mut field = || fields.next().unwrap().parse::<u64>().unwrap();
        field() + field()
    }
}

impl Drop for CheckProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_type_function_is_not_run_unless_a_test_says_so() {
    let endless =
        "type function f(t) while true do end return t end local x: f<number> = 1 return x";
    let mut process = CheckProcess::start();
    let CheckEnd::Reported(report) = process.check(endless, false) else { panic!() };
    assert_eq!(
        report["findings"][0]["message"],
        "type functions are not allowed here: the check would have to run them"
    );
    assert_eq!(report["untyped"], false);
    // The process is as it was.
    assert_eq!(report["reusable"], true);
    let CheckEnd::Reported(report) = process.check("return tostrng(1)", false) else { panic!() };
    assert_eq!(report["findings"][0]["hint"], "did you mean tostring?");
}

#[test]
fn a_check_without_an_end_is_ended_and_what_was_found_before_is_said() {
    for script in [
        "type function f(t) while true do end return t end local x: f<number> = 1 return tostrng(x)",
        "type function f(t) return string.find(('a'):rep(1e5), ('.*'):rep(50) .. 'b') end local x: f<number> = 1 return tostrng(x)",
    ] {
        let mut process = CheckProcess::start();
        let CheckEnd::Reported(report) = process.check(script, true) else { panic!("{script}") };
        assert_eq!(report["untyped"], true, "{script}");
        assert_eq!(report["reusable"], false, "{script}");
        assert_eq!(report["findings"][0]["hint"], "did you mean tostring?", "{script}");
        assert_eq!(process.child.wait().unwrap().code(), Some(0), "{script}");
    }
}

#[test]
fn a_check_ends_when_its_processor_time_is_over() {
    let mut process = CheckProcess::start();
    process.check("return 1", false);
    let before = process.ticks();
    let watched = format!("/proc/{}/stat", process.child.id());
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        // The largest processor time that the process was seen with.
        scope.spawn(move || {
            let mut most = 0;
            while let Ok(stat) = std::fs::read_to_string(&watched) {
                let after_name = stat.rsplit(')').next().unwrap_or_default().to_owned();
                let mut fields = after_name.split_whitespace();
                if fields.next() == Some("Z") {
                    break;
                }
                let ticks: Vec<u64> = fields.skip(10).take(2).flat_map(str::parse).collect();
                most = most.max(ticks.iter().sum());
                std::thread::yield_now();
                if receiver.try_recv().is_ok() {
                    break;
                }
            }
            assert!(most > before, "nothing was seen");
            let taken = Duration::from_millis((most - before) * 10);
            assert!(taken < LIMIT + Duration::from_millis(200), "{taken:?}");
        });
        let endless =
            "type function f(t) while true do end return t end local x: f<number> = 1 return x";
        let ended = process.check(endless, true);
        assert!(matches!(ended, CheckEnd::Reported(_)), "{ended:?}");
        process.child.wait().unwrap();
        let _ = sender.send(());
    });
}

#[test]
fn a_check_that_takes_all_memory_or_all_stack_ends_its_process_only() {
    for script in [
        "type function f(t) local s = {} while true do table.insert(s, string.rep('x', 1e6)) end end local x: f<number> = 1 return x",
        "type function f(t) local s = 'x' while true do s = s .. s end end local x: f<number> = 1 return x",
        "type function f(t) return types.singleton(string.rep('x', 2^30)) end local x: f<number> = 1 return x",
        "type function f(t) local s = {} while true do table.insert(s, table.create(1000, 1)) end end local x: f<number> = 1 return x",
        "type function f(t) error(string.rep('x', 5e7)) end local x: f<number> = 1 return x",
        "type function f(t) local function g(n) return g(n + 1) + 1 end return g(1) end local x: f<number> = 1 return x",
    ] {
        let began = Instant::now();
        let mut process = CheckProcess::start();
        match process.check(script, true) {
            // It came to an end of its own, or ran out of time first.
            CheckEnd::Reported(_) => {
                let peak = process.peak_kb().unwrap_or(0);
                assert!(peak < MAX_RESIDENT_KB, "{peak} kB: {script}");
            }
            CheckEnd::Ended(code, said) => {
                let known = ["memory allocation of", "overflowed its stack", "capacity overflow"];
                let is_known = known.iter().any(|words| said.contains(words));
                assert!(is_known || code == Some(124), "{code:?} {said}: {script}");
            }
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{script}");
    }
}

#[test]
fn types_that_explode_leave_what_is_found_without_them() {
    let functions = |n: usize| {
        let all =
            (0..n).map(|i| format!("local function f{}(x) return f{i}(f{i}(x)) end\n", i + 1));
        let first = "local function f0(x) return function(y) return { x, y, x, y } end end\n";
        format!("{first}{}return tostrng(f{n}(1))", all.collect::<String>())
    };
    let refinements = |n: usize| {
        let all = (0..n).map(|i| format!("if not x or x == '{i}' then x = {{ a{i} = x }} end\n"));
        format!("local x\n{}return tostrng(x.a1)", all.collect::<String>())
    };
    let options = |n: usize| (0..n).map(|i| format!("'{i}'")).collect::<Vec<_>>().join(" | ");
    let equal =
        |n: usize| (0..n).map(|i| format!(" if x == '{i}' then print(1) end")).collect::<String>();
    let data = |n: usize| {
        let rows = (0..n).map(|i| format!("{{ id = {i}, name = 'n{i}', v = {{ {i} }} }},"));
        format!("local rows = {{ {} }}\nreturn tostrng(rows)", rows.collect::<String>())
    };
    for script in [
        functions(30),
        refinements(300),
        format!("local function f(x: {}){} end\nreturn tostrng(f)", options(900), equal(900)),
        data(3000),
        data(20_000),
    ] {
        let shown: String = script.chars().take(60).collect();
        let mut process = CheckProcess::start();
        let CheckEnd::Reported(report) = process.check(&script, false) else { panic!("{shown}") };
        assert_eq!(report["findings"][0]["hint"], "did you mean tostring?", "{shown}");
        assert!(process.peak_kb().unwrap_or(0) < MAX_RESIDENT_KB, "{shown}");
    }
}
