//! The trace of a run: what its variables hold at every call, and on request at every line.
//!
//! A traced script is compiled with the names of its locals, and otherwise as always, so
//! that it goes the same way. What it holds is read from the stack as it is: nothing of
//! the script runs for that, and nothing of it changes.
//!
//! What the unsafe code relies on: it reads the stack of a thread that is in the middle of
//! a host function, or of Luau's own step hook, both of which leave room for a few values;
//! it takes away what it pushes, and calls nothing that allocates in the VM or raises.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};
use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use mlua::{Lua, ffi};
use moonlark_core::Value;
use moonlark_core::secret::{Secrets, is_secret_name, secrets_from_literals};
use moonlark_core::value::Object;
use moonlark_gateway::run::{CallSite, ForkedCall, shown_arguments};
use parking_lot::Mutex;

use crate::execute_tool::AGENT_SCRIPT_NAME;

/// Moments of one trace.
const MAX_TRACE_EVENTS: usize = 20_000;
/// Bytes of all of them.
const MAX_TRACE_BYTES: usize = 4 * 1024 * 1024;
/// Variables of one moment.
const MAX_TRACED_VARIABLES: usize = 60;
/// Bytes of one value, its entries and how deep they are.
const MAX_TRACED_VALUE_BYTES: usize = 240;
const MAX_TRACED_ENTRIES: usize = 16;
const MAX_TRACED_KEY_BYTES: usize = 60;
const MAX_TRACED_DEPTH: usize = 3;
/// Values that are looked at for one variable, whatever they are in.
const MAX_TRACED_VALUES: usize = 256;
/// Bytes of texts that are looked at for one variable, and for one text.
const MAX_TRACED_STRING_BYTES: usize = 8 * 1024;
const MAX_READ_STRING_BYTES: usize = 2 * 1024;
/// Bytes at the end of a text that was not read to its end, which may be half a secret.
const MAX_CUT_SECRET_BYTES: usize = 1024;
/// Frames between the script and the host function that it calls.
const MAX_SEARCHED_FRAMES: c_int = 60;

/// What is noted of a run while it runs.
pub(crate) struct RunTracer {
    every_line: bool,
    secrets: Mutex<Secrets>,
    state: Mutex<RunTracerState>,
}

#[derive(Default)]
struct RunTracerState {
    events: Vec<TraceEvent>,
    bytes: usize,
    is_cut: bool,
    /// Where the step hook was last.
    last: Option<(usize, c_int)>,
}

struct TraceEvent {
    line: u32,
    variables: Vec<(String, String)>,
    call: Option<ForkedCall>,
}

/// The VMs that are being traced, by their main threads: what the step hook looks up.
static STEPPED_VMS: LazyLock<Mutex<HashMap<usize, Arc<RunTracer>>>> = LazyLock::new(Mutex::default);

impl RunTracer {
    pub(crate) fn new(script: &str, every_line: bool) -> Arc<RunTracer> {
        let secrets = Mutex::new(secrets_from_literals(script));
        Arc::new(RunTracer { every_line, secrets, state: Mutex::default() })
    }

    /// What is known to be secret in the run.
    pub(crate) fn set_secrets(&self, secrets: Secrets) {
        *self.secrets.lock() = secrets;
    }

    /// The script had no time to go where it went.
    pub(crate) fn note_cut(&self) {
        self.state.lock().is_cut = true;
    }

    /// The script makes a call.
    pub(crate) fn note_call(&self, lua: &Lua, at: &CallSite, tool: &str, args: &Value) {
        let mut found = None;
        // SAFETY: the closure leaves the stack as it was; see the head of the file.
        let read = unsafe {
            lua.exec_raw::<()>((), |state| {
                found = (1..MAX_SEARCHED_FRAMES).find_map(|level| self.read_frame(state, level));
            })
        };
        // Without room on the stack there is nothing to see.
        let (line, variables) = found.filter(|_| read.is_ok()).unwrap_or_default();
        let (tool, place, args) = (tool.to_owned(), at.clone(), args.clone());
        let call = Some(ForkedCall { tool, place, args, fate: None });
        self.add_event(TraceEvent { line, variables, call });
    }

    fn add_event(&self, event: TraceEvent) {
        let bytes = |(name, value): &(String, String)| name.len() + value.len() + 48;
        let bytes: usize = 200 + event.variables.iter().map(bytes).sum::<usize>();
        let mut state = self.state.lock();
        if state.events.len() >= MAX_TRACE_EVENTS || state.bytes + bytes > MAX_TRACE_BYTES {
            state.is_cut = true;
            return;
        }
        state.bytes += bytes;
        state.events.push(event);
    }

    /// The line and the variables of the frame at `level`, if it is one of the script.
    unsafe fn read_frame(
        &self,
        state: *mut ffi::lua_State,
        level: c_int,
    ) -> Option<(u32, Vec<(String, String)>)> {
        // SAFETY: all zeros is a valid value of this plain struct.
        let mut about: ffi::lua_Debug = unsafe { std::mem::zeroed() };
        // SAFETY: the state is valid, and the text ends with a zero.
        if unsafe { ffi::lua_getinfo(state, level, c"sl".as_ptr(), &raw mut about) } == 0
            || !is_script(about.short_src)
        {
            return None;
        }
        let line = u32::try_from(about.currentline).unwrap_or_default();
        let mut variables = Vec::new();
        let mut number = 1;
        while variables.len() < MAX_TRACED_VARIABLES {
            // SAFETY: it pushes one value, or none where there is no such local.
            let name = unsafe { ffi::lua_getlocal(state, level, number) };
            if name.is_null() {
                break;
            }
            // SAFETY: the value is on top of the stack.
            unsafe { self.take_variable(state, name, &mut variables) };
            number += 1;
        }
        // SAFETY: it pushes the function of the frame, whose upvalues are read the same way.
        unsafe {
            if ffi::lua_getinfo(state, level, c"f".as_ptr(), &raw mut about) != 0 {
                let function = ffi::lua_gettop(state);
                for number in 1..=c_int::from(u8::MAX) {
                    let name = ffi::lua_getupvalue(state, function, number);
                    if name.is_null() || variables.len() >= MAX_TRACED_VARIABLES {
                        break;
                    }
                    self.take_variable(state, name, &mut variables);
                }
                ffi::lua_settop(state, function - 1);
            }
        }
        Some((line, variables))
    }

    /// The value on top of the stack, which is taken away.
    unsafe fn take_variable(
        &self,
        state: *mut ffi::lua_State,
        name: *const c_char,
        variables: &mut Vec<(String, String)>,
    ) {
        // SAFETY: names of variables end with a zero and live as long as the function.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let mut text = String::new();
        let secrets = self.secrets.lock().clone();
        let shown = (!is_secret_name(&name)).then_some(&secrets);
        let mut budget = TraceBudget::of_variable();
        // SAFETY: there is a value on top, and it is left there.
        unsafe { show_value(state, shown, MAX_TRACED_DEPTH, &mut budget, &mut text) };
        // SAFETY: takes it away.
        unsafe { ffi::lua_pop(state, 1) };
        // What is named first is what the script sees; `(for state)` is no name of its own.
        let is_own = !name.is_empty() && !name.starts_with('(');
        if is_own && !variables.iter().any(|(known, _)| *known == name) {
            variables.push((name, text));
        }
    }

    /// From now on every line is noted, of the thread that is made next and of those that it
    /// makes. To be ended by dropping what it gives.
    pub(crate) fn step_lines(self: &Arc<Self>, lua: &Lua) -> mlua::Result<Option<SteppedVm>> {
        if !self.every_line {
            return Ok(None);
        }
        let mut main = 0;
        // SAFETY: sets a flag and a callback of a VM that nothing runs in.
        unsafe {
            lua.exec_raw::<()>((), |state| {
                main = ffi::lua_mainthread(state) as usize;
                (*ffi::lua_callbacks(state)).debugstep = Some(on_step);
                ffi::lua_singlestep(state, 1);
            })?;
        }
        STEPPED_VMS.lock().insert(main, self.clone());
        Ok(Some(SteppedVm { lua: lua.clone(), main }))
    }

    fn on_line(&self, state: *mut ffi::lua_State) {
        // SAFETY: the hook runs in the frame at level 0, and Luau has made room on the stack.
        let Some((line, variables)) = (unsafe { self.read_frame_if_new(state) }) else { return };
        self.add_event(TraceEvent { line, variables, call: None });
    }

    unsafe fn read_frame_if_new(
        &self,
        state: *mut ffi::lua_State,
    ) -> Option<(u32, Vec<(String, String)>)> {
        // SAFETY: as in `read_frame`.
        let mut about: ffi::lua_Debug = unsafe { std::mem::zeroed() };
        // SAFETY: as in `read_frame`.
        let known = unsafe { ffi::lua_getinfo(state, 0, c"sl".as_ptr(), &raw mut about) } != 0;
        if !known || !is_script(about.short_src) {
            return None;
        }
        {
            let mut kept = self.state.lock();
            let here = Some((state as usize, about.currentline));
            if kept.last == here || kept.is_cut {
                return None;
            }
            kept.last = here;
        }
        // SAFETY: as above.
        unsafe { self.read_frame(state, 0) }
    }

    /// All that was noted. `answers` has what a call was given, by its place.
    pub(crate) fn encode(&self, script: &str, answers: impl Fn(&str) -> Option<Value>) -> Value {
        let secrets = self.secrets.lock().clone();
        let state = self.state.lock();
        let lines: Vec<&str> = script.lines().collect();
        let events = state.events.iter().enumerate().map(|(number, event)| {
            let mut fields = Object::new();
            let mut add = |name: &str, value: Value| fields.insert(name.to_owned(), value);
            add("at", Value::Int(number as i64 + 1));
            add("line", Value::Int(i64::from(event.line)));
            let text = lines.get((event.line as usize).saturating_sub(1)).copied();
            let text = secrets.redact_text(text.unwrap_or_default().trim());
            add("text", text.into_owned().into());
            let variables = event.variables.iter();
            let variables = variables.map(|(name, text)| (name.clone(), text.as_str().into()));
            add("variables", Value::Object(variables.collect()));
            if let Some(call) = &event.call {
                let mut told = Object::new();
                told.insert("tool".to_owned(), call.tool.as_str().into());
                told.insert("place".to_owned(), call.place.to_string().into());
                let arguments = secrets.redact_text(&shown_arguments(call)).into_owned();
                told.insert("arguments".to_owned(), arguments.into());
                if let Some(answer) = answers(&call.place) {
                    told.insert("answer".to_owned(), answer);
                }
                add("call", Value::Object(told));
            }
            Value::Object(fields)
        });
        Value::from_fields([
            ("events", Value::Array(events.collect())),
            ("complete", Value::Bool(!state.is_cut)),
        ])
    }
}

/// While it lives, the step hook of the VM is set.
pub(crate) struct SteppedVm {
    lua: Lua,
    main: usize,
}

impl SteppedVm {
    /// Threads that are made from now on are not stepped; those that were go on.
    pub(crate) fn stop_at_new_threads(&self) -> mlua::Result<()> {
        // SAFETY: sets a flag of the main thread.
        unsafe { self.lua.exec_raw::<()>((), |state| ffi::lua_singlestep(state, 0)) }
    }
}

impl Drop for SteppedVm {
    fn drop(&mut self) {
        STEPPED_VMS.lock().remove(&self.main);
        // SAFETY: as where it was set. If there is no memory for that, the hook finds
        // nobody to tell.
        let _ = unsafe {
            self.lua.exec_raw::<()>((), |state| {
                ffi::lua_singlestep(state, 0);
                (*ffi::lua_callbacks(state)).debugstep = None;
            })
        };
    }
}

unsafe extern "C-unwind" fn on_step(state: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    // SAFETY: Luau calls this with a valid thread.
    let main = unsafe { ffi::lua_mainthread(state) } as usize;
    let tracer = STEPPED_VMS.lock().get(&main).cloned();
    if let Some(tracer) = tracer {
        tracer.on_line(state);
    }
}

fn is_script(source: *const c_char) -> bool {
    // SAFETY: Luau's names of sources end with a zero.
    !source.is_null()
        && unsafe { CStr::from_ptr(source) }.to_bytes() == AGENT_SCRIPT_NAME.as_bytes()
}

/// How much of one variable may still be looked at.
struct TraceBudget {
    values: usize,
    string_bytes: usize,
}

impl TraceBudget {
    fn of_variable() -> TraceBudget {
        TraceBudget { values: MAX_TRACED_VALUES, string_bytes: MAX_TRACED_STRING_BYTES }
    }
}

/// The value on top of the stack as Luau would write it, cut where it gets long. It stays
/// where it is.
unsafe fn show_value(
    state: *mut ffi::lua_State,
    secrets: Option<&Secrets>,
    depth: usize,
    budget: &mut TraceBudget,
    text: &mut String,
) {
    if text.len() >= MAX_TRACED_VALUE_BYTES || budget.values == 0 {
        text.push('…');
        return;
    }
    budget.values -= 1;
    // SAFETY: there is a value on top; none of these calls converts it in place, because a
    // text is only asked for where there is one.
    unsafe {
        match ffi::lua_type(state, -1) {
            ffi::LUA_TNIL | ffi::LUA_TNONE => text.push_str("nil"),
            ffi::LUA_TBOOLEAN => {
                text.push_str(if ffi::lua_toboolean(state, -1) != 0 { "true" } else { "false" });
            }
            ffi::LUA_TNUMBER => {
                let _ = write!(text, "{}", ffi::lua_tonumber(state, -1));
            }
            ffi::LUA_TSTRING => match secrets {
                None => text.push_str("\"[redacted]\""),
                Some(secrets) => {
                    let room = MAX_TRACED_VALUE_BYTES.saturating_sub(text.len());
                    let (shown, is_cut) = top_string(state, secrets, room, budget);
                    let more = if is_cut { "…" } else { "" };
                    text.push_str(&serde_json::Value::from(format!("{shown}{more}")).to_string());
                }
            },
            ffi::LUA_TTABLE => show_table(state, secrets, depth, budget, text),
            ffi::LUA_TLIGHTUSERDATA if ffi::lua_touserdata(state, -1).is_null() => {
                text.push_str("null");
            }
            ffi::LUA_TFUNCTION => text.push_str("function"),
            ffi::LUA_TTHREAD => text.push_str("coroutine"),
            _ => text.push_str("object"),
        }
    }
}

/// The text on top of the stack without secrets, cut to `room` only then: half a secret is
/// one that nothing finds. Whether it was cut.
unsafe fn top_string(
    state: *mut ffi::lua_State,
    secrets: &Secrets,
    room: usize,
    budget: &mut TraceBudget,
) -> (String, bool) {
    let mut length = 0;
    // SAFETY: there is a text on top, so nothing is converted, and it is there as long as
    // the value.
    let bytes = unsafe {
        let start = ffi::lua_tolstring(state, -1, &raw mut length);
        std::slice::from_raw_parts(start.cast::<u8>(), length)
    };
    let read = length.min(MAX_READ_STRING_BYTES).min(budget.string_bytes);
    budget.string_bytes -= read;
    let whole = String::from_utf8_lossy(&bytes[..read]);
    let mut shown = secrets.redact_text(&whole).into_owned();
    if read < length {
        // It may end in the middle of a secret.
        shown.truncate(shown.floor_char_boundary(shown.len().saturating_sub(MAX_CUT_SECRET_BYTES)));
    }
    let end = shown.floor_char_boundary(room);
    let is_cut = read < length || end < shown.len();
    shown.truncate(end);
    (shown, is_cut)
}

/// The table on top of the stack, without its metatable having a say.
unsafe fn show_table(
    state: *mut ffi::lua_State,
    secrets: Option<&Secrets>,
    depth: usize,
    budget: &mut TraceBudget,
    text: &mut String,
) {
    if depth == 0 {
        text.push_str("{…}");
        return;
    }
    let (mut listed, mut named) = (Vec::new(), Vec::new());
    let mut is_cut = false;
    // SAFETY: `lua_next` takes the key that is on top and pushes the next with its value;
    // each of them is left as it is, and whatever is left is taken away at the end.
    unsafe {
        let table = ffi::lua_gettop(state);
        ffi::lua_pushnil(state);
        while ffi::lua_next(state, table) != 0 {
            if listed.len() + named.len() >= MAX_TRACED_ENTRIES || budget.values == 0 {
                is_cut = true;
                break;
            }
            let mut is_secret = false;
            let key = match ffi::lua_type(state, -2) {
                ffi::LUA_TNUMBER if ffi::lua_tonumber(state, -2) == listed.len() as f64 + 1.0 => {
                    String::new()
                }
                ffi::LUA_TNUMBER => format!("[{}]", ffi::lua_tonumber(state, -2)),
                ffi::LUA_TSTRING => {
                    ffi::lua_pushvalue(state, -2);
                    let none = Secrets::default();
                    let known = secrets.unwrap_or(&none);
                    let (key, _) = top_string(state, known, MAX_TRACED_KEY_BYTES, budget);
                    ffi::lua_pop(state, 1);
                    is_secret = is_secret_name(&key);
                    key
                }
                _ => "[…]".to_owned(),
            };
            let mut value = String::new();
            let shown = secrets.filter(|_| !is_secret);
            show_value(state, shown, depth - 1, budget, &mut value);
            ffi::lua_pop(state, 1);
            if key.is_empty() { listed.push(value) } else { named.push(format!("{key} = {value}")) }
        }
        ffi::lua_settop(state, table);
    }
    // In the same order every time.
    named.sort_unstable();
    text.push('{');
    for (number, entry) in listed.iter().chain(&named).enumerate() {
        if text.len() >= MAX_TRACED_VALUE_BYTES {
            is_cut = true;
            break;
        }
        text.push_str(if number > 0 { ", " } else { "" });
        text.push_str(entry);
    }
    if is_cut {
        text.push_str(", …");
    }
    text.push('}');
}
