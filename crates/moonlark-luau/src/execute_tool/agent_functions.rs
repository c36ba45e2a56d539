//! The Rust functions behind `prelude_run.luau`: promises, modules by grant,
//! artifacts.

use std::sync::{Arc, LazyLock};

use mlua::{Function, IntoLuaMulti, Lua, MultiValue, Table, Value as Lv};
use moonlark_core::schema::Schema;
use moonlark_core::tool::{BoxFuture, CallEffects, Source, SourceKind};
use moonlark_core::{Module, Problem, Result, Tool, Value};
use moonlark_gateway::artifacts::{ArtifactContent, ArtifactSelection};
use moonlark_gateway::tool_body::ToolBody;
use moonlark_gateway::{Call, LogLevel};
use serde_json::Map;

use crate::execute_tool::answer_values::{self, AnswerTextForm};
use crate::result_uses::{CallerFrame, ResultUse};
use crate::sdk_functions::{read_name, take_call_site, take_number};
use crate::vm_host::{VmHost, collect_host_arguments};

pub(crate) fn add_agent_functions(
    lua: &Lua,
    shared: &Arc<VmHost>,
    host: &Table,
) -> mlua::Result<()> {
    let add = |name: &str, function: Function| host.raw_set(name, function);

    let shared_ = shared.clone();
    add(
        "start_sdk",
        lua.create_function(move |lua, mut args: MultiValue| {
            let call = shared_.call()?;
            let target = shared_.find_target(take_number(&mut args))?;
            let at = take_call_site(&mut args);
            let limits = call.limits();
            let most = limits.calls as usize;
            let started = match target.read_arguments(&shared_.bridge, args, limits.value) {
                Ok(args) => {
                    let fields = shared_.result_fields();
                    let asked = target.call_for_agent(
                        call.at_call_site(at.clone()),
                        args,
                        AnswerTextForm::Parsed,
                        fields,
                    );
                    shared_.promises()?.start_call(at, asked, most)
                }
                Err(problem) => Err(problem),
            };
            match started {
                Ok(number) => (true, number).into_lua_multi(lua),
                Err(problem) => (false, shared_.to_error_table(lua, problem)?).into_lua_multi(lua),
            }
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "ask_host",
        lua.create_function(move |lua, mut args: MultiValue| {
            let call = shared_.call()?;
            let id = take_number(&mut args);
            let at = take_call_site(&mut args);
            let Some(function) = shared_.prelude.find_function(id) else {
                return Err(mlua::Error::runtime("no such host function"));
            };
            match collect_host_arguments(&shared_.bridge, function, args, call.limits().value) {
                Ok(args) => shared_.wait_for_call(
                    lua,
                    at.clone(),
                    call_host_tool(call.at_call_site(at), &function.tool, args),
                ),
                Err(problem) => shared_.reply_with_problem(lua, problem),
            }
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "result_use",
        lua.create_function(
            move |_, asked: (u32, usize, bool, u32, String, usize)| -> mlua::Result<_> {
                let (defined, params, variadic, line, callee, nth) = asked;
                let frame = CallerFrame { defined, params, variadic, line };
                let unit = shared_.unit()?;
                Ok(match unit.result_uses().find_use(frame, &callee, nth) {
                    ResultUse::Taken => ("taken", 0),
                    ResultUse::Unread => ("unread", 0),
                    ResultUse::Dropped => ("dropped", 0),
                    ResultUse::Returned(further) => ("returned", further),
                })
            },
        )?,
    )?;

    let shared_ = shared.clone();
    add(
        "planned",
        lua.create_function(move |_, number: usize| {
            let (call, at) = (shared_.call()?, shared_.promises()?.call_site(number));
            Ok(at.zip(call.run()).and_then(|(at, run)| run.planned_tool_at(&at)))
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "plan_ends",
        lua.create_function(move |_, name: String| -> mlua::Result<()> {
            let call = shared_.call()?;
            let problem = Problem::tool_error(format!(
                "the plan ends here: what {name} answers is not known before it is called"
            ));
            shared_.abort_script(call.run().map_or(problem.clone(), |run| run.stop_with(problem)));
            Err(mlua::Error::runtime("the script was stopped"))
        })?,
    )?;

    add(
        "has_words",
        // Where the stack ends is an error like any other: it must not pass for an answer.
        lua.create_function(|_, table: Table| match table.metatable() {
            Some(meta) => Ok(!meta.raw_get::<Lv>("__tostring")?.is_nil()),
            None => Ok(false),
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "clock",
        lua.create_function(move |_, ()| {
            Ok(shared_.call()?.run_clock().unwrap_or_default().as_secs_f64())
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "now",
        lua.create_function(move |_, ()| {
            let now = shared_.call()?.current_time().duration_since(std::time::UNIX_EPOCH);
            Ok(now.unwrap_or_default().as_secs_f64())
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "take",
        lua.create_function(move |lua, number: usize| {
            let ended = shared_.promises()?.take_answer(number);
            let ended = ended.unwrap_or_else(|| Err(Problem::internal("no such promise")));
            shared_.reply_with_result(lua, ended)
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "failure",
        lua.create_function(move |_, number: usize| {
            Ok(shared_.promises()?.find_failure(number).map(|problem| problem.message))
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "warn",
        lua.create_function(move |_, text: mlua::LuaString| {
            // Too much may have been said already; then this is not said.
            let _ = shared_.call()?.log_message(LogLevel::Warn, &text.to_string_lossy(), None);
            Ok(())
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "note_text_field",
        lua.create_function(move |_, (line, name): (u32, mlua::LuaString)| {
            shared_.result_fields().note_text_field(line, &name.to_string_lossy());
            Ok(())
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "module_problem",
        lua.create_function(move |lua, name: String| {
            let call = shared_.call()?;
            let problem = missing_module_problem(&call, &name)
                .map(|problem| shared_.to_error_table(lua, problem));
            problem.transpose()
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "sdk_global",
        lua.create_function(move |_, name: Lv| {
            let call = shared_.call()?;
            let Some(name) = read_name(&name) else { return Ok(None) };
            Ok(call.catalog().sdk().find_source(&name).map(|source| source.name.clone()))
        })?,
    )?;

    let shared_ = shared.clone();
    add(
        "artifact",
        lua.create_function(move |lua, mut args: MultiValue| {
            let call = shared_.call()?;
            let at = take_call_site(&mut args);
            let mut next = || args.pop_front().unwrap_or(Lv::Nil);
            let (handle, options) = (next(), next());
            let limit = call.limits().value;
            let asked = read_name(&handle)
                .ok_or_else(|| Problem::bad_request("artifact takes a handle such as \"art_…\""))
                .and_then(|handle| {
                    let options =
                        shared_.bridge.read_value(&options, "artifact: options", limit)?;
                    Ok(Value::from_fields([("handle", handle.into()), ("options", options)]))
                });
            match asked {
                Ok(args) => shared_.wait_for_call(
                    lua,
                    at.clone(),
                    call_host_tool(call.at_call_site(at), &ARTIFACT_TOOL, args),
                ),
                Err(problem) => shared_.reply_with_problem(lua, problem),
            }
        })?,
    )
}

fn call_host_tool(call: Call, tool: &Arc<Tool>, args: Value) -> BoxFuture<Result<Value>> {
    let tool = tool.clone();
    Box::pin(async move { call.gateway().call(&call, &tool, args).await })
}

/// `artifact`, as the gateway has functions of the host.
static ARTIFACT_TOOL: LazyLock<Arc<Tool>> = LazyLock::new(|| {
    let source = Arc::new(Source { kind: SourceKind::Host, name: "artifact".to_owned() });
    let body = ToolBody::from_fn(|call, args| {
        let handle = args.get("handle").and_then(Value::as_str).unwrap_or_default();
        read_artifact(call, handle, args.get("options").unwrap_or(&Value::Null))
    });
    let mut tool = Tool::new("artifact", source, Schema::description_only(Map::new()), body);
    tool.effects = CallEffects::READ_ONLY;
    Arc::new(tool)
});

/// Why a module is not there for scripts of agents; none if it is.
fn missing_module_problem(call: &Call, name: &str) -> Option<Problem> {
    let module = call.catalog().modules().iter().find(|module| module.name == name)?;
    let kind = required_grant_kind(module)?;
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
            return Some(problem.with_hint("only tools can ask the client: call one that does"));
        }
        _ => format!("name the folder it may use as dir for {owner}"),
    };
    let also = match call.catalog().sdk().find_source(name) {
        Some(source) => format!("; the source of that name is sdk.{}", source.name),
        None => String::new(),
    };
    Some(problem.with_hint(format!("{line} in moonlark.toml{also}")))
}

/// The kind of grant that a module is of no use without; none for those that
/// touch nothing.
fn required_grant_kind(module: &Module) -> Option<&'static str> {
    if module.name == "client" {
        return Some("client");
    }
    if module.name == "fs" {
        return Some("fs");
    }
    let needs = module.functions.iter().find_map(|function| function.needs)?;
    Some(needs.split_once(':').map_or(needs, |(kind, _)| kind))
}

fn read_artifact(call: &Call, handle: &str, options: &Value) -> Result<Value> {
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
            return Err(moonlark_core::module::unknown_parameter_problem("artifact", other, names));
        }
    }
    let path = options.get("path").and_then(Value::as_str).map(str::to_owned);
    let wanted = ArtifactSelection { path, from: count("from")?, count: count("count")? };
    let stored = call.gateway().artifacts().find_for_caller(handle, call.caller())?;
    if let ArtifactContent::Bytes { mime, .. } = &stored.held
        && wanted == ArtifactSelection::default()
    {
        return Ok(answer_values::block_from_handle(handle, mime, stored.size));
    }
    stored.read_selection(&wanted).map(|value| value.into_owned())
}
