//! A prompt script: the global table `agent`, which makes a prompt.
//!
//! `agent.resolve(args, config, context)` is run each time somebody asks for the
//! prompt. What becomes of its answer is not known here: it leaves as a value.

use std::collections::BTreeMap;
use std::sync::Arc;

use mlua::{Table, Value as Lv};
use moonlark_core::nearest::nearest_name;
use moonlark_core::script_snapshot::ScriptSnapshot;
use moonlark_core::value::Object;
use moonlark_core::{Problem, ProblemCode, Result, Value, tool_header};
use moonlark_gateway::{Call, Caller, Gateway};

use crate::engine::LuauEngine;
use crate::luau_bridge::Bridge;
use crate::script_unit::{MAX_FILE_LOOKUPS, ScriptUnit};
use crate::tool_script::ScriptFile;
use crate::vm::LuauVm;

/// What is read of one field of the table.
const MAX_PROMPT_FIELD_BYTES: usize = 256 * 1024;

/// A prompt script that loads.
#[derive(Clone)]
pub struct PromptScript {
    engine: LuauEngine,
    unit: Arc<ScriptUnit>,
    pub header: Arc<PromptHeader>,
}

/// What the script says of itself.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PromptHeader {
    pub name: Option<String>,
    pub title: Option<String>,
    pub description: String,
    /// The tools that it is about, by name.
    pub tools: Vec<String>,
    pub arguments: Vec<PromptArgument>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct PromptArgument {
    pub name: String,
    pub description: String,
    pub required: bool,
    /// What it is when it is not given.
    pub default: Option<Value>,
}

impl LuauEngine {
    /// Load a prompt script. Its top level runs here, in the same sandbox and
    /// with the same limits as later. Beside the outcome: the files it consists
    /// of, as with tools.
    pub async fn load_prompt(
        &self,
        script: ScriptFile,
        gateway: &Gateway,
    ) -> (Result<PromptScript>, BTreeMap<String, String>) {
        let ScriptFile { file, folder, main, files, loading, .. } = script;
        let snapshot = ScriptSnapshot::new(files, MAX_FILE_LOOKUPS);
        let call = gateway.open_scoped_call(Caller::new("load"), loading);
        let loaded = match ScriptUnit::new(folder, main, &file, snapshot.clone()) {
            Ok(unit) => self.read_prompt(Arc::new(unit), call).await,
            Err(problem) => Err(problem),
        };
        let loaded = loaded
            .map_err(|problem| tool_header::into_load_problem(problem, &file, "agent.resolve"));
        (loaded, snapshot.finish_loading())
    }

    async fn read_prompt(&self, unit: Arc<ScriptUnit>, call: Call) -> Result<PromptScript> {
        let (engine, reading, deadline) = (self.clone(), unit.clone(), call.deadline());
        let loading = self.run_preemptible(move |guard| async move {
            let mut vm = LuauVm::new(engine.prelude())?;
            guard.watch_interrupt(vm.interrupt());
            let header = vm.load_script(&reading, &call, read_prompt_header).await;
            guard.finish_run();
            header
        });
        let header = tokio::time::timeout_at(deadline, loading)
            .await
            .unwrap_or_else(|_| Err(Problem::new(ProblemCode::Timeout, "")))?;
        Ok(PromptScript { engine: self.clone(), unit, header: Arc::new(header) })
    }
}

impl PromptScript {
    /// Run `agent.resolve` in `call`, whose scope is the script's.
    pub async fn resolve_prompt(&self, call: &Call, args: Value) -> Result<Value> {
        let (script, call) = (self.clone(), call.clone());
        self.engine
            .run_preemptible(move |guard| async move {
                let mut vm = LuauVm::new(script.engine.prelude())?;
                guard.watch_interrupt(vm.interrupt());
                let resolved = vm.run_execute(&script.unit, &call, args).await;
                guard.finish_run();
                resolved
            })
            .await
    }
}

const PROMPT_FIELDS: [&str; 7] =
    ["name", "title", "version", "description", "tools", "arguments", "resolve"];

/// Read the `agent` table out of a script's globals. Only raw access: nothing of
/// the script runs here.
fn read_prompt_header(bridge: &Bridge, globals: &Table) -> Result<PromptHeader> {
    let agent = match globals.raw_get("agent") {
        Ok(Lv::Table(agent)) => agent,
        Ok(Lv::Nil) => {
            let is_tool = matches!(globals.raw_get("tool"), Ok(Lv::Table(_)));
            let problem = Problem::bad_script("the script defines no global table named agent");
            return Err(problem.with_hint(if is_tool {
                "this is a tool: it belongs into the tools folder"
            } else {
                "start it with: agent = { name = \"…\", description = \"…\" }; or begin the file's name with _ if others are to require it"
            }));
        }
        _ => return Err(Problem::bad_script("agent must be a table")),
    };
    if !matches!(agent.raw_get::<Lv>("resolve"), Ok(Lv::Function(_))) {
        return Err(Problem::bad_script("agent.resolve is not a function")
            .with_hint("add: function agent.resolve(args, config, context) … end"));
    }
    check_prompt_fields(&agent)?;
    let field = |name: &str| {
        let value = agent.raw_get::<Lv>(name).unwrap_or(Lv::Nil);
        bridge.read_value(&value, &format!("agent.{name}"), MAX_PROMPT_FIELD_BYTES)
    };
    Ok(PromptHeader {
        name: read_text("agent.name", field("name")?)?,
        title: read_text("agent.title", field("title")?)?,
        description: read_text("agent.description", field("description")?)?.unwrap_or_default(),
        tools: read_tool_names(field("tools")?)?,
        arguments: read_arguments(field("arguments")?)?,
    })
}

fn check_prompt_fields(agent: &Table) -> Result<()> {
    let mut unknown = Vec::new();
    let _ = agent.for_each(|key: Lv, _: Lv| {
        if let Lv::String(key) = key {
            let key = key.to_string_lossy();
            if !PROMPT_FIELDS.contains(&key.as_str()) {
                unknown.push(key);
            }
        }
        Ok(())
    });
    unknown.sort();
    // Helpers kept in the table are fine; a misspelt field is not.
    match unknown.into_iter().find_map(|name| Some((nearest_name(&name, PROMPT_FIELDS)?, name))) {
        Some((near, name)) => Err(Problem::bad_script(format!("agent.{name} means nothing"))
            .with_hint(format!("did you mean agent.{near}?"))),
        None => Ok(()),
    }
}

fn read_text(what: &str, value: Value) -> Result<Option<String>> {
    match value {
        Value::Null => Ok(None),
        Value::Str(text) => Ok(Some(text)),
        other => Err(Problem::bad_script(format!("{what} must be a string, got {}", other.kind()))),
    }
}

fn read_list(what: &str, value: Value) -> Result<Vec<Value>> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Object(empty) if empty.is_empty() => Ok(Vec::new()),
        Value::Array(items) => Ok(items),
        other => Err(Problem::bad_script(format!("{what} must be a list, got {}", other.kind()))),
    }
}

fn read_tool_names(value: Value) -> Result<Vec<String>> {
    let name = |tool: Value| match tool {
        Value::Str(name) => Ok(name),
        other => Err(Problem::bad_script(format!(
            "agent.tools must be a list of names of tools, got {}",
            other.kind()
        ))),
    };
    read_list("agent.tools", value)?.into_iter().map(name).collect()
}

fn read_arguments(value: Value) -> Result<Vec<PromptArgument>> {
    let mut arguments: Vec<PromptArgument> = Vec::new();
    for (index, item) in read_list("agent.arguments", value)?.into_iter().enumerate() {
        let at = format!("agent.arguments[{}]", index + 1);
        let argument = match item {
            // A name alone is an argument that may be left out.
            Value::Str(name) => PromptArgument { name, ..PromptArgument::default() },
            Value::Object(fields) => read_argument(fields, &at)?,
            other => {
                return Err(Problem::bad_script(format!(
                    "{at} must be a table such as {{ name = \"topic\" }}, got {}",
                    other.kind()
                )));
            }
        };
        if arguments.iter().any(|known| known.name == argument.name) {
            let name = &argument.name;
            return Err(Problem::bad_script(format!("agent has two arguments named {name}")));
        }
        arguments.push(argument);
    }
    Ok(arguments)
}

fn read_argument(mut fields: Object, at: &str) -> Result<PromptArgument> {
    let mut take = |name: &str| fields.swap_remove(name).unwrap_or(Value::Null);
    let name = read_text(&format!("{at}.name"), take("name"))?.filter(|name| !name.is_empty());
    let Some(name) = name else {
        return Err(Problem::bad_script(format!("{at} has no name")));
    };
    let required = match take("required") {
        Value::Null => false,
        Value::Bool(required) => required,
        other => {
            return Err(Problem::bad_script(format!(
                "{at}.required must be a boolean, got {}",
                other.kind()
            )));
        }
    };
    Ok(PromptArgument {
        name,
        description: read_text(&format!("{at}.description"), take("description"))?
            .unwrap_or_default(),
        required,
        default: Some(take("default")).filter(|default| *default != Value::Null),
    })
}
