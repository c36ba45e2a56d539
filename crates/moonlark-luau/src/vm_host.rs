//! The Rust functions behind the prelude: starting and polling host calls,
//! printing, and the text functions that must not run for ever.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use mlua::{FromLuaMulti, IntoLuaMulti, LightUserData, Lua, MultiValue, Table, Value as Lv};
use moonlark_core::content::ToolAnswer;
use moonlark_core::module::ModuleFunction;
use moonlark_core::problem::ProtocolError;
use moonlark_core::tool::BoxFuture;
use moonlark_core::value::{Object, Value};
use moonlark_core::{Problem, ProblemCode, Result, SourceLocation};
use moonlark_gateway::gateway::Invocation;
use moonlark_gateway::run::CallSite;
use moonlark_gateway::{Call, LogLevel};
use parking_lot::Mutex;

use crate::connector_script::{self, ScanItemSender};
use crate::execute_tool;
use crate::luau_bridge::{Bridge, HostReply, HostReplyValue};
use crate::luau_errors;
use crate::prelude::LuauPrelude;
use crate::print_format;
use crate::promises::{RunPromises, too_many_waits_problem};
use crate::result_fields::ResultFields;
use crate::run_trace::RunTracer;
use crate::script_memory::{ScriptMemory, VmMemory};
use crate::script_unit::ScriptUnit;
use crate::sdk_functions::{self, SdkTarget, take_number};
use crate::watchdog::VmInterrupt;

/// What a waiting coroutine yields. Only its address matters.
pub(crate) const PENDING_SENTINEL: LightUserData =
    LightUserData(std::ptr::addr_of!(PENDING_SENTINEL_BYTE) as *mut std::ffi::c_void);
static PENDING_SENTINEL_BYTE: u8 = 0;

/// What the host functions of one VM share.
pub(crate) struct VmHost {
    pub(crate) prelude: Arc<LuauPrelude>,
    interrupt: Arc<VmInterrupt>,
    pub(crate) bridge: Bridge,
    /// What the VM holds of the memory of all.
    pub(crate) memory: VmMemory,
    run: Mutex<ActiveCall>,
}

#[derive(Default)]
struct ActiveCall {
    call: Option<Call>,
    unit: Option<Arc<ScriptUnit>>,
    waker: Option<Waker>,
    /// Host calls that scripts wait for; the ticket is the place.
    waiting: Vec<Option<BoxFuture<Result<Value>>>>,
    /// The last thing that the caller's protocol has words of its own for, and
    /// how many there were: scripts see only the number.
    refusal: Option<Box<ProtocolError>>,
    refusals: u32,
    /// The tools that the script has named; the number is the place.
    targets: Vec<SdkTarget>,
    /// For scripts of agents: the calls they have started.
    promises: Option<Arc<RunPromises>>,
    /// For scripts of agents: the fields that answers had.
    result_fields: Arc<ResultFields>,
    /// For connectors: where items go while they scan.
    items: Option<ScanItemSender>,
    /// For a run that is looked at.
    tracer: Option<Arc<RunTracer>>,
}

impl VmHost {
    pub(crate) fn new(
        prelude: Arc<LuauPrelude>,
        interrupt: Arc<VmInterrupt>,
        bridge: Bridge,
    ) -> Self {
        let memory = VmMemory::new(ScriptMemory::of_process());
        Self { prelude, interrupt, bridge, memory, run: Mutex::default() }
    }

    pub(crate) fn begin_run(&self, call: Call, unit: Arc<ScriptUnit>) {
        let run = call.run().filter(|_| self.is_for_agents());
        let promises = run.map(|run| RunPromises::new(run.clone()));
        *self.run.lock() =
            ActiveCall { call: Some(call), unit: Some(unit), promises, ..ActiveCall::default() };
    }

    pub(crate) fn is_for_agents(&self) -> bool {
        self.prelude.is_for_agents()
    }

    /// Where `emit` sends items from now on.
    pub(crate) fn set_items(&self, items: ScanItemSender) {
        self.run.lock().items = Some(items);
    }

    /// Note from now on what the script holds when it makes a call.
    pub(crate) fn set_tracer(&self, tracer: Option<Arc<RunTracer>>) {
        self.run.lock().tracer = tracer;
    }

    pub(crate) fn tracer(&self) -> Option<Arc<RunTracer>> {
        self.run.lock().tracer.clone()
    }

    /// An agent's script makes a call.
    pub(crate) fn trace_call(&self, lua: &Lua, at: &CallSite, tool: &str, args: &Value) {
        if let Some(tracer) = self.tracer() {
            tracer.note_call(lua, at, tool, args);
        }
    }

    pub(crate) fn items(&self) -> Option<ScanItemSender> {
        self.run.lock().items.clone()
    }

    /// Remember a tool that the script has named.
    pub(crate) fn add_target(&self, target: SdkTarget) -> usize {
        let targets = &mut self.run.lock().targets;
        targets.push(target);
        targets.len() - 1
    }

    pub(crate) fn find_target(&self, id: usize) -> mlua::Result<SdkTarget> {
        let target = self.run.lock().targets.get(id).cloned();
        target.ok_or_else(|| mlua::Error::runtime("no such tool"))
    }

    pub(crate) fn find_host_function(&self, id: usize) -> mlua::Result<&ModuleFunction> {
        let function = self.prelude.find_function(id);
        function.ok_or_else(|| mlua::Error::runtime("no such host function"))
    }

    pub(crate) fn promises(&self) -> mlua::Result<Arc<RunPromises>> {
        let promises = self.run.lock().promises.clone();
        promises.ok_or_else(|| mlua::Error::runtime("no agent's script is running"))
    }

    /// The next call whose answer an agent's script is given.
    pub(crate) fn next_answer(&self, context: &mut Context) -> Poll<Result<usize>> {
        let promises = self.run.lock().promises.clone();
        match promises {
            Some(promises) => promises.poll_next_answer(context),
            None => Poll::Ready(Err(Problem::internal("no agent's script is running"))),
        }
    }

    /// A call that an agent's script waits for, as a ticket.
    pub(crate) fn wait_for_call(
        &self,
        lua: &Lua,
        at: CallSite,
        call: BoxFuture<Result<Value>>,
    ) -> mlua::Result<HostReply> {
        let most = self.run.lock().max_waiting_calls();
        match self.promises()?.wait_for_call(at, call, most, &self.waker()) {
            Ok(number) => Ok(ticket_reply(number)),
            Err(problem) => self.reply_with_problem(lua, problem),
        }
    }

    /// A run that is resumed has to come to every place that is on record.
    pub(crate) fn missed_call_problem(&self) -> Option<Problem> {
        let run = self.run.lock();
        let (promises, call) = run.promises.as_ref().zip(run.call.as_ref())?;
        call.run()?.unvisited_site_problem(|place| promises.has_call_at(place))
    }

    /// Calls that an agent's script has started and that have not ended.
    pub(crate) fn count_open_calls(&self) -> usize {
        self.run.lock().promises.as_ref().map_or(0, |promises| promises.count_open_calls())
    }

    /// For scripts of agents: where the fields of answers are noted.
    pub(crate) fn result_fields(&self) -> Arc<ResultFields> {
        self.run.lock().result_fields.clone()
    }

    /// Say what an agent's script reads and no answer had: as the hint of an error that
    /// comes of it, otherwise in the log.
    pub(crate) fn report_missing_values<T>(&self, ended: &mut Result<T>) {
        let (fields, call, unit) = {
            let run = self.run.lock();
            (run.result_fields.clone(), run.call.clone(), run.unit.clone())
        };
        let Some((call, unit)) = call.zip(unit) else { return };
        let relies_on = |line, name: &str| unit.result_uses().relies_on_field(line, name);
        for missing in fields.find_missing_values(unit.main().text(), relies_on, &call) {
            if let Err(problem) = ended
                && luau_errors::explain_nil(problem, &missing)
            {
                continue;
            }
            let line = missing.lines.first().copied().unwrap_or_default();
            let said = format!("{}:{line}: {}", execute_tool::AGENT_SCRIPT_NAME, missing.message);
            // Too much may have been said already; then this is not said.
            let _ = call.log_message(LogLevel::Warn, &said, None);
        }
    }

    /// Forget the run; host calls still in flight are cancelled.
    pub(crate) fn end_run(&self) {
        let ended = std::mem::take(&mut *self.run.lock());
        drop(ended);
        self.interrupt.end_run();
    }

    /// The refusal behind a problem that the script did not catch.
    pub(crate) fn find_refusal(&self, number: u32) -> Option<Box<ProtocolError>> {
        let run = self.run.lock();
        run.refusal.clone().filter(|_| run.refusals == number)
    }

    pub(crate) fn set_waker(&self, waker: &Waker) {
        let mut run = self.run.lock();
        match &mut run.waker {
            Some(current) => current.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        if let Some(promises) = &run.promises {
            promises.set_waker(waker);
        }
    }

    pub(crate) fn call(&self) -> mlua::Result<Call> {
        self.run.lock().call.clone().ok_or_else(|| mlua::Error::runtime("no call is running"))
    }

    pub(crate) fn unit(&self) -> mlua::Result<Arc<ScriptUnit>> {
        self.run.lock().unit.clone().ok_or_else(|| mlua::Error::runtime("no script is running"))
    }

    fn waker(&self) -> Waker {
        self.run.lock().waker.clone().unwrap_or_else(|| Waker::noop().clone())
    }

    /// Answer the script, now or with a ticket.
    pub(crate) fn reply_when_done(
        &self,
        lua: &Lua,
        started: Invocation,
    ) -> mlua::Result<HostReply> {
        let into_value = |answer: Result<ToolAnswer>| answer.map(ToolAnswer::into_plain_value);
        match started {
            Invocation::Done(answer) => self.reply_with_result(lua, into_value(answer)),
            Invocation::Running(answer) => {
                self.poll_or_wait(lua, Box::pin(async move { into_value(answer.await) }), None)
            }
        }
    }

    /// Answer the script now if this is done, or with a ticket.
    pub(crate) fn poll_or_wait(
        &self,
        lua: &Lua,
        mut future: BoxFuture<Result<Value>>,
        ticket: Option<usize>,
    ) -> mlua::Result<HostReply> {
        let waker = self.waker();
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => self.reply_with_result(lua, result),
            Poll::Pending => {
                let mut run = self.run.lock();
                let most = run.max_waiting_calls();
                let waiting = &mut run.waiting;
                // Waits that a script started and then abandoned still count.
                if ticket.is_none() && waiting.iter().flatten().count() >= most {
                    drop(run);
                    return self.reply_with_problem(lua, too_many_waits_problem(most));
                }
                let free = || waiting.iter().position(Option::is_none);
                let ticket = ticket.or_else(free).unwrap_or(waiting.len());
                if ticket == waiting.len() {
                    waiting.push(None);
                }
                waiting[ticket] = Some(future);
                Ok(ticket_reply(ticket))
            }
        }
    }

    pub(crate) fn reply_with_result(
        &self,
        lua: &Lua,
        result: Result<Value>,
    ) -> mlua::Result<HostReply> {
        match result {
            Ok(value) => self.bridge.to_reply(lua, value),
            Err(problem) => self.reply_with_problem(lua, problem),
        }
    }

    /// `true` and what there is, or `false` and a problem.
    pub(crate) fn reply_with_outcome(
        &self,
        lua: &Lua,
        outcome: Result<impl IntoLuaMulti>,
    ) -> mlua::Result<MultiValue> {
        match outcome {
            Ok(values) => {
                let mut reply = values.into_lua_multi(lua)?;
                reply.push_front(Lv::Boolean(true));
                Ok(reply)
            }
            Err(problem) => (false, self.to_error_table(lua, problem)?).into_lua_multi(lua),
        }
    }

    /// Stop the script for good; the error is to be raised now.
    pub(crate) fn abort_script(&self, problem: Problem) -> mlua::Error {
        self.interrupt.abort_run(problem);
        mlua::Error::runtime("the script was stopped")
    }

    /// A problem the script may catch, unless it is a limit: those are final.
    pub(crate) fn reply_with_problem(
        &self,
        lua: &Lua,
        problem: Problem,
    ) -> mlua::Result<HostReply> {
        let table = self.to_error_table(lua, problem)?;
        Ok((Some(false), HostReplyValue::Value(Lv::Table(table))))
    }

    pub(crate) fn to_error_table(&self, lua: &Lua, mut problem: Problem) -> mlua::Result<Table> {
        let table = lua.create_table()?;
        table.raw_set("code", problem.code.as_str())?;
        table.raw_set("message", problem.message.as_str())?;
        table.raw_set("hint", problem.hint.as_deref())?;
        table.raw_set("retryable", problem.is_retryable())?;
        table.raw_set("status", problem.status)?;
        // What the tool itself said, for scripts that look into it.
        let structured = problem.content.as_mut().and_then(|it| it.structured.take());
        if let Some(data) = problem.data.take().map(|it| *it).or(structured) {
            table.raw_set("data", self.bridge.to_lua(lua, data)?)?;
        }
        // What the caller lacks is for the caller to know, in its own terms. Any
        // other refusal is of something that the script called, and the script's
        // to deal with.
        if problem.code == ProblemCode::Unavailable && problem.refusal.is_some() {
            let mut run = self.run.lock();
            run.refusals += 1;
            run.refusal = problem.refusal.take();
            table.raw_set("refusal", run.refusals)?;
        }
        if problem.code == ProblemCode::Limit {
            self.interrupt.abort_run(problem);
        }
        Ok(table)
    }
}

impl ActiveCall {
    /// How many host calls may wait at once. The calls of an agent's script wait
    /// for their turn in the gateway, so only their number counts.
    fn max_waiting_calls(&self) -> usize {
        let Some(limits) = self.call.as_ref().map(Call::limits) else { return 1 };
        let most = if self.promises.is_some() { limits.calls } else { 0 };
        most.max(limits.parallel) as usize
    }
}

/// Not yet: ask again with this.
fn ticket_reply(number: usize) -> HostReply {
    (None, HostReplyValue::Value(Lv::Number(number as f64)))
}

/// The table that the prelude receives as `host`, while it is filled.
pub(crate) struct HostTable<'l> {
    lua: &'l Lua,
    host: &'l Arc<VmHost>,
    table: Table,
}

impl HostTable<'_> {
    pub(crate) fn add_function<A: FromLuaMulti, R: IntoLuaMulti>(
        &self,
        name: &str,
        body: impl Fn(&Lua, &VmHost, A) -> mlua::Result<R> + Send + 'static,
    ) -> mlua::Result<()> {
        let host = self.host.clone();
        let function = self.lua.create_function(move |lua, args| body(lua, &host, args))?;
        self.table.raw_set(name, function)
    }
}

pub(crate) fn create_host_table(lua: &Lua, shared: &Arc<VmHost>) -> mlua::Result<Table> {
    let table = HostTable { lua, host: shared, table: lua.create_table()? };
    table.add_function("start", |lua, host, mut args: MultiValue| {
        let call = host.call()?;
        let function = host.find_host_function(take_number(&mut args))?;
        match collect_host_arguments(&host.bridge, function, args, call.limits().value) {
            Ok(args) => {
                let started = call.gateway().invoke(&call, &function.tool, args);
                host.reply_when_done(lua, started)
            }
            Err(problem) => host.reply_with_problem(lua, problem),
        }
    })?;
    table.add_function("start_tool", |lua, host, (name, args): (Lv, Lv)| {
        let call = host.call()?;
        let started = read_tool_call(&host.bridge, &call, &name, &args)
            .map(|(name, args)| call.gateway().invoke(&call, &name, args))
            .unwrap_or_else(|problem| Invocation::Done(Err(problem)));
        host.reply_when_done(lua, started)
    })?;
    table.add_function(
        "require",
        |lua, host, (from, path): (String, mlua::LuaString)| match host
            .unit()?
            .require_file(&from, &path.to_string_lossy())
        {
            Ok(file) => host.bridge.to_reply(lua, Value::Str(file)),
            Err(mut problem) => {
                let place = problem.place.take();
                let table = host.to_error_table(lua, problem)?;
                if let Some(SourceLocation { file, line: Some(line), .. }) = place {
                    table.raw_set("source", file)?;
                    table.raw_set("line", line)?;
                }
                Ok((Some(false), HostReplyValue::Value(Lv::Table(table))))
            }
        },
    )?;
    table.add_function("bind", |lua, host, (file, env): (String, Table)| {
        match host.unit()?.find_required(&file) {
            Some(code) => code.bind_globals(lua, env),
            None => Err(mlua::Error::runtime("no such file")),
        }
    })?;
    table.add_function("strip_location", |lua, host, text: mlua::LuaString| {
        let text = text.to_string_lossy();
        let unit = host.unit()?;
        lua.create_string(unit.split_location(&text).map_or(text.as_str(), |(.., words)| words))
    })?;
    table.add_function("poll", |lua, host, ticket: usize| {
        if host.is_for_agents() {
            return match host.promises()?.take_answer(ticket) {
                Some(answer) => host.reply_with_result(lua, answer),
                None => Ok(ticket_reply(ticket)),
            };
        }
        let future = host.run.lock().waiting.get_mut(ticket).and_then(Option::take);
        match future {
            Some(future) => host.poll_or_wait(lua, future, Some(ticket)),
            None => Err(mlua::Error::runtime("nothing to wait for")),
        }
    })?;
    table.add_function("log_print", |lua, host, text: mlua::LuaString| {
        let call = host.call()?;
        let logged = call.log_message(LogLevel::Info, &text.to_string_lossy(), None);
        host.reply_with_result(lua, logged.map(|()| Value::Null))
    })?;
    table.add_function("show", |_, host, value: Lv| {
        Ok(print_format::format_printed_value(&host.bridge, &value))
    })?;
    table.add_function("plain_text", |_, host, value: Lv| {
        Ok(print_format::format_plain_value(&host.bridge, &value))
    })?;
    table.add_function("out_of_memory", |_, host, ()| {
        Err::<(), _>(host.abort_script(host.memory.out_of_memory_problem()))
    })?;
    table.add_function("raise_if_out_of_memory", |_, host, error: Lv| match &error {
        Lv::Error(error) if is_memory_error(error) => {
            Err(host.abort_script(host.memory.out_of_memory_problem()))
        }
        _ => Ok(()),
    })?;
    table.add_function("abort_limit", |_, host, why: String| {
        Err::<(), _>(host.abort_script(Problem::limit_exceeded(why)))
    })?;
    table.add_function("find", |_, _, searched| Ok(find_plain_text(searched)))?;
    table.table.raw_set("null", Lv::NULL)?;
    table.table.raw_set("array", shared.bridge.array_metatable())?;
    sdk_functions::add_sdk_functions(&table)?;
    if shared.is_for_agents() {
        execute_tool::add_agent_functions(&table)?;
    }
    if shared.prelude.is_for_connectors() {
        connector_script::add_connector_functions(&table)?;
    }
    Ok(table.table)
}

/// Memory may run out in the middle of a host function, behind other errors.
fn is_memory_error(error: &mlua::Error) -> bool {
    match error {
        mlua::Error::MemoryError(_) => true,
        mlua::Error::CallbackError { cause, .. } => is_memory_error(cause),
        _ => false,
    }
}

/// The arguments of a host function as an object: those with a place first,
/// the others from a trailing table.
pub(crate) fn collect_host_arguments(
    bridge: &Bridge,
    function: &ModuleFunction,
    args: MultiValue,
    limit: usize,
) -> Result<Value> {
    let name = &function.tool.name;
    let by_place = function.params.iter().take_while(|param| param.positional).count();
    let has_options = by_place < function.params.len();
    if args.len() > by_place + usize::from(has_options) {
        return Err(Problem::bad_request(format!(
            "{name} takes at most {} arguments, got {}",
            by_place + usize::from(has_options),
            args.len()
        )));
    }
    let mut object = Object::new();
    for (index, arg) in args.iter().enumerate() {
        // `http.post(url, { json = … })`: a table where a text may be left out
        // is the options.
        let is_options = index + 1 == args.len()
            && has_options
            && matches!(arg, Lv::Table(_))
            && function.params.get(index).is_some_and(|param| !param.required && takes_text(param));
        if index < by_place && !is_options {
            let param = &function.params[index];
            if !matches!(arg, Lv::Nil) || param.accepts_null() {
                let what = format!("{name}: {}", param.name);
                object.insert(param.name.clone(), bridge.read_value(arg, &what, limit)?);
            }
            continue;
        }
        match bridge.read_value(arg, &format!("{name}: options"), limit)? {
            Value::Null => {}
            Value::Object(options) => {
                options.keys().try_for_each(|option| function.check_has_param(option))?;
                object.extend(options);
            }
            Value::Array(items) if items.is_empty() => {}
            other => {
                return Err(Problem::bad_request(format!(
                    "{name}: the options must be a table of names and values, got {}",
                    other.kind()
                )));
            }
        }
    }
    Ok(Value::Object(object))
}

fn takes_text(param: &moonlark_core::module::FunctionParam) -> bool {
    let kind = &param.schema["type"];
    kind == "string"
        || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "string"))
}

fn read_tool_call(bridge: &Bridge, call: &Call, name: &Lv, args: &Lv) -> Result<(String, Value)> {
    let limit = call.limits().value;
    let Value::Str(name) = bridge.read_value(name, "tool", limit)? else {
        return Err(Problem::bad_request(
            "context.call takes the name of a tool and its arguments",
        ));
    };
    let args = match bridge.read_value(args, "arguments", limit)? {
        Value::Null => Value::Object(Object::new()),
        args => args,
    };
    Ok((name, args))
}

/// `string.find` without patterns, in linear time.
fn find_plain_text(
    (subject, needle, init): (mlua::LuaString, mlua::LuaString, Option<f64>),
) -> (Option<usize>, Option<usize>) {
    let (subject, needle) = (subject.as_bytes(), needle.as_bytes());
    let start = match init.unwrap_or(1.0) {
        init if init >= 1.0 => init as usize - 1,
        init if init < 0.0 => subject.len().saturating_sub((-init) as usize),
        _ => 0,
    };
    let found = subject.get(start..).and_then(|rest| memchr::memmem::find(rest, &needle));
    found.map(|at| (start + at + 1, start + at + needle.len())).unzip()
}
