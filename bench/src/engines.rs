//! One trivial handler in Luau and in Starlark, and what loading costs, each
//! against the same engine with nothing around it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use moonlark_core::tool::CallScope;
use moonlark_core::{Catalog, Module as HostModule, Value};
use moonlark_gateway::{Caller, Gateway};
use moonlark_starlark::{ExtensionFile, StarlarkEngine};
use starlark::environment::{FrozenModule, Globals, GlobalsBuilder, LibraryExtension, Module};
use starlark::eval::Evaluator;
use starlark::syntax::{AstModule, Dialect};
use starlark::values::dict::AllocDict;
use starlark::values::none::NoneType;
use tokio::runtime::Runtime;

use super::calls::{self, Engine as Luau};
use super::report::{Row, Section, micros, times};
use super::rounds::median;
use super::{Effort, machine, process, scripts};

const CALLS: usize = 5000;
const LOADS: usize = 20;

/// The echo tool of the Luau examples, in Starlark.
const ECHO: &str = r#"
def echo(params):
    return {"echo": ", ".join(["Echo: " + params["message"]] * params["times"])}

def describe_extension():
    return Extension(name = "echo", tools = [Tool(
        name = "echo",
        description = "Echoes back the input message",
        parameters = [
            ToolParameter("message", "string", True, description = "What to say"),
            ToolParameter("times", "integer", default = 1, minimum = 1, maximum = 10),
        ],
        handler = echo,
    )])
"#;

/// The same, asking the host for something in every call.
const PURE: &str = r#"
def pure(params):
    return {"echo": base64.encode(params["message"])}

def describe_extension():
    return Extension(name = "pure", tools = [Tool(name = "pure", parameters = [ToolParameter("message", "string")], handler = pure)])
"#;

const WORLD: &str = r#"
def world(params):
    log.debug("asked")
    return {"echo": params["message"]}

def describe_extension():
    return Extension(name = "world", tools = [Tool(name = "world", parameters = [ToolParameter("message", "string")], handler = world)])
"#;

/// A real extension, and what it loads.
const REAL: &str = "examples/extensions/git.star";

pub(super) fn run(effort: Effort) -> Result<Vec<Section>> {
    eprintln!("engines …");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let rounds = effort.rounds.max(3) * 2;
    let in_turns = |ours: &mut dyn FnMut() -> Result<f64>,
                    floor: &mut dyn FnMut() -> Result<f64>|
     -> Result<(f64, f64)> {
        let mut both = Vec::new();
        for _ in 0..rounds {
            machine::quiet();
            both.push((ours()?, floor()?));
        }
        Ok((median(both.iter().map(|b| b.0)), median(both.iter().map(|b| b.1))))
    };

    let luau = Luau::new(&runtime, 1)?;
    let bytecode = calls::compile(scripts::ECHO, 2)?;
    luau.one_by_one(&runtime, CALLS)?;
    let in_luau = in_turns(&mut || luau.one_by_one(&runtime, CALLS), &mut || {
        calls::bare_warm(&bytecode, CALLS)
    })?;

    let measured = |text: &str| -> Result<(f64, f64)> {
        let starlark = Host::new(&runtime)?;
        starlark.load(&runtime, text)?;
        starlark.calls(&runtime, CALLS)?;
        in_turns(&mut || starlark.calls(&runtime, CALLS), &mut || bare_calls(CALLS))
    };
    let in_starlark = measured(ECHO)?;
    let with_pure = measured(PURE)?;
    let with_world = measured(WORLD)?;

    let loader = Host::new(&runtime)?;
    loader.load(&runtime, ECHO)?;
    let small = in_turns(&mut || loader.loads(&runtime, ECHO), &mut || bare_loads(ECHO))?;
    let real = std::fs::read_to_string(repo().join(REAL)).context(REAL)?;
    let large = in_turns(&mut || loader.loads(&runtime, &real), &mut || bare_loads(&real))?;
    let cold = in_turns(&mut || cold(&runtime), &mut || bare_loads(ECHO))?;

    let row = |what: &str, (ours, floor): (f64, f64)| {
        Row::new(what).ratio(times(ours / floor)).figures(micros(ours), micros(floor))
    };
    Ok(vec![
        Section {
            title: "One call of a trivial handler",
            about: "CPU of all threads and worker processes for one warm call through the \
                    gateway, one at a time, against the same handler called with no gateway at \
                    all: a bare Luau VM, a bare Starlark evaluator in the same process. Starlark \
                    handlers run in another process, so that they can be killed: two messages \
                    over a socket and two changes of process are most of what a call costs.",
            rows: vec![
                row("Luau", in_luau),
                row("Starlark", in_starlark),
                row("Starlark, with a pure host function (in the worker)", with_pure),
                row("Starlark, with one that asks the gateway", with_world),
            ],
        },
        Section {
            title: "Loading an extension",
            about: "Time from the text to tools that can be called, in a worker that is there, \
                    against parsing, evaluating and freezing the same text in this process. The \
                    last row starts the worker too.",
            rows: vec![
                row("the echo extension", small),
                row(&format!("{REAL} ({} KB)", real.len().div_ceil(1024)), large),
                row("the echo extension, in a new engine", cold),
            ],
        },
    ])
}

/// The engine with a gateway, as the server has it.
struct Host {
    modules: Arc<Vec<HostModule>>,
    engine: StarlarkEngine,
    gateway: Gateway,
}

impl Host {
    fn new(_: &Runtime) -> Result<Host> {
        let modules = Arc::new(moonlark_host::host_modules());
        let this = std::env::current_exe()?;
        let program = this.with_file_name("moonlark");
        ensure!(program.exists(), "{} is not built", program.display());
        let engine = StarlarkEngine::new(program, &modules);
        let catalog = Catalog::new(modules.clone(), Vec::new(), &[], Vec::new());
        Ok(Host { modules, engine, gateway: Gateway::new(catalog, 1000) })
    }

    /// Load an extension and publish its tools.
    fn load(&self, runtime: &Runtime, text: &str) -> Result<()> {
        let text = text.to_owned();
        let scope = CallScope::default();
        let extension = ExtensionFile {
            folder: "extensions".to_owned(),
            main: "bench.star".to_owned(),
            files: Arc::new(move |path| match path {
                "bench.star" => Ok(text.clone()),
                other => {
                    Ok(std::fs::read_to_string(repo().join("examples/extensions").join(other))
                        .unwrap_or_default())
                }
            }),
            loading: Arc::new(scope.clone()),
            scope,
        };
        let (loaded, _) = runtime.block_on(self.engine.load_extension(extension, &self.gateway));
        let tools = loaded.map_err(|problem| anyhow!("{problem}"))?.tools;
        let tools = tools.into_iter().map(Arc::new).collect();
        self.gateway.publish(Catalog::new(self.modules.clone(), tools, &[], Vec::new()));
        Ok(())
    }

    /// Microseconds of CPU for one call, workers included.
    fn calls(&self, runtime: &Runtime, count: usize) -> Result<f64> {
        let catalog = self.gateway.catalog();
        let name = catalog.tools()[0].name.clone();
        let gateway = self.gateway.clone();
        let before = (process::own_cpu(), workers_cpu());
        runtime.block_on(runtime.spawn(async move {
            for _ in 0..count {
                let problem = |problem| anyhow!("{problem}");
                let call = gateway.open_call(Caller::new("bench")).map_err(problem)?;
                let args = Value::from_fields([("message", "hello".into())]);
                let result = gateway.call(&call, &name, args).await.map_err(problem)?;
                ensure!(result.get("echo").is_some(), "wrong result");
            }
            anyhow::Ok(())
        }))??;
        let spent = (process::own_cpu() - before.0) + workers_cpu().saturating_sub(before.1);
        Ok(spent.as_secs_f64() * 1e6 / count as f64)
    }

    /// Microseconds until an extension is loaded.
    fn loads(&self, runtime: &Runtime, text: &str) -> Result<f64> {
        let started = Instant::now();
        for _ in 0..LOADS {
            self.load(runtime, text)?;
        }
        Ok(started.elapsed().as_secs_f64() * 1e6 / LOADS as f64)
    }
}

/// A new engine, and the time until its first extension is there.
fn cold(runtime: &Runtime) -> Result<f64> {
    let host = Host::new(runtime)?;
    let started = Instant::now();
    host.load(runtime, ECHO)?;
    Ok(started.elapsed().as_secs_f64() * 1e6)
}

/// CPU of all child processes that are workers.
fn workers_cpu() -> Duration {
    let mut sum = Duration::ZERO;
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for pid in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            sum += process::cpu(pid).unwrap_or_default();
        }
    }
    sum
}

fn repo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

// The floor: Starlark itself, through the same crate ----------------------------------

const HANDLER: &str = r#"
def echo(params):
    return {"echo": ", ".join(["Echo: " + params["message"]] * params["times"])}
"#;

fn bare_calls(count: usize) -> Result<f64> {
    let globals = Globals::standard();
    let module = freeze(HANDLER, &globals)?;
    let echo = module.get("echo")?;
    let before = process::own_cpu();
    for _ in 0..count {
        Module::with_temp_heap(|module| -> Result<()> {
            let heap = module.heap();
            let mut eval = Evaluator::new(&module);
            let params =
                heap.alloc(AllocDict([("message", heap.alloc("hello")), ("times", heap.alloc(1))]));
            let function = heap.access_owned_frozen_value(&echo);
            let result = eval
                .eval_function(function, &[params], &[])
                .map_err(starlark::Error::into_anyhow)?;
            ensure!(result.get_type() == "dict", "wrong result");
            Ok(())
        })?;
    }
    Ok((process::own_cpu() - before).as_secs_f64() * 1e6 / count as f64)
}

/// Parse, evaluate and freeze the functions of an extension. A bare evaluator
/// has no host modules and loads no files: their names are there, with nothing
/// behind them, and what describes the extension is left out.
fn bare_loads(text: &str) -> Result<f64> {
    let mut builder = GlobalsBuilder::extended_by(&[LibraryExtension::StructType]);
    for module in moonlark_host::host_modules() {
        builder.set(module.name, NoneType);
    }
    for line in text.lines().filter(|line| line.starts_with("load(")) {
        for name in line.split('"').skip(3).step_by(2) {
            builder.set(name, NoneType);
        }
    }
    let globals = builder.build();
    let text = text.split("def describe_extension").next().unwrap_or_default();
    let own: Vec<&str> = text.lines().filter(|line| !line.starts_with("load(")).collect();
    let own = format!("def ToolParameter(**fields):\n    return fields\n\n{}", own.join("\n"));
    let started = Instant::now();
    for _ in 0..LOADS {
        freeze(&own, &globals)?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / LOADS as f64)
}

fn freeze(text: &str, globals: &Globals) -> Result<FrozenModule> {
    let dialect = Dialect { enable_f_strings: true, ..Dialect::Standard };
    let ast = AstModule::parse("bench.star", text.to_owned(), &dialect)
        .map_err(starlark::Error::into_anyhow)?;
    Module::with_temp_heap(|module| {
        {
            let mut eval = Evaluator::new(&module);
            eval.eval_module(ast, globals).map_err(starlark::Error::into_anyhow)?;
        }
        module.freeze().map_err(|error| anyhow!("{error:?}"))
    })
}
