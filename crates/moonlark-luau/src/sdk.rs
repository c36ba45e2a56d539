//! `sdk.<source>.<function>`: the catalog as scripts find it.
//!
//! Names are looked up in the table of core when a script first uses them, in
//! the snapshot that its call began with. What a call answers becomes one value
//! here for scripts of authors; for those of agents `run::values` makes it.

use std::sync::Arc;

use mlua::{Function, IntoLuaMulti, Lua, MultiValue, Table, Value as Lv};
use moonlark_core::gateway::Started;
use moonlark_core::run::At;
use moonlark_core::sdk::identifier;
use moonlark_core::tool::SourceKind;
use moonlark_core::value::{Object, Value, shorten};
use moonlark_core::{Call, Problem, Result, Tool};
use serde_json::Value as Json;

use crate::bridge::Bridge;
use crate::host::Shared;
use crate::result_fields::ResultFields;
use crate::run::values::{self, Form};

/// Parameters named in a message.
const SOME: usize = 6;

/// A tool that a script has named.
#[derive(Clone)]
pub(crate) struct Target {
    /// As messages call it: `sdk.files.read`.
    name: Arc<str>,
    found: Found,
}

#[derive(Clone)]
enum Found {
    Tool(Arc<Tool>),
    /// A tool that is mocked, or may come: its source is still connecting.
    Named(String),
}

impl Target {
    pub(crate) fn start(&self, call: &Call, args: Value) -> Started {
        let gateway = call.gateway();
        match &self.found {
            Found::Named(name) => gateway.start_named(call, name, args),
            Found::Tool(tool) if call.mocks().is_some() => {
                gateway.start_named(call, &tool.name, args)
            }
            Found::Tool(tool) => gateway.start(call, tool, args),
        }
    }

    /// The same call, answered with everything that came back, if it has that.
    fn raw(&self) -> Option<Target> {
        let Found::Tool(tool) = &self.found else { return None };
        let raw = tool.raw.clone()?;
        Some(Target { name: format!("{}.raw", self.name).into(), found: Found::Tool(raw) })
    }

    /// The same for an agent's script.
    pub(crate) async fn ask(
        self,
        call: Call,
        args: Value,
        form: Form,
        fields: Arc<ResultFields>,
    ) -> Result<Value> {
        let tool = match self.found {
            Found::Tool(tool) => tool,
            Found::Named(name) => call.catalog().find(&name)?.clone(),
        };
        let answer = call.gateway().ask_tool(&call, &tool, args).await?;
        let value = values::of(answer, form, &call, &tool.name)?;
        fields.record(&tool.name, &value);
        Ok(value)
    }

    /// The one table that a call takes, as an object.
    pub(crate) fn arguments(
        &self,
        bridge: &Bridge,
        mut args: MultiValue,
        limit: usize,
    ) -> Result<Value> {
        if args.len() > 1 {
            return Err(self.takes_a_table());
        }
        match args.pop_front() {
            None | Some(Lv::Nil) => Ok(Value::Object(Object::new())),
            Some(table @ Lv::Table(_)) => match bridge.read(&table, &self.name, limit)? {
                object @ Value::Object(_) => Ok(object),
                Value::Array(items) if items.is_empty() => Ok(Value::Object(Object::new())),
                _ => Err(self.takes_a_table()),
            },
            Some(_) => Err(self.takes_a_table()),
        }
    }

    fn takes_a_table(&self) -> Problem {
        let name = &self.name;
        let parameters = match &self.found {
            Found::Tool(tool) => parameters(tool),
            Found::Named(_) => "…".to_owned(),
        };
        Problem::bad_request(format!("{name} takes one table of named arguments"))
            .hint(format!("write {name}({{ {parameters} }})"))
    }
}

/// `path = …, head = …`: those that must be there first.
fn parameters(tool: &Tool) -> String {
    let schema = tool.input.json();
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect();
    let all = schema.get("properties").and_then(Json::as_object);
    let others = all.into_iter().flat_map(|all| all.keys().map(String::as_str));
    let others = others.filter(|name| !required.contains(name));
    let names: Vec<String> = required
        .iter()
        .copied()
        .chain(others)
        .take(SOME)
        .map(|name| match identifier(name) == name {
            true => format!("{} = …", shorten(name)),
            false => format!("[{:?}] = …", shorten(name)),
        })
        .collect();
    if names.is_empty() { "NAME = …".to_owned() } else { names.join(", ") }
}

/// Add what the prelude needs of this to `host`.
pub(crate) fn functions(lua: &Lua, shared: &Arc<Shared>, host: &Table) -> mlua::Result<()> {
    let add = |name: &str, function: Function| host.raw_set(name, function);

    let shared_ = shared.clone();
    add(
        "sdk_source",
        lua.create_function(move |lua, name: Lv| {
            let call = shared_.call()?;
            match source(&call, &name, shared_.is_for_agents()) {
                Ok(name) => (true, name).into_lua_multi(lua),
                Err(problem) => (false, shared_.raisable(lua, problem)?).into_lua_multi(lua),
            }
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "sdk_function",
        lua.create_function(move |lua, (source, name): (String, Lv)| {
            let call = shared_.call()?;
            match function(&call, &source, &name) {
                Ok(target) => {
                    let name = target.name.to_string();
                    let raw = target.raw().map(|raw| shared_.add_target(raw));
                    (true, shared_.add_target(target), name, raw).into_lua_multi(lua)
                }
                Err(problem) => (false, shared_.raisable(lua, problem)?).into_lua_multi(lua),
            }
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "sdk_names",
        lua.create_function(move |_, source: Option<String>| {
            let call = shared_.call()?;
            let sdk = call.catalog().sdk();
            Ok(match source {
                None => sdk.sources().iter().map(|it| it.name.clone()).collect(),
                Some(source) => {
                    let functions = sdk.source(&source).map(|it| it.functions.as_slice());
                    let functions = functions.unwrap_or_default().iter();
                    functions.map(|it| it.name.clone()).collect::<Vec<String>>()
                }
            })
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "call_sdk",
        lua.create_function(move |lua, mut args: MultiValue| {
            let call = shared_.call()?;
            let target = shared_.target(number(&mut args))?;
            let at = shared_.is_for_agents().then(|| place(&mut args));
            let started = match (target.arguments(&shared_.bridge, args, call.limits().value), at) {
                (Ok(args), Some(at)) => {
                    let fields = shared_.result_fields();
                    let asked = target.ask(call.at(at.clone()), args, Form::Plain, fields);
                    return shared_.wait_at(lua, at, Box::pin(asked));
                }
                (Ok(args), None) => target.start(&call, args),
                (Err(problem), _) => Started::Done(Err(problem)),
            };
            shared_.answer(lua, started)
        })?,
    )
}

/// The first argument, which is the number of something.
pub(crate) fn number(args: &mut MultiValue) -> usize {
    args.pop_front().and_then(|id| id.as_usize()).unwrap_or(usize::MAX)
}

/// The first argument, which is where in an agent's script a call is made.
pub(crate) fn place(args: &mut MultiValue) -> At {
    args.pop_front().and_then(|place| text(&place)).unwrap_or_default().into()
}

/// The identifier of a source that the script has named.
fn source(call: &Call, name: &Lv, for_agents: bool) -> Result<String> {
    let name = text(name).ok_or_else(|| Problem::bad_request("a source has a name"))?;
    let catalog = call.catalog();
    if let Some(source) = catalog.sdk().source(&name) {
        return Ok(source.name.clone());
    }
    let is = |source: &str| source == name || identifier(source) == name;
    let connecting = catalog.connecting().iter().find(|it| is(&it.source));
    match connecting {
        // Its tools are waited for when they are called.
        Some(it) if !for_agents => return Ok(it.source.clone()),
        Some(it) => return Err(still_connecting(&it.source)),
        None if call.mocks().is_some() => return Ok(name),
        None => {}
    }
    let health = catalog.health().iter().find(|it| is(&it.source));
    if let Some(problem) = health.and_then(|it| it.problem.clone()) {
        let message = format!("sdk.{} is not there: {}", identifier(&name), problem.message);
        return Err(problem.saying(message));
    }
    match catalog.sdk().find(&format!("{name}.")) {
        Ok((source, _)) => Ok(source.name.clone()),
        Err(problem) => Err(problem),
    }
}

/// The Problem of a script that names a source too early.
pub(crate) fn still_connecting(source: &str) -> Problem {
    let name = identifier(source);
    Problem::unavailable(format!("sdk.{name} is not there yet: '{source}' is still connecting"))
        .hint("try again in a moment; `moonlark doctor` says what it waits for")
}

fn function(call: &Call, source: &str, name: &Lv) -> Result<Target> {
    let name = text(name).ok_or_else(|| Problem::bad_request("a function has a name"))?;
    let full = |function: &str| format!("sdk.{}.{function}", identifier(source)).into();
    let named = |tool: String| Target { name: full(&name), found: Found::Named(tool) };
    let Some(source) = call.catalog().sdk().source(source) else {
        return Ok(named(format!("{source}.{name}")));
    };
    match source.function(&name) {
        Some(function) => {
            Ok(Target { name: full(&function.name), found: Found::Tool(function.tool.clone()) })
        }
        None if call.mocks().is_some() => Ok(named(match source.kind {
            SourceKind::Upstream | SourceKind::Api => format!("{}.{name}", source.original),
            _ => name.clone(),
        })),
        None => Err(source.unknown(&name)),
    }
}

/// A name as a script writes it.
pub(crate) fn text(value: &Lv) -> Option<String> {
    match value {
        Lv::String(text) => text.to_str().ok().map(|text| text.to_owned()),
        _ => None,
    }
}
