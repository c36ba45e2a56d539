//! The Rust functions behind `prelude_run.luau`: promises, modules by grant,
//! artifacts.

use std::sync::Arc;

use mlua::{Function, IntoLuaMulti, Lua, MultiValue, Table, Value as Lv};
use moonlark_core::artifacts::{Held, Wanted};
use moonlark_core::{Call, Module, Problem, Result, Value};

use crate::host::Shared;
use crate::run::values::{self, Form};
use crate::sdk::{number, text};

pub(crate) fn functions(lua: &Lua, shared: &Arc<Shared>, host: &Table) -> mlua::Result<()> {
    let add = |name: &str, function: Function| host.raw_set(name, function);

    let shared_ = shared.clone();
    add(
        "start_sdk",
        lua.create_function(move |lua, mut args: MultiValue| {
            let call = shared_.call()?;
            let target = shared_.target(number(&mut args))?;
            let limits = call.limits();
            let most = limits.calls as usize;
            let started = match target.arguments(&shared_.bridge, args, limits.value) {
                Ok(args) => {
                    let asked = target.ask(call.clone(), args, Form::Parsed);
                    shared_.promises()?.start(asked, most)
                }
                Err(problem) => Err(problem),
            };
            match started {
                Ok(number) => (true, number).into_lua_multi(lua),
                Err(problem) => (false, shared_.raisable(lua, problem)?).into_lua_multi(lua),
            }
        })?,
    )?;

    let shared_ = shared.clone();
    add("ended", lua.create_function(move |_, ()| Ok(shared_.promises()?.ended()))?)?;

    let shared_ = shared.clone();
    add(
        "take",
        lua.create_function(move |lua, number: usize| {
            let ended = shared_.promises()?.take(number);
            let ended = ended.unwrap_or_else(|| Err(Problem::internal("no such promise")));
            shared_.reply(lua, ended)
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "module_problem",
        lua.create_function(move |lua, name: String| {
            let call = shared_.call()?;
            let problem = missing(&call, &name).map(|problem| shared_.raisable(lua, problem));
            problem.transpose()
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "sdk_global",
        lua.create_function(move |_, name: Lv| {
            let call = shared_.call()?;
            let Some(name) = text(&name) else { return Ok(None) };
            Ok(call.catalog().sdk().source(&name).map(|source| source.name.clone()))
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "artifact",
        lua.create_function(move |lua, (handle, options): (Lv, Lv)| {
            let call = shared_.call()?;
            let options = shared_.bridge.read(&options, "artifact: options", call.limits().value);
            let read = options.and_then(|options| artifact(&call, &handle, &options));
            shared_.reply(lua, read)
        })?,
    )
}

/// Why a module is not there for scripts of agents; none if it is.
fn missing(call: &Call, name: &str) -> Option<Problem> {
    let module = call.catalog().modules().iter().find(|module| module.name == name)?;
    let kind = kind(module)?;
    let (grants, owner) = (call.grants(), call.grants().owner());
    if grants.has_kind(kind) {
        return None;
    }
    let problem = Problem::denied(format!("{name} is not there for scripts of agents"));
    let line = match kind {
        "net" => format!("add a line such as \"net:api.example.com\" to allow for {owner}"),
        "env" => format!("add a line such as \"env:NAME\" to allow for {owner}"),
        "exec" => format!("add a line such as \"exec:git\" to allow for {owner}"),
        "client" => {
            return Some(problem.hint("only tools can ask the client: call one that does"));
        }
        _ => format!("name the folder it may use as dir for {owner}"),
    };
    let also = match call.catalog().sdk().source(name) {
        Some(source) => format!("; the source of that name is sdk.{}", source.name),
        None => String::new(),
    };
    Some(problem.hint(format!("{line} in moonlark.toml{also}")))
}

/// The kind of grant that a module is of no use without; none for those that
/// touch nothing.
fn kind(module: &Module) -> Option<&'static str> {
    if module.name == "client" {
        return Some("client");
    }
    if module.name == "fs" {
        return Some("fs");
    }
    let needs = module.functions.iter().find_map(|function| function.needs)?;
    Some(needs.split_once(':').map_or(needs, |(kind, _)| kind))
}

fn artifact(call: &Call, handle: &Lv, options: &Value) -> Result<Value> {
    let Some(handle) = text(handle) else {
        return Err(Problem::bad_request("artifact takes a handle such as \"art_…\""));
    };
    let count = |name: &str| match options.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Int(count)) if *count >= 0 => Ok(Some(*count as usize)),
        Some(Value::Float(count)) if *count >= 0.0 => Ok(Some(*count as usize)),
        Some(_) => Err(Problem::bad_request(format!("artifact: {name} is a number"))),
    };
    if let Some(fields) = options.as_object() {
        let known = ["path", "from", "count"];
        if let Some(other) = fields.keys().find(|key| !known.contains(&key.as_str())) {
            let names = known.into_iter();
            return Err(moonlark_core::module::unknown_parameter("artifact", other, names));
        }
    }
    let path = options.get("path").and_then(Value::as_str).map(str::to_owned);
    let wanted = Wanted { path, from: count("from")?, count: count("count")? };
    let stored = call.gateway().artifacts().find(&handle)?;
    if let Held::Bytes { mime, .. } = &stored.held
        && wanted == Wanted::default()
    {
        return Ok(values::by_handle(&handle, mime, stored.size));
    }
    stored.read(&wanted).map(|value| value.into_owned())
}
