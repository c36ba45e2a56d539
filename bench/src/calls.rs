//! CPU of one call in process: gateway, schema, isolation, script, result.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use mlua::chunk::{ChunkMode, Compiler};
use mlua::{Function, Lua, LuaOptions, StdLib, Table};
use moonlark_core::tool::CallScope;
use moonlark_core::{Catalog, Module, Tool, Value};
use moonlark_gateway::{Caller, Gateway};
use moonlark_luau::{LuauEngine, ScriptFile};
use tokio::runtime::Runtime;

use super::report::{Row, Section, micros, times};
use super::rounds::median;
use super::{Effort, machine, process, scripts};

/// Tools called once each in an engine: fewer than it keeps VMs for.
const FRESH: usize = 100;
/// Tools called once each when VMs are given up again: far more than it keeps.
const GIVEN_UP: usize = 1000;
const WARM: usize = 5000;
const IN_FLIGHT: usize = 16;

pub(super) fn run(effort: Effort) -> Result<Vec<Section>> {
    eprintln!("calls in process …");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bytecode = compile(scripts::ECHO, 2)?;
    let rounds = effort.rounds.max(3) * 4;
    let measure = |mut ours: Box<dyn FnMut() -> Result<f64> + '_>,
                   mut floor: Box<dyn FnMut() -> Result<f64> + '_>|
     -> Result<(f64, f64)> {
        let mut both = Vec::new();
        for _ in 0..rounds {
            machine::quiet();
            both.push((ours()?, floor()?));
        }
        Ok((median(both.iter().map(|b| b.0)), median(both.iter().map(|b| b.1))))
    };

    let fresh = measure(
        Box::new(|| once_each(&runtime, FRESH)),
        Box::new(|| bare_fresh(&bytecode, FRESH, false)),
    )?;
    let given_up = {
        let echoes = Engine::new(&runtime, GIVEN_UP)?;
        // Until the engine keeps as many VMs as it ever will.
        echoes.once_each(&runtime)?;
        measure(
            Box::new(|| echoes.once_each(&runtime)),
            Box::new(|| bare_fresh(&bytecode, GIVEN_UP, true)),
        )?
    };
    let echo = Engine::new(&runtime, 1)?;
    echo.one_by_one(&runtime, WARM)?;
    let warm = measure(
        Box::new(|| echo.one_by_one(&runtime, WARM)),
        Box::new(|| bare_warm(&bytecode, WARM)),
    )?;
    echo.in_flight(&runtime, WARM)?;
    let busy = measure(
        Box::new(|| echo.in_flight(&runtime, WARM)),
        Box::new(|| bare_warm(&bytecode, WARM)),
    )?;

    let row = |what: &str, (ours, floor): (f64, f64)| {
        Row::new(what).ratio(times(ours / floor)).figures(micros(ours), micros(floor))
    };
    let at_most = |row: Row, ours: f64, goal: f64| row.goal(format!("≤ {goal} µs"), ours <= goal);
    Ok(vec![Section {
        title: "One call of a script tool, in process",
        about: "CPU of all threads for one call of the echo tool through the gateway, against \
                the same script in a bare Luau VM on one thread: no limits, no schema, no \
                gateway. The bare VM is new where ours is, and has fresh globals for every call.",
        rows: vec![
            at_most(row("cold: first call in a new VM", fresh), fresh.0, 130.0),
            row("cold, and the VM is given up after it", given_up),
            at_most(row("warm, one call at a time", warm), warm.0, 40.0),
            at_most(row(&format!("warm, {IN_FLIGHT} in flight"), busy), busy.0, 40.0),
        ],
    }])
}

/// The engine with tools in a gateway, as the server has it.
pub(super) struct Engine {
    gateway: Gateway,
    names: Vec<String>,
    // Ends the script threads when dropped.
    _engine: LuauEngine,
}

impl Engine {
    /// With `count` echo tools.
    pub(super) fn new(runtime: &Runtime, count: usize) -> Result<Engine> {
        let names: Vec<String> = (1..=count).map(scripts::name).collect();
        let texts = names.iter().map(|name| scripts::named(name)).collect();
        Engine::with(runtime, texts)
    }

    /// With a tool for each of these scripts.
    pub(super) fn with(runtime: &Runtime, texts: Vec<String>) -> Result<Engine> {
        let modules: Arc<Vec<Module>> = Arc::new(moonlark_host::host_modules());
        let engine = LuauEngine::new(&modules).map_err(|problem| anyhow!("{problem}"))?;
        let catalog = |tools| Catalog::new(modules.clone(), tools, &[], Vec::new());
        let gateway = Gateway::new(catalog(Vec::new()), 10_000);
        let mut tools: Vec<Arc<Tool>> = Vec::new();
        for (index, text) in texts.into_iter().enumerate() {
            let main = format!("{index}.lua");
            let script = ScriptFile {
                folder: "tools".to_owned(),
                file: format!("tools/{main}"),
                main,
                configured: None,
                files: Arc::new(move |_| Ok(text.clone())),
                scope: CallScope::default(),
                loading: Arc::default(),
            };
            let (tool, _) = runtime.block_on(engine.load_tool(script, &gateway));
            tools.push(Arc::new(tool.map_err(|problem| anyhow!("{problem}"))?));
        }
        let names = tools.iter().map(|tool| tool.name.clone()).collect();
        gateway.publish(catalog(tools));
        Ok(Engine { gateway, names, _engine: engine })
    }

    /// Call every tool once: microseconds of CPU for each.
    fn once_each(&self, runtime: &Runtime) -> Result<f64> {
        let (gateway, names) = (self.gateway.clone(), self.names.clone());
        let count = names.len();
        cpu_per(count, || {
            runtime.block_on(runtime.spawn(async move {
                for name in &names {
                    echo(&gateway, name).await?;
                }
                anyhow::Ok(())
            }))?
        })
    }

    pub(super) fn one_by_one(&self, runtime: &Runtime, calls: usize) -> Result<f64> {
        cpu_per(calls, || runtime.block_on(self.repeat(runtime, calls))?)
    }

    fn in_flight(&self, runtime: &Runtime, calls: usize) -> Result<f64> {
        let each = calls / IN_FLIGHT;
        cpu_per(each * IN_FLIGHT, || {
            let tasks: Vec<_> = (0..IN_FLIGHT).map(|_| self.repeat(runtime, each)).collect();
            tasks.into_iter().try_for_each(|task| runtime.block_on(task)?)
        })
    }

    /// Call the first tool again and again, on the threads of `runtime`.
    fn repeat(&self, runtime: &Runtime, calls: usize) -> tokio::task::JoinHandle<Result<()>> {
        let (gateway, name) = (self.gateway.clone(), self.names[0].clone());
        runtime.spawn(async move {
            for _ in 0..calls {
                echo(&gateway, &name).await?;
            }
            Ok(())
        })
    }

    pub(super) async fn call(&self, args: Value) -> Result<Value> {
        call(&self.gateway, &self.names[0], args).await
    }
}

async fn call(gateway: &Gateway, name: &str, args: Value) -> Result<Value> {
    let problem = |problem| anyhow!("{problem}");
    let call = gateway.open_call(Caller::new("bench")).map_err(problem)?;
    gateway.call(&call, name, args).await.map_err(problem)
}

async fn echo(gateway: &Gateway, name: &str) -> Result<()> {
    let args = Value::from_fields([("message", "hello".into())]);
    let result = call(gateway, name, args).await?;
    ensure!(result.get("echo").and_then(Value::as_str) == Some("Echo: hello"), "wrong result");
    Ok(())
}

/// A new engine, and each of its tools called once.
fn once_each(runtime: &Runtime, tools: usize) -> Result<f64> {
    Engine::new(runtime, tools)?.once_each(runtime)
}

/// Microseconds of CPU, over all threads, for each of `count` things that `work` does.
fn cpu_per(count: usize, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let before = process::own_cpu();
    work()?;
    Ok((process::own_cpu() - before).as_secs_f64() * 1e6 / count as f64)
}

// The floor: Luau itself, through the same crate ------------------------------------

pub(super) fn compile(text: &str, level: u8) -> Result<Vec<u8>> {
    Compiler::new()
        .set_optimization_level(level)
        .set_debug_level(1)
        .compile(text)
        .context("the script does not compile")
}

/// Each call in a VM of its own, which is kept or given up.
fn bare_fresh(bytecode: &[u8], calls: usize, give_up: bool) -> Result<f64> {
    let mut kept = Vec::with_capacity(calls);
    cpu_per(calls, || {
        for _ in 0..calls {
            let lua = bare_vm()?;
            bare_call(&lua, bytecode)?;
            if !give_up {
                kept.push(lua);
            }
        }
        Ok(())
    })
}

pub(super) fn bare_warm(bytecode: &[u8], calls: usize) -> Result<f64> {
    let lua = bare_vm()?;
    cpu_per(calls, || (0..calls).try_for_each(|_| bare_call(&lua, bytecode)))
}

fn bare_vm() -> Result<Lua> {
    let lua = Lua::new_with(StdLib::ALL_SAFE, LuaOptions::new())?;
    lua.sandbox(true)?;
    Ok(lua)
}

fn bare_call(lua: &Lua, bytecode: &[u8]) -> Result<()> {
    let env = lua.create_table()?;
    let meta = lua.create_table()?;
    meta.raw_set("__index", lua.globals())?;
    env.set_metatable(Some(meta))?;
    lua.load(bytecode).set_mode(ChunkMode::Binary).set_environment(env.clone()).exec()?;
    let execute: Function = env.raw_get::<Table>("tool")?.raw_get("execute")?;
    let params = lua.create_table()?;
    params.raw_set("message", "hello")?;
    params.raw_set("times", 1)?;
    let result: Table = execute.call(params)?;
    ensure!(result.raw_get::<String>("echo")? == "Echo: hello", "wrong result");
    Ok(())
}
