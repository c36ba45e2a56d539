//! The Rust functions behind `prelude_run.luau`: promises, modules by grant,
//! artifacts.

use std::sync::{Arc, LazyLock};

use mlua::{Lua, MultiValue, Table, Value as Lv};
use moonlark_core::schema::Schema;
use moonlark_core::tool::{CallEffects, Source, SourceKind};
use moonlark_core::{Module, Problem, Result, Tool, Value};
use moonlark_gateway::artifacts::{ArtifactContent, ArtifactSelection};
use moonlark_gateway::run::CallSite;
use moonlark_gateway::tool_body::ToolBody;
use moonlark_gateway::{Call, LogLevel};
use serde_json::Map;

use crate::execute_tool::answer_values::{self, AnswerTextForm};
use crate::luau_bridge::HostReply;
use crate::result_uses::{CallerFrame, ResultUse};
use crate::sdk_functions::{read_name, take_call_site, take_number};
use crate::vm_host::{HostTable, VmHost, collect_host_arguments};

pub(crate) fn add_agent_functions(table: &HostTable) -> mlua::Result<()> {
    table.add_function("start_sdk", |lua, host, mut args: MultiValue| {
        let call = host.call()?;
        let target = host.find_target(take_number(&mut args))?;
        let at = take_call_site(&mut args);
        let limits = call.limits();
        let promises = host.promises()?;
        let args = target.read_arguments(&host.bridge, args, limits.value);
        let started = args.and_then(|args| {
            host.trace_call(lua, &at, target.tool_name(), &args);
            let (form, call_there) = (AnswerTextForm::Parsed, call.at_call_site(at.clone()));
            let asked = target.call_for_agent(call_there, args, form, host.result_fields());
            promises.start_call(at, asked, limits.calls as usize)
        });
        host.reply_with_outcome(lua, started)
    })?;
    table.add_function("ask_host", |lua, host, mut args: MultiValue| {
        let call = host.call()?;
        let function = host.find_host_function(take_number(&mut args))?;
        let at = take_call_site(&mut args);
        let args = collect_host_arguments(&host.bridge, function, args, call.limits().value);
        ask_host_tool(lua, host, at, &function.tool, args)
    })?;
    table.add_function(
        "result_use",
        |_, host, asked: (u32, usize, bool, u32, String, usize)| {
            let (defined, params, variadic, line, callee, nth) = asked;
            let frame = CallerFrame { defined, params, variadic, line };
            Ok(match host.unit()?.result_uses().find_use(frame, &callee, nth) {
                ResultUse::Taken => ("taken", 0),
                ResultUse::Unread => ("unread", 0),
                ResultUse::Dropped => ("dropped", 0),
                ResultUse::Returned(further) => ("returned", further),
            })
        },
    )?;
    table.add_function("planned", |_, host, number: usize| {
        let (call, at) = (host.call()?, host.promises()?.call_site(number));
        Ok(at.zip(call.run()).and_then(|(at, run)| run.planned_tool_at(&at)))
    })?;
    table.add_function("plan_ends", |_, host, name: String| {
        let call = host.call()?;
        let problem = Problem::tool_error(format!(
            "the plan ends here: what {name} answers is not known before it is called"
        ));
        let problem = call.run().map_or(problem.clone(), |run| run.stop_with(problem));
        Err::<(), _>(host.abort_script(problem))
    })?;
    // Where the stack ends is an error like any other: it must not pass for an answer.
    table.add_function("has_words", |_, _, table: Table| match table.metatable() {
        Some(meta) => Ok(!meta.raw_get::<Lv>("__tostring")?.is_nil()),
        None => Ok(false),
    })?;
    table.add_function("clock", |_, host, ()| {
        Ok(host.call()?.run_clock().unwrap_or_default().as_secs_f64())
    })?;
    table.add_function("now", |_, host, ()| {
        let now = host.call()?.current_time().duration_since(std::time::UNIX_EPOCH);
        Ok(now.unwrap_or_default().as_secs_f64())
    })?;
    table.add_function("take", |lua, host, number: usize| {
        let ended = host.promises()?.take_answer(number);
        let ended = ended.unwrap_or_else(|| Err(Problem::internal("no such promise")));
        host.reply_with_result(lua, ended)
    })?;
    table.add_function("failure", |_, host, number: usize| {
        Ok(host.promises()?.find_failure(number).map(|problem| problem.message))
    })?;
    table.add_function("warn", |_, host, text: mlua::LuaString| {
        // Too much may have been said already; then this is not said.
        let _ = host.call()?.log_message(LogLevel::Warn, &text.to_string_lossy(), None);
        Ok(())
    })?;
    table.add_function("note_text_field", |_, host, (line, name): (u32, mlua::LuaString)| {
        host.result_fields().note_text_field(line, &name.to_string_lossy());
        Ok(())
    })?;
    table.add_function("module_problem", |lua, host, name: String| {
        let problem = missing_module_problem(&host.call()?, &name);
        problem.map(|problem| host.to_error_table(lua, problem)).transpose()
    })?;
    table.add_function("sdk_global", |_, host, name: Lv| {
        let call = host.call()?;
        let source = read_name(&name).and_then(|name| call.catalog().sdk().find_source(&name));
        Ok(source.map(|source| source.name.clone()))
    })?;
    table.add_function("artifact", |lua, host, mut args: MultiValue| {
        let limit = host.call()?.limits().value;
        let at = take_call_site(&mut args);
        let mut next = || args.pop_front().unwrap_or(Lv::Nil);
        let (handle, options) = (next(), next());
        let asked = read_name(&handle)
            .ok_or_else(|| Problem::bad_request("artifact takes a handle such as \"art_…\""))
            .and_then(|handle| {
                let options = host.bridge.read_value(&options, "artifact: options", limit)?;
                Ok(Value::from_fields([("handle", handle.into()), ("options", options)]))
            });
        ask_host_tool(lua, host, at, &ARTIFACT_TOOL, asked)
    })
}

/// Call a function of the host and wait for it, if its arguments can be read.
fn ask_host_tool(
    lua: &Lua,
    host: &VmHost,
    at: CallSite,
    tool: &Arc<Tool>,
    args: Result<Value>,
) -> mlua::Result<HostReply> {
    let (call, tool) = (host.call()?.at_call_site(at.clone()), tool.clone());
    match args {
        Ok(args) => {
            host.trace_call(lua, &at, &tool.name, &args);
            call.claim_recorded_answer(&tool, &args);
            let asked = async move { call.gateway().call(&call, &tool, args).await };
            host.wait_for_call(lua, at, Box::pin(asked))
        }
        Err(problem) => host.reply_with_problem(lua, problem),
    }
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
