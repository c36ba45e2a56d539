//! `sdk.<source>.<function>`: the catalog as scripts find it.
//!
//! Names are looked up in the table of core when a script first uses them, in
//! the snapshot that its call began with. What a call answers becomes one value
//! here for scripts of authors; for those of agents `run::values` makes it.

use std::sync::Arc;

use mlua::{MultiValue, Value as Lv};
use moonlark_core::schema::{property_names, required_names};
use moonlark_core::sdk::to_identifier;
use moonlark_core::tool::SourceKind;
use moonlark_core::value::{Object, Value, shorten_text};
use moonlark_core::{Problem, Result, Tool};
use moonlark_gateway::Call;
use moonlark_gateway::gateway::Invocation;
use moonlark_gateway::run::CallSite;

use crate::execute_tool::answer_values::{self, AnswerTextForm};
use crate::luau_bridge::Bridge;
use crate::result_fields::ResultFields;
use crate::vm_host::HostTable;

/// Parameters named in a message.
const MAX_HINT_PARAMETERS: usize = 6;

/// A tool that a script has named.
#[derive(Clone)]
pub(crate) struct SdkTarget {
    /// As messages call it: `sdk.files.read`.
    name: Arc<str>,
    found: SdkTargetTool,
}

#[derive(Clone)]
enum SdkTargetTool {
    Tool(Arc<Tool>),
    /// A tool that is mocked, or may come: its source is still connecting.
    Named(String),
}

impl SdkTarget {
    pub(crate) fn start_call(&self, call: &Call, args: Value) -> Invocation {
        let gateway = call.gateway();
        match &self.found {
            SdkTargetTool::Named(name) => gateway.invoke(call, name, args),
            SdkTargetTool::Tool(tool) => gateway.invoke(call, tool, args),
        }
    }

    /// The tool as the gateway knows it.
    pub(crate) fn tool_name(&self) -> &str {
        match &self.found {
            SdkTargetTool::Tool(tool) => &tool.name,
            SdkTargetTool::Named(name) => name,
        }
    }

    /// The same call, answered with everything that came back, if it has that.
    fn raw_target(&self) -> Option<SdkTarget> {
        let SdkTargetTool::Tool(tool) = &self.found else { return None };
        let raw = tool.raw.clone()?;
        Some(SdkTarget {
            name: format!("{}.raw", self.name).into(),
            found: SdkTargetTool::Tool(raw),
        })
    }

    /// The same for an agent's script. Which recorded call it is, in a fork, is decided now:
    /// tasks begin in any order.
    pub(crate) fn call_for_agent(
        self,
        call: Call,
        args: Value,
        form: AnswerTextForm,
        fields: Arc<ResultFields>,
    ) -> impl Future<Output = Result<Value>> + Send + 'static {
        let tool = match self.found {
            SdkTargetTool::Tool(tool) => Ok(tool),
            SdkTargetTool::Named(name) => call.catalog().find_tool(&name).cloned(),
        };
        if let Ok(tool) = &tool {
            call.claim_recorded_answer(tool, &args);
        }
        async move {
            let tool = tool?;
            let answer = call.gateway().invoke(&call, &tool, args).await?;
            let value = answer_values::value_from_answer(answer, form, &call, &tool.name)?;
            fields.record_answer(&tool.name, &value);
            Ok(value)
        }
    }

    /// The one table that a call takes, as an object.
    pub(crate) fn read_arguments(
        &self,
        bridge: &Bridge,
        mut args: MultiValue,
        limit: usize,
    ) -> Result<Value> {
        if args.len() > 1 {
            return Err(self.takes_table_problem());
        }
        match args.pop_front() {
            None | Some(Lv::Nil) => Ok(Value::Object(Object::new())),
            Some(table @ Lv::Table(_)) => match bridge.read_value(&table, &self.name, limit)? {
                object @ Value::Object(_) => Ok(object),
                Value::Array(items) if items.is_empty() => Ok(Value::Object(Object::new())),
                _ => Err(self.takes_table_problem()),
            },
            Some(_) => Err(self.takes_table_problem()),
        }
    }

    fn takes_table_problem(&self) -> Problem {
        let name = &self.name;
        let parameters = match &self.found {
            SdkTargetTool::Tool(tool) => parameters_hint(tool),
            SdkTargetTool::Named(_) => "…".to_owned(),
        };
        Problem::bad_request(format!("{name} takes one table of named arguments"))
            .with_hint(format!("write {name}({{ {parameters} }})"))
    }
}

/// `path = …, head = …`: those that must be there first.
fn parameters_hint(tool: &Tool) -> String {
    let schema = tool.input.json();
    let required: Vec<&str> = required_names(schema).collect();
    let others = property_names(schema).filter(|name| !required.contains(name));
    let names: Vec<String> = required
        .iter()
        .copied()
        .chain(others)
        .take(MAX_HINT_PARAMETERS)
        .map(|name| {
            if to_identifier(name) == name {
                format!("{} = …", shorten_text(name))
            } else {
                format!("[{:?}] = …", shorten_text(name))
            }
        })
        .collect();
    if names.is_empty() { "NAME = …".to_owned() } else { names.join(", ") }
}

/// Add what the prelude needs of this to `host`.
pub(crate) fn add_sdk_functions(table: &HostTable) -> mlua::Result<()> {
    table.add_function("sdk_source", |lua, host, name: Lv| {
        host.reply_with_outcome(lua, find_source(&host.call()?, &name, host.is_for_agents()))
    })?;
    table.add_function("sdk_function", |lua, host, (source, name): (String, Lv)| {
        let found = find_function(&host.call()?, &source, &name).map(|target| {
            let name = target.name.to_string();
            let raw = target.raw_target().map(|raw| host.add_target(raw));
            (host.add_target(target), name, raw)
        });
        host.reply_with_outcome(lua, found)
    })?;
    table.add_function("sdk_names", |_, host, source: Option<String>| {
        let call = host.call()?;
        let sdk = call.catalog().sdk();
        Ok(match source {
            None => sdk.sources().iter().map(|it| it.name.clone()).collect(),
            Some(source) => {
                let functions = sdk.find_source(&source).map(|it| it.functions.as_slice());
                let functions = functions.unwrap_or_default().iter();
                functions.map(|it| it.name.clone()).collect::<Vec<String>>()
            }
        })
    })?;
    table.add_function("call_sdk", |lua, host, mut args: MultiValue| {
        let call = host.call()?;
        let target = host.find_target(take_number(&mut args))?;
        let at = host.is_for_agents().then(|| take_call_site(&mut args));
        let started = match (target.read_arguments(&host.bridge, args, call.limits().value), at) {
            (Ok(args), Some(at)) => {
                let form = AnswerTextForm::Plain;
                let call = call.at_call_site(at.clone());
                host.trace_call(lua, &at, target.tool_name(), &args);
                let asked = target.call_for_agent(call, args, form, host.result_fields());
                return host.wait_for_call(lua, at, Box::pin(asked));
            }
            (Ok(args), None) => target.start_call(&call, args),
            (Err(problem), _) => Invocation::Done(Err(problem)),
        };
        host.reply_when_done(lua, started)
    })
}

/// The first argument, which is the number of something.
pub(crate) fn take_number(args: &mut MultiValue) -> usize {
    args.pop_front().and_then(|id| id.as_usize()).unwrap_or(usize::MAX)
}

/// The first argument, which is where in an agent's script a call is made.
pub(crate) fn take_call_site(args: &mut MultiValue) -> CallSite {
    args.pop_front().and_then(|place| read_name(&place)).unwrap_or_default().into()
}

/// The identifier of a source that the script has named.
fn find_source(call: &Call, name: &Lv, for_agents: bool) -> Result<String> {
    let name = read_name(name).ok_or_else(|| Problem::bad_request("a source has a name"))?;
    let catalog = call.catalog();
    if let Some(source) = catalog.sdk().find_source(&name) {
        return Ok(source.name.clone());
    }
    let is = |source: &str| source == name || to_identifier(source) == name;
    let connecting = catalog.connecting_sources().iter().find(|it| is(&it.source));
    match connecting {
        // Its tools are waited for when they are called.
        Some(it) if !for_agents => return Ok(it.source.clone()),
        Some(it) => return Err(still_connecting_problem(&it.source)),
        None if call.mocks().is_some() => return Ok(name),
        None => {}
    }
    let health = catalog.health().iter().find(|it| is(&it.source));
    if let Some(problem) = health.and_then(|it| it.problem.clone()) {
        let message = format!("sdk.{} is not there: {}", to_identifier(&name), problem.message);
        return Err(problem.with_message(message));
    }
    catalog.sdk().find_function(&format!("{name}.")).map(|(source, _)| source.name.clone())
}

/// The Problem of a script that names a source too early.
pub(crate) fn still_connecting_problem(source: &str) -> Problem {
    let name = to_identifier(source);
    Problem::unavailable(format!("sdk.{name} is not there yet: '{source}' is still connecting"))
        .with_hint("try again in a moment; `moonlark doctor` says what it waits for")
}

fn find_function(call: &Call, source: &str, name: &Lv) -> Result<SdkTarget> {
    let name = read_name(name).ok_or_else(|| Problem::bad_request("a function has a name"))?;
    let full = |function: &str| format!("sdk.{}.{function}", to_identifier(source)).into();
    let named = |tool: String| SdkTarget { name: full(&name), found: SdkTargetTool::Named(tool) };
    let Some(source) = call.catalog().sdk().find_source(source) else {
        return Ok(named(format!("{source}.{name}")));
    };
    match source.find_function(&name) {
        Some(function) => Ok(SdkTarget {
            name: full(&function.name),
            found: SdkTargetTool::Tool(function.tool.clone()),
        }),
        None if call.mocks().is_some() => Ok(named(match source.kind {
            SourceKind::Upstream | SourceKind::Api => format!("{}.{name}", source.original),
            _ => name.clone(),
        })),
        None => Err(source.unknown_function_problem(&name)),
    }
}

/// A name as a script writes it.
pub(crate) fn read_name(value: &Lv) -> Option<String> {
    match value {
        Lv::String(text) => text.to_str().ok().map(|text| text.to_owned()),
        _ => None,
    }
}
