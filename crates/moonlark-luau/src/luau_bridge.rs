//! Luau values to ours and back, by copy.
//!
//! Nothing is silently lost: a value round-trips, or it is a Problem with the
//! path to it. What Luau cannot tell apart by itself is remembered in
//! metatables: a list stays a list when it is empty, and a field that was null
//! reads as nil but is null again when it leaves.

use mlua::{IntoLua, Lua, Table, Value as Lv, ffi};
use moonlark_core::value::{Object, Value, ValueBudget, ValuePath};
use moonlark_core::{Problem, Result};

/// Integers a Luau number holds exactly. Larger ones become Luau's own
/// 64-bit integers.
const MAX_EXACT_INTEGER: i64 = 1 << 53;

/// The metatable key that names the null fields of an object.
const NULL_FIELDS_KEY: &str = "__nulls";

/// The metatable key of a list that has empty places: how many places it has.
const LIST_LENGTH_KEY: &str = "__places";

/// The metatable key that says why a table of the prelude is no value, or is a
/// function that ends the script because of it.
const NOT_A_VALUE_KEY: &str = "__no_value";

/// Where `Bridge::to_lua` has the metatable of lists on the stack.
const LIST_METATABLE_INDEX: i32 = 1;
/// What a value needs on the stack beside the values in it: an object, the metatable of its null
/// fields, its key there, its value, and a key and a flag in that.
const MAX_VALUE_STACK_SLOTS: i32 = 6;

/// What a field of an object takes beside its name and its value.
const LUAU_FIELD_OVERHEAD_BYTES: usize = 64;
/// What a table takes, however little is in it.
const LUAU_TABLE_OVERHEAD_BYTES: usize = 48;

/// One VM's side of the bridge.
#[derive(Clone)]
pub(crate) struct Bridge {
    /// Marks lists.
    array: Table,
}

impl Bridge {
    pub(crate) fn new(lua: &Lua) -> mlua::Result<Bridge> {
        let array = lua.create_table()?;
        array.raw_set("__metatable", "array")?;
        array.set_readonly(true);
        Ok(Bridge { array })
    }

    /// The metatable of lists, for lists that the prelude makes.
    pub(crate) fn array_metatable(&self) -> &Table {
        &self.array
    }

    /// Whether a table has no metatable but those that values have.
    pub(crate) fn is_plain_table(&self, table: &Table) -> bool {
        let has = |meta: &Table, key: &str| meta.raw_get::<Lv>(key).is_ok_and(|it| !it.is_nil());
        table.metatable().is_none_or(|meta| {
            meta == self.array || has(&meta, NULL_FIELDS_KEY) || has(&meta, LIST_LENGTH_KEY)
        })
    }

    /// Copy `value` into the VM.
    pub(crate) fn to_lua(&self, lua: &Lua, value: Value) -> mlua::Result<Lv> {
        Ok(match value {
            Value::Null => Lv::Nil,
            Value::Bool(flag) => Lv::Boolean(flag),
            // The wide ones are handled where they are stored: mlua has no
            // value of its own for them.
            Value::Int(int) => Lv::Integer(int),
            Value::Float(float) => Lv::Number(float),
            Value::Str(text) => Lv::String(lua.create_string(text)?),
            Value::Bytes(bytes) => Lv::String(lua.create_string(bytes)?),
            table @ (Value::Array(_) | Value::Object(_)) => {
                // SAFETY: `exec_raw` calls the closure in protected mode, with the metatable of
                // lists as its only argument, and takes what is on the stack then.
                unsafe {
                    lua.exec_raw(&self.array, |state| {
                        push_value(state, &table);
                        ffi::lua_remove(state, LIST_METATABLE_INDEX);
                    })?
                }
            }
        })
    }

    /// The same with integers kept whole.
    fn to_whole_value(&self, lua: &Lua, value: Value) -> mlua::Result<HostReplyValue> {
        Ok(match value {
            Value::Int(int) if !is_exact_integer(int) => HostReplyValue::Wide(int),
            value => HostReplyValue::Value(self.to_lua(lua, value)?),
        })
    }

    /// A value as the answer of a host function.
    pub(crate) fn to_reply(&self, lua: &Lua, value: Value) -> mlua::Result<HostReply> {
        Ok((Some(true), self.to_whole_value(lua, value)?))
    }

    /// Copy a value out of the VM; `what` names it in Problems.
    pub(crate) fn read_value(&self, value: &Lv, what: &str, limit: usize) -> Result<Value> {
        let mut reader = LuauValueReader {
            bridge: self,
            path: ValuePath::new(what),
            parents: Vec::new(),
            budget: ValueBudget::new(limit),
        };
        reader.read_value(value)
    }
}

/// Push a value as Luau has it. One protected call makes all of it: mlua enters one for each
/// field, which is most of what a call of a small tool costs.
///
/// # Safety
///
/// Only in protected mode, since Luau raises where memory is short, and with the metatable of
/// lists at `LIST_METATABLE_INDEX`. Nothing here has to be dropped when it raises.
unsafe fn push_value(state: *mut ffi::lua_State, value: &Value) {
    // SAFETY: as above; each branch pushes one value, and the slots were asked for.
    unsafe {
        ffi::luaL_checkstack(state, MAX_VALUE_STACK_SLOTS, std::ptr::null());
        match value {
            // A list cannot have holes, so null stands there as itself.
            Value::Null => ffi::lua_pushlightuserdata(state, std::ptr::null_mut()),
            Value::Bool(flag) => ffi::lua_pushboolean(state, (*flag).into()),
            Value::Int(int) if is_exact_integer(*int) => ffi::lua_pushnumber(state, *int as f64),
            Value::Int(int) => ffi::lua_pushinteger64(state, *int),
            Value::Float(float) => ffi::lua_pushnumber(state, *float),
            Value::Str(text) => push_bytes(state, text.as_bytes()),
            Value::Bytes(bytes) => push_bytes(state, bytes),
            Value::Array(items) => {
                ffi::lua_createtable(state, items.len().try_into().unwrap_or(0), 0);
                for (index, item) in (1..).zip(items) {
                    push_value(state, item);
                    ffi::lua_rawseti(state, -2, index);
                }
                ffi::lua_pushvalue(state, LIST_METATABLE_INDEX);
                ffi::lua_setmetatable(state, -2);
            }
            Value::Object(object) => push_object(state, object),
        }
    }
}

/// The same for an object.
///
/// # Safety
///
/// As for `push_value`, which has asked for the slots.
unsafe fn push_object(state: *mut ffi::lua_State, object: &Object) {
    // SAFETY: as above.
    unsafe {
        ffi::lua_createtable(state, 0, object.len().try_into().unwrap_or(0));
        let mut nulls = 0;
        for (key, item) in object {
            if *item == Value::Null {
                nulls += 1;
                continue;
            }
            push_bytes(state, key.as_bytes());
            push_value(state, item);
            ffi::lua_rawset(state, -3);
        }
        if nulls == 0 {
            return;
        }
        ffi::lua_createtable(state, 0, 1);
        push_bytes(state, NULL_FIELDS_KEY.as_bytes());
        ffi::lua_createtable(state, 0, nulls);
        for (key, _) in object.iter().filter(|(_, item)| **item == Value::Null) {
            push_bytes(state, key.as_bytes());
            ffi::lua_pushboolean(state, 1);
            ffi::lua_rawset(state, -3);
        }
        ffi::lua_rawset(state, -3);
        ffi::lua_setmetatable(state, -2);
    }
}

/// # Safety
///
/// As for `push_value`, which has asked for the slots.
unsafe fn push_bytes(state: *mut ffi::lua_State, bytes: &[u8]) {
    // SAFETY: the pointer and the length are those of one slice, which Luau copies.
    unsafe { ffi::lua_pushlstring(state, bytes.as_ptr().cast(), bytes.len()) };
}

fn is_exact_integer(int: i64) -> bool {
    int.unsigned_abs() <= MAX_EXACT_INTEGER as u64
}

/// What a host function answers: `true, value`, `false, problem` or
/// `nil, ticket`, with integers kept whole.
pub(crate) type HostReply = (Option<bool>, HostReplyValue);

pub(crate) enum HostReplyValue {
    Value(Lv),
    /// A 64-bit integer that a Luau number would round.
    Wide(i64),
}

impl IntoLua for HostReplyValue {
    fn into_lua(self, _: &Lua) -> mlua::Result<Lv> {
        Ok(match self {
            HostReplyValue::Value(value) => value,
            HostReplyValue::Wide(int) => Lv::Integer(int),
        })
    }

    unsafe fn push_into_stack(self, lua: &mlua::state::RawLua) -> mlua::Result<()> {
        match self {
            // SAFETY: passed on as it came.
            HostReplyValue::Value(value) => unsafe { value.push_into_stack(lua) },
            HostReplyValue::Wide(int) => {
                // SAFETY: called by mlua with a stack slot reserved for one value.
                unsafe { ffi::lua_pushinteger64(lua.state(), int) };
                Ok(())
            }
        }
    }
}

struct LuauValueReader<'a> {
    bridge: &'a Bridge,
    path: ValuePath,
    /// The tables on the way down, to recognise a cycle.
    parents: Vec<usize>,
    budget: ValueBudget,
}

impl LuauValueReader<'_> {
    fn read_value(&mut self, value: &Lv) -> Result<Value> {
        self.spend_bytes(16)?;
        match value {
            Lv::Nil => Ok(Value::Null),
            Lv::Boolean(flag) => Ok(Value::Bool(*flag)),
            Lv::Integer(int) => Ok(Value::Int(*int)),
            Lv::Number(float) => Ok(Value::Float(*float)),
            Lv::String(text) => {
                let bytes = text.as_bytes();
                self.spend_bytes(bytes.len())?;
                Ok(match std::str::from_utf8(&bytes) {
                    Ok(text) => Value::Str(text.to_owned()),
                    Err(_) => Value::Bytes(bytes.to_vec()),
                })
            }
            Lv::Table(table) => self.read_table(table),
            Lv::LightUserData(pointer) if pointer.0.is_null() => Ok(Value::Null),
            Lv::Buffer(buffer) => {
                self.spend_bytes(buffer.len())?;
                Ok(Value::text_or_bytes(buffer.to_vec()))
            }
            other => {
                Err(self
                    .value_problem(format!("is a {}, which is not a value", luau_kind_name(other))))
            }
        }
    }

    fn read_table(&mut self, table: &Table) -> Result<Value> {
        let pointer = table.to_pointer() as usize;
        if self.parents.contains(&pointer) {
            return Err(self.value_problem("refers back to a table that contains it".to_owned()));
        }
        self.spend_bytes(LUAU_TABLE_OVERHEAD_BYTES)?;
        self.parents.push(pointer);
        let meta = table.metatable();
        let marked = meta.as_ref().is_some_and(|meta| *meta == self.bridge.array);
        let places =
            meta.as_ref().and_then(|meta| meta.raw_get::<Option<usize>>(LIST_LENGTH_KEY).ok()?);
        let length = places.map_or_else(|| table.raw_len(), |places| find_list_end(table, places));
        let value = if length > 0 || marked {
            self.read_array(table, length, places.is_some())?
        } else {
            self.read_object(table, meta)?
        };
        self.parents.pop();
        Ok(value)
    }

    fn read_array(&mut self, table: &Table, length: usize, may_have_holes: bool) -> Result<Value> {
        // Before anything is reserved for it.
        self.spend_bytes(length.saturating_mul(16))?;
        let mut items: Vec<Option<Value>> = Vec::new();
        items.resize_with(length, || None);
        self.for_each_entry(table, |reader, key, item| {
            let index = match key {
                Lv::Integer(index) if *index >= 1 => (*index - 1) as usize,
                _ => usize::MAX,
            };
            let Some(place) = items.get_mut(index) else {
                return Err(reader
                    .value_problem(format!("has list items and also the key {}", show_key(key))));
            };
            reader.path.push_index(index)?;
            *place = Some(reader.read_value(item)?);
            reader.path.pop();
            Ok(())
        })?;
        if may_have_holes {
            let items = items.into_iter().map(|item| item.unwrap_or(Value::Null));
            return Ok(Value::Array(items.collect()));
        }
        let holes = items.iter().position(Option::is_none);
        if let Some(hole) = holes {
            return Err(self
                .value_problem(format!("is a list with nothing at place {}", hole + 1))
                .with_hint("use json.null for an empty place"));
        }
        Ok(Value::Array(items.into_iter().flatten().collect()))
    }

    fn read_object(&mut self, table: &Table, meta: Option<Table>) -> Result<Value> {
        if let Some(meta) = &meta
            && let Ok(why) = meta.raw_get::<Lv>(NOT_A_VALUE_KEY)
        {
            match why {
                Lv::String(why) => return Err(self.value_problem(why.to_string_lossy())),
                // One that ends the script, which is all that its failure says.
                Lv::Function(ends) => {
                    let _ = ends.call::<()>(());
                    return Err(self.value_problem("is not known yet".to_owned()));
                }
                _ => {}
            }
        }
        let mut fields: Vec<(String, Value)> = Vec::new();
        self.for_each_entry(table, |reader, key, item| {
            let key = match key {
                Lv::String(key) => match key.to_str() {
                    Ok(key) => key.to_owned(),
                    Err(_) => {
                        return Err(reader.value_problem("has a key that is not UTF-8".to_owned()));
                    }
                },
                Lv::Integer(index) => {
                    return Err(reader
                        .value_problem(format!("has the key [{index}] but nothing at [1]"))
                        .with_hint("a list starts at 1 and has no gaps; otherwise use text keys"));
                }
                other => {
                    return Err(reader
                        .value_problem(format!("has a {} as a key", luau_kind_name(other)))
                        .with_hint("keys must be text"));
                }
            };
            reader.spend_bytes(LUAU_FIELD_OVERHEAD_BYTES + key.len())?;
            reader.path.push_key(&key)?;
            let item = reader.read_value(item)?;
            reader.path.pop();
            fields.push((key, item));
            Ok(())
        })?;
        if let Some(nulls) =
            meta.and_then(|meta| meta.raw_get::<Option<Table>>(NULL_FIELDS_KEY).ok().flatten())
        {
            self.for_each_entry(&nulls, |reader, key, _| {
                if let Lv::String(key) = key
                    && let Ok(key) = key.to_str()
                    && matches!(table.raw_get(&*key), Ok(Lv::Nil))
                {
                    reader.spend_bytes(LUAU_FIELD_OVERHEAD_BYTES + 16 + key.len())?;
                    fields.push((key.to_owned(), Value::Null));
                }
                Ok(())
            })?;
        }
        // Luau's own order depends on the history of the table.
        fields.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        Ok(Value::Object(fields.into_iter().collect::<Object>()))
    }

    fn for_each_entry(
        &mut self,
        table: &Table,
        mut visit: impl FnMut(&mut Self, &Lv, &Lv) -> Result<()>,
    ) -> Result<()> {
        let mut problem = None;
        let walked = table.for_each(|key: Lv, item: Lv| {
            visit(self, &key, &item).map_err(|found| {
                problem = Some(found);
                mlua::Error::runtime("stop")
            })
        });
        match (problem, walked) {
            (Some(problem), _) => Err(problem),
            (None, Err(error)) => Err(Problem::tool_error(format!("{}: {error}", self.path))),
            (None, Ok(())) => Ok(()),
        }
    }

    fn spend_bytes(&mut self, bytes: usize) -> Result<()> {
        self.budget.spend_bytes(bytes, &self.path)
    }

    fn value_problem(&self, why: String) -> Problem {
        Problem::tool_error(format!("{} {why}", self.path))
    }
}

/// Where a list of at least so many places ends, with what was added to it.
fn find_list_end(table: &Table, mut places: usize) -> usize {
    while table.raw_get::<Lv>(places + 1).is_ok_and(|next| !next.is_nil()) {
        places += 1;
    }
    places
}

fn luau_kind_name(value: &Lv) -> &'static str {
    match value {
        Lv::Function(_) => "function",
        Lv::Thread(_) => "coroutine",
        Lv::Table(_) => "table",
        Lv::Boolean(_) => "boolean",
        Lv::Number(_) | Lv::Integer(_) => "number",
        Lv::Vector(_) => "vector",
        Lv::LightUserData(_) | Lv::UserData(_) => "userdata",
        _ => "value of an unknown type",
    }
}

fn show_key(key: &Lv) -> String {
    match key {
        Lv::String(key) => moonlark_core::value::shorten_text(&key.to_string_lossy()).into_owned(),
        Lv::Integer(index) => format!("[{index}]"),
        Lv::Number(number) => format!("[{number}]"),
        other => format!("({})", luau_kind_name(other)),
    }
}
