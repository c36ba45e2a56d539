//! One sandboxed VM: built from the allow-list in `prelude.luau`, runs one
//! script at a time, and has another one only after a clean end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value as Lv};
use moonlark_core::record_id::RecordId;
use moonlark_core::value::{Object, Value};
use moonlark_core::{Problem, ProblemCode, Result};
use moonlark_gateway::Call;

use crate::connector_script::{CompletedScan, MAX_CONNECTOR_STATE_BYTES, ScanItemSender};
use crate::luau_bridge::Bridge;
use crate::luau_errors;
use crate::prelude::LuauPrelude;
use crate::run_trace::RunTracer;
use crate::script_unit::ScriptUnit;
use crate::vm_host::{self, VmHost};
use crate::watchdog::{self, VmInterrupt};

/// Memory a VM may have gained over its runs before it is replaced.
const MAX_VM_GROWTH_BYTES: usize = 2 * 1024 * 1024;
/// Leftovers of the run before are collected when they are more than one of so many parts
/// of the memory that a script may have.
const MAX_LEFTOVER_SHARE: usize = 32;
/// Answers that an agent's script is given before others have their turn.
const MAX_ANSWERS_PER_POLL: usize = 64;
/// Runs before a VM is replaced.
const MAX_VM_USES: u32 = 1000;

pub(crate) struct LuauVm {
    lua: Lua,
    bridge: Bridge,
    shared: Arc<VmHost>,
    interrupt: Arc<VmInterrupt>,
    begin: Function,
    load: Function,
    run: Function,
    test: Function,
    /// Memory in use when it was new.
    fresh: usize,
    uses: u32,
}

impl LuauVm {
    pub(crate) fn new(prelude: &Arc<LuauPrelude>) -> Result<LuauVm> {
        Self::build_sandbox(prelude)
            .map_err(|error| Problem::internal(format!("cannot build a script VM: {error}")))
    }

    fn build_sandbox(prelude: &Arc<LuauPrelude>) -> mlua::Result<LuauVm> {
        let lua = Lua::new_with(StdLib::ALL_SAFE, LuaOptions::new())?;
        // All that is made here stays.
        lua.gc_stop();
        let bridge = Bridge::new(&lua)?;
        let interrupt = VmInterrupt::install(&lua)?;
        let shared = Arc::new(VmHost::new(prelude.clone(), interrupt.clone(), bridge.clone()));
        let functions = vm_host::create_host_table(&lua, &shared)?;
        let main: Function = lua
            .load(prelude.bytecode())
            .set_mode(mlua::chunk::ChunkMode::Binary)
            .set_name("=prelude")
            .into_function()?;
        let (begin, load, run, test) = main.call((functions, vm_host::PENDING_SENTINEL))?;
        lua.gc_restart();
        let fresh = lua.used_memory();
        Ok(LuauVm { lua, bridge, shared, interrupt, begin, load, run, test, fresh, uses: 0 })
    }

    pub(crate) fn interrupt(&self) -> &Arc<VmInterrupt> {
        &self.interrupt
    }

    /// Whether another script may have it.
    pub(crate) fn is_clean(&self) -> bool {
        self.uses < MAX_VM_USES
            && self.lua.used_memory() < self.fresh + MAX_VM_GROWTH_BYTES
            && !self.shared.memory.is_short()
    }

    /// Free what the runs so far have left behind.
    pub(crate) fn collect_garbage(&self) {
        // Nothing of a script runs here, so it can only fail for want of memory.
        let _ = self.lua.gc_collect();
        self.shared.memory.end_run(self.lua.used_memory());
    }

    /// Run the script's top level and hand its globals to `read`.
    pub(crate) async fn load_script<T>(
        &mut self,
        unit: &Arc<ScriptUnit>,
        call: &Call,
        read: impl FnOnce(&Bridge, &Table) -> Result<T>,
    ) -> Result<T> {
        let (env, main) = self.bind_script(unit, call)?;
        let values = MultiValue::from_iter([Lv::Function(main), Lv::Number(random_seed())]);
        self.drive_thread(self.load.clone(), values, unit, call).await?;
        let read = read(&self.bridge, &env);
        self.end_run();
        read
    }

    /// Run the script's top level and then its `tool.execute`.
    pub(crate) async fn run_execute(
        &mut self,
        unit: &Arc<ScriptUnit>,
        call: &Call,
        args: Value,
    ) -> Result<Value> {
        let (env, main) = self.bind_script(unit, call)?;
        let values = self
            .execute_arguments(env, main, call, args)
            .map_err(|error| self.vm_error_problem(&error))?;
        let result = self.drive_thread(self.run.clone(), values, unit, call).await?;
        let value = self.bridge.read_value(&result, "result", call.limits().value);
        self.end_run();
        value
    }

    /// Run the script's top level and then its function `name`.
    pub(crate) async fn run_test(
        &mut self,
        unit: &Arc<ScriptUnit>,
        call: &Call,
        name: &str,
    ) -> Result<()> {
        let (env, main) = self.bind_script(unit, call)?;
        let name = self.lua.create_string(name).map_err(|error| self.vm_error_problem(&error))?;
        let values =
            [Lv::Function(main), Lv::Table(env), Lv::Number(random_seed()), Lv::String(name)];
        let values = MultiValue::from_iter(values);
        let ended = self.drive_thread(self.test.clone(), values, unit, call).await;
        self.end_run();
        ended.map(drop)
    }

    /// Run the script's top level and then its `connector.scan`.
    pub(crate) async fn run_scan(
        &mut self,
        unit: &Arc<ScriptUnit>,
        call: &Call,
        state: Value,
        items: ScanItemSender,
    ) -> Result<CompletedScan> {
        let (env, main) = self.bind_script(unit, call)?;
        self.shared.set_items(items);
        let values = self.scan_arguments(env, main, call, state);
        let values = values.map_err(|error| self.vm_error_problem(&error))?;
        let ended = self.drive_thread(self.run.clone(), values, unit, call).await;
        let scanned = ended.and_then(|ended| {
            let field = |name: &str| {
                ended.as_table().and_then(|it| it.raw_get::<Lv>(name).ok()).unwrap_or(Lv::Nil)
            };
            let state =
                self.bridge.read_value(&field("state"), "state", MAX_CONNECTOR_STATE_BYTES)?;
            Ok(CompletedScan { state, incremental: field("looked") == Lv::Boolean(true) })
        });
        self.end_run();
        scanned
    }

    /// Run an agent's script. Beside its answer: how many calls it had started
    /// that had not ended.
    pub(crate) async fn run_agent_script(
        &mut self,
        unit: &Arc<ScriptUnit>,
        call: &Call,
        tracer: Option<Arc<RunTracer>>,
    ) -> (Result<Value>, usize) {
        let ended = match self.bind_script(unit, call) {
            Ok((env, main)) => {
                self.shared.set_tracer(tracer);
                let seed =
                    call.run().map_or_else(random_seed, |run| f64::from(run.language_seed()));
                let values = [Lv::Function(main), Lv::Table(env), Lv::Number(seed)];
                self.drive_thread(self.run.clone(), values.into_iter().collect(), unit, call).await
            }
            Err(problem) => Err(problem),
        };
        let value = match call.run() {
            // What it would give back is not known; what it would do is.
            Some(run) if run.is_result_unknown() => ended.map(|_| Value::Null),
            _ => ended.and_then(|it| self.bridge.read_value(&it, "result", call.limits().value)),
        };
        // What others held is no end of a run: it can go on when there is room.
        let value = match (call.run(), value) {
            (Some(run), Err(problem)) if self.shared.memory.ran_short() && !run.is_plan() => {
                Err(run.stop_with(resumable_problem(problem, call, run.id())))
            }
            (_, value) => value,
        };
        let cut_short = |problem: &Problem| {
            matches!(
                problem.code,
                ProblemCode::Timeout | ProblemCode::Limit | ProblemCode::Cancelled
            )
        };
        let mut value = match (call.run(), self.shared.missed_call_problem()) {
            // It ended by itself, and has gone another way than before.
            (Some(run), Some(problem)) if !value.as_ref().is_err_and(cut_short) => {
                Err(run.stop_with(problem))
            }
            _ => value,
        };
        self.shared.report_missing_values(&mut value);
        let open = self.shared.count_open_calls();
        self.end_run();
        (value, open)
    }

    /// Fresh globals, and the script bound to them. The call is known before,
    /// because binding already looks up what the script names.
    fn bind_script(&mut self, unit: &Arc<ScriptUnit>, call: &Call) -> Result<(Table, Function)> {
        self.uses += 1;
        let limits = call.limits();
        // What the run before has left behind is none of this script's.
        if self.lua.used_memory() > self.fresh + limits.memory / MAX_LEFTOVER_SHARE {
            self.lua.gc_collect().map_err(|error| self.vm_error_problem(&error))?;
        }
        let memory = &self.shared.memory;
        let most = memory.begin_run(self.lua.used_memory(), limits.memory, call.caller())?;
        self.shared.begin_run(call.clone(), unit.clone());
        let build = || -> mlua::Result<(Table, Function)> {
            self.lua.set_memory_limit(most)?;
            let env: Table = if self.shared.is_for_agents() {
                let plan = call.run().is_some_and(|run| run.is_plan());
                self.begin.call((limits.parallel, limits.calls, plan))?
            } else {
                self.begin.call((unit.path(), unit.main().name()))?
            };
            let main = unit.main().bind_globals(&self.lua, env.clone())?;
            Ok((env, main))
        };
        build().map_err(|error| self.vm_error_problem(&error))
    }

    /// The run is over, and the VM ready for another.
    fn end_run(&self) {
        self.shared.memory.end_run(self.lua.used_memory());
        self.shared.end_run();
    }

    fn execute_arguments(
        &self,
        env: Table,
        main: Function,
        call: &Call,
        args: Value,
    ) -> mlua::Result<MultiValue> {
        let lua = &self.lua;
        let caller = Value::from_fields([
            ("surface", call.caller().surface.into()),
            ("name", call.caller().name().into()),
            ("client", call.caller().client.clone().into()),
        ]);
        Ok(MultiValue::from_vec(vec![
            Lv::Function(main),
            Lv::Table(env),
            Lv::Number(random_seed()),
            self.bridge.to_lua(lua, args)?,
            self.bridge.to_lua(lua, call.scope().config.clone())?,
            self.bridge.to_lua(lua, caller)?,
        ]))
    }

    fn scan_arguments(
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
            Lv::Number(random_seed()),
            self.bridge.to_lua(&self.lua, config)?,
            self.bridge.to_lua(&self.lua, table(state))?,
        ]))
    }

    /// Resume the script until it is done, giving way whenever it waits.
    async fn drive_thread(
        &mut self,
        function: Function,
        values: MultiValue,
        unit: &Arc<ScriptUnit>,
        call: &Call,
    ) -> Result<Lv> {
        let stepped = match self.shared.tracer() {
            Some(tracer) => {
                tracer.step_lines(&self.lua).map_err(|error| self.vm_error_problem(&error))?
            }
            None => None,
        };
        let thread =
            self.lua.create_thread(function).map_err(|error| self.vm_error_problem(&error))?;
        if let Some(stepped) = &stepped {
            stepped.stop_at_new_threads().map_err(|error| self.vm_error_problem(&error))?;
        }
        self.interrupt.begin_run(thread.to_pointer(), call.clone());
        let (mut values, mut preempted) = (Some(values), false);
        let for_agents = self.shared.is_for_agents();
        // All of an agent's script waits.
        let mut waits = false;
        let mut resume = |cx: &mut Context| {
            self.shared.set_waker(cx.waker());
            for _ in 0..MAX_ANSWERS_PER_POLL {
                if waits {
                    let number = match std::task::ready!(self.shared.next_answer(cx)) {
                        Ok(number) => number,
                        Err(problem) => return Poll::Ready(Err(problem)),
                    };
                    values = Some(MultiValue::from_iter([Lv::Number(number as f64)]));
                }
                let entered = watchdog::enter_vm(&self.interrupt);
                let resumed = thread.resume::<MultiValue>(values.take().unwrap_or_default());
                drop(entered);
                let results = match resumed {
                    Ok(results) => results,
                    Err(error) => return Poll::Ready(Err(self.vm_error_problem(&error))),
                };
                if thread.status() != mlua::thread::ThreadStatus::Resumable {
                    return Poll::Ready(Ok(results));
                }
                let pending =
                    results.front() == Some(&Lv::LightUserData(vm_host::PENDING_SENTINEL));
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
        };
        // The first poll grows into what `bind_script` has reserved.
        let mut reserved = true;
        let memory = &self.shared.memory;
        let ended = std::future::poll_fn(|cx| {
            if !std::mem::take(&mut reserved)
                && let Err(error) = self.lua.set_memory_limit(memory.begin_poll())
            {
                return Poll::Ready(Err(self.vm_error_problem(&error)));
            }
            let polled = resume(cx);
            if polled.is_pending() {
                memory.end_poll(self.lua.used_memory());
            }
            polled
        })
        .await;
        if let Some(problem) = self.interrupt.take_abort_problem() {
            return Err(problem);
        }
        let mut results = ended?;
        let ok = results.pop_front() == Some(Lv::Boolean(true));
        let value = results.pop_front().unwrap_or(Lv::Nil);
        if ok {
            return Ok(value);
        }
        Err(luau_errors::problem_from_error_value(&self.bridge, &self.shared, value, unit))
    }

    /// An error of the VM itself, outside anything the script could catch.
    fn vm_error_problem(&self, error: &mlua::Error) -> Problem {
        self.interrupt.take_abort_problem().unwrap_or_else(|| match error {
            mlua::Error::MemoryError(_) => self.shared.memory.out_of_memory_problem(),
            error => Problem::tool_error(luau_errors::first_error_line(&error.to_string())),
        })
    }
}

/// A run that had begun and is on record need not begin again.
fn resumable_problem(problem: Problem, call: &Call, run: RecordId) -> Problem {
    if problem.code != ProblemCode::Unavailable || call.gateway().recorder().is_none() {
        return problem;
    }
    problem.with_hint(format!(
        "execute with resume = \"{run}\" goes on with it later, or raise limits.memory_total in \
         moonlark.toml"
    ))
}

/// A different seed for every run, so that `math.random` carries nothing over.
fn random_seed() -> f64 {
    static SEED_COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = SEED_COUNTER.fetch_add(1, Ordering::Relaxed);
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |elapsed| u64::from(elapsed.subsec_nanos()));
    (count.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ nanos) as u32 as f64
}

#[cfg(test)]
mod tests {
    use super::LuauVm;
    use crate::luau_testing::modules;
    use crate::prelude::LuauPrelude;

    /// With the pages that Luau has by itself, a VM takes 850 KB.
    const MAX_NEW_VM_BYTES: usize = 320 * 1024;

    #[test]
    fn a_new_vm_takes_little_memory_because_luau_has_small_pages() {
        let modules = modules();
        for prelude in [LuauPrelude::new(&modules), LuauPrelude::for_agents(&modules)] {
            let vm = LuauVm::new(&prelude.unwrap()).unwrap();
            let used = vm.lua.used_memory();
            assert!(used <= MAX_NEW_VM_BYTES, "{used} bytes: see patches/luau-pages");
        }
    }
}
