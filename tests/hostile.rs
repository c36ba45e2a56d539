//! Scripts that attack the process, each in several disguises.
//!
//! A file of `hostile/` says in its header what it tries and how it must end.
//! For every file and disguise: the stated Problem, in time; memory stays
//! bounded; and a neighbour that calls an innocent tool all the while is always
//! answered.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use moonlark::extensions::{self, ScriptFolder};
use moonlark_core::grant::GrantSet;
use moonlark_core::limits::CallLimits;
use moonlark_core::tool::CallScope;
use moonlark_core::{Catalog, Problem, Tool, Value};
use moonlark_gateway::{Caller, Gateway};
use moonlark_luau::{LuauEngine, ScriptFile};

use crate::harness::is_own_process;
use crate::hostile_server;

const TIMEOUT: Duration = Duration::from_millis(500);
/// What the machine may add when it is busy with eight of these at once.
const MARGIN: Duration = Duration::from_secs(4);
/// Eight VMs of 16 MB, what is under way between them and the host, and the
/// test itself.
const MEMORY: u64 = 700 << 20;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mode {
    Load,
    Execute,
    Pcall,
    Coroutine,
    Metamethod,
}

const MODES: [(&str, Mode); 5] = [
    ("load", Mode::Load),
    ("execute", Mode::Execute),
    ("pcall", Mode::Pcall),
    ("coroutine", Mode::Coroutine),
    ("metamethod", Mode::Metamethod),
];

struct Attack {
    name: String,
    expect: Vec<String>,
    says: Option<String>,
    modes: Vec<Mode>,
    grants: Vec<String>,
    body: String,
}

impl Attack {
    fn read(path: &Path, port: u16) -> Attack {
        let text = std::fs::read_to_string(path).unwrap().replace("$PORT", &port.to_string());
        let field = |name: &str| {
            text.lines()
                .take_while(|line| line.starts_with("--"))
                .find_map(|line| line.strip_prefix(&format!("-- {name}: ")))
                .map(str::to_owned)
        };
        let list = |name: &str| -> Vec<String> {
            let words = field(name).unwrap_or_default();
            words
                .split(',')
                .map(|word| word.trim().to_owned())
                .filter(|word| !word.is_empty())
                .collect()
        };
        let modes = match field("modes").as_deref() {
            None | Some("all") => MODES.map(|(_, mode)| mode).to_vec(),
            Some(names) => MODES
                .iter()
                .filter(|(name, _)| names.contains(name))
                .map(|(_, mode)| *mode)
                .collect(),
        };
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(field("expect").is_some(), "{name} does not say what to expect");
        Attack {
            name,
            expect: list("expect"),
            says: field("says"),
            modes,
            grants: list("grants"),
            body: text.clone(),
        }
    }

    /// The script in its disguise.
    fn script(&self, mode: Mode) -> String {
        let header = "tool = { name = 'hostile', description = '', parameters = {} }\n";
        let body = &self.body;
        match mode {
            Mode::Load => format!("do\n{body}\nend\n{header}function tool.execute() end"),
            Mode::Execute => format!("{header}function tool.execute(params, context)\n{body}\nend"),
            // What succeeds is handed out, so that it is seen from outside.
            Mode::Pcall => format!(
                "{header}function tool.execute(params, context)\nwhile true do local ok, result = pcall(function()\n{body}\nend) if ok then return result end end\nend"
            ),
            Mode::Coroutine => format!(
                "{header}function tool.execute(params, context)\nreturn coroutine.wrap(function()\n{body}\nend)()\nend"
            ),
            Mode::Metamethod => format!(
                "{header}function tool.execute(params, context)\nlocal t = setmetatable({{}}, {{ __index = function(_, key)\n{body}\nend }})\nreturn t.x\nend"
            ),
        }
    }

    fn accepts(&self, mode: Mode, outcome: &Result<Value, Problem>) -> Result<(), String> {
        let code = match outcome {
            Ok(_) => "ok",
            Err(problem) => problem.code.as_str(),
        };
        let final_ = |code: &str| matches!(code, "timeout" | "limit");
        let accepted = match mode {
            // Whatever can be swallowed is, and then time runs out. An attack that must
            // fail never gets to its end.
            Mode::Pcall => {
                let swallowed = code == "timeout" && self.expect.iter().any(|e| e != "ok");
                swallowed || self.expect.iter().any(|e| e == code)
            }
            // What would be a tool's failure is a bad script while it loads, and what needs
            // a grant is refused there.
            Mode::Load => {
                let fails = |e: &String| !matches!(e.as_str(), "ok" | "timeout" | "limit");
                let refused = !self.grants.is_empty() || self.expect.iter().any(fails);
                self.expect.iter().any(|e| e == code) || (code == "bad_script" && refused)
            }
            _ => self.expect.iter().any(|e| e == code),
        };
        let text = match outcome {
            Ok(value) => format!("{value:?}").chars().take(200).collect(),
            Err(problem) => problem.to_string().chars().take(400).collect::<String>(),
        };
        if !accepted {
            return Err(format!("expected {:?}, got {code}: {text}", self.expect));
        }
        match &self.says {
            Some(says) if mode != Mode::Pcall && !text.contains(says.as_str()) && !final_(code) => {
                Err(format!("does not say {says:?}: {text}"))
            }
            _ => Ok(()),
        }
    }
}

/// The folder that scripts find themselves in.
pub fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(at("tools")).unwrap();
    std::fs::create_dir_all(at("secret")).unwrap();
    std::fs::write(at("secret/secret.txt"), "secret").unwrap();
    std::fs::write(at("tools/data.txt"), "hello").unwrap();
    std::fs::File::create(at("tools/big.bin")).unwrap().set_len(2 << 20).unwrap();
    std::fs::write(at("tools/deep.json"), "[".repeat(100_000)).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", at("tools/outside")).unwrap();
    std::os::unix::fs::symlink("..", at("tools/escape")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", at("tools/zero")).unwrap();
    let fifo = std::ffi::CString::new(at("tools/fifo").to_str().unwrap()).unwrap();
    // SAFETY: the path is a C string that outlives the call.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    dir
}

/// What some of them require.
fn fill_library(tools: &Path) {
    let lib = tools.join("lib");
    let file = |name: &str, text: &str| std::fs::write(lib.join(name), text).unwrap();
    for folder in ["many", "deep"] {
        std::fs::create_dir_all(lib.join(folder)).unwrap();
    }
    for n in 1..=300 {
        file(&format!("many/f{n}.luau"), &format!("return {n}"));
    }
    for n in 1..=100 {
        file(&format!("deep/f{n}.luau"), &format!("return require('./f{}')", n + 1));
    }
    file("loop.luau", "while true do end");
    file("pcalls.luau", "while true do pcall(function() while true do end end) end");
    file("sleeper.luau", "sleep(1000)");
    file("hog.luau", "local t = {} while true do table.insert(t, string.rep('x', 1000) .. #t) end");
    file("state.luau", "return { count = 0 }");
    file("a.luau", "return require('./b')");
    file("b.luau", "return require('./a')");
    file("nested.luau", &format!("return {}", "(".repeat(100_000)));
    file("large.luau", &format!("return '{}'", "x".repeat(300 << 10)));
    std::fs::write(tools.join("../secret/secret.luau"), "return 'secret'").unwrap();
    std::os::unix::fs::symlink("../../secret/secret.luau", lib.join("outside.luau")).unwrap();
    std::os::unix::fs::symlink("../../secret", lib.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", lib.join("zero.luau")).unwrap();
    std::os::unix::fs::symlink("../fifo", lib.join("pipe.luau")).unwrap();
}

struct Arena {
    engine: LuauEngine,
    gateway: Gateway,
    /// Hundreds of files, so once for all: nobody can write there.
    library: tempfile::TempDir,
}

impl Arena {
    fn new() -> Arena {
        let modules = Arc::new(moonlark_host::host_modules());
        let engine = LuauEngine::new(&modules).unwrap();
        let gateway = Gateway::new(Catalog::new(modules, vec![], &[], vec![]), 1000);
        let library = folder();
        fill_library(&library.path().join("tools"));
        Arena { engine, gateway, library }
    }

    async fn load(
        &self,
        dir: &Path,
        text: String,
        grants: &[String],
        timeout: Duration,
    ) -> Result<Tool, Problem> {
        let limits = CallLimits {
            timeout,
            memory: 16 << 20,
            logs: 64 << 10,
            value: 1 << 20,
            http_body: 256 << 10,
            ..CallLimits::default()
        };
        let dir = dir.join("tools");
        let (label, main) = ("tools".to_owned(), "hostile.lua".to_owned());
        let path = self.library.path().join("tools");
        let others = extensions::folder_files(&ScriptFolder { path, label, main });
        let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
        let scope = |grants| CallScope { grants, limits: limits.clone(), ..CallScope::default() };
        let script = ScriptFile {
            file: "tools/hostile.lua".to_owned(),
            folder: "tools".to_owned(),
            main: "hostile.lua".to_owned(),
            files: Arc::new(move |file| match file {
                "hostile.lua" => Ok(text.clone()),
                other => others(other),
            }),
            configured: None,
            scope: scope(GrantSet::for_authored_script(
                "tools.script.hostile",
                dir.clone(),
                grants,
            )),
            loading: Arc::new(scope(GrantSet::for_loading_script("tools.script.hostile", dir))),
        };
        self.engine.load_tool(script, &self.gateway).await.0
    }

    /// A gateway of its own for each attack, on the one engine.
    async fn attack(&self, attack: &Attack, mode: Mode) -> Result<(), String> {
        let folder = folder();
        let started = Instant::now();
        let outcome =
            match self.load(folder.path(), attack.script(mode), &attack.grants, TIMEOUT).await {
                Err(problem) => Err(problem),
                Ok(_) if mode == Mode::Load => Ok(Value::Null),
                Ok(tool) => {
                    let modules = self.gateway.catalog().modules().clone();
                    let gateway =
                        Gateway::new(Catalog::new(modules, vec![Arc::new(tool)], &[], vec![]), 10);
                    let call = gateway.open_call(Caller::new("cli")).unwrap();
                    let nothing = || Value::Object(Default::default());
                    let first = gateway.call(&call, "hostile", nothing()).await;
                    // What one call leaves behind must not be there for the next.
                    let second = match first {
                        Ok(_) => gateway.call(&call, "hostile", nothing()).await,
                        failed => failed,
                    };
                    // As every surface does.
                    second.and_then(|value| value.encode_json("result").map(Value::Str))
                }
            };
        // Loading and two calls each have the whole time.
        if started.elapsed() > 3 * TIMEOUT + MARGIN {
            return Err(format!("took {:?}", started.elapsed()));
        }
        attack.accepts(mode, &outcome)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attack_ends_as_stated_and_the_neighbours_do_not_notice() {
    if !is_own_process("hostile::every_attack_ends_as_stated_and_the_neighbours_do_not_notice") {
        return;
    }
    let port = hostile_server::start().await;
    let only = std::env::var("HOSTILE").unwrap_or_default();
    let mut files: Vec<_> = std::fs::read_dir(crate::harness::repo().join("tests/hostile"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains(&only))
        .collect();
    files.sort();
    assert!(!only.is_empty() || files.len() >= 60, "the corpus is missing");
    let attacks: Vec<Arc<Attack>> =
        files.iter().map(|path| Arc::new(Attack::read(path, port))).collect();
    let arena = Arc::new(Arena::new());
    let before = hostile_server::rss();

    // The neighbour.
    let stop = Arc::new(AtomicBool::new(false));
    let slowest = Arc::new(AtomicU64::new(0));
    let neighbour = {
        let (arena, stop, slowest) = (arena.clone(), stop.clone(), slowest.clone());
        tokio::spawn(async move {
            let text = "tool = { name = 'echo', description = '', parameters = {} }\nfunction tool.execute() sleep(0.001) return { ok = true } end";
            let dir = folder();
            let tool = arena.load(dir.path(), text.to_owned(), &[], MARGIN).await.unwrap();
            let modules = arena.gateway.catalog().modules().clone();
            // Innocent, but on a machine that is under attack.
            let gateway =
                Gateway::new(Catalog::new(modules, vec![Arc::new(tool)], &[], vec![]), 10);
            let mut calls = 0u64;
            while !stop.load(Ordering::Relaxed) {
                let started = Instant::now();
                let call = gateway.open_call(Caller::new("cli")).unwrap();
                let answer = gateway.call(&call, "echo", Value::Object(Default::default())).await;
                if answer != Ok(Value::from_fields([("ok", Value::Bool(true))])) {
                    return Err(format!("the neighbour after {calls} calls: {answer:?}"));
                }
                slowest.fetch_max(started.elapsed().as_millis() as u64, Ordering::Relaxed);
                calls += 1;
            }
            Ok(calls)
        })
    };

    let runs =
        attacks.iter().flat_map(|attack| attack.modes.iter().map(move |mode| (attack, *mode)));
    let peak = Arc::new(AtomicU64::new(0));
    let suspects: Vec<(Arc<Attack>, Mode)> = futures::stream::iter(runs)
        .map(|(attack, mode)| {
            let (arena, peak, attack) = (arena.clone(), peak.clone(), attack.clone());
            // A task of its own, as every request to a server is.
            tokio::spawn(async move {
                let ended = arena.attack(&attack, mode).await;
                peak.fetch_max(hostile_server::rss(), Ordering::Relaxed);
                ended.is_err().then_some((attack, mode))
            })
        })
        .buffer_unordered(8)
        .filter_map(|ended| std::future::ready(ended.unwrap()))
        .collect()
        .await;
    // Eight at once on a busy machine can be too slow for half a second; alone,
    // each has to end as stated.
    let mut failures = Vec::new();
    for (attack, mode) in suspects {
        if let Err(why) = arena.attack(&attack, mode).await {
            failures.push(format!("{} as {mode:?}: {why}", attack.name));
        }
    }
    stop.store(true, Ordering::Relaxed);
    let neighbour = neighbour.await.unwrap();
    let calls = *neighbour.as_ref().unwrap_or(&0);
    println!(
        "{} files, neighbour answered {calls} times, slowest {} ms; memory {} MB, then at most {} MB",
        attacks.len(),
        slowest.load(Ordering::Relaxed),
        before >> 20,
        peak.load(Ordering::Relaxed) >> 20
    );
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(calls > 0, "{neighbour:?}");
    assert!(peak.load(Ordering::Relaxed) < MEMORY, "{} MB", peak.load(Ordering::Relaxed) >> 20);
}
