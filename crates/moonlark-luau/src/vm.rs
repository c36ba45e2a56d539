//! One sandboxed VM: built from the allow-list in `prelude.luau`, runs one
//! script at a time, and is kept for the next call of the same script only
//! after a clean end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value as Lv};
use moonlark_core::limits::size;
use moonlark_core::value::{Object, Value};
use moonlark_core::{Call, Code, Problem, Result};

use crate::bridge::Bridge;
use crate::connector::{Items, MAX_STATE, Scanned};
use crate::errors;
use crate::host::{self, Shared};
use crate::prelude::Prelude;
use crate::unit::Unit;
use crate::watchdog::{self, Interrupt};

/// Memory a VM may have gained over its runs before it is replaced.
const GROWTH: usize = 2 * 1024 * 1024;
/// Answers that an agent's script is given before others have their turn.
const ANSWERS: usize = 64;
/// Runs before a VM is replaced.
const USES: u32 = 1000;

pub(crate) struct Vm {
    lua: Lua,
    bridge: Bridge,
    shared: Arc<Shared>,
    interrupt: Arc<Interrupt>,
    begin: Function,
    load: Function,
    run: Function,
    test: Function,
    /// Memory in use when it was new.
    fresh: usize,
    uses: u32,
}

impl Vm {
    pub(crate) fn new(prelude: &Arc<Prelude>) -> Result<Vm> {
        Self::build(prelude)
            .map_err(|error| Problem::internal(format!("cannot build a script VM: {error}")))
    }

    fn build(prelude: &Arc<Prelude>) -> mlua::Result<Vm> {
        let lua = Lua::new_with(StdLib::ALL_SAFE, LuaOptions::new())?;
        // All that is made here stays.
        lua.gc_stop();
        let bridge = Bridge::new(&lua)?;
        let interrupt = Interrupt::install(&lua)?;
        let shared = Arc::new(Shared::new(prelude.clone(), interrupt.clone(), bridge.clone()));
        let functions = host::functions(&lua, &shared)?;
        let main: Function = lua
            .load(prelude.bytecode())
            .set_mode(mlua::chunk::ChunkMode::Binary)
            .set_name("=prelude")
            .into_function()?;
        let (begin, load, run, test) = main.call((functions, host::PENDING))?;
        lua.gc_restart();
        let fresh = lua.used_memory();
        Ok(Vm { lua, bridge, shared, interrupt, begin, load, run, test, fresh, uses: 0 })
    }

    pub(crate) fn interrupt(&self) -> &Arc<Interrupt> {
        &self.interrupt
    }

    /// Whether the next call of the same script may have it.
    pub(crate) fn is_clean(&self) -> bool {
        self.uses < USES && self.lua.used_memory() < self.fresh + GROWTH
    }

    /// Run the script's top level and hand its globals to `read`.
    pub(crate) async fn load<T>(
        &mut self,
        unit: &Arc<Unit>,
        call: &Call,
        read: impl FnOnce(&Bridge, &Table) -> Result<T>,
    ) -> Result<T> {
        let (env, main) = self.prepare(unit, call)?;
        let values = MultiValue::from_vec(vec![Lv::Function(main)]);
        self.drive(self.load.clone(), values, unit, call).await?;
        let read = read(&self.bridge, &env);
        self.shared.end();
        read
    }

    /// Run the script's top level and then its `tool.execute`.
    pub(crate) async fn execute(
        &mut self,
        unit: &Arc<Unit>,
        call: &Call,
        args: Value,
    ) -> Result<Value> {
        self.uses += 1;
        let (env, main) = self.prepare(unit, call)?;
        let values =
            self.arguments(env, main, call, args).map_err(|error| self.failed(&error, call))?;
        let result = self.drive(self.run.clone(), values, unit, call).await?;
        let value = self.bridge.read(&result, "result", call.limits().value);
        self.shared.end();
        value
    }

    /// Run the script's top level and then its function `name`.
    pub(crate) async fn test(&mut self, unit: &Arc<Unit>, call: &Call, name: &str) -> Result<()> {
        let (env, main) = self.prepare(unit, call)?;
        let name = self.lua.create_string(name).map_err(|error| self.failed(&error, call))?;
        let values = [Lv::Function(main), Lv::Table(env), Lv::Number(seed()), Lv::String(name)];
        let values = MultiValue::from_iter(values);
        let ended = self.drive(self.test.clone(), values, unit, call).await;
        self.shared.end();
        ended.map(drop)
    }

    /// Run the script's top level and then its `connector.scan`.
    pub(crate) async fn scan(
        &mut self,
        unit: &Arc<Unit>,
        call: &Call,
        state: Value,
        items: Items,
    ) -> Result<Scanned> {
        let (env, main) = self.prepare(unit, call)?;
        self.shared.set_items(items);
        let values = self.scanning(env, main, call, state);
        let values = values.map_err(|error| self.failed(&error, call))?;
        let ended = self.drive(self.run.clone(), values, unit, call).await;
        let scanned = ended.and_then(|ended| {
            let field = |name: &str| {
                ended.as_table().and_then(|it| it.raw_get::<Lv>(name).ok()).unwrap_or(Lv::Nil)
            };
            let state = self.bridge.read(&field("state"), "state", MAX_STATE)?;
            Ok(Scanned { state, incremental: field("looked") == Lv::Boolean(true) })
        });
        self.shared.end();
        scanned
    }

    /// Run an agent's script. Beside its answer: how many calls it had started
    /// that had not ended.
    pub(crate) async fn agents(&mut self, unit: &Arc<Unit>, call: &Call) -> (Result<Value>, usize) {
        let ended = match self.prepare(unit, call) {
            Ok((env, main)) => {
                let seed = call.run().map_or_else(seed, |run| f64::from(run.seed()));
                let values = [Lv::Function(main), Lv::Table(env), Lv::Number(seed)];
                self.drive(self.run.clone(), values.into_iter().collect(), unit, call).await
            }
            Err(problem) => Err(problem),
        };
        let value = match call.run() {
            // What it would give back is not known; what it would do is.
            Some(run) if run.is_plan() => ended.map(|_| Value::Null),
            _ => ended.and_then(|it| self.bridge.read(&it, "result", call.limits().value)),
        };
        let cut_short = |problem: &Problem| {
            matches!(problem.code, Code::Timeout | Code::Limit | Code::Cancelled)
        };
        let value = match (call.run(), self.shared.left_out()) {
            // It ended by itself, and has gone another way than before.
            (Some(run), Some(problem)) if !value.as_ref().is_err_and(cut_short) => {
                Err(run.stop(problem))
            }
            _ => value,
        };
        self.shared.log_missing_fields();
        let open = self.shared.open_calls();
        self.shared.end();
        (value, open)
    }

    /// Fresh globals, and the script bound to them. The call is known before,
    /// because binding already looks up what the script names.
    fn prepare(&mut self, unit: &Arc<Unit>, call: &Call) -> Result<(Table, Function)> {
        self.shared.begin(call.clone(), unit.clone());
        let build = || -> mlua::Result<(Table, Function)> {
            let limits = call.limits();
            self.lua.set_memory_limit(limits.memory)?;
            let env: Table = match self.shared.is_for_agents() {
                true => {
                    let plan = call.run().is_some_and(|run| run.is_plan());
                    self.begin.call((limits.parallel, limits.calls, plan))?
                }
                false => self.begin.call((unit.path(), unit.main().name()))?,
            };
            let main = unit.main().bind(&self.lua, env.clone())?;
            Ok((env, main))
        };
        build().map_err(|error| self.failed(&error, call))
    }

    fn arguments(
        &self,
        env: Table,
        main: Function,
        call: &Call,
        args: Value,
    ) -> mlua::Result<MultiValue> {
        let lua = &self.lua;
        let caller = Value::object([
            ("surface", call.caller().surface.into()),
            ("name", call.caller().name().into()),
            ("client", call.caller().client.clone().into()),
        ]);
        Ok(MultiValue::from_vec(vec![
            Lv::Function(main),
            Lv::Table(env),
            Lv::Number(seed()),
            self.bridge.to_lua(lua, args)?,
            self.bridge.to_lua(lua, call.scope().config.clone())?,
            self.bridge.to_lua(lua, caller)?,
        ]))
    }

    fn scanning(
        &self,
        env: Table,
        main: Function,
        call: &Call,
        state: Value,
    ) -> mlua::Result<MultiValue> {
        let table = |value| match value {
            Value::Null => Value::Object(Object::new()),
            value => value,
        };
        let config = table(call.scope().config.clone());
        Ok(MultiValue::from_vec(vec![
            Lv::Function(main),
            Lv::Table(env),
            Lv::Number(seed()),
            self.bridge.to_lua(&self.lua, config)?,
            self.bridge.to_lua(&self.lua, table(state))?,
        ]))
    }

    /// Resume the script until it is done, giving way whenever it waits.
    async fn drive(
        &mut self,
        function: Function,
        values: MultiValue,
        unit: &Arc<Unit>,
        call: &Call,
    ) -> Result<Lv> {
        let thread = self.lua.create_thread(function).map_err(|error| self.failed(&error, call))?;
        self.interrupt.begin(thread.to_pointer(), call.clone());
        let (mut values, mut preempted) = (Some(values), false);
        let for_agents = self.shared.is_for_agents();
        // All of an agent's script waits.
        let mut waits = false;
        let ended = std::future::poll_fn(|cx| {
            self.shared.set_waker(cx.waker());
            for _ in 0..ANSWERS {
                if waits {
                    let number = match std::task::ready!(self.shared.next_answer(cx)) {
                        Ok(number) => number,
                        Err(problem) => return Poll::Ready(Err(problem)),
                    };
                    values = Some(MultiValue::from_iter([Lv::Number(number as f64)]));
                }
                let entered = watchdog::enter(&self.interrupt);
                let resumed = thread.resume::<MultiValue>(values.take().unwrap_or_default());
                drop(entered);
                let results = match resumed {
                    Ok(results) => results,
                    Err(error) => return Poll::Ready(Err(self.failed(&error, call))),
                };
                if thread.status() != mlua::thread::ThreadStatus::Resumable {
                    return Poll::Ready(Ok(results));
                }
                let pending = results.front() == Some(&Lv::LightUserData(host::PENDING));
                waits = pending && for_agents;
                if waits {
                    continue;
                }
                if pending {
                    // It polled the host before it was preempted: a wake-up that
                    // came in between is spent, so it has to look once more.
                    if std::mem::take(&mut preempted) {
                        cx.waker().wake_by_ref();
                    }
                    return Poll::Pending;
                }
                if self.interrupt.take_yield() {
                    preempted = true;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let message = "coroutine.yield was called outside a coroutine";
                return Poll::Ready(Err(Problem::tool_error(message)));
            }
            // There is more, and others have their turn.
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        if let Some(doom) = self.interrupt.take_doom() {
            return Err(doom);
        }
        let mut results = ended?;
        let ok = results.pop_front() == Some(Lv::Boolean(true));
        let value = results.pop_front().unwrap_or(Lv::Nil);
        if ok {
            return Ok(value);
        }
        Err(errors::problem(&self.bridge, &self.shared, value, unit, call.limits()))
    }

    /// An error of the VM itself, outside anything the script could catch.
    fn failed(&self, error: &mlua::Error, call: &Call) -> Problem {
        self.interrupt.take_doom().unwrap_or_else(|| match error {
            mlua::Error::MemoryError(_) => out_of_memory(call.limits().memory),
            error => Problem::tool_error(errors::first_line(&error.to_string())),
        })
    }
}

pub(crate) fn out_of_memory(limit: usize) -> Problem {
    Problem::limit(format!("the script used more than {} of memory", size(limit)))
        .hint("work in smaller pieces, or raise limits.memory in moonlark.toml")
}

/// A different seed for every run, so that `math.random` carries nothing over.
fn seed() -> f64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |elapsed| u64::from(elapsed.subsec_nanos()));
    (count.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ nanos) as u32 as f64
}
