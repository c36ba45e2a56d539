//! Starlark scripts that attack the process: each ends as its header says, in a
//! worker that can be spared, and nobody else notices.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use moonlark_core::grant::GrantSet;
use moonlark_core::limits::CallLimits;
use moonlark_core::tool::CallScope;
use moonlark_core::{Catalog, Problem, Value};
use moonlark_gateway::{Caller, Gateway};
use serde_json::json;

use crate::engines::Engines;
use crate::harness::is_own_process;
use crate::hostile::folder;
use crate::hostile_server;

const TIMEOUT: Duration = Duration::from_millis(1000);
/// What the machine may add when it is busy with six of these at once.
const MARGIN: Duration = Duration::from_secs(6);
/// Of this process; the workers have limits of their own.
const MEMORY: u64 = 400 << 20;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mode {
    /// In a handler.
    Call,
    /// While the extension loads.
    Load,
    /// While a file loads that the extension loads.
    Library,
}

struct Attack {
    name: String,
    expect: Vec<String>,
    modes: Vec<Mode>,
    grants: Vec<String>,
    text: String,
}

impl Attack {
    fn read(path: &Path, port: u16) -> Attack {
        let text = std::fs::read_to_string(path).unwrap().replace("$PORT", &port.to_string());
        let field = |name: &str| -> Vec<String> {
            let prefix = format!("# {name}: ");
            let words =
                text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default();
            words.split(", ").filter(|word| !word.is_empty()).map(str::to_owned).collect()
        };
        let modes = match field("modes") {
            names if names.is_empty() => vec![Mode::Call, Mode::Load, Mode::Library],
            _ => vec![Mode::Call],
        };
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(!field("expect").is_empty(), "{name} does not say what to expect");
        Attack { name, expect: field("expect"), modes, grants: field("grants"), text }
    }

    fn accepts(&self, mode: Mode, outcome: &Result<Value, Problem>) -> Result<(), String> {
        let code = match outcome {
            Ok(_) => "ok",
            Err(problem) => problem.code.as_str(),
        };
        let expected = |code: &str| self.expect.iter().any(|expected| expected == code);
        // What would be a tool's failure is a bad script while it loads.
        let loading = mode != Mode::Call && code == "bad_script" && expected("tool_error");
        let shown = match outcome {
            Ok(value) => format!("{value:?}").chars().take(200).collect(),
            Err(problem) => problem.to_string(),
        };
        if shown.len() > 20_000 {
            return Err(format!("says {} bytes", shown.len()));
        }
        if expected(code) || loading {
            return Ok(());
        }
        Err(format!("expected {:?}, got {code}: {shown}", self.expect))
    }
}

async fn attack(engines: &Engines, attack: &Attack, mode: Mode) -> Result<(), String> {
    let folder = folder();
    // What another limit ends must not race with the clock of a busy machine.
    let timed = attack.expect.iter().any(|expected| expected == "timeout");
    let timeout = if timed { TIMEOUT } else { 20 * TIMEOUT };
    let grants = attack.grants.iter().map(|grant| grant.parse().unwrap()).collect();
    let scope = CallScope {
        grants: GrantSet::for_authored_script(
            "extensions.script.x",
            folder.path().join("tools"),
            grants,
        ),
        limits: CallLimits {
            timeout,
            memory: 32 << 20,
            logs: 64 << 10,
            value: 1 << 20,
            http_body: 256 << 10,
            ..CallLimits::default()
        },
        ..CallScope::default()
    };
    let end = "\n\ndef describe_extension():\n    return Extension(name = 'x', tools = [Tool(name = 'x', handler = HANDLER)])\n";
    let text = &attack.text;
    let started = Instant::now();
    let loaded = match mode {
        Mode::Call => {
            engines.star(&format!("{text}{}", end.replace("HANDLER", "attack")), &[], scope).await
        }
        Mode::Load => {
            let text = format!("{text}\n\nattack({{}})\n{}", end.replace("HANDLER", "attack"));
            engines.star(&text, &[], scope).await
        }
        Mode::Library => {
            let library = format!("{text}\n\nattack({{}})\n\ndef nothing(params):\n    return 1\n");
            let main =
                format!("load('lib.star', 'nothing')\n{}", end.replace("HANDLER", "nothing"));
            engines.star(&main, &[("lib.star", &library)], scope).await
        }
    };
    let outcome = match loaded {
        Ok(tool) if mode == Mode::Call => {
            let called = engines.call(tool, json!({})).await;
            called.and_then(|value| value.encode_json("result").map(Value::Str))
        }
        Ok(_) => Ok(Value::Null),
        Err(problem) => Err(problem),
    };
    if started.elapsed() > 2 * timeout + MARGIN {
        return Err(format!("took {:?}", started.elapsed()));
    }
    attack.accepts(mode, &outcome)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attack_in_starlark_ends_as_stated_and_the_neighbours_do_not_notice() {
    let name = "every_attack_in_starlark_ends_as_stated_and_the_neighbours_do_not_notice";
    if !is_own_process(&format!("hostile_starlark::{name}")) {
        return;
    }
    let port = hostile_server::start().await;
    let only = std::env::var("HOSTILE").unwrap_or_default();
    let mut files: Vec<_> =
        std::fs::read_dir(crate::harness::repo().join("tests/hostile_starlark"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_string_lossy().contains(&only))
            .collect();
    files.sort();
    assert!(!only.is_empty() || files.len() >= 90, "the corpus is missing");
    let attacks: Vec<Arc<Attack>> =
        files.iter().map(|path| Arc::new(Attack::read(path, port))).collect();
    let engines = Arc::new(Engines::new());

    // The neighbour: another extension on the same engine.
    let stop = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicU64::new(0));
    let neighbour = {
        let (engines, stop, calls) = (engines.clone(), stop.clone(), calls.clone());
        tokio::spawn(async move {
            let text = "def echo(params):\n    sleep(0.001)\n    return {'ok': True}\n\ndef describe_extension():\n    return Extension(name = 'n', tools = [Tool(name = 'echo', handler = echo)])\n";
            let tool = engines.star(text, &[], CallScope::default()).await.unwrap();
            let catalog = Catalog::new(engines.modules.clone(), vec![Arc::new(tool)], &[], vec![]);
            let gateway = Gateway::new(catalog, 10);
            while !stop.load(Ordering::Relaxed) {
                let call = gateway.open_call(Caller::new("cli")).unwrap();
                let answer = gateway.call(&call, "echo", Value::Object(Default::default())).await;
                assert_eq!(answer, Ok(Value::from_fields([("ok", Value::Bool(true))])));
                calls.fetch_add(1, Ordering::Relaxed);
            }
        })
    };

    let peak = Arc::new(AtomicU64::new(0));
    let runs =
        attacks.iter().flat_map(|attack| attack.modes.iter().map(move |mode| (attack, *mode)));
    let suspects: Vec<(Arc<Attack>, Mode)> = futures::stream::iter(runs)
        .map(|(one, mode)| {
            let (engines, peak, one) = (engines.clone(), peak.clone(), one.clone());
            tokio::spawn(async move {
                let ended = attack(&engines, &one, mode).await;
                peak.fetch_max(hostile_server::rss(), Ordering::Relaxed);
                ended.is_err().then_some((one, mode))
            })
        })
        .buffer_unordered(6)
        .filter_map(|ended| std::future::ready(ended.unwrap()))
        .collect()
        .await;
    // Six at once on a busy machine can be too slow for their second; alone,
    // each has to end as stated.
    let mut failures = Vec::new();
    for (one, mode) in suspects {
        if let Err(why) = attack(&engines, &one, mode).await {
            failures.push(format!("{} as {mode:?}: {why}", one.name));
        }
    }
    stop.store(true, Ordering::Relaxed);
    neighbour.await.unwrap();
    println!(
        "{} files, neighbour answered {} times, memory at most {} MB",
        attacks.len(),
        calls.load(Ordering::Relaxed),
        peak.load(Ordering::Relaxed) >> 20
    );
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(calls.load(Ordering::Relaxed) > 100);
    assert!(peak.load(Ordering::Relaxed) < MEMORY, "{} MB", peak.load(Ordering::Relaxed) >> 20);
}
