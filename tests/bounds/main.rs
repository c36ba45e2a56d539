//! No function exceeds its limits, whatever it is given.
//!
//! A generator: every parameter of every function of every module, and of the
//! language itself, is given large, deep, wide and shared values, in the real
//! engines with limits. No call may exceed its time by more than 200 ms, nor its
//! memory by more than a factor of two, and its memory comes back. See
//! `tests/README.md` for how to let it run for longer, or from another seed.
//!
//! A Starlark script runs in a process of its own, whose memory the system limits. What
//! counts here is that process's time, and the memory of the one that serves it.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]
#![allow(clippy::disallowed_macros, clippy::disallowed_methods)]

mod cases;
mod measure;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moonlark_core::grant::GrantSet;
use moonlark_core::limits::CallLimits;
use moonlark_core::module::ScriptLanguage;
use moonlark_core::tool::CallScope;
use moonlark_core::{Catalog, Module, Tool, Value};
use moonlark_gateway::{Caller, Gateway};
use moonlark_luau::{LuauEngine, ScriptFile};
use moonlark_starlark::{ExtensionFile, StarlarkEngine};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use cases::{Case, Sizes, builtin_case, host_functions};
use measure::SeededNumbers;

#[global_allocator]
static ALLOCATOR: measure::CountingAllocator = measure::CountingAllocator;

const LUAU_PROBE: &str = include_str!("probe.luau");
const STARLARK_PROBE: &str = include_str!("probe.star");

/// What a call may take beyond its time.
const TIME_MARGIN: Duration = Duration::from_millis(200);
/// What it takes a process to start, load the probe and be ready, and another one beside it.
const WORKER_START_TIME: Duration = Duration::from_millis(500);
/// What may be there after all calls that was not there before them: bounded
/// caches of what was compiled.
const KEPT_BYTES: usize = 24 << 20;

/// Without optimisation our own code is some ten times slower, so that arguments
/// have to be smaller for the same time.
fn limits() -> CallLimits {
    let scale = if cfg!(debug_assertions) { 4 } else { 1 };
    CallLimits {
        timeout: Duration::from_millis(300),
        memory: (64 << 20) / scale,
        value: (32 << 20) / scale,
        http_body: (10 << 20) / scale,
        logs: 64 << 10,
        ..CallLimits::default()
    }
}

struct Lab {
    gateway: Gateway,
    modules: Arc<Vec<Module>>,
    folder: tempfile::TempDir,
    language: ScriptLanguage,
    limits: CallLimits,
}

impl Lab {
    async fn open(language: ScriptLanguage, port: u16, functions: &[String]) -> Lab {
        let modules = Arc::new(moonlark_host::host_modules());
        let gateway = Gateway::new(Catalog::new(modules.clone(), vec![], &[], vec![]), 10);
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data.db");
        let database = rusqlite::Connection::open(data).unwrap();
        database.execute_batch("CREATE TABLE t (x)").unwrap();
        let mut lab = Lab { gateway, modules, folder, language, limits: limits() };
        let tool = lab.load(port, functions).await;
        let catalog = Catalog::new(lab.modules.clone(), vec![Arc::new(tool)], &[], vec![]);
        lab.gateway = Gateway::new(catalog, 10);
        lab
    }

    async fn load(&self, port: u16, functions: &[String]) -> Tool {
        let grants = [format!("net:127.0.0.1:{port}"), "fs:write".into(), "sql:write".into()];
        let mut grants: Vec<_> = grants.iter().map(|grant| grant.parse().unwrap()).collect();
        grants.push("exec:cat".parse().unwrap());
        let dir: &Path = self.folder.path();
        let grants = GrantSet::for_authored_script("tools.script.probe", dir.to_owned(), grants);
        let grants = grants.with_declared_commands(vec!["cat".to_owned()]);
        let scope =
            |grants| CallScope { grants, limits: self.limits.clone(), ..CallScope::default() };
        let loading = GrantSet::for_loading_script("tools.script.probe", dir.to_owned());
        let scope = scope(grants);
        // Loading it is not what is measured, and a busy machine takes its time.
        let limits = CallLimits { timeout: Duration::from_secs(120), ..self.limits.clone() };
        let loading = Arc::new(CallScope { grants: loading, limits, ..CallScope::default() });
        match self.language {
            ScriptLanguage::Luau => {
                let names = functions.iter().map(|name| format!("[\"{name}\"] = {name},\n"));
                let names: String = names.collect();
                let text = format!("local functions = {{\n{names}}}\n{LUAU_PROBE}");
                let script = ScriptFile {
                    file: "tools/probe.luau".to_owned(),
                    folder: "tools".to_owned(),
                    main: "probe.luau".to_owned(),
                    files: Arc::new(move |_| Ok(text.clone())),
                    configured: None,
                    scope,
                    loading,
                };
                let engine = LuauEngine::new(&self.modules).unwrap();
                engine.load_tool(script, &self.gateway).await.0.unwrap()
            }
            ScriptLanguage::Starlark => {
                let names = functions.iter().map(|name| format!("\"{name}\": {name},\n"));
                let text =
                    format!("functions = {{\n{}}}\n{STARLARK_PROBE}", names.collect::<String>());
                let extension = ExtensionFile {
                    folder: "extensions".to_owned(),
                    main: "probe.star".to_owned(),
                    files: Arc::new(move |_| Ok(text.clone())),
                    scope,
                    loading,
                };
                let program = PathBuf::from(env!("CARGO_BIN_EXE_moonlark"));
                let engine = StarlarkEngine::new(program, &self.modules);
                let loaded = engine.load_extension(extension, &self.gateway).await.0.unwrap();
                loaded.tools.into_iter().next().unwrap()
            }
        }
    }

    async fn ask(&self, plan: Json) -> moonlark_core::Result<Value> {
        let call = self.gateway.open_call(Caller::new("cli"))?;
        let args = Value::from_json(plan)?;
        let gateway = self.gateway.clone();
        // A task of its own, as every request to a server is.
        tokio::spawn(async move { gateway.call(&call, "probe", args).await }).await.unwrap()
    }

    /// The same; what goes wrong each of three times is no accident of a busy machine.
    async fn try_case_repeatedly(&self, case: &Case) -> Result<&'static str, String> {
        let mut tried = self.try_case(case).await;
        for _ in 0..2 {
            if tried.is_ok() {
                break;
            }
            measure::trim();
            tried = self.try_case(case).await;
        }
        tried
    }

    /// Make the call; what was wrong about it, if anything.
    async fn try_case(&self, case: &Case) -> Result<&'static str, String> {
        let plan = case.plan();
        let (live, waited) = (measure::live_bytes(), measure::waited_for_processor());
        measure::take_peak_bytes();
        let resident = measure::resident_bytes();
        let (began, worked) = (Instant::now(), measure::processor_time());
        let workers = measure::children_time();
        let answer = self.ask(plan).await;
        let (took, worked) = (began.elapsed(), measure::processor_time() - worked);
        let workers = measure::children_time().saturating_sub(workers);
        let waited = measure::waited_for_processor().saturating_sub(waited);
        let used = measure::take_peak_bytes().saturating_sub(live);
        let grown = measure::resident_bytes().saturating_sub(resident);
        let outcome = answer.as_ref().map_or_else(|problem| problem.code.as_str(), |_| "ok");
        drop(answer);

        let most = self.limits.timeout + TIME_MARGIN;
        // Time on the clock counts but for that in which others had the processor.
        let too_long = worked > most || took.saturating_sub(waited) > most;
        // The process of the next call starts meanwhile.
        if too_long || workers > most + WORKER_START_TIME {
            return Err(format!(
                "took {took:?}, {worked:?} of them at work, {workers:?} in other processes, \
                 {waited:?} without a processor: {outcome}"
            ));
        }
        let most = 2 * self.limits.memory;
        if used > most || grown > 2 * most {
            return Err(format!(
                "took {} MB of memory, {} MB as the system sees it: {outcome}",
                used >> 20,
                grown >> 20
            ));
        }
        self.come_to_rest(live).await.map_err(|why| format!("{why}: {outcome}"))?;
        Ok(outcome)
    }

    /// After a call nothing goes on, and its memory is free again.
    async fn come_to_rest(&self, live: usize) -> Result<(), String> {
        const LEFT_BYTES: usize = 8 << 20;
        let (began, worked) = (Instant::now(), measure::processor_time());
        while measure::live_bytes() > live + LEFT_BYTES {
            let worked = measure::processor_time() - worked;
            if worked > 4 * TIME_MARGIN {
                return Err(format!("went on for {worked:?} after its end"));
            }
            if began.elapsed() > Duration::from_secs(10) {
                let left = measure::live_bytes().saturating_sub(live);
                return Err(format!("{} MB are left after its end", left >> 20));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// What the shapes of a case are called.
    async fn describe(&self, case: &Case) -> String {
        let shapes = case.shapes();
        let sizes: Vec<u64> = shapes.iter().filter_map(|it| it["bytes"].as_u64()).collect();
        let named = self.ask(json!({"plan": {"name_shapes": true, "shapes": shapes}})).await;
        let named =
            named.map_or_else(|problem| problem.message, |it| it.to_json_lossy().to_string());
        format!("{} with {named} of {sizes:?} bytes\n    {}", case.name, case.plan())
    }
}

/// How often every function is tried where no time is given: always the same calls.
const LUAU_TURNS_IN_TEST_SUITE: usize = 12;
/// Fewer: a call that ends by force takes a process with it.
const STARLARK_TURNS_IN_TEST_SUITE: usize = 4;

/// Answers every request with a large JSON list of tiny values.
async fn serve_zeros() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let body = Arc::new(format!("[{}0]", "0,".repeat(limits().http_body / 2 - 8)));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let body = body.clone();
            tokio::spawn(async move {
                let mut head = vec![0; 65536];
                let _ = stream.read(&mut head).await?;
                drop(head);
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\
                     Content-Length: {}\r\n\r\n",
                    body.len()
                );
                stream.write_all(head.as_bytes()).await?;
                stream.write_all(body.as_bytes()).await
            });
        }
    });
    port
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_function_exceeds_its_limits_whatever_it_is_given() {
    try_all_functions(ScriptLanguage::Luau, LUAU_TURNS_IN_TEST_SUITE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_function_exceeds_its_limits_whatever_starlark_gives_it() {
    try_all_functions(ScriptLanguage::Starlark, STARLARK_TURNS_IN_TEST_SUITE).await;
}

async fn try_all_functions(language: ScriptLanguage, turns: usize) {
    // Memory is counted for the process as a whole, which the tests share with `cargo test`.
    static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _turn = ONE_AT_A_TIME.lock().await;
    moonlark_child::return_memory_when_idle(|| ());
    let seconds = from_env("MOONLARK_BOUNDS_SECONDS");
    let seed = from_env("MOONLARK_BOUNDS_SEED").unwrap_or(1);
    let only = std::env::var("MOONLARK_BOUNDS_ONLY").unwrap_or_default();
    let port = serve_zeros().await;
    let modules = moonlark_host::host_modules();
    let mut targets = host_functions(&modules, language, port);
    let mut functions: Vec<String> = targets.iter().map(|target| target.name.clone()).collect();
    let lab = Lab::open(language, port, &[]).await;
    let builtins = lab.ask(json!({"plan": {"list_builtins": true}})).await.unwrap();
    let builtins: Vec<String> = serde_json::from_value(builtins.to_json_lossy()).unwrap();
    assert!(builtins.len() > 60 && targets.len() > 60, "{} {}", builtins.len(), targets.len());
    // The Starlark probe has those of the language itself.
    if language == ScriptLanguage::Luau {
        functions.extend(builtins.iter().cloned());
    }
    let lab = Lab::open(language, port, &functions).await;

    targets.retain(|target| target.name.contains(&only));
    let builtins: Vec<&String> = builtins.iter().filter(|name| name.contains(&only)).collect();
    let sizes = Sizes { largest: lab.limits.memory / 4 };
    let mut numbers = SeededNumbers(seed);
    // What is made on first use is there before anything is counted.
    for target in &targets {
        let _ = lab.try_case(&target.case(0, Sizes { largest: 1024 }, &mut numbers)).await;
    }
    measure::trim();
    let (live, resident) = (measure::live_bytes(), measure::resident_bytes());
    // In processor time, so that a busy machine tries as many; Starlark spends it in its workers.
    let budget = seconds.map(Duration::from_secs);
    let time_spent = || measure::processor_time() + measure::children_time();
    let began = time_spent();
    let (mut failures, mut tried, mut outcomes) =
        (Vec::new(), 0u64, std::collections::BTreeMap::new());
    let mut turn = 0;
    'all: loop {
        let cases = targets.iter().map(|target| target.case(turn, sizes, &mut numbers));
        let mut cases: Vec<Case> = cases.collect();
        cases.extend(builtins.iter().map(|name| builtin_case(name, sizes, &mut numbers)));
        for case in cases {
            if budget.is_some_and(|budget| time_spent().saturating_sub(began) > budget) {
                break 'all;
            }
            tried += 1;
            match lab.try_case_repeatedly(&case).await {
                Ok(outcome) => *outcomes.entry(outcome).or_insert(0u64) += 1,
                Err(why) => {
                    let what = lab.describe(&case).await;
                    println!("{why}\n    {what}");
                    failures.push(format!("{why}\n    {what}"));
                }
            }
            if failures.len() >= 40 {
                break 'all;
            }
        }
        turn += 1;
        if budget.is_none() && turn == turns {
            break;
        }
    }
    measure::trim();
    let left = measure::live_bytes().saturating_sub(live);
    let left_resident = measure::resident_bytes().saturating_sub(resident);
    println!(
        "{tried} calls of {} functions in {turn} turns from seed {seed} in {language:?}: \
         {outcomes:?}; {} MB are left, {} MB as the system sees it",
        targets.len() + builtins.len(),
        left >> 20,
        left_resident >> 20
    );
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(left < KEPT_BYTES, "{} MB are left", left >> 20);
    assert!(left_resident < 4 * KEPT_BYTES, "{} MB are left to the system", left_resident >> 20);
}
